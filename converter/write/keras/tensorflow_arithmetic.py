"""Functions of numbers as operations of Keras 3: element by element, over axes, and products.

Keras promotes integers where TensorFlow does not; such cases are gaps.
"""

from typing import Any

import numpy as np

from converter.lower.keras.model import Reference
from converter.lower.keras.table import Gap
from converter.write.keras.tensorflow_steps import Steps, function, listed, whole

# fmt: off
UNARY = {
    "abs": "numpy.Absolute", "acos": "numpy.Arccos", "acosh": "numpy.Arccosh",
    "asin": "numpy.Arcsin", "asinh": "numpy.Arcsinh", "atan": "numpy.Arctan",
    "atanh": "numpy.Arctanh", "ceil": "numpy.Ceil", "cos": "numpy.Cos", "cosh": "numpy.Cosh",
    "erf": "math.Erf", "erfc": "math.Erfc", "erfinv": "math.Erfinv", "exp": "numpy.Exp",
    "expm1": "numpy.Expm1", "floor": "numpy.Floor", "identity": "numpy.Copy", "log": "numpy.Log",
    "log1p": "numpy.Log1p", "negative": "numpy.Negative", "reciprocal": "numpy.Reciprocal",
    "rint": "numpy.Round", "round": "numpy.Round", "rsqrt": "math.Rsqrt", "sign": "numpy.Sign",
    "sin": "numpy.Sin", "sinh": "numpy.Sinh", "sqrt": "numpy.Sqrt", "square": "numpy.Square",
    "stop_gradient": "core.StopGradient", "tan": "numpy.Tan",
    "zeros_like": "numpy.ZerosLike", "ones_like": "numpy.OnesLike",
    "bitwise.invert": "numpy.BitwiseInvert",
    "elu": "nn.Elu", "log_sigmoid": "nn.LogSigmoid", "relu": "nn.Relu", "relu6": "nn.Relu6",
    "selu": "nn.Selu", "sigmoid": "nn.Sigmoid", "softplus": "nn.Softplus",
    "softsign": "nn.Softsign", "tanh": "numpy.Tanh",
}
TESTS = {
    "is_finite": "numpy.Isfinite", "is_inf": "numpy.Isinf", "is_nan": "numpy.Isnan",
    "logical_not": "numpy.LogicalNot",
}
# What stays the same of integers too; the others Keras would make floating point numbers.
OF_INTEGERS = frozenset((
    "abs", "identity", "negative", "sign", "square", "stop_gradient", "relu", "zeros_like",
    "ones_like", "bitwise.invert", "round",
))
BINARY = {
    "add": "numpy.Add", "maximum": "numpy.Maximum", "minimum": "numpy.Minimum",
    "multiply": "numpy.Multiply", "pow": "numpy.Power", "subtract": "numpy.Subtract",
    "floordiv": "numpy.FloorDivide", "floor_div": "numpy.FloorDivide", "floormod": "numpy.Mod",
    "bitwise.bitwise_and": "numpy.BitwiseAnd", "bitwise.bitwise_or": "numpy.BitwiseOr",
    "bitwise.bitwise_xor": "numpy.BitwiseXor", "bitwise.left_shift": "numpy.BitwiseLeftShift",
    "bitwise.right_shift": "numpy.BitwiseRightShift",
}
OF_FLOATS = {
    "div": "numpy.TrueDivide", "divide_no_nan": "numpy.DivideNoNan",
}
COMPARED = {
    "equal": "numpy.Equal", "greater": "numpy.Greater", "greater_equal": "numpy.GreaterEqual",
    "less": "numpy.Less", "less_equal": "numpy.LessEqual", "logical_and": "numpy.LogicalAnd",
    "logical_or": "numpy.LogicalOr", "logical_xor": "numpy.LogicalXor",
    "not_equal": "numpy.NotEqual",
}
REDUCED = {
    "reduce_sum": "numpy.Sum", "reduce_prod": "numpy.Prod", "reduce_max": "numpy.Max",
    "reduce_min": "numpy.Min", "reduce_mean": "numpy.Mean", "reduce_variance": "numpy.Var",
    "reduce_std": "numpy.Std", "reduce_logsumexp": "math.Logsumexp", "reduce_all": "numpy.All",
    "reduce_any": "numpy.Any",
}
WIDE = frozenset(("reduce_sum", "reduce_prod", "reduce_max", "reduce_min"))
# fmt: on


def _unary(name: str, kind: str) -> None:
    def translate(s: Steps, x: Any) -> Any:
        if name not in OF_INTEGERS and not s.is_float(x):
            raise Gap(f"{name} of {s.dtype(x)}")
        return s.op(kind, x)

    function(name)(translate)


def _test(name: str, kind: str) -> None:
    function(name)(lambda s, x: s.op(kind, x, dtype="bool"))


def _binary(name: str, kind: str) -> None:
    def translate(s: Steps, x: Any, y: Any) -> Any:
        return s.op(kind, *s.alike(x, y))

    function(name)(translate)


def _of_floats(name: str, kind: str) -> None:
    def translate(s: Steps, x: Any, y: Any) -> Any:
        one, other = s.alike(x, y)
        if not s.is_float(x if one is x and not isinstance(x, int | float) else y):
            raise Gap(f"{name} of integers")
        return s.op(kind, one, other)

    function(name)(translate)


def _compared(name: str, kind: str) -> None:
    function(name)(lambda s, x, y: s.op(kind, *s.alike(x, y), dtype="bool"))


def _axis(axis: Any) -> Any:
    """Return axes to reduce: None for all, a number, or a list."""
    found = None if axis is None else whole(axis)
    if found == []:
        raise Gap("a reduction over no axis")
    return found


def _reduced(name: str, kind: str) -> None:
    def translate(
        s: Steps, input_tensor: Any, axis: Any = None, keepdims: bool | None = False,
        keep_dims: bool | None = None, reduction_indices: Any = None,
    ) -> Any:  # fmt: skip
        integers = ("int32", "int64") if name in WIDE else ("bool",)
        if not s.is_float(input_tensor) and s.dtype(input_tensor) not in integers:
            raise Gap(f"{name} of {s.dtype(input_tensor)}")
        axes = _axis(reduction_indices if axis is None else axis)
        return s.op(kind, input_tensor, axis=axes, keepdims=bool(keepdims or keep_dims))

    function(name)(translate)


for _name, _kind in UNARY.items():
    _unary(_name, _kind)
for _name, _kind in TESTS.items():
    _test(_name, _kind)
for _name, _kind in BINARY.items():
    _binary(_name, _kind)
for _name, _kind in OF_FLOATS.items():
    _of_floats(_name, _kind)
for _name, _kind in COMPARED.items():
    _compared(_name, _kind)
for _name, _kind in REDUCED.items():
    _reduced(_name, _kind)


@function("atan2")
def atan2(s: Steps, y: Any, x: Any) -> Any:
    """The angle of the point (x, y), in all four quadrants."""
    return s.op("numpy.Arctan2", *s.alike(y, x))


@function("scalar_mul")
def scalar_mul(s: Steps, scalar: Any, x: Any) -> Any:
    """Scalar * x."""
    return s.op("numpy.Multiply", *s.alike(scalar, x))


@function("divide", "truediv")
def true_divide(s: Steps, x: Any, y: Any) -> Any:
    """X / y, of integers as floating point numbers."""
    one, other = s.alike(x, y)
    dtype = s.dtype(x if isinstance(x, Reference) else y)
    if "float" not in dtype:
        wide = "float32" if dtype in ("int8", "uint8", "int16", "uint16") else "float64"
        one, other = (
            s.cast(v, wide) if isinstance(v, Reference) else np.asarray(v, wide)
            for v in (one, other)
        )
    return s.op("numpy.TrueDivide", one, other)


@function("saturate_cast")
def saturate_cast(s: Steps, value: Any, dtype: str) -> Any:
    """X in another dtype, held between its bounds."""
    return s.cast(value, str(dtype), "core.SaturateCast")


@function("debugging.check_numerics")
def check_numerics(s: Steps, tensor: Any, message: str) -> Any:
    """X, which TensorFlow refuses where it is infinite or NaN."""
    del message
    return s.op("numpy.Copy", tensor)


@function("trace")
def trace(s: Steps, x: Any) -> Any:
    """The sums of the diagonals of matrices."""
    if not s.is_float(x):
        raise Gap(f"the trace of {s.dtype(x)}")
    return s.op("numpy.Trace", x, offset=0, axis1=-2, axis2=-1)


@function("count_nonzero")
def count_nonzero(
    s: Steps, input: Any, axis: Any = None, keepdims: bool | None = None, dtype: str = "int64"
) -> Any:
    """How many are not zero, over axes."""
    if keepdims:
        raise Gap("a count that keeps its axes")
    return s.cast(s.op("numpy.CountNonzero", input, axis=_axis(axis), dtype="int32"), str(dtype))


@function("squared_difference")
def squared_difference(s: Steps, x: Any, y: Any) -> Any:
    """(x - y) ** 2."""
    return s.op("numpy.Square", s.op("numpy.Subtract", *s.alike(x, y)))


@function("reciprocal_no_nan")
def reciprocal_no_nan(s: Steps, x: Any) -> Any:
    """1 / x, and 0 where x is 0."""
    return s.op("numpy.DivideNoNan", 1.0, x)


@function("multiply_no_nan")
def multiply_no_nan(s: Steps, x: Any, y: Any) -> Any:
    """X * y, and 0 where y is 0."""
    one, other = s.alike(x, y)
    product = s.op("numpy.Multiply", one, other)
    return s.op("numpy.Where", s.op("numpy.Equal", other, 0.0), 0.0, product)


@function("xdivy")
def xdivy(s: Steps, x: Any, y: Any) -> Any:
    """X / y, and 0 where x is 0."""
    one, other = s.alike(x, y)
    ratio = s.op("numpy.TrueDivide", one, other)
    return s.op("numpy.Where", s.op("numpy.Equal", one, 0.0), 0.0, ratio)


@function("xlogy")
def xlogy(s: Steps, x: Any, y: Any) -> Any:
    """X * log(y), and 0 where x is 0."""
    one, other = s.alike(x, y)
    product = s.op("numpy.Multiply", one, s.op("numpy.Log", other))
    return s.op("numpy.Where", s.op("numpy.Equal", one, 0.0), 0.0, product)


@function("add_n", "accumulate_n")
def add_n(s: Steps, inputs: Any) -> Any:
    """The sum of tensors."""
    first, *others = s.alike(*(inputs if isinstance(inputs, list | tuple) else [inputs]))
    if not others:
        return s.op("numpy.Copy", first)
    for other in others:
        first = s.op("numpy.Add", first, other)
    return first


@function("clip_by_value")
def clip_by_value(s: Steps, t: Any, clip_value_min: Any, clip_value_max: Any) -> Any:
    """T, held between two bounds."""
    value, low, high = s.alike(t, clip_value_min, clip_value_max)
    return s.op("numpy.Maximum", s.op("numpy.Minimum", value, high), low)


@function("cast")
def cast(s: Steps, x: Any, dtype: str) -> Any:
    """X in another dtype."""
    return s.cast(x, str(dtype))


@function("where")
def where(s: Steps, condition: Any, x: Any = None, y: Any = None) -> Any:
    """X where the condition holds, else y."""
    if x is None or y is None:
        raise Gap("the places where a condition holds")
    if s.dtype(condition) != "bool":
        raise Gap("a condition of numbers")
    if all(isinstance(v, int | float) for v in (x, y)):
        return s.op("numpy.Where", condition, x, y, dtype="float32")
    one, other = s.alike(x, y)
    tensor = x if one is x and not isinstance(x, int | float) else y
    return s.op("numpy.Where", condition, one, other, dtype=s.dtype(tensor))


@function("reduce_euclidean_norm")
def euclidean_norm(
    s: Steps, input_tensor: Any, axis: Any = None, keepdims: bool | None = False
) -> Any:
    """The length of vectors."""
    power = s.op("numpy.Sum", s.op("numpy.Square", input_tensor), axis=_axis(axis),
                 keepdims=bool(keepdims))  # fmt: skip
    return s.op("numpy.Sqrt", power)


@function("norm")
def norm(
    s: Steps, tensor: Any, ord: Any = "euclidean", axis: Any = None, keepdims: bool | None = False,
    keep_dims: bool | None = None,
) -> Any:  # fmt: skip
    """The Euclidean length of vectors."""
    if ord != "euclidean":
        raise Gap(f"the norm {ord}")
    return euclidean_norm(s, tensor, axis, keepdims or keep_dims)


@function("l2_normalize")
def l2_normalize(
    s: Steps, x: Any, axis: Any = None, epsilon: float = 1e-12, dim: Any = None
) -> Any:
    """X / sqrt(max(sum(x * x), epsilon)) over axes."""
    axes = _axis(dim if axis is None else axis)
    power = s.op("numpy.Sum", s.op("numpy.Square", x), axis=axes, keepdims=True)
    return s.op("numpy.Multiply", x, s.op("math.Rsqrt", s.op("numpy.Maximum", power, epsilon)))


@function("moments")
def moments(
    s: Steps, x: Any, axes: Any, shift: Any = None, keepdims: bool | None = False,
    keep_dims: bool | None = None,
) -> Any:  # fmt: skip
    """Mean and variance over axes."""
    del shift  # unused by TensorFlow too
    return s.op("nn.Moments", x, axes=listed(axes), keepdims=bool(keepdims or keep_dims))


def _position(name: str, kind: str) -> None:
    def translate(
        s: Steps, input: Any, axis: Any = None, output_type: str = "int64", dimension: Any = None
    ) -> Any:
        place = dimension if axis is None else axis
        found = s.op(kind, input, axis=0 if place is None else whole(place), dtype="int32")
        return found if output_type == "int32" else s.cast(found, output_type)

    function(name)(translate)


_position("argmax", "numpy.Argmax")
_position("argmin", "numpy.Argmin")


@function("cumsum")
def cumsum(s: Steps, x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False) -> Any:
    """The running sum along an axis, from either end."""
    if exclusive or s.dtype(x) not in ("float32", "float64", "float16", "int32", "int64"):
        raise Gap("a running sum without the element itself, or of small integers")
    place = whole(axis)
    if not reverse:
        return s.op("numpy.Cumsum", x, axis=place)
    back = s.op("numpy.Cumsum", s.op("numpy.Flip", x, axis=place), axis=place)
    return s.op("numpy.Flip", back, axis=place)


@function("cumprod")
def cumprod(s: Steps, x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False) -> Any:
    """The running product along an axis."""
    if exclusive or reverse or not s.is_float(x):
        raise Gap("a running product that is exclusive or from the end")
    return s.op("numpy.Cumprod", x, axis=whole(axis))


@function("top_k")
def top_k(s: Steps, input: Any, k: Any = 1, sorted: bool = True, index_type: str = "int32") -> Any:
    """The k largest along the last axis, and their numbers."""
    if index_type != "int32":
        raise Gap(f"numbers of {index_type}")
    return s.op("math.TopK", input, k=whole(k), sorted=sorted)


@function("in_top_k")
def in_top_k(s: Steps, targets: Any, predictions: Any, k: int) -> Any:
    """Whether fewer than k predictions are larger than that of the target."""
    return s.op("math.InTopK", targets, predictions, k=whole(k), dtype="bool")


@function("sort")
def sort(s: Steps, values: Any, axis: int = -1, direction: str = "ASCENDING") -> Any:
    """Values in order along an axis."""
    found = s.op("numpy.Sort", values, axis=axis)
    return found if direction == "ASCENDING" else s.op("numpy.Flip", found, axis=axis)


@function("argsort")
def argsort(
    s: Steps, values: Any, axis: int = -1, direction: str = "ASCENDING", stable: bool = False
) -> Any:
    """The numbers of values in order along an axis."""
    del stable  # of equal ones the first comes first in both
    if direction != "ASCENDING":
        raise Gap("falling order")
    return s.op("numpy.Argsort", values, axis=axis, dtype="int32")


@function("matmul")
def matmul(
    s: Steps, a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False,
    adjoint_a: bool = False, adjoint_b: bool = False, a_is_sparse: bool = False,
    b_is_sparse: bool = False,
) -> Any:  # fmt: skip
    """The matrix product, of either matrix transposed."""
    del a_is_sparse, b_is_sparse  # which says only that many are zero
    one, other = s.alike(a, b)
    one = _turned(s, one) if transpose_a or adjoint_a else one
    other = _turned(s, other) if transpose_b or adjoint_b else other
    return s.op("numpy.Matmul", one, other)


def _turned(s: Steps, x: Any) -> Any:
    if not isinstance(x, Reference):
        return x.swapaxes(-1, -2)  # a constant
    return s.op("numpy.Swapaxes", x, axis1=-2, axis2=-1)


@function("matvec")
def matvec(s: Steps, a: Any, b: Any, transpose_a: bool = False) -> Any:
    """Matrices times vectors."""
    one, other = s.alike(a, b)
    one = _turned(s, one) if transpose_a else one
    column = (
        s.op("numpy.ExpandDims", other, axis=-1)
        if isinstance(other, Reference)
        else other[..., None]
    )
    return s.op("numpy.Squeeze", s.op("numpy.Matmul", one, column), axis=-1)


def einsum(s: Steps, equation: str, *inputs: Any) -> Any:
    """Einstein's sum."""
    return s.op("numpy.Einsum", *s.alike(*inputs), subscripts=equation)


@function("tensordot")
def tensordot(s: Steps, a: Any, b: Any, axes: Any) -> Any:
    """The sum of products over axes of both."""
    return s.op("numpy.Tensordot", *s.alike(a, b), axes=whole(axes))
