"""Write report files atomically: the old file stays until the new one is complete."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from converter.filesystem.atomic_output import publish, staging
from formats.errors import StorageError, UsageError


def check(path: Path, option: str = "report=") -> None:
    """Refuse a path that cannot be written, before a batch that takes hours rather than after it.

    Args:
        path: The file.
        option: What messages call it.

    Raises:
        UsageError: It is a folder.
        StorageError: Its folder is missing or cannot be written.
    """
    if path.is_dir():
        raise UsageError(f"{option} is a folder", expected="a file", where=path)
    if not path.parent.is_dir():
        raise StorageError(f"{option} is in no folder that exists", where=path.parent)
    if not os.access(path.parent, os.W_OK):
        raise StorageError(f"{option} is in a folder that cannot be written", where=path.parent)


def real(path: Path) -> Path:
    """Return a path with symlinks resolved; for a loop of links, one of them."""
    return Path(os.path.realpath(path))


@contextmanager
def replacing(path: Path) -> Iterator[IO[str]]:
    """Yield a file to write; it replaces the one at ``path`` when the block ends.

    Raises:
        StorageError: It cannot be written; the old file is unchanged.
    """
    path = real(path)  # replace the file that a link refers to, not the link
    with staging(path) as folder:
        made = folder / "report"
        try:
            with made.open("w", encoding="utf-8", newline="\n") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        except OSError as e:
            raise StorageError.writing(path, e) from e
        publish(made, path, force=True)
