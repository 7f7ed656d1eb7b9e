"""TensorFlow functions of numbers as operations of Keras 3: elementwise, reductions, products.

Keras promotes integers where TensorFlow does not; these cases are unsupported.
"""

from typing import Any

import numpy as np

from converter.lower.keras.model import Reference
from converter.lower.keras.table import Unsupported
from converter.write.keras.tensorflow_ops.builder import KerasOps, as_int, as_list, function

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
    def translate(op: KerasOps, x: Any) -> Any:
        if name not in OF_INTEGERS and not op.is_float(x):
            raise Unsupported(f"{name} of {op.dtype(x)}")
        return op.call(kind, x)

    function(name)(translate)


def _test(name: str, kind: str) -> None:
    function(name)(lambda op, x: op.call(kind, x, dtype="bool"))


def _binary(name: str, kind: str) -> None:
    def translate(op: KerasOps, x: Any, y: Any) -> Any:
        return op.call(kind, *op.same_dtype(x, y))

    function(name)(translate)


def _of_floats(name: str, kind: str) -> None:
    def translate(op: KerasOps, x: Any, y: Any) -> Any:
        one, other = op.same_dtype(x, y)
        if not op.is_float(x if one is x and not isinstance(x, int | float) else y):
            raise Unsupported(f"{name} of integers")
        return op.call(kind, one, other)

    function(name)(translate)


def _compare(name: str, kind: str) -> None:
    function(name)(lambda op, x, y: op.call(kind, *op.same_dtype(x, y), dtype="bool"))


def _axis(axis: Any) -> Any:
    """Return axes to reduce: None for all, a number, or a list."""
    found = None if axis is None else as_int(axis)
    if found == []:
        raise Unsupported("a reduction with an empty list of axes")
    return found


def _reduce(name: str, kind: str) -> None:
    def translate(
        op: KerasOps, input_tensor: Any, axis: Any = None, keepdims: bool | None = False,
        keep_dims: bool | None = None, reduction_indices: Any = None,
    ) -> Any:  # fmt: skip
        integers = ("int32", "int64") if name in WIDE else ("bool",)
        if not op.is_float(input_tensor) and op.dtype(input_tensor) not in integers:
            raise Unsupported(f"{name} of {op.dtype(input_tensor)}")
        axes = _axis(reduction_indices if axis is None else axis)
        return op.call(kind, input_tensor, axis=axes, keepdims=bool(keepdims or keep_dims))

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
    _compare(_name, _kind)
for _name, _kind in REDUCED.items():
    _reduce(_name, _kind)


@function("atan2")
def atan2(op: KerasOps, y: Any, x: Any) -> Any:
    """The angle of the point (x, y), in all four quadrants."""
    return op.call("numpy.Arctan2", *op.same_dtype(y, x))


@function("scalar_mul")
def scalar_mul(op: KerasOps, scalar: Any, x: Any) -> Any:
    """Scalar * x."""
    return op.call("numpy.Multiply", *op.same_dtype(scalar, x))


@function("divide", "truediv")
def true_divide(op: KerasOps, x: Any, y: Any) -> Any:
    """X / y, of integers as floating point numbers."""
    one, other = op.same_dtype(x, y)
    dtype = op.dtype(x if isinstance(x, Reference) else y)
    if "float" not in dtype:
        wide = "float32" if dtype in ("int8", "uint8", "int16", "uint16") else "float64"
        one, other = (
            op.cast(v, wide) if isinstance(v, Reference) else np.asarray(v, wide)
            for v in (one, other)
        )
    return op.call("numpy.TrueDivide", one, other)


@function("saturate_cast")
def saturate_cast(op: KerasOps, value: Any, dtype: str) -> Any:
    """X in another dtype, held between its bounds."""
    return op.cast(value, str(dtype), "core.SaturateCast")


@function("debugging.check_numerics")
def check_numerics(op: KerasOps, tensor: Any, message: str) -> Any:
    """X, which TensorFlow refuses where it is infinite or NaN."""
    del message
    return op.call("numpy.Copy", tensor)


@function("trace")
def trace(op: KerasOps, x: Any) -> Any:
    """The sums of the diagonals of matrices."""
    if not op.is_float(x):
        raise Unsupported(f"the trace of {op.dtype(x)}")
    return op.call("numpy.Trace", x, offset=0, axis1=-2, axis2=-1)


@function("count_nonzero")
def count_nonzero(
    op: KerasOps,
    input: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    dtype: str = "int64",
) -> Any:
    """How many are not zero, over axes."""
    if keepdims:
        raise Unsupported("count_nonzero with keepdims=True")
    return op.cast(
        op.call("numpy.CountNonzero", input, axis=_axis(axis), dtype="int32"), str(dtype)
    )


@function("squared_difference")
def squared_difference(op: KerasOps, x: Any, y: Any) -> Any:
    """(x - y) ** 2."""
    return op.call("numpy.Square", op.call("numpy.Subtract", *op.same_dtype(x, y)))


@function("reciprocal_no_nan")
def reciprocal_no_nan(op: KerasOps, x: Any) -> Any:
    """1 / x, and 0 where x is 0."""
    return op.call("numpy.DivideNoNan", 1.0, x)


@function("multiply_no_nan")
def multiply_no_nan(op: KerasOps, x: Any, y: Any) -> Any:
    """X * y, and 0 where y is 0."""
    one, other = op.same_dtype(x, y)
    product = op.call("numpy.Multiply", one, other)
    return op.call("numpy.Where", op.call("numpy.Equal", other, 0.0), 0.0, product)


@function("xdivy")
def xdivy(op: KerasOps, x: Any, y: Any) -> Any:
    """X / y, and 0 where x is 0."""
    one, other = op.same_dtype(x, y)
    ratio = op.call("numpy.TrueDivide", one, other)
    return op.call("numpy.Where", op.call("numpy.Equal", one, 0.0), 0.0, ratio)


@function("xlogy")
def xlogy(op: KerasOps, x: Any, y: Any) -> Any:
    """X * log(y), and 0 where x is 0."""
    one, other = op.same_dtype(x, y)
    product = op.call("numpy.Multiply", one, op.call("numpy.Log", other))
    return op.call("numpy.Where", op.call("numpy.Equal", one, 0.0), 0.0, product)


@function("add_n", "accumulate_n")
def add_n(op: KerasOps, inputs: Any) -> Any:
    """The sum of tensors."""
    first, *others = op.same_dtype(*(inputs if isinstance(inputs, list | tuple) else [inputs]))
    if not others:
        return op.call("numpy.Copy", first)
    for other in others:
        first = op.call("numpy.Add", first, other)
    return first


@function("clip_by_value")
def clip_by_value(op: KerasOps, t: Any, clip_value_min: Any, clip_value_max: Any) -> Any:
    """T, held between two bounds."""
    value, low, high = op.same_dtype(t, clip_value_min, clip_value_max)
    return op.call("numpy.Maximum", op.call("numpy.Minimum", value, high), low)


@function("cast")
def cast(op: KerasOps, x: Any, dtype: str) -> Any:
    """X in another dtype."""
    return op.cast(x, str(dtype))


@function("where")
def where(op: KerasOps, condition: Any, x: Any = None, y: Any = None) -> Any:
    """X where the condition holds, else y."""
    if x is None or y is None:
        raise Unsupported("tf.where with a condition alone")
    if op.dtype(condition) != "bool":
        raise Unsupported("a condition that is not bool")
    if all(isinstance(v, int | float) for v in (x, y)):
        return op.call("numpy.Where", condition, x, y, dtype="float32")
    one, other = op.same_dtype(x, y)
    tensor = x if one is x and not isinstance(x, int | float) else y
    return op.call("numpy.Where", condition, one, other, dtype=op.dtype(tensor))


@function("reduce_euclidean_norm")
def euclidean_norm(
    op: KerasOps, input_tensor: Any, axis: Any = None, keepdims: bool | None = False
) -> Any:
    """The length of vectors."""
    power = op.call("numpy.Sum", op.call("numpy.Square", input_tensor), axis=_axis(axis),
                 keepdims=bool(keepdims))  # fmt: skip
    return op.call("numpy.Sqrt", power)


@function("norm")
def norm(
    op: KerasOps, tensor: Any, ord: Any = "euclidean", axis: Any = None,
    keepdims: bool | None = False, keep_dims: bool | None = None,
) -> Any:  # fmt: skip
    """The Euclidean length of vectors."""
    if ord != "euclidean":
        raise Unsupported(f"norm with ord={ord!r}")
    return euclidean_norm(op, tensor, axis, keepdims or keep_dims)


@function("l2_normalize")
def l2_normalize(
    op: KerasOps, x: Any, axis: Any = None, epsilon: float = 1e-12, dim: Any = None
) -> Any:
    """X / sqrt(max(sum(x * x), epsilon)) over axes."""
    axes = _axis(dim if axis is None else axis)
    power = op.call("numpy.Sum", op.call("numpy.Square", x), axis=axes, keepdims=True)
    return op.call(
        "numpy.Multiply", x, op.call("math.Rsqrt", op.call("numpy.Maximum", power, epsilon))
    )


@function("moments")
def moments(
    op: KerasOps, x: Any, axes: Any, shift: Any = None, keepdims: bool | None = False,
    keep_dims: bool | None = None,
) -> Any:  # fmt: skip
    """Mean and variance over axes."""
    del shift  # unused by TensorFlow too
    return op.call("nn.Moments", x, axes=as_list(axes), keepdims=bool(keepdims or keep_dims))


def _position(name: str, kind: str) -> None:
    def translate(
        op: KerasOps,
        input: Any,
        axis: Any = None,
        output_type: str = "int64",
        dimension: Any = None,
    ) -> Any:
        place = dimension if axis is None else axis
        found = op.call(kind, input, axis=0 if place is None else as_int(place), dtype="int32")
        return found if output_type == "int32" else op.cast(found, output_type)

    function(name)(translate)


_position("argmax", "numpy.Argmax")
_position("argmin", "numpy.Argmin")


@function("cumsum")
def cumsum(
    op: KerasOps, x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False
) -> Any:
    """The running sum along an axis, from either end."""
    if exclusive or op.dtype(x) not in ("float32", "float64", "float16", "int32", "int64"):
        raise Unsupported("cumsum with exclusive=True, or of integers below 32 bits")
    place = as_int(axis)
    if not reverse:
        return op.call("numpy.Cumsum", x, axis=place)
    back = op.call("numpy.Cumsum", op.call("numpy.Flip", x, axis=place), axis=place)
    return op.call("numpy.Flip", back, axis=place)


@function("cumprod")
def cumprod(
    op: KerasOps, x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False
) -> Any:
    """The running product along an axis."""
    if exclusive or reverse or not op.is_float(x):
        raise Unsupported("cumprod with exclusive=True or reverse=True")
    return op.call("numpy.Cumprod", x, axis=as_int(axis))


@function("top_k")
def top_k(
    op: KerasOps, input: Any, k: Any = 1, sorted: bool = True, index_type: str = "int32"
) -> Any:
    """The k largest along the last axis, and their numbers."""
    if index_type != "int32":
        raise Unsupported(f"indices of {index_type}")
    return op.call("math.TopK", input, k=as_int(k), sorted=sorted)


@function("in_top_k")
def in_top_k(op: KerasOps, targets: Any, predictions: Any, k: int) -> Any:
    """Whether fewer than k predictions are larger than that of the target."""
    return op.call("math.InTopK", targets, predictions, k=as_int(k), dtype="bool")


@function("sort")
def sort(op: KerasOps, values: Any, axis: int = -1, direction: str = "ASCENDING") -> Any:
    """Values in order along an axis."""
    found = op.call("numpy.Sort", values, axis=axis)
    return found if direction == "ASCENDING" else op.call("numpy.Flip", found, axis=axis)


@function("argsort")
def argsort(
    op: KerasOps,
    values: Any,
    axis: int = -1,
    direction: str = "ASCENDING",
    stable: bool = False,
) -> Any:
    """The numbers of values in order along an axis."""
    del stable  # of equal ones the first comes first in both
    if direction != "ASCENDING":
        raise Unsupported("direction='DESCENDING'")
    return op.call("numpy.Argsort", values, axis=axis, dtype="int32")


@function("matmul")
def matmul(
    op: KerasOps, a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False,
    adjoint_a: bool = False, adjoint_b: bool = False, a_is_sparse: bool = False,
    b_is_sparse: bool = False,
) -> Any:  # fmt: skip
    """The matrix product, of either matrix transposed."""
    del a_is_sparse, b_is_sparse  # which says only that many are zero
    one, other = op.same_dtype(a, b)
    one = _turn(op, one) if transpose_a or adjoint_a else one
    other = _turn(op, other) if transpose_b or adjoint_b else other
    return op.call("numpy.Matmul", one, other)


def _turn(op: KerasOps, x: Any) -> Any:
    if not isinstance(x, Reference):
        return x.swapaxes(-1, -2)  # a constant
    return op.call("numpy.Swapaxes", x, axis1=-2, axis2=-1)


@function("matvec")
def matvec(op: KerasOps, a: Any, b: Any, transpose_a: bool = False) -> Any:
    """Matrices times vectors."""
    one, other = op.same_dtype(a, b)
    one = _turn(op, one) if transpose_a else one
    column = (
        op.call("numpy.ExpandDims", other, axis=-1)
        if isinstance(other, Reference)
        else other[..., None]
    )
    return op.call("numpy.Squeeze", op.call("numpy.Matmul", one, column), axis=-1)


def einsum(op: KerasOps, equation: str, *inputs: Any) -> Any:
    """Einstein's sum."""
    return op.call("numpy.Einsum", *op.same_dtype(*inputs), subscripts=equation)


@function("tensordot")
def tensordot(op: KerasOps, a: Any, b: Any, axes: Any) -> Any:
    """The sum of products over axes of both."""
    return op.call("numpy.Tensordot", *op.same_dtype(a, b), axes=as_int(axes))
