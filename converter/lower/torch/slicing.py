"""Slices and splits of tensors along their axes.

Spec: https://docs.pytorch.org/docs/2.13/torch.html#indexing-slicing-joining-mutating-ops
"""

from collections.abc import Sequence

from converter.lower import dims
from converter.lower.graph import Dim
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Int, Ints, integer
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

END = 1 << 62  # as the end of a slice: to the end


MOST_PARTS = 1 << 12  # that an axis is cut into


def bound(op: Context, n: Dim, at: Int, *, of: Dim) -> Dim:
    """Return a bound of a slice as one that is not negative, and no more than the size."""
    del n
    if isinstance(at, int):
        if at >= END:
            return of
        if isinstance(of, int):
            return max(at + of, 0) if at < 0 else min(at, of)
        if at < 0:
            return op.most(dims.add(of, at), 0) if at < -1 else dims.add(of, at)
        return at if at == 0 else op.least(at, of)
    if at == of:
        return of
    if _is_negative(at):
        return op.most(dims.add(of, at), 0)
    difference = dims.sub(of, at)
    if isinstance(difference, int):  # batch - 1 of batch
        return at if difference >= 0 else of
    return op.least(at, of)


def _is_negative(size: Dim) -> bool:
    """Return whether a size counts from the end, for no axis is empty: ``-batch``, ``1-batch``."""
    found = {} if size is None else dims.terms(size)
    falls = all(times < 0 for names, times in found.items() if names)
    return bool(found) and falls and sum(found.values()) <= 0


@aten("slice.Tensor", "slice_copy.Tensor")
def slice_tensor(
    op: Context, self: Value, dim: int = 0, start: Int | None = None, end: Int | None = None,
    step: int = 1,
) -> Value:  # fmt: skip
    """A slice of an axis."""
    x = op.named(self)
    axis = x.axis(dim)
    n = x.shape[axis]
    first = bound(op, n, 0 if start is None else start, of=n)
    last = bound(op, n, END if end is None else end, of=n)
    if isinstance(first, int) and isinstance(last, int):
        last = max(first, last)
    return op.cut(x, axis, first, last, step)


@aten("narrow", "narrow_copy")
def narrow(op: Context, self: Value, dim: int, start: Int, length: Int) -> Value:
    """A slice of an axis, by its start and length."""
    x = op.named(self)
    axis = x.axis(dim)
    first: Dim = start
    if isinstance(start, int) and start < 0:
        first = dims.add(x.shape[axis], start)
    return op.cut(x, axis, first, dims.add(first, length))


@aten("narrow.Tensor")
def narrow_from(op: Context, self: Value, dim: int, start: Value, length: Int) -> Value:
    """A slice of an axis, whose start is computed."""
    x = op.named(self)
    axis = x.axis(dim)
    first = op.cast(op.reshape(start, ()), "int64")
    size = op.scalar_of(x.shape[axis], "int64")
    first = op.where(op.elementwise("Less", first, 0), op.add(first, size), first)
    return op.gather(x, op.add(op.range(length), first), axis)


@aten("select.int", "select_copy.int")
def select(op: Context, self: Value, dim: int, index: Int) -> Value:
    """A slice at one index of an axis, without the axis."""
    axis = self.axis(dim)
    shape = (*self.shape[:axis], *self.shape[axis + 1 :])
    place = op.constant(index, "int64") if isinstance(index, int) else op.scalar(index, "int64")
    made = op.node(
        "Gather", [op.outer(self), place], [(self.dtype, shape)], attributes={"axis": axis}
    )
    return made[0]


@aten("unbind.int", "unbind_copy.int")
def unbind(op: Context, self: Value, dim: int = 0) -> list[Value]:
    """The slices at all indices of an axis."""
    n = self.shape[self.axis(dim)]
    if not isinstance(n, int):
        raise Unsupported("as many tensors as an axis of an unknown size has elements")
    _check_parts(n)
    return [select(op, self, dim, i) for i in range(n)]


def _check_parts(count: int) -> None:
    if count > MOST_PARTS:
        raise Unsupported(f"an axis cut into {count}")


@aten("split.sizes")
def split_sizes(op: Context, self: Value, split_size: Ints, dim: int = 0) -> list[Value]:
    """An axis split into parts of given sizes."""
    return split_with_sizes(op, self, split_size, dim)


@aten("split_with_sizes", "split_with_sizes_copy")
def split_with_sizes(op: Context, self: Value, split_sizes: Ints, dim: int = 0) -> list[Value]:
    """An axis split into parts of given sizes."""
    axis = self.axis(dim)
    known = [n for n in split_sizes if isinstance(n, int)]
    if len(known) == len(split_sizes):
        return op.split(self, axis, known) if len(known) > 1 else [self]
    shapes = [(self.dtype, (*self.shape[:axis], n, *self.shape[axis + 1 :])) for n in split_sizes]
    return op.node(
        "Split", [op.outer(self), op.vector(split_sizes)], shapes, attributes={"axis": axis}
    )


@aten("split.Tensor", "split_copy.Tensor")
def split(op: Context, self: Value, split_size: Int, dim: int = 0) -> list[Value]:
    """An axis split into parts of one size; the last may be smaller."""
    axis = self.axis(dim)
    n = self.shape[axis]
    if not isinstance(split_size, int) or not isinstance(n, int):
        count = dims.divide_exactly(n, split_size) or op.parts
        if not isinstance(count, int) or not 0 < count <= MOST_PARTS:
            raise Unsupported("as many parts as an axis of an unknown size has")
        return _split_into(op, self, split_size, count, dim)
    if split_size == n or n == 0:
        return [self]
    if split_size < 1:
        raise Unsupported(f"parts of {split_size}")
    _check_parts(n // split_size)
    parts = [min(split_size, n - i) for i in range(0, n, split_size)]
    return split_with_sizes(op, self, parts, dim)


@aten("chunk")
def chunk(op: Context, self: Value, chunks: int, dim: int = 0) -> list[Value]:
    """An axis split into a number of parts, or fewer."""
    n = op.axis_of(self, dim)
    if isinstance(n, int):
        return split(op, self, max(-(-n // max(chunks, 1)), 1), dim)
    _check_parts(chunks)
    return _split_into(op, self, op.ceildiv(n, chunks), op.parts or chunks, dim)


def _split_into(op: Context, x: Value, part: Dim, count: int, dim: int) -> list[Value]:
    """Return an axis of a dynamic size split into parts; the last one is what the others leave."""
    last = dims.sub(op.axis_of(x, dim), dims.mul(part, count - 1))
    return split_with_sizes(op, x, [*[integer(part)] * (count - 1), integer(last)], dim)


@aten("tensor_split.sections")
def tensor_split(op: Context, self: Value, sections: int, dim: int = 0) -> list[Value]:
    """An axis split into a number of parts, of which the first may be larger."""
    n = op.axis_of(self, dim)
    _check_parts(sections)
    parts = [integer(op.floordiv(dims.add(n, sections - 1 - i), sections)) for i in range(sections)]
    return split_with_sizes(op, self, parts, dim)


@aten("tensor_split.tensor_indices_or_sections")
def tensor_split_by_tensor(
    op: Context, self: Value, tensor_indices_or_sections: Value, dim: int = 0
) -> list[Value]:
    """An axis split at the indices in a vector, or into a number of parts."""
    given, x = tensor_indices_or_sections, op.named(self)
    known = op.array(given)
    if known is not None and known.ndim == 0:
        return tensor_split(op, x, int(known), dim)
    if known is not None:
        return tensor_split_indices(op, x, known.tolist(), dim)
    if given.rank == 0 or not isinstance(given.shape[0], int):
        raise Unsupported("as many parts as the inputs say")
    _check_parts(given.shape[0])
    whole = op.scalar_of(x.shape[x.axis(dim)], "int64")
    places = op.where(op.elementwise("Less", given, 0), op.add(given, whole), given)
    places = op.elementwise("Min", op.elementwise("Max", places, 0), whole)
    starts = [op.constant(0, "int64"), *unbind(op, places)]
    ends = [*starts[1:], whole]
    return [_between(op, x, x.axis(dim), a, b) for a, b in zip(starts, ends, strict=True)]


def _between(op: Context, x: Value, axis: int, start: Value, end: Value) -> Value:
    """Return the part of an axis between bounds that the graph computes."""
    bounds = [op.unsqueeze(n, [0]) for n in (start, op.elementwise("Max", start, end))]
    shape = (*x.shape[:axis], None, *x.shape[axis + 1 :])
    inputs = [op.outer(x), *bounds, op.constant([axis], "int64")]
    return op.named(op.node("Slice", inputs, [(x.dtype, shape)])[0])


@aten("tensor_split.indices")
def tensor_split_indices(
    op: Context, self: Value, indices: Sequence[int], dim: int = 0
) -> list[Value]:
    """An axis split at indices."""
    places: list[Int] = [0, *indices]
    ends: list[Int | None] = [*indices, None]
    return [slice_tensor(op, self, dim, a, b) for a, b in zip(places, ends, strict=True)]


@aten("unsafe_split.Tensor")
def unsafe_split(op: Context, self: Value, split_size: Int, dim: int = 0) -> list[Value]:
    """An axis split into parts of one size."""
    return split(op, self, split_size, dim)


@aten("unsafe_chunk")
def unsafe_chunk(op: Context, self: Value, chunks: int, dim: int = 0) -> list[Value]:
    """An axis split into a number of parts."""
    return chunk(op, self, chunks, dim)


@aten("unsafe_split_with_sizes")
def unsafe_split_with_sizes(
    op: Context, self: Value, split_sizes: Ints, dim: int = 0
) -> list[Value]:
    """An axis split into parts of given sizes."""
    return split_with_sizes(op, self, split_sizes, dim)
