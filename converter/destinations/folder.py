"""A local folder as destination: conversions write into it and rename atomically."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from stat import S_ISREG

from converter.destinations.protocol import GONE, Destination, Published, Recalled, differs
from converter.destinations.reuse import rename_bundle
from converter.filesystem import atomic_output as publish
from converter.jobs.job import Job
from converter.jobs.record import Record
from converter.registries.entry import Staged
from formats.errors import InternalError, StorageError
from formats.portable import MANIFEST


class Folder:
    """A local folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self) -> None:
        """Create the folder and check that it is writable."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):  # which has no name that a kill would leave
                pass
        except OSError as e:
            raise StorageError.writing(self.path, e) from e

    def find_damage(self, name: str, record: Record) -> str:
        """Return which file of an output is missing or has another size than was recorded."""
        output = f"{self.path}/{name}"
        files = record.published
        if not files:  # an older convert kept no sizes
            whole = Path(output, MANIFEST) if name.endswith(".portable") else Path(output)
            return "" if whole.exists() else GONE
        for inside, (nbytes, *_) in files.items():
            path = f"{output}/{inside}" if inside else output
            try:
                found = os.stat(path)  # noqa: PTH116 - half the time, for each file of all outputs
            except OSError:
                return f"{inside} is gone" if inside and os.path.lexists(output) else GONE
            if found.st_size != nbytes or not S_ISREG(found.st_mode):
                return differs(inside, nbytes, found.st_size)
        return ""

    def exists(self, name: str) -> bool:
        """Return whether the name exists, including as a dangling link."""
        return os.path.lexists(self.path / name)

    def sweep(self, name: str) -> bool:
        """Remove the output's staging folders whose process has ended."""
        return publish.sweep(self.path / name)

    def flush(self) -> None:
        """Wait until the file system has written its cache."""
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

    def recall(self, known: frozenset[str]) -> Iterable[Recalled]:
        """Return nothing: a folder keeps no notes besides the ledger."""
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

    def rename_output(self, old: str, job: Job, source: str, digest: str) -> Published | None:
        """Rename an output and correct its source's name in the manifest."""
        target = self.local(job.name, self.path)
        if not rename_bundle(self.path / old, target, source, digest, force=job.options.overwrite):
            return None
        return _published(target)

    def publish(self, made: Path, job: Job, staged: Staged, record: Record) -> Published:
        """Return its path, where it is already, and the sizes of its files."""
        del job, staged, record
        return _published(made)


def _published(output: Path) -> Published:
    return Published(str(output), {name: [size, ""] for name, size in _sizes(str(output))})


def _sizes(output: str) -> Iterator[tuple[str, int]]:
    """Yield the files of an output by their names in it, with their sizes; "" is a file itself."""
    folders = [""]
    try:
        while folders:
            folder = folders.pop()
            with os.scandir(f"{output}/{folder}") as entries:
                for entry in sorted(entries, key=lambda e: e.name):
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(f"{folder}{entry.name}/")
                    else:
                        yield f"{folder}{entry.name}", entry.stat().st_size
    except NotADirectoryError:
        yield "", os.stat(output).st_size  # noqa: PTH116 - as above


def open_destination(reference: str) -> Destination:
    """Open a folder, which may not exist yet."""
    return Folder(Path(reference))
