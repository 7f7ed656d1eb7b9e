"""The lazy CPU tensor: dtype, shape, and where its bytes are.

A tensor reads as little-endian, contiguous and row-major, whatever it is in its file. Its bytes
stay in the file until `Tensor.pieces` is iterated, which yields them in small pieces. A piece that
needs no change is a `Span`, so that a writer can let the kernel copy it. numpy is imported only
where elements must be reordered, and for `Tensor.numpy`.
"""

import array
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from formats.core.storage import Buffer, File, Span
from formats.errors import CorruptError

if TYPE_CHECKING:
    import numpy

CHUNK = 1 << 18  # bytes handed out at once; larger writes cost more than they save (PERFORMANCE.md)
GATHER = 1 << 22  # bytes of a strided tensor put in order at once

ByteOrder = Literal["little", "big"]
Piece = Span | bytes


class DType(NamedTuple):
    """One element type.

    Attributes:
        name: numpy's or ml_dtypes' name, also used in manifests.
        bits: Width of an element; below 8, elements are packed from the low bits up.
        code: safetensors' name for it, or None where safetensors has none.
        parts: Numbers in an element (2 for complex), which are byte-swapped one by one.
    """

    name: str
    bits: int
    code: str | None
    parts: int = 1

    @property
    def itemsize(self) -> int:
        """Bytes of an element; 1 for packed types."""
        return max(self.bits // 8, 1)

    def nbytes(self, elements: int) -> int:
        """Bytes that ``elements`` contiguous elements take."""
        return (elements * self.bits + 7) // 8

    def __str__(self) -> str:
        return self.name


# fmt: off
# Codes: enum Dtype of
# https://github.com/huggingface/safetensors/blob/v0.8.0/safetensors/src/tensor.rs
DTYPES = {d.name: d for d in (
    DType("bool",                8, "BOOL"),
    DType("uint8",               8, "U8"),
    DType("int8",                8, "I8"),
    DType("uint16",             16, "U16"),
    DType("int16",              16, "I16"),
    DType("uint32",             32, "U32"),
    DType("int32",              32, "I32"),
    DType("uint64",             64, "U64"),
    DType("int64",              64, "I64"),
    DType("float16",            16, "F16"),
    DType("bfloat16",           16, "BF16"),
    DType("float32",            32, "F32"),
    DType("float64",            64, "F64"),
    DType("complex64",          64, "C64",   parts=2),
    DType("complex32",          32, None,    parts=2),   # torch.complex32; numpy has none
    DType("complex128",        128, None,    parts=2),
    DType("float8_e4m3fn",       8, "F8_E4M3"),
    DType("float8_e5m2",         8, "F8_E5M2"),
    DType("float8_e8m0fnu",      8, "F8_E8M0"),
    DType("float8_e4m3fnuz",     8, "F8_E4M3FNUZ"),
    DType("float8_e5m2fnuz",     8, "F8_E5M2FNUZ"),
    DType("float8_e4m3b11fnuz",  8, None),
    DType("float6_e2m3fn",       6, "F6_E2M3"),
    DType("float6_e3m2fn",       6, "F6_E3M2"),
    DType("float4_e2m1fn",       4, "F4"),
    DType("int4",                4, None),
    DType("uint4",               4, None),
    DType("int2",                2, None),
    DType("uint2",               2, None),
    DType("int1",                1, None),
    DType("uint1",               1, None),
)}
# fmt: on


class Strided(NamedTuple):
    """Elements at regular distances in a storage.

    Attributes:
        span: The storage that the view may touch.
        offset: Bytes from the start of ``span`` to element ``[0, ..., 0]``.
        strides: Bytes between neighbours along each axis; zero repeats, never negative.
        byteorder: Of each number in the storage.
    """

    span: Span
    offset: int
    strides: tuple[int, ...]
    byteorder: ByteOrder = "little"


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """Bytes that come from a computation: inflating, concatenating, joining slices.

    ``make`` yields pieces which together are the tensor; it may be called more than once.
    """

    make: Callable[[], Iterable[Piece]]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A lazy CPU tensor.

    Create one with `contiguous`, `strided`, `inline` or `computed`, which check their arguments.

    Attributes:
        dtype: Element type.
        shape: Sizes of the axes, outermost first.
        data: Where the elements are.
        origin: The source's own words for it: a dataset path, a checkpoint key, a pickle path.
    """

    dtype: DType
    shape: tuple[int, ...]
    data: Strided | Computed
    origin: str = field(default="", compare=False)

    @classmethod
    def contiguous(
        cls,
        dtype: DType,
        shape: Iterable[int],
        span: Span,
        *,
        byteorder: ByteOrder = "little",
        origin: str = "",
    ) -> "Tensor":
        """Return the tensor that fills ``span`` exactly, row-major.

        Raises:
            CorruptError: ``span`` has another length than dtype and shape imply.
        """
        shape = _checked_shape(shape, span)
        nbytes = dtype.nbytes(prod(shape))
        if nbytes != span.length:
            raise CorruptError(
                f"{dtype}{list(shape)} takes {nbytes} bytes, but {span.length} are stored",
                where=origin or span.name,
                offset=span.offset,
            )
        return cls(dtype, shape, Strided(span, 0, row_major(shape, dtype), byteorder), origin)

    @classmethod
    def strided(
        cls,
        dtype: DType,
        shape: Iterable[int],
        span: Span,
        *,
        offset: int,
        strides: Iterable[int],
        byteorder: ByteOrder = "little",
        origin: str = "",
    ) -> "Tensor":
        """Return a view of a storage; ``offset`` and ``strides`` count elements.

        Raises:
            CorruptError: An element lies outside ``span``.
        """
        shape = _checked_shape(shape, span)
        strides = tuple(strides)
        size = dtype.itemsize
        where = origin or span.name
        if len(strides) != len(shape) or offset < 0 or (strides and min(strides) < 0):
            raise CorruptError(
                f"strides {list(strides)} and offset {offset} do not fit shape {list(shape)}",
                where=where,
            )
        if dtype.bits < 8 and (strides != _row_major(shape, 1) or offset):
            raise CorruptError(f"a {dtype} tensor is a view that splits bytes", where=where)
        if prod(shape):
            last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
            end = dtype.nbytes(last + 1) if dtype.bits < 8 else (last + 1) * size
            if end > span.length:
                raise CorruptError(
                    f"{dtype}{list(shape)} reaches byte {end} of a storage of {span.length}",
                    where=where,
                )
        view = Strided(span, offset * size, tuple(s * size for s in strides), byteorder)
        return cls(dtype, shape, view, origin)

    @classmethod
    def inline(
        cls, dtype: DType, shape: Iterable[int], data: bytes, *, origin: str = ""
    ) -> "Tensor":
        """Return a tensor over little-endian, row-major bytes in memory."""
        return cls.contiguous(dtype, shape, Span.whole(Buffer(data, origin)), origin=origin)

    @classmethod
    def computed(
        cls,
        dtype: DType,
        shape: Iterable[int],
        make: Callable[[], Iterable[Piece]],
        *,
        origin: str = "",
    ) -> "Tensor":
        """Return a tensor whose little-endian, row-major bytes ``make`` yields when walked."""
        return cls(dtype, _checked_shape(shape, None), Computed(make), origin)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes when contiguous."""
        return (prod(self.shape) * self.dtype.bits + 7) // 8

    @property
    def identity(self) -> Hashable:
        """Equal for two tensors exactly when both are the same view of the same bytes."""
        if isinstance(self.data, Computed) or not self.size:
            return id(self.data)
        view, shape = self.data, self.shape
        strides = view.strides
        if 1 in shape:  # a stride along an axis of one element says nothing
            strides = tuple(s for s, n in zip(strides, shape, strict=True) if n > 1)
        place = (id(view.span.storage), view.span.offset + view.offset)
        return (*place, self.dtype.name, shape, strides, view.byteorder)

    def with_origin(self, origin: str) -> "Tensor":
        """Return the same tensor under another origin."""
        return Tensor(self.dtype, self.shape, self.data, origin)

    def extent(self) -> Span | None:
        """Return the one run of a file that is this tensor byte for byte, or None."""
        view = self.data
        if isinstance(view, Computed) or not isinstance(view.span.storage, File) or not self.size:
            return None
        if not self._is_plain(view):
            return None
        return view.span.sub(view.offset, self.nbytes)

    def pieces(self) -> Iterator[Piece]:
        """Yield the tensor's bytes, in order: spans to copy as they are, and computed bytes.

        Raises:
            CorruptError: A computation yielded another number of bytes than the shape implies.
        """
        view = self.data
        if not self.size:
            return
        if isinstance(view, Computed):
            yield from self._count(view.make())
        elif self._is_plain(view):
            yield view.span.sub(view.offset, self.nbytes)
        elif view.strides == row_major(self.shape, self.dtype):
            width = self.dtype.itemsize // self.dtype.parts
            for chunk in split(view.span.sub(view.offset, self.nbytes)):
                yield swap_bytes(chunk, width)
        else:
            yield from _gather(self, view)

    def chunks(self) -> Iterator[bytes]:
        """Yield the tensor's bytes, in order, little by little."""
        for piece in self.pieces():
            if isinstance(piece, Span):
                yield from split(piece)
            else:
                yield piece

    def tobytes(self) -> bytes:
        """Return all bytes."""
        return b"".join(self.chunks())

    def numpy(self) -> "numpy.ndarray[Any, Any]":
        """Return a numpy array of its own memory; ml_dtypes supplies bfloat16, float8 and int4.

        Packed types come back one element a byte. complex32 widens to complex64.
        """
        import numpy as np

        data: np.ndarray[Any, Any] = np.empty(self.nbytes, np.uint8)
        self._read_into(data.data)
        if self.dtype.bits < 8:
            bits = np.unpackbits(data, bitorder="little")[: self.size * self.dtype.bits]
            weights = (1 << np.arange(self.dtype.bits)).astype(np.uint8)
            data = (bits.reshape(-1, self.dtype.bits) * weights).sum(1, dtype=np.uint8)
            if self.dtype.name.startswith("int"):
                sign = 1 << (self.dtype.bits - 1)
                data = (data ^ sign).astype(np.int8) - np.int8(sign)
            if "int" in self.dtype.name:
                return data.reshape(self.shape)
        if self.dtype.name == "complex32":
            halves = data.view(np.float16).astype(np.float32)
            return halves.view(np.complex64).reshape(self.shape)
        return data.view(numpy_dtype(self.dtype)).reshape(self.shape)

    def _read_into(self, buffer: memoryview) -> None:
        start = 0
        for piece in self.pieces():
            end = start + (piece.length if isinstance(piece, Span) else len(piece))
            if isinstance(piece, Span):
                piece.readinto(0, buffer[start:end])
            else:
                buffer[start:end] = piece
            start = end

    def _is_plain(self, view: Strided) -> bool:
        """Return whether the view's bytes are the tensor's bytes."""
        width = self.dtype.itemsize // self.dtype.parts
        if view.byteorder == "big" and width > 1:
            return False
        rows = row_major(self.shape, self.dtype)
        return view.strides == rows or all(
            n <= 1 or s == r for n, s, r in zip(self.shape, view.strides, rows, strict=True)
        )

    def _count(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        left = self.nbytes
        for piece in pieces:
            left -= piece.length if isinstance(piece, Span) else len(piece)
            if left < 0:
                break
            yield piece
        if left:
            raise CorruptError(
                f"the data is {'longer' if left < 0 else f'{left} bytes shorter'} than "
                f"{self.dtype}{list(self.shape)}",
                where=self.origin or None,
            )


def numpy_dtype(dtype: DType) -> "numpy.dtype[Any]":
    """Return numpy's dtype of the same name, from ml_dtypes where numpy has none."""
    import numpy as np

    if not hasattr(np, dtype.name):
        import ml_dtypes

        extension: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype.name))
        return extension
    return np.dtype(dtype.name)


def row_major(shape: tuple[int, ...], dtype: DType) -> tuple[int, ...]:
    """Return the byte strides of a contiguous row-major tensor."""
    return _row_major(shape, dtype.itemsize)


def split(span: Span, limit: int = CHUNK) -> Iterator[bytes]:
    """Yield the bytes of a span in runs of at most ``limit``."""
    for start in range(0, span.length, limit):
        yield span.read(start, min(limit, span.length - start))


def swap_bytes(data: bytes, width: int) -> bytes:
    """Return ``data`` with the bytes of each ``width``-byte number reversed."""
    if width == 1:
        return data
    numbers = array.array({2: "H", 4: "I", 8: "Q"}[width], data)
    numbers.byteswap()
    return numbers.tobytes()


def _row_major(shape: tuple[int, ...], step: int) -> tuple[int, ...]:
    strides = []
    for n in reversed(shape):
        strides.append(step)
        step *= n or 1
    strides.reverse()
    return tuple(strides)


def _checked_shape(shape: Iterable[int], span: Span | None) -> tuple[int, ...]:
    shape = tuple(shape)
    # 2**63: no framework can address more, and Python's own integers would hide the nonsense.
    if (shape and min(shape) < 0) or prod(shape) >= 1 << 63:
        raise CorruptError(f"impossible shape {list(shape)}", where=span.name if span else None)
    return shape


def _gather(tensor: Tensor, view: Strided) -> Iterator[bytes]:
    """Put the elements of a strided view in row-major order, a block of rows at a time."""
    import numpy as np

    # Axes of one element are dropped so that the first axis left has rows to split by.
    axes = [(n, s) for n, s in zip(tensor.shape, view.strides, strict=True) if n > 1]
    width = tensor.dtype.itemsize // tensor.dtype.parts

    def block(offset: int, axes: list[tuple[int, int]]) -> Iterator[bytes]:
        nbytes = prod(n for n, _ in axes) * tensor.dtype.itemsize
        if nbytes > GATHER and axes:
            (rows, step), inner = axes[0], axes[1:]
            row_bytes = nbytes // rows
            some = max(1, GATHER // row_bytes)
            for first in range(0, rows, some):
                part = min(some, rows - first)
                yield from block(
                    offset + first * step, [(part, step), *inner] if part > 1 else inner
                )
            return
        reach = sum((n - 1) * s for n, s in axes) + tensor.dtype.itemsize
        if reach <= 4 * GATHER or not isinstance(view.span.storage, File):
            raw = np.frombuffer(view.span.read(offset, reach), np.uint8)
        else:  # a thin view of a large storage: touch only the pages it needs
            start = view.span.offset + offset
            raw = np.memmap(view.span.storage.path, np.uint8, "r", start, (reach,))
        element = np.dtype((np.void, tensor.dtype.itemsize))
        shape, strides = [n for n, _ in axes], [s for _, s in axes]
        elements = raw[: tensor.dtype.itemsize].view(element)
        ordered = np.lib.stride_tricks.as_strided(elements, shape, strides).tobytes()
        yield ordered if view.byteorder == "little" else swap_bytes(ordered, width)

    yield from block(view.offset, axes)
