"""Glob patterns over paths: ``models/**/*.h5``; a matching folder includes all files in it."""

import re
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path

_MAGIC = re.compile(r"[*?\[]")


def is_glob(reference: str) -> bool:
    """Return whether a reference contains glob characters."""
    return _MAGIC.search(reference) is not None


@dataclass(frozen=True, slots=True)
class Glob:
    """A glob.

    Attributes:
        pattern: As it was given.
        base: The folder that it begins in: all in front of the first part with magic in it.
        parts: The parts after that; ``**`` stands for any number of folders.
    """

    pattern: str
    base: Path
    parts: "tuple[re.Pattern[str] | None, ...]"

    @classmethod
    def parse(cls, pattern: str) -> "Glob":
        """Return a glob from its text."""
        parts = Path(pattern).parts
        first = next(i for i, part in enumerate(parts) if _MAGIC.search(part))
        patterns = tuple(None if p == "**" else re.compile(translate(p)) for p in parts[first:])
        return cls(pattern, Path(*parts[:first]), patterns)

    def matches(self, name: str) -> bool:
        """Return whether a name relative to the base, or one of its folders, matches."""
        if not self.parts:
            return True
        names = name.split("/")
        return any(self._fits(names[:i], 0) for i in range(1, len(names) + 1))

    def names(self, name: str) -> bool:
        """Return whether a name matches, itself and by more than ``*``."""
        return bool(self.parts) and self._fits(name.split("/"), 0)

    def may_be_in(self, folder: str) -> bool:
        """Return whether something in a folder could match."""
        if None in self.parts[:1] or not self.parts:
            return True
        names = folder.split("/")
        for name, part in zip(names, self.parts, strict=False):
            if part is None:
                return True
            if part.match(name) is None:
                return False
        return True

    def _fits(self, names: list[str], at: int) -> bool:
        """Return whether names match the parts from an index on."""
        if at == len(self.parts):
            return not names
        part = self.parts[at]
        if part is None:
            return any(self._fits(names[i:], at + 1) for i in range(len(names) + 1))
        return bool(names) and part.match(names[0]) is not None and self._fits(names[1:], at + 1)


EVERYTHING = Glob("", Path(), ())
