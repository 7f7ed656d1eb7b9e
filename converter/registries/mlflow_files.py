"""Files of MLflow models, wherever their server stores them: bucket, server or local disk."""

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from converter.registries.mlflow_server import translate_errors
from converter.stores.store import Blob
from formats.errors import CorruptError, SourceError

# Where our own stores read: in parts, and again where a connection breaks. MLflow's client would
# take boto3 for the former.
OURS = ("s3", "gs", "gcs", "abfs", "abfss")
DEEPEST = 32  # folders, in a listing that a server makes


class Files(Protocol):
    """The files of one model."""

    def list_files(self) -> dict[str, int | None]:
        """Return their sizes by path."""

    def content(self, path: str) -> bytes:
        """Return the content of a file.

        Raises:
            SourceError: It is not there.
        """

    def fetch(self, paths: Iterable[str], folder: Path) -> Path:
        """Return a local folder with these files."""


def files_at(uri: str) -> Files:
    """Return the files below an artifact URI.

    Raises:
        StorageError: It cannot be reached.
        DependencyError: It takes a package that is not installed.
    """
    scheme = uri.partition("://")[0]
    if scheme in OURS:
        return InStore(uri)
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

    with translate_errors(uri):
        repository = get_artifact_repository(uri)
    if isinstance(repository, LocalArtifactRepository):
        return Here(Path(repository.artifact_dir))
    return AtServer(uri, repository)


class Here:
    """Files in a local folder: nothing is copied."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def list_files(self) -> dict[str, int | None]:
        """Return the files of the folder."""
        return {
            p.relative_to(self._folder).as_posix(): p.stat().st_size
            for p in sorted(self._folder.rglob("*"))
            if p.is_file()
        }

    def content(self, path: str) -> bytes:
        """Read a file."""
        try:
            return (self._folder / path).read_bytes()
        except OSError as e:
            raise _gone(path, self._folder) from e

    def fetch(self, paths: Iterable[str], folder: Path) -> Path:
        """Return the folder itself."""
        del paths, folder
        return self._folder


class InStore:
    """Files in a bucket."""

    def __init__(self, uri: str) -> None:
        from converter.stores.fsspec_store import open_store

        self._store = open_store(uri)
        self._blobs: dict[str, Blob] | None = None

    def list_files(self) -> dict[str, int | None]:
        """List the bucket, once."""
        return {name: blob.nbytes for name, blob in self._found().items()}

    def content(self, path: str) -> bytes:
        """Read an object."""
        with _temporary() as folder:
            self.fetch([path], folder)
            return (folder / path).read_bytes()

    def fetch(self, paths: Iterable[str], folder: Path) -> Path:
        """Get objects, each whole."""
        blobs = self._found()
        for path in paths:
            blob = blobs.get(path)
            if blob is None:
                raise _gone(path, self._store.url)
            target = _below(folder, path)
            self._store.get(blob, target)
        return folder

    def _found(self) -> dict[str, Blob]:
        if self._blobs is None:
            self._blobs = {blob.name: blob for blob in self._store.find()}
        return self._blobs


class AtServer:
    """Files that MLflow's own client fetches."""

    def __init__(self, uri: str, repository: Any) -> None:
        self._uri = uri
        self._repository = repository

    def list_files(self) -> dict[str, int | None]:
        """List each folder in turn."""
        with translate_errors(self._uri):
            return dict(self._below(None, DEEPEST))

    def content(self, path: str) -> bytes:
        """Fetch a file, and read it."""
        with _temporary() as folder:
            self.fetch([path], folder)
            return (folder / path).read_bytes()

    def fetch(self, paths: Iterable[str], folder: Path) -> Path:
        """Fetch files one after another."""
        for path in paths:
            target = _below(folder, path)
            with translate_errors(self._uri):
                try:
                    self._repository.download_artifacts(path, str(folder))
                except Exception as e:
                    if "404" in str(e) or "No such artifact" in str(e):
                        raise _gone(path, self._uri) from e
                    raise
            if not target.is_file():
                raise _gone(path, self._uri)
        return folder

    def _below(self, folder: str | None, depth: int) -> Iterator[tuple[str, int | None]]:
        for info in self._repository.list_artifacts(folder):
            if not info.is_dir:
                yield info.path, info.file_size
            elif depth:
                yield from self._below(info.path, depth - 1)


def _below(folder: Path, path: str) -> Path:
    """Return the path of a file, and create its folder.

    Raises:
        CorruptError: It would be outside the folder.
    """
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise CorruptError(f"a file of the model is named {path!r:.100}")
    target = folder.joinpath(*parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _gone(path: str, where: object) -> SourceError:
    return SourceError(f"{path} is not there any more", where=where)


@contextmanager
def _temporary() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="convert-mlflow-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
