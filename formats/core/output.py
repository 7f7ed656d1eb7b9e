"""An output file, written front to back; the kernel copies bytes that nothing else reads.

`copy_file_range` keeps them out of this process. Where they are hashed on the way, or the file
system cannot do that, they come out of shared blocks. Memory grows with the model in neither case.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from formats.core.storage import Blocks, File, Span
from formats.core.weights import Piece
from formats.errors import SourceError, StorageError

STRIDE = 1 << 20  # bytes copied at once: what follows the copy finds them in a cache

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
        self._written = at or 0  # position of the next byte in the file
        self._collected = bytearray()
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

    @property
    def position(self) -> int:
        """Position of the next byte, those collected counted."""
        return self._written + len(self._collected)

    @property
    def written(self) -> int:
        """Position up to which all bytes are in the file, those collected not counted."""
        return self._written

    def write(self, data: bytes | memoryview) -> None:
        """Append ``data``.

        Raises:
            StorageError: The disk is full, or fails.
        """
        self._collected += data
        if len(self._collected) >= STRIDE:
            self.flush()

    def flush(self) -> int:
        """Write what was collected, and return the number of bytes.

        Raises:
            StorageError: The disk is full, or fails.
        """
        count = len(self._collected)
        with memoryview(self._collected) as view:
            self._write(view)
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
        self,
        pieces: Iterable[Piece],
        blocks: Blocks | None = None,
        watch: Callable[[Span], object] | None = None,
    ) -> Iterator[int]:
        """Append pieces one after another, yielding the number of bytes of each write.

        Args:
            pieces: Runs of files, and bytes.
            blocks: Through which files are read.
            watch: Called with each run of a file that was copied; it finds in the blocks what
                was, so the kernel does not copy on its own.

        Raises:
            StorageError: The disk is full, or fails.
            SourceError: A source file became shorter.
        """
        blocks = blocks or Blocks()
        for piece in merge_pieces(pieces):
            if not isinstance(piece, Span):
                yield from self._collect(piece)
            elif watch is None and piece.length >= SMALL and isinstance(piece.storage, File):
                yield from self._copy(piece, piece.storage, blocks)
            else:
                yield from self._through(piece, blocks, watch)

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

    def _collect(self, data: bytes | memoryview) -> Iterator[int]:
        """Append bytes: a few with others, many on their own."""
        if len(data) < SMALL:
            before = len(self._collected) + len(data)
            self.write(data)
            if not self._collected:
                yield before
            return
        if collected := self.flush():
            yield collected
        self._write(memoryview(data))
        yield len(data)

    def _through(
        self, run: Span, blocks: Blocks, watch: Callable[[Span], object] | None
    ) -> Iterator[int]:
        done = 0
        for view in blocks.views(run):
            yield from self._collect(view)
            if watch is not None:
                watch(run.sub(done, len(view)))
            done += len(view)

    def _copy(self, run: Span, file: File, blocks: Blocks) -> Iterator[int]:
        if collected := self.flush():
            yield collected
        done = 0
        while self._kernel_copies and done < run.length:
            try:
                copied = os.copy_file_range(
                    file.fileno(),
                    self._fd,
                    min(run.length - done, STRIDE),
                    run.offset + done,
                    self._written,
                )
            except OSError as e:
                if e.errno not in _CANNOT:
                    raise StorageError.writing(self.path, e) from e
                self._kernel_copies = False
                break
            if not copied:
                raise SourceError("became shorter while it was copied", where=run.name)
            done += copied
            self._written += copied
            yield copied
        yield from self._through(run.sub(done, run.length - done), blocks, None)

    def _write(self, data: memoryview) -> None:
        try:
            while data:
                done = os.pwrite(self._fd, data, self._written)
                self._written += done
                data = data[done:]
        except OSError as e:
            raise StorageError.writing(self.path, e) from e


def write_file(path: Path, data: bytes, *, sync: bool) -> None:
    """Write a small file whole; with ``sync``, wait until it is on the disk.

    Raises:
        StorageError: It cannot be written.
    """
    with Output(path) as out:
        out.write(data)
        if sync:
            out.sync()


def merge_pieces(pieces: Iterable[Piece]) -> Iterator[Piece]:
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
