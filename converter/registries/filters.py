"""Filters of registry entries: include and exclude globs, and MLflow queries."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Filters:
    """The user's filters.

    A glob that matches a folder's name stands for all below it, ``*`` crosses ``/``, and ``**/``
    stands for no folder, too.

    Attributes:
        include: Globs over names; none of them stands for all.
        exclude: Globs over names, which go before.
        query: A filter string in MLflow's own words, or "".
        apart: Real paths of folders that are never looked into: where outputs go.
        known: Path of a file that was found to be no artifact → its token then, and the reason.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    query: str = ""
    apart: tuple[str, ...] = ()
    known: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False, compare=False)

    def wants(self, name: str) -> bool:
        """Return whether an entry passes the filters."""
        if self.shuts_out(name):
            return False
        return not self.include or matches(self.include, name)

    def shuts_out(self, name: str) -> bool:
        """Return whether an entry, or a whole folder, is excluded."""
        return bool(self.exclude) and matches(self.exclude, name)


def matches(globs: tuple[str, ...], name: str) -> bool:
    """Return whether a glob matches a name, or a folder above it."""
    pattern = _compile(globs)
    return any(pattern.match(part) for part in _with_parents(name))


def _with_parents(name: str) -> Iterator[str]:
    yield name
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


@lru_cache(maxsize=64)
def _compile(globs: tuple[str, ...]) -> "re.Pattern[str]":
    both = [variant for g in globs for variant in {g, g.replace("**/", "")}]
    return re.compile("|".join(translate(g.rstrip("/") or g) for g in both))
