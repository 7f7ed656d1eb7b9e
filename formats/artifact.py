"""The files of one source: a file, a folder, or a checkpoint named by its prefix.

Detection and readers ask the artifact for bytes and names; it opens each thing once. Sniffers must
be cheap: they look at the head, a zip's directory, or a folder's listing.
"""

from contextlib import suppress
from functools import cached_property
from pathlib import Path

from formats.containers.zip.archive import LOCAL_MAGIC, ZipArchive
from formats.core import checksums
from formats.core.storage import HEAD, File, Span, resolve_member
from formats.errors import CorruptError, LimitError, SourceError
from formats.limits import DEFAULT, Limits


class Artifact:
    """A path, looked at by content.

    Attributes:
        path: As the user gave it.
        limits: What reading it may cost.
    """

    def __init__(self, path: str | Path, limits: Limits = DEFAULT) -> None:
        """Look at ``path``.

        Raises:
            SourceError: Nothing is there, or it cannot be opened.
        """
        self.path = Path(path)
        self.limits = limits
        self._opened: dict[Path, File] = {}
        self._others: list[Artifact] = []
        try:
            self.is_folder = self.path.is_dir()
            there = self.is_folder or self.path.exists()
        except (OSError, ValueError) as e:
            raise SourceError(f"cannot be looked at: {e}", where=path) from e
        # "ckpt" stands for ckpt.index and ckpt.data-00000-of-00001
        self.is_prefix = False
        with suppress(OSError, ValueError):  # a name that has no room for the suffix
            index = self.path.with_name(self.path.name + ".index")
            self.is_prefix = not there and index.is_file()
        if not there and not self.is_prefix:
            raise SourceError("no such file or folder", where=path)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.name or self.path.resolve().name

    @property
    def is_file(self) -> bool:
        """Whether it is one file."""
        return not self.is_folder and not self.is_prefix

    @cached_property
    def file(self) -> File:
        """The file itself."""
        return self._open(self.path)

    @cached_property
    def span(self) -> Span:
        """All bytes of the file."""
        return Span.whole(self.file)

    @cached_property
    def head(self) -> bytes:
        """The first bytes of a file, `HEAD` of them; empty for anything else."""
        return self.span.read(0, min(HEAD, self.span.length)) if self.is_file else b""

    @cached_property
    def zip(self) -> ZipArchive | None:
        """The zip directory, where the file starts like a zip archive and has one."""
        if not self.head.startswith(LOCAL_MAGIC):
            return None
        try:
            return ZipArchive(self.span, self.limits)
        except CorruptError as e:
            self.damage = e
            return None

    damage: CorruptError | None = None  # why a file that starts like a zip archive is not one

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names directly inside a folder, sorted; empty for anything else."""
        if not self.is_folder:
            return ()
        try:
            names = sorted(p.name for p in self.path.iterdir())
        except OSError as e:
            raise SourceError(f"cannot be listed: {e.strerror}", where=self.path) from e
        if len(names) > self.limits.max_files:
            raise LimitError(f"folder of {len(names)} entries", where=self.path)
        return tuple(names)

    def member(self, name: str) -> File:
        """Open a file of the folder that the artifact names.

        Raises:
            SafetyError: The name leads out of the folder.
            SourceError: There is no such file.
        """
        folder = self.path if self.is_folder else self.path.parent
        return self._open(resolve_member(folder, name))

    def subfolder(self, name: str) -> "Artifact":
        """Return a folder inside this one; the files that are opened there count among its own."""
        inner = Artifact(self.path / name, self.limits)
        inner._opened = self._opened
        return inner

    @property
    def opened(self) -> dict[str, File]:
        """The files that detection and reading used, by name relative to the artifact's folder.

        They are what a digest of the source covers, and must not change while it is converted.
        """
        folder = self.path if self.is_folder else self.path.parent
        files = {p.relative_to(folder).as_posix(): f for p, f in sorted(self._opened.items())}
        for other in self._others:
            for name, file in other.opened.items():
                known = files.get(name)
                same = known is not None and known.path.resolve() == file.path.resolve()
                if not same:
                    files[name if known is None else f"{other.name}/{name}"] = file
        return files

    def check_checksums(self) -> int:
        """Compare the checksums that were recorded of what was read; return how many.

        Raises:
            CorruptError: One of them differs.
        """
        return sum(checksums.check(file) for file in self.opened.values())

    def close(self) -> None:
        """Give all descriptors back; what is read later opens its file again."""
        for file in self._opened.values():
            file.close()
        for other in self._others:
            other.close()

    def adopt(self, other: "Artifact") -> None:
        """Count the files of another artifact, which belongs to this one, among its own."""
        self._others.append(other)

    def _open(self, path: Path) -> File:
        if path not in self._opened:
            if len(self._opened) >= self.limits.max_files:
                raise LimitError(f"more than {self.limits.max_files} files", where=self.path)
            self._opened[path] = File(path)
        return self._opened[path]
