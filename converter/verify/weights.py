"""Bit-for-bit comparison of what was written with what was read.

The output is read again by its own reader, from its own headers, and each tensor's bytes are
compared with the source's; digests are taken from the output's bytes on the way. Tensors are
compared on as many threads as there are cores: reading, comparing and hashing release the GIL.
"""

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from formats import digests
from formats.errors import VerificationError
from formats.storage import Buffer, Span
from formats.weights import Tensor

STRIDE = 1 << 18  # bytes compared at once


@dataclass(frozen=True, slots=True)
class WeightsReport:
    """What the comparison of weights found; there is one only where all were equal.

    Attributes:
        tensors: Number compared.
        nbytes: Bytes compared.
        digests: Tensor name → digest, where digests were asked for.
    """

    tensors: int
    nbytes: int
    digests: Mapping[str, str]


def compare(
    source: Mapping[str, Tensor],
    output: Mapping[str, Tensor],
    *,
    with_digests: bool,
    threads: int | None = None,
) -> WeightsReport:
    """Compare two sets of weights.

    Raises:
        VerificationError: A tensor is missing, or differs; or there is nothing to compare.
    """
    if not source:
        raise VerificationError("there is no tensor to compare")
    missing = [name for name in source if name not in output]
    extra = [name for name in output if name not in source]
    if missing or extra:
        raise VerificationError(
            f"the output lacks {len(missing)} tensors and has {len(extra)} others",
            where=(missing + extra)[0],
        )
    # Tied names are one tensor: compared and hashed once.
    keys = {name: (source[name].identity, output[name].identity) for name in source}
    pairs = {key: name for name, key in reversed(keys.items())}
    first = sorted(pairs.values(), key=lambda name: -source[name].nbytes)
    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        found = pool.map(lambda n: _one(n, source[n], output[n], with_digests), first)
        by_name = dict(zip(first, found, strict=True))
    result = {name: by_name[pairs[key]] for name, key in keys.items()}
    return WeightsReport(
        tensors=len(source),
        nbytes=sum(source[n].nbytes for n in first),
        digests=result if with_digests else {},
    )


def _one(name: str, source: Tensor, output: Tensor, with_digest: bool) -> str:
    if (source.dtype, source.shape) != (output.dtype, output.shape):
        raise VerificationError(
            f"is {output.dtype}{list(output.shape)} in the output",
            expected=f"{source.dtype}{list(source.shape)}",
            where=name,
        )
    written = output.extent() if output.size else Span.whole(Buffer(b"", name))
    if written is None:
        raise VerificationError("is not one plain run of its file in the output", where=name)
    hasher = digests.new() if with_digest else None
    position = 0
    for ours, theirs in _paired(source, written):
        if ours != theirs:
            raise VerificationError("differs from its source", where=name, offset=position)
        if hasher is not None:
            hasher.update(theirs)
        position += len(theirs)
    if position != source.nbytes:
        raise VerificationError(f"only {position} of {source.nbytes} bytes compared", where=name)
    return str(hasher.hexdigest()) if hasher is not None else ""


def _paired(source: Tensor, written: Span) -> Iterator[tuple[bytearray | bytes, bytearray]]:
    """Yield runs of the source's bytes beside the same runs of the output's.

    The buffers are reused; bytearrays, because those compare with memcmp.
    """
    ours, theirs = bytearray(0), bytearray(0)
    position = 0
    for piece in source.pieces():
        length = piece.length if isinstance(piece, Span) else len(piece)
        for start in range(0, length, STRIDE):
            n = min(STRIDE, length - start)
            if len(theirs) != n:
                ours, theirs = bytearray(n), bytearray(n)
            written.readinto(position, memoryview(theirs))
            position += n
            if isinstance(piece, Span):
                piece.readinto(start, memoryview(ours))
                yield ours, theirs
            else:
                yield piece[start : start + n], theirs
