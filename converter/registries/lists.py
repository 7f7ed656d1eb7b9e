"""Lists of references: ``list:FILE``, or ``list:-`` for standard input.

A line is anything that is a registry: a path, a glob, ``s3://…``, ``models:/…``, another list.
Blank lines and those that begin with ``#`` say nothing; where there is a NUL in it, the list is one
of ``find -print0``, and names may have line breaks. Paths are relative to the list's own folder.
Names are relative to the folder that all paths have in common. A line that leads nowhere is an
artifact that fails, and so is a malformed one: it costs none of the others.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from converter.registries import catalog
from converter.registries.entry import Entry, Found, Registry, Staged
from converter.registries.filters import Filters
from formats.errors import SourceError, StorageError, UsageError

SCHEME = "list:"


class List:
    """A list of references, in its order."""

    def __init__(self, path: str, filters: Filters, around: tuple[str, ...] = ()) -> None:
        self.path = path
        self.label = "" if path == "-" else Path(path).stem
        self._filters = filters
        self._around = (*around, os.path.realpath(path))
        folder = "" if path == "-" else os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120
        self._references = [_from(folder, line) for line in _lines(path)]
        local = [os.path.dirname(r) for r in self._references if _is_path(r)]  # noqa: PTH120
        self._common = os.path.commonpath(local) if local else ""

    def find(self) -> Iterator[Found]:
        """Yield the entries of each reference.

        Raises:
            DependencyError: One takes an extra that is not installed.
            UsageError: A list contains itself.
        """
        for reference in self._references:
            where = f"of {reference!r:.200} in {self.path}"
            try:
                yield from self._in(reference)
            except (SourceError, StorageError, UsageError) as e:
                if reference.startswith(SCHEME):
                    e.add_note(where)
                    raise
                name = self._relative(reference) if _is_path(reference) else reference
                if self._filters.wants(name):
                    yield Entry(reference, name, None, "", "", str(e))

    def _in(self, reference: str) -> Iterator[Found]:
        # Names are those of the whole list, so that only here can be said which are wanted.
        inner = replace(self._filters, include=(), exclude=())
        registry: Registry
        if reference.startswith(SCHEME):
            path = reference.removeprefix(SCHEME)
            if os.path.realpath(path) in self._around:
                raise UsageError("contains itself", where=path)
            registry, front = List(path, inner, self._around), ""
        else:
            registry = catalog.open_registry(reference, inner)
            base = getattr(registry, "base", None)
            front = registry.label if base is None else self._relative(str(base))
        for one in registry.find():
            if isinstance(one, Entry):
                name = f"{front}/{one.name}" if front else one.name
                if self._filters.wants(name):
                    yield replace(one, name=name)
            elif not _is_path(one.source) or self._filters.wants(self._relative(one.source)):
                yield one

    def _relative(self, path: str) -> str:
        found = os.path.relpath(path, self._common)
        return "" if found == "." else found


def open_registry(reference: str, filters: Filters) -> Registry:
    """Read a list.

    Raises:
        SourceError: There is none.
        StorageError: It cannot be read.
    """
    path = reference.removeprefix(SCHEME)
    if not path:
        raise UsageError("list: without a file", expected="list:FILE, or list:- for standard input")
    return List(path, filters)


def stage(source: str, scratch: Path) -> Staged:
    """Raise an error: entries of a list are staged by their own registries.

    Raises:
        UsageError: Always.
    """
    del scratch
    raise UsageError("a list is no artifact", where=source)


def _lines(path: str) -> list[str]:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as e:
        raise SourceError("no such list", where=path) from e
    except OSError as e:
        raise StorageError(f"cannot be read: {e.strerror}", where=path) from e
    text = os.fsdecode(data.removeprefix(b"\xef\xbb\xbf"))
    if "\0" in text:
        return [name for name in text.split("\0") if name]
    lines = (line.strip() for line in text.split("\n"))
    return [line for line in lines if line and not line.startswith("#")]


def _is_path(reference: str) -> bool:
    return catalog.scheme_of(reference) == ""


def _from(folder: str, reference: str) -> str:
    """Return an absolute reference; a path is relative to a folder."""
    if reference.startswith(SCHEME) and reference != f"{SCHEME}-":
        return SCHEME + os.path.join(folder, reference.removeprefix(SCHEME))  # noqa: PTH118
    if not _is_path(reference):
        return reference
    return os.path.normpath(os.path.abspath(os.path.join(folder, reference)))  # noqa: PTH100, PTH118
