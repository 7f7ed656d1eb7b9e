"""Operations over axes: sums, extremes, statistics, sorting.

Spec: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/ops/numpy.py
"""

from typing import Any

from converter.lower.builder import END, Builder
from converter.lower.keras.operations.elementwise import is_close
from converter.lower.keras.operations.operands import (
    Axes,
    all_axes,
    as_float,
    flatten,
    promote,
    tensor,
)
from converter.lower.keras.table import OPERATIONS, operation
from converter.lower.ops import reduce, sort
from converter.lower.ops.cumulative import accumulate, cumulative_sum
from converter.lower.values import Value

# Small integers are summed as larger ones.
WIDER = {
    "bool": "int32", "int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32",
}  # fmt: skip


def reduce_over(op: Builder, op_type: str, x: Value, axis: Axes, keepdims: bool) -> Value:
    """Reduce over the axes that an argument names."""
    return reduce.reduce_axes(op, op_type, x, all_axes(x, axis), keepdims=keepdims)


@operation(OPERATIONS, "Sum")
def total(op: Builder, x: Any, *, axis: Axes = None, keepdims: bool = False) -> Value:
    """The sum over axes."""
    value = tensor(op, x)
    return reduce_over(op, "ReduceSum", op.cast(value, WIDER.get(value.dtype, value.dtype)), axis,
                   keepdims)  # fmt: skip


@operation(OPERATIONS, "Prod")
def product(
    op: Builder, x: Any, *, axis: Axes = None, keepdims: bool = False, dtype: str | None = None
) -> Value:
    """The product over axes."""
    value = tensor(op, x)
    wide = op.cast(value, dtype or WIDER.get(value.dtype, value.dtype))
    return reduce_over(op, "ReduceProd", wide, axis, keepdims)


@operation(OPERATIONS, "Mean")
def mean(op: Builder, x: Any, *, axis: Axes = None, keepdims: bool = False) -> Value:
    """The mean over axes."""
    return reduce_over(op, "ReduceMean", as_float(op, x), axis, keepdims)


@operation(OPERATIONS, "Max", "Amax")
def maximum(
    op: Builder, x: Any, *, axis: Axes = None, keepdims: bool = False, initial: Any = None
) -> Value:
    """The maximum over axes and an initial value."""
    result = reduce_over(op, "ReduceMax", tensor(op, x), axis, keepdims)
    return result if initial is None else op.elementwise("Max", result, initial)


@operation(OPERATIONS, "Min", "Amin")
def minimum(
    op: Builder, x: Any, *, axis: Axes = None, keepdims: bool = False, initial: Any = None
) -> Value:
    """The minimum over axes and an initial value."""
    result = reduce_over(op, "ReduceMin", tensor(op, x), axis, keepdims)
    return result if initial is None else op.elementwise("Min", result, initial)


@operation(OPERATIONS, "Ptp")
def spread(op: Builder, x: Any, *, axis: Axes = None, keepdims: bool = False) -> Value:
    """The maximum minus the minimum over axes."""
    value = tensor(op, x)
    most = reduce_over(op, "ReduceMax", value, axis, keepdims)
    return op.sub(most, reduce_over(op, "ReduceMin", value, axis, keepdims))


@operation(OPERATIONS, "All")
def every(op: Builder, x: Any, *, axis: Axes = None, keepdims: bool = False) -> Value:
    """Whether no element over axes is zero."""
    value = tensor(op, x)
    return reduce.every(op, value, all_axes(value, axis), keepdims=keepdims)


@operation(OPERATIONS, "Any")
def some(op: Builder, x: Any, *, axis: Axes = None, keepdims: bool = False) -> Value:
    """Whether any element over axes is not zero."""
    value = tensor(op, x)
    return reduce.some(op, value, all_axes(value, axis), keepdims=keepdims)


@operation(OPERATIONS, "AllClose")
def all_close(
    op: Builder, x1: Any, x2: Any, *,
    rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False,
) -> Value:  # fmt: skip
    """Whether `abs(x1 - x2) <= atol + rtol * abs(x2)` for all elements."""
    near = is_close(op, x1, x2, rtol, atol, equal_nan=equal_nan)
    a, b = promote(op, x1, x2)
    return every(op, op.elementwise("Or", near, op.elementwise("Equal", a, b)))


@operation(OPERATIONS, "CountNonzero")
def count_nonzero(op: Builder, x: Any, *, axis: Axes = None) -> Value:
    """The number of elements over axes that are not zero."""
    value = tensor(op, x)
    return reduce.count_nonzero(op, value, all_axes(value, axis), "int32")


@operation(OPERATIONS, "Var")
def variance(op: Builder, x: Any, *, axis: Axes = None, keepdims: bool = False) -> Value:
    """The variance over axes."""
    value = as_float(op, x)
    wide = op.cast(value, "float32") if value.dtype in ("float16", "bfloat16") else value
    found = reduce.moments(op, wide, all_axes(value, axis), keepdims=keepdims)[1]
    return op.cast(found, value.dtype)


@operation(OPERATIONS, "Std")
def deviation(op: Builder, x: Any, *, axis: Axes = None, keepdims: bool = False) -> Value:
    """The standard deviation over axes."""
    value = as_float(op, x)
    found = reduce.moments(op, value, all_axes(value, axis), keepdims=keepdims)[1]
    return op.unary("Sqrt", found)


@operation(OPERATIONS, "Average")
def average(op: Builder, x: Any, weights: Any = None, *, axis: int | None = None) -> Value:
    """The mean over an axis, weighted where there are weights."""
    if weights is None:
        return mean(op, x, axis=axis)
    value, weight = promote(op, x, weights, also=("float",))
    if weight.rank < value.rank and axis is not None:
        place = value.axis(axis)
        weight = op.reshape(
            weight, tuple(weight.shape[0] if i == place else 1 for i in range(value.rank))
        )
    whole = reduce_over(op, "ReduceSum", op.mul(value, weight), axis, keepdims=False)
    return op.div(whole, reduce_over(op, "ReduceSum", weight, axis, keepdims=False))


@operation(OPERATIONS, "Logsumexp")
def logsumexp(op: Builder, x: Any, *, axis: Axes = None, keepdims: bool = False) -> Value:
    """log(sum(exp(x))) over axes, without overflow."""
    value = as_float(op, x)
    return reduce.logsumexp(op, value, all_axes(value, axis), keepdims=keepdims)


# -- indices -------------------------------------------------------------------------------------


def position(op: Builder, op_type: str, x: Any, axis: int | None, keepdims: bool) -> Value:
    """Return the index of the largest or smallest along an axis; of equal ones the first."""
    value = tensor(op, x)
    if axis is not None:
        found = reduce.index_of_extreme(op, op_type, value, axis, keepdims=keepdims)
        return op.cast(found, "int32")
    found = op.cast(reduce.index_of_extreme(op, op_type, flatten(op, value), 0), "int32")
    return op.reshape(found, (1,) * value.rank) if keepdims else found


@operation(OPERATIONS, "Argmax")
def argmax(op: Builder, x: Any, *, axis: int | None = None, keepdims: bool = False) -> Value:
    """The index of the maximum along an axis."""
    return position(op, "ArgMax", x, axis, keepdims)


@operation(OPERATIONS, "Argmin")
def argmin(op: Builder, x: Any, *, axis: int | None = None, keepdims: bool = False) -> Value:
    """The index of the minimum along an axis."""
    return position(op, "ArgMin", x, axis, keepdims)


@operation(OPERATIONS, "TopK")
def top_k(op: Builder, x: Any, *, k: int, sorted: bool = True) -> list[Value]:
    """The k largest elements along the last axis, and their indices."""
    del sorted  # in order is also a legal answer where none is asked for
    count = op.constant([k], "int64")
    values, indices = sort.top_k(op, tensor(op, x), -1, k, count)
    return [values, op.cast(indices, "int32")]


@operation(OPERATIONS, "Sort")
def sort_(op: Builder, x: Any, *, axis: int | None = -1) -> Value:
    """Elements sorted along an axis."""
    value = tensor(op, x)
    value, axis = (flatten(op, value), 0) if axis is None else (value, axis)
    return sort.sort(op, value, axis)[0]


@operation(OPERATIONS, "Argsort")
def argsort(op: Builder, x: Any, *, axis: int | None = -1) -> Value:
    """Indices that sort the elements along an axis."""
    value = tensor(op, x)
    value, axis = (flatten(op, value), 0) if axis is None else (value, axis)
    return op.cast(sort.sort(op, value, axis)[1], "int32")


@operation(OPERATIONS, "InTopK")
def in_top_k(op: Builder, targets: Any, predictions: Any, *, k: int) -> Value:
    """Whether fewer than k predictions are larger than that of the target."""
    given = tensor(op, predictions), tensor(op, targets)
    return sort.is_in_top_k(op, *given, op.constant(k, "int64"))


# -- running ---------------------------------------------------------------------------------------


@operation(OPERATIONS, "Cumsum")
def cumsum(op: Builder, x: Any, *, axis: int | None = None, dtype: str | None = None) -> Value:
    """The sum of everything up to each element along an axis."""
    value = tensor(op, x, dtype)
    value = op.cast(value, "int32") if value.dtype == "bool" else value
    value, axis = (flatten(op, value), 0) if axis is None else (value, axis)
    return cumulative_sum(op, value, axis)


@operation(OPERATIONS, "Cumprod")
def cumprod(op: Builder, x: Any, *, axis: int | None = None, dtype: str | None = None) -> Value:
    """The product of everything up to each element along an axis."""
    value = tensor(op, x, dtype)
    value = op.cast(value, "int32") if value.dtype == "bool" else value
    value, axis = (flatten(op, value), 0) if axis is None else (value, axis)
    return accumulate(op, value, axis, op.mul, 1)


@operation(OPERATIONS, "Diff")
def diff(op: Builder, a: Any, *, n: int = 1, axis: int = -1) -> Value:
    """Differences of neighbours along an axis, n times."""
    value = tensor(op, a)
    for _ in range(n):
        after = op.slice(value, [axis], [1], [END])
        before = op.slice(value, [axis], [0], [-1])
        kind = "Xor" if value.dtype == "bool" else "Sub"
        value = op.elementwise(kind, after, before)
    return value


@operation(OPERATIONS, "Trapezoid")
def trapezoid(op: Builder, y: Any, *, x: Any = None, dx: float = 1.0, axis: int = -1) -> Value:
    """The integral along an axis by the trapezoidal rule."""
    value = as_float(op, y)
    width = dx if x is None else diff(op, tensor(op, x, value.dtype), axis=-1)
    if isinstance(width, Value) and width.rank == 1 and value.axis(axis) != value.rank - 1:
        width = op.unsqueeze(width, list(range(1, value.rank - value.axis(axis))))
    heights = op.add(op.slice(value, [axis], [1], [END]), op.slice(value, [axis], [0], [-1]))
    return op.reduce("ReduceSum", op.mul(op.mul(heights, 0.5), width), [axis])
