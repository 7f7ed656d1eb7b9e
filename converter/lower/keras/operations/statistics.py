"""Quantiles, statistics that leave NaN out, and reductions by group.

Spec: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/ops/numpy.py
"""

from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.keras.operations.operands import (
    Axes,
    all_axes,
    as_float,
    tensor,
)
from converter.lower.keras.operations.reductions import (
    cumprod,
    cumsum,
    every,
    mean,
    position,
    product,
    reduce_over,
    total,
)
from converter.lower.keras.table import OPERATIONS, Unsupported, operation
from converter.lower.keras.tensorflow_rows import call_op
from converter.lower.known_values import real
from converter.lower.ops import sort
from converter.lower.table import Variant
from converter.lower.values import Value

# -- quantiles -------------------------------------------------------------------------------------


def quantile_of(op: Builder, x: Any, q: Any, axis: Axes, method: str, keepdims: bool) -> Value:
    """Return the numbers below which the shares q of x over axes are."""
    value = as_float(op, x)
    shares = real(op, q if isinstance(q, Value) else np.asarray(q, np.float32))
    over = all_axes(value, axis)
    return sort.quantile(op, value, shares, over, method=method, keepdims=keepdims)


@operation(OPERATIONS, "Quantile")
def quantile(
    op: Builder, x: Any, q: Any, *,
    axis: Axes = None, method: str = "linear", keepdims: bool = False,
) -> Value:  # fmt: skip
    """Quantiles of x."""
    del method  # Keras's own operation forgets it
    return quantile_of(op, x, q, axis, "linear", keepdims)


@operation(OPERATIONS, "Percentile")
def percentile(
    op: Builder, x: Any, q: Any, *,
    axis: Axes = None, method: str = "linear", keepdims: bool = False,
) -> Value:  # fmt: skip
    """Percentiles of x."""
    return quantile_of(op, x, np.asarray(q, np.float32) / np.float32(100), axis, method, keepdims)


@operation(OPERATIONS, "Median")
def median(op: Builder, x: Any, *, axis: Axes = None, keepdims: bool = False) -> Value:
    """The median."""
    return quantile_of(op, x, 0.5, axis, "linear", keepdims)


# -- without NaN -----------------------------------------------------------------------------------


def _replace_nan(op: Builder, x: Any, number: float) -> tuple[Value, Value | None]:
    """Return x with NaN replaced by a number, and where it was NaN."""
    value = tensor(op, x)
    if not value.is_float:
        return value, None
    nan = op.unary("IsNaN", value)
    return op.where(nan, number, value), nan


@operation(OPERATIONS, "Nansum")
def nansum(op: Builder, x: Any, *, axis: Axes = None, keepdims: bool = False) -> Value:
    """The sum over axes, without NaN."""
    return total(op, _replace_nan(op, x, 0.0)[0], axis=axis, keepdims=keepdims)


@operation(OPERATIONS, "Nanprod")
def nanprod(op: Builder, x: Any, *, axis: Axes = None, keepdims: bool = False) -> Value:
    """The product over axes, without NaN."""
    return product(op, _replace_nan(op, x, 1.0)[0], axis=axis, keepdims=keepdims)


@operation(OPERATIONS, "Nancumsum")
def nancumsum(op: Builder, x: Any, *, axis: int | None = None, dtype: str | None = None) -> Value:
    """The cumulative sum along an axis, without NaN."""
    return cumsum(op, _replace_nan(op, x, 0.0)[0], axis=axis, dtype=dtype)


@operation(OPERATIONS, "Nancumprod")
def nancumprod(op: Builder, x: Any, *, axis: int | None = None, dtype: str | None = None) -> Value:
    """The cumulative product along an axis, without NaN."""
    return cumprod(op, _replace_nan(op, x, 1.0)[0], axis=axis, dtype=dtype)


def _nan_extreme(op: Builder, x: Any, op_type: str, axis: Axes, keepdims: bool) -> Value:
    value, nan = _replace_nan(op, x, float("-inf" if op_type == "ReduceMax" else "inf"))
    result = op.reduce(op_type, value, all_axes(value, axis), keepdims=keepdims)
    if nan is None:
        return result
    return op.where(every(op, nan, axis=axis, keepdims=keepdims), float("nan"), result)


@operation(OPERATIONS, "Nanmax")
def nanmax(op: Builder, x: Any, *, axis: Axes = None, keepdims: bool = False) -> Value:
    """The maximum over axes, without NaN."""
    return _nan_extreme(op, x, "ReduceMax", axis, keepdims)


@operation(OPERATIONS, "Nanmin")
def nanmin(op: Builder, x: Any, *, axis: Axes = None, keepdims: bool = False) -> Value:
    """The minimum over axes, without NaN."""
    return _nan_extreme(op, x, "ReduceMin", axis, keepdims)


def _nan_position(op: Builder, op_type: str, x: Any, axis: int | None, keepdims: bool) -> Value:
    value = tensor(op, x)
    result = position(op, op_type, value, axis, keepdims)  # passes over NaN
    if not value.is_float:
        return result
    nothing = every(op, op.unary("IsNaN", value), axis=axis, keepdims=keepdims)
    return op.where(nothing, op.constant(-1, "int32"), result)


@operation(OPERATIONS, "Nanargmax")
def nanargmax(op: Builder, x: Any, *, axis: int | None = None, keepdims: bool = False) -> Value:
    """The index of the maximum along an axis, without NaN; -1 where all are NaN."""
    return _nan_position(op, "ArgMax", x, axis, keepdims)


@operation(OPERATIONS, "Nanargmin")
def nanargmin(op: Builder, x: Any, *, axis: int | None = None, keepdims: bool = False) -> Value:
    """The index of the minimum along an axis, without NaN; -1 where all are NaN."""
    return _nan_position(op, "ArgMin", x, axis, keepdims)


@operation(OPERATIONS, "Nanmean")
def nanmean(op: Builder, x: Any, *, axis: Axes = None, keepdims: bool = False) -> Value:
    """The mean over axes, without NaN."""
    value, nan = _replace_nan(op, x, 0.0)
    if nan is None:
        return mean(op, value, axis=axis, keepdims=keepdims)
    there = op.cast(op.unary("Not", nan), value.dtype)
    whole = reduce_over(op, "ReduceSum", value, axis, keepdims)
    return op.div(whole, reduce_over(op, "ReduceSum", there, axis, keepdims))


@operation(OPERATIONS, "Nanvar")
def nanvar(op: Builder, x: Any, *, axis: Axes = None, keepdims: bool = False) -> Value:
    """The variance over axes, without NaN."""
    value = as_float(op, x)
    nan = op.unary("IsNaN", value)
    away = op.where(nan, 0.0, op.sub(value, nanmean(op, value, axis=axis, keepdims=True)))
    there = op.cast(op.unary("Not", nan), value.dtype)
    whole = reduce_over(op, "ReduceSum", op.mul(away, away), axis, keepdims)
    return op.div(whole, reduce_over(op, "ReduceSum", there, axis, keepdims))


@operation(OPERATIONS, "Nanstd")
def nanstd(op: Builder, x: Any, *, axis: Axes = None, keepdims: bool = False) -> Value:
    """The standard deviation over axes, without NaN."""
    return op.unary("Sqrt", nanvar(op, x, axis=axis, keepdims=keepdims))


# -- by group --------------------------------------------------------------------------------------


@operation(
    OPERATIONS,
    Variant("SegmentSum", "The sums of the rows of each segment.", op_type="UnsortedSegmentSum"),
    Variant("SegmentProd", "The products of the rows of each.", op_type="UnsortedSegmentProd"),
    Variant("SegmentMax", "The maximum of the rows of each segment.", op_type="UnsortedSegmentMax"),
    Variant("SegmentMin", "The smallest of the rows of each.", op_type="UnsortedSegmentMin"),
)
def reduce_segments(
    op: Builder, data: Any, segment_ids: Any, *, op_type: str, num_segments: int | None = None,
    sorted: bool = False,
) -> Value:  # fmt: skip
    """Rows reduced by segment; negative segments are ignored."""
    del sorted  # a hint
    if num_segments is None:
        raise Unsupported("num_segments that depends on the data")
    given = tensor(op, data), tensor(op, segment_ids), op.constant(num_segments, "int32")
    return call_op(op, op_type, *given)
