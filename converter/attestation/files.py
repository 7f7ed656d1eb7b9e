"""Files with the digests that attestations name: SHA-256, which signing tools want, and BLAKE3."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from formats.core import digests
from formats.core.bundle import JSON
from formats.core.storage import File, Span


class AttestedFile(NamedTuple):
    """A file of a source or of an output.

    Attributes:
        name: Its path in the folder of the artifact, or its own name.
        size: In bytes.
        sha256: Hexadecimal.
        blake3: Hexadecimal, as manifests have it.
    """

    name: str
    size: int
    sha256: str
    blake3: str

    def digest(self) -> dict[str, JSON]:
        """Return its digests as in-toto's DigestSet has them."""
        return {"sha256": self.sha256, "blake3": self.blake3}


class _Hashers:
    """Both hashers, so that a file is read once."""

    def __init__(self) -> None:
        self.sha256, self.blake3 = hashlib.sha256(), digests.new()

    def update(self, data: bytes) -> None:
        self.sha256.update(data)
        self.blake3.update(data)


def hash_files(files: Iterable[tuple[str, File]]) -> tuple[AttestedFile, ...]:
    """Return files with their digests, in the order of their names.

    Raises:
        SourceError: A file cannot be read.
    """
    found = []
    for name, file in sorted(files, key=lambda pair: pair[0]):
        hashers = _Hashers()
        digests.feed(hashers, Span.whole(file))
        sha256, blake3 = hashers.sha256.hexdigest(), str(hashers.blake3.hexdigest())
        found.append(AttestedFile(name, file.size, sha256, blake3))
    return tuple(found)


def list_files(path: Path, name: str) -> list[tuple[str, File]]:
    """Return the files of an output by their names; ``name`` is that of an output of one file."""
    if not path.is_dir():
        return [(name, File(path))]
    found = (p for p in path.rglob("*") if p.is_file())
    return [(p.relative_to(path).as_posix(), File(p)) for p in found]
