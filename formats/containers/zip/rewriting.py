"""Replace the content of members of a zip archive; every other byte stays.

The bytes before the first change are one run of the source. Behind it, members move: their
local headers are written again, with the padding that puts their data where torch would put them.
Members keep their order, method, flags, dates, extra fields and comments. The result is a list of
pieces, bytes and spans of the source's file, so that weights are not held in memory.

Spec: APPNOTE.TXT 6.3.10, https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
torch's padding: https://github.com/pytorch/pytorch/blob/v2.13.0/caffe2/serialize/inline_container.cc
(getPadding), over https://github.com/richgel999/miniz (mz_zip_writer_add_mem_ex_v2).
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

from formats.containers.zip.archive import (
    CENTRAL,
    DEFLATED,
    END,
    END64,
    END64_LOCATOR,
    LOCAL,
    LOCAL_MAGIC,
    STORED,
    ZipArchive,
)
from formats.containers.zip.writer import LIMIT
from formats.core.storage import Span
from formats.core.weights import split
from formats.errors import CorruptError, UnsupportedError

Pieces: TypeAlias = list[bytes | Span]

DESCRIPTOR = 1 << 3  # flag: CRC and sizes are behind the data
ZIP64 = 1  # tag of the extra field with wide sizes
PADDING = 0x4246  # "FB", tag of the extra field with torch's padding
ALIGNMENT = 64  # bytes; what torch aligns data to, where an archive does not say otherwise
MAX_ALIGNMENT = 1 << 15  # of what a field of 16 bits can pad


class Content(NamedTuple):
    """New content of a member, before it is compressed."""

    pieces: Pieces
    size: int
    crc: int

    @classmethod
    def of(cls, data: bytes) -> "Content":
        """Return bytes as content."""
        return cls([data], len(data), zlib.crc32(data))

    @classmethod
    def read(cls, pieces: Pieces) -> "Content":
        """Return pieces as content; they are read once, for their CRC."""
        crc = size = 0
        for piece in pieces:
            for data in split(piece) if isinstance(piece, Span) else (piece,):
                crc = zlib.crc32(data, crc)
                size += len(data)
        return cls(pieces, size, crc)

    def bytes(self) -> bytes:
        """Return all of it."""
        return b"".join(p.read() if isinstance(p, Span) else p for p in self.pieces)


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """A member as central directory and local header have it."""

    central: tuple[int, ...]  # the fields of CENTRAL behind its magic
    name: bytes
    extra: bytes
    comment: bytes
    offset: int
    compressed: int
    size: int

    @property
    def flags(self) -> int:
        """General purpose flags."""
        return self.central[2]

    @property
    def method(self) -> int:
        """How it is compressed."""
        return self.central[3]

    @property
    def crc(self) -> int:
        """Of the content."""
        return self.central[6]


class Rewriter:
    """An archive whose members can be replaced."""

    def __init__(self, archive: ZipArchive, span: Span) -> None:
        """Look at the directory again, for what reading does not need.

        Args:
            archive: The directory as read, and found sound.
            span: The bytes of the archive.

        Raises:
            CorruptError: Members overlap.
        """
        self._archive, self._span = archive, span
        self._start, self._size, self._end, self._wide_end = self._places()
        self.entries = list(self._entries())
        self._by_place = sorted(self.entries, key=lambda e: e.offset)

    @cached_property
    def alignment(self) -> int:
        """What members' data are aligned to, in bytes."""
        for name, member in self._archive.members.items():
            if name.endswith(".storage_alignment") and member.size < 8:
                said = member.read(8)
                if said.isdigit() and 0 < int(said) <= MAX_ALIGNMENT:
                    return int(said)
        return ALIGNMENT

    def crcs(self, replaced: Mapping[str, Content]) -> Iterator[tuple[str, int]]:
        """Yield the CRC of the content of each member that has one, in the order of the members."""
        for entry in self._by_place:
            content = replaced.get(_name(entry))
            if entry.size if content is None else content.size:
                yield _name(entry), entry.crc if content is None else content.crc

    def content(self, name: str, limit: int) -> bytes:
        """Return the content of a member of at most ``limit`` bytes."""
        return self._archive.read(name, limit)

    def rewrite(self, replaced: Mapping[str, Content]) -> Pieces:
        """Return the archive with the content of some members replaced.

        Raises:
            CorruptError: There is no such member, or the archive is damaged.
            UnsupportedError: A member of them is compressed in another way than deflated.
        """
        known = {_name(e) for e in self.entries}
        if missing := [n for n in replaced if n not in known]:
            raise CorruptError(f"the archive has no member {missing[0]!r}", where=self._span.name)
        pieces: Pieces = []
        position = 0
        places: dict[int, tuple[int, int, int, int]] = {}  # old offset -> new offset, sizes, crc
        ends = [e.offset for e in self._by_place[1:]] + [self._start]
        for entry, end in zip(self._by_place, ends, strict=True):
            content = replaced.get(_name(entry))
            offset, compressed, size, crc = position, entry.compressed, entry.size, entry.crc
            if content is None and offset == entry.offset:
                made: Pieces = [self._span.sub(offset, end - offset)]
            else:
                made, compressed, size, crc = self._record(entry, content, offset)
            pieces += made
            position += sum(p.length if isinstance(p, Span) else len(p) for p in made)
            places[entry.offset] = offset, compressed, size, crc
        directory = b"".join(_central(e, *places[e.offset]) for e in self.entries)
        return [*pieces, directory + self._tail(position, len(directory))]

    def _record(
        self, entry: ZipEntry, content: Content | None, offset: int
    ) -> tuple[Pieces, int, int, int]:
        """Return a member's local record at its new place, its sizes, and its CRC."""
        header = self._span.read(entry.offset, LOCAL.size)
        magic, version, flags, method, time, date, crc, _, _, names, extras = LOCAL.unpack(header)
        if magic != LOCAL_MAGIC:
            raise CorruptError("a member has no local header", where=self._span.name)
        tail = self._span.read(entry.offset + LOCAL.size, names + extras)
        data: Pieces = [
            self._span.sub(entry.offset + LOCAL.size + names + extras, entry.compressed)
        ]
        compressed, size, sum_ = entry.compressed, entry.size, entry.crc
        if content is not None:
            data, compressed = self._compress(entry, content)
            size, sum_ = content.size, content.crc
        fields = [(tag, body) for tag, body in _fields(tail[names:]) if tag != ZIP64]
        is_torch = any(tag == PADDING for tag, _ in fields)
        wide = [size, compressed] if max(size, compressed) >= LIMIT else []
        if is_torch and offset >= LIMIT:
            wide.append(offset)
        extra = struct.pack(f"<HH{len(wide)}Q", ZIP64, 8 * len(wide), *wide) if wide else b""
        extra += b"".join(struct.pack("<HH", t, len(b)) + b for t, b in fields if t != PADDING)
        if is_torch:
            start = offset + LOCAL.size + names + len(extra) + 4
            padding = -start % self.alignment
            extra += struct.pack("<HH", PADDING, padding) + b"Z" * padding
        shown = [0, 0, 0]
        if not flags & DESCRIPTOR or crc:
            shown = [sum_, *(LIMIT if max(size, compressed) >= LIMIT else n
                             for n in (compressed, size))]  # fmt: skip
        local = LOCAL.pack(magic, version, flags, method, time, date, *shown, names, len(extra))
        made: Pieces = [local + tail[:names] + extra, *data]
        if flags & DESCRIPTOR:
            layout = "<4sLQQ" if wide else "<4sLLL"
            made.append(struct.pack(layout, b"PK\x07\x08", sum_, compressed, size))
        return made, compressed, size, sum_

    def _compress(self, entry: ZipEntry, content: Content) -> tuple[Pieces, int]:
        """Return new content as the member's method has it."""
        if entry.method == STORED:
            return content.pieces, content.size
        if entry.method != DEFLATED:
            raise UnsupportedError(
                f"zip compression method {entry.method}", expected="0 or 8", where=self._span.name
            )
        deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
        data = deflater.compress(content.bytes()) + deflater.flush()
        return [data], len(data)

    def _places(self) -> tuple[int, int, bytes, bytes]:
        """Return offset and size of the directory, the end record and the wide one."""
        where = self._span.name
        tail_start = max(0, self._span.length - END.size - 0xFFFF)
        tail = self._span.read(tail_start)
        at = tail.rfind(b"PK\x05\x06")
        if at < 0 or len(tail) - at < END.size:
            raise CorruptError("zip archive has no end record", where=where)
        _, _, _, _, _, size, offset, comment = END.unpack_from(tail, at)
        end = tail[at : at + END.size + comment]
        locator_at, wide = tail_start + at - END64_LOCATOR.size, b""
        if locator_at >= 0:
            locator = END64_LOCATOR.unpack(self._span.read(locator_at, END64_LOCATOR.size))
            if locator[0] == b"PK\x06\x07":
                wide = self._span.read(locator[2], END64.size)
                if wide[:4] != b"PK\x06\x06":
                    raise CorruptError("zip64 end record is damaged", where=where)
                size, offset = END64.unpack(wide)[8:]
        return offset, size, end, wide

    def _entries(self) -> Iterator[ZipEntry]:
        data, at = self._span.read(self._start, self._size), 0
        last: dict[int, bytes] = {}
        while at < len(data):
            if len(data) - at < CENTRAL.size or data[at : at + 4] != b"PK\x01\x02":
                raise CorruptError("zip directory ends early", where=self._span.name)
            fields = CENTRAL.unpack_from(data, at)[1:]
            name_end = at + CENTRAL.size + fields[9]
            extra_end = name_end + fields[10]
            end = extra_end + fields[11]
            name, extra = data[at + CENTRAL.size : name_end], data[name_end:extra_end]
            size, compressed, offset = _wide(extra, fields[8], fields[7], fields[15])
            entry = ZipEntry(fields, name, extra, data[extra_end:end], offset, compressed, size)
            if offset in last or offset + LOCAL.size + compressed > self._start or end > len(data):
                raise CorruptError("members of a zip overlap", where=self._span.name)
            last[offset] = name
            yield entry
            at = end

    def _tail(self, start: int, size: int) -> bytes:
        """Return what ends an archive whose directory is at ``start``."""
        count, tail = len(self.entries), b""
        if self._wide_end or start + size >= LIMIT or count >= 0xFFFF:
            old = END64.unpack(self._wide_end) if self._wide_end else (b"", 0, 45, 45, 0, 0)
            tail = END64.pack(b"PK\x06\x06", 44, old[2], old[3], 0, 0, count, count, size, start)
            tail += END64_LOCATOR.pack(b"PK\x06\x07", 0, start + size, 1)
        few = min(count, 0xFFFF)
        comment = self._end[END.size :]
        end = END.pack(
            b"PK\x05\x06", 0, 0, few, few, min(size, LIMIT), min(start, LIMIT), len(comment)
        )
        return tail + end + comment


def _name(entry: ZipEntry) -> str:
    """Return a member's name as `ZipArchive` has it."""
    return entry.name.decode("utf-8", "backslashreplace")


def _central(entry: ZipEntry, offset: int, compressed: int, size: int, crc: int) -> bytes:
    """Return a member's entry in the central directory."""
    wide = [size, compressed] if max(size, compressed) >= LIMIT else []
    shown = [LIMIT, LIMIT] if wide else [compressed, size]
    if offset >= LIMIT:
        wide.append(offset)
    extra = struct.pack(f"<HH{len(wide)}Q", ZIP64, 8 * len(wide), *wide) if wide else b""
    kept = [(tag, body) for tag, body in _fields(entry.extra) if tag != ZIP64]
    extra += b"".join(struct.pack("<HH", tag, len(body)) + body for tag, body in kept)
    fields = list(entry.central)
    fields[6], fields[7], fields[8] = crc, *shown
    fields[10], fields[15] = len(extra), min(offset, LIMIT)
    return CENTRAL.pack(b"PK\x01\x02", *fields) + entry.name + extra + entry.comment


def _fields(extra: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and body of each extra field; a rest that is too short is ignored."""
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, at)
        yield tag, extra[at + 4 : at + 4 + length]
        at += 4 + length


def _wide(extra: bytes, size: int, compressed: int, offset: int) -> tuple[int, int, int]:
    """Return the three numbers, each from the zip64 field (4.5.3) where it says so."""
    body = next((body for tag, body in _fields(extra) if tag == ZIP64), b"")
    numbers = iter(struct.unpack(f"<{len(body) // 8}Q", body[: len(body) // 8 * 8]))
    return (
        next(numbers, size) if size == LIMIT else size,
        next(numbers, compressed) if compressed == LIMIT else compressed,
        next(numbers, offset) if offset == LIMIT else offset,
    )
