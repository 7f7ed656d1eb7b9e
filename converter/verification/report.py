"""Results of a verification, as frozen records and as plain data for manifests and ``--json``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Literal, NamedTuple

from converter.verification.placement import Placement
from formats.core.bundle import JSON

Status = Literal["passed", "failed", "not run"]
# What is said of a difference: none; as large as rounding explains; within a tolerance of the user,
# or of the dtype where noise cannot be measured; noise as large as the values; more than rounding.
Verdict = Literal["equal", "explained", "tolerated", "ill-conditioned", "unexplained"]


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime and the device that it computed on.

    Attributes:
        name: ``onnxruntime``, ``keras``, ``tf_keras``.
        version: Its version.
        device: Device that computed its outputs, as it names it.
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
    """The difference between an output and its expected value.

    Attributes:
        name: Name of the output or layer.
        dtype: Dtype in the source.
        shape: Shape in the source, in the case with the worst difference.
        elements: Number of compared elements, over all cases.
        scale: Largest finite magnitude in the source.
        max_abs: Largest absolute difference.
        max_rel: That difference as a fraction of ``scale``.
        cosine: Cosine similarity of both as vectors; the minimum over all cases.
        worst_index: Index of the largest difference.
        worst_case: Case of the largest difference.
        expected: Element of the source there.
        found: Element of the converted model there.
        smallest_atol: The smallest atol that would pass with an rtol of zero.
        smallest_rtol: The smallest rtol that would pass with an atol of zero.
        atol: Allowed atol, at the worst case's scale.
        rtol: Allowed rtol, likewise.
        decades: Histogram of the differences as fractions of ``scale``: zero; below 1e-9; each
            power of ten from there to 1; 1 and more, or not finite.
        says_little: Whether it hardly depends on the inputs, so that it hides earlier differences.
        problems: Why it failed, one string for each kind of reason; empty if it passed.
        verdict: Whether rounding explains the difference.
        noise: Root mean square of the noise of rounding; None where it was not measured.
        source_error: Root mean square of the source's error, against the exact result of the
            converted graph in float64; None where that was not computed.
        converted_error: The same of the converted model's error.
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
    verdict: Verdict = "tolerated"
    noise: float | None = None
    source_error: float | None = None
    converted_error: float | None = None

    @property
    def passed(self) -> bool:
        """Whether it has no problems."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class CaseReport:
    """One set of inputs of both models.

    Attributes:
        name: Name of the case in measures.
        inputs: Name → (dtype, shape).
    """

    name: str
    inputs: Mapping[str, tuple[str, tuple[int, ...]]]


class LayerError(NamedTuple):
    """The difference of the output of one layer.

    Attributes:
        layer: Its name, prefixed by the names of the models that contain it.
        class_name: Name of its class in the source.
        passed: Whether it is within noise, or the tolerance.
        error: Largest difference, as a fraction of the output's scale, as all that follow are.
        noise: Root mean square of the noise of rounding; None where it was not measured.
        verdict: Whether rounding explains the difference.
        dtype: Dtype of the output.
        shape: Its shape.
        bound: Root mean square that the difference may have; None where noise did not decide.
        source_error: Root mean square of the source's error, against the graph in float64; None
            where that was not computed.
        converted_error: The same of the converted graph's error.
    """

    layer: str
    class_name: str
    passed: bool
    error: float
    noise: float | None
    verdict: Verdict = "tolerated"
    dtype: str = ""
    shape: tuple[int, ...] = ()
    bound: float | None = None
    source_error: float | None = None
    converted_error: float | None = None

    @classmethod
    def of(
        cls,
        layer: str,
        class_name: str,
        measures: Sequence[Measure],
        noise: Sequence[float | None],
    ) -> "LayerError":
        """Return the error of the output that differs most; ``noise`` is that of each output."""
        worst, level = max(
            zip(measures, noise, strict=True), key=lambda one: (not one[0].passed, one[0].max_rel)
        )

        def relative(value: float | None) -> float | None:
            return value / worst.scale if value is not None and worst.scale else None

        return cls(
            layer, class_name, worst.passed, worst.max_rel, relative(level), worst.verdict,
            worst.dtype, worst.shape, relative(worst.noise and worst.atol),
            relative(worst.source_error), relative(worst.converted_error),
        )  # fmt: skip

    def plain(self) -> dict[str, JSON]:
        """Return it as JSON types; non-finite numbers are null."""
        return {
            **self._asdict(),
            "shape": [*self.shape],
            "error": _number(self.error),
            "noise": _number(self.noise),
        }


@dataclass(frozen=True, slots=True)
class LayerDifference:
    """The first layer whose output differs.

    Attributes:
        layer: Its name, prefixed by the names of the models that contain it.
        class_name: Name of its class in the source.
        measure: The difference of its output.
        merged: Layers folded into the same nodes, which have no value of their own.
        last_equal: The last layer before it, in the source's order, that still agrees.
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


def graph_level(status: str, device: str | None, smoke: str | None = None) -> str | None:
    """Return the level that the comparison of a graph reaches.

    Args:
        status: Status of the comparison on the CPU and, if there was one, on the device.
        device: Status of the comparison on a device; None if there was none.
        smoke: Status of the run of the converted graph alone; None if there was none.

    Returns:
        ``device``, ``cpu``, ``none`` if it failed; if it was not run ``smoke``, or None.
    """
    if status == "not run":
        return "smoke" if smoke == "passed" else None
    if status != "passed" or device == "failed":
        return "none"
    return "device" if device == "passed" else "cpu"


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """The run of one of the two models on the device.

    Attributes:
        status: ``failed`` if it ran, but not completely on the device; for the converted model
            also if it runs on the CPU only. ``not run`` if its runtime has no such device; for
            the source also if its own framework does not run it there.
        reason: Reason of the status; empty if it passed.
        runtime: Runtime that ran it.
        placement: Placement of its parts.
    """

    status: Status
    reason: str = ""
    runtime: Runtime | None = None
    placement: Placement | None = None

    def plain(self) -> dict[str, JSON]:
        """Return it as JSON types."""
        return {
            "status": self.status,
            "reason": self.reason,
            "runtime": runtime_plain(self.runtime),
            "placement": None if self.placement is None else self.placement.plain(),
        }


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """Comparison of a converted model and its source on a device and on the CPU, on equal inputs.

    Attributes:
        status: ``passed`` if the converted model ran on the device, except for the allowed nodes,
            and its outputs there agree with those of both models elsewhere.
        reason: Why it failed, or was not run; empty if it passed.
        device: The requested device.
        allow_tf32: Whether products could be rounded to TF32.
        allow_cpu_nodes: Number of parts of each model that could be on the CPU.
        source: The run of the source. It may be ``not run`` although the report has passed: then
            the converted model was compared with the source on the CPU only.
        converted: The run of the converted model.
        pairs: ``A ~ B`` → output → the difference of A and B. The comparison of both models on the
            CPU, which decides on equivalence, is in the `GraphReport` that contains this one.
        seconds: Duration.
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
        """The largest difference of all pairs, as a fraction of the output's scale."""
        return max((m.max_rel for pair in self.pairs.values() for m in pair.values()), default=0.0)

    def plain(self) -> dict[str, JSON]:
        """Return the report as JSON types; non-finite numbers are null."""
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
class Coverage:
    """What the inputs of a comparison reach in a graph.

    Attributes:
        ranges: Number of ranges looked at.
        reached: Number of those reached.
        missing: Nodes, operators and ranges that no input reached, the first ones.
    """

    ranges: int
    reached: int
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SmokeReport:
    """A run of a converted graph alone, without its source.

    Attributes:
        status: ``passed`` if its outputs are as declared, finite, and the same each time;
            ``failed`` if the runtime finds it invalid; else ``not run``.
        reason: Why it has not passed.
        runtime: The runtime.
        cases: Names of the inputs.
    """

    status: Status
    reason: str = ""
    runtime: Runtime | None = None
    cases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphReport:
    """Comparison of a converted graph with the source, each in its own runtime.

    Attributes:
        status: ``not run`` is neither success nor failure: ``reason`` has the cause and the remedy.
        reason: Why it failed, or was not run; empty if it passed.
        lacking: The command that installs a missing package, if one is missing.
        source: Runtime of the source.
        converted: Runtime of the graph.
        seed: Seed of the inputs; None for inputs of the user.
        cases: The inputs.
        skipped: Inputs that the source's own framework refused, with its messages.
        outputs: One measure for each output of the graph.
        first_difference: The first differing layer, if outputs differ and it could be found.
        layers: Number of layers whose outputs were compared too and are equal; layers are compared
            if outputs differ or hardly depend on the inputs.
        layer_errors: Errors of all layers, in the order of the source, where they were asked for.
        notes: Further remarks on the runs.
        seconds: Duration.
        device: The comparison on a device, if one is requested and both agree on the CPU. If it
            failed, this report has failed; if it was not run, this report does not depend on it.
        coverage: What the inputs reach inside the graph, if it could be looked at.
        smoke: The run of the converted graph alone, if it was not compared with the source.
        is_failing: Whether the source's own framework failed on every input, so that there is
            nothing to compare with.
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
    layer_errors: tuple[LayerError, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    device: DeviceReport | None = None
    coverage: Coverage | None = None
    smoke: SmokeReport | None = None
    is_failing: bool = False

    @property
    def max_rel(self) -> float:
        """The largest difference of all outputs, as a fraction of the output's scale."""
        return max((m.max_rel for m in self.outputs.values()), default=0.0)

    @property
    def reached(self) -> str | None:
        """The level reached, as `graph_level` returns it."""
        device = None if self.device is None else self.device.status
        return graph_level(self.status, device, None if self.smoke is None else self.smoke.status)

    def with_layer_errors(self, errors: tuple[LayerError, ...]) -> "GraphReport":
        """Return this report with the errors of all layers, or a note that there are none."""
        notes = [*self.notes]
        if not errors:
            notes.append(
                "no layers were compared: the outputs of layers cannot be had of both models"
            )
        elif self.status == "passed" and (wrong := [one.layer for one in errors if not one.passed]):
            names = ", ".join(map(repr, wrong[:5]))
            notes.append(f"outputs agree, but layers differ by more than their noise: {names}")
        return replace(self, layer_errors=errors, notes=tuple(notes))

    def with_device(self, found: DeviceReport) -> "GraphReport":
        """Return this report with the comparison on a device."""
        if found.status != "failed":
            return replace(self, device=found)
        reason = f"on {found.device}: {found.reason}"
        return replace(self, status="failed", reason=reason, device=found)

    def plain(self) -> dict[str, JSON]:
        """Return the report as JSON types; non-finite numbers are null."""
        first = self.first_difference
        return {
            "status": self.status,
            "reason": self.reason,
            "lacking": self.lacking,
            "failing": self.is_failing,
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
            "layer_errors": [one.plain() for one in self.layer_errors],
            "notes": [*self.notes],
            "seconds": round(self.seconds, 3),
            "device": None if self.device is None else self.device.plain(),
            "coverage": None
            if self.coverage is None
            else {
                "ranges": self.coverage.ranges,
                "reached": self.coverage.reached,
                "missing": [*self.coverage.missing],
            },
            "smoke": None
            if self.smoke is None
            else {
                "status": self.smoke.status,
                "reason": self.smoke.reason,
                "runtime": runtime_plain(self.smoke.runtime),
                "cases": [*self.smoke.cases],
            },
        }


def runtime_plain(runtime: Runtime | None) -> JSON:
    """Return a runtime as JSON types."""
    if runtime is None:
        return None
    return {
        "name": runtime.name,
        "version": runtime.version,
        "device": runtime.device,
        "versions": dict(runtime.versions),
    }


def measure_plain(measure: Measure) -> JSON:
    """Return a measure as JSON types; non-finite numbers are null."""
    return {
        "name": measure.name,
        "passed": measure.passed,
        "verdict": measure.verdict,
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
        "noise": _number(measure.noise),
        "source_error": _number(measure.source_error),
        "converted_error": _number(measure.converted_error),
        "decades": [*measure.decades],
        "says_little": measure.says_little,
    }


def _number(value: float | str | None) -> JSON:
    return None if isinstance(value, float) and not isfinite(value) else value
