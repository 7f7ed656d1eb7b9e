"""What outputs are called: as their sources, without two of them ever being called the same.

An output keeps the name that the ledger has of it. A new one is called as its source with the
target's suffix; where several would be called the same, as some file system sees it, each of them
keeps its source's suffix, and what is still the same gets a number.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from converter.options import Options
from converter.pipeline import default_out
from converter.registries.entry import Entry

SUFFIXES = {"onnx": ".onnx", "keras": ".keras", "safetensors": ".safetensors"}


def names(entries: Iterable[Entry], options: Options, known: Mapping[str, str]) -> dict[str, str]:
    """Return the name of each entry's output, by its source.

    Args:
        entries: All of them, each once, in an order that is the same each time.
        options: Of the conversion; they decide the suffix.
        known: Names that the ledger has, by source.
    """
    entries = list(entries)
    short = {e.source: _converted(e.name, options) for e in entries}
    clashes = Counter(seen_as(name) for name in short.values())
    found: dict[str, str] = {}
    taken = {seen_as(name) for name in known.values()}
    for entry in entries:
        if entry.source in known:
            found[entry.source] = known[entry.source]
            continue
        name = short[entry.source]
        if clashes[seen_as(name)] > 1 or seen_as(name) in taken:
            name = entry.name + _suffix(name)
        base, n = name, 1
        while seen_as(name) in taken:
            n += 1
            path = PurePosixPath(base)
            name = str(path.with_name(f"{path.stem}-{n}{path.suffix}"))
        found[entry.source] = name
        taken.add(seen_as(name))
    return found


def seen_as(name: str) -> str:
    """Return a name as the least discerning file system sees it."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _converted(name: str, options: Options) -> str:
    path = PurePosixPath(name)
    from pathlib import Path

    made = default_out(Path(path.name), options.to, options.device).name
    return str(path.with_name(made))


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix
