"""What a source's habits add to a model's tensors, taken away again: named and counted.

Two things are decided here: which groups of tensors belong to the output (``--include``), and
which parts of names are only wrappers (``--strip-prefix``).

A checkpoint keeps its model in a dict beside other things (``state_dict``, ``model``, …): where
there is one such key, it is taken off. Of the names in it, or of all where there is none, are taken
off, wherever it stands:
    ``_orig_mod.``                     torch.compile
    ``_fsdp_wrapped_module.``          FullyShardedDataParallel
    ``_checkpoint_wrapped_module.``    activation checkpointing
and, where all of them begin with it:
    ``module.``                        DataParallel, DistributedDataParallel
    ``model.``                         the module inside a LightningModule

Each stays where taking it off would make two names equal.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from formats.core.bundle import Bundle, Group, LeftOut, Normalisation
from formats.core.names import unique_names
from formats.core.weights import Tensor
from formats.errors import UsageError

GROUPS: tuple[Group, ...] = ("optimizer", "training")
LIGHTNING = "pytorch-lightning_version"
ANYWHERE = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
# Keys of the one dict that holds the model, as training scripts call it.
# fmt: off
CONTAINERS = frozenset((
    "state_dict", "model_state_dict", "model_state", "model", "net", "network", "module", "params",
    "weights",
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
    if rule == "none" or not bundle.weights:
        return bundle
    names = _Names(bundle)
    if rule == "auto":
        if bundle.metadata.framework == "torch":
            names.unwrap()
    elif any(name.startswith(rule) for name in bundle.weights):
        names.take_off(f"prefix {rule!r}", lambda name: name.removeprefix(rule))
    else:
        raise UsageError(f"--strip-prefix {rule}: no tensor has that prefix")
    return names.applied()


class _Names:
    """The names of a bundle's weights, on their way from the source's to the output's."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.current = {name: name for name in bundle.weights}
        self.scope = frozenset(
            bundle.weights
        )  # the names, as they were, that wrappers are sought in
        self.changes: list[Normalisation] = []

    def unwrap(self) -> None:
        """Take off containers and wrappers until there are none."""
        # An origin spells dict keys with "/" and leaves the dots of a key alone, so that a
        # checkpoint's key 'model' and a module's attribute 'model' can be told apart.
        keys = {n: t.origin.split("/")[:-1] for n, t in self.bundle.weights.items()}
        first = {n: k[0] for n, k in keys.items() if k and n.startswith(f"{k[0]}.")}
        containers = set(first.values()) & CONTAINERS
        if len(containers) == 1:
            (container,) = containers
            scope = self.scope
            self.scope = frozenset(n for n, key in first.items() if key == container)
            if not self.take_off(f"container {container}", _without_prefix(f"{container}.")):
                self.scope = scope
        for segment in ANYWHERE:
            if any(segment in self.current[n].split(".") for n in self.scope):
                self.take_off(f"wrapper {segment}", _without_segment(segment))
        lightning = LIGHTNING in self.bundle.metadata.recorded
        for wrapper in ("module", "model") if lightning else ("module",):
            depth = min(_leading(wrapper, self.current[n]) for n in self.scope)
            if depth:
                self.take_off(f"wrapper {wrapper}", _without_prefix(f"{wrapper}." * depth))

    def take_off(self, what: str, rename: Callable[[str], str]) -> bool:
        """Rename all names in scope, or none where two would become equal; tell which."""
        new = {n: rename(c) if n in self.scope else c for n, c in self.current.items()}
        count = sum(new[n] != c for n, c in self.current.items())
        if len(set(new.values())) < len(new) or not all(new.values()):
            reason = "kept: without it, two names would be equal"
            self.changes.append(Normalisation(what, 0, reason))
            return False
        self.changes.append(Normalisation(what, count, "taken off the names of tensors"))
        self.current = new
        return True

    def applied(self) -> Bundle:
        """Return the bundle under the new names."""
        bundle, new = self.bundle, self.current
        encodings = {
            new.get(name, name): replace(e, parts={r: new[part] for r, part in e.parts.items()})
            for name, e in bundle.encodings.items()
        }
        about = bundle.metadata
        metadata = replace(
            about,
            tensor_notes={new.get(n, n): note for n, note in about.tensor_notes.items()},
            normalisations=(*about.normalisations, *self.changes),
        )
        weights = {new[name]: tensor for name, tensor in bundle.weights.items()}
        return replace(bundle, metadata=metadata, weights=weights, encodings=encodings)


def _leading(segment: str, name: str) -> int:
    """Return how many times a name begins with a segment, before its last one."""
    return sum(1 for _ in takewhile(segment.__eq__, name.split(".")[:-1]))


def _without_prefix(prefix: str) -> Callable[[str], str]:
    return lambda name: name.removeprefix(prefix)


def _without_segment(segment: str) -> Callable[[str], str]:
    return lambda name: ".".join(part for part in name.split(".") if part != segment)
