"""Names of outputs: those of their sources, made unique.

An output keeps the name that the ledger has of it. A new one is called as its source with the
target's ending; where several would be called the same, as some file system sees it, each of them
keeps its source's suffix, and what is still the same gets a number. No output is inside
another one, and no name is one that a file system cannot hold.
"""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from converter.filesystem.atomic_output import LONGEST_NAME
from converter.options import Options
from converter.registries.entry import Entry
from converter.write.catalog import find_target
from converter.write.output_path import default_output

LONGEST_FOLDER = 255  # bytes, on every file system in use


def kind_of(options: Options) -> str:
    """Return the kind of a target's outputs: ``.portable``, ``.cuda-1.pt``."""
    return default_output(Path("x"), find_target(options.to), options.device).name[1:]


def find_ending(options: Options) -> str:
    """Return the ending of output names: their kind; none for Triton."""
    return "" if options.to == "triton" else kind_of(options)


def names(
    entries: Iterable[Entry],
    options: Options,
    known: Mapping[str, str],
    others: Collection[str] = (),
    heirs: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the name of each entry's output, by its source.

    Args:
        entries: All of them, each once, in an order that is the same each time.
        options: Of the conversion; they decide the ending.
        known: Names that the ledger has of outputs of this ending, by source.
        others: Names that it has of other outputs.
        heirs: Sources that are gone, by the new ones that may be the same: one of these takes over
            the name of its output, where it would be called so anyway.
    """
    end = find_ending(options)
    entries = list(entries)
    new = [e for e in entries if e.source not in known]
    found = {e.source: known[e.source] for e in entries if e.source in known}
    taken = _Taken((*known.values(), *others))
    if options.to == "triton":  # it looks for models in one folder, and not in folders of that
        new = [replace(e, name=e.name.replace("/", "-")) for e in new]
    short = {e.source: _named(e.name, options, end) for e in new}
    clashes = Counter(fold_name(name) for name in short.values())
    for entry in new:
        wanted = short[entry.source]
        if clashes[fold_name(wanted)] == 1 and any(
            known.get(old) == wanted for old in heirs.get(entry.source, ())
        ):
            found[entry.source] = wanted
            continue
        name = taken.outside(wanted)
        if clashes[fold_name(wanted)] > 1 or not taken.allows(name):
            name = taken.outside(_fitting(entry.name, end))
        name = _number(name.removesuffix(end), end, taken.allows)
        found[entry.source] = name
        taken.add(name)
    return found


class _Taken:
    """Names in use, and their folders."""

    def __init__(self, given: Iterable[str]) -> None:
        self._outputs: set[str] = set()
        self._folders: set[str] = set()
        for name in given:
            self.add(name)

    def add(self, name: str) -> None:
        seen = fold_name(name)
        self._outputs.add(seen)
        self._folders.update(_folders(seen))

    def allows(self, name: str) -> bool:
        """Return whether a name is free, and neither inside an output nor around one."""
        seen = fold_name(name)
        if seen in self._outputs or seen in self._folders:
            return False
        return all(folder not in self._outputs for folder in _folders(seen))

    def outside(self, name: str) -> str:
        """Return a name outside all outputs: a folder named like one gets a number."""
        *folders, last = name.split("/")
        path = ""
        for folder in folders:
            path = _number(path + folder, "", lambda one: fold_name(one) not in self._outputs) + "/"
        return path + last


def fold_name(name: str) -> str:
    """Return a name as a case-insensitive, normalising file system sees it."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _number(stem: str, end: str, allowed: Callable[[str], bool]) -> str:
    name, n = stem + end, 1
    while not allowed(name):
        n += 1
        name = f"{stem}-{n}{end}"
    return name


def _folders(name: str) -> Iterator[str]:
    """Yield the parent folders of a name, innermost first."""
    at = name.rfind("/")
    while at > 0:
        yield name[:at]
        at = name.rfind("/", 0, at)


def _named(name: str, options: Options, end: str) -> str:
    """Return the name of a source with the target's ending in place of its own."""
    folder, slash, last = name.rpartition("/")
    made = default_output(Path(last or "_"), find_target(options.to), options.device).name
    return _fitting(folder + slash + made.removesuffix(kind_of(options)), end)


def _fitting(stem: str, end: str) -> str:
    """Return a name that is valid on every file system and stays inside the folder."""
    *folders, last = (part for part in stem.split("/") if part)
    room = LONGEST_NAME - len(end.encode()) - 8  # for a number behind it
    path = "".join(_folder(folder) + "/" for folder in folders)
    return path + _short(_plain(last), room) + end


@lru_cache(maxsize=4096)
def _folder(name: str) -> str:
    return _short(_plain(name), LONGEST_FOLDER - 8)


def _plain(part: str) -> str:
    """Escape control characters, undecodable bytes and dots in a name."""
    if part in (".", ".."):
        return part.replace(".", "%2E")
    if part.isprintable():
        return part
    return "".join(c if c.isprintable() else _spell(c) for c in part)


def _spell(character: str) -> str:
    undecodable = "\udc80" <= character <= "\udcff"
    data = character.encode("utf-8", "surrogateescape" if undecodable else "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in data)


def _short(part: str, room: int) -> str:
    """Return a part of a name cut to a number of bytes, with a digest of what was cut."""
    data = part.encode()
    if len(data) <= room:
        return part
    digest = hashlib.sha256(data).hexdigest()[:12]
    return f"{data[: room - 13].decode(errors='ignore')}-{digest}"
