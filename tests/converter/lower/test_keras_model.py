"""Models of every Keras come out of their configurations in one form."""

import pytest

from converter.lower.keras.model import Reference, parse, references
from formats.errors import CorruptError


def functional(name, layers, inputs, outputs):
    config = {"name": name, "layers": layers, "input_layers": inputs, "output_layers": outputs}
    return {"class_name": "Functional", "name": name, "config": config}


def layer(kind, name, nodes=(), **config):
    return {
        "class_name": kind, "name": name, "config": {"name": name, **config},
        "inbound_nodes": list(nodes),
    }  # fmt: skip


def node_2(*sources):
    return [[*source, {}] for source in sources]


def node_3(*sources):
    found = [
        {"class_name": "__keras_tensor__", "config": {"keras_history": list(source)}}
        for source in sources
    ]
    return {"args": found, "kwargs": {}}


def twice(node, first_argument, outputs):
    """A model that calls a nested one on its input, and again on what that gave."""
    inner = functional(
        "inner",
        [layer("InputLayer", "a"), layer("Dense", "b", [node(("a", 0, 0))])],
        [["a", 0, 0]],
        [["b", 0, 0]],
    )
    inner["inbound_nodes"] = [node(("x", 0, 0)), node(("inner", first_argument, 0))]
    layers = [layer("InputLayer", "x"), inner]
    return functional("outer", layers, [["x", 0, 0]], [["inner", n, 0] for n in outputs])


@pytest.mark.parametrize(
    ("node", "first_argument", "outputs"),
    [
        pytest.param(node_2, 1, [1, 2], id="from one: Keras 2"),
        pytest.param(node_2, 1, [2], id="from one, the first no output"),
        pytest.param(node_3, 0, [1, 2], id="outputs from one: Keras 3"),
        pytest.param(node_3, 0, [2], id="outputs from one, the first no output"),
        pytest.param(node_2, 0, [0, 1], id="from zero: Sequential models"),
    ],
)
def test_calls_of_a_nested_model_are_counted_as_they_are_written(node, first_argument, outputs):
    model = parse(twice(node, first_argument, outputs))
    calls = [c for c in model.layers["inner"].calls if any(references(c.arguments))]
    assert [next(references(c.arguments)).layer for c in calls] == ["x", "inner"]
    numbers = [model.layers["inner"].calls.index(c) for c in calls]
    assert next(references(calls[1].arguments)) == Reference("inner", numbers[0], 0)
    wanted = numbers if len(outputs) == 2 else numbers[1:]
    assert [r.call for r in references(model.outputs)] == wanted


@pytest.mark.parametrize("node", [node_2, node_3])
def test_calls_of_a_sequential_model_are_counted_as_those_of_a_layer(node):
    """Twice called, both ways used inside, and only the second an output."""
    config = twice(node, 0, [1])
    inner = config["config"]["layers"][1]
    inner["class_name"] = "Sequential"
    del inner["config"]["input_layers"], inner["config"]["output_layers"]
    after = layer("Add", "after", [node(("inner", 0, 0), ("inner", 1, 0))])
    config["config"]["layers"].append(after)
    model = parse(config)
    assert list(references(model.outputs)) == [Reference("inner", 1, 0)]
    assert len(model.layers["inner"].calls) == 2


@pytest.mark.parametrize("call", [1, 7])
def test_a_call_that_is_not_there_is_damage(call):
    layers = [layer("InputLayer", "x"), layer("Dense", "y", [node_2(("x", 0, 0))])]
    with pytest.raises(CorruptError, match=f"no call {call} of layer y"):
        parse(functional("m", layers, [["x", 0, 0]], [["y", call, 0]]))


def test_a_layer_that_is_not_there_is_damage():
    layers = [layer("InputLayer", "x")]
    with pytest.raises(CorruptError, match="not Keras's"):
        parse(functional("m", layers, [["x", 0, 0]], [["y", 0, 0]]))
