"""Random numbers of torch programs: of the right kind, drawn anew in each run, and said."""

import numpy as np
import pytest
from onnx_run import session

from converter.lower import OPSET
from converter.lower.graph import Graph
from converter.lower.torch.calls import call
from converter.lower.torch.context import Context
from converter.lower.torch.mutable_tensors import Reference

COUNT = 4000
# Op, arguments after the tensor (None: there is no tensor), bounds, mean, deviation.
ROWS = (
    ("rand", None, ([COUNT, 2],), {}, (0, 1), 0.5, 0.289),
    ("randn", None, ([COUNT, 2],), {}, None, 0.0, 1.0),
    ("rand_like", (), (), {}, (0, 1), 0.5, 0.289),
    ("randn_like", (), (), {}, None, 0.0, 1.0),
    ("randint", None, (5, [COUNT, 2]), {}, (0, 4), 2.0, 1.414),
    ("randint.low", None, (-3, 2, [COUNT, 2]), {}, (-3, 1), -1.0, 1.414),
    ("randint_like", (), (5,), {}, (0, 4), 2.0, 1.414),
    ("randint_like.low_dtype", (), (2, 7), {}, (2, 6), 4.0, 1.414),
    ("uniform", (), (), {"from": 2.0, "to": 6.0}, (2, 6), 4.0, 1.155),
    ("normal", (), (3.0, 0.5), {}, None, 3.0, 0.5),
    ("normal.float_float", None, (3.0, 0.5, [COUNT, 2]), {}, None, 3.0, 0.5),
    ("normal.Tensor_float", (), (0.2,), {}, None, 0.5, 0.2),
    ("bernoulli.p", (), (0.25,), {}, (0, 1), 0.25, 0.433),
    ("bernoulli", (), (), {}, (0, 1), 0.5, 0.5),
    ("exponential", (), (2.0,), {}, None, 0.5, 0.5),
    ("dropout", (), (0.75, True), {}, (0, 2), 0.5, 0.866),
    ("feature_dropout", (), (0.5, True), {}, (0, 1), 0.5, 0.5),
)


def made(name, given, args, kwargs):
    op = Context(Graph("g", OPSET), {})
    x = Reference.to(op.input("x", "float32", (None, 2)))
    first = [] if given is None else [x]
    found = call(op, f"aten.{name}", [*first, *args], kwargs)
    op.output(found.read(), "y")
    running = session(op.graph)
    feeds = {"x": np.full((COUNT, 2), 0.5, np.float32)} if running.get_inputs() else {}
    return op.graph, [running.run(None, feeds)[0] for _ in range(2)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_numbers_are_of_the_distribution(row):
    name, given, args, kwargs, bounds, mean, deviation = row
    graph, (first, second) = made(name, given, args, kwargs)
    assert list(graph.random.values()) == [name.partition(".")[0]]
    assert first.shape == (COUNT, 2)
    assert not np.array_equal(first, second)
    assert first.mean() == pytest.approx(mean, abs=0.08)
    assert first.std() == pytest.approx(deviation, rel=0.08)
    if bounds is not None:
        assert first.min() >= bounds[0]
        assert first.max() <= bounds[1]


def test_a_permutation_has_every_number():
    _, (first, second) = made("randperm", None, (50,), {})
    assert sorted(first) == list(range(50))
    assert not np.array_equal(first, second)


def test_classes_are_drawn_by_their_shares():
    op = Context(Graph("g", OPSET), {})
    x = Reference.to(op.input("x", "float32", (1, 3)))
    op.output(call(op, "aten.multinomial", [x, 3000, True]).read(), "y")
    feeds = {"x": np.array([[1.0, 0.0, 3.0]], np.float32)}
    (found,) = session(op.graph).run(None, feeds)
    assert found.shape == (1, 3000)
    assert np.bincount(found[0], minlength=3) == pytest.approx([750, 0, 2250], abs=150)
