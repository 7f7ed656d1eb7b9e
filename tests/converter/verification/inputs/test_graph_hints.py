"""What a lowered graph does with its inputs: tables, words, pictures, switches."""

import numpy as np
import pytest

from converter.lower.graph import Graph, Node, Spec
from converter.verification.inputs.draw import draw_array
from converter.verification.inputs.graph_hints import find_hints


def hint_of(dtype, *nodes, name="x", shape=("n", "t"), vocabulary=(), **constants):
    """Return the hint of the one input of a graph; nodes are (op, inputs, outputs, attributes)."""
    graph = Graph("g", 18, inputs=[name])
    graph.specs[name] = Spec(dtype, shape)
    for key, array in constants.items():
        graph.initializers[key] = np.asarray(array)
        graph.specs[key] = Spec(graph.initializers[key].dtype.name, np.shape(array))
    graph.specs["table"] = Spec("float32", (11, 4))
    for op, given, results, *attributes in nodes:
        made = Node(op, given.split(), results.split(), *attributes)
        graph.nodes.append(made)
    return find_hints(graph, vocabulary).get(name)


def test_a_table_bounds_its_indices_behind_what_hands_them_on():
    found = hint_of(
        "float32", ("Cast", "x", "a"), ("Reshape", "a s", "b"), ("Add", "c b", "d"),
        ("Gather", "table d", "y", {"axis": 0}),
    )  # fmt: skip
    assert found.high == 11
    found = hint_of("int32", ("Gather", "table x", "y", {"axis": -1}))
    assert found.high == 4


def test_the_smallest_of_several_tables_counts():
    found = hint_of("int64", ("Gather", "table x", "y"), ("OneHot", "x depth values", "z"), depth=7)
    assert found.high == 7


def test_sequences_are_padded_with_what_their_elements_are_compared_with():
    table = ("Gather", "table x", "y")
    found = hint_of("int32", ("Equal", "x pad", "m"), table, pad=np.int32(0))
    assert (found.low, found.high, found.masked) == (1, 11, 0)
    ids = draw_array(np.random.default_rng(0), "int32", (3, 6), found)
    assert (ids[0] > 0).all()
    assert (ids[1, :3] > 0).all()
    assert (ids[1, 3:] == 0).all()
    found = hint_of("float32", ("Equal", "pad x", "m"), shape=("n", "t", 2), pad=np.float32(-9))
    assert (found.low, found.masked) == (0, -9)
    assert hint_of("int32", ("Equal", "x pad", "m"), table, pad=[0, 1]).masked is None
    assert hint_of("int32", ("Equal", "x pad", "m"), shape=("n",), pad=np.int32(0)) is None


def test_what_is_taken_from_is_no_index():
    assert hint_of("int32", ("Gather", "x indices", "y"), indices=[0, 1]) is None


def test_sides_of_boxes_whose_widths_are_indices_grow():
    sides = [("Gather", "x left", "l"), ("Gather", "x right", "r"), ("Sub", "r l", "w")]
    at = {"left": np.int64(0), "right": np.int64(2)}
    found = hint_of("int64", *sides, ("Gather", "table w", "y"), shape=("n", "t", 4), **at)
    assert (found.high, found.is_sorted) == (11, True)
    boxes = draw_array(np.random.default_rng(0), "int64", (3, 50, 4), found)
    assert (np.diff(boxes) >= 0).all()
    assert len(np.unique(boxes)) == 11
    alone = [("Sub", "x c", "w"), ("Gather", "table w", "y")]
    assert not hint_of("int64", *alone, c=np.int64(1)).is_sorted


def test_integers_that_are_taken_from_one_are_a_mask():
    mask = [("Unsqueeze", "x axes", "a"), ("Cast", "a", "b"), ("Sub", "one b", "c")]
    assert hint_of("int64", *mask, one=np.float32(1)).is_mask
    assert hint_of("int64", *mask, one=np.float32(2)) is None
    assert hint_of("int64", *mask[:2], ("Sub", "b one", "c"), one=np.float32(1)) is None


@pytest.mark.parametrize("attribute", [["ant", "bee"], ["ant", "bee", "cat"]])
def test_words_of_a_table_in_the_graph(attribute):
    found = hint_of(
        "string", ("Identity", "x", "a"), ("LabelEncoder", "a", "y", {"keys_strings": attribute})
    )
    assert found.words[:-1] == tuple(attribute)
    assert found.words[-1] not in attribute


def test_words_of_a_file():
    found = hint_of("string", ("StringConcat", "x x", "y"), vocabulary=["elk", "fox"])
    assert found.words[:2] == ("elk", "fox")
    assert hint_of("string", ("StringConcat", "x x", "y")) is None


SCALINGS = {
    "levels to one": ([("Mul", "x a", "y")], {"a": 1 / 255}, 255, 0),
    "levels around zero": (
        [("Cast", "x", "w"), ("Sub", "w a", "v"), ("Div", "v b", "y")],
        {"a": 127.5, "b": 127.5}, 127.5, 127.5,
    ),
    "a mean for each colour": ([("Sub", "x a", "y")], {"a": [103.9, 116.8, 123.7]}, 1, 114.8),
}  # fmt: skip


@pytest.mark.parametrize("name", SCALINGS)
def test_pictures_are_what_scaling_takes_to_numbers_around_zero(name):
    nodes, constants, scale, offset = SCALINGS[name]
    found = hint_of("float32", *nodes, ("Conv", "y k", "z"), **constants)
    assert found.scale == pytest.approx(scale)
    assert found.offset == pytest.approx(offset, rel=1e-3)


def test_small_factors_are_no_scaling_of_pictures():
    assert hint_of("float32", ("Mul", "x a", "y"), ("Add", "y b", "z"), a=0.5, b=1.0) is None
    assert hint_of("float32", ("Sub", "a x", "y"), a=300.0) is None  # a term of its own


SWITCHES = [
    ("keep_prob", "float32", (), 1), ("model/dropout_keep", "float32", (), 1),
    ("dropout_rate", "float32", (), 0), ("is_training", "bool", (), 0),
    ("keras_learning_phase", "bool", (), 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype", "shape", "expected"), SWITCHES)
def test_switches_of_training_are_off(name, dtype, shape, expected):
    found = hint_of(dtype, name=name, shape=shape)
    array = draw_array(np.random.default_rng(0), dtype, (), found)
    assert (array.dtype.name, array.item(), found.is_scalar) == (dtype, expected, True)


def test_names_alone_switch_nothing():
    assert hint_of("float32", name="housekeeping") is None
    assert hint_of("float32", name="raindrops") is None
    assert hint_of("float32", name="x", shape=()) is None
