"""Rows of tables, and sums of them."""

from converter.lower import dims
from converter.lower.ops.scatter import scatter_elements
from converter.lower.torch.context import Context
from converter.lower.torch.reductions import norm_of
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

SUM, MEAN, MAX = 0, 1, 2


@aten("embedding")
def embedding(
    op: Context, weight: Value, indices: Value, padding_idx: int = -1,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Value:  # fmt: skip
    """Rows of a table, by index."""
    del padding_idx, scale_grad_by_freq, sparse  # what is learnt
    return op.gather(op.outer(weight), indices, 0)


def _bags(
    op: Context, weight: Value, indices: Value, offsets: Value | None, mode: int,
    weights: Value | None, padding_idx: int | None, *, has_end: bool,
) -> Value:  # fmt: skip
    """Return the sum, mean or largest of rows, for each bag of indices.

    Args:
        op: Builder.
        weight: The table.
        indices: A vector of all bags' indices.
        offsets: Where each bag begins.
        mode: Which.
        weights: Weight of each row.
        padding_idx: An index that does not count.
        has_end: Whether the last offset is where the last bag ends.
    """
    if offsets is None:
        raise Unsupported("bags without offsets")
    indices, offsets = op.named(indices), op.cast(op.named(offsets), "int64")
    count, bags = indices.shape[0], offsets.shape[0]
    if has_end:
        bags = dims.sub(bags, 1)
        starts = op.cut(offsets, 0, 0, bags)
        ends = op.shaped(op.cut(offsets, 0, 1, offsets.shape[0]), (bags,))
    else:
        starts = offsets
        last = op.vector([count])
        rest = op.cut(offsets, 0, 1, bags)
        ends = op.shaped(op.concat([rest, last], 0), (bags,))
    places = op.unsqueeze(op.range(count), [0])
    after = op.elementwise("GreaterOrEqual", places, op.unsqueeze(starts, [1]))
    before = op.elementwise("Less", places, op.unsqueeze(ends, [1]))
    held = op.elementwise("And", after, before)
    if padding_idx is not None:
        wanted = op.elementwise("Equal", indices, op.constant(padding_idx, indices.dtype))
        held = op.elementwise("And", held, op.unsqueeze(op.unary("Not", wanted), [0]))
    rows = op.gather(op.outer(weight), indices, 0)
    if weights is not None:
        rows = op.mul(rows, op.unsqueeze(weights, [1]))
    member = op.cast(held, rows.dtype)
    if mode == MAX:
        wide = op.unsqueeze(rows, [0])
        low = op.constant(float("-inf"), rows.dtype)
        found = op.reduce("ReduceMax", op.where(op.unsqueeze(held, [2]), wide, low), [1])
        some = op.reduce("ReduceMax", op.cast(held, "int32"), [1], keepdims=True)
        return op.where(op.cast(some, "bool"), found, op.constant(0.0, rows.dtype))
    found = op.matmul(member, rows)
    if mode == SUM:
        return found
    size = op.reduce("ReduceSum", member, [1], keepdims=True)
    return op.div(found, op.elementwise("Max", size, op.constant(1.0, rows.dtype)))


@aten("embedding_bag.padding_idx")
def embedding_bag_padding(
    op: Context, weight: Value, indices: Value, offsets: Value, scale_grad_by_freq: bool,
    mode: int, sparse: bool, per_sample_weights: Value | None, include_last_offset: bool,
    padding_idx: int | None,
) -> list[Value]:  # fmt: skip
    """The sum, mean or maximum of the rows of each bag; other outputs are for training."""
    del scale_grad_by_freq, sparse
    if padding_idx is not None and padding_idx < 0:
        rows = weight.shape[0]
        if not isinstance(rows, int):
            raise Unsupported("an index that is counted from the end of a table of unknown size")
        padding_idx += rows
    made = _bags(
        op, weight, indices, offsets, mode, per_sample_weights, padding_idx,
        has_end=include_last_offset,
    )  # fmt: skip
    return [made]


@aten("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    op: Context, weight: Value, indices: Value, offsets: Value, scale_grad_by_freq: bool = False,
    mode: int = 0, sparse: bool = False, per_sample_weights: Value | None = None,
    include_last_offset: bool = False, padding_idx: int = -1,
) -> list[Value]:  # fmt: skip
    """The sum, mean or maximum of the rows of each bag; other outputs are for training."""
    return embedding_bag_padding(
        op, weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
        include_last_offset, None if padding_idx < 0 else padding_idx,
    )  # fmt: skip


@aten("embedding_renorm")
def embedding_renorm(
    op: Context, self: Value, indices: Value, max_norm: float, norm_type: float
) -> Value:
    """A table whose rows at these indices are no longer than the largest norm."""
    x, at = op.named(self), op.named(indices)
    at = op.reshape(at, (dims.product(at.shape),))
    none = op.filled(x.shape[:1], 0, "int64")
    used = scatter_elements(op, none, 0, at, op.filled(at.shape, 1, "int64"), "max")
    norms = norm_of(op, x, norm_type, [1], keepdim=True)
    is_long = op.elementwise("Greater", norms, op.constant(max_norm, norms.dtype))
    chosen = op.elementwise("And", is_long, op.unsqueeze(op.cast(used, "bool"), [1]))
    shorter = op.mul(x, op.div(op.constant(max_norm, x.dtype), op.add(norms, 1e-7)))
    return op.where(chosen, shorter, x)
