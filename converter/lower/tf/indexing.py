"""Gather, one-hot, ReverseSequence and UnravelIndex."""

from converter.lower.ops import index
from converter.lower.tf import extents
from converter.lower.tf.arrays import transpose_by
from converter.lower.tf.context import Context
from converter.lower.tf.coordinates import places
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value


def numbers(op: Context, indices: Value) -> Value:
    """Cast indices to a dtype that ONNX accepts for indices."""
    return indices if indices.dtype in ("int32", "int64") else op.cast(indices, "int32")


def gather_along(
    op: Context, params: Value, indices: Value, axis: int = 0, batch_dims: int = 0
) -> Value:
    """Gather elements along an axis by index; each batch entry has its own indices."""
    axis = params.axis(axis)
    batch = batch_dims + indices.rank if batch_dims < 0 else batch_dims
    if not batch:
        return op.gather(params, numbers(op, indices), axis)
    if axis < batch:
        raise Unsupported(f"axis {axis}, which is one of {batch} batch axes")
    # The axis is moved right after the batch axes; the gathered axes are moved back to its index.
    between = list(range(batch, axis))
    rest = list(range(axis + 1, params.rank))
    first = op.transpose(params, [*range(batch), axis, *between, *rest])
    places = op.unsqueeze(op.cast(indices, "int64"), [-1])
    shape = (*indices.shape, *first.shape[batch + 1 :])
    made = op.emit("GatherND", first, places, dtype=params.dtype, shape=shape, batch_dims=batch)
    count = indices.rank - batch
    middle = [batch + count + i for i in range(len(between))]
    moved = list(range(batch, batch + count))
    last = list(range(batch + count + len(between), made.rank))
    return op.transpose(made, [*range(batch), *middle, *moved, *last])


def gather_nd(op: Context, params: Value, indices: Value) -> Value:
    """Gather elements, or slices, by multi-dimensional indices.

    Raises:
        Unsupported: The number of axes that an index covers is unknown.
    """
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        raise Unsupported("indices that cover an unknown number of axes")
    shape = (*indices.shape[:-1], *params.shape[depth:])
    if depth == 0:  # each index selects the whole tensor
        sides = [*extents.of_all(op, indices)[:-1], *extents.of_all(op, params)]
        vector = extents.vector(op, sides)
        return op.emit("Expand", params, vector, dtype=params.dtype, shape=shape)
    places = op.cast(indices, "int64")
    return op.emit("GatherND", params, places, dtype=params.dtype, shape=shape)


def _policy(policy: str) -> None:
    if policy not in ("", "DEFAULT", "ERROR"):
        raise Unsupported(f"bad_indices_policy {policy}")


@tf_op("Gather")
def gather(op: Context, params: Value, indices: Value, /) -> Value:
    """Rows gathered by index."""
    return gather_along(op, params, indices)


@tf_op("GatherV2")
def gather_v2(
    op: Context, params: Value, indices: Value, axis: Value, /, *, batch_dims: int = 0
) -> Value:
    """Elements gathered along an axis by index; each batch entry may have its own indices."""
    known = op.static(axis)
    if known is None and not batch_dims:
        return _along(op, params, indices, axis)
    return gather_along(op, params, indices, op.int(axis, "an axis"), batch_dims)


def _along(op: Context, params: Value, indices: Value, axis: Value) -> Value:
    """Gather along a computed axis; supported where the indices or the input are a vector."""
    if indices.rank != 1 or params.rank < 2:
        if params.rank == 1:
            return gather_along(op, params, indices)
        raise Unsupported("an axis that is computed from the inputs")
    # Swap the axis with the first one, gather, and swap back.
    rank = params.rank
    place = op.elementwise("Mod", op.cast(axis, "int64"), op.constant(rank, "int64"))
    line = op.constant(list(range(rank)), "int64")
    at = op.elementwise("Equal", line, place)
    swapped = op.where(at, op.constant(0, "int64"), line)
    first = op.elementwise("Equal", line, op.constant(0, "int64"))
    order = op.where(first, place, swapped)
    turned = transpose_by(op, params, order)
    return transpose_by(op, gather_along(op, turned, indices), order)


@tf_op("GatherNd")
def gather_nd_op(
    op: Context, params: Value, indices: Value, /, *, bad_indices_policy: str = ""
) -> Value:
    """Elements, or slices, gathered by multi-dimensional indices."""
    _policy(bad_indices_policy)
    return gather_nd(op, params, indices)


@tf_op("OneHot")
def one_hot(
    op: Context, indices: Value, depth: Value, on_value: Value, off_value: Value, /, *,
    axis: int = -1,
) -> Value:  # fmt: skip
    """One-hot encoding: `on_value` at each index along a new axis, `off_value` elsewhere."""
    kind = indices.dtype if indices.dtype in ("int32", "int64") else "int32"
    count = extents.elements(op, depth)[0]
    line = extents.count_to(op, count, kind)
    hits = index.one_hot(op, op.cast(indices, kind), line, axis)
    on, off = op.static(on_value), op.static(off_value)
    dtype = on_value.dtype
    if dtype != "string" and on is not None and off is not None and off == 0 and on == 1:
        return op.cast(hits, dtype)
    return op.where(hits, on_value, off_value)


@tf_op("ReverseSequence")
def reverse_sequence(
    op: Context, input: Value, seq_lengths: Value, /, *, seq_dim: int, batch_dim: int = 0
) -> Value:
    """The tensor with the first `seq_lengths` elements along an axis reversed."""
    time, batch = input.axis(seq_dim), input.axis(batch_dim)
    rest = [i for i in range(input.rank) if i not in (time, batch)]
    order = [batch, time, *rest]
    x = op.transpose(input, order)
    how = {"batch_axis": 0, "time_axis": 1}
    if (time, batch) == (0, 1):
        x, order, how = input, list(range(input.rank)), {"batch_axis": 1, "time_axis": 0}
    lengths = op.cast(seq_lengths, "int64")
    made = op.emit("ReverseSequence", x, lengths, dtype=input.dtype, shape=x.shape, **how)
    back = [order.index(i) for i in range(input.rank)]
    return op.transpose(made, back)


@tf_op("UnravelIndex")
def unravel_index(op: Context, indices: Value, dims: Value, /) -> Value:
    """Multi-dimensional indices [axes, ...] of flat indices into a shape."""
    sides = extents.elements(op, dims)
    columns = places(op, op.cast(indices, "int64"), sides)
    made = op.concat([op.unsqueeze(v, [0]) for v in columns], 0)
    return op.cast(made, indices.dtype)
