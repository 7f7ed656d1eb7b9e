"""Collect the tensors of one source, and give them unique names at the end.

Names depend on one another (`formats.core.names`), so a reader adds what it finds in the source's
order, each with its candidate names, and gets the finished mappings from `Collector.finish`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from formats.core.bundle import JSON, Encoding, Group, LeftOut, Metadata
from formats.core.names import unique_names
from formats.core.strings import Strings
from formats.core.weights import Tensor
from formats.errors import LimitError
from formats.limits import Limits


@dataclass(frozen=True, slots=True)
class _Found:
    candidates: tuple[str, ...]
    value: Tensor | Strings
    group: Group | None
    note: Mapping[str, JSON]
    devices: Sequence[str]


@dataclass(frozen=True, slots=True)
class Collected:
    """What `Bundle` wants to hold."""

    weights: Mapping[str, Tensor]
    leftovers: Mapping[Group, Mapping[str, Tensor]]
    encodings: Mapping[str, Encoding]
    notes: Mapping[str, Mapping[str, JSON]]
    devices: Mapping[str, Sequence[str]]
    left_out: tuple[LeftOut, ...]

    def complete(self, metadata: Metadata) -> Metadata:
        """Return ``metadata`` with the notes, the devices and what was left out."""
        return replace(
            metadata,
            tensor_notes={**metadata.tensor_notes, **self.notes},
            tensor_devices={**metadata.tensor_devices, **self.devices},
            left_out=(*metadata.left_out, *self.left_out),
        )


@dataclass(slots=True)
class Collector:
    """Tensors found so far, and how many there may be."""

    limits: Limits
    _found: list[_Found] = field(default_factory=list)
    _left_out: list[LeftOut] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._found)

    def add(
        self,
        candidates: Sequence[str],
        value: Tensor | Strings,
        group: Group | None = None,
        note: Mapping[str, JSON] | None = None,
        devices: Sequence[str] = (),
    ) -> None:
        """Add a tensor; its first candidate that is not taken becomes its name."""
        self._found.append(_Found(tuple(candidates), value, group, note or {}, devices))
        self._check()

    def leave_out(self, name: str, reason: str) -> None:
        """Name something that the bundle will not hold."""
        self._left_out.append(LeftOut(name, reason))
        self._check()

    def _check(self) -> None:
        if len(self._found) + len(self._left_out) > self.limits.max_described:
            raise LimitError(f"more than {self.limits.max_described} tensors")

    def finish(self) -> Collected:
        """Name everything; a string tensor becomes two, ``.bytes`` and ``.offsets``."""
        weights: dict[str, Tensor] = {}
        leftovers: dict[Group, dict[str, Tensor]] = {}
        encodings: dict[str, Encoding] = {}
        notes: dict[str, Mapping[str, JSON]] = {}
        devices: dict[str, Sequence[str]] = {}
        for group in sorted({f.group for f in self._found}, key=lambda g: g or ""):
            found = [f for f in self._found if f.group == group]
            target = weights if group is None else leftovers.setdefault(group, {})
            offers: list[list[str]] = []
            for f in found:
                if isinstance(f.value, Strings):
                    offers += [
                        [f"{c}.{part}" for c in f.candidates] for part in ("bytes", "offsets")
                    ]
                else:
                    offers.append(list(f.candidates))
            names = iter(unique_names(offers))
            for f in found:
                name = next(names)
                if isinstance(f.value, Strings):
                    offsets = next(names)
                    target[name], target[offsets] = f.value.data, f.value.offsets
                    logical = name.removesuffix(".bytes")
                    if logical in encodings:
                        logical = f"{group}.{logical}"
                    encodings[logical] = f.value.describe_encoding(name, offsets)
                    name = logical
                else:
                    target[name] = f.value
                if f.note:
                    notes[name] = f.note
                if f.devices:
                    devices[name] = f.devices
        return Collected(weights, leftovers, encodings, notes, devices, tuple(self._left_out))
