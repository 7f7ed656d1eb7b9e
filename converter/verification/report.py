"""What a verification found, as frozen facts, and as plain data for manifests and ``--json``."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Literal

from converter.verification.placement import Placement
from formats.core.bundle import JSON

Status = Literal["passed", "failed", "not run"]


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime and the device that it computed on.

    Attributes:
        name: ``onnxruntime``, ``keras``, ``tf_keras``.
        version: Its own.
        device: Where its outputs were made, in its own words.
        versions: Versions of Python, the backend and numpy.
    """

    name: str
    version: str
    device: str
    versions: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name} {self.version} on {self.device}"


@dataclass(frozen=True, slots=True)
class Measure:
    """One output against what it should be.

    Attributes:
        name: Of the output, or of a layer.
        dtype: Of the source's.
        shape: Of the source's, in the case with the worst difference.
        elements: How many were compared, over all cases.
        scale: Largest finite magnitude of the source's.
        max_abs: Largest difference.
        max_rel: That difference in parts of ``scale``.
        cosine: Of the angle between both as vectors; the least of all cases.
        worst_index: Where the largest difference is.
        worst_case: In which case.
        expected: The source's element there.
        found: The converted one's.
        smallest_atol: The least atol that would pass with an rtol of zero.
        smallest_rtol: The least rtol that would pass with an atol of zero.
        atol: What was allowed, at the worst case's scale.
        rtol: Likewise.
        decades: How many elements differ by how much, in parts of ``scale``: not at all; by less
            than 1e-9; by each power of ten from there to 1; by 1 and more, or beyond all numbers.
        says_little: Whether it hardly depends on the inputs, so that it hides what goes before.
        problems: Why it failed, one text for each kind of reason; empty where it passed.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    elements: int = 0
    scale: float = 0.0
    max_abs: float = 0.0
    max_rel: float = 0.0
    cosine: float = 1.0
    worst_index: tuple[int, ...] | None = None
    worst_case: str = ""
    expected: float | str | None = None
    found: float | str | None = None
    smallest_atol: float = 0.0
    smallest_rtol: float = 0.0
    atol: float = 0.0
    rtol: float = 0.0
    decades: tuple[int, ...] = ()
    says_little: bool = False
    problems: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether it is what it should be."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class CaseReport:
    """One set of inputs that both sides were given.

    Attributes:
        name: What measures call it.
        inputs: Name → (dtype, shape).
    """

    name: str
    inputs: Mapping[str, tuple[str, tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class LayerDifference:
    """The first layer whose output differs.

    Attributes:
        layer: Its name, after those of the models it is in.
        class_name: The source's.
        measure: How much its output differs.
        merged: Layers whose work the same nodes do, and which no value of their own shows.
        last_equal: The layer before it in the source's order that still agrees.
    """

    layer: str
    class_name: str
    measure: Measure
    merged: tuple[str, ...] = ()
    last_equal: str | None = None

    def __str__(self) -> str:
        text = f"{self.layer!r} ({self.class_name})"
        if self.merged:
            text += " with " + ", ".join(map(repr, self.merged)) + " folded into it"
        return text


def graph_level(status: str, device: str | None) -> str | None:
    """Return the level that the comparison of a graph reaches.

    Args:
        status: Of the comparison on the CPU and, if there was one, on the device.
        device: Status of the comparison on a device; None if there was none.

    Returns:
        ``device``, ``cpu``, ``none`` if it failed, None if it was not run.
    """
    if status == "not run":
        return None
    if status != "passed" or device == "failed":
        return "none"
    return "device" if device == "passed" else "cpu"


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """One of both models on the device.

    Attributes:
        status: ``failed`` where it ran, but not, or not all of it, on the device; the converted
            model also where it runs on the CPU only. ``not run`` where its runtime has no such
            device; the source also where its own framework does not run it there.
        reason: Why it is so; empty where it passed.
        runtime: Runtime that ran it.
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
    source: DeviceRun
    converted: DeviceRun
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


@dataclass(frozen=True, slots=True)
class GraphReport:
    """A converted graph against the source, each in its own runtime.

    Attributes:
        status: ``not run`` is neither good nor bad: ``reason`` says why, and what would change it.
        reason: Why it failed, or was not run; empty where it passed.
        lacking: The command that would install what was lacking, where something was.
        source: Runtime of the source.
        converted: Runtime of the graph.
        seed: Of the inputs; None where the user gave them.
        cases: The inputs.
        skipped: Inputs that the source's own framework refused, and in what words.
        outputs: One measure for each output of the graph.
        first_difference: Where outputs differ, and the layer could be found.
        layers: How many layers' outputs were compared too and are the same; that is done where
            outputs differ, or say little.
        notes: Further remarks on the runs.
        seconds: How long it took.
        device: The same on a device, where one was asked for and both agree on the CPU. Where that
            has failed, so has this report; where it was not run, this one stands without it.
    """

    status: Status
    reason: str = ""
    lacking: str | None = None
    source: Runtime | None = None
    converted: Runtime | None = None
    seed: int | None = None
    cases: tuple[CaseReport, ...] = ()
    skipped: tuple[str, ...] = ()
    outputs: Mapping[str, Measure] = field(default_factory=dict)
    first_difference: LayerDifference | None = None
    layers: int = 0
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    device: DeviceReport | None = None

    @property
    def max_rel(self) -> float:
        """The largest difference of all outputs, in parts of the output's scale."""
        return max((m.max_rel for m in self.outputs.values()), default=0.0)

    @property
    def reached(self) -> str | None:
        """Level that it reaches: ``device``, ``cpu``, ``none`` if it failed, None if not run."""
        return graph_level(self.status, None if self.device is None else self.device.status)

    def with_device(self, found: DeviceReport) -> "GraphReport":
        """Return this report with what was found on a device."""
        if found.status != "failed":
            return replace(self, device=found)
        reason = f"on {found.device}: {found.reason}"
        return replace(self, status="failed", reason=reason, device=found)

    def plain(self) -> dict[str, JSON]:
        """Return the report as JSON's types; what is not finite is null."""
        first = self.first_difference
        return {
            "status": self.status,
            "reason": self.reason,
            "lacking": self.lacking,
            "source": runtime_plain(self.source),
            "converted": runtime_plain(self.converted),
            "seed": self.seed,
            "cases": [
                {
                    "name": case.name,
                    "inputs": {
                        name: {"dtype": dtype, "shape": [*shape]}
                        for name, (dtype, shape) in case.inputs.items()
                    },
                }
                for case in self.cases
            ],
            "skipped": [*self.skipped],
            "outputs": [measure_plain(m) for m in self.outputs.values()],
            "first_difference": None
            if first is None
            else {
                "layer": first.layer,
                "class_name": first.class_name,
                "merged": [*first.merged],
                "last_equal": first.last_equal,
                "measure": measure_plain(first.measure),
            },
            "layers": self.layers,
            "notes": [*self.notes],
            "seconds": round(self.seconds, 3),
            "device": None if self.device is None else self.device.plain(),
        }


def runtime_plain(runtime: Runtime | None) -> JSON:
    """Return a runtime as JSON's types."""
    if runtime is None:
        return None
    return {
        "name": runtime.name,
        "version": runtime.version,
        "device": runtime.device,
        "versions": dict(runtime.versions),
    }


def measure_plain(measure: Measure) -> JSON:
    """Return a measure as JSON's types; what is not finite is null."""
    return {
        "name": measure.name,
        "passed": measure.passed,
        "problems": [*measure.problems],
        "dtype": measure.dtype,
        "shape": [*measure.shape],
        "elements": measure.elements,
        "scale": _number(measure.scale),
        "max_abs": _number(measure.max_abs),
        "max_rel": _number(measure.max_rel),
        "cosine": _number(measure.cosine),
        "worst_index": None if measure.worst_index is None else [*measure.worst_index],
        "worst_case": measure.worst_case,
        "expected": _number(measure.expected),
        "found": _number(measure.found),
        "smallest_atol": _number(measure.smallest_atol),
        "smallest_rtol": _number(measure.smallest_rtol),
        "atol": _number(measure.atol),
        "rtol": _number(measure.rtol),
        "decades": [*measure.decades],
        "says_little": measure.says_little,
    }


def _number(value: float | str | None) -> JSON:
    return None if isinstance(value, float) and not isfinite(value) else value
