"""Order means the same in every front end: sorting, top k, quantiles, searching."""

import math

import numpy as np
import onnx_run
import op_by_hand
import pytest
import spellings as s

from converter.lower.ops import sort

INF = math.inf
PLAIN = np.random.default_rng(0).normal(size=(3, 7)).astype("float32")
TIED = np.array([[3, -1, 3, 0, -1, 2, 3], [5, 5, 5, 5, 5, 5, 5], [0, 9, 8, -7, 6, -5, 4]], "int32")
ENDLESS = np.array([[INF, 1, -INF, 0, -0.0, 2, 1], [1e30, -1e30, 1, 1, 1, 0, 5],
                    [1e-40, 0, 3, 3, 2, 2, 1]], "float32")  # fmt: skip


def keras(name, module="numpy", **config):
    return lambda folder, specs: s.keras_operation(folder, name, specs, module, config)


def function(name, **how):
    return lambda folder, specs: s.keras_function(folder, name, specs, how)


def script(*lines):
    return lambda folder, specs: s.torch_script(
        folder, [*lines] if len(lines) > 1 else lines[0], specs
    )


def argsort(x, *, descending=False):
    keys = -x.astype("float64") if descending else x
    return np.argsort(keys, -1, kind="stable")


def quantile(share, method="linear"):
    return lambda x: np.quantile(x.astype("float64"), share, -1, method=method).astype("float32")


# Operation -> inputs, reference, relative tolerance, spellings.
ROWS = {
    "sort": (
        [PLAIN, TIED, ENDLESS], lambda x: np.sort(x, -1), 0,
        [keras("Sort"), function("sort"),
         script("_0, _1 = torch.sort(x0, -1, False)", "return _0")],
    ),
    "argsort": (
        [PLAIN, TIED, ENDLESS], argsort, 0,
        [keras("Argsort"), function("argsort"),
         script("_0, _1 = torch.sort(x0, -1, False)", "return _1")],
    ),
    "argsort, descending": (
        [PLAIN, TIED, ENDLESS], lambda x: argsort(x, descending=True), 0,
        [function("argsort", direction="DESCENDING"), script("torch.argsort(x0, -1, True)")],
    ),
    "top k": (
        [PLAIN, TIED, ENDLESS], lambda x: -np.sort(-x.astype("float64"), -1)[:, :3], 0,
        [keras("TopK", "math", k=3), function("math.top_k", k=3),
         script("_0, _1 = torch.topk(x0, 3)", "return _0")],
    ),
    "quantile": (
        [PLAIN], quantile(0.3), 2e-6,
        [keras("Quantile", q=0.3, axis=-1), script("torch.quantile(x0, 0.29999999999999999, -1)")],
    ),
    "lower quantile": (
        [PLAIN, ENDLESS], quantile(0.8, "lower"), 0,
        [script('torch.quantile(x0, 0.80000000000000004, -1, interpolation="lower")')],
    ),
    "median of two": (
        [PLAIN[:, :6]], quantile(0.5), 2e-6, [keras("Median", axis=-1)],
    ),
    "smaller median": (
        [PLAIN[:, :6], TIED, ENDLESS], lambda x: np.sort(x, -1)[:, (x.shape[1] - 1) // 2], 0,
        [script("_0, _1 = torch.median(x0, -1)", "return _0")],
    ),
    "running maximum": (
        [PLAIN, TIED, ENDLESS], lambda x: np.maximum.accumulate(x, 1), 0,
        [script("_0, _1 = torch.cummax(x0, 1)", "return _0")],
    ),
    "index of the running minimum": (
        [np.array([[3, 1, 2, 1, 5, 0]], "float32")],
        lambda x: np.array([[0, 1, 1, 3, 3, 5]], "int64"), 0,
        [script("_0, _1 = torch.cummin(x0, 1)", "return _1")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("row", "way"), [(row, i) for row, (*_, ways) in ROWS.items() for i in range(len(ways))]
)
def test_an_order(row, way, tmp_path):
    inputs, reference, tolerance, ways = ROWS[row]
    for x in inputs:
        expected = reference(x)
        for shape in (x.shape, (None, *x.shape[1:]), (None,) * x.ndim):
            graph, weights = ways[way](tmp_path, [(x.dtype.name, shape)])
            found = onnx_run.run(graph, x, weights=weights)[0]
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-12)


RISING = np.array([-2, 0, 0, 1, 4.5], "float32")
VALUES = np.array([[-3, -2, 0, 0.5, 4.5, 9, -INF, INF]], "float32")


@pytest.mark.parametrize("side", ["left", "right"])
def test_places_in_a_sorted_sequence(side, tmp_path):
    specs = [("float32", (None,)), ("float32", (1, None))]
    expected = np.searchsorted(RISING, VALUES, side)
    how = f"out_int32=False, right={side == 'right'}"
    built = [
        s.keras_operation(tmp_path, "SearchSorted", specs, config={"side": side}),
        s.keras_function(tmp_path, "searchsorted", specs, {"side": side}, second="values"),
        s.torch_script(tmp_path, f"torch.searchsorted(x0, x1, {how})", specs),
        s.torch_script(tmp_path, f"torch.bucketize(x1, x0, {how})", specs),
    ]  # fmt: skip
    for graph, weights in built:
        (found,) = onnx_run.run(graph, RISING, VALUES, weights=weights)
        np.testing.assert_array_equal(found, expected)


def test_a_target_that_is_no_class_is_not_among_the_first(tmp_path):
    """And where a prediction is not finite, nothing is."""
    predictions = np.array(
        [[1, 3, 2], [1, 3, 2], [1, 3, 2], [1, np.nan, 2], [INF, 3, 2]], "float32"
    )
    targets = np.array([1, 0, 7, 2, 0], "int32")
    specs = [("int32", (None,)), ("float32", (None, 3))]
    graph, weights = s.keras_operation(tmp_path, "InTopK", specs, "math", {"k": 2})
    (found,) = onnx_run.run(graph, targets, predictions, weights=weights)
    assert found.tolist() == [True, False, False, False, False]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_unique_elements_or_slices_with_their_first_indices_inverse_and_counts(axis, dtype):
    x = np.asarray([[2, 0, 2, 1], [0, 0, 0, 1], [2, 0, 2, 1]]).astype(dtype)

    def reference(x):
        values, *places = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True, axis=axis
        )
        return [values, *(v.reshape(-1) for v in places)]

    op_by_hand.check(lambda op, x: list(sort.find_unique(op, x, axis, in_order=True)), reference, x)


def test_unique_elements_stand_in_the_order_of_their_first_occurrence():
    x = np.asarray([5.5, -1, 5.5, 0, -1], "float32")
    op_by_hand.check(
        lambda op, x: list(sort.find_unique(op, x)),
        lambda x: [[5.5, -1, 0], [0, 1, 3], [0, 1, 0, 2, 1], [2, 2, 1]], x,
    )  # fmt: skip
