"""Reductions over axes, ArgMax and ArgMin, and cumulative sums and products.

Axes may be computed where ONNX takes them as a tensor. Max and Min are NaN if any element is;
ArgMax and ArgMin ignore NaN.
Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels (reduction_ops,
argmax_op.cc, scan_ops.cc)
"""

import numpy as np

from converter.lower.graph import Dim
from converter.lower.ops import reduce
from converter.lower.ops.cumulative import accumulate, cumulative_sum
from converter.lower.ops.elementwise import logaddexp
from converter.lower.table import Variant
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value

# -- over axes -------------------------------------------------------------------------------------


def reduce_over(op: Context, op_type: str, x: Value, axis: Value, keep_dims: bool) -> Value:
    """Return a reduction over the axes in a tensor.

    Raises:
        Unsupported: The axes are computed, and their number is unknown.
    """
    known = op.static(axis)
    if known is not None:
        axes = sorted({x.axis(int(n)) for n in known.reshape(-1)})
        if not axes:
            return op.cast(op.cast(x, "bool"), x.dtype) if x.dtype == "bool" else x
        return reduce.reduce_axes(op, op_type, x, axes, keepdims=keep_dims)
    count = 0 if keep_dims else 1 if axis.rank == 0 else axis.shape[0]
    if not isinstance(count, int):
        raise Unsupported("a number of axes that is computed from the inputs")
    shape: tuple[Dim, ...] = (None,) * (x.rank - count)
    places = op.cast(op.reshape(axis, (1,)) if axis.rank == 0 else axis, "int64")

    def over(name: str, value: Value) -> Value:
        return op.emit(name, value, places, dtype=value.dtype, shape=shape,
                       keepdims=int(keep_dims), noop_with_empty_axes=1)  # fmt: skip

    return reduce.reduce_with_nan(op, op_type, x, over)


@tf_op(
    Variant("Sum", "The sum over axes.", op_type="ReduceSum"),
    Variant("Prod", "The product over axes.", op_type="ReduceProd"),
    Variant("Max", "The largest over axes.", op_type="ReduceMax"),
    Variant("Min", "The smallest over axes.", op_type="ReduceMin"),
    Variant("All", "Whether all hold over axes.", op_type="ReduceMin"),
    Variant("Any", "Whether any holds over axes.", op_type="ReduceMax"),
)
def reduction(
    op: Context, input: Value, axis: Value, /, *, op_type: str, keep_dims: bool = False,
) -> Value:  # fmt: skip
    """A reduction over axes."""
    return reduce_over(op, op_type, input, axis, keep_dims)


@tf_op("Mean")
def mean(op: Context, input: Value, axis: Value, /, *, keep_dims: bool = False) -> Value:
    """The mean over axes; of integers, truncated toward zero."""
    if input.is_float:
        return reduce_over(op, "ReduceMean", input, axis, keep_dims)
    total = reduce_over(op, "ReduceSum", input, axis, keep_dims)
    ones = op.emit("Expand", op.constant(1, "int64"), _shape(op, input), dtype="int64",
                   shape=input.shape)  # fmt: skip
    count = reduce_over(op, "ReduceSum", ones, axis, keep_dims)
    return op.div(total, op.cast(count, input.dtype))


def _shape(op: Context, x: Value) -> Value:
    return op.emit("Shape", x, dtype="int64", shape=(x.rank,))


@tf_op("EuclideanNorm")
def euclidean_norm(op: Context, input: Value, axis: Value, /, *, keep_dims: bool = False) -> Value:
    """The square root of the sum of squares over axes."""
    whole = reduce_over(op, "ReduceSum", op.mul(input, input), axis, keep_dims)
    if input.is_float:
        return op.unary("Sqrt", whole)
    return op.cast(op.unary("Sqrt", op.cast(whole, "float64")), input.dtype)


@tf_op("L2Loss")
def l2_loss(op: Context, t: Value, /) -> Value:
    """`sum(t * t) / 2`."""
    return op.mul(op.reduce("ReduceSum", op.mul(t, t), range(t.rank)), 0.5)


# -- positions -------------------------------------------------------------------------------------


@tf_op(
    Variant("ArgMax", "Index of the maximum along an axis.", name="ArgMax"),
    Variant("ArgMin", "Index of the minimum along an axis.", name="ArgMin"),
)
def index_of_extreme(
    op: Context, input: Value, dimension: Value, /, *, name: str, node: Node,
) -> Value:  # fmt: skip
    """The index of the maximum or minimum along an axis."""
    axis = input.axis(op.int(dimension, "an axis"))
    kind = node.attribute("output_type", "int64")
    return op.cast(reduce.index_of_extreme(op, name, input, axis), kind)


# -- cumulative ------------------------------------------------------------------------------------


@tf_op("Cumsum")
def cumsum(
    op: Context, x: Value, axis: Value, /, *, exclusive: bool = False, reverse: bool = False
) -> Value:
    """The cumulative sum along an axis, from either end."""
    (known,) = op.dims(axis)
    place = op.constant(x.axis(known), "int64") if isinstance(known, int) else axis
    if place.rank:
        place = op.squeeze(place, [0])
    return cumulative_sum(op, x, place, exclusive=exclusive, reverse=reverse)


@tf_op("Cumprod")
def cumprod(
    op: Context, x: Value, axis: Value, /, *, exclusive: bool = False, reverse: bool = False
) -> Value:
    """The cumulative product along an axis, from either end."""
    place = x.axis(op.int(axis, "an axis"))
    return accumulate(op, x, place, op.mul, 1, exclusive=exclusive, reverse=reverse)


@tf_op("CumulativeLogsumexp")
def cumulative_logsumexp(
    op: Context, x: Value, axis: Value, /, *, exclusive: bool = False, reverse: bool = False
) -> Value:
    """The cumulative `log(sum(exp(x)))` along an axis, from either end."""
    place = x.axis(op.int(axis, "an axis"))
    wide = op.cast(x, "float32") if x.dtype == "bfloat16" else x

    def join(a: Value, b: Value) -> Value:
        return logaddexp(op, a, b)

    found = accumulate(op, wide, place, join, -np.inf, exclusive=exclusive, reverse=reverse)
    return op.cast(found, x.dtype)
