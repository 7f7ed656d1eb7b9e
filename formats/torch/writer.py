"""A writer of ``torch.save`` files: a pickle, its storages, and the small records.

The archive is laid out before anything is read, so that the output can be compared while it is
written. Records are in torch's order, in the folder that torch names ``archive`` by default.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/serialization.py (``_save``)
"""

import hashlib
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from formats.core.output import SMALL, Output, merge_pieces
from formats.core.storage import Blocks, File, Span
from formats.core.weights import Tensor
from formats.torch.zip_records import ALIGNMENT, Record, directory

FOLDER = "archive/"
FORMAT_VERSION = b"1"  # storages are in the order of their numbers
ARCHIVE_VERSION = b"3\n"
ID_DIGITS = 40
PAGE = 4096  # bytes


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of one storage.

    Attributes:
        tensor: They, as a row of uint8.
        crc: Of all of them, where that is known; else it is computed on the way.
    """

    tensor: Tensor
    crc: int | None = None


class Archive:
    """A file of torch that can be written.

    Attributes:
        records: All of them, in order.
        storages: Those of the storages, by number.
        nbytes: Size of the file.
    """

    def __init__(self, pickle: bytes, contents: Sequence[Content]) -> None:
        """Lay out a file.

        Args:
            pickle: Names storage ``n`` as ``str(n)``.
            contents: The storages in the order of their numbers.
        """
        self.contents = tuple(contents)
        self._small = {
            "data.pkl": pickle,
            ".format_version": FORMAT_VERSION,
            ".storage_alignment": str(ALIGNMENT).encode(),
            "byteorder": b"little",
        }
        sizes = [(name, len(data)) for name, data in self._small.items()]
        sizes += [(f"data/{n}", c.tensor.nbytes) for n, c in enumerate(self.contents)]
        sizes += [("version", len(ARCHIVE_VERSION)), (".data/serialization_id", ID_DIGITS)]
        self.records: list[Record] = []
        at = 0
        for name, size in sizes:
            self.records.append(Record(FOLDER + name, at, size))
            at = self.records[-1].end
            if len(self.records) == len(self._small):
                at = self._in_phase(*sizes[len(self._small)])
        self.storages = self.records[len(self._small) : -2]
        self.crcs: list[int] = []
        self._end = at
        self.nbytes = at + len(directory(self.records, [0] * len(self.records), at))

    @property
    def start(self) -> int:
        """Position of the first byte of a storage; of the next member if it is empty."""
        return (self.storages or self.records[-2:])[0].start

    def write(self, out: Output, blocks: Blocks) -> Iterator[int]:
        """Write the file, yielding after each write the position up to which it is there.

        Args:
            out: Where to; nothing is written there yet.
            blocks: Through which files are read whose bytes have to be looked at.

        Raises:
            StorageError: The disk is full, or fails.
            SourceError: A source file became shorter.
            CorruptError: A source file's data is damaged.
        """
        records = iter(self.records)
        self.crcs = []
        for data in self._small.values():
            self._put(out, next(records), data)
        for content, record in zip(self.contents, records, strict=False):
            out.write(record.header)
            crc = content.crc
            if crc is None:
                crc = 0
                for piece in content.tensor.pieces():
                    views = blocks.views(piece) if isinstance(piece, Span) else (piece,)
                    for view in views:
                        crc = zlib.crc32(view, crc)
                        out.write(view)
                        yield out.written
            else:
                for _ in out.append(content.tensor.pieces(), blocks):
                    yield out.written
            out.write(record.descriptor(crc))
            self.crcs.append(crc)
        self._put(out, self.records[-2], ARCHIVE_VERSION)
        self._put(out, self.records[-1], self._id())
        out.write(directory(self.records, self.crcs, self._end))
        out.flush()
        yield out.written

    def append(self, path: Path, name: str, data: bytes, *, sync: bool) -> None:
        """Put one more record behind the others of a file that was written.

        Raises:
            StorageError: The disk is full, or fails.
        """
        record = Record(FOLDER + name, self._end, len(data))
        with Output(path, at=self._end) as out:
            self._put(out, record, data)
            self.records.append(record)
            self._end = record.end
            out.write(directory(self.records, self.crcs, self._end))
            self.nbytes = out.position
            if sync:
                out.sync()

    def _in_phase(self, following: str, size: int) -> int:
        """Pad the record before the storages until these are in their pages as at the source.

        Whole pages are copied in two thirds of the time. The others follow the first storage in
        the same steps as in the source, and torch looks for none but the first.
        """
        last = self.records[-1]
        if self.contents:
            pieces = merge_pieces(self.contents[0].tensor.pieces())
            run = next((p for p in pieces if isinstance(p, Span) and p.length >= SMALL), None)
            if run is not None and isinstance(run.storage, File):
                start = Record(FOLDER + following, last.end, size).start
                spare = (run.offset - start) % PAGE // ALIGNMENT * ALIGNMENT
                self.records[-1] = replace(last, spare=spare)
        return self.records[-1].end

    def _put(self, out: Output, record: Record, data: bytes) -> None:
        crc = zlib.crc32(data)
        out.write(record.header + data + record.descriptor(crc))
        self.crcs.append(crc)

    def _id(self) -> bytes:
        """Return a number that says which content this is: half of names, half of CRCs, as torch's.

        torch hashes both with a hash of its compiler's library, and never checks them.
        """
        names = "\n".join(record.name for record in self.records[:-1]).encode()
        first = int.from_bytes(hashlib.sha256(names).digest()[:8], "little")
        second = zlib.crc32(struct.pack(f"<{len(self.crcs)}L", *self.crcs))
        return f"{first:020d}{second:020d}".encode()
