"""Identical files of bundles stored once: a file that another bundle has too becomes a link to it.

Identical files are found by the digests in manifests, indexed in the ledger's file. Before a file
is replaced by a link to another one, that one is hashed and must have the digest that its manifest
records. The link is made beside the bundle and renamed over the file, so that after a kill either
the file or the link is there, with the same bytes; the next run processes what is left.

Hard links share one file: convert never writes into a published one, but a program that does
changes all of them. Reflinks share blocks until one side is written to; XFS, Btrfs and a few
others have them. Spec: https://man7.org/linux/man-pages/man2/ioctl_ficlonerange.2.html
"""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, cast

from converter.batch.database import Database
from converter.batch.request import Request
from converter.batch.schema import decode_text, encode_text
from converter.filesystem.atomic_output import staging, sweep
from formats import portable
from formats.containers.jsontext import parse
from formats.core import digests
from formats.errors import CorruptError, SourceError, StorageError, UnsupportedError, UsageError
from formats.limits import DEFAULT

Kind = Literal["reflink", "hardlink"]
KINDS = ("reflink", "hardlink")
MOST_TRIES = 16  # of files that are gone, or that have too many names already
SMALLEST = 1 << 16  # bytes of a file that is worth a link
FICLONE = 0x40049409  # _IOW(0x94, 9, int), of linux/fs.h
DIGEST = re.compile("[0-9a-f]{64}")
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS bundle_files(id INTEGER PRIMARY KEY, digest, name, file)",
    "CREATE INDEX IF NOT EXISTS bundle_files_digest ON bundle_files(digest)",
    "CREATE UNIQUE INDEX IF NOT EXISTS bundle_files_name ON bundle_files(name, file, digest)",
    "CREATE TABLE IF NOT EXISTS bundles_seen(name TEXT PRIMARY KEY, manifest) WITHOUT ROWID",
)


class IndexedFile(NamedTuple):
    """A file of a bundle, as indexed."""

    id: int
    name: str
    file: str


class Linked(NamedTuple):
    """The files that were replaced by links.

    Attributes:
        files: How many.
        nbytes: Of these.
        problems: What could not be linked and stayed as it was, with the reason.
    """

    files: int
    nbytes: int
    problems: tuple[str, ...]


class Held(NamedTuple):
    """A large file of the bundle being processed."""

    file: str
    digest: str
    status: os.stat_result


class Links:
    """Replaces files of published bundles by links; a context manager that holds the index open."""

    def __init__(self, folder: Path, index: Path, kind: Kind) -> None:
        """Begin.

        Args:
            folder: The destination, which is there and can be written.
            index: The ledger's file.
            kind: Of the links.

        Raises:
            StorageError: The index, or the folder, cannot be used.
            UnsupportedError: The folder's file system has no such links.
        """
        self._files = self._nbytes = 0
        self._problems: list[str] = []
        self._folder = folder
        self._kind, self._link = kind, _LINKS[kind]
        self._hashed: dict[tuple[int, ...], str] = {}
        _probe(folder, kind)
        self._db = Database(index)
        for statement in SCHEMA:
            self._db.execute(statement)

    def __enter__(self) -> "Links":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._db.close()

    def found(self) -> Linked:
        """Return what has been replaced so far."""
        return Linked(self._files, self._nbytes, tuple(self._problems))

    def catch_up(self, names: Iterable[str]) -> None:
        """Process bundles that were published but not processed, or that a killed run left.

        Raises:
            StorageError: The index cannot be used.
        """
        rows = self._db.execute("SELECT name, manifest FROM bundles_seen").fetchall()
        seen = {decode_text(name): manifest for name, manifest in rows}
        for name in names:
            with suppress(OSError):  # it is gone, or no bundle
                status = (self._folder / name / portable.MANIFEST).stat()
                if seen.get(name) != _identity(status):
                    sweep(self._folder / name)  # of a run that was killed after its last rename
                    self.look(name)

    def look(self, name: str) -> None:
        """Replace files of a published bundle that another bundle has.

        Raises:
            StorageError: The index cannot be used.
        """
        bundle = self._folder / name
        try:
            # All is done through this descriptor: should another driver publish the same output
            # anew meanwhile, it is the old one's files that become links.
            here = os.open(bundle, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return  # one file, or gone
        try:
            identity, files = _files(here, bundle, self._kind)
            self._db.execute(  # what was known of an older output of that name
                "DELETE FROM bundle_files WHERE name = ?"
                " AND EXISTS (SELECT 1 FROM bundles_seen WHERE name = ? AND manifest != ?)",
                (encode_text(name), encode_text(name), identity),
            )
            if all(self._replace(here, name, file) for file in files):
                self._db.execute(
                    "INSERT OR REPLACE INTO bundles_seen VALUES(?, ?)",
                    (encode_text(name), identity),
                )
        except (SourceError, OSError) as e:
            self._give_up(name, e)
        finally:
            os.close(here)

    def _replace(self, here: int, name: str, held: Held) -> bool:
        """Replace a file by a link to another bundle's; return False on a failure."""
        # Known before it is looked for, and files become links to those that were known earlier:
        # two drivers at the same files never have them change places.
        key = encode_text(name), encode_text(held.file), held.digest
        self._db.execute(
            "INSERT OR IGNORE INTO bundle_files(name, file, digest) VALUES(?, ?, ?)", key
        )
        row = self._db.execute(
            "SELECT id FROM bundle_files WHERE name = ? AND file = ? AND digest = ?", key
        ).fetchone()
        if row is None:  # another driver has just found it replaced
            return True
        for place in islice(self._places(held.digest, *row), MOST_TRIES):
            path = self._folder / place.name / place.file
            try:
                source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:  # removed, or replaced by something else
                self._forget(place)
                continue
            try:
                theirs = os.fstat(source)
                if os.path.samestat(theirs, held.status):
                    return True
                if not self._is(source, theirs, held.digest):
                    self._forget(place)
                    continue
                with staging(self._folder / name) as beside:
                    made = beside / "link"
                    if self._link(source, path, made, theirs, held.status):
                        os.rename(made, held.file, dst_dir_fd=here)
                        self._files += 1
                        self._nbytes += held.status.st_size
                        return True
            except (OSError, StorageError) as e:
                self._give_up(name, e)
                return False
            finally:
                os.close(source)
        return True

    def _give_up(self, name: str, e: Exception) -> None:
        self._problems.append(f"{name}: {e.strerror if isinstance(e, OSError) else e}")

    def _places(self, digest: str, known: int) -> Iterator[IndexedFile]:
        """Yield files with this digest, the oldest first.

        If that has too many links, or another owner, the latest ones follow.
        """
        oldest = -1
        while (place := self._place("ORDER BY id", digest, known)) and place.id != oldest:
            oldest = place.id
            yield place  # and if it is still known then, it could not be linked to
        while place and (place := self._place("ORDER BY id DESC", digest, known, oldest)):
            known = place.id
            yield place

    def _place(self, order: str, digest: str, below: int, above: int = -1) -> IndexedFile | None:
        row = self._db.execute(
            "SELECT id, name, file FROM bundle_files"  # noqa: S608 - one of two orders
            f" WHERE digest = ? AND id < ? AND id > ? {order} LIMIT 1",
            (digest, below, above),
        ).fetchone()
        return (
            None if row is None else IndexedFile(row[0], decode_text(row[1]), decode_text(row[2]))
        )

    def _is(self, descriptor: int, status: os.stat_result, digest: str) -> bool:
        """Return whether an open file has this digest; it is hashed and flushed once in a run."""
        if not stat.S_ISREG(status.st_mode):
            return False
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if key not in self._hashed:
            hasher = digests.new()
            buffer = memoryview(bytearray(digests.STRIDE))
            position = 0
            while count := os.preadv(descriptor, [buffer], position):
                hasher.update(buffer[:count])
                position += count
            self._hashed[key] = str(hasher.hexdigest())
            os.fsync(descriptor)  # before another bundle depends on it
        return self._hashed[key] == digest

    def _forget(self, place: IndexedFile) -> None:
        self._db.execute("DELETE FROM bundle_files WHERE id = ?", (place.id,))


@contextmanager
def opened(request: Request, index: Path) -> Iterator[Links | None]:
    """Yield the linker of a batch's outputs, or None unless links were requested.

    Raises:
        StorageError: As `Links`.
        UnsupportedError: As `Links`.
    """
    if request.link is None:
        yield None
    else:
        kind = cast(Kind, request.link)
        with Links(Path(request.destination), index, kind) as found:
            yield found


def check(kind: str | None, *, is_local: bool, target: str) -> None:
    """Raise UsageError where links are impossible.

    Raises:
        UsageError: There is no such kind, or a destination and outputs that have none.
    """
    if kind is None:
        return
    if kind not in KINDS:
        raise UsageError(f"link={kind!r}", expected=" or ".join(KINDS))
    if not is_local:
        raise UsageError(f"link={kind!r} with a destination elsewhere", expected="a local folder")
    if target != "portable":
        raise UsageError(
            f"link={kind!r} with to={target!r}",
            expected="to='portable', whose manifests tell which files are the same",
        )


def _files(here: int, bundle: Path, kind: Kind) -> tuple[str, list[Held]]:
    """Return the identity of a bundle's manifest, and its large files that can become links.

    A file that a graph points into is no hard link: onnx refuses external data of several names.

    Raises:
        CorruptError: The manifest is damaged.
        OSError: There is none, or it cannot be read.
    """
    descriptor = os.open(portable.MANIFEST, os.O_RDONLY | os.O_CLOEXEC, dir_fd=here)
    with os.fdopen(descriptor, "rb") as f:
        status = os.fstat(descriptor)
        text = f.read(DEFAULT.max_header_bytes + 1)
    where = bundle / portable.MANIFEST
    manifest: Any = parse(text, where=str(where), limit=DEFAULT.max_header_bytes)
    found: list[Held] = []
    if kind == "hardlink" and manifest.get("graph") is not None:
        return _identity(status), found
    try:
        for resource in manifest["resources"]:
            name, size, digest = resource["name"], resource["size"], resource["digest"]
            if size < SMALLEST or ".." in name.split("/") or name.startswith("/"):
                continue
            if not DIGEST.fullmatch(digest):
                raise CorruptError(f"{digest!r:.80} is no digest", where=where)
            held = os.stat(name, dir_fd=here, follow_symlinks=False)
            if stat.S_ISREG(held.st_mode) and held.st_size == size:
                found.append(Held(name, digest, held))
    except (KeyError, TypeError, AttributeError, ValueError) as e:
        raise CorruptError(f"does not follow its schema ({e!r})", where=where) from e
    return _identity(status), found


def _identity(status: os.stat_result) -> str:
    return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"


def _hard(
    source: int, path: Path, made: Path, theirs: os.stat_result, mine: os.stat_result
) -> bool:
    """Make a hard link; return whether it points to the file that was checked."""
    if _belongs(theirs) != _belongs(mine):  # who may read it would change
        return False
    try:
        os.link(path, made, follow_symlinks=False)
    except OSError as e:
        if e.errno in _NOT_THIS_ONE:
            return False
        raise
    return os.path.samestat(made.lstat(), theirs) and _is_unchanged(source, theirs)


def _clone(
    source: int, path: Path, made: Path, theirs: os.stat_result, mine: os.stat_result
) -> bool:
    """Clone a file's blocks, with the attributes of the file it will replace."""
    del path
    copy = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.ioctl(copy, FICLONE, source)
        os.fchmod(copy, stat.S_IMODE(mine.st_mode))
        os.utime(copy, ns=(mine.st_atime_ns, mine.st_mtime_ns))
        os.fsync(copy)
    except OSError as e:
        if e.errno in _NOT_THIS_ONE:
            return False
        raise
    finally:
        os.close(copy)
    return _is_unchanged(source, theirs)


_LINKS: dict[
    Kind, Callable[[int, Path, Path, os.stat_result, os.stat_result], bool]
] = {"hardlink": _hard, "reflink": _clone}  # fmt: skip
# This file has too many names already, is on another file system, or has just gone.
_NOT_THIS_ONE = {errno.EMLINK, errno.EXDEV, errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL}


def _belongs(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mode, status.st_uid, status.st_gid


def _is_unchanged(descriptor: int, before: os.stat_result) -> bool:
    now = os.fstat(descriptor)
    return (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def _probe(folder: Path, kind: Kind) -> None:
    """Make a trial link.

    Raises:
        StorageError: The folder cannot be written.
        UnsupportedError: Its file system has none.
    """
    with staging(folder / "links") as place:
        file, link = place / "file", place / "link"
        try:
            file.write_bytes(bytes(SMALLEST))
            with file.open("rb") as f:
                status = os.fstat(f.fileno())
                made = _LINKS[kind](f.fileno(), file, link, status, status)
        except OSError as e:
            if e.errno not in _HAS_NONE:
                raise StorageError.writing(folder, e) from e
            made = False
        if not made:
            other = "; hardlink may do" if kind == "reflink" else ""
            raise UnsupportedError(
                f"not supported: {kind}s, the file system has none", where=folder,
                hint=f"Leave link= out{other}",
            )  # fmt: skip


_HAS_NONE = {errno.ENOTTY, errno.ENOSYS, errno.EPERM}  # and what it says of two files
