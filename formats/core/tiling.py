"""One tensor made of boxes that are stored apart: partitioned variables.

A box is a tensor and where its first element sits. The joined tensor is made a block at a time,
as it is walked; a run of whole rows is handed on as a span, so that splitting along the first
axis, which nearly all partitioners do, costs nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from formats.core.weights import GATHER, Computed, DType, Piece, Tensor
from formats.errors import CorruptError, LimitError, UnsupportedError

_MOST_SPLIT_AXES = 4  # a box has two corners for each, in all combinations


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a tensor, and the index of its first element."""

    starts: tuple[int, ...]
    tensor: Tensor

    @property
    def stops(self) -> tuple[int, ...]:
        """The index behind its last element."""
        return tuple(a + n for a, n in zip(self.starts, self.tensor.shape, strict=True))


def join(dtype: DType, shape: tuple[int, ...], boxes: Sequence[Box], *, origin: str) -> Tensor:
    """Return the tensor that ``boxes`` make up.

    Raises:
        CorruptError: They leave a gap, overlap, or are of another dtype or rank.
        LimitError: They are too many to tell.
    """
    boxes = [b for b in boxes if b.tensor.size]
    for box in boxes:
        if box.tensor.dtype != dtype or len(box.starts) != len(shape):
            raise CorruptError("slices of different kinds make no tensor", where=origin)
        if any(a < 0 or b > n for a, b, n in zip(box.starts, box.stops, shape, strict=True)):
            raise CorruptError(f"a slice lies outside shape {list(shape)}", where=origin)
    if sum(b.tensor.size for b in boxes) != prod(shape):
        raise CorruptError(f"the slices do not fill shape {list(shape)}", where=origin)
    split = [i for i, n in enumerate(shape) if any(b.tensor.shape[i] != n for b in boxes)]
    if len(split) > _MOST_SPLIT_AXES:
        raise LimitError(f"a tensor split along {len(split)} axes", where=origin)
    boxes = sorted(boxes, key=lambda b: b.starts)
    if boxes and not _fill(shape, split, boxes):
        raise CorruptError("slices overlap", where=origin)
    if len(boxes) == 1:
        return boxes[0].tensor.with_origin(origin)
    if dtype.bits < 8 and boxes:
        raise UnsupportedError(f"slices of a tensor of {dtype}", where=origin)
    if split == [0]:
        return Tensor.computed(dtype, shape, lambda: _in_order(boxes), origin=origin)
    return Tensor.computed(dtype, shape, lambda: _blocks(dtype, shape, boxes), origin=origin)


def _fill(shape: tuple[int, ...], split: Sequence[int], boxes: Sequence[Box]) -> bool:
    """Return whether each element lies in exactly one box.

    How many boxes an element lies in is a sum of steps at their corners, +1 or -1 in turn; so the
    corners of all boxes must cancel out but for those of the whole. Takes time linear in them.
    """
    steps: dict[tuple[int, ...], int] = {}
    whole = ((0,) * len(shape), shape, -1)
    for starts, stops, sign in (whole, *((b.starts, b.stops, 1) for b in boxes)):
        for ends in product((0, 1), repeat=len(split)):
            corner = tuple(
                stops[i] if end else starts[i] for i, end in zip(split, ends, strict=True)
            )
            steps[corner] = steps.get(corner, 0) + sign * (-1) ** sum(ends)
    return not any(steps.values())


def _in_order(boxes: Sequence[Box]) -> Iterator[Piece]:
    for box in boxes:
        yield from box.tensor.pieces()


def _blocks(dtype: DType, shape: tuple[int, ...], boxes: Sequence[Box]) -> Iterator[bytes]:
    """Yield the tensor in blocks of whole rows of an axis, each pasted together in memory."""
    import numpy as np

    size = dtype.itemsize
    axis = next(i for i in range(len(shape)) if prod(shape[i + 1 :]) * size <= GATHER)
    inner = shape[axis + 1 :]
    rows = max(1, GATHER // max(1, prod(inner) * size))
    element = np.dtype((np.void, size))
    contents = [_Rows(box.tensor) for box in boxes]
    for outer in product(*(range(n) for n in shape[:axis])):
        for first in range(0, shape[axis], rows):
            last = min(first + rows, shape[axis])
            block = np.zeros((last - first, *inner), element)
            for box, content in zip(boxes, contents, strict=True):
                lead = [i - a for i, a in zip(outer, box.starts, strict=False)]
                extent = box.tensor.shape
                if not all(0 <= i < n for i, n in zip(lead, extent, strict=False)):
                    continue
                begin = max(first, box.starts[axis])
                end = min(last, box.stops[axis])
                if begin >= end:
                    continue
                index = 0
                for i, n in zip(lead, extent, strict=False):
                    index = index * n + i
                row_bytes = prod(extent[axis + 1 :]) * size
                at = (index * extent[axis] + begin - box.starts[axis]) * row_bytes
                data = content.read(at, (end - begin) * row_bytes)
                part = np.frombuffer(data, element).reshape(end - begin, *extent[axis + 1 :])
                place = tuple(
                    slice(a, b)
                    for a, b in zip(box.starts[axis + 1 :], box.stops[axis + 1 :], strict=True)
                )
                block[(slice(begin - first, end - first), *place)] = part
            yield block.tobytes()


class _Rows:
    """Random access to a tensor's bytes; one that is computed is walked forward, once a pass."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self._chunks: Iterator[bytes] = iter(())
        self._ahead = b""
        self._position = -1

    def read(self, at: int, length: int) -> bytes:
        """Return ``length`` bytes from ``at``; positions never go back."""
        pieces = None if isinstance(self._tensor.data, Computed) else list(self._tensor.pieces())
        if pieces is not None and len(pieces) == 1 and not isinstance(pieces[0], bytes):
            return pieces[0].read(at, length)
        if self._position < 0:
            self._chunks, self._position = self._tensor.chunks(), 0
        parts = []
        while length:
            skip = at - self._position
            if skip < len(self._ahead):
                part = self._ahead[skip : skip + length]
                parts.append(part)
                at, length = at + len(part), length - len(part)
                continue
            self._position += len(self._ahead)
            self._ahead = next(self._chunks)
        return b"".join(parts)
