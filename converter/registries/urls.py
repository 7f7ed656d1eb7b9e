"""Artifacts in object stores and other fsspec file systems, found without fetching them.

The store is listed, and what is there stands in for itself in a local folder (see `standins`):
the rules of local folders say which of it are artifacts, of which files. A worker fetches those
files of an artifact that reading it opens, no more; where a reader wants a folder's files by
itself, all of them.

A source that changes while it is fetched is an error, and what it is changed to is the next run's.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Final

from converter.filesystem.temporary_copies import name_source_in_errors
from converter.registries import folders, sparse_copies
from converter.registries.entry import Entry, Found, Registry, Skipped, Staged
from converter.registries.filters import Filters
from converter.registries.globs import EVERYTHING, Glob, is_glob
from converter.registries.probe import files_of
from converter.registries.staged import temporary
from converter.stores import urls
from converter.stores.fsspec_store import open_store
from converter.stores.store import Blob, Store
from formats import catalog
from formats.artifact import Artifact
from formats.core.storage import File
from formats.errors import ConvertError, SourceError, StorageError, UnsupportedError

FILES_AT_ONCE: Final = 8
SMALL_BYTES: Final = 64 << 20  # of a folder that is fetched whole, whatever is in it
# Formats of folders that hold more than their readers open: assets, variables by their names.
WHOLE_FORMATS: Final = (
    "portable",
    "keras",
    "savedmodel",
    "torch-dcp",
    "torch-deepspeed",
    "torch-megatron",
    "torch-zarr",
    "torch-ranks",
    "tf-checkpoint",
)
# Formats of which a single file may name others: indexes of shards, external data.
NAMING_FORMATS: Final = ("safetensors", "torch-sharded", "keras-h5", "onnx")


class RemoteFolder:
    """The artifacts below a URL, or the one that it names."""

    def __init__(self, url: str, filters: Filters, glob: Glob = EVERYTHING) -> None:
        self.url = url
        self._store = open_store(url)
        self._blob = self._store.stat() if glob is EVERYTHING else None
        self._name = urls.last(url)
        self.label = self._name if self._blob is None else urls.last(urls.parent(url))
        self._filters = filters
        self._glob = glob

    def find(self) -> Iterator[Found]:
        """Yield the artifacts, as the rules of local folders find them."""
        if self._blob is not None:
            yield from self._find_one([replace(self._blob, name=self._name)])
            return
        blobs = [b for b in self._store.find() if self._is_near(b.name)]
        if not blobs and self._glob is EVERYTHING:
            yield from self._find_one(_checkpoint(open_store(urls.parent(self.url)), self._name))
            return
        with temporary("convert-look") as top:
            folder = top / (self._name or "store")
            yield from self._looked_at(self._store, blobs, folder, folder)

    def _find_one(self, blobs: Sequence[Blob]) -> Iterator[Found]:
        """Yield the artifact that the URL itself names: a file, a checkpoint's prefix."""
        store = open_store(urls.parent(self.url))
        if not blobs:
            raise SourceError("nothing is there", where=urls.mask_secrets(self.url))
        with temporary("convert-look") as top:
            yield from self._looked_at(store, blobs, top, top / self._name)

    def _looked_at(
        self, store: Store, blobs: Sequence[Blob], folder: Path, path: Path
    ) -> Iterator[Found]:
        """Yield the artifacts that the rules of local folders find in stand-ins.

        Args:
            store: Where the blobs are.
            blobs: What is looked at.
            folder: Where to lay stand-ins.
            path: Of what the URL is there.
        """
        folder.mkdir(exist_ok=True)
        laid = list(sparse_copies.create_stand_ins(blobs, folder))
        sparse_copies.fill(store, laid, folder)
        known = {blob.name for blob in laid}
        for blob in blobs:
            if blob.name not in known:
                yield Skipped(urls.join(store.url, blob.name), "a name that no file can have")
        states = {str(folder / blob.name): blob for blob in laid}
        with name_source_in_errors(path, urls.mask_secrets(self.url)):
            for found in self._local(path).find():
                relative = Path(found.source).relative_to(path).as_posix()
                source = urls.join(self.url, "" if relative == "." else relative)
                if isinstance(found, Skipped) and sparse_copies.is_open(Path(found.source)):
                    yield Entry(source, relative, None, "", "", "a tar, not looked through")
                elif isinstance(found, Skipped):
                    yield Skipped(source, found.reason.replace(f"{found.source}: ", ""))
                else:
                    evidence = found.evidence.replace(str(path), urls.mask_secrets(self.url))
                    token = _token(found.source, states)
                    beside = found.checkpoint and urls.join(
                        self.url, Path(found.checkpoint).relative_to(path).as_posix()
                    )
                    yield replace(
                        found, source=source, token=token, evidence=evidence, checkpoint=beside
                    )

    def _local(self, path: Path) -> Registry:
        if self._glob is EVERYTHING:
            return folders.open_registry(str(path), self._filters)
        return folders.LocalFolder(path, self._filters, self._glob)

    def _is_near(self, name: str) -> bool:
        """Return whether a blob matches the glob, or may be part of an artifact that does."""
        folder = name.rpartition("/")[0]
        return self._glob.matches(name) or not folder or self._glob.may_be_in(folder)


def open_registry(reference: str, filters: Filters) -> Registry:
    """Open a URL or a glob of URLs.

    Raises:
        DependencyError: Its package is not installed.
        UsageError: It holds a password, or its scheme is unknown.
    """
    urls.check(reference)
    if (path := urls.local_path(reference)) is not None:
        return folders.open_registry(path, filters)
    url = reference.rstrip("/")
    parts = url.split("/")
    first = next((i for i, part in enumerate(parts) if i > 2 and is_glob(part)), None)
    if first is not None and open_store(url).stat() is None:
        glob = replace(Glob.parse("/".join(parts[first:])), pattern=url)
        return RemoteFolder("/".join(parts[:first]), filters, glob)
    return RemoteFolder(url, filters)


def stage(source: str, scratch: Path) -> Staged:
    """Fetch an artifact.

    Raises:
        SourceError: It is not there any more, or changed while it was fetched.
        StorageError: It cannot be fetched.
    """
    if (path := urls.local_path(source)) is not None:
        return folders.stage(path, scratch)
    name = urls.last(source)
    if not sparse_copies.fits(name):
        where = urls.mask_secrets(source)
        raise UnsupportedError("not supported: a name that no file can have", where=where)
    folder = scratch / "source"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as e:
        raise StorageError.writing(folder, e) from e
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        _Fetching(source, folder, pool).fetch()
    return folders.stage(str(folder / name), scratch)


class _Fetching:
    """An artifact's files, fetched into a local folder; names are relative to its parent."""

    def __init__(self, source: str, folder: Path, pool: ThreadPoolExecutor) -> None:
        self._source = source
        self._name = urls.last(source)
        self._main = open_store(source)
        self._folder = folder
        self._pool = pool
        self._waiting: dict[str, Blob] = {}  # stand-ins without any bytes
        self._got: dict[str, Blob] = {}

    def fetch(self) -> None:
        """Fetch the artifact: a file with those it names, a folder, a checkpoint by its prefix."""
        blob = self._stat(self._name)
        if blob is not None:
            self._get([blob])
            self._lay(_checkpoint(self._parent, self._name, is_file=True))
        else:
            below = [replace(b, name=f"{self._name}/{b.name}") for b in self._main.find()]
            below = below or _checkpoint(self._parent, self._name)
            if not below:
                raise SourceError("is not there", where=urls.mask_secrets(self._source))
            self._lay(below)
        self._read(self._folder / self._name)
        for name in self._waiting:
            (self._folder / name).unlink(missing_ok=True)
        self._check()

    def fetch_wanted(self, name: str) -> None:
        """Fetch a file before it is opened, if it exists.

        Raises:
            StorageError: It cannot be fetched.
        """
        blob = self._waiting.get(name)
        if blob is None and name not in self._got and sparse_copies.fits(name):
            blob = self._stat(name)
        if blob is not None:
            self._get([blob])

    @property
    def _parent(self) -> Store:
        return open_store(urls.parent(self._source))

    def _read(self, path: Path) -> None:
        """Fetch the files that reading opens; errors are left to the conversion."""
        try:
            artifact = _Opening(path, self)
            form = catalog.detect(artifact).format
        except ConvertError as e:
            if isinstance(e, StorageError):
                raise
            self._get(list(self._waiting.values()))
            return
        small = sum(blob.nbytes for blob in self._waiting.values()) <= SMALL_BYTES
        if form.id in WHOLE_FORMATS or (artifact.is_folder and small):
            self._get(list(self._waiting.values()))
        elif artifact.is_folder or form.id in NAMING_FORMATS:
            try:
                form.read(artifact)
            except StorageError:
                raise
            except ConvertError:
                pass
        # What else says how a model is used: configurations, vocabularies, cards.
        beside = [b for n, b in self._waiting.items() if n.count("/") <= 1]
        self._get([b for b in beside if b.nbytes <= sparse_copies.WHOLE_BYTES])

    def _lay(self, blobs: Sequence[Blob]) -> None:
        blobs = [b for b in blobs if b.name not in self._got]
        self._waiting |= {b.name: b for b in sparse_copies.create_stand_ins(blobs, self._folder)}

    def _get(self, blobs: Sequence[Blob]) -> None:
        for blob in blobs:
            self._waiting.pop(blob.name, None)
            self._got[blob.name] = blob
        list(self._pool.map(self._get_one, blobs))

    def _get_one(self, blob: Blob) -> None:
        path = self._folder / blob.name
        path.unlink(missing_ok=True)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise StorageError.writing(path, e) from e
        store, name = self._place(blob.name)
        store.get(replace(blob, name=name), path)

    def _stat(self, name: str) -> Blob | None:
        store, inside = self._place(name)
        blob = store.stat(inside)
        return None if blob is None else replace(blob, name=name)

    def _place(self, name: str) -> tuple[Store, str]:
        """Return the URL of a name: below the artifact's own URL, or beside it."""
        if name == self._name or name.startswith(f"{self._name}/"):
            return self._main, name[len(self._name) + 1 :]
        return self._parent, name

    def _check(self) -> None:
        """Raise SourceError where an object changed after it was fetched."""
        for name, now in zip(self._got, self._pool.map(self._stat, self._got), strict=True):
            if now != self._got[name]:
                store, inside = self._place(name)
                raise SourceError(
                    "changed while it was fetched",
                    where=urls.join(store.url, inside),
                    hint="The next run takes it as it is then",
                )


class _Opening(Artifact):
    """An artifact that fetches files as they are opened."""

    def __init__(self, path: Path, fetching: _Fetching) -> None:
        super().__init__(path)
        self._fetching = fetching

    def member(self, name: str) -> File:
        """Open a file of the folder that the artifact names."""
        inside = str(PurePosixPath(name.replace("\\", "/")))
        self._fetching.fetch_wanted(f"{self.path.name}/{inside}" if self.is_folder else inside)
        return super().member(name)


def _checkpoint(store: Store, name: str, *, is_file: bool = False) -> list[Blob]:
    """Return the files of the TensorFlow checkpoint of a name, if there is one.

    Args:
        store: The folder it is in.
        name: A prefix, or one of its files.
        is_file: Whether there is a file of that name.
    """
    stem = name.removesuffix(".index").removesuffix(".meta")
    if is_file == (stem == name) or store.stat(f"{stem}.index") is None:
        return []
    return store.find(starting=f"{stem}.")


def _token(path: str, states: Mapping[str, Blob]) -> str:
    """Return a token of all files of an artifact from the store's tokens; "" if unknown.

    Args:
        path: Of its stand-in.
        states: Blobs by the paths of their stand-ins.
    """
    folder, name = (path, "") if Path(path).is_dir() else path.rsplit("/", 1)
    group = folders.group_of(folder, name)
    files = [path] if group is None else [*files_of(folder, group)]
    blobs = [states[p] for p in sorted(files) if p in states]
    if not all(blob.token for blob in blobs):
        return ""
    if len(blobs) == 1:
        return blobs[0].token
    text = "\n".join(f"{b.name}\0{b.nbytes}-{b.token}" for b in blobs)
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
