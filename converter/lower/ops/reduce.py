"""Reductions over axes: extremes and their indices, statistics, norms, logsumexp.

Integer sums and products wrap around, and every dtype is supported (`converter.lower.legalize`). A
reduction over no axes returns its operand. Maxima and minima are NaN where any element is NaN, as
in every framework; onnxruntime propagates NaN only from the first element.
"""

from collections.abc import Callable, Sequence
from math import inf, nan

from converter.lower.builder import Builder
from converter.lower.values import Value

EXTREMES = frozenset(("ReduceMax", "ReduceMin"))


def reduce_axes(
    op: Builder, op_type: str, x: Value, axes: Sequence[int], *, keepdims: bool = False
) -> Value:
    """Reduce x over axes by `op_type`, such as ReduceSum."""
    if not axes:
        return x

    def reduce(name: str, value: Value) -> Value:
        return op.reduce(name, value, axes, keepdims=keepdims)

    return reduce_with_nan(op, op_type, x, reduce)


def reduce_with_nan(
    op: Builder, op_type: str, x: Value, reduce: Callable[[str, Value], Value]
) -> Value:
    """Return `reduce(op_type, x)`; a maximum or minimum is NaN where any element is NaN."""
    found = reduce(op_type, x)
    if op_type not in EXTREMES or not x.is_float:
        return found
    is_nan = reduce("ReduceMax", op.unary("IsNaN", x))
    return op.where(is_nan, op.constant(nan, x.dtype), found)


def every(op: Builder, x: Value, axes: Sequence[int], *, keepdims: bool = False) -> Value:
    """Return whether all elements over axes are true or nonzero."""
    return reduce_axes(op, "ReduceMin", op.cast(x, "bool"), axes, keepdims=keepdims)


def some(op: Builder, x: Value, axes: Sequence[int], *, keepdims: bool = False) -> Value:
    """Return whether any element over axes is true or nonzero."""
    return reduce_axes(op, "ReduceMax", op.cast(x, "bool"), axes, keepdims=keepdims)


def count_nonzero(
    op: Builder, x: Value, axes: Sequence[int], dtype: str, *, keepdims: bool = False
) -> Value:
    """Count the nonzero elements over axes, as integers of a dtype."""
    there = op.cast(op.cast(x, "bool"), dtype)
    return reduce_axes(op, "ReduceSum", there, axes, keepdims=keepdims)


def index_of_extreme(
    op: Builder, op_type: str, x: Value, axis: int, *, keepdims: bool = False,
    finds_nan: bool = False,
) -> Value:  # fmt: skip
    """Return the first index (int64) of the maximum or minimum along an axis.

    Args:
        op: Builder.
        op_type: ArgMax or ArgMin.
        x: Tensor of rank 1 or more.
        axis: Axis.
        keepdims: Whether the axis is kept with size 1.
        finds_nan: Whether the index is that of the first NaN, as in torch; else NaN is ignored, as
            in TensorFlow.
    """
    place = x.axis(axis)
    kept = (1,) if keepdims else ()
    shape = (*x.shape[:place], *kept, *x.shape[place + 1 :])

    def index(name: str, value: Value) -> Value:
        return op.emit(name, value, dtype="int64", shape=shape, axis=place, keepdims=int(keepdims))

    if not x.is_float:
        return index(op_type, x)
    is_nan = op.unary("IsNaN", x)
    if finds_nan:
        has_nan = op.reduce("ReduceMax", is_nan, [place], keepdims=keepdims)
        return op.where(has_nan, index("ArgMax", is_nan), index(op_type, x))
    last = op.constant(-inf if op_type == "ArgMax" else inf, x.dtype)
    return index(op_type, op.where(is_nan, last, x))


def moments(
    op: Builder, x: Value, axes: Sequence[int], *, keepdims: bool = False,
    divisor: Value | None = None,
) -> tuple[Value, Value]:  # fmt: skip
    """Return the mean and the variance over axes.

    Args:
        op: Builder.
        x: Floating-point tensor.
        axes: Axes.
        keepdims: Whether the axes are kept with size 1.
        divisor: Divisor of the sum of squared differences; by default the number of elements.
    """
    mean = reduce_axes(op, "ReduceMean", x, axes, keepdims=True)
    away = op.sub(x, mean)
    op_type = "ReduceMean" if divisor is None else "ReduceSum"
    variance = reduce_axes(op, op_type, op.mul(away, away), axes, keepdims=keepdims)
    variance = variance if divisor is None else op.div(variance, divisor)
    return (mean if keepdims else op.squeeze(mean, list(axes))), variance


def logsumexp(op: Builder, x: Value, axes: Sequence[int], *, keepdims: bool = False) -> Value:
    """Return `log(sum(exp(x)))` over axes, without overflow; -inf if all elements are -inf."""
    most = op.reduce("ReduceMax", x, axes, keepdims=True) if axes else x
    is_infinite = op.elementwise("Equal", op.unary("Abs", most), inf)
    most = op.where(is_infinite, op.constant(0.0, x.dtype), most)
    powers = op.unary("Exp", op.sub(x, most))
    whole = op.unary("Log", reduce_axes(op, "ReduceSum", powers, axes, keepdims=True))
    found = op.add(whole, most)
    return found if keepdims else op.squeeze(found, list(axes))


def norm(
    op: Builder, x: Value, order: float, axes: Sequence[int], *, keepdims: bool = False
) -> Value:
    """Return the norm of vectors over axes: `sum(abs(x) ** order) ** (1 / order)`.

    For order ±inf it is the maximum or minimum of `abs(x)`, for order 0 the number of nonzero
    elements.
    """
    if order == 2:
        power = reduce_axes(op, "ReduceSum", op.mul(x, x), axes, keepdims=keepdims)
        return op.unary("Sqrt", power)
    if order == 0:
        return count_nonzero(op, x, axes, x.dtype, keepdims=keepdims)
    size = op.unary("Abs", x)
    if order in (inf, -inf):
        op_type = "ReduceMax" if order > 0 else "ReduceMin"
        return reduce_axes(op, op_type, size, axes, keepdims=keepdims)
    if order == 1:
        return reduce_axes(op, "ReduceSum", size, axes, keepdims=keepdims)
    power = op.elementwise("Pow", size, op.constant(float(order), x.dtype))
    whole = reduce_axes(op, "ReduceSum", power, axes, keepdims=keepdims)
    return op.elementwise("Pow", whole, op.constant(1 / order, x.dtype))
