"""A source that is a reference, as a local path for as long as one command takes."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from converter import locked
from converter.registries.catalog import scheme_of, stage
from formats.errors import ConvertError, StorageError


@contextmanager
def local(source: str) -> Iterator[Path]:
    """Yield a source as a path: itself, or fetched into a folder that is gone when the block ends.

    Raises:
        StorageError: It cannot be fetched.
        SourceError: It is not there.
    """
    if scheme_of(source) in ("", "list"):
        yield Path(source)
        return
    with temporary("convert-source") as folder:
        path = stage(source, folder).path
        with named(path, source):
            yield path


@contextmanager
def named(path: Path, source: str) -> Iterator[None]:
    """Let errors that name a temporary path name what it stands for."""
    try:
        yield
    except ConvertError as e:
        if e.where is not None and e.where.startswith(str(path)):
            from converter.stores.urls import masked

            e.where = masked(source) + e.where[len(str(path)) :]
        raise


@contextmanager
def temporary(name: str) -> Iterator[Path]:
    """Yield a temporary folder; one that a killed process left in its place is removed before.

    Raises:
        StorageError: It cannot be made.
    """
    top = Path(tempfile.gettempdir()).resolve()
    try:
        folder, lock = locked.make(top / f"{name}-{i}" for i in count())
    except OSError as e:
        raise StorageError.writing(top, e) from e
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
