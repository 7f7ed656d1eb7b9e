"""Check the checksums that a source records of its own bytes.

Readers hand out spans of weights without reading them, and note on the file what checksum the run
must have (`record`). `check` reads those runs; a converter does so while it copies them, when the
pages are in memory anyway. CRC-32 of zip archives is computed by ISA-L, CRC-32C of TensorFlow by
the processor's own instruction: 4 GB/s and more on one core, where zlib makes 1.
"""

from collections.abc import Callable
from typing import Literal

from formats.core.storage import Checksum, File, Span
from formats.errors import CorruptError

BLOCK = 1 << 20  # bytes read at once
MASK_DELTA = 0xA282EAD8  # tensorflow/core/lib/hash/crc32c.h
Algorithm = Literal["crc32", "crc32c"]


def record(span: Span, algorithm: Algorithm, value: int, name: str) -> None:
    """Note the checksum that a run of a file must have; 0 stands for none."""
    if value and span.length and isinstance(span.storage, File):
        key = (span.offset, span.length)
        span.storage.checksums[key] = Checksum(algorithm, value, name)


def check(file: File) -> int:
    """Read the runs of a file that have checksums, and compare them; return how many.

    Raises:
        CorruptError: A run has another checksum than is recorded; it names the first.
    """
    runs = sorted(file.checksums.items())
    for (offset, length), expected in runs:
        found = compute(Span(file, offset, length), expected.algorithm)
        if found != expected.value:
            raise CorruptError(
                f"{expected.name!r} is damaged: its {expected.algorithm} is {found:08x}",
                expected=f"{expected.value:08x}, as the file records",
                where=file.name,
                offset=offset,
            )
    return len(runs)


def compute(span: Span, algorithm: Algorithm) -> int:
    """Return the checksum of a run of bytes."""
    update = _crc32() if algorithm == "crc32" else _crc32c()
    buffer = memoryview(bytearray(min(BLOCK, span.length)))
    value = 0
    for start in range(0, span.length, BLOCK):
        run = buffer[: min(BLOCK, span.length - start)]
        span.readinto(start, run)
        value = update(run, value)
    return value if algorithm == "crc32" else mask(value)


def mask(crc: int) -> int:
    """Return a CRC-32C as TensorFlow stores it."""
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of bytes."""
    return _crc32c()(memoryview(data), 0)


def _crc32() -> Callable[[memoryview, int], int]:
    from isal.isal_zlib import crc32

    return crc32


def _crc32c() -> Callable[[memoryview, int], int]:
    import google_crc32c

    return lambda data, value: google_crc32c.extend(value, bytes(data))
