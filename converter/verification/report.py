"""Results of a verification, as frozen records and as plain data for manifests and ``--json``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from converter.verification.measure import Measure, Runtime, Verdict, finite_or_none
from converter.verification.placement import Placement
from formats.core.bundle import JSON

Status = Literal["passed", "failed", "not run"]


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
            "error": finite_or_none(self.error),
            "noise": finite_or_none(self.noise),
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
            "runtime": self.runtime.plain() if self.runtime else None,
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
                name: [m.plain() for m in pair.values()] for name, pair in self.pairs.items()
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
            "source": self.source.plain() if self.source else None,
            "converted": self.converted.plain() if self.converted else None,
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
            "outputs": [m.plain() for m in self.outputs.values()],
            "first_difference": None
            if first is None
            else {
                "layer": first.layer,
                "class_name": first.class_name,
                "merged": [*first.merged],
                "last_equal": first.last_equal,
                "measure": first.measure.plain(),
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
                "runtime": self.smoke.runtime.plain() if self.smoke.runtime else None,
                "cases": [*self.smoke.cases],
            },
        }
