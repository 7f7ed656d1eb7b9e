"""What the outputs of a source and of a converted model say of each other, once both have run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from converter.verification.compare import compare, merge_measures, says_little
from converter.verification.measure import Measure
from converter.verification.noise import Noise, measure_noise
from converter.verification.onnx_values import OnnxInterface
from converter.verification.pair import Pair
from converter.verification.report import CaseReport
from converter.verification.runners import PreparedInputs, SourceRun, load_output
from converter.verification.source_noise import measure_source_noise
from converter.verification.verdict import SourceNoise
from formats.errors import DependencyError


@dataclass(frozen=True, slots=True)
class Differences:
    """How far the outputs of two models differ.

    Attributes:
        outputs: The measure of each output that does not differ from run to run.
        notes: Remarks on how noise was measured.
        source_noise: The noise of the source, if it had to be measured.
        problem: Why nothing could be compared, or empty.
    """

    outputs: Mapping[str, Measure] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    source_noise: SourceNoise = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of both models on the same inputs.

    Attributes:
        pair: The models.
        graph: An ONNX file of what both compute, and its interface, to measure noise with.
        theirs: The source's inputs.
        ours: The converted model's.
        there: The run of the source.
        here: The run of the converted model.
    """

    pair: Pair
    graph: tuple[Path, OnnxInterface] | None
    theirs: PreparedInputs
    ours: PreparedInputs
    there: SourceRun
    here: SourceRun

    @property
    def unstable(self) -> frozenset[int]:
        """Indices of outputs that differ when they are computed again."""
        return self.there.unstable | self.here.unstable

    def compare_outputs(self) -> Differences:
        """Measure how far the outputs differ, and whether rounding explains it.

        The noise of the graph is measured where outputs are not equal bit for bit, that of the
        source where the graph's does not explain the difference.
        """
        if problem := self._describe_mismatch():
            return Differences(problem=problem)
        outputs = self._measure_outputs(None)
        is_explicit = all(self.pair.tolerance.is_explicit(name) for name in outputs)
        if is_explicit or all(m.verdict == "equal" for m in outputs.values()):
            return Differences(outputs)
        noise = self.measure_noise(self.pair.noise_scale)
        if noise is None:
            note = "the noise of rounding was not measured: a fixed tolerance decides"
            return Differences(outputs, (note,))
        outputs = self._measure_outputs(noise)
        if all(m.verdict != "unexplained" for m in outputs.values()):
            return Differences(outputs)
        source_noise = self._measure_source_noise()
        explained = self._measure_outputs(replace(noise, source=source_noise))
        notes = tuple(_list_explained(outputs, explained))
        return Differences(explained, notes, source_noise)

    def measure_noise(self, scale: float) -> Noise | None:
        """Return the noise of what both models compute, or None if it cannot be measured.

        Args:
            scale: Size of the rounding errors, in units in the last place.
        """
        if self.graph is None or len(self.graph[1].inputs) != len(self.pair.specs):
            return None
        path, file = self.graph
        try:
            prepared = replace(self.ours, names=tuple(spec.name for spec in file.inputs))
            outputs = {spec.name: spec.dtype for spec in file.outputs}
            return measure_noise(
                path, file, prepared, self.there.chosen, outputs, self.pair.allowance, scale=scale
            )
        except DependencyError:
            return None  # it needs more memory than the comparison, which has been made

    def describe_cases(self) -> tuple[CaseReport, ...]:
        """Return the name of each case, and the dtypes and shapes of its inputs."""
        return tuple(
            CaseReport(
                self.theirs.cases[number].name,
                {
                    spec.name: (spec.dtype, array.shape)
                    for spec, array in zip(
                        self.pair.specs, self.theirs.cases[number].arrays, strict=True
                    )
                },
            )
            for number in self.there.chosen
        )

    def describe_unstable(self) -> str:
        """Return why outputs are not comparable."""
        names = ", ".join(repr(self.pair.outputs[i]) for i in sorted(self.unstable))
        rest = "; all others agree" if len(self.unstable) < len(self.pair.outputs) else ""
        why = f" ({', '.join(self.there.random)})" if self.there.random else ""
        return f"{names} of the source itself differs from run to run{why}: not comparable{rest}"

    def _describe_mismatch(self) -> str:
        """Return why the outputs are no pairs, or ""."""
        if self.here.refused:
            return f"{self.pair.runtime} fails on {self.here.refused[0]}"
        for number in self.there.chosen:
            counts = len(self.here.dtypes[number]), len(self.there.dtypes[number])
            if set(counts) != {len(self.pair.outputs)}:
                return f"the converted model has {counts[0]} outputs, the source {counts[1]}"
        return ""

    def _measure_source_noise(self) -> SourceNoise:
        """Return the noise of the source; nothing where it cannot be measured."""
        try:
            return measure_source_noise(
                self.pair.reference, self.pair.specs, self.theirs, self.there
            )
        except DependencyError:
            return {}  # of more runs than the comparison, which has been made

    def _measure_outputs(self, noise: Noise | None) -> dict[str, Measure]:
        """Return the difference of each output that does not differ from run to run."""
        measures: dict[str, list[Measure]] = {}
        arrays: dict[str, list[np.ndarray]] = {}
        for number in self.there.chosen:
            for i, name in enumerate(self.pair.outputs):
                if i in self.unstable:
                    continue
                dtypes = self.there.dtypes[number][i], self.here.dtypes[number][i]
                expected = load_output(self.theirs, "out", number, i, dtypes[0])
                found = load_output(self.ours, "out", number, i, dtypes[1])
                evidence = None if noise is None else noise.evidence(number, i)
                case = self.theirs.cases[number].name
                measure = compare(name, expected, found, self.pair.tolerance, case, evidence)
                measures.setdefault(name, []).append(measure)
                arrays.setdefault(name, []).append(expected.data)
        return {
            name: replace(
                measure,
                says_little=bool(measure.elements)
                and says_little(arrays[name], measures[name][0].atol),
            )
            for name, measure in merge_measures(measures).items()
        }


def _list_explained(before: Mapping[str, Measure], after: Mapping[str, Measure]) -> Iterator[str]:
    """Yield a note on each output that only the source's own noise explains."""
    for name, measure in after.items():
        if not measure.passed or before[name].passed:
            continue
        sizes = ""
        if measure.noise is not None and before[name].noise is not None:
            sizes = f" ({measure.noise:.2g}; of the converted model {before[name].noise:.2g})"
        yield f"{name!r} differs by the rounding noise of the source in its own runtime{sizes}"
