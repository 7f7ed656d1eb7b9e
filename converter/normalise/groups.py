"""Training state (optimizer, scheduler, counters) in the output, or named as left out."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from formats.core.bundle import Bundle, Group, LeftOut
from formats.core.names import unique_names
from formats.core.weights import Tensor
from formats.errors import UsageError

GROUPS: tuple[Group, ...] = ("optimizer", "training")
# Why they are left out, in manifests, whose text is stable.
TRAINING_STATE = {f"{group} state; --include {group} keeps it": group for group in GROUPS}
_REASONS = {group: reason for reason, group in TRAINING_STATE.items()}


def select_groups(bundle: Bundle, include: Sequence[str]) -> Bundle:
    """Return the bundle with the included groups among its weights and the others left out.

    Raises:
        UsageError: ``include`` has a name that is not in `GROUPS`.
    """
    unknown = sorted(set(include) - set(GROUPS))
    if unknown:
        raise UsageError(f"include={unknown[0]!r} is unknown", expected=" or ".join(GROUPS))
    names, tensors = list(bundle.weights), list(bundle.weights.values())
    left_out = list(bundle.metadata.left_out)
    kept: dict[Group, Mapping[str, Tensor]] = {}
    candidates = [[name] for name in names]
    for group, members in bundle.leftovers.items():
        if group in include:
            candidates += [[name, f"{group}.{name}"] for name in members]
            names += members
            tensors += members.values()
        else:
            kept[group] = members
            left_out += [LeftOut(name, _REASONS[group]) for name in members]
    weights = dict(zip(unique_names(candidates), tensors, strict=True))
    encodings = {
        n: e for n, e in bundle.encodings.items() if all(p in weights for p in e.parts.values())
    }
    metadata = replace(bundle.metadata, left_out=tuple(left_out))
    return replace(bundle, metadata=metadata, weights=weights, leftovers=kept, encodings=encodings)
