"""Sorted string tables, the LevelDB files that TensorFlow keeps checkpoints in.

Spec: https://github.com/google/leveldb/blob/1.23/doc/table_format.md
A value is a span of the file where its block is not compressed, so that the tensors of a V1
checkpoint, which are values, stay in the file. Keys come in their order, each once.
"""

import struct
from collections.abc import Iterator

from formats.containers.protobuf.packed import varint
from formats.core import checksums
from formats.core.storage import Buffer, Span
from formats.errors import CorruptError, LimitError, UnsupportedError
from formats.limits import Limits
from formats.tensorflow import snappy

MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
FOOTER = 48  # bytes
TRAILER = 5  # bytes behind each block: compression, masked CRC-32C
_WINDOW = 1 << 16
_SNAPPY = 64  # inflated bytes that a compressed one counts as, for the time it takes


def has_magic(span: Span) -> bool:
    """Return whether the file ends like a table."""
    return span.length >= FOOTER and span.read(span.length - len(MAGIC)) == MAGIC


class Table:
    """One table, read from its index block."""

    def __init__(self, span: Span, limits: Limits) -> None:
        """Read the footer.

        Raises:
            CorruptError: It is no table.
        """
        self._span = span
        self._limits = limits
        self._inflatable = limits.max_inflated_bytes  # values keep their blocks alive
        self._checkable = limits.max_checked_bytes
        if not has_magic(span):
            raise CorruptError(
                "does not end like an SSTable",
                where=span.name,
                hint="The file is probably truncated",
            )
        footer = span.read(span.length - FOOTER, FOOTER)
        try:
            _, at = varint(footer, 0)  # the meta-index block, of which TensorFlow uses nothing
            _, at = varint(footer, at)
            offset, at = varint(footer, at)
            size, at = varint(footer, at)
        except (IndexError, ValueError) as e:
            raise CorruptError("the footer of the SSTable is damaged", where=span.name) from e
        self._index = self._block(offset, size)

    def items(self) -> Iterator[tuple[bytes, Span]]:
        """Yield every key and value.

        Raises:
            CorruptError: A block is damaged or the keys are out of order.
            LimitError: There are too many entries.
        """
        last: bytes | None = None
        entries = key_bytes = end = 0
        for _, handle in self._entries(self._index):
            data = handle.read()
            try:
                offset, at = varint(data, 0)
                size, at = varint(data, at)
            except (IndexError, ValueError) as e:
                raise CorruptError("a block handle is damaged", where=self._span.name) from e
            if offset < end:  # a writer appends; one block twice would be work without end
                raise CorruptError("blocks are out of order", where=self._span.name)
            end = offset + size
            for key, value in self._entries(self._block(offset, size)):
                if last is not None and key <= last:
                    raise CorruptError("keys are out of order", where=self._span.name)
                last = key
                entries += 1
                key_bytes += len(key)
                if entries > self._limits.max_tensors or key_bytes > self._limits.max_header_bytes:
                    raise LimitError(
                        f"an SSTable of more than {entries - 1} entries", where=self._span.name
                    )
                yield key, value

    def _block(self, offset: int, size: int) -> Span:
        """Return a block's contents."""
        if offset + size + TRAILER > self._span.length:
            raise CorruptError(
                f"a block of {size} bytes does not fit into the file",
                where=self._span.name,
                offset=offset,
                hint="The file is probably truncated",
            )
        block = self._span.sub(offset, size)
        compression, stored = struct.unpack("<BI", self._span.read(offset + size, TRAILER))
        if size <= min(self._limits.max_checked_block_bytes, self._checkable):
            self._checkable -= size
            data = block.read()
            if checksums.mask(checksums.crc32c(data + bytes([compression]))) != stored:
                raise CorruptError(
                    "a block fails its checksum",
                    where=self._span.name,
                    offset=offset,
                    hint="The file was damaged after it was written",
                )
        if compression == 0:
            return block
        if compression != 1:
            raise UnsupportedError(
                f"an SSTable block is compressed by method {compression}",
                expected="none (0) or snappy (1)",
                where=self._span.name,
            )
        name = f"{self._span.name}@{offset}"
        self._inflatable -= _SNAPPY * size
        data = snappy.decompress(block.read(), limit=self._inflatable, where=name)
        self._inflatable -= len(data)
        return Span.whole(Buffer(data, name))

    def _entries(self, block: Span) -> Iterator[tuple[bytes, Span]]:
        """Yield the entries of a block; values are not read."""
        where = block.name
        if block.length < 4:
            raise CorruptError("a block is too short", where=where, offset=block.offset)
        (restarts,) = struct.unpack("<I", block.read(block.length - 4))
        end = block.length - 4 - 4 * restarts
        if end < 0:
            raise CorruptError("a block's restarts do not fit", where=where, offset=block.offset)
        key = b""
        base, data, at = 0, block.read(0, min(end, _WINDOW)), 0
        while base + at < end:
            if at + 30 > len(data) and base + len(data) < end:
                base, at = base + at, 0
                data = block.read(base, min(end - base, _WINDOW))
            try:
                shared, at = varint(data, at)
                fresh, at = varint(data, at)
                size, at = varint(data, at)
            except (IndexError, ValueError) as e:
                raise CorruptError("a block ends early", where=where, offset=block.offset) from e
            if shared > len(key) or base + at + fresh + size > end:
                raise CorruptError(
                    "an entry does not fit into its block", where=where, offset=block.offset
                )
            if shared + fresh > self._limits.max_key_bytes:
                raise LimitError(f"a key of {shared + fresh} bytes", where=where)
            part = data[at : at + fresh]
            if len(part) < fresh:
                part = block.read(base + at, fresh)
            key = key[:shared] + part
            at += fresh
            yield key, block.sub(base + at, size)
            at += size
