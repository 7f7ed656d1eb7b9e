"""Outputs in a local folder: conversions write there themselves, and rename into place."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from converter.destinations.place import Destination
from converter.job import Job
from converter.registries.entry import Staged
from formats.errors import StorageError


class Folder:
    """A local folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self) -> None:
        """Make the folder, and see whether it can be written."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            probe = self.path / f".convert-probe-{id(self):x}"
            probe.touch()
            probe.unlink()
        except OSError as e:
            raise StorageError.writing(self.path, e) from e

    def holds(self, name: str, record: Mapping[str, Any]) -> bool:
        """Tell whether the output is there."""
        del record
        return (self.path / name).exists()

    def local(self, name: str, scratch: Path) -> Path:
        """Return the path of the output itself."""
        del scratch
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
