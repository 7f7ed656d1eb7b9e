"""One new file, written front to back: by the kernel where bytes are copied as they are.

`copy_file_range` keeps the bytes out of this process, so memory does not grow with the model;
where the file system cannot do that, a buffer of `CHUNK` bytes does the same.
"""

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from formats.errors import SourceError, StorageError
from formats.storage import File, Span
from formats.weights import CHUNK, Piece, split

STRIDE = 1 << 25  # bytes the kernel copies between two reports of progress

# What copy_file_range says when these two files are not for it.
_CANNOT = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.ETXTBSY}


class Output:
    """A file being written; use as a context manager. Permissions follow the umask."""

    def __init__(self, path: Path) -> None:
        """Create the file, which must not exist.

        Raises:
            StorageError: It cannot be created.
        """
        self.path = path
        self.position = 0
        self._kernel_copies = hasattr(os, "copy_file_range")
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError as e:
            raise StorageError.writing(path, e) from e

    def __enter__(self) -> "Output":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def write(self, data: bytes) -> None:
        """Append ``data``.

        Raises:
            StorageError: The disk is full, or fails.
        """
        view = memoryview(data)
        try:
            while view:
                written = os.pwrite(self._fd, view, self.position)
                self.position += written
                view = view[written:]
        except OSError as e:
            raise StorageError.writing(self.path, e) from e

    def append(self, pieces: Iterable[Piece]) -> Iterator[int]:
        """Append pieces one after another, yielding the number of bytes of each step.

        Raises:
            StorageError: The disk is full, or fails.
            SourceError: A source file became shorter.
        """
        for piece in merged(pieces):
            if isinstance(piece, Span):
                yield from self._copy(piece)
            else:
                self.write(piece)
                yield len(piece)

    def sync(self) -> None:
        """Wait until all that was written is on the disk.

        Raises:
            StorageError: It did not get there.
        """
        try:
            os.fsync(self._fd)
        except OSError as e:
            raise StorageError.writing(self.path, e) from e

    def _copy(self, span: Span) -> Iterator[int]:
        done = 0
        while self._kernel_copies and isinstance(span.storage, File) and done < span.length:
            try:
                copied = os.copy_file_range(
                    span.storage.fileno(),
                    self._fd,
                    min(span.length - done, STRIDE),
                    span.offset + done,
                    self.position,
                )
            except OSError as e:
                if e.errno not in _CANNOT:
                    raise StorageError.writing(self.path, e) from e
                self._kernel_copies = False
                break
            if not copied:
                raise SourceError("became shorter while it was copied", where=span.name)
            done += copied
            self.position += copied
            yield copied
        for chunk in split(span.sub(done, span.length - done), CHUNK):
            self.write(chunk)
            yield len(chunk)


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
