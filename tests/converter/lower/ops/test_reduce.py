"""Reductions mean the same in every front end: over one axis and several, of any sizes."""

import math

import numpy as np
import onnx_run
import pytest
import spellings as s

INF = math.inf
PLAIN = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
EDGED = np.array(
    [[[0, -0.0, 1e30, 2], [-INF, -INF, -INF, -INF], [3, 3, -INF, 1]],
     [[INF, 1, -2, 0], [1e-30, 0, 0, 0], [-5, 90, 90, -90]]], "float32",
)  # fmt: skip
TIED = np.array([[3, 1, 3, -4], [-4, 0, 2, -4]], "int32")
NAN = math.nan
NANS = np.array(
    [[NAN, 1, 2, 0], [1, NAN, 5, NAN], [1, INF, 2, NAN], [-INF, -3, -INF, NAN], [NAN] * 4,
     [3, 1, 7, 7]], "float32",
)  # fmt: skip
NARROW = NANS.astype("float16")
DOUBLE = NANS.astype("float64")
NOTHING = np.zeros((3, 0), "float32")


def passing_over_nan(index, last):
    """Return a reference: the index of an extreme, where NaN comes after all others."""
    return lambda x: index(np.where(np.isnan(x), last, x), 1)


def in_double(function):
    """Return a reference in float64, without NumPy's warnings, as float32."""

    def reference(x, **how):
        with np.errstate(all="ignore"):
            return np.asarray(function(x.astype("float64"), **how)).astype("float32")

    return reference


def logsumexp(x, axis, keepdims=False):
    most = np.max(x, axis, keepdims=True)
    most = np.where(np.isinf(most), 0, most)
    found = np.log(np.sum(np.exp(x - most), axis, keepdims=True)) + most
    return found if keepdims else np.squeeze(found, axis)


def norm(order):
    def reference(x, axis):
        if order == 0:
            return np.sum(x != 0, axis)
        if math.isinf(order):
            return (np.max if order > 0 else np.min)(np.abs(x), axis)
        return np.sum(np.abs(x) ** order, axis) ** (1 / order)

    return reference


def keras(name, module="numpy", **config):
    return lambda folder, specs: s.keras_operation(folder, name, specs, module, config)


def function(name, **how):
    return lambda folder, specs: s.keras_function(folder, name, specs, how)


def script(code):
    return lambda folder, specs: s.torch_script(folder, code, specs)


def op(name, *constants, result=None, **truths):
    """Spell an op of TensorFlow, with attributes that are true or false."""
    given = [np.array(c, "int32") for c in constants]
    text = "".join(
        f'attr {{ key: "{key}" value {{ b: {str(value).lower()} }} }} '
        for key, value in truths.items()
    )
    return lambda folder, specs: s.tensorflow(
        folder, name, specs, given, text, result=result or specs[0][0]
    )


# Operation -> inputs, reference, relative tolerance, spellings.
ROWS = {
    "logsumexp": (
        [PLAIN, EDGED], in_double(lambda x: logsumexp(x, -1)), 2e-6,
        [keras("Logsumexp", "math", axis=-1), function("math.reduce_logsumexp", axis=-1),
         script("torch.logsumexp(x0, [-1])")],
    ),
    "logsumexp over two axes": (
        [PLAIN, EDGED], in_double(lambda x: logsumexp(x, (0, 2), keepdims=True)), 2e-6,
        [keras("Logsumexp", "math", axis=[0, -1], keepdims=True),
         function("math.reduce_logsumexp", axis=[0, 2], keepdims=True),
         script("torch.logsumexp(x0, [0, 2], True)")],
    ),
    "variance": (
        [PLAIN], in_double(lambda x: x.var((0, 1))), 2e-6,
        [keras("Var", axis=[0, 1]), function("math.reduce_variance", axis=[0, -2]),
         script("torch.var(x0, [0, 1], False, False)")],
    ),
    "variance of a sample": (
        [PLAIN], in_double(lambda x: x.var(1, ddof=1, keepdims=True)), 2e-6,
        [script("torch.var(x0, [1], True, True)")],
    ),
    "deviation": (
        [PLAIN], in_double(lambda x: x.std(-1, keepdims=True)), 2e-6,
        [keras("Std", axis=-1, keepdims=True), function("math.reduce_std", axis=-1, keepdims=True),
         script("torch.std(x0, [-1], False, True)")],
    ),
    **{
        f"norm of order {order}": (
            [PLAIN, EDGED[1:]], in_double(lambda x, order=order: norm(order)(x, 1)), 4e-6,
            [keras("Norm", "linalg", ord=order, axis=1),
             script(f"torch.linalg_vector_norm(x0, {text}, [1])")],
        )
        for order, text in ((0, 0), (1, 1), (2, 2), (3, 3), (INF, "inf"), (-INF, "-inf"))
    },
    "largest": (
        [PLAIN, EDGED, TIED, NANS, NARROW, DOUBLE], lambda x: np.max(x, 1), 0,
        [op("Max", 1), keras("Max", axis=1), function("reduce_max", axis=1),
         script("torch.amax(x0, [1])")],
    ),
    "smallest, kept": (
        [PLAIN, EDGED, TIED, NANS, NARROW, DOUBLE], lambda x: np.min(x, 1, keepdims=True), 0,
        [op("Min", 1, keep_dims=True), keras("Min", axis=1, keepdims=True),
         script("torch.amin(x0, [1], True)")],
    ),
    "largest of no elements": (
        [NOTHING], lambda x: np.full(3, -INF, "float32"), 0,
        [op("Max", 1), function("reduce_max", axis=1)],
    ),
    "largest of all": (
        [PLAIN, EDGED, NANS, NANS[5:]], lambda x: np.asarray(np.max(x)), 0,
        [keras("Max"), function("reduce_max"), script("torch.max(x0)")],
    ),
    "largest size": (
        [NANS, DOUBLE], lambda x: np.max(np.abs(x), 1), 0,
        [keras("Norm", "linalg", ord=INF, axis=1),
         script("torch.linalg_vector_norm(x0, inf, [1])")],
    ),
    "index of the largest, NaN passed over": (
        [NANS, NARROW, DOUBLE], passing_over_nan(np.argmax, -INF), 0,
        [op("ArgMax", 1, result="int64"), function("math.argmax", axis=1)],
    ),
    "index of the smallest, NaN passed over": (
        [NANS, NARROW, DOUBLE], passing_over_nan(np.argmin, INF), 0,
        [op("ArgMin", 1, result="int64"), function("math.argmin", axis=1)],
    ),
    "index of the first NaN, or of the largest": (
        [NANS, NARROW, DOUBLE], lambda x: np.argmax(x, 1), 0, [script("torch.argmax(x0, 1)")],
    ),
    "index of the first NaN, or of the smallest": (
        [NANS, NARROW, DOUBLE], lambda x: np.argmin(x, 1), 0, [script("torch.argmin(x0, 1)")],
    ),
    "all": (
        [PLAIN, EDGED], lambda x: np.all(x, 1), 0,
        [keras("All", axis=1), script("torch.all(x0, 1)")],
    ),
    "any": (
        [PLAIN, EDGED, np.zeros((2, 0, 3), "float32")], lambda x: np.any(x, -2), 0,
        [keras("Any", axis=-2), script("torch.any(x0, -2)")],
    ),
    "number that is not zero": (
        [PLAIN, EDGED], lambda x: np.count_nonzero(x, 2).astype("int64"), 0,
        [function("math.count_nonzero", axis=2), script("torch.count_nonzero(x0, 2)")],
    ),
    "index of the largest": (
        [PLAIN, EDGED, TIED], lambda x: np.argmax(x, 1), 0,
        [op("ArgMax", 1, result="int64"), function("math.argmax", axis=1),
         script("torch.argmax(x0, 1)")],
    ),
    "index of the smallest, kept": (
        [PLAIN, EDGED, TIED], lambda x: np.argmin(x, -1, keepdims=True), 0,
        [script("torch.argmin(x0, -1, True)")],
    ),
    "index of the largest of all": (
        [PLAIN, EDGED, TIED], lambda x: np.argmax(x).astype("int32"), 0, [keras("Argmax")],
    ),
    "cumulative sum": (
        [PLAIN, TIED], lambda x: np.cumsum(x, 1, dtype=x.dtype), 2e-6,
        [op("Cumsum", 1), keras("Cumsum", axis=1), function("math.cumsum", axis=1),
         script("torch.cumsum(x0, 1, dtype=None)")],
    ),
    "cumulative product from the end": (
        [PLAIN, TIED], lambda x: np.cumprod(x[:, ::-1], 1, dtype=x.dtype)[:, ::-1], 2e-6,
        [op("Cumprod", 1, reverse=True), function("math.cumprod", axis=1, reverse=True)],
    ),
    "cumulative product before each": (
        [PLAIN, TIED],
        lambda x: np.cumprod(np.insert(x, 0, 1, 1), 1, dtype=x.dtype)[:, :-1], 2e-6,
        [op("Cumprod", 1, exclusive=True), function("math.cumprod", axis=1, exclusive=True)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("row", "way"), [(row, i) for row, (*_, ways) in ROWS.items() for i in range(len(ways))]
)
def test_a_reduction(row, way, tmp_path):
    inputs, reference, tolerance, ways = ROWS[row]
    for x in inputs:
        expected = reference(x)
        for shape in (x.shape, (None, *x.shape[1:]), (None,) * x.ndim):
            graph, weights = ways[way](tmp_path, [(x.dtype.name, shape)])
            (found,) = onnx_run.run(graph, x, weights=weights)
            if found.dtype != expected.dtype:  # torch widens integers
                assert (found.dtype, expected.dtype) == (np.int64, np.int32)
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-12)
