"""Object stores and remote file systems, with the few operations that are needed.

Names are relative to the store's URL, with ``/`` between folders; "" is the URL itself. A store
has no folders and no renaming: a name either has its bytes, all of them, or is not there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class Blob:
    """One object or remote file.

    Attributes:
        name: Below the store's URL.
        nbytes: Its size.
        token: What changes when its bytes do: an ETag, a version, a time; "" for unknown.
    """

    name: str
    nbytes: int
    token: str


class Range(NamedTuple):
    """Some bytes of a blob."""

    name: str
    start: int
    end: int


class Store(Protocol):
    """A remote file system below one URL.

    All methods raise `StorageError` (no such bucket, access denied, unreachable) and
    `DependencyError` (a missing extra), in one line without secrets.
    """

    @property
    def url(self) -> str:
        """The URL without secrets."""

    def find(self, under: str = "", *, starting: str = "") -> list[Blob]:
        """Return all blobs below a name, sorted; empty if there is none.

        Args:
            under: A folder's name.
            starting: Only what begins so, in that folder itself and not below it.
        """

    def stat(self, name: str = "") -> Blob | None:
        """Return the blob of exactly this name; None for a folder or nothing."""

    def read(self, ranges: Sequence[Range]) -> list[bytes | None]:
        """Return ranges of many blobs, read concurrently; None for one that cannot be read."""

    def get(self, blob: Blob, path: Path) -> None:
        """Write a blob to a local file.

        Raises:
            SourceError: It is not there any more, or has another size.
        """

    def put(self, path: Path, name: str) -> Blob:
        """Upload a local file atomically: on an error the name keeps its former content."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove blobs; missing ones are not an error."""

    def sweep(self, name: str) -> None:
        """Abort unfinished multipart uploads of a name, which are billed and not listed."""
