"""Reductions over axes: extremes and their indices, statistics, norms, logarithms of sums.

Integer sums and products wrap around, and every dtype is computed (`converter.lower.legalize`). A
reduction over no axes is its operand.
"""

from collections.abc import Sequence
from math import inf

from converter.lower.builder import Builder
from converter.lower.values import Value


def reduce_axes(
    op: Builder, op_type: str, x: Value, axes: Sequence[int], *, keepdims: bool = False
) -> Value:
    """Return `op_type`, such as ReduceSum, of x over axes."""
    return op.reduce(op_type, x, axes, keepdims=keepdims) if axes else x


def every(op: Builder, x: Value, axes: Sequence[int], *, keepdims: bool = False) -> Value:
    """Return whether all elements over axes are true, or not zero."""
    return reduce_axes(op, "ReduceMin", op.cast(x, "bool"), axes, keepdims=keepdims)


def some(op: Builder, x: Value, axes: Sequence[int], *, keepdims: bool = False) -> Value:
    """Return whether any element over axes is true, or not zero."""
    return reduce_axes(op, "ReduceMax", op.cast(x, "bool"), axes, keepdims=keepdims)


def count_nonzero(
    op: Builder, x: Value, axes: Sequence[int], dtype: str, *, keepdims: bool = False
) -> Value:
    """Return how many elements over axes are not zero, as integers of a dtype."""
    there = op.cast(op.cast(x, "bool"), dtype)
    return reduce_axes(op, "ReduceSum", there, axes, keepdims=keepdims)


def index_of_extreme(
    op: Builder, op_type: str, x: Value, axis: int, *, keepdims: bool = False
) -> Value:
    """Return the index (int64) of the largest or smallest along an axis; of equal ones the first.

    Args:
        op: Builder.
        op_type: ArgMax or ArgMin.
        x: Of any rank but 0.
        axis: The axis.
        keepdims: Whether it stays, of one element.
    """
    place = x.axis(axis)
    kept = (1,) if keepdims else ()
    shape = (*x.shape[:place], *kept, *x.shape[place + 1 :])
    return op.emit(op_type, x, dtype="int64", shape=shape, axis=place, keepdims=int(keepdims))


def moments(
    op: Builder, x: Value, axes: Sequence[int], *, keepdims: bool = False,
    divisor: Value | None = None,
) -> tuple[Value, Value]:  # fmt: skip
    """Return the mean over axes, and the variance: the mean of squared differences from it.

    Args:
        op: Builder.
        x: Floating point numbers.
        axes: The axes.
        keepdims: Whether they stay, of one element.
        divisor: Divides the sum of squared differences, in place of the number of elements.
    """
    mean = reduce_axes(op, "ReduceMean", x, axes, keepdims=True)
    away = op.sub(x, mean)
    op_type = "ReduceMean" if divisor is None else "ReduceSum"
    variance = reduce_axes(op, op_type, op.mul(away, away), axes, keepdims=keepdims)
    variance = variance if divisor is None else op.div(variance, divisor)
    return (mean if keepdims else op.squeeze(mean, list(axes))), variance


def logsumexp(op: Builder, x: Value, axes: Sequence[int], *, keepdims: bool = False) -> Value:
    """Return `log(sum(exp(x)))` over axes, which does not overflow; -inf of nothing but -inf."""
    most = reduce_axes(op, "ReduceMax", x, axes, keepdims=True)
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

    Of order ±inf it is the largest or smallest size, of order 0 the number of elements that are
    not zero.
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
