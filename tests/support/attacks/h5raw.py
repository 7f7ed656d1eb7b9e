"""HDF5 written structure by structure, so that any of them can lie.

Superblock of version 0, object headers of version 1 (no checksums) unless asked otherwise.
Spec: HDF5 File Format Specification 3.0; sections as there.
"""

import struct
from collections.abc import Iterable, Sequence

from formats.containers.hdf5.bytes import lookup3

NOWHERE = (1 << 64) - 1
F32 = struct.pack("<BBBBIHHBBBBI", 0x11, 0x20, 0x1F, 0, 4, 0, 32, 23, 8, 0, 23, 127)
U8 = struct.pack("<BBBBIHH", 0x10, 0, 0, 0, 1, 0, 8)
VLEN_TEXT = struct.pack("<BBBBI", 0x19, 1, 0, 0, 16) + struct.pack(
    "<BBBBIHH", 0x10, 0, 0, 0, 1, 0, 8
)
DATASPACE, LINK_INFO, DATATYPE, FILL, LINK, EXTERNAL, LAYOUT = 1, 2, 3, 5, 6, 7, 8
FILTERS, ATTRIBUTE, CONTINUATION, SYMBOLS = 11, 12, 16, 17


def padded(data: bytes, multiple: int = 8) -> bytes:
    return data + bytes(-len(data) % multiple)


def message(kind: int, body: bytes, flags: int = 0) -> bytes:
    body = padded(body)
    return struct.pack("<HHB3x", kind, len(body), flags) + body


def dataspace(*shape: int, maximum: Sequence[int] | None = None) -> bytes:
    flags = 0 if maximum is None else 1
    dims = struct.pack(f"<{len(shape)}Q", *shape)
    if maximum is not None:
        dims += struct.pack(f"<{len(shape)}Q", *maximum)
    return struct.pack("<BBB5x", 1, len(shape), flags) + dims


def fill(element: bytes) -> bytes:
    return struct.pack("<BBBBI", 2, 2, 0, 1, len(element)) + element


def compact(data: bytes, size: int | None = None) -> bytes:
    return struct.pack("<BBH", 3, 0, len(data) if size is None else size) + data


def contiguous(address: int, size: int) -> bytes:
    return struct.pack("<BBQQ", 3, 1, address, size)


def chunked(tree: int, chunk: Iterable[int], itemsize: int = 4) -> bytes:
    chunk = tuple(chunk)
    return struct.pack(f"<BBBQ{len(chunk) + 1}I", 3, 2, len(chunk) + 1, tree, *chunk, itemsize)


def implicit(address: int, chunk: Iterable[int], itemsize: int = 1) -> bytes:
    """Version 4: chunks lie back to back, without an index."""
    chunk = (*chunk, itemsize)
    head = struct.pack("<BBBBB", 4, 2, 0, len(chunk), 8)
    return head + struct.pack(f"<{len(chunk)}Q", *chunk) + struct.pack("<BQ", 2, address)


def pipeline(*filters: tuple[int, tuple[int, ...]]) -> bytes:
    out = struct.pack("<BB6x", 1, len(filters))
    for number, values in filters:
        out += struct.pack("<HHHH", number, 0, 0, len(values))
        out += struct.pack(f"<{len(values)}I", *values) + bytes(4 * (len(values) % 2))
    return out


def hard_link(name: str, address: int) -> bytes:
    data = name.encode()
    return struct.pack("<BBH", 1, 1, len(data)) + data + struct.pack("<Q", address)


def soft_link(name: str, path: str) -> bytes:
    data, target = name.encode(), path.encode()
    return struct.pack("<BBBH", 1, 9, 1, len(data)) + data + struct.pack("<H", len(target)) + target


def external_link(name: str, file: str, path: str) -> bytes:
    data, target = name.encode(), b"\0" + file.encode() + b"\0" + path.encode() + b"\0"
    return (
        struct.pack("<BBBH", 1, 9, 64, len(data)) + data + struct.pack("<H", len(target)) + target
    )


def attribute(name: str, kind: bytes, space: bytes, data: bytes) -> bytes:
    """Return an attribute message of version 1."""
    title = name.encode() + b"\0"
    head = struct.pack("<BxHHH", 1, len(title), len(kind), len(space))
    return head + padded(title) + padded(kind) + padded(space) + data


def chunk_key(offsets: Iterable[int], size: int, mask: int = 0) -> bytes:
    offsets = tuple(offsets)
    return struct.pack(f"<II{len(offsets) + 1}Q", size, mask, *offsets, 0)


class File:
    """A file being put together; every method returns an address."""

    def __init__(self) -> None:
        self.data = bytearray(96)

    def put(self, block: bytes) -> int:
        self.data += bytes(-len(self.data) % 8)
        address = len(self.data)
        self.data += block
        return address

    def header(self, *messages: bytes, count: int | None = None, size: int | None = None) -> int:
        body = b"".join(messages)
        n = min(len(messages), 0xFFFF) if count is None else count
        length = len(body) if size is None else size
        return self.put(struct.pack("<BxHII4x", 1, n, 1, length) + body)

    def new_header(self, body: bytes, checksum: int | None = None) -> int:
        """Return a header of version 2, with its checksum or another one."""
        block = b"OHDR" + struct.pack("<BBI", 2, 2, len(body)) + body
        return self.put(block + struct.pack("<I", lookup3(block) if checksum is None else checksum))

    def dataset(self, kind: bytes, space: bytes, layout: bytes, *more: bytes) -> int:
        return self.header(
            message(DATASPACE, space), message(DATATYPE, kind), message(LAYOUT, layout), *more
        )

    def group(self, links: dict[str, int], *more: bytes) -> int:
        info = message(LINK_INFO, struct.pack("<BBQQ", 0, 0, NOWHERE, NOWHERE))
        return self.header(info, *(message(LINK, hard_link(n, a)) for n, a in links.items()), *more)

    def tree(self, kind: int, level: int, pairs: Sequence[tuple[bytes, int]]) -> int:
        """Return a node of a version 1 B-tree."""
        body = b"".join(key + struct.pack("<Q", child) for key, child in pairs)
        last = pairs[-1][0] if pairs else b""
        head = struct.pack("<4sBBHQQ", b"TREE", kind, level, len(pairs), NOWHERE, NOWHERE)
        return self.put(head + body + last)

    def heap(self, text: bytes) -> int:
        """Return a local heap."""
        segment = self.put(padded(text))
        return self.put(struct.pack("<4sB3xQQQ", b"HEAP", 0, len(padded(text)), NOWHERE, segment))

    def symbols(self, entries: Sequence[tuple[int, int]]) -> int:
        """Return a symbol table node of names (offsets in a heap) and headers."""
        body = b"".join(struct.pack("<QQII16x", name, at, 0, 0) for name, at in entries)
        return self.put(struct.pack("<4sBxH", b"SNOD", 1, len(entries)) + body)

    def old_group(self, tree: int, heap: int) -> int:
        return self.header(message(SYMBOLS, struct.pack("<QQ", tree, heap)))

    def done(self, root: int, *, end: int | None = None) -> bytes:
        start = b"\x89HDF\r\n\x1a\n" + bytes(5) + b"\x08\x08\0" + struct.pack("<HHI", 4, 16, 0)
        size = len(self.data) if end is None else end
        start += struct.pack("<QQQQ", 0, NOWHERE, size, NOWHERE)
        start += struct.pack("<QQII16x", 0, root, 0, 0)
        self.data[:96] = start
        return bytes(self.data)
