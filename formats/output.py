"""A file being written, front to back: by the kernel where bytes are copied as they are.

`copy_file_range` keeps the bytes out of this process, so memory does not grow with the model;
where the file system cannot do that, a buffer of `STRIDE` bytes does the same.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from formats.errors import SourceError, StorageError
from formats.storage import File, ReadAhead, Span
from formats.weights import Piece

STRIDE = 1 << 20  # bytes the kernel copies at once: what follows the copy finds them in a cache

SMALL = 1 << 16  # runs below this are not worth a system call each

# What copy_file_range says when these two files are not for it.
_CANNOT = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.ETXTBSY}


class Output:
    """A file being written; use as a context manager. Permissions follow the umask.

    Small writes are collected: what was appended is in the file once it was yielded, or after
    `flush`, which the end of the context does.
    """

    def __init__(self, path: Path, *, at: int | None = None) -> None:
        """Create the file, which must not exist; or go on with it at a position.

        Raises:
            StorageError: It cannot be created or opened.
        """
        self.path = path
        self.position = at or 0  # of the next byte, collected ones counted
        self._collected = bytearray()
        self._source = ReadAhead()
        self._kernel_copies = hasattr(os, "copy_file_range")
        new = os.O_CREAT | os.O_EXCL if at is None else 0
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | new, 0o666)
        except OSError as e:
            raise StorageError.writing(path, e) from e

    def __enter__(self) -> "Output":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            os.close(self._fd)

    def write(self, data: bytes) -> None:
        """Append ``data``.

        Raises:
            StorageError: The disk is full, or fails.
        """
        self._collected += data
        self.position += len(data)
        if len(self._collected) >= STRIDE:
            self.flush()

    def flush(self) -> int:
        """Write what was collected, and return the number of bytes.

        Raises:
            StorageError: The disk is full, or fails.
        """
        count = len(self._collected)
        try:
            with memoryview(self._collected) as view:
                done = 0
                while done < count:
                    done += os.pwrite(self._fd, view[done:], self.position - count + done)
        except OSError as e:
            raise StorageError.writing(self.path, e) from e
        self._collected.clear()
        return count

    def reserve(self, size: int) -> None:
        """Give the file its final size, so that its own reader opens it before it is filled.

        Raises:
            StorageError: The file system holds no file of that size.
        """
        try:
            os.ftruncate(self._fd, size)
        except OSError as e:
            raise StorageError.writing(self.path, e) from e

    def append(
        self, pieces: Iterable[Piece], watch: Callable[[Span], object] | None = None
    ) -> Iterator[int]:
        """Append pieces one after another, yielding the number of bytes of each write.

        Args:
            pieces: Runs of files, and bytes.
            watch: Called with each run of a file before it is copied, `STRIDE` bytes at a time.

        Raises:
            StorageError: The disk is full, or fails.
            SourceError: A source file became shorter.
        """
        for piece in merged(pieces):
            if isinstance(piece, Span):
                for start in range(0, piece.length, STRIDE):
                    run = piece.sub(start, min(STRIDE, piece.length - start))
                    if watch is not None:
                        watch(run)
                    yield from self._copy(run)
            else:
                yield from self._collect(piece)

    def sync(self) -> None:
        """Wait until all that was written is on the disk.

        Raises:
            StorageError: It did not get there.
        """
        self.flush()
        try:
            os.fsync(self._fd)
        except OSError as e:
            raise StorageError.writing(self.path, e) from e

    def _collect(self, data: bytes) -> Iterator[int]:
        before = len(self._collected) + len(data)
        self.write(data)
        if not self._collected:
            yield before

    def _copy(self, run: Span) -> Iterator[int]:
        if run.length < SMALL or not isinstance(run.storage, File):
            yield from self._collect(self._source.read(run))
            return
        if collected := self.flush():
            yield collected
        done = 0
        while self._kernel_copies and done < run.length:
            try:
                copied = os.copy_file_range(
                    run.storage.fileno(),
                    self._fd,
                    run.length - done,
                    run.offset + done,
                    self.position,
                )
            except OSError as e:
                if e.errno not in _CANNOT:
                    raise StorageError.writing(self.path, e) from e
                self._kernel_copies = False
                break
            if not copied:
                raise SourceError("became shorter while it was copied", where=run.name)
            done += copied
            self.position += copied
            yield copied
        if done < run.length:
            yield from self._collect(run.read(done))


def merged(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield the pieces with neighbouring runs of one file made one."""
    last: Span | None = None
    for piece in pieces:
        if not isinstance(piece, Span):
            if last is not None:
                yield last
                last = None
            yield piece
        elif (
            last is not None
            and piece.storage is last.storage
            and piece.offset == last.offset + last.length
        ):
            last = Span(last.storage, last.offset, last.length + piece.length)
        else:
            if last is not None:
                yield last
            last = piece
    if last is not None:
        yield last
