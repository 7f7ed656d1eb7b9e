"""What a source's habits add to a model's tensors, taken away again: named and counted.

Two things are decided here: which groups of tensors belong to the output (``--include``), and
which prefixes of names are only wrappers (``--strip-prefix``).

Wrappers that training leaves behind, taken off every name wherever they stand:
    ``_orig_mod.``                     torch.compile
    ``_fsdp_wrapped_module.``          FullyShardedDataParallel
    ``_checkpoint_wrapped_module.``    activation checkpointing
and, where all names begin with it:
    the key of the one dict that holds the model in a checkpoint (``state_dict``, ``model``, …)
    ``module.``                        DataParallel, DistributedDataParallel
    ``model.``                         the module inside a LightningModule

A prefix stays where taking it off would make two names equal.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from formats.bundle import Bundle, Group, LeftOut, Normalisation
from formats.errors import UsageError
from formats.names import unique_names
from formats.weights import Tensor

GROUPS: tuple[Group, ...] = ("optimizer", "training")
LIGHTNING = "pytorch-lightning_version"
ANYWHERE = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
# Keys of the one dict that holds the model, as training scripts call it.
# fmt: off
CONTAINERS = frozenset((
    "state_dict", "model_state_dict", "model_state", "model", "net", "network", "module", "params",
    "weights", "ema", "ema_state_dict", "generator", "policy",
))
# fmt: on


def select(bundle: Bundle, include: Sequence[str]) -> Bundle:
    """Return the bundle with the included groups among its weights, and the others named.

    Raises:
        UsageError: ``include`` names no group.
    """
    unknown = sorted(set(include) - set(GROUPS))
    if unknown:
        raise UsageError(f"--include {unknown[0]}", expected=" or ".join(GROUPS))
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
            reason = f"{group} state; --include {group} keeps it"
            left_out += [LeftOut(name, reason) for name in members]
    weights = dict(zip(unique_names(candidates), tensors, strict=True))
    encodings = {
        n: e for n, e in bundle.encodings.items() if all(p in weights for p in e.parts.values())
    }
    metadata = replace(bundle.metadata, left_out=tuple(left_out))
    return replace(bundle, metadata=metadata, weights=weights, leftovers=kept, encodings=encodings)


def strip_prefixes(bundle: Bundle, rule: str = "auto") -> Bundle:
    """Return the bundle with wrapper prefixes taken off the names of its weights.

    Args:
        bundle: As read.
        rule: ``auto``, ``none``, or the one prefix to take off.

    Raises:
        UsageError: A prefix was given that no name has.
    """
    if rule == "none":
        return bundle
    if rule == "auto":
        for step in list(_auto_steps(bundle)):
            bundle = _renamed(bundle, step)
        return bundle
    if not any(name.startswith(rule) for name in bundle.weights):
        raise UsageError(f"--strip-prefix {rule}: no tensor has that prefix")
    return _renamed(bundle, _Step(f"prefix {rule!r}", partial(_without_prefix, rule)))


@dataclass(frozen=True, slots=True)
class _Step:
    name: str
    rename: Callable[[str], str]


def _auto_steps(bundle: Bundle) -> Iterator[_Step]:
    """Decide on steps one after another, each on the names that the former ones leave."""
    if bundle.metadata.framework != "torch" or not bundle.weights:
        return
    names = list(bundle.weights)
    # An origin spells dict keys with "/" and attributes with ".", so that a checkpoint's key
    # 'model' and a module's attribute 'model' can be told apart.
    keys = [t.origin.split("/")[:-1] for t in bundle.weights.values()]
    while True:
        segment = next((s for s in ANYWHERE if any(s in n.split(".") for n in names)), None)
        prefix = _common(names)
        if segment is not None:
            step = _Step(f"wrapper {segment}", partial(_without_segment, segment))
        elif all(k and k[0] == prefix for k in keys) and prefix in CONTAINERS:
            step = _Step(f"container {prefix}", partial(_without_prefix, f"{prefix}."))
            keys = [k[1:] for k in keys]
        elif prefix == "module" or (prefix == "model" and LIGHTNING in bundle.metadata.recorded):
            step = _Step(f"wrapper {prefix}", partial(_without_prefix, f"{prefix}."))
        else:
            return
        names = [step.rename(n) for n in names]
        yield step


def _common(names: Sequence[str]) -> str | None:
    """Return the first segment of the names where all have the same and another after it."""
    first = {n.split(".", 1)[0] if "." in n else None for n in names}
    return first.pop() if len(first) == 1 else None


def _without_prefix(prefix: str, name: str) -> str:
    return name.removeprefix(prefix)


def _without_segment(segment: str, name: str) -> str:
    return ".".join(part for part in name.split(".") if part != segment)


def _renamed(bundle: Bundle, step: _Step) -> Bundle:
    """Apply a step to all names, or to none where two would become equal."""
    new = {name: step.rename(name) for name in bundle.weights}
    changed = sum(old != name for old, name in new.items())
    if not changed:
        return bundle
    if len(set(new.values())) < len(new) or not all(new.values()):
        entry = Normalisation(step.name, 0, "kept: without it, two names would be equal")
        return _noted(bundle, entry)

    def rename(name: str) -> str:
        return new.get(name) or step.rename(name)

    encodings = {
        rename(name): replace(e, parts={role: rename(part) for role, part in e.parts.items()})
        for name, e in bundle.encodings.items()
    }
    notes = {rename(name): n for name, n in bundle.metadata.tensor_notes.items()}
    bundle = replace(
        bundle,
        metadata=replace(bundle.metadata, tensor_notes=notes),
        weights={new[name]: tensor for name, tensor in bundle.weights.items()},
        encodings=encodings,
    )
    return _noted(bundle, Normalisation(step.name, changed, "taken off the names of tensors"))


def _noted(bundle: Bundle, entry: Normalisation) -> Bundle:
    metadata = bundle.metadata
    return replace(
        bundle, metadata=replace(metadata, normalisations=(*metadata.normalisations, entry))
    )
