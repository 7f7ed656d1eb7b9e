"""Writes SSTables and tensor bundles for tests: what TensorFlow can read, but no longer writes."""

import struct

from formats.core.checksums import crc32c
from formats.tensorflow.sstable import MAGIC

VARINT, I64, LEN, I32 = 0, 1, 2, 5


def number(n):
    n &= (1 << 64) - 1
    return bytes([n & 127 | 128]) + number(n >> 7) if n > 127 else bytes([n])


def field(at, value):
    """Return one protobuf field: a number, or bytes."""
    if isinstance(value, int):
        return number(at << 3 | VARINT) + number(value)
    return number(at << 3 | LEN) + number(len(value)) + value


def snappy(data):
    """Compress, badly: literals, and copies of what was four or 2000 bytes before."""
    out, at = bytearray(number(len(data))), 0
    while at < len(data):
        for distance in (4, 2000):
            length = 0
            while (
                at >= distance
                and length < 60
                and at + length < len(data)
                and data[at + length] == data[at + length - distance]
            ):
                length += 1
            if length >= 4:
                if distance < 2048 and length < 12:
                    out += bytes([1 | (length - 4) << 2 | distance >> 8 << 5, distance & 255])
                else:
                    out += bytes([2 | (length - 1) << 2]) + struct.pack("<H", distance)
                at += length
                break
        else:
            run = min(100, len(data) - at)
            out += bytes([60 << 2, run - 1]) + data[at : at + run]
            at += run
    return bytes(out)


def block(entries, *, restart_every=16):
    out, restarts, last = bytearray(), [], b""
    for i, (key, value) in enumerate(entries):
        shared = 0
        if i % restart_every == 0:
            restarts.append(len(out))
        else:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        out += number(shared) + number(len(key) - shared) + number(len(value))
        out += key[shared:] + value
        last = key
    restarts = restarts or [0]
    return (
        bytes(out) + struct.pack(f"<{len(restarts)}I", *restarts) + struct.pack("<I", len(restarts))
    )


def masked_crc(data):
    crc = crc32c(data)
    return (((crc >> 15 | crc << 17) & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


def table(entries, *, per_block=3, compressed=False, crc=True):
    """Return an SSTable of sorted (key, value) pairs; without ``crc`` large blocks have none."""
    out, index = bytearray(), []

    def add(contents):
        kind = int(compressed)
        stored = snappy(contents) if compressed else contents
        masked = masked_crc(stored + bytes([kind])) if crc or len(stored) < 1 << 20 else 0
        handle = number(len(out)) + number(len(stored))
        out.extend(stored + bytes([kind]) + struct.pack("<I", masked))
        return handle

    for i in range(0, len(entries), per_block):
        part = entries[i : i + per_block]
        index.append((part[-1][0], add(block(part))))
    meta, main = add(block([])), add(block(index, restart_every=1))
    footer = meta + main
    return bytes(out) + footer + bytes(40 - len(footer)) + MAGIC


def shape(sizes):
    return b"".join(field(2, field(1, n)) for n in sizes)


def header(*, shards=1, big=False):
    return field(1, shards) + (field(2, 1) if big else b"") + field(3, field(1, 1))


def entry(kind, sizes, *, offset=0, size=0, shard=0, data=b"", slices=()):
    out = field(1, kind) + field(2, shape(sizes))
    out += (field(3, shard) if shard else b"") + field(4, offset) + field(5, size)
    if data:
        out += number(6 << 3 | I32) + struct.pack("<I", masked_crc(data))
    for extents in slices:
        parts = b"".join(
            field(1, (field(1, a) if a else b"") + (field(2, n) if n >= 0 else b""))
            for a, n in extents
        )
        out += field(7, parts)
    return out


def tensor_bundle(folder, entries, data, **kw):
    """Write a bundle of one data file; return its prefix."""
    pairs = [(b"", header(big=kw.pop("big", False)))]
    pairs += sorted((k.encode() if isinstance(k, str) else k, v) for k, v in entries.items())
    (folder / "c.index").write_bytes(table(pairs, **kw))
    (folder / "c.data-00000-of-00001").write_bytes(data)
    return folder / "c"
