"""Putting elements at indices means the same in every front end, repeated indices included."""

import numpy as np
import onnx_run
import op_by_hand
import pytest
import spellings as s

from converter.lower.ops import scatter

RNG = np.random.default_rng(0)
ROWS_AT = np.array([[0], [2], [0], [0]], "int32")  # one index several times
UPDATES = RNG.normal(size=(4, 3)).astype("float32")
TABLE = RNG.normal(size=(4, 3)).astype("float32")
JOINS = {"add": np.add, "max": np.maximum, "min": np.minimum, "mul": np.multiply}


def scattered(x, updates, join):
    found = x.astype("float64")
    join.at(found, ROWS_AT[:, 0], updates.astype("float64"))
    return found


def spell(join):
    """Return how each front end spells a scatter with a reduction."""
    torch = {"add": "sum", "max": "amax", "min": "amin", "mul": "prod"}[join]
    lines = ["_0 = torch.reshape(x1, [-1])",
             f'return torch.index_reduce(x0, 0, _0, x2, "{torch}")']  # fmt: skip
    if join == "add":
        lines[1] = "return torch.index_add(x0, 0, _0, x2)"
    ways = [
        lambda folder, specs: s.keras_operation(
            folder, "ScatterUpdate", specs, "core", {"reduction": join}
        ),
        lambda folder, specs: s.torch_script(folder, lines, specs),
    ]
    if join != "mul":
        name = f"TensorScatter{join.capitalize()}"
        ways.append(lambda folder, specs: s.tensorflow(folder, name, specs))
    return ways


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("way", [0, 1, 2])
@pytest.mark.parametrize("join", JOINS)
def test_what_several_updates_of_one_row_come_to(join, way, dtype, tmp_path):
    ways = spell(join)
    if way >= len(ways):
        return
    x, updates = TABLE.astype(dtype), UPDATES.astype(dtype)
    expected = scattered(x, updates, JOINS[join])
    tolerance = {"float16": 4e-3, "float32": 2e-6, "float64": 1e-14}[dtype]
    for free in (False, True):
        specs = [
            (a.dtype.name, (None, *a.shape[1:]) if free else a.shape) for a in (x, ROWS_AT, updates)
        ]
        graph, weights = ways[way](tmp_path, specs)
        (found,) = onnx_run.run(graph, x, ROWS_AT, updates, weights=weights)
        assert found.dtype == dtype
        np.testing.assert_allclose(found.astype("float64"), expected, rtol=tolerance, atol=1e-12)


@pytest.mark.parametrize(("op_type", "join"), [("Sum", "add"), ("Max", "max"), ("Min", "min")])
def test_segments_in_any_order_without_those_that_are_negative(op_type, join, tmp_path):
    ids = np.array([2, 0, -1, 2], "int32")
    expected = np.full((3, 3), {"add": 0, "max": -3.4028235e38, "min": 3.4028235e38}[join], "f4")
    JOINS[join].at(expected, ids[ids >= 0], UPDATES[ids >= 0])
    specs = [("float32", (None, 3)), ("int32", (None,))]
    built = [
        s.keras_operation(tmp_path, f"Segment{op_type}", specs, "math", {"num_segments": 3}),
        s.tensorflow(tmp_path, f"UnsortedSegment{op_type}", specs, [np.array(3, "int32")]),
    ]
    for graph, weights in built:
        (found,) = onnx_run.run(graph, UPDATES, ids, weights=weights)
        np.testing.assert_allclose(found, expected, rtol=2e-6)


def test_ones_where_an_index_says_and_nowhere_for_one_that_is_no_class(tmp_path):
    x = np.array([[1, 0, 3], [-1, 2, 9]], "int32")
    expected = (x[..., None] == np.arange(4)).astype("float32")
    specs = [("int32", (None, 3))]
    constants = [np.array(4, "int32"), np.array(1, "float32"), np.array(0, "float32")]
    built = [
        s.keras_operation(tmp_path, "OneHot", specs, "nn", {"num_classes": 4}),
        s.keras_function(tmp_path, "one_hot", specs, {"depth": 4}),
        s.tensorflow(tmp_path, "OneHot", specs, constants, types=("TI",), result="float32"),
    ]
    for graph, weights in built:
        (found,) = onnx_run.run(graph, x, weights=weights)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("is_weighted", [True, False])
@pytest.mark.parametrize("indices", [[[0, 2, 2, 5, 9]], [[1, 1, 0], [3, 7, 3]], [[]]])
def test_indices_below_a_length_are_counted_by_row(indices, is_weighted, dtype):
    at = np.asarray(indices, "int32")
    weights = (RNG.normal(size=at.shape) * 9).astype(dtype)

    def reference(at, weights):
        given = weights if is_weighted else np.ones_like(weights)
        rows = [np.bincount(row, w, minlength=6)[:6] for row, w in zip(at, given, strict=True)]
        return np.stack(rows).astype(given.dtype)

    def function(op, at, weights):
        length = op.constant([6], "int64")
        given = weights if is_weighted else None
        return scatter.add_by_index(op, at, length, given, dtype, dim=6)

    op_by_hand.check(function, reference, at, weights)


def test_an_index_that_occurs_counts_once_where_only_that_is_asked_for():
    op_by_hand.check(
        lambda op, at: scatter.add_by_index(
            op, at, op.constant([4], "int64"), None, "int32", is_binary=True
        ),
        lambda at: np.asarray([1, 0, 1, 0], "int32"), np.asarray([2, 0, 2, 2, 7]),
    )  # fmt: skip


@pytest.mark.parametrize("is_computed", [False, True])
@pytest.mark.parametrize("start", [(0, 0), (1, 2), (-3, 1), (2, 9)])
def test_a_slice_is_replaced_whatever_is_in_it(start, is_computed):
    """NaN and zeros as well; a start that leaves too little room is moved."""
    updates = np.array([[np.nan, 0.0], [np.inf, -2.0]], "float32")
    row, column = (min(max(s, 0), n - 2) for s, n in zip(start, TABLE.shape, strict=True))
    wanted = TABLE.copy()
    wanted[row : row + 2, column : column + 2] = updates

    def update(op, x, new, at):
        return scatter.update_slice(op, x, new, at if is_computed else op.constant(start, "int64"))

    (found,) = op_by_hand.compute(update, TABLE, updates, np.array(start))
    np.testing.assert_array_equal(found, wanted)
