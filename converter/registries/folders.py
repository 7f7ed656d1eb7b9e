"""Artifacts in a local folder, found by content; a single file is a registry of one."""

from collections.abc import Iterator
from pathlib import Path

from converter.registries.entry import Entry, Found, Registry, Skipped, Staged
from converter.registries.filters import Filters
from formats import catalog
from formats.artifact import Artifact
from formats.errors import ConvertError, SourceError


class LocalFolder:
    """A folder, or one artifact."""

    def __init__(self, path: Path, filters: Filters) -> None:
        self.path = path
        self.label = path.absolute().name
        self._filters = filters

    def find(self) -> Iterator[Found]:
        """Yield the files of the folder that are of a format we know."""
        if not self.path.is_dir():
            yield self._looked_at(self.path, self.path.name)
            return
        for path in sorted(p for p in self.path.rglob("*") if p.is_file()):
            yield self._looked_at(path, path.relative_to(self.path).as_posix())

    def _looked_at(self, path: Path, name: str) -> Found:
        try:
            match = catalog.detect(Artifact(path))
        except ConvertError as e:
            return Skipped(str(path), str(e))
        stat = path.stat()
        token = f"{stat.st_size}-{stat.st_mtime_ns}"
        source = str(path.absolute())
        return Entry(source, name, stat.st_size, token, match.format.id, match.evidence)


def open_registry(reference: str, filters: Filters) -> Registry:
    """Open a folder."""
    path = Path(reference)
    if not path.exists():
        raise SourceError("no such file or folder", where=path)
    return LocalFolder(path, filters)


def stage(source: str, scratch: Path) -> Staged:
    """Return the path: it is here already."""
    del scratch
    return Staged(Path(source))
