"""Find sources that were renamed or moved, so that their outputs are renamed, not made again.

A rename leaves a file its bytes, its size and its times; a folder above it that is renamed leaves
it everything. So a new source is likely one that is gone under another name if they are alike in
these, and a worker reads its digest before it believes that. Where nothing is alike, nothing is
read for it. A registry that is reached by another path, through a link, has the same sources.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from converter.batch.leases import Row
from converter.jobs.job import GOOD
from converter.registries.catalog import scheme_of
from converter.registries.entry import Entry

MOST = 4  # outputs that one source may be compared with
SIZE = "size"  # alone it makes a match likely, and not certain
SAME = "same"  # as what is there by another path


class Vanished:
    """Finished outputs of vanished sources, by the state of those sources."""

    def __init__(
        self,
        entries: Sequence[Entry],
        rows: Mapping[str, Row],
        plan_of: Callable[[Entry], str],
        *,
        is_movable: bool,
    ) -> None:
        """Collect them, if there are new sources at all.

        Args:
            entries: All artifacts that there are.
            rows: What the ledger has, by source.
            plan_of: Returns the digest of an entry's options and the version; what was made
                otherwise is of no use.
            is_movable: Whether an output can be renamed, because its manifest names its source.
        """
        self._alike: dict[tuple[str, ...], list[Row]] = {}
        present = {entry.source for entry in entries}
        self._plan_of, self._is_movable = plan_of, is_movable
        if present <= rows.keys():
            return
        for source, row in rows.items():
            is_made = row.status in GOOD and row.ours and bool(row.digest)
            if is_made and source not in present and scheme_of(source) == "":
                keys = _keys(row.token) if _is_gone(source) else [_place(source)]
                for key in keys:
                    self._alike.setdefault(key, []).append(row)

    def find_candidates(self, entry: Entry) -> tuple[tuple[str, str], ...]:
        """Return candidate outputs of an artifact, the likeliest first: digest and name."""
        if not self._alike or not self._is_movable or scheme_of(entry.source) != "":
            return ()
        rows = self._find_alike(entry, _keys(entry.token))
        return tuple(islice(dict.fromkeys((row.digest, row.name) for row in rows), MOST))

    def find_renamed(self, entries: Iterable[Entry]) -> dict[str, frozenset[str]]:
        """Return sources that are almost certainly renamed ones: new → old.

        They are alike in more than their size, or the same. Of a registry that was moved as a
        whole, outputs so keep their names.
        """
        if not self._alike:
            return {}
        found = {
            entry.source: frozenset(r.source for r in self._surely(entry)) for entry in entries
        }
        return {source: old for source, old in found.items() if old}

    def find_adopted(self, entry: Entry, name: str) -> Row | None:
        """Return the output that an artifact adopts with its name; usually None.

        Args:
            entry: Which.
            name: Its output's.
        """
        called = entry.source.rpartition("/")[2]
        for row in self._surely(entry):
            if row.name == name and row.source.rpartition("/")[2] == called:
                return row
        return None

    def _surely(self, entry: Entry) -> Iterator[Row]:
        if self._alike and scheme_of(entry.source) == "":
            keys = (*_keys(entry.token), _place(entry.source))
            yield from self._find_alike(entry, (key for key in keys if key[0] != SIZE))

    def _find_alike(self, entry: Entry, keys: Iterable[tuple[str, ...]]) -> Iterator[Row]:
        """Yield rows with one of these keys whose outputs have the entry's options."""
        for key in keys:
            for row in self._alike.get(key, ()):
                if row.plan == self._plan_of(entry):
                    yield row


def _place(source: str) -> tuple[str, ...]:
    return SAME, os.path.realpath(source)


def _is_gone(source: str) -> bool:
    """Return whether a local source certainly no longer exists."""
    try:
        for path in (source, f"{source}.index"):  # what checkpoints are called by is no file
            with suppress(FileNotFoundError, NotADirectoryError):
                os.lstat(path)
                return False
    except OSError:  # a folder that may not be looked into, a server that is away
        return False
    return True


def _keys(token: str) -> Iterator[tuple[str, ...]]:
    """Yield keys of a file's state that survive a rename, the most specific first.

    The state of a file is size, time, inode and time of any change (`looking.state`); that of
    several files is a digest of these, which stays where the folder that they are in moves.
    """
    if not token:
        return
    yield ("all", token)
    parts = token.split("-")
    if len(parts) == 4:
        size, changed, inode, _ = parts
        yield ("file", size, changed, inode)
        yield ("copy", size, changed)
        yield (SIZE, size)
