"""A report's file: whole or absent, and the old one until the new one is whole."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from converter.filesystem.atomic_output import publish, staging
from formats.errors import StorageError, UsageError


def check(path: Path) -> None:
    """Refuse a place where no file can stand: before a batch that takes hours, and not after it.

    Raises:
        UsageError: It is a folder.
        StorageError: There is no folder that it could stand in.
    """
    if path.is_dir():
        raise UsageError("report= is a folder", expected="a file", where=path)
    if not path.parent.is_dir():
        raise StorageError("report= is in no folder that exists", where=path.parent)
    if not os.access(path.parent, os.W_OK):
        raise StorageError("report= is in a folder that cannot be written", where=path.parent)


def real(path: Path) -> Path:
    """Return where a path leads; of links that lead in circles, one of them."""
    return Path(os.path.realpath(path))


@contextmanager
def replacing(path: Path) -> Iterator[IO[str]]:
    """Yield a file to write; what was at ``path`` is replaced when all of it is written.

    Raises:
        StorageError: It cannot be written; what was there is as it was.
    """
    path = real(path)  # a link stays one
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
