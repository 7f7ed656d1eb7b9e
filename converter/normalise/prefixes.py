"""Remove prefixes that checkpoints and wrapper modules add to the names of tensors.

A checkpoint keeps its model in a dict under one key (``state_dict``, ``model``, …) next to other
entries: where exactly one such key exists, it is removed. Of the names below it, or of all names
where there is no such key, these segments are removed wherever they occur:
    ``_orig_mod.``                     torch.compile
    ``_fsdp_wrapped_module.``          FullyShardedDataParallel
    ``_checkpoint_wrapped_module.``    activation checkpointing
and these prefixes where all of the names have them:
    ``module.``                        DataParallel, DistributedDataParallel
    ``model.``                         the module inside a LightningModule

A prefix stays where two names would be equal without it. Each change is counted in the metadata.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile

from formats.core.bundle import Bundle, Normalisation
from formats.errors import UsageError

# As manifests say it.
REMOVED = "taken off the names of tensors"
KEPT = "kept: without it, two names would be equal"
LIGHTNING = "pytorch-lightning_version"
ANYWHERE = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
# Keys under which training scripts keep the model's state dict.
# fmt: off
CONTAINERS = frozenset((
    "state_dict", "model_state_dict", "model_state", "model", "net", "network", "module", "params",
    "weights",
))
# fmt: on


def strip_prefixes(bundle: Bundle, rule: str = "auto") -> Bundle:
    """Return the bundle with prefixes removed from the names of its weights.

    Args:
        bundle: As read.
        rule: ``auto``, ``none``, or the one prefix to remove.

    Raises:
        UsageError: ``rule`` is a prefix that no name has.
    """
    if rule == "none" or not bundle.weights:
        return bundle
    renaming = _Renaming(bundle)
    if rule == "auto":
        if bundle.metadata.framework == "torch":
            renaming.remove_wrappers()
    elif any(name.startswith(rule) for name in bundle.weights):
        renaming.rename(f"prefix {rule!r}", lambda name: name.removeprefix(rule))
    else:
        raise UsageError(f"strip_prefix={rule!r}, and no tensor has this prefix")
    return renaming.apply()


class _Renaming:
    """A bundle's names and the changes to them so far."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.current = {name: name for name in bundle.weights}
        self.scope = frozenset(bundle.weights)  # original names of the tensors to rename
        self.changes: list[Normalisation] = []

    def remove_wrappers(self) -> None:
        """Remove the container key, then the prefixes of wrapper modules."""
        # An origin spells dict keys with "/" and leaves the dots of a key alone, so that a
        # checkpoint's key 'model' and a module's attribute 'model' can be distinguished.
        keys = {n: t.origin.split("/")[:-1] for n, t in self.bundle.weights.items()}
        first = {n: k[0] for n, k in keys.items() if k and n.startswith(f"{k[0]}.")}
        containers = set(first.values()) & CONTAINERS
        if len(containers) == 1:
            (container,) = containers
            scope = self.scope
            self.scope = frozenset(n for n, key in first.items() if key == container)
            if not self.rename(f"container {container}", _make_prefix_remover(f"{container}.")):
                self.scope = scope
        for segment in ANYWHERE:
            if any(segment in self.current[n].split(".") for n in self.scope):
                self.rename(f"wrapper {segment}", _make_segment_remover(segment))
        lightning = LIGHTNING in self.bundle.metadata.recorded
        for wrapper in ("module", "model") if lightning else ("module",):
            depth = min(_count_leading(wrapper, self.current[n]) for n in self.scope)
            if depth:
                self.rename(f"wrapper {wrapper}", _make_prefix_remover(f"{wrapper}." * depth))

    def rename(self, what: str, rename: Callable[[str], str]) -> bool:
        """Rename every tensor in scope, or none where two names would be equal.

        Returns:
            Whether the names changed. Either way the attempt is recorded.
        """
        new = {n: rename(c) if n in self.scope else c for n, c in self.current.items()}
        count = sum(new[n] != c for n, c in self.current.items())
        if len(set(new.values())) < len(new) or not all(new.values()):
            self.changes.append(Normalisation(what, 0, KEPT))
            return False
        self.changes.append(Normalisation(what, count, REMOVED))
        self.current = new
        return True

    def apply(self) -> Bundle:
        """Return the bundle with the new names."""
        bundle, new = self.bundle, self.current
        encodings = {
            new.get(name, name): replace(e, parts={r: new[part] for r, part in e.parts.items()})
            for name, e in bundle.encodings.items()
        }
        old = bundle.metadata
        metadata = replace(
            old,
            tensor_notes={new.get(n, n): note for n, note in old.tensor_notes.items()},
            tensor_devices={new.get(n, n): where for n, where in old.tensor_devices.items()},
            normalisations=(*old.normalisations, *self.changes),
        )
        weights = {new[name]: tensor for name, tensor in bundle.weights.items()}
        return replace(bundle, metadata=metadata, weights=weights, encodings=encodings)


def _count_leading(segment: str, name: str) -> int:
    """Return how often a name repeats a segment at its start, the last segment not counted."""
    return sum(1 for _ in takewhile(segment.__eq__, name.split(".")[:-1]))


def _make_prefix_remover(prefix: str) -> Callable[[str], str]:
    return lambda name: name.removeprefix(prefix)


def _make_segment_remover(segment: str) -> Callable[[str], str]:
    return lambda name: ".".join(part for part in name.split(".") if part != segment)
