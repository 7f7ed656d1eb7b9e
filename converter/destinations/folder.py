"""Outputs in a local folder: conversions write there themselves, and rename into place."""

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from converter import publish
from converter.destinations.place import Destination
from converter.job import Job
from converter.registries.entry import Staged
from formats.errors import InternalError, StorageError


class Folder:
    """A local folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self) -> None:
        """Make the folder, and see whether it can be written."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):  # which has no name that a kill would leave
                pass
        except OSError as e:
            raise StorageError.writing(self.path, e) from e

    def holds(self, name: str, record: Mapping[str, Any]) -> bool:
        """Tell whether the output is there, and with its manifest where it has one."""
        output = self.path / name
        if name.endswith(".portable"):
            return (output / "manifest.json").is_file()
        del record
        return output.exists()

    def stands(self, name: str) -> bool:
        """Tell whether there is anything of that name, be it a dangling link."""
        return os.path.lexists(self.path / name)

    def sweep(self, name: str) -> bool:
        """Remove staging folders of that output which nobody holds any more."""
        return publish.sweep(self.path / name)

    def flush(self) -> None:
        """Wait for the file system's cache."""
        import ctypes

        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
            if syncfs is None:  # not Linux
                os.sync()
            elif syncfs(fd):
                error = ctypes.get_errno()
                raise StorageError.writing(self.path, OSError(error, os.strerror(error)))
        finally:
            os.close(fd)

    def recall(self, known: frozenset[str]) -> Iterable[Mapping[str, Any]]:
        """Return nothing: only the ledger tells whose the outputs are."""
        del known
        return ()

    def local(self, name: str, scratch: Path) -> Path:
        """Return the path of the output itself."""
        del scratch
        if name.startswith("/") or {"", ".", ".."} & set(name.split("/")):
            raise InternalError(f"an output is called {name!r:.200}")
        target = self.path / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise StorageError.writing(target.parent, e) from e
        return target

    def publish(self, made: Path, job: Job, staged: Staged, record: Mapping[str, Any]) -> str:
        """Return where it is already."""
        del job, staged, record
        return str(made)


def open_destination(reference: str) -> Destination:
    """Open a folder, which need not be there yet."""
    return Folder(Path(reference))
