"""Bit-for-bit comparison of what was written with what was read, while it is being written.

The output is read again by its own reader, from its own headers, and each tensor's bytes are
compared with the source's. The comparison follows behind the writing on a second core, where the
bytes are still in a cache; the digests of tensors and of files are taken from them on the way.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Condition
from typing import Any, NamedTuple

from converter.byte_sizes import readable_size
from formats.core import digests
from formats.core.output import SMALL
from formats.core.plurals import count
from formats.core.storage import Blocks, File, Span
from formats.core.weights import Piece, Tensor
from formats.errors import InternalError, VerificationError


class WeightsReport(NamedTuple):
    """What the comparison of weights found; there is one only where all were equal.

    Attributes:
        tensors: Number compared.
        nbytes: Bytes compared.
        digests: Tensor name → digest, where digests were asked for.
        files: Path of an output file → digest of the whole of it, where digests were asked for.
    """

    tensors: int
    nbytes: int
    digests: Mapping[str, str]
    files: Mapping[Path, str]

    def __str__(self) -> str:
        tensors = count("tensor", self.tensors)
        return f"weights: {tensors}, {readable_size(self.nbytes)}, equal bit for bit"


class Written:
    """How many bytes of tensors are in the output by now; who reads them waits for those.

    Who writes them waits as well, for a reader that has begun and is more than `AHEAD` behind:
    both are faster while the blocks of the source that one has read serve the other.
    """

    AHEAD = Blocks.SIZE * Blocks.KEPT // 2

    def __init__(self) -> None:
        self._nbytes = 0
        self._reader: int | None = None  # where it is, if there is one
        self._ended = False
        self._changed = Condition()

    def advance(self, nbytes: int) -> None:
        """Say that so many more are written."""
        with self._changed:
            self._nbytes += nbytes
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._reader is None or self._nbytes - self._reader <= self.AHEAD
            )

    def end(self) -> None:
        """Say that no more will be: who waits for others must give up."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def has_reached(self, nbytes: int) -> bool:
        """Return whether so many are written."""
        return self._nbytes >= nbytes

    def wait(self, nbytes: int) -> None:
        """Return once so many are written.

        Raises:
            InternalError: They never will be.
        """
        with self._changed:
            self._reader = nbytes
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ended or self._nbytes >= nbytes)
            if self._nbytes < nbytes:
                raise InternalError("the weights were not written to the end")

    def leave(self) -> None:
        """Say that the reader is gone: nobody has to wait for it."""
        with self._changed:
            self._reader = None
            self._changed.notify_all()


def compare(
    source: Mapping[str, Tensor],
    output: Mapping[str, Tensor],
    *,
    with_digests: bool,
    blocks: Blocks | None = None,
    written: Written | None = None,
) -> WeightsReport:
    """Compare two sets of weights.

    Args:
        source: As read.
        output: As its own reader finds it in the files written.
        with_digests: Whether to take digests.
        blocks: Through which the source is read, shared with who writes the output.
        written: How far the output is, in the order of its files and of the bytes in them, where
            it is still being written.

    Raises:
        VerificationError: A tensor is missing, or differs; or there is nothing to compare.
        InternalError: The writing ended early.
    """
    if not source:
        raise VerificationError("there is no tensor to compare")
    missing = [name for name in source if name not in output]
    extra = [name for name in output if name not in source]
    if missing or extra:
        raise VerificationError(
            f"the output lacks {count('tensor', len(missing))} and has {len(extra)} others",
            where=(missing + extra)[0],
        )
    # Tied names are one tensor: compared and hashed once.
    keys = {name: (source[name].identity, output[name].identity) for name in source}
    first = {key: name for name, key in reversed(keys.items())}
    runs = [_Run(name, source[name], output[name], with_digests) for name in first.values()]
    files: dict[Path, str] = {}
    blocks = blocks or Blocks()
    done = 0
    try:
        for path, stored in _by_file(runs).items():
            file = _OutputFile(path, stored[0].start, blocks, written, done, with_digests)
            for run in stored:
                file.compare(run)
            done += file.body
            digest = file.finish()
            if with_digests:
                files[path] = digest
    finally:
        if written is not None:
            written.leave()
    found = {run.name: run.digest() for run in runs}
    return WeightsReport(
        tensors=len(source),
        nbytes=sum(run.source.nbytes for run in runs),
        digests={n: found[first[key]] for n, key in keys.items()} if with_digests else {},
        files=files,
    )


class _Run:
    """A tensor of the source, and where the output has it.

    Attributes:
        name: Of the tensor.
        source: The tensor.
        path: The output's file; None for a tensor without elements.
        start: Its first byte there.
    """

    __slots__ = ("_hasher", "name", "path", "source", "start")

    def __init__(self, name: str, source: Tensor, output: Tensor, with_digest: bool) -> None:
        if (source.dtype, source.shape) != (output.dtype, output.shape):
            raise VerificationError(
                f"is {output.dtype}{list(output.shape)} in the output",
                expected=f"{source.dtype}{list(source.shape)}",
                where=name,
            )
        self.name, self.source = name, source
        self.path: Path | None = None
        self.start = 0
        self._hasher: Any = digests.new() if with_digest else None
        if output.size:
            extent = output.extent()
            if extent is None or not isinstance(extent.storage, File):
                raise VerificationError(
                    "is not one plain run of its file in the output", where=name
                )
            self.path, self.start = extent.storage.path, extent.offset

    def hash(self, data: memoryview) -> None:
        """Update the tensor's digest."""
        if self._hasher is not None:
            self._hasher.update(data)

    def digest(self) -> str:
        """Return the tensor's digest, in hexadecimal, where one was asked for."""
        return str(self._hasher.hexdigest()) if self._hasher is not None else ""


def _by_file(runs: Iterable[_Run]) -> dict[Path, list[_Run]]:
    """Return the runs by file, in the order of names and of bytes: that of their writing."""
    files: dict[Path, list[_Run]] = {}
    for run in runs:
        if run.path is not None:
            files.setdefault(run.path, []).append(run)
    return {
        path: sorted(files[path], key=lambda run: run.start)
        for path in sorted(files, key=lambda path: path.name)
    }


class _OutputFile:
    """One file of the output, compared and hashed front to back.

    Attributes:
        body: Bytes from its first tensor to its end.
    """

    def __init__(
        self,
        path: Path,
        start: int,
        blocks: Blocks,
        written: Written | None,
        before: int,
        with_digests: bool,
    ) -> None:
        # A handle of our own: the reader's would refuse a file that changes while it is open.
        self._file = File(path)
        self.body = self._file.size - start
        self._blocks = blocks
        self._written, self._before = written, before - start
        self._hasher: Any = digests.new() if with_digests else None
        self._hashed = 0
        self._position = start  # up to where the file is compared
        self._theirs = bytearray()
        self._small = bytearray()  # runs of the source that are compared together
        self._parts: list[tuple[_Run, int]] = []  # whose bytes those are, up to where

    def compare(self, run: _Run) -> None:
        """Compare a tensor's bytes, now or with the tensors that follow it.

        Raises:
            VerificationError: They differ.
        """
        if run.start != self._position + len(self._small):
            self._compare_small()
            self._position = run.start
        left = run.source.nbytes
        for piece in run.source.pieces():
            left -= piece.length if isinstance(piece, Span) else len(piece)
            if left < 0:
                break
            for view in self._views(piece):
                if len(view) >= SMALL:
                    self._compare_small()
                    self._compare(view, [(run, len(view))])
                    continue
                self._small += view
                self._parts.append((run, len(self._small)))
                if len(self._small) >= Blocks.SIZE:
                    self._compare_small()
        if left:
            raise VerificationError("has another size than its source", where=run.name)

    def finish(self) -> str:
        """Compare what is left, and return the digest of the whole file where one is asked for.

        Raises:
            VerificationError: They differ.
        """
        self._compare_small()
        if self._hasher is None:
            return ""
        self._hash_up_to(self._file.size)
        return str(self._hasher.hexdigest())

    def _views(self, piece: Piece) -> Iterable[memoryview]:
        if isinstance(piece, Span):
            return self._blocks.views(piece)
        view = memoryview(piece)
        return (view[i : i + Blocks.SIZE] for i in range(0, len(view), Blocks.SIZE))

    def _compare_small(self) -> None:
        if self._small:
            with memoryview(self._small) as view:
                self._compare(view, self._parts)
            self._small.clear()
            self._parts.clear()

    def _compare(self, ours: memoryview, parts: list[tuple[_Run, int]]) -> None:
        n, begin = len(ours), self._position
        if self._written is not None:
            if not self._written.has_reached(self._before + begin + n):
                self._blocks.read_ahead()
            self._written.wait(self._before + begin + n)
        if len(self._theirs) != n:
            self._theirs = bytearray(n)
        with memoryview(self._theirs) as theirs:
            self._file.readinto(begin, theirs)
            if self._theirs != ours:  # as a bytearray, not as a view: that is one memcmp
                at = next(i for i in range(n) if ours[i] != theirs[i])
                run = next(run for run, end in parts if at < end)
                raise VerificationError(
                    "differs from its source", where=run.name, offset=begin + at - run.start
                )
            self._position += n
            if self._hasher is None:
                return
            self._hash_up_to(begin)
            if begin == self._hashed:  # else two names have the same bytes
                self._hasher.update(theirs)
                self._hashed += n
            start = 0
            for run, end in parts:
                run.hash(theirs[start:end])
                start = end

    def _hash_up_to(self, position: int) -> None:
        if position > self._hashed:
            digests.feed(self._hasher, Span(self._file, self._hashed, position - self._hashed))
            self._hashed = position
