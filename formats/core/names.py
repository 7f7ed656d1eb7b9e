"""Unique and printable tensor names, as close to the source's as possible.

The rule: each tensor brings candidates from the shortest readable one to the longest. It takes the
first that no other tensor could take at the same step; tensors still equal after their last one
are numbered ``~2``, ``~3`` in the source's order. A name is a property of the whole source, so no
two tensors can collide, and the order of reading does not matter.
"""

from collections import Counter
from collections.abc import Sequence

RESERVED = "__metadata__"  # safetensors keeps it for itself


def printable(name: str) -> str:
    """Return ``name`` as valid Unicode text: never empty, lone surrogates and NUL spelled out."""
    text = name.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")
    return "_" if not text else text if text != RESERVED else RESERVED + "_"


def unique_names(candidates: Sequence[Sequence[str]]) -> list[str]:
    """Return one name for each tensor, chosen by the rule above.

    Args:
        candidates: For each tensor its possible names, best first; at least one.
    """
    chosen: list[str | None] = [None] * len(candidates)
    taken: set[str] = set()
    for step in range(max((len(c) for c in candidates), default=0)):
        offers = {
            i: printable(c[min(step, len(c) - 1)])
            for i, c in enumerate(candidates)
            if chosen[i] is None
        }
        demand = Counter(offers.values())
        for i, name in offers.items():
            if demand[name] == 1 and name not in taken:
                chosen[i] = name
        taken.update(n for n in chosen if n is not None)
    return [
        _numbered(printable(c[-1]), taken) if name is None else name
        for c, name in zip(candidates, chosen, strict=True)
    ]


def _numbered(base: str, taken: set[str]) -> str:
    name, n = base, 1
    while name in taken:
        n += 1
        name = f"{base}~{n}"
    taken.add(name)
    return name
