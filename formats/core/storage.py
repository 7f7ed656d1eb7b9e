"""Storage of bytes: a file or a buffer in memory, and spans of either.

A `Span` is the currency of all readers: metadata is read through it, and a weight is one until it
is written. Nothing here knows a format.
"""

import errno
import os
import resource
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Literal, NamedTuple, Protocol

from formats.errors import CorruptError, SafetyError, SourceError

HEAD = 4096  # bytes of a file by which its format is recognised


class Storage(Protocol):
    """Random access to immutable bytes."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes.

        Raises:
            CorruptError: The storage ends before that.
        """
        ...

    def readinto(self, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from ``offset``, as `read` would; loops over large runs reuse theirs."""
        ...


class Checksum(NamedTuple):
    """The checksum of a run of bytes.

    Attributes:
        algorithm: ``crc32`` of zip archives, or ``crc32c`` as TensorFlow masks it.
        value: The recorded checksum.
        name: What the run is called in messages.
    """

    algorithm: Literal["crc32", "crc32c"]
    value: int
    name: str


class File:
    """One regular file, opened when first read and reopened after `close`.

    It remembers which file it was: a source that is replaced or rewritten between planning and
    copying is an error, never a mixture.

    Attributes:
        owner: What must not be removed while the file is in use: a temporary folder's owner.
        checksums: Offset and length of a run → the checksum that it must have (see
            `formats.core.checksums`).
    """

    __slots__ = ("_fd", "_identity", "_lock", "checksums", "name", "owner", "path", "size")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open ``path``.

        Raises:
            SourceError: It is missing, unreadable or no regular file.
        """
        self.path = Path(path)
        self.name = str(path)
        self._fd = -1
        self._lock = Lock()
        self._identity: tuple[int, ...] | None = None
        self.size = 0
        self.owner: object = None
        self.checksums: dict[tuple[int, int], Checksum] = {}
        self.fileno()

    def fileno(self) -> int:
        """Return an open, readable descriptor."""
        with self._lock:
            return self._fd if self._fd >= 0 else self._open()

    def _open(self) -> int:
        try:
            fd = _open_to_read(self.path)
        except (OSError, ValueError) as e:
            reason = getattr(e, "strerror", None) or str(e)
            raise SourceError(f"cannot be opened: {reason}", where=self.name) from e
        status = os.fstat(fd)
        identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            raise SourceError("is not a regular file", where=self.name)
        if self._identity not in (None, identity):
            os.close(fd)
            raise SourceError("changed while it was being read", where=self.name)
        self._fd, self._identity, self.size = fd, identity, status.st_size
        return fd

    def check_unchanged(self) -> None:
        """Raise SourceError when the file is no longer what it was when first opened."""
        self.close()
        self.fileno()

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes from ``offset``."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise CorruptError(
                f"{length} bytes wanted, but the file has {self.size}",
                where=self.name,
                offset=offset,
            )
        try:
            data = os.pread(self.fileno(), length, offset)
            while len(data) < length:
                more = os.pread(self._fd, length - len(data), offset + len(data))
                if not more:
                    raise SourceError("changed while it was being read", where=self.name)
                data += more
        except OSError as e:
            raise SourceError(f"cannot be read: {e.strerror}", where=self.name) from e
        return data

    def readinto(self, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from ``offset``."""
        try:
            count = os.preadv(self.fileno(), [buffer], offset)
        except (OSError, ValueError, OverflowError):
            count = -1
        if count != len(buffer):  # rare enough to do again, slowly, for its result or its error
            buffer[:] = self.read(offset, len(buffer))

    def close(self) -> None:
        """Give the descriptor back; the next read reopens the file."""
        fd, self._fd = self._fd, -1  # first, or an interrupt in between closes it twice
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()


def _open_to_read(path: Path) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # O_NONBLOCK: a FIFO must not hang us
    try:
        return os.open(path, flags)
    except OSError as e:
        if e.errno != errno.EMFILE:
            raise
        # A checkpoint of a thousand shards: take as many descriptors as we may have.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == hard:
            raise
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return os.open(path, flags)


class Buffer:
    """Bytes already in memory: a small inflated member, an inline constant."""

    __slots__ = ("data", "name", "size")

    def __init__(self, data: bytes, name: str) -> None:
        self.data = data
        self.name = name
        self.size = len(data)

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes from ``offset``."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise CorruptError(
                f"{length} bytes wanted, but there are {self.size}", where=self.name, offset=offset
            )
        return self.data[offset : offset + length]

    def readinto(self, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from ``offset``."""
        buffer[:] = self.read(offset, len(buffer))


@dataclass(frozen=True, slots=True)
class Span:
    """A run of bytes of one storage."""

    storage: Storage
    offset: int
    length: int

    @classmethod
    def whole(cls, storage: Storage) -> "Span":
        """Return all of ``storage``."""
        return cls(storage, 0, storage.size)

    @property
    def name(self) -> str:
        """What messages call the storage."""
        return self.storage.name

    def sub(self, offset: int, length: int) -> "Span":
        """Return the run of ``length`` bytes at ``offset`` of this one.

        Raises:
            CorruptError: It does not lie inside.
        """
        if offset < 0 or length < 0 or offset + length > self.length:
            raise CorruptError(
                f"a run of {length} bytes does not fit into the {self.length} there are",
                where=self.name,
                offset=self.offset + offset,
            )
        return Span(self.storage, self.offset + offset, length)

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """Return ``length`` bytes (default: the rest) from ``offset`` of this run."""
        run = self.sub(offset, self.length - offset if length is None else length)
        return self.storage.read(run.offset, run.length)

    def readinto(self, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from ``offset`` of this run."""
        run = self.sub(offset, len(buffer))
        self.storage.readinto(run.offset, buffer)


class Blocks:
    """The blocks of files that were read last: a second reader of a span finds it in memory.

    Copying, hashing and comparing read a source at nearly the same time.
    A block is read once for all of them, and a model of 100,000 tensors of 100 bytes does not
    take a system call for each. A small span that does not continue where its file was read last is
    read alone: there may be hundreds of shards, with each tensor spread over all of them.

    Threads may share it.
    """

    # Larger ones fall out of the cores' own caches; smaller ones are handed from thread to thread
    # too often. Measured on two cores with 1 MB of L2 cache each.
    SIZE = 1 << 19  # bytes
    KEPT = 6  # of one file: few, so that their memory is used again while a cache still has it
    FILES = 24  # whose reading is remembered, and how many blocks there are in all

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], tuple[File, bytes]] = {}
        self._ends: dict[int, int] = {}  # where the files read lately were read up to
        self._last: tuple[File, int] | None = None
        self._lock, self._reading = Lock(), Lock()

    def views(self, span: Span) -> Iterator[memoryview]:
        """Yield the bytes of a run, `SIZE` or fewer at a time.

        Raises:
            CorruptError: The storage ends before that.
        """
        position, end = span.offset, span.offset + span.length
        if not isinstance(span.storage, File):
            for start in range(position, end, self.SIZE):
                yield memoryview(span.storage.read(start, min(self.SIZE, end - start)))
        elif end > span.storage.size or not self._goes_on(span):
            yield memoryview(span.read())
        else:
            while position < end:
                index, start = divmod(position, self.SIZE)
                view = memoryview(self._block(span.storage, index))
                view = view[start : start + end - position]
                yield view
                position += len(view)

    def read(self, span: Span) -> bytes:
        """Return the bytes of a run.

        Raises:
            CorruptError: The storage ends before that.
        """
        return b"".join(self.views(span))

    def read_ahead(self) -> None:
        """Read the block after the one read last, for who has time while another goes on."""
        if self._last is not None:
            file, index = self._last
            if (index + 1) * self.SIZE < file.size:
                self._block(file, index + 1)

    def _goes_on(self, span: Span) -> bool:
        """Return whether more of the run's blocks is wanted than this run, or has been."""
        key = id(span.storage)
        with self._lock:
            end = self._ends.pop(key, None)
            self._ends[key] = span.offset + span.length
            if len(self._ends) > self.FILES:
                del self._ends[next(iter(self._ends))]
        if span.length >= self.SIZE // 2:
            return True
        return end is not None and abs(span.offset - end) < self.SIZE

    def _block(self, file: File, index: int) -> bytes:
        key = id(file), index  # the file is kept beside its block, so its id is its own
        with self._lock:
            found = self._kept.get(key)
        if found is not None:
            return found[1]
        with self._reading:  # two threads never read the same block
            found = self._kept.get(key)
            if found is not None:
                return found[1]
            start = index * self.SIZE
            data = file.read(start, min(self.SIZE, file.size - start))
            self._last = file, index
            with self._lock:
                self._kept[key] = file, data
                self._forget(id(file))
            return data

    def _forget(self, file: int) -> None:
        of_file = [key for key in self._kept if key[0] == file]
        for key in of_file[: -self.KEPT]:
            del self._kept[key]
        while len(self._kept) > self.FILES:
            del self._kept[next(iter(self._kept))]


def resolve_member(folder: Path, name: str) -> Path:
    """Return the path of a file that an artifact in ``folder`` names, once that is safe.

    A name stays inside its folder: no absolute path, no ``..``, no symbolic link out of it. The
    one exception is the layout of the Hugging Face cache, where ``snapshots/<revision>/x`` links
    to ``blobs/<digest>`` of the same repository.

    Raises:
        SafetyError: The name leads elsewhere.
        SourceError: There is no such file.
    """
    parts = name.replace("\\", "/").split("/")
    if name.startswith(("/", "\\")) or ".." in parts or "\0" in name or ":" in parts[0]:
        raise SafetyError(f"names a file outside its folder: {name!r}", where=folder)
    path = folder.joinpath(*parts)
    root = folder.resolve()
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as e:  # ValueError: a name that no file can have
        raise SourceError(f"names a file that is not there: {name!r:.200}", where=folder) from e
    if target.is_relative_to(root):
        return path
    if root.parent.name == "snapshots" and target.is_relative_to(root.parent.parent / "blobs"):
        return path
    raise SafetyError(f"{name!r} is a link that leaves the folder, to {target}", where=folder)
