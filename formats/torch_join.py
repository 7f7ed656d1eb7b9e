"""Put chunks of one tensor together, a few rows at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from formats.errors import CorruptError
from formats.weights import Computed, DType, Piece, Strided, Tensor

BAND = 1 << 22  # bytes put together at once


@dataclass(frozen=True, slots=True)
class Chunk:
    """A box of a tensor: where it begins along each axis, and its sizes."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


def joined(
    chunks: Sequence[Chunk], tensors: Sequence[Tensor], shape: tuple[int, ...], *, origin: str
) -> Tensor:
    """Return the tensor that the chunks make up; reads no data.

    Raises:
        CorruptError: They do not fill it exactly.
    """
    dtype = tensors[0].dtype
    if any(t.dtype != dtype for t in tensors) or dtype.bits < 8:
        raise CorruptError("its chunks have different element types", where=origin)
    inside = all(
        len(c.offsets) == len(c.sizes) == len(shape)
        and all(o >= 0 and o + n <= m for o, n, m in zip(c.offsets, c.sizes, shape, strict=True))
        for c in chunks
    )
    filled = sum(prod(c.sizes) for c in chunks)
    if not inside or filled != prod(shape) or len({c.offsets for c in chunks}) != len(chunks):
        raise CorruptError(f"its chunks do not fill {list(shape)} exactly", where=origin)
    boxes = [(c, t) for c, t in zip(chunks, tensors, strict=True) if t.size]
    boxes.sort(key=lambda box: box[0].offsets)
    return Tensor.computed(dtype, shape, lambda: _bands(boxes, shape, dtype), origin=origin)


def _bands(
    boxes: list[tuple[Chunk, Tensor]], shape: tuple[int, ...], dtype: DType
) -> Iterator[Piece]:
    """Yield the bytes between neighbouring cuts of the first axis, band by band."""
    cuts = sorted({c.offsets[0] for c, _ in boxes} | {c.offsets[0] + c.sizes[0] for c, _ in boxes})
    row = prod(shape[1:]) * dtype.itemsize
    for top, bottom in pairwise(cuts):
        here = [
            (c, t) for c, t in boxes if c.offsets[0] <= top and c.offsets[0] + c.sizes[0] >= bottom
        ]
        if len(here) == 1 and here[0][0].sizes[1:] == shape[1:]:
            chunk, tensor = here[0]
            yield from rows(tensor, top - chunk.offsets[0], bottom - chunk.offsets[0]).pieces()
            continue
        step = max(1, BAND // max(row, 1))
        for first in range(top, bottom, step):
            yield _band(here, first, min(first + step, bottom), shape, dtype)


def _band(
    boxes: list[tuple[Chunk, Tensor]], top: int, bottom: int, shape: tuple[int, ...], dtype: DType
) -> bytes:
    """Return rows ``top`` to ``bottom``, put together from chunks side by side."""
    import numpy as np

    element = np.dtype((np.void, dtype.itemsize))
    band = np.zeros((bottom - top, *shape[1:]), element)
    for chunk, tensor in boxes:
        part = rows(tensor, top - chunk.offsets[0], bottom - chunk.offsets[0])
        data = np.frombuffer(part.tobytes(), element).reshape(part.shape)
        inner = zip(chunk.offsets[1:], chunk.sizes[1:], strict=True)
        band[(slice(None), *(slice(o, o + n) for o, n in inner))] = data
    return band.tobytes()


def rows(tensor: Tensor, first: int, last: int) -> Tensor:
    """Return rows ``first`` to ``last`` of a tensor."""
    shape = (last - first, *tensor.shape[1:])
    view = tensor.data
    if isinstance(view, Computed):
        width = tensor.nbytes // tensor.shape[0]
        return Tensor.inline(
            tensor.dtype,
            shape,
            tensor.tobytes()[first * width : last * width],
            origin=tensor.origin,
        )
    start = view.offset + first * view.strides[0]
    moved = Strided(view.span, start, view.strides, view.byteorder)
    return Tensor(tensor.dtype, shape, moved, tensor.origin)
