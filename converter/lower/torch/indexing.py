"""Indexing: elements by index tensors and masks.

Spec: numpy's advanced indexing, https://numpy.org/doc/2.3/user/basics.indexing.html
"""

from collections.abc import Sequence

from converter.lower import dims
from converter.lower.ops.index import take_along_axis
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Int
from converter.lower.torch.slicing import select
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

MASKS = ("bool", "uint8")


def nonzero_of(op: Context, x: Value) -> Value:
    """Return the indices of elements that are not zero as [count, rank], with a symbolic count."""
    wide = op.unsqueeze(x, [0]) if x.rank == 0 else x
    found = op.emit("NonZero", op.cast(wide, "bool"), dtype="int64", shape=(wide.rank, None))
    named = op.named(found)
    if x.rank == 0:
        return op.shaped(op.cut(named.transposed([1, 0]), 1, 0, 0), (named.shape[1], 0))
    return named.transposed([1, 0])


@aten("nonzero")
def nonzero(op: Context, self: Value) -> Value:
    """Indices of the elements that are not zero."""
    return nonzero_of(op, self)


@aten("nonzero_static")
def nonzero_static(op: Context, self: Value, size: Int, fill_value: int = -1) -> Value:
    """Indices of the first elements that are not zero; fill values where these are fewer."""
    rest = op.filled((size, self.rank), fill_value, "int64")
    return op.cut(op.concat([op.plain(nonzero_of(op, self)), rest], 0), 0, 0, size)


@aten("nonzero_numpy")
def nonzero_numpy(op: Context, self: Value) -> list[Value]:
    """Indices of the elements that are not zero, a vector for each axis."""
    places = op.plain(nonzero_of(op, self))
    return [_column(op, places, i) for i in range(self.rank)]


@aten("where")
def where(op: Context, condition: Value) -> list[Value]:
    """Indices of the elements where a condition is true, a vector for each axis."""
    return nonzero_numpy(op, condition)


def _column(op: Context, places: Value, i: int) -> Value:
    return select(op, places, 1, i)


@aten("argwhere")
def argwhere(op: Context, self: Value) -> Value:
    """Indices of the elements that are not zero."""
    return nonzero_of(op, self)


@aten("masked_select")
def masked_select(op: Context, self: Value, mask: Value) -> Value:
    """The elements where a mask is true, as a vector."""
    shape = op.broadcast(op.named(self).shape, op.named(mask).shape) or (1,)
    x, held = op.expand(self, shape), op.expand(op.cast(mask, "bool"), shape)
    places = nonzero_of(op, held)
    return op.emit("GatherND", x, places, dtype=x.dtype, shape=places.shape[:1])


@aten("index_select", "index_select_copy")
def index_select(op: Context, self: Value, dim: int, index: Value) -> Value:
    """Slices along an axis, by index."""
    vector = op.unsqueeze(index, [0]) if index.rank == 0 else index
    if self.rank == 0:
        return self
    return op.gather(op.outer(self), vector, self.axis(dim))


@aten("take")
def take(op: Context, self: Value, index: Value) -> Value:
    """Elements by their index in the flattened tensor."""
    x = op.named(self)
    return op.gather(op.reshape(x, (dims.product(x.shape),)), index, 0)


@aten("gather")
def gather(op: Context, self: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    """Elements along an axis, one for each element of the index."""
    del sparse_grad
    if self.rank == 0:
        return op.expand(self, op.named(index).shape)
    if 0 in index.shape:  # of any rank
        return op.filled(index.shape, 0, self.dtype)
    if index.rank == 0:
        return op.reshape(gather(op, self, dim, op.reshape(index, (1,))), ())
    axis = self.axis(dim)
    return op.emit("GatherElements", self, index, dtype=self.dtype, shape=index.shape, axis=axis)


@aten("take_along_dim")
def take_along_dim(op: Context, self: Value, indices: Value, dim: int | None = None) -> Value:
    """Elements along an axis, one for each element of the index; both are broadcast."""
    x = op.named(self)
    if dim is None:
        flat = op.reshape(x, (dims.product(x.shape),))
        named = op.named(indices)
        return gather(op, flat, 0, op.reshape(named, (dims.product(named.shape),)))
    return take_along_axis(op, x, op.named(indices), dim)


# -- advanced indexing -----------------------------------------------------------------------------


def spread_masks(op: Context, indices: Sequence[Value | None]) -> list[Value | None]:
    """Return indices with a vector for each axis of a mask."""
    found: list[Value | None] = []
    for index in indices:
        if index is None or index.dtype not in MASKS:
            found.append(None if index is None else op.cast(index, "int64"))
            continue
        places = op.plain(nonzero_of(op, index))
        found += [_column(op, places, i) for i in range(index.rank)]
    return found


def places_of(op: Context, indices: Sequence[Value]) -> Value:
    """Return broadcast indices stacked along a last axis."""
    shape = op.broadcast(*(op.named(index).shape for index in indices))
    wide = [op.unsqueeze(op.expand(i, shape), [-1]) for i in indices]
    made = op.concat(wide, len(shape))
    return op.shaped(made, (*shape, len(indices)))


@aten("index.Tensor", "_unsafe_index.Tensor")
def index(op: Context, self: Value, indices: Sequence[Value | None]) -> Value:
    """Elements by index tensors or masks."""
    spread = spread_masks(op, indices)
    axes = [i for i, index in enumerate(spread) if index is not None]
    chosen = [index for index in spread if index is not None]
    if not axes:
        return self
    if axes[-1] >= self.rank:
        raise Unsupported(f"{len(spread)} indices of {self.rank} axes")
    if len(axes) == 1:
        return op.gather(op.outer(self), chosen[0], axes[0])
    rest = [i for i in range(self.rank) if i not in axes]
    x = op.plain(self.transposed([*axes, *rest]))
    places = places_of(op, chosen)
    count = places.rank - 1
    shape = (*places.shape[:-1], *x.shape[len(axes) :])
    made = op.emit("GatherND", x, places, dtype=x.dtype, shape=shape)
    if axes != list(range(axes[0], axes[0] + len(axes))):
        return made  # axes between them come after
    before = range(count, count + axes[0])
    return made.transposed([*before, *range(count), *range(count + axes[0], made.rank)])


@aten("_unsafe_masked_index")
def unsafe_masked_index(
    op: Context, self: Value, mask: Value, indices: Sequence[Value | None], fill: float
) -> Value:
    """Elements by index tensors, and a number where the mask is false."""
    held: list[Value | None] = []
    for axis, place in enumerate(indices):
        if place is None:
            held.append(None)
            continue
        last = op.sub(op.scalar_of(op.axis_of(self, axis), place.dtype), 1)
        inside = op.elementwise("Max", place, op.constant(0, place.dtype))
        held.append(op.elementwise("Min", inside, last))
    found = index(op, self, held)
    return op.where(mask, found, op.constant(fill, self.dtype))
