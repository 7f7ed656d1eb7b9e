"""What destinations have in common whose outputs are made locally, then uploaded."""

from pathlib import Path, PurePosixPath

from converter.destinations.protocol import Published
from converter.jobs.job import Job
from formats.errors import StorageError


class Uploaded:
    """Outputs that are made in a temporary folder, and are not renamed where they are."""

    def local(self, name: str, scratch: Path) -> Path:
        """Return a path in the temporary folder."""
        folder = scratch / "output"
        try:
            folder.mkdir(exist_ok=True)
        except OSError as e:
            raise StorageError.writing(folder, e) from e
        return folder / PurePosixPath(name).name

    def rename_output(self, old: str, job: Job, source: str, digest: str) -> Published | None:
        """Return None: uploaded outputs are not renamed."""
        del old, job, source, digest
        return None
