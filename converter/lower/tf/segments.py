"""Segment reductions: sums, products, means and extremes of the slices of each segment.

Each is a scatter with a reduction. An empty segment is 0 if the segment ids are sorted, and the
reduction's initial value if they are unsorted.
Spec: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/kernels/segment_reduction_ops_impl.h
"""

import numpy as np

from converter.lower.element_types import numpy_type
from converter.lower.ops.scatter import NARROW
from converter.lower.table import Variant
from converter.lower.tf import extents
from converter.lower.tf.context import Context
from converter.lower.tf.extents import Extent
from converter.lower.tf.indexing import gather_along
from converter.lower.tf.scatter import put
from converter.lower.tf.table import tf_op
from converter.lower.values import Value

REDUCTIONS = {"Sum": "add", "Prod": "mul", "Max": "max", "Min": "min"}


def last_and_one(op: Context, ids: Value) -> Extent:
    """Return the number of segments of sorted ids: the last id plus one."""
    known = op.static(ids)
    if known is not None:
        return extents.number(op, int(known[-1]) + 1 if known.size else 0)

    def make() -> Value:
        least = op.concat([op.constant([-1], ids.dtype), ids], 0)  # there may be no ids
        last = op.cast(op.slice(least, [0], [-1], [1 << 31]), "int64")
        return op.add(last, op.constant([1], "int64"))

    return Extent(None, make)


def start_of(kind: str, dtype: str, *, infinite: bool = False) -> object:
    """Return the initial value of a reduction; for Max the lowest, for Min the highest value."""
    if kind in ("Sum", "Prod"):
        return int(kind == "Prod")
    sign: float = -1 if kind == "Max" else 1
    if "float" not in dtype:
        limits = np.iinfo(dtype)
        return limits.min if kind == "Max" else limits.max
    if infinite:
        return sign * np.inf
    if dtype == "bfloat16":
        return sign * float.fromhex("0x1.fep127")
    return sign * float(np.finfo(dtype).max)


def _constant(op: Context, number: object, dtype: str) -> Value:
    return op.constant(np.asarray(number, numpy_type(dtype)), dtype)


def reduce_by_segment(
    op: Context, kind: str, data: Value, ids: Value, count: Extent, *, infinite: bool = False
) -> Value:
    """Reduce each segment to its sum, product or extreme: data [n, rest], ids [n].

    Args:
        op: The builder.
        kind: Sum, Prod, Max or Min.
        data: Slices to reduce.
        ids: Segment id of each slice, none negative.
        count: Number of segments.
        infinite: Whether the initial value of extremes is infinite, and not the largest finite one.
    """
    dtype = data.dtype
    wide = "float32" if dtype in NARROW else dtype
    rest = extents.of_all(op, data)[1:]
    start = start_of(kind, dtype, infinite=infinite)
    empty = extents.fill(op, _constant(op, start, wide), [count, *rest])
    made = put(op, empty, op.unsqueeze(ids, [1]), op.cast(data, wide), REDUCTIONS[kind])
    return op.cast(made, dtype)


def counts(op: Context, ids: Value, count: Extent, dtype: str) -> Value:
    """Return the number of slices of each segment: [count]."""
    zeros = extents.fill(op, op.constant(0, dtype), [count])
    ones = extents.fill(op, op.constant(1, dtype), [extents.of(op, ids, 0)])
    return put(op, zeros, op.unsqueeze(ids, [1]), ones, "add")


def _as_wide(op: Context, vector: Value, like: Value) -> Value:
    """Return a vector of one value per segment, unsqueezed to broadcast with `like`."""
    return op.unsqueeze(vector, list(range(1, like.rank))) if like.rank > 1 else vector


# -- sorted ids ------------------------------------------------------------------------------------


@tf_op(
    Variant("SegmentSum", "The sums of slices, segment by segment.", kind="Sum"),
    Variant("SegmentProd", "The products of slices, segment by segment.", kind="Prod"),
    Variant("SegmentMax", "The largest of slices, segment by segment.", kind="Max"),
    Variant("SegmentMin", "The smallest of slices, segment by segment.", kind="Min"),
)
def reduce_segments(op: Context, data: Value, segment_ids: Value, /, *, kind: str) -> Value:
    """The reduction of the slices of each segment."""
    count = last_and_one(op, segment_ids)
    made = reduce_by_segment(op, kind, data, segment_ids, count, infinite=True)
    if kind in ("Sum", "Prod"):
        return made
    there = op.cast(counts(op, segment_ids, count, "int32"), "bool")
    return op.where(_as_wide(op, there, made), made, op.constant(0, data.dtype))


@tf_op("SegmentMean")
def segment_mean(op: Context, data: Value, segment_ids: Value, /) -> Value:
    """The mean of the slices of each segment; of integers, truncated."""
    return _mean(op, data, segment_ids, last_and_one(op, segment_ids))


def _mean(op: Context, data: Value, ids: Value, count: Extent, *, root: bool = False) -> Value:
    dtype = data.dtype
    wide = "float32" if dtype in NARROW else dtype
    total = reduce_by_segment(op, "Sum", op.cast(data, wide), ids, count)
    kind = wide if wide in ("float32", "float64") else "int64"
    many = counts(op, ids, count, kind)
    many = op.elementwise("Max", many, op.constant(1, kind))
    if root:
        many = op.unary("Sqrt", many)
    return op.cast(op.div(total, _as_wide(op, op.cast(many, wide), total)), dtype)


# -- unsorted ids ----------------------------------------------------------------------------------


def unsorted(op: Context, kind: str, data: Value, ids: Value, count: Extent) -> Value:
    """Reduce segments of unsorted ids; slices of negative ids are dropped."""
    if ids.rank != 1:
        lines = extents.product(op, extents.of_all(op, ids))
        rest = extents.of_all(op, data)[ids.rank :]
        data = extents.reshape_to(op, data, [lines, *rest])
        ids = extents.reshape_to(op, ids, [lines])
    known = op.static(ids)
    if known is not None and (known >= 0).all():
        return reduce_by_segment(op, kind, data, ids, count)
    # Slices of negative ids go to an extra segment, which is dropped.
    ids = op.cast(ids, "int64")
    outside = op.elementwise("Less", ids, op.constant(0, "int64"))
    places = op.where(outside, op.squeeze(count.vector, [0]), ids)
    more = extents.add(op, count, extents.number(op, 1))
    made = reduce_by_segment(op, kind, data, places, more)
    if isinstance(count.dim, int):
        return op.slice(made, [0], [0], [count.dim])
    zero, axis = op.constant([0], "int64"), op.constant([0], "int64")
    return op.emit(
        "Slice", made, zero, count.vector, axis, dtype=made.dtype,
        shape=(count.dim, *made.shape[1:]),
    )  # fmt: skip


@tf_op(
    *(
        Variant(
            (f"UnsortedSegment{kind}", f"Segment{kind}V2"),
            f"The {what} of slices that have one number.",
            kind=kind,
        )
        for kind, what in (
            ("Sum", "sums"),
            ("Prod", "products"),
            ("Max", "largest"),
            ("Min", "smallest"),
        )
    )
)
def reduce_unsorted_segments(
    op: Context, data: Value, segment_ids: Value, num_segments: Value, /, *, kind: str,
) -> Value:  # fmt: skip
    """The reduction of the slices of each segment, with unsorted ids."""
    count = extents.elements(op, num_segments)[0]
    return unsorted(op, kind, data, segment_ids, count)


# -- gathered slices -------------------------------------------------------------------------------


def combine_segments(
    op: Context, kind: str, data: Value, indices: Value, ids: Value, count: Extent
) -> Value:
    """Reduce segments of gathered slices to sums, means, or `sum / sqrt(n)`."""
    rows = gather_along(op, data, indices)
    if kind == "Sum":
        return reduce_by_segment(op, "Sum", rows, ids, count)
    return _mean(op, rows, ids, count, root=kind == "SqrtN")


CHOSEN = (
    ("SparseSegmentSum", "The sums of chosen slices, segment by segment.", "Sum"),
    ("SparseSegmentMean", "The means of chosen slices, segment by segment.", "Mean"),
    ("SparseSegmentSqrtN", "Sums of chosen slices by the root of their number.", "SqrtN"),
)


@tf_op(*(Variant(name, summary, kind=kind) for name, summary, kind in CHOSEN))
def reduce_chosen_slices(
    op: Context, data: Value, indices: Value, segment_ids: Value, /, *, kind: str,
    sparse_gradient: bool = False,
) -> Value:  # fmt: skip
    """The reduction of the gathered slices of each segment."""
    del sparse_gradient
    return combine_segments(op, kind, data, indices, segment_ids, last_and_one(op, segment_ids))


@tf_op(*(Variant(f"{name}WithNumSegments", summary, kind=kind) for name, summary, kind in CHOSEN))
def reduce_chosen_slices_to(
    op: Context, data: Value, indices: Value, segment_ids: Value, num_segments: Value, /, *,
    kind: str, sparse_gradient: bool = False,
) -> Value:  # fmt: skip
    """The reduction of the gathered slices of each of `num_segments` segments."""
    del sparse_gradient
    count = extents.elements(op, num_segments)[0]
    return combine_segments(op, kind, data, indices, segment_ids, count)
