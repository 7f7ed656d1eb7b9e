"""Shapes and axes: views, orders, parts and joins.

Spec: https://docs.pytorch.org/docs/2.13/torch.html#indexing-slicing-joining-mutating-ops
"""

from collections.abc import Sequence

from converter.lower import dims
from converter.lower.graph import Dim
from converter.lower.ops.cumulative import cumulative_sum
from converter.lower.ops.diagonal import take_diagonal
from converter.lower.ops.shape import drop_ones, roll_axis
from converter.lower.ops.sort import count_before
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Int, Ints, Tensors, integer
from converter.lower.torch.promotion import result_type
from converter.lower.torch.slicing import END
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


def infer_size(op: Context, x: Value, shape: Ints) -> list[Dim]:
    """Return a shape with what is left for -1.

    Raises:
        Unsupported: That is not known, or there are several.
    """
    free = [i for i, n in enumerate(shape) if isinstance(n, int) and n < 0]
    found: list[Dim] = list(shape)
    if len(free) > 1:
        raise Unsupported(f"a reshape to {list(shape)}")
    if free:
        whole = dims.product(op.named(x).shape)
        rest = dims.product([n for i, n in enumerate(shape) if i != free[0]])
        left = dims.divide_exactly(whole, rest) if rest != 0 else None
        if left is None and isinstance(whole, int) and isinstance(rest, int):
            raise Unsupported(f"{list(x.shape)} reshaped to {list(shape)}")
        found[free[0]] = op.floordiv(whole, rest) if left is None else left
    return found


@aten("view", "_unsafe_view", "view_copy")
def view(op: Context, self: Value, size: Ints) -> Value:
    """The elements in another shape."""
    return op.reshape(self, infer_size(op, self, size))


@aten("reshape")
def reshape(op: Context, self: Value, shape: Ints) -> Value:
    """The elements in another shape."""
    return op.reshape(self, infer_size(op, self, shape))


@aten("view_as", "reshape_as")
def view_as(op: Context, self: Value, other: Value) -> Value:
    """The elements in the shape of another tensor."""
    return op.reshape(self, op.named(other).shape)


@aten("_reshape_alias", "_reshape_copy")
def reshape_alias(op: Context, self: Value, size: Ints, stride: Ints = ()) -> Value:
    """The elements in another shape."""
    del stride
    return op.reshape(self, infer_size(op, self, size))


@aten("view.dtype")
def view_dtype(op: Context, self: Value, dtype: str) -> Value:
    """The bits as another dtype; supported only for the tensor's own dtype."""
    del op
    if dtype != self.dtype:
        raise Unsupported(f"bits of {self.dtype} as {dtype}")
    return self


@aten("flatten.using_ints")
def flatten(op: Context, self: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    """A range of axes merged into one."""
    if self.rank == 0:
        return op.reshape(self, (1,))
    x = op.named(self)
    first, last = x.axis(start_dim), x.axis(end_dim)
    inside = dims.product(x.shape[first : last + 1])
    return op.reshape(x, (*x.shape[:first], inside, *x.shape[last + 1 :]))


@aten("unflatten.int")
def unflatten(op: Context, self: Value, dim: int, sizes: Ints) -> Value:
    """An axis split into several."""
    x = op.named(self)
    axis = x.axis(dim)
    shape = [*x.shape[:axis], *sizes, *x.shape[axis + 1 :]]
    return op.reshape(x, infer_size(op, x, [integer(n) for n in shape]))


@aten("squeeze", "squeeze_copy")
def squeeze(op: Context, self: Value) -> Value:
    """The tensor without axes of size 1."""
    if None in self.shape:
        raise Unsupported("axes of sizes that are not known, dropped where they are 1")
    return drop_ones(op, self, may_be_one=not op.is_exported)


@aten("squeeze.dim", "squeeze.dims", "squeeze_copy.dim", "squeeze_copy.dims")
def squeeze_dim(op: Context, self: Value, dim: int | Sequence[int]) -> Value:
    """The tensor without an axis if that has size 1."""
    axes = [dim] if isinstance(dim, int) else list(dim)
    return drop_ones(op, self, axes if self.rank else [], may_be_one=not op.is_exported)


@aten("unsqueeze", "unsqueeze_copy")
def unsqueeze(op: Context, self: Value, dim: int) -> Value:
    """The tensor with a new axis of size 1."""
    return op.unsqueeze(self, [dim])


@aten("resize")
def resize(op: Context, self: Value, size: Ints) -> Value:
    """The first elements of the tensor, in another shape."""
    x = op.named(self)
    count, whole = dims.product(size), dims.product(x.shape)
    if count == whole:
        return op.reshape(x, size)
    if not (isinstance(count, int) and isinstance(whole, int) and count < whole):
        raise Unsupported("more elements than the tensor has, which torch does not initialize")
    return op.reshape(op.cut(op.reshape(x, (whole,)), 0, 0, count), size)


@aten("resize_as")
def resize_as(op: Context, self: Value, the_template: Value) -> Value:
    """The first elements of the tensor, in the shape of another one."""
    return resize(op, self, [integer(n) for n in op.named(the_template).shape])


@aten("atleast_1d")
def atleast_1d(op: Context, self: Value) -> Value:
    """The tensor with at least one axis."""
    return op.reshape(self, (1,)) if self.rank == 0 else self


@aten("atleast_2d")
def atleast_2d(op: Context, self: Value) -> Value:
    """The tensor with at least two axes."""
    x = atleast_1d(op, self)
    return op.unsqueeze(x, [0]) if x.rank == 1 else x


@aten("atleast_3d")
def atleast_3d(op: Context, self: Value) -> Value:
    """The tensor with at least three axes."""
    x = atleast_2d(op, self)
    return op.unsqueeze(x, [2]) if x.rank == 2 else x


@aten("permute", "permute_copy")
def permute(op: Context, self: Value, dims: Sequence[int]) -> Value:
    """The axes permuted."""
    del op
    return self.transposed([self.axis(n) for n in dims])


@aten("transpose.int", "swapdims", "transpose_copy.int")
def transpose(op: Context, self: Value, dim0: int, dim1: int) -> Value:
    """Two axes exchanged."""
    del op
    return swap_axes(self, dim0, dim1)


@aten("swapaxes")
def swapaxes(op: Context, self: Value, axis0: int, axis1: int) -> Value:
    """Two axes exchanged."""
    return transpose(op, self, axis0, axis1)


def swap_axes(x: Value, one: int, other: int) -> Value:
    """Return a tensor with two axes exchanged."""
    if x.rank == 0:
        return x
    order = list(range(x.rank))
    a, b = x.axis(one), x.axis(other)
    order[a], order[b] = b, a
    return x.transposed(order)


@aten("t", "t_copy")
def t(op: Context, self: Value) -> Value:
    """The transpose of a matrix."""
    del op
    return swap_axes(self, 0, 1) if self.rank == 2 else self


@aten("numpy_T", "mT", "mH", "adjoint", "matrix_H")
def numpy_t(op: Context, self: Value) -> Value:
    """The axes in reverse order, or the last two."""
    del op
    return swap_axes(self, -2, -1)


@aten("movedim.intlist", "moveaxis.intlist")
def movedim(op: Context, self: Value, source: Sequence[int], destination: Sequence[int]) -> Value:
    """Axes moved to other positions."""
    del op
    moved = [self.axis(n) for n in source]
    rest = iter([i for i in range(self.rank) if i not in moved])
    places = {self.axis(d): s for d, s in zip(destination, moved, strict=True)}
    return self.transposed([places[i] if i in places else next(rest) for i in range(self.rank)])


@aten("movedim.int", "moveaxis.int")
def movedim_int(op: Context, self: Value, source: int, destination: int) -> Value:
    """An axis moved to another position."""
    return movedim(op, self, [source], [destination])


@aten("expand", "expand_copy")
def expand(op: Context, self: Value, size: Ints, implicit: bool = False) -> Value:
    """The tensor broadcast to a shape."""
    del implicit
    return expand_to(op, self, size)


def expand_to(op: Context, x: Value, size: Ints) -> Value:
    """Return a tensor broadcast to a shape, in which -1 keeps the size of an axis."""
    x = op.named(x)
    more = len(size) - x.rank
    if more < 0:
        raise Unsupported(f"{list(x.shape)} broadcast to {list(size)}")
    shape = [
        x.shape[i - more] if isinstance(n, int) and n < 0 and i >= more else n
        for i, n in enumerate(size)
    ]
    if tuple(shape) == x.shape:
        return x
    # What is 1 stays as it was where it is asked for as a size of another name.
    return op.expand(x, tuple(shape))


@aten("expand_as")
def expand_as(op: Context, self: Value, other: Value) -> Value:
    """The tensor broadcast to the shape of another one."""
    return op.expand(self, op.named(other).shape)


@aten("broadcast_to")
def broadcast_to(op: Context, self: Value, size: Ints) -> Value:
    """The tensor broadcast to a shape."""
    return expand_to(op, self, size)


@aten("broadcast_tensors")
def broadcast_tensors(op: Context, tensors: Tensors) -> list[Value]:
    """Tensors broadcast to a common shape."""
    shape = op.broadcast(*(op.named(x).shape for x in tensors))
    return [op.expand(x, shape) for x in tensors]


@aten("repeat")
def repeat(op: Context, self: Value, repeats: Ints) -> Value:
    """The tensor tiled along axes."""
    x = op.named(self)
    more = len(repeats) - x.rank
    if more:
        x = op.reshape(x, (*[1] * more, *x.shape))
    if all(n == 1 for n in repeats):
        return x
    shape = tuple(dims.mul(n, m) for n, m in zip(x.shape, repeats, strict=True))
    return op.emit("Tile", x, op.vector(repeats), dtype=x.dtype, shape=shape)


@aten("tile")
def tile(op: Context, self: Value, dims: Ints) -> Value:
    """The tensor tiled; missing repeats are 1."""
    return repeat(op, self, [*[1] * (self.rank - len(dims)), *dims])


@aten("repeat_interleave.self_int")
def repeat_interleave(
    op: Context, self: Value, repeats: Int, dim: int | None = None, output_size: Int | None = None
) -> Value:
    """Each element repeated."""
    del output_size
    x = op.named(self)
    if dim is None:
        x, dim = op.reshape(x, (dims.product(x.shape),)), 0
    axis = x.axis(dim)
    wide = op.unsqueeze(x, [axis + 1])
    spread = op.expand(wide, (*x.shape[: axis + 1], repeats, *x.shape[axis + 1 :]))
    joined = dims.mul(x.shape[axis], repeats)
    return op.reshape(spread, (*x.shape[:axis], joined, *x.shape[axis + 1 :]))


@aten("repeat_interleave.self_Tensor")
def repeat_interleave_by_counts(
    op: Context, self: Value, repeats: Value, dim: int | None = None,
    output_size: Int | None = None,
) -> Value:  # fmt: skip
    """Each element repeated by a count of its own."""
    x = op.named(self)
    if dim is None:
        x, dim = op.reshape(x, (dims.product(x.shape),)), 0
    axis = x.axis(dim)
    counts = op.expand(repeats, (x.shape[axis],))  # one count serves all elements
    return op.gather(x, repeat_indices(op, counts, output_size), axis)


@aten("repeat_interleave.Tensor")
def repeat_indices(op: Context, repeats: Value, output_size: Int | None = None) -> Value:
    """The index of each count, repeated by the count."""
    ends = cumulative_sum(op, op.cast(repeats, "int64"), 0)
    if output_size is None:
        total = op.reduce("ReduceSum", op.cast(repeats, "int64"), [0])
        at = op.named(op.emit("Range", op.constant(0, "int64"), total, op.constant(1, "int64"),
                              dtype="int64", shape=(None,)))  # fmt: skip
    else:
        at = op.range(output_size)
    return op.cast(count_before(op, ends, at, or_equal=True), repeats.dtype)


@aten("cat", "concat", "concatenate")
def cat(op: Context, tensors: Tensors, dim: int = 0) -> Value:
    """Tensors concatenated along an axis."""
    dtype = result_type(*tensors)
    # torch passes over tensors of no elements and one axis, whatever the others are.
    some = [x for x in tensors if x.shape != (0,)] or list(tensors[:1])
    values = [op.named(op.cast(x, dtype)) for x in some]
    axis = values[0].axis(dim)
    made = op.concat(values, axis)
    whole: Dim = 0
    for x in values:
        whole = dims.add(whole, x.shape[axis])
    return op.shaped(made, (*made.shape[:axis], whole, *made.shape[axis + 1 :]))


@aten("hstack")
def hstack(op: Context, tensors: Tensors) -> Value:
    """Tensors stacked horizontally (along the second axis)."""
    values = [op.reshape(x, (1,)) if x.rank == 0 else x for x in tensors]
    return cat(op, values, 0 if values[0].rank == 1 else 1)


@aten("vstack", "row_stack")
def vstack(op: Context, tensors: Tensors) -> Value:
    """Tensors stacked vertically (along the first axis)."""
    return cat(op, [op.unsqueeze(x, [0]) if x.rank == 1 else x for x in tensors], 0)


@aten("stack")
def stack(op: Context, tensors: Tensors, dim: int = 0) -> Value:
    """Tensors stacked along a new axis."""
    dtype = result_type(*tensors)
    rank = tensors[0].rank + 1
    axis = dim + rank if dim < 0 else dim
    made = op.concat([op.unsqueeze(op.cast(x, dtype), [axis]) for x in tensors], axis)
    return op.shaped(made, (*made.shape[:axis], len(tensors), *made.shape[axis + 1 :]))


@aten("flip")
def flip(op: Context, self: Value, dims: Sequence[int]) -> Value:
    """Axes reversed."""
    if not dims or self.rank == 0:
        return self
    count = len(dims)
    made = op.slice(self, dims, [-1] * count, [-END] * count, [-1] * count)
    return op.shaped(made, self.shape)


@aten("fliplr")
def fliplr(op: Context, self: Value) -> Value:
    """The second axis reversed."""
    return flip(op, self, [1])


@aten("flipud")
def flipud(op: Context, self: Value) -> Value:
    """The first axis reversed."""
    return flip(op, self, [0])


@aten("rot90")
def rot90(op: Context, self: Value, k: int = 1, dims: Sequence[int] = (0, 1)) -> Value:
    """A rotation by multiples of 90 degrees in the plane of two axes."""
    one, other = dims
    if k % 4 == 0:
        return self
    if k % 4 == 2:
        return flip(op, self, [one, other])
    if k % 4 == 1:
        return swap_axes(flip(op, self, [other]), one, other)
    return flip(op, swap_axes(self, one, other), [other])


@aten("roll")
def roll(op: Context, self: Value, shifts: Ints, dims: Sequence[int] = ()) -> Value:
    """Elements rolled along axes."""
    moves = [shifts] if isinstance(shifts, int) else list(shifts)
    axes = [dims] if isinstance(dims, int) else list(dims)
    x = op.named(self)
    if not axes:
        return op.reshape(roll(op, flatten(op, x), moves, [0]), x.shape)
    for shift, axis in zip(moves, axes, strict=True):
        x = _roll(op, x, shift, x.axis(axis))
    return x


def _roll(op: Context, x: Value, shift: Int, axis: int) -> Value:
    n = x.shape[axis]
    if isinstance(shift, int):
        return roll_axis(op, x, axis, shift)
    cut = dims.sub(n, shift)
    made = op.concat([op.cut(x, axis, cut, n), op.cut(x, axis, 0, cut)], axis)
    return op.shaped(made, x.shape)


@aten("pixel_shuffle")
def pixel_shuffle(op: Context, self: Value, upscale_factor: int) -> Value:
    """Channels rearranged into blocks of pixels."""
    x = op.named(self)
    r = upscale_factor
    *batch, c, h, w = x.shape
    out = dims.divide_exactly(c, r * r)
    if out is None:
        raise Unsupported(f"{c} channels as squares of {r}")
    k = len(batch)
    if k == 1 and x.is_float:
        shape = (*batch, out, dims.mul(h, r), dims.mul(w, r))
        return op.emit("DepthToSpace", x, dtype=x.dtype, shape=shape, blocksize=r, mode="CRD")
    wide = op.reshape(x, (*batch, out, r, r, h, w))
    moved = wide.transposed([*range(k), k, k + 3, k + 1, k + 4, k + 2])
    return op.reshape(moved, (*batch, out, dims.mul(h, r), dims.mul(w, r)))


@aten("pixel_unshuffle")
def pixel_unshuffle(op: Context, self: Value, downscale_factor: int) -> Value:
    """Blocks of pixels rearranged into channels."""
    x = op.named(self)
    r = downscale_factor
    *batch, c, h, w = x.shape
    rows, columns = op.floordiv(h, r), op.floordiv(w, r)
    k = len(batch)
    wide = op.reshape(x, (*batch, c, rows, r, columns, r))
    moved = wide.transposed([*range(k), k, k + 2, k + 4, k + 1, k + 3])
    return op.reshape(moved, (*batch, dims.mul(c, r * r), rows, columns))


@aten("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(op: Context, self: Value, groups: int) -> Value:
    """Channels interleaved across groups."""
    x = op.named(self)
    part = dims.divide_exactly(x.shape[1], groups)
    if part is None:
        raise Unsupported(f"{x.shape[1]} channels in {groups} groups")
    wide = op.reshape(x, (x.shape[0], groups, part, *x.shape[2:]))
    return op.reshape(swap_axes(wide, 1, 2), x.shape)


@aten("meshgrid", "meshgrid.indexing")
def meshgrid(op: Context, tensors: Tensors, indexing: str = "ij") -> list[Value]:
    """Coordinate grids of vectors."""
    vectors = [op.named(op.reshape(x, (1,)) if x.rank == 0 else x) for x in tensors]
    shape = tuple(x.shape[0] for x in vectors)
    count = len(vectors)
    found = []
    for i, x in enumerate(vectors):
        wide = op.reshape(x, tuple(x.shape[0] if j == i else 1 for j in range(count)))
        found.append(op.expand(wide, shape))
    if indexing == "xy" and count > 1:
        found = [swap_axes(x, 0, 1) for x in found]
    return found


@aten("diagonal", "diagonal_copy")
def diagonal(op: Context, self: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """A diagonal of two axes, as the last axis."""
    rest = [i for i in range(self.rank) if i not in (self.axis(dim1), self.axis(dim2))]
    x = self.transposed([*rest, self.axis(dim1), self.axis(dim2)])
    return take_diagonal(op, op.outer(op.named(x)), offset)
