"""Top k, positions in sorted sequences, and unique elements."""

import numpy as np

from converter.lower.ops import sort
from converter.lower.table import Variant
from converter.lower.tf import extents
from converter.lower.tf.context import Context
from converter.lower.tf.extents import Extent
from converter.lower.tf.graphdef import Node
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value
from formats.core.plurals import count

# -- sorted ----------------------------------------------------------------------------------------


def largest(
    op: Context, x: Value, count: Extent, axis: int, *, smallest: bool = False
) -> tuple[Value, Value]:
    """Return the `count` largest along an axis in descending order, and their indices (int64)."""
    return sort.top_k(op, x, axis, count.dim, count.vector, largest=not smallest)


@tf_op("TopKV2", outputs=("values", "indices"))
def top_k_v2(
    op: Context, input: Value, k: Value, /, *, sorted: bool = True, node: Node
) -> list[Value]:
    """The `k` largest along the last axis, and their indices."""
    del sorted  # a sorted result is also valid if False
    values, places = largest(op, input, extents.elements(op, k)[0], -1)
    return [values, op.cast(places, node.attribute("index_type", "int32"))]


@tf_op("TopK", outputs=("values", "indices"))
def top_k(op: Context, input: Value, /, *, k: int, sorted: bool = True) -> list[Value]:
    """The `k` largest along the last axis, and their indices."""
    del sorted
    values, places = largest(op, input, extents.number(op, k), -1)
    return [values, op.cast(places, "int32")]


@tf_op("NthElement")
def nth_element(op: Context, input: Value, n: Value, /, *, reverse: bool = False) -> Value:
    """The n-th smallest element along the last axis, or the n-th largest if `reverse`."""
    place = extents.elements(op, n)[0]
    count = extents.add(op, place, extents.number(op, 1))
    values, _ = largest(op, input, count, -1, smallest=not reverse)
    if isinstance(place.dim, int):
        return op.gather(values, op.constant(place.dim, "int64"), -1)
    return op.gather(values, op.squeeze(place.vector, [0]), -1)


@tf_op("InTopK")
def in_top_k(op: Context, predictions: Value, targets: Value, /, *, k: int) -> Value:
    """Whether fewer than `k` predictions exceed that of the target."""
    return sort.is_in_top_k(op, predictions, targets, op.constant(k, "int64"))


@tf_op("InTopKV2")
def in_top_k_v2(op: Context, predictions: Value, targets: Value, k: Value, /) -> Value:
    """Whether fewer than `k` predictions exceed that of the target."""
    return sort.is_in_top_k(op, predictions, targets, k)


@tf_op(
    Variant("LowerBound", "How many of a rising sequence are less than a value.", upper=False),
    Variant("UpperBound", "How many of a rising sequence are not more than a value.", upper=True),
)
def bound(op: Context, sorted_inputs: Value, values: Value, /, *, upper: bool, node: Node) -> Value:
    """The number of elements of a sorted sequence before each value."""
    if sorted_inputs.dtype == "string":
        raise Unsupported("the order of strings")
    found = sort.count_before(op, sorted_inputs, values, or_equal=upper)
    return op.cast(found, node.attribute("out_type", "int32"))


# -- unique ----------------------------------------------------------------------------------------


def _unique(op: Context, x: Value, axis: int | None, node: Node, count: int) -> list[Value]:
    kind = node.attribute("out_idx", "int32")
    found = sort.find_unique(op, x, axis)
    places = [op.cast(v, kind) for v in (found.inverse, found.counts)]
    return [found.values, *places][:count]


def _axis(op: Context, x: Value, axis: Value) -> int | None:
    found = op.ints(axis, "an axis")
    if len(found) > 1:
        raise Unsupported(count("axis", len(found)))
    if not found and x.rank != 1:
        raise Unsupported("a tensor of several axes without one")
    return None if not found or x.rank == 1 else found[0]


@tf_op("Unique", outputs=("y", "idx"))
def unique(op: Context, x: Value, /, *, node: Node) -> list[Value]:
    """The unique elements, and the index of each element in them."""
    return _unique(op, x, None, node, 2)


@tf_op("UniqueWithCounts", outputs=("y", "idx", "count"))
def unique_with_counts(op: Context, x: Value, /, *, node: Node) -> list[Value]:
    """The unique elements, the index of each element in them, and their counts."""
    return _unique(op, x, None, node, 3)


@tf_op("UniqueV2", outputs=("y", "idx"))
def unique_v2(op: Context, x: Value, axis: Value, /, *, node: Node) -> list[Value]:
    """The unique slices along an axis, and the index of each slice in them."""
    return _unique(op, x, _axis(op, x, axis), node, 2)


@tf_op("UniqueWithCountsV2", outputs=("y", "idx", "count"))
def unique_with_counts_v2(op: Context, x: Value, axis: Value, /, *, node: Node) -> list[Value]:
    """The unique slices along an axis, the index of each slice in them, and their counts."""
    return _unique(op, x, _axis(op, x, axis), node, 3)


@tf_op("ListDiff", outputs=("out", "idx"))
def list_diff(op: Context, x: Value, y: Value, /, *, node: Node) -> list[Value]:
    """The elements of `x` that are not in `y`, and their indices in `x`."""
    kind = node.attribute("out_idx", "int32")
    known = op.static(x), op.static(y)
    if known[0] is not None and known[1] is not None and x.dtype != "string":
        left = np.flatnonzero(~np.isin(known[0], known[1]))
        return [op.constant(known[0][left], x.dtype), op.constant(left, kind)]
    missing = op.unary("Not", member(op, x, y))
    found = op.emit("Compress", x, missing, dtype=x.dtype, shape=(None,), axis=0)
    places = op.squeeze(op.emit("NonZero", missing, dtype="int64", shape=(1, None)), [0])
    return [found, op.cast(places, kind)]


def member(op: Context, x: Value, y: Value) -> Value:
    """Return the mask of elements of `x` that are in `y`, of any dtype."""
    found = sort.find_unique(op, op.concat([y, x], 0))
    which = found.inverse
    marks = extents.fill(op, op.constant(0, "int32"), [extents.of(op, found.values, 0)])
    cut = op.size(y, 0)
    axis, zero, end = (op.constant([n], "int64") for n in (0, 0, 1 << 31))
    theirs = op.emit("Slice", which, zero, cut, axis, dtype="int64", shape=y.shape)
    ours = op.emit("Slice", which, cut, end, axis, dtype="int64", shape=x.shape)
    ones = extents.fill(op, op.constant(1, "int32"), [extents.of(op, y, 0)])
    marked = op.emit(
        "ScatterElements", marks, theirs, ones, dtype="int32", shape=marks.shape, axis=0
    )
    return op.cast(op.gather(marked, ours), "bool")
