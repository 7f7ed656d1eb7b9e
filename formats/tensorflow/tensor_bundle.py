"""TensorFlow's tensor bundles: an index of entries, and shards of raw bytes. V2 checkpoints.

Spec: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/protobuf/tensor_bundle.proto
and .../core/util/tensor_bundle/tensor_bundle.cc, .../core/util/saved_tensor_slice_util.cc.
The checksums of the index are checked; those of tensors are recorded, to be checked when they are
read (see `formats.core.checksums`). String tensors have one of another kind, which is not checked.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from formats.containers.protobuf.messages import Message, decode
from formats.core import checksums
from formats.core import tiling as slices
from formats.core.storage import File, Span
from formats.core.strings import Strings
from formats.core.weights import ByteOrder, Tensor
from formats.errors import CorruptError, LimitError, UnsupportedError
from formats.limits import Limits
from formats.tensorflow import sstable, tensor_proto
from formats.tensorflow.schemas import SCHEMA

MOST_SLICES = 10_000  # of one tensor; partitioners make one for each parameter server
_CHECKSUM = 4  # bytes between the lengths of a string tensor and its strings


@dataclass(frozen=True, slots=True)
class Extents:
    """Where a slice sits in its tensor.

    Attributes:
        written: Start and length along each axis as the writer put it; length -1 is all of it.
    """

    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    written: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class BundleEntry:
    """One tensor of the index, or one slice of a tensor.

    Attributes:
        number: TensorFlow's DataType.
        crc: Masked CRC-32C of the data; zero where none is recorded.
        slices: Where the slices of a partitioned tensor are.
    """

    key: bytes
    number: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    slices: tuple["Extents", ...] = ()

    @property
    def name(self) -> str:
        """The key as text."""
        return self.key.decode("utf-8", "backslashreplace")

    @property
    def is_slice(self) -> bool:
        """Whether it belongs to another entry; such keys begin with the number zero."""
        return self.key.startswith(b"\0")


class TensorBundle:
    """The index of one bundle, and its shards, which are opened when first asked for.

    Attributes:
        entries: All tensors by key, in the order of the index; slices are not among them.
        shards: How many files hold the data.
        byteorder: Of the data.
        producer: Version of the writer.
    """

    def __init__(self, index: Span, shard: Callable[[str], File], limits: Limits) -> None:
        """Read the index.

        Args:
            index: The ``.index`` file.
            shard: Opens a file by what its name has instead of ``index``.
            limits: What it may cost.

        Raises:
            CorruptError: The index is damaged, or is one of a V1 checkpoint.
        """
        self.where = index.name
        self._limits = limits
        self._open = shard
        self._files: dict[int, File] = {}
        self._strings = 0
        items = sstable.Table(index, limits).items()
        first = next(items, None)
        if first is None or first[0] != b"":
            raise CorruptError("the index has no header", where=self.where)
        header = decode(first[1], SCHEMA["BundleHeaderProto"], limits)
        self.shards: int = header.num_shards
        self.byteorder: ByteOrder = "big" if header.endianness == 1 else "little"
        self.producer: int = header.version.producer
        if not 0 < self.shards <= limits.max_files:
            raise CorruptError(f"the index names {self.shards} shards", where=self.where)
        self.entries: dict[str, BundleEntry] = {}
        self._slices: dict[bytes, BundleEntry] = {}
        count = 0
        for key, value in items:
            entry = self._entry(key, decode(value, SCHEMA["BundleEntryProto"], limits))
            count += 1 + len(entry.slices)
            if count > limits.max_described:
                raise LimitError(
                    f"more than {limits.max_described} tensors and slices", where=self.where
                )
            if entry.is_slice:
                self._slices[key] = entry
            elif self.entries.setdefault(entry.name, entry) is not entry:
                raise CorruptError(f"two tensors are called {entry.name!r}", where=self.where)

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    def span(self, entry: BundleEntry) -> Span:
        """Return the bytes of an entry as they are stored.

        Raises:
            CorruptError: They do not lie in their shard.
        """
        if entry.shard not in self._files:
            name = f"data-{entry.shard:05d}-of-{self.shards:05d}"
            self._files[entry.shard] = self._open(name)
        file = self._files[entry.shard]
        if entry.offset < 0 or entry.size < 0 or entry.offset + entry.size > file.size:
            raise CorruptError(
                f"tensor {entry.name!r} is {entry.size} bytes at {entry.offset}, but the shard has "
                f"{file.size}",
                where=file.name,
                hint="The shard is probably truncated, or belongs to another index",
            )
        return Span(file, entry.offset, entry.size)

    def tensor(self, key: str) -> Tensor | Strings:
        """Return one tensor, joined if it is partitioned.

        Raises:
            CorruptError: Index and shard contradict each other.
            UnsupportedError: It is neither numbers nor strings.
        """
        entry = self.entries[key]
        return self._whole(entry, entry.name) if not entry.slices else self._join(entry)

    def _whole(self, entry: BundleEntry, origin: str) -> Tensor | Strings:
        if tensor_proto.base_type(entry.number) != tensor_proto.STRING:
            tensor_proto.dtype_of(entry.number, origin)  # before the shard is opened
            span = self.span(entry)
            checksums.record(span, "crc32c", entry.crc, entry.name)
            return tensor_proto.raw(
                entry.number, entry.shape, span, origin=origin, byteorder=self.byteorder
            )
        span = self.span(entry)
        lengths, start = tensor_proto.read_string_lengths(span, prod(entry.shape), origin)
        self._strings += len(lengths)  # entries may lie over one another
        if self._strings > tensor_proto.MOST_STRINGS:
            raise LimitError(f"a checkpoint of {self._strings} strings", where=self.where)
        start += _CHECKSUM
        return Strings.stored(
            entry.shape, lengths, span.sub(start, span.length - start), origin=origin
        )

    def _join(self, entry: BundleEntry) -> Tensor:
        boxes = []
        for extents in entry.slices:
            part = self._slices.get(slice_key(entry.key, extents.written))
            if part is None:
                raise CorruptError(
                    f"the slice at {list(extents.starts)} of {entry.name!r} is missing",
                    where=self.where,
                )
            tensor = self._whole(part, entry.name)
            if isinstance(tensor, Strings):
                raise UnsupportedError(f"{entry.name!r} is a partitioned string tensor")
            if tensor.shape != extents.lengths:
                raise CorruptError(
                    f"the slice at {list(extents.starts)} of {entry.name!r} has shape "
                    f"{list(tensor.shape)}, not {list(extents.lengths)}",
                    where=self.where,
                )
            boxes.append(slices.Box(extents.starts, tensor))
        dtype = tensor_proto.dtype_of(entry.number, entry.name)
        return slices.join(dtype, entry.shape, boxes, origin=entry.name)

    def _entry(self, key: bytes, proto: Message) -> BundleEntry:
        name = key.decode("utf-8", "backslashreplace")
        shape = tensor_proto.shape_of(proto.shape, f"{self.where}#{name}", self._limits.max_rank)
        if not 0 <= proto.shard_id < self.shards:
            raise CorruptError(
                f"tensor {name!r} is in shard {proto.shard_id} of {self.shards}", where=self.where
            )
        parts = tuple(extents_of(s, shape, self.where) for s in proto.slices)
        if len(parts) > MOST_SLICES:
            raise LimitError(f"tensor {name!r} has {len(parts)} slices", where=self.where)
        return BundleEntry(
            key,
            proto.dtype,
            shape,
            proto.shard_id,
            proto.offset,
            proto.size,
            proto.crc32c,
            parts,
        )


def extents_of(proto: Message, shape: tuple[int, ...], where: str) -> Extents:
    """Return what a TensorSliceProto says of a tensor of this shape.

    Raises:
        CorruptError: It is of another rank, or leaves the tensor.
    """
    extent = proto.extent
    if len(extent) != len(shape):
        raise CorruptError(
            f"a slice of rank {len(extent)} of a tensor of shape {list(shape)}", where=where
        )
    written = tuple((e.start, e.length if e.has("length") else -1) for e in extent)
    starts = tuple(a for a, _ in written)
    lengths = tuple(
        full if (a, n) == (0, -1) else n for (a, n), full in zip(written, shape, strict=True)
    )
    if any(a < 0 or n < 0 or a + n > m for a, n, m in zip(starts, lengths, shape, strict=True)):
        raise CorruptError(f"a slice leaves the shape {list(shape)}", where=where)
    return Extents(starts, lengths, written)


def slice_key(name: bytes, extents: Sequence[tuple[int, int]]) -> bytes:
    """Return the key that a slice is stored under: ordered-code of 0, name, rank and extents.

    Spec: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/lib/strings/ordered_code.cc
    """
    numbers = [_signed(n) for extent in extents for n in extent]
    return b"".join([_unsigned(0), _escape(name), b"\0\1", _unsigned(len(extents)), *numbers])


def _escape(name: bytes) -> bytes:
    return re.sub(rb"[\0\xff]", lambda m: b"\0\xff" if m[0] == b"\0" else b"\xff\0", name)


def _unsigned(value: int) -> bytes:
    digits = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([len(digits)]) + digits


def _signed(value: int) -> bytes:
    """Return ordered-code of a signed number: its length in the leading bits, then the number."""
    magnitude = ~value if value < 0 else value
    length = magnitude.bit_length() // 7 + 1
    if length == 1:
        return bytes([0x80 ^ (value & 0xFF)])
    data = bytearray(value.to_bytes(10, "big", signed=True)[10 - length :])
    header = (((1 << length) - 1) << (16 - length)) & 0xFFFF
    data[0] ^= header >> 8
    data[1] ^= header & 0xFF
    return bytes(data)


def unescape_slice_key(key: bytes) -> str | None:
    """Return the name in a slice's key, or None if it is no such key."""
    end = key.find(b"\0\1", 1)
    if not key.startswith(b"\0") or end < 0:
        return None
    name = re.sub(rb"\0\xff|\xff\0", lambda m: m[0][:1], key[1:end])
    return name.decode("utf-8", "backslashreplace")


def orphans(bundle: TensorBundle) -> Iterator[str]:
    """Yield names of slices whose tensor is not in the index."""
    for key in bundle._slices:
        name = unescape_slice_key(key)
        if name is not None and name not in bundle.entries:
            yield name
