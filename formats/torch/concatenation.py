"""Concatenate the chunks of one tensor, a few rows at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from formats.core.storage import File
from formats.core.weights import Computed, DType, Piece, Strided, Tensor, row_major
from formats.errors import CorruptError, UnsupportedError

BAND = 1 << 22  # bytes put together at once
PAGE = 1 << 12  # bytes that are worth a read of their own


@dataclass(frozen=True, slots=True)
class Chunk:
    """A box of a tensor: where it begins along each axis, and its sizes."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


def check_tiling(
    chunks: Sequence[Chunk],
    shape: tuple[int, ...],
    itemsize: int,
    *,
    origin: str,
    charge: Callable[[int], None],
) -> None:
    """Check that every element of a tensor lies in exactly one chunk.

    Args:
        chunks: The boxes, without empty ones.
        shape: Of the tensor.
        itemsize: Bytes of an element.
        origin: What messages call the tensor.
        charge: Takes the work that checking is, and that reading will be, off a budget.

    Raises:
        CorruptError: There is a hole, or two chunks overlap, or one leads outside.
    """
    inside = all(n >= 0 for n in shape) and all(
        len(c.offsets) == len(c.sizes) == len(shape)
        and all(
            o >= 0 and n > 0 and o + n <= m
            for o, n, m in zip(c.offsets, c.sizes, shape, strict=True)
        )
        for c in chunks
    )

    def tile(chunks: Sequence[Chunk], axis: int, times: int) -> bool:
        if len(chunks) == 1:
            (only,) = chunks
            return not any(only.offsets[axis:]) and only.sizes[axis:] == shape[axis:]
        if axis == len(shape):
            return False
        row, end = prod(shape[axis + 1 :]) * itemsize, 0
        for top, bottom, here in _bands(chunks, axis):
            nbytes = (bottom - top) * row
            reads = len(here) * max(1, -(-nbytes // BAND))
            charge(4 * len(here) + 16 * times * max(0, reads - 1 - nbytes // PAGE))
            repeated = bottom - top if row > BAND else 1
            if top != end or not tile([chunks[i] for i in here], axis + 1, times * repeated):
                return False
            end = bottom
        return end == shape[axis]

    if not inside or not tile(chunks, 0, 1):
        raise CorruptError(f"its chunks do not fill {list(shape)} exactly", where=origin)


def join_chunks(
    chunks: Sequence[Chunk], tensors: Sequence[Tensor], shape: tuple[int, ...], *, origin: str
) -> Tensor:
    """Return the tensor that the chunks make up; reads no data.

    Args:
        chunks: Boxes that `check_tiling` has checked.
        tensors: What lies in them.
        shape: Of the whole tensor.
        origin: What messages call it.

    Raises:
        CorruptError: They are not of one element type.
        UnsupportedError: One can only be read as a whole.
    """
    dtype = tensors[0].dtype
    if any(t.dtype != dtype for t in tensors) or dtype.bits < 8:
        raise CorruptError("its chunks have different element types", where=origin)
    parts = [_Part(c, t.shape, _view(t, origin)) for c, t in zip(chunks, tensors, strict=True)]
    return Tensor.computed(dtype, shape, lambda: _pieces(parts, shape, dtype, 0), origin=origin)


def join_along(tensors: Sequence[Tensor], axis: int, *, blocks: int = 1, origin: str) -> Tensor:
    """Return the tensor that ranks have split along an axis; reads no data.

    Args:
        tensors: The part of each rank, in order.
        axis: Along which they follow each other.
        blocks: How many tensors of one shape lie one after the other along the axis, in each part
            and in the result: the gate and the input of a gated unit are two.
        origin: What messages call it.

    Raises:
        CorruptError: The parts do not fit each other.
        UnsupportedError: One can only be read as a whole.
    """
    first = tensors[0]
    sizes = [(*t.shape[:axis], *t.shape[axis + 1 :]) for t in tensors]
    lengths = [t.shape[axis] if axis < len(t.shape) else -1 for t in tensors]
    if sizes != sizes[:1] * len(sizes) or any(n < 0 or n % blocks for n in lengths):
        shapes = ", ".join(str(list(t.shape)) for t in tensors)
        raise CorruptError(f"its parts do not fit along axis {axis}: {shapes}", where=origin)
    shape = (*first.shape[:axis], sum(lengths), *first.shape[axis + 1 :])
    if 0 in shape:
        return Tensor.inline(first.dtype, shape, b"", origin=origin)
    chunks, parts, at = [], [], 0
    for block in range(blocks):
        for tensor, length in zip(tensors, lengths, strict=True):
            count = length // blocks
            if not count:
                continue
            chunks.append(Chunk(
                (*(0,) * axis, at, *(0,) * (len(shape) - axis - 1)),
                (*shape[:axis], count, *shape[axis + 1 :]),
            ))  # fmt: skip
            parts.append(narrow(tensor, axis, block * count, count, origin=origin))
            at += count
    return join_chunks(chunks, parts, shape, origin=origin)


def narrow(tensor: Tensor, axis: int, start: int, length: int, *, origin: str) -> Tensor:
    """Return a run of a tensor along an axis, a view of the same bytes.

    Raises:
        UnsupportedError: It can only be read as a whole.
    """
    view = _view(tensor, origin)
    shape = (*tensor.shape[:axis], length, *tensor.shape[axis + 1 :])
    offset = view.offset + start * view.strides[axis]
    return Tensor(tensor.dtype, shape, Strided(view.span, offset, view.strides, view.byteorder))


def unstack_chunks(
    chunks: Sequence[Chunk], tensors: Sequence[Tensor], shape: tuple[int, ...], *, origin: str
) -> list[Tensor]:
    """Return the rows of the tensor that the chunks make up, each a tensor; as `join_chunks`."""
    result = []
    for row in range(shape[0]):
        inner, parts = [], []
        for chunk, tensor in zip(chunks, tensors, strict=True):
            at = row - chunk.offsets[0]
            if not 0 <= at < chunk.sizes[0]:
                continue
            view = _view(tensor, origin)
            offset = view.offset + at * view.strides[0]
            rows = Strided(view.span, offset, view.strides[1:], view.byteorder)
            inner.append(Chunk(chunk.offsets[1:], chunk.sizes[1:]))
            parts.append(Tensor(tensor.dtype, tensor.shape[1:], rows, origin))
        is_whole = len(inner) == 1
        result.append(parts[0] if is_whole else join_chunks(inner, parts, shape[1:], origin=origin))
    return result


@dataclass(frozen=True, slots=True)
class _Part:
    """A chunk, or rows of it: its elements without the axes that were walked along already."""

    chunk: Chunk
    shape: tuple[int, ...]
    view: Strided

    def tensor(self, dtype: DType) -> Tensor:
        return Tensor(dtype, self.shape, self.view)

    def rows(self, axis: int, top: int, bottom: int) -> "_Part":
        """Return rows, counted as in the whole tensor."""
        return _Part(self.chunk, (bottom - top, *self.shape[1:]), self._from(axis, top))

    def row(self, axis: int, index: int) -> "_Part":
        """Return one row, without its axis."""
        view = self._from(axis, index)
        inner = Strided(view.span, view.offset, view.strides[1:], view.byteorder)
        return _Part(self.chunk, self.shape[1:], inner)

    def _from(self, axis: int, index: int) -> Strided:
        view = self.view
        offset = view.offset + (index - self.chunk.offsets[axis]) * view.strides[0]
        return Strided(view.span, offset, view.strides, view.byteorder)


def _view(tensor: Tensor, origin: str) -> Strided:
    """Return where the elements of a chunk are, some rows of which can be read by themselves."""
    view = tensor.data
    if isinstance(view, Computed) or not (
        isinstance(view.span.storage, File) or view.strides == row_major(tensor.shape, tensor.dtype)
    ):
        raise UnsupportedError(
            "has a chunk that is deflated and out of order, or a conjugate view", where=origin
        )
    return view


def _bands(chunks: Sequence[Chunk], axis: int) -> Iterator[tuple[int, int, list[int]]]:
    """Yield what lies between neighbouring cuts of an axis, and the chunks that are there."""
    begin: dict[int, list[int]] = {}
    end: dict[int, list[int]] = {}
    for i, chunk in enumerate(chunks):
        begin.setdefault(chunk.offsets[axis], []).append(i)
        end.setdefault(chunk.offsets[axis] + chunk.sizes[axis], []).append(i)
    here: dict[int, None] = {}
    for top, bottom in pairwise(sorted(begin.keys() | end.keys())):
        for i in end.get(top, ()):
            del here[i]
        here.update(dict.fromkeys(begin.get(top, ())))
        yield top, bottom, list(here)


def _pieces(
    parts: Sequence[_Part], shape: tuple[int, ...], dtype: DType, axis: int
) -> Iterator[Piece]:
    """Yield the bytes of a block: all of the axes from ``axis`` on."""
    if len(parts) == 1:
        yield from parts[0].tensor(dtype).pieces()
        return
    row = prod(shape[axis + 1 :]) * dtype.itemsize
    for top, bottom, indices in _bands([p.chunk for p in parts], axis):
        here = [parts[i] for i in indices]
        if len(here) == 1:
            yield from here[0].rows(axis, top, bottom).tensor(dtype).pieces()
        elif row > BAND:
            for i in range(top, bottom):
                yield from _pieces([p.row(axis, i) for p in here], shape, dtype, axis + 1)
        else:
            step = max(1, BAND // row)
            for first in range(top, bottom, step):
                yield _band(here, axis, first, min(first + step, bottom), shape, dtype)


def _band(
    parts: list[_Part], axis: int, top: int, bottom: int, shape: tuple[int, ...], dtype: DType
) -> bytes:
    """Return rows ``top`` to ``bottom``, put together from chunks side by side."""
    import numpy as np

    element = np.dtype((np.void, dtype.itemsize))
    band = np.empty((bottom - top, *shape[axis + 1 :]), element)
    for part in parts:
        rows = part.rows(axis, top, bottom).tensor(dtype)
        data = np.frombuffer(rows.tobytes(), element).reshape(rows.shape)
        offsets, sizes = part.chunk.offsets[axis + 1 :], part.chunk.sizes[axis + 1 :]
        inner = (slice(o, o + n) for o, n in zip(offsets, sizes, strict=True))
        band[(slice(None), *inner)] = data
    return band.tobytes()
