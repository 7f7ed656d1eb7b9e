"""Zeros, infinities, NaN, overflow and nothing at all: ops against TensorFlow itself."""

import inspect
import math

import numpy as np
import onnx_run
import pytest
import spellings

tf = pytest.importorskip("tensorflow")

ENDS = [0.0, -0.0, 0.3, -0.7, 1.5, -2.5, 1e30, -1e30, math.inf, -math.inf, math.nan, 7.0]
EACH = [np.array([ENDS], "float32")]
PAIRS = [np.array([[a for a in ENDS for _ in ENDS]], "float32"),
         np.array([ENDS * len(ENDS)], "float32")]  # fmt: skip
UNARY = [
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Digamma",
    "Elu", "Erf", "Erfc", "Exp", "Expm1", "Floor", "Inv", "IsFinite", "IsInf", "IsNan", "Lgamma",
    "Log", "Log1p", "LogSoftmax", "Ndtri", "Neg", "OnesLike", "Reciprocal", "Relu", "Relu6", "Rint",
    "Round", "Rsqrt", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt",
    "Square", "Tan", "Tanh", "ZerosLike",
]  # fmt: skip
BINARY = [
    "Add", "AddV2", "Atan2", "Div", "DivNoNan", "FloorDiv", "FloorMod", "Greater", "Less",
    "Maximum", "Minimum", "Mod", "Mul", "MulNoNan", "Pow", "RealDiv", "SquaredDifference", "Sub",
    "TruncateDiv", "TruncateMod", "Xdivy", "Xlog1py", "Xlogy",
]  # fmt: skip
REDUCED = {
    "none": np.zeros((2, 0), "float32"),
    "endless": np.full((1, 4), -math.inf, "float32"),
    "mixed": np.array([[1, 3, -math.inf, 5, -2, 0.5]], "float32"),
    "NaN": np.array([[1, math.nan, 5], [math.nan, 7, 3], [-math.inf, 2, math.nan],
                     [math.nan] * 3], "float32"),
}  # fmt: skip


def check(op, xs, folder, constants=()):
    function = getattr(tf.raw_ops, op)
    names = [n for n in inspect.signature(function).parameters if n != "name"]
    wanted = function(**dict(zip(names, [*map(tf.constant, xs), *constants], strict=False))).numpy()
    specs = [(x.dtype.name, x.shape) for x in xs]
    graph, weights = spellings.tensorflow(folder, op, specs, constants, result=wanted.dtype.name)
    (found,) = onnx_run.run(graph, *xs, weights=weights)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=3e-5, atol=1e-6)


@pytest.mark.parametrize("op", [*UNARY, *BINARY])
@pytest.mark.filterwarnings("ignore")
def test_edges_are_what_tensorflow_makes_of_them(op, tmp_path):
    check(op, EACH if op in UNARY else PAIRS, tmp_path)


@pytest.mark.parametrize("op", ["Sum", "Mean", "Prod", "Max", "Min", "EuclideanNorm"])
@pytest.mark.parametrize("x", REDUCED)
@pytest.mark.filterwarnings("ignore")
def test_reductions(op, x, tmp_path):
    check(op, [REDUCED[x]], tmp_path, [np.array([1], "int32")])


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("x", ["endless", "mixed", "NaN"])
def test_indices_of_extremes(op, x, tmp_path):
    check(op, [REDUCED[x]], tmp_path, [np.array(1, "int32")])
