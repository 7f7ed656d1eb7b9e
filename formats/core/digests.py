"""Digests of tensors, files and folders.

BLAKE3 throughout: 3 GB/s on one core here, where SHA-256 without SHA instructions makes 0.2. It is
one of the algorithms of OpenSSF Model Signing. A tensor's digest covers its little-endian,
row-major bytes and nothing else, so it is the same in every container and on every device.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from formats.core.storage import Blocks, File, Span
from formats.core.weights import Tensor

ALGORITHM = "blake3"
STRIDE = 1 << 18  # bytes hashed at once: large enough for SIMD, small enough for the L2 cache


def new() -> Any:
    """Return a fresh hasher with ``update(bytes)``, ``digest()`` and ``hexdigest()``."""
    from blake3 import blake3

    return blake3()


def of_span(span: Span) -> str:
    """Return the digest of a run of bytes, in hexadecimal."""
    hasher = new()
    feed(hasher, span)
    return str(hasher.hexdigest())


def feed(hasher: Any, span: Span) -> None:
    """Update a hasher with a run of bytes, through one buffer."""
    buffer = memoryview(bytearray(min(STRIDE, span.length)))
    for start in range(0, span.length, STRIDE):
        run = buffer[: min(STRIDE, span.length - start)]
        span.readinto(start, run)
        hasher.update(run)


def of_tensor(tensor: Tensor) -> str:
    """Return the digest of a tensor's bytes, in hexadecimal."""
    hasher = new()
    for piece in tensor.pieces():
        if isinstance(piece, Span):
            feed(hasher, piece)
        else:
            hasher.update(piece)
    return str(hasher.hexdigest())


class FileDigests:
    """Digests of files, taken while something else reads them.

    Given the runs that are read anyway, it hashes them out of the same blocks. The runs may
    come in any order and leave gaps: each file is hashed from front to back, once.
    """

    def __init__(self, files: Mapping[str, File], blocks: Blocks) -> None:
        self._files = files
        self._blocks = blocks
        self._hashers = {id(file): (new(), file) for file in files.values()}
        self._hashed = dict.fromkeys(self._hashers, 0)

    def follow(self, span: Span) -> None:
        """Hash a span that is being read; spans of other storages are ignored."""
        key, end = id(span.storage), span.offset + span.length
        if key in self._hashers and end - self._hashed[key] >= STRIDE:
            self._hash(key, end)

    def finish(self) -> dict[str, str]:
        """Return the digest of each file, in hexadecimal, by name."""
        for key, (_, file) in self._hashers.items():
            self._hash(key, file.size)
        return {n: str(self._hashers[id(f)][0].hexdigest()) for n, f in self._files.items()}

    def _hash(self, key: int, end: int) -> None:
        hasher, file = self._hashers[key]
        start = self._hashed[key]
        for view in self._blocks.views(Span(file, start, end - start)):
            hasher.update(view)
        self._hashed[key] = end


def of_weights(tensors: Mapping[str, tuple[str, Iterable[int], str]]) -> str:
    """Return the one digest of a set of weights: name → (dtype, shape, digest of the bytes).

    It hashes one JSON line per tensor, sorted by name, and so does not depend on order,
    container, framework or device.
    """
    hasher = new()
    encode = json.JSONEncoder(ensure_ascii=False).encode
    for name in sorted(tensors):
        dtype, shape, digest = tensors[name]
        hasher.update(encode([name, dtype, list(shape), digest]).encode() + b"\n")
    return str(hasher.hexdigest())


def of_files(digests: Mapping[str, str]) -> str:
    """Return the root digest of a set of files: relative path → hexadecimal digest.

    As in OpenSSF Model Signing v1.0: SHA-256 over the raw file digests in the order of their
    names. Spec: https://github.com/ossf/model-signing-spec/tree/a0c91e2
    """
    root = hashlib.sha256()
    for name in sorted(digests):
        root.update(bytes.fromhex(digests[name]))
    return root.hexdigest()
