"""Ranges, bucketize, bincount and histograms.

Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels (sequence_ops,
bucketize_op, bincount_op, histogram_op)
"""

from collections.abc import Sequence

from converter.lower import dims
from converter.lower.graph import Dim
from converter.lower.ops.scatter import add_by_index
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value

# -- ranges ----------------------------------------------------------------------------------------


@tf_op("Range")
def range_(op: Context, start: Value, limit: Value, delta: Value, /) -> Value:
    """The values from `start` to before `limit` in steps of `delta`."""
    (first,), (last,), (step,) = op.dims(start), op.dims(limit), op.dims(delta)
    count: Dim = None
    if not start.is_float and isinstance(step, int) and step:
        whole = dims.sub(last, first) if step > 0 else dims.sub(first, last)
        size = abs(step)
        count = dims.floordiv(dims.add(whole, size - 1), size) if size > 1 else whole
        count = max(count, 0) if isinstance(count, int) else count
    return arange(op, start, limit, delta, count)


def arange(op: Context, start: Value, limit: Value, delta: Value, count: Dim) -> Value:
    """Return a range of `count` elements; `count` is None if it is computed."""
    return op.emit("Range", start, limit, delta, dtype=start.dtype, shape=(count,))


@tf_op("LinSpace")
def lin_space(op: Context, start: Value, stop: Value, num: Value, /) -> Value:
    """`num` evenly spaced values from `start` to `stop`."""
    (count,) = op.dims(num)
    if count == 1:
        return op.reshape(start, (1,))
    number = op.cast(num, "int64")
    zero, one = op.constant(0, "int64"), op.constant(1, "int64")
    places = op.cast(arange(op, zero, number, one, count), start.dtype)
    last = op.cast(op.sub(number, one), start.dtype)
    divisor = last if isinstance(count, int) else op.elementwise("Max", last, 1.0)
    line = op.add(op.mul(places, op.div(op.sub(stop, start), divisor)), start)
    at_end = op.elementwise("Equal", places, last)
    if not isinstance(count, int):  # a single value is `start`
        at_end = op.elementwise("And", at_end, op.elementwise("Greater", last, 0.0))
    return op.where(at_end, stop, line)


# -- counts ----------------------------------------------------------------------------------------


@tf_op("Bucketize")
def bucketize(op: Context, input: Value, /, *, boundaries: Sequence[float] = ()) -> Value:
    """The bucket of each value: the number of boundaries that are not above it."""
    dtype = "float64" if input.dtype == "float64" else "float32"
    return _bucketize(op, op.cast(input, dtype), op.constant(list(boundaries), dtype))


@tf_op("BucketizeWithInputBoundaries")
def bucketize_with_input_boundaries(op: Context, input: Value, boundaries: Value, /) -> Value:
    """The bucket of each value: the number of boundaries that are not above it."""
    return _bucketize(op, input, op.reshape(op.cast(boundaries, input.dtype), (None,)))


def _bucketize(op: Context, x: Value, boundaries: Value) -> Value:
    below = op.elementwise("Less", op.unsqueeze(x, [x.rank]), boundaries)
    return op.reduce("ReduceSum", op.cast(op.unary("Not", below), "int32"), [x.rank])


@tf_op("BoostedTreesBucketize", outputs=("buckets*num_features",))
def boosted_trees_bucketize(op: Context, /, *inputs: Value, num_features: int) -> list[Value]:
    """The number of each feature's boundaries below each value, the last boundary excluded."""
    pairs = zip(inputs[:num_features], inputs[num_features:], strict=True)
    return [_bucketize_feature(op, values, boundaries) for values, boundaries in pairs]


def _bucketize_feature(op: Context, values: Value, boundaries: Value) -> Value:
    below = op.elementwise("Less", boundaries, op.unsqueeze(values, [1]))
    found = op.reduce("ReduceSum", op.cast(below, "int32"), [1])
    last = op.sub(op.shape_vector(boundaries), op.constant(1, "int32"))
    zero = op.constant(0, "int32")
    return op.elementwise("Max", op.elementwise("Min", found, last), zero)


@tf_op("Bincount")
def bincount(op: Context, arr: Value, size: Value, weights: Value, /) -> Value:
    """The number of occurrences of each integer below `size`, or their sum of weights."""
    return _counts(op, op.reshape(arr, (None,)), size, weights, is_binary=False)


@tf_op("DenseBincount")
def dense_bincount(
    op: Context, input: Value, size: Value, weights: Value, /, *, binary_output: bool = False
) -> Value:
    """The number of occurrences of each integer below `size`, per vector or matrix row."""
    return _counts(op, input, size, weights, is_binary=binary_output)


def _counts(op: Context, x: Value, size: Value, weights: Value, *, is_binary: bool) -> Value:
    """Count along the last axis, or sum weights; values of `size` and more are left out."""
    length = op.cast(op.reshape(size, (1,)), "int64")
    given = weights if _has_weights(weights) and not is_binary else None
    if given is not None and x.rank == 1:
        given = op.reshape(given, (None,))
    kind = "int64" if weights.dtype == "int32" else weights.dtype
    made = add_by_index(op, x, length, given, kind, is_binary=is_binary, dim=op.dims(size)[0])
    return op.cast(made, weights.dtype)


def _has_weights(weights: Value) -> bool:
    if 0 in weights.shape:
        return False
    if all(isinstance(n, int) for n in weights.shape):
        return True
    raise Unsupported("weights of which it is not known whether there are any")


@tf_op("HistogramFixedWidth")
def histogram_fixed_width(
    op: Context, values: Value, value_range: Value, nbins: Value, /, *, node: Node
) -> Value:
    """The number of values in each of `nbins` equal bins; the first and last include outliers."""
    low = op.slice(value_range, [0], [0], [1])
    high = op.slice(value_range, [0], [1], [2])
    bins = op.cast(nbins, "int64")
    flat = op.reshape(values, (None,))
    above = op.sub(op.elementwise("Max", flat, low), low)
    step = op.div(op.cast(op.sub(high, low), "float64"), op.cast(bins, "float64"))
    last = op.cast(op.sub(bins, op.constant(1, "int64")), "float64")
    place = op.elementwise("Min", op.div(op.cast(above, "float64"), step), last)
    kind = node.attribute("dtype", "int32")
    none = op.constant([], kind)
    return _counts(op, op.cast(place, "int64"), nbins, none, is_binary=False)
