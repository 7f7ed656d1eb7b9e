"""Local headers and the central directory of zip archives whose members are stored.

Spec: APPNOTE.TXT 6.3.10, https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
A member's CRC is known once it was written: its local header is then written again over itself,
so that no data descriptor is needed. All dates are the same: equal content gives equal bytes.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from formats.containers.zip.archive import CENTRAL, END, END64, END64_LOCATOR, LOCAL, LOCAL_MAGIC

LIMIT = 0xFFFFFFFF  # from here on zip64 says how much it is
UTF8 = 1 << 11  # 4.4.4
DATE = (1980 - 1980) << 9 | 1 << 5 | 1


@dataclass(frozen=True, slots=True)
class Stored:
    """A member whose place and size are known.

    Attributes:
        name: In the archive.
        offset: Of its local header.
        size: Of its data, in bytes.
        crc: Of its data; any number before that is known.
    """

    name: str
    offset: int
    size: int
    crc: int = 0

    def local(self) -> bytes:
        """Return the local header, of the same length whatever the CRC."""
        name, large = self.name.encode(), self.size >= LIMIT
        extra = struct.pack("<HHQQ", 1, 16, self.size, self.size) if large else b""
        size = LIMIT if large else self.size
        version = 45 if large else 20
        return (
            LOCAL.pack(LOCAL_MAGIC, version, UTF8, 0, 0, DATE, self.crc, size, size,
                       len(name), len(extra))
            + name + extra
        )  # fmt: skip

    def central(self) -> bytes:
        """Return the entry of the central directory."""
        name = self.name.encode()
        wide = [n for n in (self.size, self.size, self.offset) if n >= LIMIT]
        extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
        size, version = min(self.size, LIMIT), 45 if wide else 20
        return (
            CENTRAL.pack(b"PK\x01\x02", version, version, UTF8, 0, 0, DATE, self.crc, size, size,
                         len(name), len(extra), 0, 0, 0, 0, min(self.offset, LIMIT))
            + name + extra
        )  # fmt: skip


def directory(members: Sequence[Stored], offset: int) -> bytes:
    """Return the central directory and what ends an archive.

    Args:
        members: All of them.
        offset: Where the directory will be.
    """
    entries = b"".join(member.central() for member in members)
    count, tail = len(members), b""
    if offset + len(entries) >= LIMIT or count >= 0xFFFF:
        place = offset + len(entries)
        tail = END64.pack(b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(entries), offset)
        tail += END64_LOCATOR.pack(b"PK\x06\x07", 0, place, 1)
    few, size, start = min(count, 0xFFFF), min(len(entries), LIMIT), min(offset, LIMIT)
    return entries + tail + END.pack(b"PK\x05\x06", 0, 0, few, few, size, start, 0)
