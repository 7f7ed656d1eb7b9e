"""Sums, extremes and positions over axes, and what runs along an axis.

Axes may be computed where ONNX takes them as a tensor. Without axes nothing is reduced.
Integers are added and multiplied by onnxruntime as float64: exact up to 2 ** 53. NaN counts in its
extremes only where it stands first.
Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels (reduction_ops,
argmax_op.cc, scan_ops.cc)
"""

from collections.abc import Callable

import numpy as np

from converter.lower.builder import END
from converter.lower.graph import Dim
from converter.lower.ops.elementwise import logaddexp
from converter.lower.scan import scan
from converter.lower.table import Variant
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value

# -- over axes -------------------------------------------------------------------------------------


def reduced(op: Context, op_type: str, x: Value, axis: Value, keep_dims: bool) -> Value:
    """Return a value reduced over axes that a tensor says, by an operator of any dtype.

    Raises:
        Unsupported: The axes are computed, and not even how many there are is known.
    """
    known = op.static(axis)
    if known is not None:
        axes = sorted({x.axis(int(n)) for n in known.reshape(-1)})
        if not axes:
            return op.cast(op.cast(x, "bool"), x.dtype) if x.dtype == "bool" else x
        return op.reduce(op_type, x, axes, keepdims=keep_dims)
    count = 0 if keep_dims else 1 if axis.rank == 0 else axis.shape[0]
    if not isinstance(count, int):
        raise Unsupported("a number of axes that is computed from the inputs")
    shape: tuple[Dim, ...] = (None,) * (x.rank - count)
    places = op.cast(op.reshape(axis, (1,)) if axis.rank == 0 else axis, "int64")
    return op.emit(op_type, x, places, dtype=x.dtype, shape=shape,
                   keepdims=int(keep_dims), noop_with_empty_axes=1)  # fmt: skip


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
    return reduced(op, op_type, input, axis, keep_dims)


@tf_op("Mean")
def mean(op: Context, input: Value, axis: Value, /, *, keep_dims: bool = False) -> Value:
    """The mean over axes; of integers, cut off towards zero."""
    if input.is_float:
        return reduced(op, "ReduceMean", input, axis, keep_dims)
    total = reduced(op, "ReduceSum", input, axis, keep_dims)
    ones = op.emit("Expand", op.constant(1, "int64"), _shape(op, input), dtype="int64",
                   shape=input.shape)  # fmt: skip
    count = reduced(op, "ReduceSum", ones, axis, keep_dims)
    return op.div(total, op.cast(count, input.dtype))


def _shape(op: Context, x: Value) -> Value:
    return op.emit("Shape", x, dtype="int64", shape=(x.rank,))


@tf_op("EuclideanNorm")
def euclidean_norm(op: Context, input: Value, axis: Value, /, *, keep_dims: bool = False) -> Value:
    """The square root of the sum of squares over axes."""
    whole = reduced(op, "ReduceSum", op.mul(input, input), axis, keep_dims)
    if input.is_float:
        return op.unary("Sqrt", whole)
    return op.cast(op.unary("Sqrt", op.cast(whole, "float64")), input.dtype)


@tf_op("L2Loss")
def l2_loss(op: Context, t: Value, /) -> Value:
    """sum(t * t) / 2."""
    return op.mul(op.reduce("ReduceSum", op.mul(t, t), range(t.rank)), 0.5)


# -- positions -------------------------------------------------------------------------------------


def position(op: Context, op_type: str, x: Value, axis: int) -> Value:
    """Return numbers (int64) of extremes along an axis."""
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    return op.emit(op_type, x, dtype="int64", shape=shape, axis=axis, keepdims=0)


@tf_op(
    Variant(
        "ArgMax", "The number of the largest along an axis, of equal ones the first.", name="ArgMax"
    ),
    Variant(
        "ArgMin",
        "The number of the smallest along an axis, of equal ones the first.",
        name="ArgMin",
    ),
)
def index_of_extreme(
    op: Context, input: Value, dimension: Value, /, *, name: str, node: Node,
) -> Value:  # fmt: skip
    """The index of an extreme along an axis."""
    axis = input.axis(op.int(dimension, "an axis"))
    kind = node.attribute("output_type", "int64")
    return op.cast(position(op, name, input, axis), kind)


# -- along an axis ---------------------------------------------------------------------------------


@tf_op("Cumsum")
def cumsum(
    op: Context, x: Value, axis: Value, /, *, exclusive: bool = False, reverse: bool = False
) -> Value:
    """The sum of everything up to each element along an axis, from either end."""
    (known,) = op.dims(axis)
    place = op.constant(x.axis(known), "int64") if isinstance(known, int) else axis
    if place.rank:
        place = op.squeeze(place, [0])
    return op.emit("CumSum", x, place, dtype=x.dtype, shape=x.shape, exclusive=int(exclusive),
                   reverse=int(reverse))  # fmt: skip


Join = Callable[[Value, Value], Value]


@tf_op("Cumprod")
def cumprod(
    op: Context, x: Value, axis: Value, /, *, exclusive: bool = False, reverse: bool = False
) -> Value:
    """The product of everything up to each element along an axis, from either end."""
    place = x.axis(op.int(axis, "an axis"))
    return running(op, x, place, op.mul, 1, exclusive, reverse)


@tf_op("CumulativeLogsumexp")
def cumulative_logsumexp(
    op: Context, x: Value, axis: Value, /, *, exclusive: bool = False, reverse: bool = False
) -> Value:
    """log(sum(exp)) of everything up to each element along an axis, from either end."""
    place = x.axis(op.int(axis, "an axis"))
    wide = op.cast(x, "float32") if x.dtype == "bfloat16" else x

    def join(a: Value, b: Value) -> Value:
        return logaddexp(op, a, b)

    return op.cast(running(op, wide, place, join, -np.inf, exclusive, reverse), x.dtype)


def running(
    op: Context, x: Value, axis: int, join: Join, neutral: float, exclusive: bool,
    reverse: bool,
) -> Value:  # fmt: skip
    """Return what joins everything up to each element along an axis.

    By doubling where the number of elements is known: after step i each element joins the 2**i
    before it and itself. Else step by step.

    Args:
        op: The builder.
        x: The value.
        axis: Along which.
        join: Makes one of two.
        neutral: What joined to anything leaves it.
        exclusive: Whether an element itself is left out.
        reverse: Whether to begin at the end.
    """
    if exclusive:
        x = _moved(op, x, axis, 1, neutral, reverse)
    size = x.shape[axis]
    if not isinstance(size, int) or size > LONGEST:
        return _step_by_step(op, x, axis, join, neutral, reverse)
    reach = 1
    while reach < size:
        x = join(_moved(op, x, axis, reach, neutral, reverse), x)
        reach *= 2
    return x


LONGEST = 1 << 16


def _moved(op: Context, x: Value, axis: int, distance: int, neutral: float, reverse: bool) -> Value:
    """Return x with each element moved along an axis, and neutral ones in place of the first."""
    start, end = (distance, END) if reverse else (0, -distance)
    part = op.slice(x, [axis], [start], [end])
    before, after = [0] * x.rank, [0] * x.rank
    (after if reverse else before)[x.stored.index(axis)] = distance
    pads = op.constant([*before, *after], "int64")
    given = [part, pads, op.constant(neutral, x.dtype)]
    return op.node("Pad", given, [(x.dtype, x.shape)], stored=x.stored)[0]


def _step_by_step(
    op: Context, x: Value, axis: int, join: Join, neutral: float, reverse: bool
) -> Value:
    shape = tuple(n for i, n in enumerate(x.shape) if i != axis)
    sizes = [op.size(x, i) for i in range(x.rank) if i != axis]
    one = op.constant(neutral, x.dtype)
    start = one
    if sizes:
        start = op.emit("Expand", one, op.concat(sizes, 0), dtype=x.dtype, shape=shape)

    def step(states: list[Value], parts: list[Value]) -> tuple[list[Value], list[Value]]:
        after = join(states[0], parts[0])
        return [after], [after]

    return scan(op, step, [start], [op.plain(x)], axis=axis, backwards=reverse)[1][0]
