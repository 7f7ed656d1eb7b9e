"""Packed repeated numbers of a protobuf field, decoded when they are iterated.

Spec: https://protobuf.dev/programming-guides/encoding/#packed
"""

import math
import struct
from array import array
from collections.abc import Iterable, Iterator
from typing import overload

from formats.core.storage import Buffer, Span
from formats.errors import CorruptError

FIXED = {
    "float": struct.Struct("<f"),
    "double": struct.Struct("<d"),
    "fixed32": struct.Struct("<I"),
    "sfixed32": struct.Struct("<i"),
    "fixed64": struct.Struct("<Q"),
    "sfixed64": struct.Struct("<q"),
}
LONGEST_VARINT = 10  # bytes
RUN = 1 << 16  # bytes of varints decoded together

_CONTINUED = bytes(range(128, 256))


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint at ``at``, and where it ends.

    Raises:
        IndexError: The data ends inside it.
        ValueError: It is longer than 64 bits.
    """
    byte = data[at]
    value, shift = byte & 127, 7
    while byte > 127:
        at += 1
        byte = data[at]
        value |= (byte & 127) << shift
        shift += 7
        if shift > 70:
            raise ValueError("a number longer than 64 bits")
    return value & 0xFFFFFFFFFFFFFFFF, at + 1


def to_signed(value: int, kind: str) -> int:
    """Return the number of type ``kind`` that a varint stands for."""
    if kind == "bool":
        return value != 0
    if kind in ("sint32", "sint64"):
        return (value >> 1) ^ -(value & 1)
    if value < 0x80000000:
        return value
    if kind in ("int32", "enum"):  # negative ones are written as 64 bits, and cut
        value &= 0xFFFFFFFF
        return value - (1 << 32) if value >> 31 else value
    if kind == "uint32":
        return value & 0xFFFFFFFF
    if kind == "int64" and value >> 63:
        return value - (1 << 64)
    return value


class Packed:
    """The values of one repeated numeric field.

    Attributes:
        kind: The field's proto type.
    """

    __slots__ = ("_count", "_runs", "kind")

    def __init__(self, kind: str) -> None:
        self.kind = kind.split()[0]
        self._runs: list[Span | bytearray] = []
        self._count: int | None = 0

    @classmethod
    def of(cls, kind: str, values: Iterable[float]) -> "Packed":
        """Return ``values`` encoded."""
        packed = cls(kind)
        packed.append_bytes(b"".join(cls.encode(kind, v) for v in values))
        return packed

    @staticmethod
    def encode(kind: str, value: float) -> bytes:
        """Return one value as it is on the wire."""
        if kind in FIXED:
            try:
                return FIXED[kind].pack(value)
            except OverflowError:  # a text's 1e39 as float: what a C cast makes of it
                return FIXED[kind].pack(math.copysign(math.inf, value))
        value = int(value)
        return _encoded((value << 1) ^ (value >> 63) if kind.startswith("sint") else value)

    def append_span(self, span: Span) -> None:
        """Add a packed run of the file."""
        if span.length:
            self._runs.append(span)
            self._count = None

    def append_bytes(self, data: bytes | bytearray) -> None:
        """Add one or more encoded values."""
        if self._runs and isinstance(self._runs[-1], bytearray):
            self._runs[-1] += data
        elif data:
            self._runs.append(bytearray(data))
        self._count = None

    @property
    def width(self) -> int:
        """Bytes of each value in the file; 0 for varints."""
        return FIXED[self.kind].size if self.kind in FIXED else 0

    @property
    def nbytes(self) -> int:
        """Bytes of all values, encoded."""
        return sum(r.length if isinstance(r, Span) else len(r) for r in self._runs)

    @property
    def span(self) -> Span | None:
        """The one run that holds all values, little-endian; None for varints or several runs."""
        if not self.width or len(self._runs) != 1:
            return None
        (run,) = self._runs
        return run if isinstance(run, Span) else Span.whole(Buffer(bytes(run), "values"))

    def __len__(self) -> int:
        if self._count is None:
            self._count = self._counted()
        return self._count

    def __bool__(self) -> bool:
        return bool(self._runs)

    def __iter__(self) -> Iterator[int | float]:
        for data in self._pieces():
            if self.width:
                for (number,) in FIXED[self.kind].iter_unpack(data):
                    yield number
            else:
                kind = self.kind
                at, end = 0, len(data)
                while at < end:
                    value, at = _checked_varint(data, at)
                    yield to_signed(value, kind)

    @overload
    def __getitem__(self, index: int) -> int | float: ...
    @overload
    def __getitem__(self, index: slice) -> list[int | float]: ...
    def __getitem__(self, index: int | slice) -> int | float | list[int | float]:
        """Return one value or several; decodes all of them."""
        return list(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packed | list | tuple) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def little_endian(self, width: int) -> Iterator[bytes]:
        """Yield the values as integers of ``width`` bytes each, cut like C casts; floats as stored.

        Raises:
            CorruptError: The last value is incomplete.
        """
        if self.width:
            yield from self._pieces()
            return
        code = {1: "B", 2: "H", 4: "I", 8: "Q"}[width]
        mask = (1 << (8 * width)) - 1
        zigzag = self.kind.startswith("sint")
        for data in self._pieces():
            if not zigzag and len(data.translate(None, _CONTINUED)) == len(data):
                bits = map(bool, data) if self.kind == "bool" else data
                values = array(code, list(bits))
            elif len(data) > 1 << 10:
                values = array(code, _many(data, width, self.kind))
            else:
                values = array(code)
                at = 0
                while at < len(data):
                    value, at = _checked_varint(data, at)
                    values.append(to_signed(value, self.kind) & mask)
            yield values.tobytes()

    def _pieces(self) -> Iterator[bytes]:
        """Yield the encoded values in runs that hold whole values.

        Runs follow one another without regard to their borders, as in any proto parser a value
        never crosses one.
        """
        for run in self._runs:
            if isinstance(run, bytearray):
                run = Span.whole(Buffer(bytes(run), "values"))
            at = 0
            while at < run.length:
                data = run.read(at, min(RUN, run.length - at))
                if self.width:
                    whole = len(data) - len(data) % self.width
                else:
                    whole = len(data)
                    while whole and data[whole - 1] > 127:
                        whole -= 1
                        if len(data) - whole > LONGEST_VARINT:
                            break
                if not whole or (whole < len(data) and at + len(data) == run.length):
                    raise CorruptError(
                        f"packed {self.kind} values end inside one",
                        where=run.name,
                        offset=run.offset + at + whole,
                    )
                yield data[:whole]
                at += whole

    def _counted(self) -> int:
        if self.width:
            return self.nbytes // self.width
        total = 0
        for data in self._pieces():
            total += len(data.translate(None, _CONTINUED))
        return total


def _encoded(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _checked_varint(data: bytes, at: int) -> tuple[int, int]:
    try:
        return varint(data, at)
    except (IndexError, ValueError) as e:
        raise CorruptError(f"packed values hold no valid number: {e}") from e


def _many(data: bytes, width: int, kind: str) -> bytes:
    """Decode many varints at once."""
    import numpy as np

    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw < 128)
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    longest = int(lengths.max())
    if longest > LONGEST_VARINT:
        raise CorruptError("packed values hold a number longer than 64 bits")
    values = np.zeros(len(ends), np.uint64)
    for k in range(longest):
        some = np.flatnonzero(lengths > k)
        septet = (raw[starts[some] + k] & 127).astype(np.uint64)
        values[some] |= septet << np.uint64(7 * k)
    if kind == "bool":
        values = (values != 0).astype(np.uint64)
    elif kind.startswith("sint"):
        values = (values >> np.uint64(1)) ^ (np.uint64(0) - (values & np.uint64(1)))
    return values.astype(f"<u{width}").tobytes()
