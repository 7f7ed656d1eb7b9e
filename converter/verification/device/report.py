"""What a comparison on a device found: both models there and on the CPU, four ways."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from converter.verification.device.placement import Placement
from converter.verification.report import Measure, Runtime, Status, measure_plain, runtime_plain
from formats.core.bundle import JSON


@dataclass(frozen=True, slots=True)
class Side:
    """One of both models on the device.

    Attributes:
        status: ``failed`` where it ran, but not, or not all of it, on the device; the converted
            model also where it runs on the CPU only. ``not run`` where its runtime has no such
            device; the source also where its own framework does not run it there.
        reason: Why it is so; empty where it passed.
        runtime: Who ran it there.
        placement: Where its parts were.
    """

    status: Status
    reason: str = ""
    runtime: Runtime | None = None
    placement: Placement | None = None

    def plain(self) -> dict[str, JSON]:
        """Return it as JSON's types."""
        return {
            "status": self.status,
            "reason": self.reason,
            "runtime": runtime_plain(self.runtime),
            "placement": None if self.placement is None else self.placement.plain(),
        }


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """A converted model and its source on a device and on the CPU, all on the same inputs.

    Attributes:
        status: ``passed`` where the converted model was on the device, wholly but for what was
            allowed, and computes there what both models compute elsewhere.
        reason: Why it failed, or was not run; empty where it passed.
        device: As it was asked for.
        allow_tf32: Whether products might be rounded to TF32.
        allow_cpu_nodes: How many parts of each side might be on the CPU.
        source: The source there. It may be ``not run`` where the report has passed: then the
            converted model was compared with the source on the CPU alone.
        converted: The converted model there.
        pairs: ``A ~ B`` → output → how far A is from B. That of the two on the CPU, which decides
            whether they are equivalent, is the report's that this one belongs to.
        seconds: How long it took.
    """

    status: Status
    reason: str
    device: str
    allow_tf32: bool
    allow_cpu_nodes: int
    source: Side
    converted: Side
    pairs: Mapping[str, Mapping[str, Measure]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def max_rel(self) -> float:
        """The largest difference of all pairs, in parts of the output's scale."""
        return max((m.max_rel for pair in self.pairs.values() for m in pair.values()), default=0.0)

    def plain(self) -> dict[str, JSON]:
        """Return the report as JSON's types; what is not finite is null."""
        return {
            "status": self.status,
            "reason": self.reason,
            "device": self.device,
            "allow_tf32": self.allow_tf32,
            "allow_cpu_nodes": self.allow_cpu_nodes,
            "source": self.source.plain(),
            "converted": self.converted.plain(),
            "pairs": {
                name: [measure_plain(m) for m in pair.values()] for name, pair in self.pairs.items()
            },
            "seconds": round(self.seconds, 3),
        }
