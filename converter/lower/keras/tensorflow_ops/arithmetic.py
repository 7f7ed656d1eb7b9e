"""Functions of numbers: element by element, over axes, and products of matrices.

TensorFlow promotes nothing: a number or a list takes the dtype of the tensor it meets.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.operations import elementwise as e
from converter.lower.keras.operations import indexing as i
from converter.lower.keras.operations import products as p
from converter.lower.keras.operations import reductions as r
from converter.lower.keras.operations.operands import Axes, all_axes, tensor
from converter.lower.keras.table import TF_FUNCTIONS, Unsupported, operation
from converter.lower.ops import elementwise, special
from converter.lower.table import Variant
from converter.lower.values import Value

Join = Callable[[Builder, Value, Value], Value]


def alike(op: Builder, *operands: Any) -> list[Value]:
    """Return operands as values of the dtype of the first tensor among them."""
    dtype = next((v.dtype for v in operands if isinstance(v, Value)), None)
    return [tensor(op, v, dtype) for v in operands]


# -- of one ----------------------------------------------------------------------------------------

# fmt: off
UNARY = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh",
    "atan": "Atan", "atanh": "Atanh", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh", "erf": "Erf",
    "exp": "Exp", "floor": "Floor", "is_nan": "IsNaN", "log": "Log", "logical_not": "Not",
    "negative": "Neg", "reciprocal": "Reciprocal", "rint": "Round", "sign": "Sign", "sin": "Sin",
    "sinh": "Sinh", "sqrt": "Sqrt", "tan": "Tan", "bitwise.invert": "BitwiseNot",
}
COMPUTED: dict[str, Callable[[Builder, Value], Value]] = {
    "erfinv": special.erfinv, "expm1": special.expm1, "is_finite": e.is_finite, "is_inf": e.is_inf,
    "log1p": special.log1p, "round": e.round_, "rsqrt": e.rsqrt, "square": e.square,
    "erfc": special.erfc,
    "identity": e.copy, "stop_gradient": e.copy,
    "reciprocal_no_nan": lambda op, x: e.divide_no_nan(op, op.constant(1.0, x.dtype), x),
}
# fmt: on


def _named(op: Builder, x: Value, op_type: str) -> Value:
    return op.unary(op_type, x)


@operation(
    TF_FUNCTIONS,
    *(
        Variant(name, f"{name}(x).", compute=partial(_named, op_type=op_type))
        for (name, op_type) in UNARY.items()
    ),
    *(
        Variant(name, (compute.__doc__ or f"{name}(x).").split("\n")[0], compute=compute)
        for (name, compute) in COMPUTED.items()
    ),
)
def unary(op: Builder, x: Any, *, compute: Callable[[Builder, Value], Value]) -> Value:
    """A function of each element."""
    return compute(op, tensor(op, x))


# -- of two ----------------------------------------------------------------------------------------


def true_divide(op: Builder, a: Value, b: Value) -> Value:
    """A / b, of integers as floating point numbers."""
    if a.is_float:
        return op.div(a, b)
    dtype = "float32" if a.dtype in ("int8", "uint8", "int16", "uint16") else "float64"
    return op.div(op.cast(a, dtype), op.cast(b, dtype))


def divide_as_python_2(op: Builder, a: Value, b: Value) -> Value:
    """A / b, of integers rounded down."""
    return op.div(a, b) if a.is_float else e.floor_divide(op, a, b)


def squared_difference(op: Builder, a: Value, b: Value) -> Value:
    """(a - b) ** 2."""
    away = op.sub(a, b)
    return op.mul(away, away)


def multiply_no_nan(op: Builder, a: Value, b: Value) -> Value:
    """A * b, and 0 where b is 0."""
    return op.where(op.elementwise("Equal", b, 0.0), 0.0, op.mul(a, b))


def xdivy(op: Builder, a: Value, b: Value) -> Value:
    """A / b, and 0 where a is 0."""
    return op.where(op.elementwise("Equal", a, 0.0), 0.0, op.div(a, b))


def xlogy(op: Builder, a: Value, b: Value) -> Value:
    """A * log(b), and 0 where a is 0."""
    return op.where(op.elementwise("Equal", a, 0.0), 0.0, op.mul(a, op.unary("Log", b)))


# fmt: off
BINARY = {
    "add": "Add", "greater": "Greater", "greater_equal": "GreaterOrEqual", "less": "Less",
    "less_equal": "LessOrEqual", "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor",
    "maximum": "Max", "minimum": "Min", "multiply": "Mul", "pow": "Pow", "subtract": "Sub",
    "equal": "Equal", "bitwise.bitwise_and": "BitwiseAnd", "bitwise.bitwise_or": "BitwiseOr",
    "bitwise.bitwise_xor": "BitwiseXor",
}
JOINED: dict[str, Join] = {
    "divide": true_divide, "truediv": true_divide, "div": divide_as_python_2,
    "divide_no_nan": e.divide_no_nan, "floordiv": e.floor_divide, "floor_div": e.floor_divide,
    "floormod": elementwise.floor_mod, "not_equal": e.not_equal,
    "squared_difference": squared_difference,
    "multiply_no_nan": multiply_no_nan, "xdivy": xdivy, "xlogy": xlogy,
    "bitwise.left_shift": e.left_shift, "bitwise.right_shift": e.right_shift,
}
# fmt: on


def _joined(op: Builder, a: Value, b: Value, op_type: str) -> Value:
    return op.elementwise(op_type, a, b)


@operation(
    TF_FUNCTIONS,
    *(
        Variant(name, f"{name}(x, y).", compute=partial(_joined, op_type=op_type))
        for (name, op_type) in BINARY.items()
    ),
    *(
        Variant(name, join.__doc__ or f"{name}(x, y).", compute=join)
        for (name, join) in JOINED.items()
    ),
)
def binary(op: Builder, x: Any, y: Any, *, compute: Join) -> Value:
    """A function of two tensors, element by element."""
    return compute(op, *alike(op, x, y))


@operation(TF_FUNCTIONS, "atan2")
def atan2(op: Builder, y: Any, x: Any) -> Value:
    """The angle of the point (x, y), in all four quadrants."""
    return elementwise.atan2(op, *alike(op, y, x))


@operation(TF_FUNCTIONS, "scalar_mul")
def scalar_mul(op: Builder, scalar: Any, x: Any) -> Value:
    """Scalar * x."""
    return op.mul(*alike(op, scalar, x))


@operation(TF_FUNCTIONS, "debugging.check_numerics")
def check_numerics(op: Builder, tensor_: Any, message: str) -> Value:
    """X, which TensorFlow refuses where it is infinite or NaN."""
    del message
    return tensor(op, tensor_)


@operation(TF_FUNCTIONS, "add_n", "accumulate_n")
def add_n(op: Builder, inputs: Any) -> Value:
    """The sum of tensors."""
    values = inputs if isinstance(inputs, list | tuple) else [inputs]
    return reduce(op.add, alike(op, *values))


@operation(TF_FUNCTIONS, "clip_by_value")
def clip_by_value(op: Builder, t: Any, clip_value_min: Any, clip_value_max: Any) -> Value:
    """T, held between two bounds."""
    value, low, high = alike(op, t, clip_value_min, clip_value_max)
    return op.elementwise("Max", op.elementwise("Min", value, high), low)


@operation(TF_FUNCTIONS, "cast")
def cast(op: Builder, x: Any, dtype: str) -> Value:
    """X in another dtype."""
    return tensor(op, x, dtype)


@operation(TF_FUNCTIONS, "saturate_cast")
def saturate_cast(op: Builder, value: Any, dtype: str) -> Value:
    """X in another dtype, held between its bounds."""
    return e.saturate_cast(op, value, dtype=dtype)


@operation(TF_FUNCTIONS, "where")
def where(op: Builder, condition: Any, x: Any = None, y: Any = None) -> Value:
    """X where the condition holds, else y; with the condition alone, the places where it holds."""
    if x is None and y is None:
        value = op.plain(tensor(op, condition, "bool"))
        found = op.emit("NonZero", value, dtype="int64", shape=(value.rank, None))
        return op.transpose(found, [1, 0])
    return op.where(tensor(op, condition, "bool"), *alike(op, x, y))


# -- over axes -------------------------------------------------------------------------------------


def axes_of(op: Builder, axis: Any) -> Axes:
    """Return an argument that names axes as numbers.

    Raises:
        Unsupported: They are computed.
    """
    if isinstance(axis, Value):
        found = op.array(axis)
        if found is None:
            raise Unsupported("axes that are computed")
        return [int(n) for n in found.reshape(-1)]
    return axis if axis is None or isinstance(axis, int) else [int(n) for n in axis]


def axis_of(op: Builder, axis: Any) -> int:
    """Return an argument that names an axis as a number, 0 where it names none."""
    found = axes_of(op, axis)
    return found if isinstance(found, int) else next(iter(found or [0]))


def _mean(op: Builder, x: Value, axis: Axes, keepdims: bool) -> Value:
    if not x.is_float:
        raise Unsupported("the mean of integers, which TensorFlow rounds")
    return r.reduced(op, "ReduceMean", x, axis, keepdims)


def _deviation(op: Builder, x: Value, axis: Axes, keepdims: bool) -> Value:
    return op.unary("Sqrt", r.squares(op, x, axis, keepdims))


def _length(op: Builder, x: Value, axis: Axes, keepdims: bool) -> Value:
    return op.unary("Sqrt", r.reduced(op, "ReduceSum", op.mul(x, x), axis, keepdims))


def _by(op_type: str) -> Callable[[Builder, Value, Axes, bool], Value]:
    return lambda op, x, axis, keepdims: r.reduced(op, op_type, x, axis, keepdims)


REDUCTIONS: dict[str, Callable[[Builder, Value, Axes, bool], Value]] = {
    "reduce_sum": _by("ReduceSum"),
    "reduce_prod": _by("ReduceProd"),
    "reduce_max": lambda op, x, axis, k: r.extreme(op, x, "ReduceMax", axis, k),
    "reduce_min": lambda op, x, axis, k: r.extreme(op, x, "ReduceMin", axis, k),
    "reduce_mean": _mean,
    "reduce_variance": r.squares,
    "reduce_std": _deviation,
    "reduce_euclidean_norm": _length,
    "reduce_logsumexp": lambda op, x, axis, k: r.logsumexp(op, x, axis=axis, keepdims=k),
    "reduce_all": lambda op, x, axis, k: r.every(op, x, axis=axis, keepdims=k),
    "reduce_any": lambda op, x, axis, k: r.some(op, x, axis=axis, keepdims=k),
    "count_nonzero": lambda op, x, axis, k: op.cast(
        r.reduced(op, "ReduceSum", op.cast(tensor(op, x, "bool"), "int32"), axis, k), "int64"
    ),
}


@operation(
    TF_FUNCTIONS,
    *(Variant(name, f"{name} over axes.", compute=reduce) for (name, reduce) in REDUCTIONS.items()),
)
def reduction(
    op: Builder, input_tensor: Any, axis: Any = None, keepdims: bool | None = False, *,
    compute: Callable[[Builder, Value, Axes, bool], Value], keep_dims: bool | None = None,
    reduction_indices: Any = None, dtype: str | None = None,
) -> Value:  # fmt: skip
    """A reduction over axes."""
    axis = reduction_indices if axis is None else axis
    value = compute(op, tensor(op, input_tensor), axes_of(op, axis), bool(keepdims or keep_dims))
    return op.cast(value, dtype) if dtype else value


@operation(
    TF_FUNCTIONS,
    Variant("argmax", "The index of the largest along an axis.", op_type="ArgMax"),
    Variant("argmin", "The index of the smallest along an axis.", op_type="ArgMin"),
)
def index_of_extreme(
    op: Builder, input: Any, axis: Any = None, output_type: str = "int64", *, op_type: str,
    dimension: Any = None,
) -> Value:  # fmt: skip
    """The index of an extreme along an axis."""
    place = axis_of(op, dimension if axis is None else axis)
    result = r.position(op, op_type, tensor(op, input), place, keepdims=False)
    return op.cast(result, output_type)


def running(op: Builder, x: Value, axis: Any, exclusive: bool, reverse: bool) -> Value:
    """Return the running sum along an axis, from either end."""
    where_ = op.constant(x.axis(axis_of(op, axis)), "int64")
    return op.emit("CumSum", x, where_, dtype=x.dtype, shape=x.shape, exclusive=int(exclusive),
                   reverse=int(reverse))  # fmt: skip


@operation(TF_FUNCTIONS, "cumsum")
def cumsum(
    op: Builder, x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False
) -> Value:
    """The running sum along an axis, from either end."""
    return running(op, tensor(op, x), axis, exclusive, reverse)


@operation(TF_FUNCTIONS, "cumprod")
def cumprod(
    op: Builder, x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False
) -> Value:
    """The running product along an axis."""
    if exclusive or reverse:
        raise Unsupported("a running product that is exclusive or from the end")
    return r.cumprod(op, x, axis=axis)


@operation(TF_FUNCTIONS, "top_k")
def top_k(
    op: Builder, input: Any, k: Any = 1, sorted: bool = True, index_type: str = "int32"
) -> list[Value]:
    """The k largest along the last axis, and their numbers."""
    del sorted  # in order is also a legal answer where none is asked for
    if isinstance(k, Value):
        raise Unsupported("a number of elements that is computed")
    values, numbers = r.ordered(op, tensor(op, input), -1, int(k), largest=True)
    return [values, op.cast(numbers, index_type)]


@operation(TF_FUNCTIONS, "in_top_k")
def in_top_k(op: Builder, targets: Any, predictions: Any, k: int) -> Value:
    """Whether fewer than k predictions are larger than that of the target."""
    return r.in_top_k(op, targets, predictions, k=k)


@operation(TF_FUNCTIONS, "sort")
def sort(op: Builder, values: Any, axis: int = -1, direction: str = "ASCENDING") -> Value:
    """Values in order along an axis."""
    largest = direction == "DESCENDING"
    return r.ordered(op, tensor(op, values), axis, None, largest=largest)[0]


@operation(TF_FUNCTIONS, "argsort")
def argsort(
    op: Builder, values: Any, axis: int = -1, direction: str = "ASCENDING", stable: bool = False
) -> Value:
    """The numbers of values in order along an axis."""
    del stable  # of equal ones the first comes first in any case
    largest = direction == "DESCENDING"
    found = r.ordered(op, tensor(op, values), axis, None, largest=largest)[1]
    return op.cast(found, "int32")


@operation(TF_FUNCTIONS, "l2_normalize")
def l2_normalize(
    op: Builder, x: Any, axis: Any = None, epsilon: float = 1e-12, *, dim: Any = None
) -> Value:
    """X / sqrt(max(sum(x * x), epsilon)) over axes."""
    value = tensor(op, x)
    axes = axes_of(op, dim if axis is None else axis)
    power = r.reduced(op, "ReduceSum", op.mul(value, value), axes, keepdims=True)
    least = op.constant(epsilon, value.dtype)
    return op.mul(value, e.rsqrt(op, op.elementwise("Max", power, least)))


@operation(TF_FUNCTIONS, "norm")
def norm(
    op: Builder, tensor_: Any, ord: Any = "euclidean", axis: Any = None,
    keepdims: bool | None = False, *, keep_dims: bool | None = None,
) -> Value:  # fmt: skip
    """The length of vectors: Euclidean by default."""
    value = tensor(op, tensor_)
    axes = all_axes(value, axes_of(op, axis))
    kind = None if ord in ("euclidean", "fro") else ord
    return p.norm(op, value, ord=kind, axis=axes, keepdims=bool(keepdims or keep_dims))


@operation(TF_FUNCTIONS, "moments")
def moments(
    op: Builder, x: Any, axes: Any, shift: Any = None, keepdims: bool | None = False, *,
    keep_dims: bool | None = None,
) -> list[Value]:  # fmt: skip
    """Mean and variance over axes."""
    del shift  # unused by TensorFlow too
    value, keep = tensor(op, x), bool(keepdims or keep_dims)
    places = axes_of(op, axes)
    wide = op.cast(value, "float32") if value.dtype in ("float16", "bfloat16") else value
    found = [r.reduced(op, "ReduceMean", wide, places, keep), r.squares(op, wide, places, keep)]
    return [op.cast(v, value.dtype) for v in found]


# -- products --------------------------------------------------------------------------------------


def turned(op: Builder, x: Value, transpose: bool) -> Value:
    """Return matrices, transposed where they are to be."""
    if not transpose:
        return x
    return op.transpose(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


@operation(TF_FUNCTIONS, "matmul")
def matmul(
    op: Builder, a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False,
    adjoint_a: bool = False, adjoint_b: bool = False, a_is_sparse: bool = False,
    b_is_sparse: bool = False, output_type: str | None = None,
) -> Value:  # fmt: skip
    """The matrix product, of either matrix transposed."""
    if a_is_sparse or b_is_sparse:
        raise Unsupported("sparse matrices")
    left, right = alike(op, a, b)
    result = op.matmul(
        turned(op, left, transpose_a or adjoint_a), turned(op, right, transpose_b or adjoint_b)
    )
    return op.cast(result, output_type) if output_type else result


@operation(TF_FUNCTIONS, "matvec")
def matvec(
    op: Builder, a: Any, b: Any, transpose_a: bool = False, adjoint_a: bool = False
) -> Value:
    """Matrices times vectors."""
    left, right = alike(op, a, b)
    result = op.matmul(turned(op, left, transpose_a or adjoint_a), op.unsqueeze(right, [-1]))
    return op.squeeze(result, [-1])


@operation(TF_FUNCTIONS, "tensordot")
def tensordot(op: Builder, a: Any, b: Any, axes: Any) -> Value:
    """The sum of products over pairs of axes."""
    return p.tensordot(op, *alike(op, a, b), axes=axes)


@operation(TF_FUNCTIONS, "matrix_transpose")
def matrix_transpose(op: Builder, a: Any, conjugate: bool = False) -> Value:
    """Matrices transposed."""
    del conjugate  # there are no complex numbers here
    return turned(op, tensor(op, a), transpose=True)


@operation(TF_FUNCTIONS, "trace")
def trace(op: Builder, x: Any) -> Value:
    """The sum of the diagonal of matrices."""
    return i.trace(op, x, axis1=-2, axis2=-1)
