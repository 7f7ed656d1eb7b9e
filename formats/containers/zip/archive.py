"""Zip archives as maps from member name to bytes: read only, stored or deflated.

Spec: APPNOTE.TXT 6.3.10, https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
Only what model files use: no encryption, no multi-disk sets, no method but 0 and 8. A member's CRC
is checked when it is inflated; a stored member is a span and is not read here.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import cached_property
from threading import Lock
from types import MappingProxyType
from typing import IO, NamedTuple

from formats.core import checksums
from formats.core.storage import Span
from formats.core.weights import CHUNK, split
from formats.errors import CorruptError, LimitError, StorageError, UnsupportedError
from formats.limits import Limits

LOCAL_MAGIC = b"PK\x03\x04"

END = struct.Struct("<4s4H2LH")  # 4.3.16
END64_LOCATOR = struct.Struct("<4sLQL")  # 4.3.15
END64 = struct.Struct("<4sQ2H2L4Q")  # 4.3.14
CENTRAL = struct.Struct("<4s6H3L5H2L")  # 4.3.12
LOCAL = struct.Struct("<4s5H3L2H")  # 4.3.7

STORED, DEFLATED = 0, 8


class Member(NamedTuple):
    """One entry of the central directory."""

    name: str
    archive: Span
    header_offset: int
    compressed: int
    size: int
    method: int
    flags: int
    crc: int

    @property
    def is_stored(self) -> bool:
        """Whether the bytes are in the file as they are."""
        return self.method == STORED

    def raw(self) -> Span:
        """Return the bytes as they are in the file.

        Raises:
            CorruptError: The local header is missing, or points outside the archive.
            UnsupportedError: The member is encrypted.
        """
        header = LOCAL.unpack(self.archive.read(self.header_offset, LOCAL.size))
        if header[0] != LOCAL_MAGIC:
            raise CorruptError(
                f"member {self.name!r} has no local header",
                where=self.archive.name,
                offset=self.header_offset,
            )
        if self.flags & 1:
            raise UnsupportedError(f"member {self.name!r} is encrypted", where=self.archive.name)
        start = self.header_offset + LOCAL.size + header[9] + header[10]
        return self.archive.sub(start, self.compressed)

    def span(self) -> Span:
        """Return the member's bytes; a deflated member is inflated as it is read.

        Raises:
            UnsupportedError: Neither stored nor deflated.
        """
        raw = self.raw()
        if self.method == STORED:
            if self.compressed != self.size:
                raise CorruptError(
                    f"stored member {self.name!r} has two sizes, {self.compressed} and {self.size}",
                    where=self.archive.name,
                )
            checksums.record(raw, "crc32", self.crc, self.name)
            return raw
        if self.method != DEFLATED:
            raise UnsupportedError(
                f"member {self.name!r} uses zip compression method {self.method}",
                expected="stored (0) or deflated (8)",
                where=self.archive.name,
            )
        return Span.whole(Inflated(raw, self.size, self.crc, f"{self.archive.name}!{self.name}"))

    def read(self, limit: int) -> bytes:
        """Return all bytes of a member that is metadata.

        Raises:
            LimitError: There are more than ``limit``.
        """
        if self.size > limit:
            raise LimitError(
                f"member {self.name!r} has {self.size} bytes",
                expected=f"at most {limit}",
                where=self.archive.name,
            )
        return self.span().read()


class Inflated:
    """A deflated run of bytes, read at any offset.

    Reading forward inflates little by little and keeps nothing. A reader that keeps going back
    (HDF5 inside a zip) makes it spool the whole into an unnamed temporary file, once.
    """

    def __init__(self, raw: Span, size: int, crc: int, name: str) -> None:
        self.name = name
        self.size = size
        self._raw = raw
        self._crc = crc
        self._stream: Iterator[bytes] = iter(())
        self._position = -1  # of the first byte of _ahead
        self._ahead = b""
        self._restarts = 0
        self._lock = Lock()
        self._spool: IO[bytes] | None = None

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` inflated bytes from ``offset``."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise CorruptError(
                f"{length} bytes wanted, but there are {self.size}", where=self.name, offset=offset
            )
        with self._lock:
            if self._spool is None and (self._position < 0 or offset < self._position):
                self._restarts += 1
                if self._restarts > 2:
                    self._spool = self._spool_member()
                else:
                    self._stream, self._position, self._ahead = self._inflate(), 0, b""
            if self._spool is not None:
                self._spool.seek(offset)
                return self._spool.read(length)
            return self._forward(offset, length)

    def readinto(self, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from ``offset``."""
        buffer[:] = self.read(offset, len(buffer))

    def _spool_member(self) -> IO[bytes]:
        import tempfile  # it brings shutil and random, and is seldom needed

        with ExitStack() as on_failure:
            spool = on_failure.enter_context(tempfile.TemporaryFile())
            try:
                for chunk in self._inflate():
                    spool.write(chunk)
            except OSError as e:
                raise StorageError.writing(tempfile.gettempdir(), e) from e
            on_failure.pop_all()
        return spool

    def __del__(self) -> None:
        if self._spool is not None:
            self._spool.close()

    def _forward(self, offset: int, length: int) -> bytes:
        parts, wanted = [], length
        while True:
            skip = offset - self._position
            if skip < len(self._ahead) or not wanted:
                part = self._ahead[skip : skip + wanted]
                parts.append(part)
                offset += len(part)
                wanted -= len(part)
                if not wanted:
                    return b"".join(parts)
            self._position += len(self._ahead)
            self._ahead = next(self._stream, b"")
            if not self._ahead:
                raise CorruptError("deflated data ends early", where=self.name)

    def _inflate(self) -> Iterator[bytes]:
        """Yield the inflated bytes; the last ones only after the CRC of all was found right."""
        left, crc, held = self.size, 0, b""
        for chunk in filter(None, self._chunks()):
            left -= len(chunk)
            if left < 0:
                raise CorruptError(f"inflates to more than its {self.size} bytes", where=self.name)
            crc = zlib.crc32(chunk, crc)
            if held:
                yield held
            held = chunk
        if left or crc != self._crc:
            raise CorruptError("deflated data ends early or fails its CRC", where=self.name)
        if held:
            yield held

    def _chunks(self) -> Iterator[bytes]:
        inflater = zlib.decompressobj(-15)
        try:
            for data in split(self._raw):
                while data and not inflater.eof:
                    yield inflater.decompress(data, CHUNK)
                    data = inflater.unconsumed_tail
            yield inflater.flush()
        except zlib.error as e:
            raise CorruptError(f"cannot be inflated: {e}", where=self.name) from e


class ZipArchive:
    """The central directory of one archive."""

    def __init__(self, archive: Span, limits: Limits) -> None:
        """Read the directory.

        Raises:
            CorruptError: There is no directory, or it contradicts itself.
            LimitError: It has too many entries.
        """
        self.name = archive.name
        self._archive = archive
        self._limits = limits
        self.members: Mapping[str, Member] = MappingProxyType(self._directory())

    def __contains__(self, name: str) -> bool:
        return name in self.members

    def read(self, name: str, limit: int | None = None) -> bytes:
        """Return a metadata member whole.

        Raises:
            CorruptError: There is no such member.
            LimitError: It is larger than ``limit`` (default: `Limits.max_inflated_bytes`).
        """
        return self[name].read(self._limits.max_inflated_bytes if limit is None else limit)

    def __getitem__(self, name: str) -> Member:
        try:
            return self.members[name]
        except KeyError:
            raise CorruptError(f"the archive has no member {name!r}", where=self.name) from None

    @cached_property
    def root(self) -> str | None:
        """The one folder that all members lie in, or None (torch's archives have one)."""
        roots = {name.split("/", 1)[0] for name in self.members if "/" in name}
        alone = any("/" not in name for name in self.members)
        return roots.pop() if len(roots) == 1 and not alone else None

    def _directory(self) -> dict[str, Member]:
        tail_start = max(0, self._archive.length - END.size - 0xFFFF)
        tail = self._archive.read(tail_start)
        count, size, offset = self._end(tail, tail_start)
        if count > self._limits.max_members or size > self._limits.max_header_bytes:
            raise LimitError(
                f"zip directory of {count} members, {size} bytes",
                expected=f"at most {self._limits.max_members}",
                where=self.name,
            )
        data = tail[offset - tail_start :][:size]  # where that holds all of it
        if offset < tail_start or len(data) < size:
            data = self._archive.read(offset, size)
        members: dict[str, Member] = {}
        at = 0
        for _ in range(count):
            if len(data) - at < CENTRAL.size or data[at : at + 4] != b"PK\x01\x02":
                raise CorruptError("zip directory ends early", where=self.name, offset=offset + at)
            entry = CENTRAL.unpack_from(data, at)
            flags, method, crc, packed, full = entry[3], entry[4], entry[7], entry[8], entry[9]
            name_end = at + CENTRAL.size + entry[10]
            extra_end = name_end + entry[11]
            at_next = extra_end + entry[12]
            if at_next > len(data):
                raise CorruptError("zip directory ends early", where=self.name, offset=offset + at)
            raw_name = data[at + CENTRAL.size : name_end]
            name = raw_name.decode("utf-8", "backslashreplace")
            full, packed, header = _zip64(
                data[name_end:extra_end], full, packed, entry[16], self.name
            )
            at = at_next
            if name.endswith("/"):
                continue
            member = Member(name, self._archive, header, packed, full, method, flags, crc)
            if members.setdefault(name, member) != member:
                raise CorruptError(f"two zip members are named {name!r}", where=self.name)
        return members

    def _end(self, tail: bytes, tail_start: int) -> tuple[int, int, int]:
        """Return number of entries, bytes and offset of the central directory."""
        at = tail.rfind(b"PK\x05\x06")
        if at < 0 or len(tail) - at < END.size:
            raise CorruptError(
                "zip archive has no end record",
                where=self.name,
                hint="The file is probably truncated",
            )
        end = END.unpack_from(tail, at)
        count, size, offset = end[4], end[5], end[6]
        locator_at = tail_start + at - END64_LOCATOR.size
        if locator_at >= 0 and (count == 0xFFFF or 0xFFFFFFFF in (size, offset)):
            locator = END64_LOCATOR.unpack(self._archive.read(locator_at, END64_LOCATOR.size))
            if locator[0] == b"PK\x06\x07":
                end64 = END64.unpack(self._archive.read(locator[2], END64.size))
                if end64[0] != b"PK\x06\x06":
                    raise CorruptError("zip64 end record is damaged", where=self.name)
                count, size, offset = end64[7], end64[8], end64[9]
        return count, size, offset


def _zip64(
    extra: bytes, size: int, compressed: int, header: int, where: str
) -> tuple[int, int, int]:
    """Return the three numbers, each taken from the zip64 extra field (4.5.3) where it says so."""
    wide = [n == 0xFFFFFFFF for n in (size, compressed, header)]
    if not any(wide):
        return size, compressed, header
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, at)
        if tag == 1 and at + 4 + length <= len(extra) and length >= 8 * sum(wide):
            values = iter(struct.unpack_from(f"<{sum(wide)}Q", extra, at + 4))
            numbers = [
                next(values) if w else n
                for n, w in zip((size, compressed, header), wide, strict=True)
            ]
            return numbers[0], numbers[1], numbers[2]
        at += 4 + length
    raise CorruptError("a zip64 member lacks its sizes", where=where)
