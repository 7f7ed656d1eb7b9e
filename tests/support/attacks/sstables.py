"""SSTables, tensor bundles and SavedModels written by hand, with right checksums and wrong content.

Spec: https://github.com/google/leveldb/blob/1.23/doc/table_format.md and tensor_bundle.proto.
"""

import struct
from collections.abc import Mapping, Sequence

from attacks.protos import num, run, tag, varint

from formats.core.checksums import crc32c

MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
FLOAT, STRING, INT64 = 1, 7, 9

Entry = tuple[bytes, bytes]


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return (((crc >> 15 | crc << 17) & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


def block(entries: Sequence[Entry], restarts: Sequence[int] = (0,)) -> bytes:
    """Return a block; every key is written whole."""
    body = b"".join(varint(0) + varint(len(k)) + varint(len(v)) + k + v for k, v in entries)
    return body + struct.pack(f"<{len(restarts)}I", *restarts) + struct.pack("<I", len(restarts))


class Table:
    """A table being put together."""

    def __init__(self) -> None:
        self.data = bytearray()

    def put(self, content: bytes, compression: int = 0) -> bytes:
        """Write a block; return its handle."""
        handle = varint(len(self.data)) + varint(len(content))
        crc = masked(content + bytes([compression])) if len(content) <= 1 << 20 else 0
        self.data += content + struct.pack("<BI", compression, crc)
        return handle

    def done(self, index: bytes, meta: bytes = b"\0\0") -> bytes:
        """Return the file; ``index`` is the handle of its index block."""
        return bytes(self.data) + (meta + index).ljust(40, b"\0") + MAGIC


def table(entries: Sequence[Entry], per_block: int = 100) -> bytes:
    """Return a sound table."""
    out, index = Table(), []
    for i in range(0, len(entries), per_block):
        part = entries[i : i + per_block]
        index.append((part[-1][0], out.put(block(part))))
    return out.done(out.put(block(index)))


def shape(*sizes: int) -> bytes:
    return b"".join(run(2, num(1, n)) for n in sizes)


def header(shards: int = 1, more: bytes = b"") -> bytes:
    return num(1, shards) + more


def entry(
    kind: int = FLOAT, sizes: Sequence[int] = (3, 4), *, shard: int = 0, offset: int = 0,
    size: int = 48, slices: Sequence[bytes] = (), crc: int = 0,
) -> bytes:  # fmt: skip
    """Return a BundleEntryProto."""
    out = num(1, kind) + run(2, shape(*sizes)) + num(3, shard) + num(4, offset) + num(5, size)
    out += tag(6, 5) + struct.pack("<I", crc)
    return out + b"".join(run(7, s) for s in slices)


def tensor_slice(*extents: tuple[int, int]) -> bytes:
    return b"".join(run(1, num(1, a) + num(2, n)) for a, n in extents)


def bundle(
    entries: Mapping[bytes, bytes], data: bytes = bytes(48), start: bytes | None = None
) -> dict[str, bytes]:
    """Return the files of a checkpoint called ``ckpt``."""
    rows = [(b"", header() if start is None else start), *sorted(entries.items())]
    return {"ckpt.index": table(rows), "ckpt.data-00000-of-00001": data}


def node(
    name: str, op: str, attributes: Mapping[str, bytes] | None = None, more: bytes = b""
) -> bytes:
    out = run(1, name) + run(2, op) + more
    for key, value in (attributes or {}).items():
        out += run(5, run(1, key) + run(2, value))
    return run(1, out)


def constant(name: str, tensor: bytes, kind: int = FLOAT) -> bytes:
    return node(name, "Const", {"dtype": num(6, kind), "value": run(8, tensor)})


def tensor_proto(kind: int = FLOAT, sizes: Sequence[int] = (), more: bytes = b"") -> bytes:
    return num(1, kind) + run(2, shape(*sizes)) + more


def saved_model(graph: bytes, more: bytes = b"") -> bytes:
    meta = run(1, run(4, "serve") + run(5, "2.9.0"))
    return num(1, 1) + run(2, meta + run(2, graph) + more)
