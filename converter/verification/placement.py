"""Placement of a run: where its nodes were, and whether that is the requested device.

A runner whose question has a ``device`` (as its framework spells it: ``cuda:0``, ``GPU:0``) answers

    status      ``no device`` with ``error``, why, where its runtime has no such device or says that
                it cannot use it; else as without a device
    placement   device     as the places below spell it
                how        how it is known where things were: ``partition graphs``
                places     rows of what it is (``node``, ``variable``, ``parameter``, ``buffer``,
                           ``output``), its name, and where it was
                facts      of the device, as far as the runtime says: name, compute_capability, …
                switches   what was set so that runs are comparable: tf32, deterministic, …
                reason     why things were elsewhere, where that is known; need not be there

and computes there, with TF32 only if the question's ``allow_tf32`` is set. A node that was
elsewhere is a fallback, which frameworks do not report. Nodes that a graph itself places on the
CPU, such as those that compute shapes, count like all others.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from converter.devices.names import Device
from formats.core.bundle import JSON

NAMED = 5  # parts that a message names
LISTED = 200  # parts that a report names; it counts all of them


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """The device that a model is requested to run on.

    Attributes:
        device: None for the CPU.
        allow_tf32: Whether float32 products may be rounded to TF32 (ten bits of mantissa).
    """

    device: Device | None = None
    allow_tf32: bool = False

    def question(self, name: str) -> dict[str, Any]:
        """Return what a runner is asked besides, with the device as its framework calls it."""
        if self.device is None:
            return {}
        return {"device": name, "allow_tf32": self.allow_tf32}

    def environment(self) -> dict[str, str | None]:
        """Return the variables of a child; None is a variable as it is in our own environment.

        `converter.child.process` hides GPUs from children that need none.
        """
        if self.device is None:
            return {}
        shown: dict[str, str | None] = dict.fromkeys(HIDING)
        return shown | {
            "NVIDIA_TF32_OVERRIDE": None if self.allow_tf32 else "0",
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # torch wants it for deterministic products
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",  # several children, one after the other
        }


HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "JAX_PLATFORMS")
CPU = DeviceRequest()


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a run (node, variable, …), and its device."""

    what: str
    name: str
    place: str

    def __str__(self) -> str:
        return f"{self.what} {self.name!r} on {self.place or 'no device'}"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the parts of a run were.

    Attributes:
        device: The requested device.
        how: Source of the placement, as in the answer.
        counts: Kind of part → place → number of parts.
        elsewhere: Parts that were not on the device.
        facts: Facts about the device.
        switches: Settings of the run.
        reason: Why parts were elsewhere, if known.
    """

    device: str
    how: str
    counts: Mapping[str, Mapping[str, int]]
    elsewhere: tuple[Part, ...] = ()
    facts: Mapping[str, JSON] = field(default_factory=dict)
    switches: Mapping[str, JSON] = field(default_factory=dict)
    reason: str = ""

    @property
    def placed(self) -> int:
        """How many parts were on the device."""
        return sum(places.get(self.device, 0) for places in self.counts.values())

    @property
    def mostly(self) -> str:
        """Where most of its parts were."""
        total: Counter[str] = Counter()
        for places in self.counts.values():
            total.update(places)
        return total.most_common(1)[0][0] if total else ""

    def problem(self, allowed: int) -> str:
        """Return what is wrong with it, or nothing.

        Args:
            allowed: How many parts may be on the CPU. With nothing on the device that is too many.
        """
        if not self.placed:
            if not self.counts:
                return f"nothing shows that anything ran on {self.device}"
            why = f" ({self.reason})" if self.reason else ""
            return f"nothing ran on {self.device}{why}: {self._named(self.elsewhere)}"
        others = [part for part in self.elsewhere if not is_cpu(part.place)]
        if others:
            return f"was on another device than {self.device}: {self._named(others)}"
        if len(self.elsewhere) > allowed:
            count = len(self.elsewhere)
            parts = "1 part was" if count == 1 else f"{count} parts were"
            bound = f"allow_cpu_nodes={count} would pass"
            return f"{parts} on the CPU ({bound}): {self._named(self.elsewhere)}"
        return ""

    @staticmethod
    def _named(parts: Sequence[Part]) -> str:
        """Return the names of parts; of variables before those of nodes, which are many."""
        first = sorted(parts, key=lambda part: part.what == "node")
        rest = f" and {len(first) - NAMED} more" if len(first) > NAMED else ""
        return ", ".join(map(str, first[:NAMED])) + rest

    def plain(self) -> dict[str, JSON]:
        """Return it as JSON types."""
        return {
            "device": self.device,
            "how": self.how,
            "counts": {what: dict(places) for what, places in self.counts.items()},
            "elsewhere": [
                {"what": part.what, "name": part.name, "place": part.place}
                for part in self.elsewhere[:LISTED]
            ],
            "facts": dict(self.facts),
            "switches": dict(self.switches),
            "reason": self.reason,
        }


def is_cpu(place: str) -> bool:
    """Return whether a place is a CPU, in the spelling of any runtime."""
    return place.upper().startswith("CPU")


def parse_placement(answer: Mapping[str, Any]) -> Placement | None:
    """Return what a runner's answer says of where things were; None where it says nothing."""
    found = answer.get("placement")
    if not isinstance(found, Mapping):
        return None
    counts: dict[str, dict[str, int]] = {}
    elsewhere = []
    for what, name, place in found["places"]:
        places = counts.setdefault(what, {})
        places[place] = places.get(place, 0) + 1
        if place != found["device"]:
            elsewhere.append(Part(what, name, place))
    return Placement(
        found["device"],
        found["how"],
        counts,
        tuple(elsewhere),
        found.get("facts", {}),
        found.get("switches", {}),
        found.get("reason", ""),
    )
