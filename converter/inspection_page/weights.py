"""Data of the page about tensors: a tree of blocks with sums, and tensors with their statistics.

The `LISTED` largest tensors are listed; blocks count the others, and their sums have them all.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from converter.inspection_page.name_tree import Block, build_tree
from converter.inspection_page.statistics import (
    TensorStatistics,
    compute_statistics,
    element_limit,
)
from formats.core.bundle import Bundle
from formats.core.weights import Tensor

LISTED = 20_000  # tensors on the page
LONGEST = 1000  # characters of a name
TEXT = "string"  # kind of encodings whose parts are no numbers


def describe_weights(bundle: Bundle) -> dict[str, Any]:
    """Return the tensors of a bundle, those of training included, as JSON.

    Raises:
        CorruptError: A tensor cannot be read.
    """
    groups: dict[str, Mapping[str, Tensor]] = {"model": bundle.weights}
    groups.update(bundle.leftovers.items())
    named = [(group, n, t) for group, members in groups.items() for n, t in members.items()]
    largest = sorted(named, key=lambda one: -one[2].nbytes)[:LISTED]
    listed = {id(tensor) for _, _, tensor in largest}
    encoded = _parts_of_encodings(bundle)
    numeric = [t for _, n, t in largest if not _is_text(encoded.get(n))]
    limit = element_limit([t.size for t in {t.identity: t for t in numeric}.values()])
    first: dict[object, str] = {}
    sections = []
    known: dict[object, TensorStatistics] = {}
    for group, members in groups.items():
        if not members:
            continue
        tensors: list[Any] = []
        sums: list[Tensor | None] = []  # None: tied, counted elsewhere
        for name, tensor in members.items():
            tied = first.setdefault(tensor.identity, name)
            sums.append(tensor if tied == name else None)
            if id(tensor) not in listed:
                tensors.append(None)
                continue
            role = encoded.get(name)
            figures = None
            if not _is_text(role):
                figures = known.get(tensor.identity)
                if figures is None:
                    figures = known[tensor.identity] = compute_statistics(tensor, limit)
            tensors.append(
                {
                    "name": name[:LONGEST],
                    "dtype": tensor.dtype.name,
                    "shape": [*tensor.shape],
                    "bytes": tensor.nbytes,
                    "elements": tensor.size,
                    "tied": tied[:LONGEST] if tied != name else None,
                    "role": None if role is None else " of ".join(role),
                    "devices": [*bundle.metadata.tensor_devices.get(name, ())],
                    "notes": _notes(bundle.metadata.tensor_notes.get(name, {})),
                    "statistics": None if figures is None else figures._asdict(),
                }
            )
        tree = _plain_tree(build_tree([*members]), [*members.values()], sums, tensors)
        sections.append({"group": group, "tree": tree})
    return {
        "sections": sections,
        "limit": limit,
        "sampled": sum(tensor.size > limit for tensor in numeric),
        "unlisted": len(named) - len(largest),
    }


def _parts_of_encodings(bundle: Bundle) -> dict[str, tuple[str, str]]:
    """Return name of a tensor → its role, and the logical tensor that it is a part of."""
    return {
        part: (f"{role} ({one.kind})", f"{name}: {one.dtype}{[*one.shape]}")
        for name, one in bundle.encodings.items()
        for role, part in one.parts.items()
    }


def _is_text(role: tuple[str, str] | None) -> bool:
    return role is not None and f"({TEXT})" in role[0]


def _notes(notes: Mapping[str, object]) -> str | None:
    return ", ".join(f"{key}: {value}" for key, value in notes.items())[:LONGEST] or None


def _plain_tree(
    block: Block, all: list[Tensor], sums: list[Tensor | None], listed: list[Any]
) -> dict[str, Any]:
    """Return a block as JSON: its sums, its listed members, and the number of the others."""
    members: list[Any] = []
    totals = {"tensors": 0, "elements": 0, "bytes": 0, "unlisted": 0}
    dtypes: Counter[str] = Counter()
    for label, member in zip(block.labels, block.members, strict=True):
        if isinstance(member, Block):
            inner = _plain_tree(member, all, sums, listed)
            for key in totals:
                totals[key] += inner[key]
            dtypes.update(inner["dtypes"])
            if inner["members"]:
                members.append(inner)
            continue
        counted = sums[member]
        totals["tensors"] += 1
        totals["elements"] += 0 if counted is None else counted.size
        totals["bytes"] += 0 if counted is None else counted.nbytes
        dtypes[all[member].dtype.name] += 1
        if listed[member] is None:
            totals["unlisted"] += 1
        else:
            members.append({"label": label[:LONGEST], **listed[member]})
    return {"label": block.label[:LONGEST], **totals, "dtypes": dict(dtypes), "members": members}
