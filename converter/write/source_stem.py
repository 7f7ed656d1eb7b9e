"""The name of a source without the suffixes of its format."""

from functools import cache
from pathlib import Path

from formats import catalog


@cache
def model_suffixes() -> frozenset[str]:
    """Return the suffixes of all formats, in lower case."""
    return frozenset(s for row in catalog.FORMATS for s in row.suffixes) | {".weights"}


def source_stem(source: Path) -> str:
    """Return the name of a source without the suffixes of formats."""
    stem = source.name or source.resolve().name
    while (dot := stem.rfind(".")) > 0 and stem[dot:].lower() in model_suffixes():
        stem = stem[:dot]
    return stem
