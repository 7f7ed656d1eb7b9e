"""Zip archives written by hand, so that every field can lie.

Spec: APPNOTE.TXT 6.3.10
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

WIDE = 0xFFFFFFFF


@dataclass
class Entry:
    """One member; a field that is None is written as it should be."""

    name: bytes
    data: bytes = b""
    deflate: bool = False
    raw: bytes | None = None  # compressed bytes, written as they are
    crc: int | None = None
    packed: int | None = None
    size: int | None = None
    method: int | None = None
    flags: int = 0
    offset: int | None = None  # of the local header, as the directory says
    extra: bytes = b""  # in the directory
    local_extra: bytes = b""
    local_name: bytes | None = None
    mode: int = 0  # Unix mode, in the external attributes
    absent: bool = False  # only in the directory
    header: bytes = field(default=b"PK\x03\x04")


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def zeros(mebibytes: int) -> bytes:
    """Return that many zero bytes, deflated; each mebibyte is a block of its own."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * mebibytes + b"\x03\x00"


def zip_of(
    entries: Sequence[Entry],
    *,
    count: int | None = None,
    size: int | None = None,
    offset: int | None = None,
    comment: bytes = b"",
    end64: tuple[int, int, int] | None = None,
    locator: int | None = None,
) -> bytes:
    """Return the archive; the keywords are lies of its end records."""
    body, directory = bytearray(), bytearray()
    for e in entries:
        raw = e.raw if e.raw is not None else deflated(e.data) if e.deflate else e.data
        method = e.method if e.method is not None else 8 if e.deflate or e.raw is not None else 0
        crc = e.crc if e.crc is not None else zlib.crc32(e.data)
        packed = len(raw) if e.packed is None else e.packed
        full = len(e.data) if e.size is None else e.size
        at = len(body) if e.offset is None else e.offset
        name = e.name if e.local_name is None else e.local_name
        if not e.absent:
            body += e.header + struct.pack(
                "<5H3L2H", 20, e.flags, method, 0, 0, crc, packed & WIDE, full & WIDE, len(name),
                len(e.local_extra),
            ) + name + e.local_extra + raw  # fmt: skip
        directory += struct.pack(
            "<4s6H3L5H2L", b"PK\x01\x02", 0x0314, 20, e.flags, method, 0, 0, crc, packed & WIDE,
            full & WIDE, len(e.name), len(e.extra), 0, 0, 0, e.mode << 16, at & WIDE,
        ) + e.name + e.extra  # fmt: skip
    n = len(entries) if count is None else count
    start = len(body) if offset is None else offset
    length = len(directory) if size is None else size
    tail = bytearray()
    if end64 is not None:
        place = len(body) + len(directory)
        tail += struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, end64[0], *end64)
        tail += struct.pack("<4sLQL", b"PK\x06\x07", 0, place if locator is None else locator, 1)
        n, length, start = 0xFFFF, WIDE, WIDE
    tail += struct.pack(
        "<4s4H2LH", b"PK\x05\x06", 0, 0, n & 0xFFFF, n & 0xFFFF, length & WIDE, start & WIDE,
        len(comment),
    ) + comment  # fmt: skip
    return bytes(body + directory + tail)


def zip64(*values: int) -> bytes:
    return struct.pack(f"<HH{len(values)}Q", 1, 8 * len(values), *values)
