"""Artifacts in local folders, found by content.

What belongs together is said in `grouping`, what one artifact is in `looking`, which damaged files
are artifacts nevertheless in `claims`. Hidden folders and caches are not looked into; a link is
followed unless it leads to what is listed anyway; no folder is listed twice.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from converter.registries import mlmodel
from converter.registries.entry import Entry, Found, Registry, Skipped, Staged
from converter.registries.filters import Filters
from converter.registries.globs import EVERYTHING, Glob, is_glob
from converter.registries.graph_checkpoint_pairs import join
from converter.registries.grouping.division import Division, Group, Listing
from converter.registries.grouping.rules import divide
from converter.registries.probe import files_of, probe_file, probe_group, state
from formats.artifact import Artifact
from formats.errors import SourceError, StorageError

CACHES = frozenset(("__pycache__", "__MACOSX", "lost+found"))
FOLDERS = frozenset(
    ("savedmodel", "keras", "torch-dcp", "torch-deepspeed", "torch-zarr", "portable")
)  # kinds that are folders
# Of a cache of Hugging Face: the content under its digests, which snapshots/ links to by name.
_HUB_CACHE = frozenset(("blobs", "refs"))


class _Seen(NamedTuple):
    """The sorted content of a folder, without hidden files."""

    files: Sequence[str]
    folders: Sequence[str]
    skipped: Sequence[Skipped]


class LocalFolder:
    """A folder, or its content that a glob matches.

    Attributes:
        path: As it was given.
        base: The folder that names are relative to: this one, or, where it is an artifact, the one
            that it is in.
        label: The last part of that.
    """

    def __init__(self, path: Path, filters: Filters, glob: Glob = EVERYTHING) -> None:
        self.path = path
        self._path = os.path.normpath(path.absolute())
        self._front = ""
        if glob is EVERYTHING and group_of(self._path, "") is not None:
            self._front = Path(self._path).name
        self.base, self.label = _base_and_label(path, is_in=bool(self._front))
        self._root = os.path.realpath(path)
        self._filters = filters
        self._glob = glob

    def find(self) -> Iterator[Found]:
        """Yield the artifacts of each folder, then its folders, by name.

        Raises:
            SourceError: A glob matches nothing.
            StorageError: The folder itself cannot be listed.
        """
        walked: set[tuple[int, int]] = set()
        pending = [(self._path, self._front)]
        is_empty = True
        while pending:
            path, name = pending.pop()
            try:
                status = Path(path).stat()
                if (status.st_dev, status.st_ino) in walked:
                    yield Skipped(path, "a link to a folder that is listed already")
                    continue
                walked.add((status.st_dev, status.st_ino))
                seen = self._look_into(path, name)
            except OSError as e:
                said = f"cannot be listed: {e.strerror}"
                if path == self._path:
                    raise StorageError(said, where=path) from e
                is_empty = False
                yield Entry(path, name, None, "", "", said)
                continue
            division = _divide(path, seen)
            for found in chain(seen.skipped, self._artifacts(path, name, division)):
                is_empty = False
                yield found
            folders = [(f"{path}/{f}", _below(name, f)) for f in division.folders]
            pending += [f for f in reversed(folders) if self._glob.may_be_in(f[1])]
        if is_empty and self._glob is not EVERYTHING:
            raise SourceError("matches nothing", where=self._glob.pattern)

    def _look_into(self, path: str, name: str) -> _Seen:
        files, folders, skipped = [], [], []
        with os.scandir(path) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        hidden = CACHES
        if {"blobs", "snapshots"} <= {entry.name for entry in listed}:
            hidden |= _HUB_CACHE
        for entry in listed:
            inside = _below(name, entry.name)
            if entry.name in hidden or is_hidden(entry.name) or self._filters.shuts_out(inside):
                continue
            reason = self._leads_back(entry.path) if entry.is_symlink() else None
            if reason is not None:
                if self._glob.matches(inside) and self._filters.wants(inside):
                    skipped.append(Skipped(entry.path, reason))
            elif entry.is_dir():
                if self._is_apart(entry.path):
                    skipped.append(Skipped(entry.path, "in the destination"))
                else:
                    folders.append(entry.name)
            elif entry.is_file():
                files.append(entry.name)
            else:
                skipped.append(Skipped(entry.path, "no regular file"))
        return _Seen(files, folders, skipped)

    def _is_apart(self, path: str) -> bool:
        return bool(self._filters.apart) and os.path.realpath(path) in self._filters.apart

    def _leads_back(self, path: str) -> str | None:
        """Return why a link is not followed; None for one that is."""
        target = os.path.realpath(path)
        if not Path(target).exists():
            return "a link to nothing"
        if target == self._root or self._root.startswith(target.rstrip("/") + "/"):
            return "a link to a folder around it"
        inside = _below(self._front, os.path.relpath(target, self._root))
        parts = inside.split("/")
        if parts[0] == ".." or any(is_hidden(p) or p in CACHES | _HUB_CACHE for p in parts):
            return None
        is_listed = self._filters.wants(inside) and self._glob.matches(inside)
        return "another name of what is listed already" if is_listed else None

    def _artifacts(self, path: str, name: str, division: Division) -> Iterator[Found]:
        """Yield the artifacts of one folder, then its skipped files."""
        has_groups = False
        for group in list(division.groups):
            called = _below(name, group.called)
            if not self._wants_group(name, called, group):
                continue
            found = probe_group(path, called or self.label, group)
            if found is None:
                division.files.update(dict.fromkeys(group.files))
                continue
            has_groups = True
            yield found
        for file in sorted(division.files):
            if self._wants(_below(name, file)):
                note, whole = division.notes.get(file, ""), f"{path}/{file}"
                known = self._filters.known.get(whole)
                yield probe_file(whole, _below(name, file), note=note, known=known)
        for file, reason in division.skipped.items():
            if not self._wants(_below(name, file)):
                continue
            if has_groups or not self._glob.names(_below(name, file)):
                yield Skipped(f"{path}/{file}", reason)
            else:  # a copy, but the one that was asked for
                yield probe_file(f"{path}/{file}", _below(name, file))

    def _wants(self, name: str) -> bool:
        return self._filters.wants(name) and self._glob.matches(name)

    def _wants_group(self, folder: str, called: str, group: Group) -> bool:
        """Return whether a group passes the filters; a glob may match any of its files."""
        checkpoint = _below(folder, group.checkpoint) if group.checkpoint else called
        if not any(self._filters.wants(n or self.label) for n in (called, checkpoint)):
            return False
        names = [called, *(_below(folder, n) for n in (*group.files, *group.folders))]
        return any(self._glob.matches(n) for n in names if n) or self._glob is EVERYTHING


class OneArtifact:
    """A file, a folder that is an artifact, or the common prefix of a checkpoint's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.base, self.label = _base_and_label(path, is_in=True)

    def find(self) -> Iterator[Found]:
        """Yield the artifact, whatever its format."""
        path = os.path.normpath(self.path.absolute())
        folder, _, name = path.rpartition("/")
        found = probe_file(path, name)
        if isinstance(found, Skipped):
            found = Entry(path, name, None, "", "", found.reason)
        holder, inside = (path, "") if self.path.is_dir() else (folder, name)
        group = group_of(holder, inside)
        if group is not None:
            token, nbytes = state(files_of(holder, group), holder)
            is_joined = group.checkpoint and name in group.paths
            checkpoint = f"{holder}/{group.checkpoint}" if is_joined else ""
            found = replace(found, token=token, nbytes=nbytes, checkpoint=checkpoint)
        yield found


def open_registry(reference: str, filters: Filters) -> Registry:
    """Open a folder, a single artifact, or all that a glob matches.

    What exists under the reference as it is goes before what it matches as a glob. A file that
    is a part of a folder, as saved_model.pb is, stands for the folder.

    Raises:
        SourceError: There is no such thing.
    """
    path = Path(reference)
    try:
        artifact = Artifact(path)
    except SourceError:
        if not is_glob(reference):
            raise
        glob = Glob.parse(reference)
        if not glob.base.is_dir():
            raise SourceError("matches nothing", where=reference) from None
        return LocalFolder(glob.base, filters, glob)
    if artifact.is_folder:
        return LocalFolder(path, filters)
    group = group_of(os.path.normpath(path.parent.absolute()), path.name)
    is_the_folder = group is not None and group.kind in FOLDERS and path.name in group.files
    return OneArtifact(path.parent if is_the_folder else path)


def stage(source: str, scratch: Path) -> Staged:
    """Return the path itself, or that of the model in an MLflow folder.

    Raises:
        SourceError: It is not there any more, or an MLflow folder is damaged.
        StorageError: It cannot be read.
        UnsupportedError: It is an MLflow model of another kind.
    """
    path = Path(source)
    try:
        if path.is_dir():
            if any(inside.name == mlmodel.FILE for inside in path.iterdir()):
                return mlmodel.stage_model(path, scratch)
        elif path.exists():
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))  # a pipe may have no writer
    except OSError as e:
        raise StorageError(f"cannot be read: {e.strerror}", where=path) from e
    return Staged(path)


def is_hidden(name: str) -> bool:
    """Return whether a name is hidden or a ledger's."""
    return (name.startswith(".") and name != ".metadata") or ".ledger.sqlite" in name


def _divide(path: str, seen: _Seen) -> Division:
    """Divide a local folder into artifacts and skipped files."""

    def read(name: str, most: int, *, whole: bool = True) -> bytes:
        try:
            with Path(path, name).open("rb") as file:
                if whole and os.fstat(file.fileno()).st_size > most:
                    return b""
                return file.read(most)
        except OSError:
            return b""

    def head(name: str, most: int) -> bytes:
        return read(name, most, whole=False)

    def inside(name: str) -> Sequence[str]:
        try:
            return sorted(inside.name for inside in Path(path, name).iterdir())
        except OSError:
            return ()

    label = path.rpartition("/")[2]
    division = divide(Listing(label, seen.files, seen.folders, read, head, inside))
    join(path, division)
    return division


def _base_and_label(path: Path, *, is_in: bool) -> tuple[Path, str]:
    """Return the folder that names are relative to, and its label.

    Args:
        path: As it was given.
        is_in: Whether names are relative to the folder that the path is in.
    """
    whole = Path(os.path.normpath(path.absolute()))
    if not is_in:
        return whole, whole.name
    given = Path(os.path.normpath(path)).parent
    parts = [part for part in given.parts if part not in ("..", "/")]
    return whole.parent, "/".join(parts[-1:] if path.is_absolute() else parts)


def group_of(folder: str, name: str) -> Group | None:
    """Return the group that a name in a folder belongs to or begins; "" is the folder itself."""
    try:
        division = _recently_divided(folder, Path(folder).stat().st_mtime_ns)
    except OSError:
        return None
    if not name:
        return next((g for g in division.groups if not g.called), None)
    return next((g for g in division.groups if name in (*g.paths, *g.files, g.checkpoint)), None)


@lru_cache(maxsize=8)  # ten thousand references may name files of one folder
def _recently_divided(folder: str, changed: int) -> Division:
    del changed
    with os.scandir(folder) as entries:
        listed = sorted(
            (e.name, e.is_dir())
            for e in entries
            if not is_hidden(e.name) and (e.is_dir() or e.is_file())
        )
    files, folders = [n for n, d in listed if not d], [n for n, d in listed if d]
    return _divide(folder, _Seen(files, folders, ()))


def _below(folder: str, name: str) -> str:
    """Return a name in a folder of the registry; "" is the registry itself."""
    return f"{folder}/{name}" if folder and name else folder or name
