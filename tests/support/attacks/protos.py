"""Protocol buffers written field by field, with no schema to keep them honest."""

import struct


def varint(n: int) -> bytes:
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def num(number: int, value: int) -> bytes:
    return tag(number, 0) + varint(value)


def run(number: int, data: bytes | str) -> bytes:
    """Return a field of bytes, text or a message."""
    data = data.encode() if isinstance(data, str) else data
    return tag(number, 2) + varint(len(data)) + data


def f32(number: int, value: float) -> bytes:
    return tag(number, 5) + struct.pack("<f", value)


def lying(number: int, length: int, data: bytes = b"") -> bytes:
    """Return a field whose length is a lie."""
    return tag(number, 2) + varint(length) + data


def nested(number: int, depth: int, core: bytes = b"") -> bytes:
    """Return a message in a message in a message, in linear time."""
    heads, size = [], len(core)
    for _ in range(depth):
        head = tag(number, 2) + varint(size)
        heads.append(head)
        size += len(head)
    return b"".join(reversed(heads)) + core


def entry(key: str, value: bytes) -> bytes:
    """Return what a map holds for one key."""
    return run(1, key) + run(2, value)
