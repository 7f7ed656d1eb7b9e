"""Decoders of HDF5's filters: deflate, shuffle, Fletcher-32 and LZF.

N-bit, scale-offset, szip and the registered plug-ins (Blosc, LZ4, Zstandard, ...) are named and
refused, and only once a dataset that needs them is read.
"""

import zlib

from formats.containers.hdf5.bytes import Image
from formats.containers.hdf5.messages import Filter
from formats.errors import LimitError

DEFLATE, SHUFFLE, FLETCHER32, LZF = 1, 2, 3, 32000

# https://github.com/HDFGroup/hdf5_plugins/blob/master/docs/RegisteredFilterPlugins.md
NAMES = {
    4: "szip", 5: "n-bit", 6: "scale-offset", 305: "LZO", 307: "bzip2", 32001: "Blosc",
    32004: "LZ4", 32008: "Bitshuffle", 32013: "ZFP", 32015: "Zstandard", 32026: "Blosc2",
}  # fmt: skip

SLACK = 64  # bytes that a filter inside another may add to a chunk
LARGE = 1 << 24  # bytes
MANY_PLANES = 256
# LZF's literals and copies take half a microsecond each: a limit of their number, by size.
STEPS, STEP_BYTES = 2_000_000, 24


def undo(data: bytes, pipeline: tuple[Filter, ...], mask: int, size: int, image: Image) -> bytes:
    """Return a chunk as it was before ``pipeline``.

    Args:
        data: The stored chunk.
        pipeline: The filters in the order in which they were applied.
        mask: Bit i tells that filter i was skipped for this chunk.
        size: Bytes of the chunk.
        image: The file.

    Raises:
        CorruptError: The result has another size, or a checksum fails.
        UnsupportedError: A filter is not supported.
    """
    for number, step in reversed(list(enumerate(pipeline))):
        if mask >> number & 1:
            continue
        if step.id == DEFLATE:
            data = _inflate(data, size + SLACK, image)
        elif step.id == SHUFFLE:
            data = unshuffle(data, step.values[0] if step.values else 1)
        elif step.id == FLETCHER32:
            data = _check(data, image)
        elif step.id == LZF:
            data = lzf(data, size + SLACK, image)
        else:
            name = NAMES.get(step.id) or step.name or "unknown"
            raise image.make_unsupported_error(
                f"a dataset is compressed with HDF5 filter {step.id} ({name})",
                hint="Rewrite it with `h5repack -f GZIP=1`",
            )
    if len(data) != size:
        raise image.error(f"a chunk has {len(data)} bytes instead of {size}")
    return data


def _inflate(data: bytes, limit: int, image: Image) -> bytes:
    inflater = zlib.decompressobj()
    try:
        result = inflater.decompress(data, limit)
    except zlib.error as e:
        raise image.error(f"a chunk cannot be inflated: {e}") from e
    if not inflater.eof:
        raise image.error(f"a chunk inflates to more than {limit} bytes, or ends early")
    return result


def unshuffle(data: bytes, width: int) -> bytes:
    """Return elements of ``width`` bytes from data that hold all first bytes, then all second."""
    count = len(data) // width if width else 0
    if width < 2 or count < 2:
        return data
    rest = data[count * width :]  # bytes past the last whole element stay where they are
    # At such sizes, the copy saved is worth importing numpy; so are many planes.
    if len(data) > LARGE or width > MANY_PLANES:
        import numpy as np

        planes = np.frombuffer(data, np.uint8, count * width).reshape(width, count)
        return planes.T.tobytes() + rest
    result = bytearray(count * width)
    for place in range(width):
        result[place::width] = data[place * count : (place + 1) * count]
    return bytes(result) + rest


def _check(data: bytes, image: Image) -> bytes:
    """Return ``data`` without its checksum, once that holds."""
    if len(data) < 4:
        raise image.error("a chunk is too short for its checksum")
    data, stored = data[:-4], int.from_bytes(data[-4:], "little")
    expected = fletcher32(data)
    # Libraries before 1.6.3 wrote it with the bytes of each half swapped.
    swapped = int.from_bytes(
        expected.to_bytes(4, "big")[1::-1] + expected.to_bytes(4, "big")[:1:-1]
    )
    if stored not in (expected, swapped):
        raise image.error("a chunk fails its checksum")
    return data


def fletcher32(data: bytes) -> int:
    """Return HDF5's Fletcher-32 checksum: sums of big-endian 16-bit words modulo 65535."""
    import numpy as np

    low = high = 0
    for start in range(0, len(data) & ~1, 1 << 21):  # sums of a block fit into 64 bits
        count = min(1 << 20, (len(data) - start) // 2)
        block = np.frombuffer(data, ">u2", count, start).astype(np.uint64)
        weights = np.arange(count, 0, -1, dtype=np.uint64)
        high += count * low + int((block * weights).sum())
        low += int(block.sum())
    if len(data) & 1:
        low += data[-1] << 8
        high += low
    # The library folds carries and never subtracts: a sum is 0 only where all words are.
    return _fold(high) << 16 | _fold(low)


def _fold(total: int) -> int:
    return total and (total % 65535 or 65535)


def lzf(data: bytes, limit: int, image: Image) -> bytes:
    """Return what LibLZF compressed; data that it could not shrink are masked by the writer.

    Spec: http://oldhome.schmorp.de/marc/liblzf.html, lzf_d.c.

    Raises:
        CorruptError: The data end early, refer to before their start, or exceed ``limit`` bytes.
        LimitError: They are literals and copies of few bytes each, and so take very long.
    """
    out = bytearray()
    at, end, steps = 0, len(data), 0
    try:
        while at < end:
            steps += 1
            if not steps & 0xFFFF and image.steps + steps - len(out) // STEP_BYTES > STEPS:
                raise LimitError("LZF data in very many small steps", where=image.name)
            control = data[at]
            at += 1
            if control < 32:
                out += data[at : at + control + 1]
                at += control + 1
                continue
            length = control >> 5
            if length == 7:
                length += data[at]
                at += 1
            length += 2
            distance = ((control & 31) << 8 | data[at]) + 1
            at += 1
            start = len(out) - distance
            if start < 0 or len(out) + length > limit:
                raise image.error("a chunk is no LZF data of its size")
            if distance >= length:
                out += out[start : start + length]
            else:
                run = out[start:]
                out += (run * (length // distance + 1))[:length]
    except IndexError:
        raise image.error("a chunk of LZF data ends early") from None
    image.steps = max(0, image.steps + steps - len(out) // STEP_BYTES)
    return bytes(out)
