"""Say in words what was changed: ``5 storages moved: from cuda:0 to cpu``."""

import re

from converter.normalise.prefixes import KEPT, REMOVED
from formats.core.bundle import Normalisation
from formats.core.plurals import count

# What the names of changes begin with, and how one of it is called.
_NOUNS = {
    "assignments": "assignment",
    "colocations": "colocation",
    "copies": "copy",
    "devices": "device",
    "nodes": "node",
    "ops": "op",
    "placements": "placement",
    "reads": "read",
    "reductions": "reduction",
    "states": "state",
    "storages": "storage",
    "tags": "tag",
    "tensors": "tensor",
    "updates": "update",
    "variables": "variable",
    "weights": "weight",
}
_COUNTED = re.compile(r"(?:[\w-]+ )?({})\b".format("|".join(_NOUNS)))


def describe_change(change: Normalisation) -> str:
    """Return what was changed, how often, and how."""
    if change.detail in (REMOVED, KEPT):
        prefix = change.name.partition(" ")[2].strip("'\"").removesuffix(".")
        if change.detail == KEPT:
            return f"`{prefix}.` stays in the names of tensors: two would be equal without it"
        return f"{count('tensor', change.count)}: removed `{prefix}.` from their names"
    text = change.name
    if match := _COUNTED.match(text):
        one = text[: match.start(1)] + _NOUNS[match[1]] + text[match.end(1) :]
        text = f"{change.count:,} {one if change.count == 1 else text}"
    elif change.count > 1:
        text += f", {change.count:,} times"
    return f"{text}: {change.detail}" if change.detail else text
