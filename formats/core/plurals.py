"""Count in messages: ``1 tensor``, ``2 tensors``, ``1,000 entries``."""

from collections.abc import Mapping

IRREGULAR = {"axis": "axes", "index": "indices"}


def count(noun: str, number: int) -> str:
    """Return a number with its noun, which may have adjectives before it."""
    return f"{number:,} {noun if number == 1 else _plural(noun)}"


def list_counts(counts: Mapping[str, int]) -> str:
    """Return names with their counts in brackets: ``cuda:0 (2), cpu (1)``."""
    return ", ".join(f"{name} ({number:,})" for name, number in counts.items())


def _plural(noun: str) -> str:
    front, space, last = noun.rpartition(" ")
    if last in IRREGULAR:
        return front + space + IRREGULAR[last]
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
