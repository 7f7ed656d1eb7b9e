"""Zip records laid out as torch's own writer does, byte for byte.

Every record is stored, and its data begins at a multiple of 64 bytes: an extra field ``FB`` pads
the local header. Sizes and CRC follow the data in a descriptor, so a header never has to be
written twice, and all offsets are known before anything is read. torch computes the
places of storages from these very sizes (``calculate_storage_offsets``), so none may differ.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/caffe2/serialize/inline_container.cc
(``getPadding``), and miniz.c of its third_party/miniz-3.0.2 (``mz_zip_writer_add_mem_ex_v2``)
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from formats.containers.zip.archive import CENTRAL, END, END64, END64_LOCATOR, LOCAL, LOCAL_MAGIC
from formats.containers.zip.writer import LIMIT, UTF8

ALIGNMENT = 64  # bytes
HAS_DESCRIPTOR = 1 << 3  # 4.4.4
_FEW = struct.Struct("<4s3L")  # a data descriptor; 4.3.9
_MANY = struct.Struct("<4sL2Q")
MADE_BY, NEEDED = 0x031E, 45  # what miniz says of the archive as a whole


@dataclass(frozen=True, slots=True)
class Record:
    """One record whose place and size are known.

    Attributes:
        name: In the archive.
        offset: Of its local header.
        size: Of its data, in bytes.
        spare: Further bytes of padding before the data, a multiple of `ALIGNMENT`.
    """

    name: str
    offset: int
    size: int
    spare: int = 0

    @property
    def header(self) -> bytes:
        """The local header with its padding; the data follows."""
        name, wide = self.name.encode(), self._wide
        padding = -(self.offset + LOCAL.size + len(name) + len(wide) + 4) % ALIGNMENT
        padding += self.spare
        extra = wide + struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        return (
            LOCAL.pack(LOCAL_MAGIC, 0, self._flags, 0, 0, 0, 0, 0, 0, len(name), len(extra))
            + name + extra
        )  # fmt: skip

    @property
    def start(self) -> int:
        """Position of the data."""
        return self.offset + len(self.header)

    @property
    def end(self) -> int:
        """Position behind the record."""
        return self.start + self.size + len(self.descriptor(0))

    def descriptor(self, crc: int) -> bytes:
        """Return what follows the data; nothing follows none."""
        if not self.size:
            return b""
        layout = _MANY if self._wide else _FEW
        return layout.pack(b"PK\x07\x08", crc, self.size, self.size)

    def central(self, crc: int) -> bytes:
        """Return the entry of the central directory."""
        name, wide, size = self.name.encode(), self._wide, min(self.size, LIMIT)
        return (
            CENTRAL.pack(b"PK\x01\x02", 0, 0, self._flags, 0, 0, 0, crc, size, size, len(name),
                         len(wide), 0, 0, 0, 0, min(self.offset, LIMIT))
            + name + wide
        )  # fmt: skip

    @property
    def _flags(self) -> int:
        return UTF8 | (HAS_DESCRIPTOR if self.size else 0)

    @property
    def _wide(self) -> bytes:
        """The zip64 extra field, the same in both headers; nothing where 32 bits will do."""
        numbers = [self.size, self.size] if self.size >= LIMIT else []
        numbers += [self.offset] if self.offset >= LIMIT else []
        if not numbers:
            return b""
        return struct.pack(f"<HH{len(numbers)}Q", 1, 8 * len(numbers), *numbers)


def directory(records: Sequence[Record], crcs: Sequence[int], offset: int) -> bytes:
    """Return the central directory and what ends an archive, zip64 whatever its size.

    Args:
        records: All of them.
        crcs: Of their data.
        offset: Where the directory will be.
    """
    entries = b"".join(r.central(crc) for r, crc in zip(records, crcs, strict=True))
    count, size = len(records), len(entries)
    few = min(count, 0xFFFF)
    return (
        entries
        + END64.pack(b"PK\x06\x06", 44, MADE_BY, NEEDED, 0, 0, count, count, size, offset)
        + END64_LOCATOR.pack(b"PK\x06\x07", 0, offset + size, 1)
        + END.pack(b"PK\x05\x06", 0, 0, few, few, min(size, LIMIT), min(offset, LIMIT), 0)
    )
