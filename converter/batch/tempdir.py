"""One folder for all temporary files of a run; the next run removes those of killed runs."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from converter.filesystem import directory_lock
from formats.errors import StorageError

PREFIX = "convert-batch-"


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a folder that is removed when the block ends.

    Raises:
        StorageError: It cannot be made.
    """
    parent = Path(tempfile.gettempdir())
    sweep(parent)
    try:
        folder, lock = directory_lock.make(_places(parent))
    except OSError as e:
        raise StorageError.writing(parent, e) from e
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
        sweep(parent)  # a killed run's processes may have written while they died


def sweep(parent: Path) -> None:
    """Remove this user's folders of runs that have ended."""
    for entry in os.scandir(parent):
        if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
            try:
                is_mine = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
            except OSError:  # another process was faster
                continue
            if is_mine:
                directory_lock.remove_abandoned(Path(entry.path))


def _places(parent: Path) -> Iterator[Path]:
    while True:
        yield parent / f"{PREFIX}{os.urandom(6).hex()}"
