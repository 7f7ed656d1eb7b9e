"""A decompressor of Snappy blocks, which few checkpoint indexes use.

Spec: https://github.com/google/snappy/blob/1.2.1/format_description.txt (raw blocks, no framing).
"""

from formats.containers.protobuf.packed import varint
from formats.errors import CorruptError, LimitError

MAX_ELEMENTS = 2_000_000  # literals and copies; each takes a microsecond


def decompress(data: bytes, *, limit: int, where: str) -> bytes:
    """Return what ``data`` stands for.

    Raises:
        CorruptError: It is no snappy block.
        LimitError: It stands for more than ``limit`` bytes.
    """
    try:
        size, at = varint(data, 0)
    except (IndexError, ValueError) as e:
        raise CorruptError(f"a snappy block has no length: {e}", where=where) from e
    if size > limit:
        raise LimitError(
            f"a snappy block of {size} bytes", expected=f"at most {limit}", where=where
        )
    out = bytearray()
    for _ in range(MAX_ELEMENTS):
        if at >= len(data) or len(out) > size:
            break
        at = _element(data, at, out, where)
    else:
        raise LimitError(f"a snappy block of more than {MAX_ELEMENTS} elements", where=where)
    if len(out) != size:
        raise CorruptError(f"a snappy block has {len(out)} bytes, not {size}", where=where)
    return bytes(out)


def _element(data: bytes, at: int, out: bytearray, where: str) -> int:
    """Append what one element stands for; return where it ends."""
    tag = data[at]
    at += 1
    if tag & 3 == 0:  # literal
        length = (tag >> 2) + 1
        if length > 60:
            extra = length - 60
            length = int.from_bytes(data[at : at + extra], "little") + 1
            at += extra
        if at + length > len(data):
            raise CorruptError("a snappy block ends early", where=where)
        out += data[at : at + length]
        return at + length
    width = (1, 1, 2, 4)[tag & 3]
    if at + width > len(data):
        raise CorruptError("a snappy block ends early", where=where)
    distance = int.from_bytes(data[at : at + width], "little")
    if tag & 3 == 1:
        length, distance = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | distance
    else:
        length = (tag >> 2) + 1
    if not 0 < distance <= len(out):
        raise CorruptError(f"a snappy copy goes back {distance} bytes of {len(out)}", where=where)
    pattern = out[len(out) - distance : len(out) - distance + length]
    # A copy longer than its distance feeds on itself.
    out += (pattern * (length // distance + 1))[:length]
    return at + width
