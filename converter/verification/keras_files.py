"""A written `.keras` file against its source: both run by Keras, each in a child of its own.

The source runs in the Keras of its age where that is here, the file in today's. Outputs are called
as the graph's would be, after the layers that they come from.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from converter.lower.keras.lowering import input_spec, model_of
from converter.lower.keras.model import Model, references
from converter.lower.keras.owners import layers_of
from converter.lower.keras.table import compute_dtype
from converter.verification.compare import Array, Tolerance, coarsest, compare, says_little, settled
from converter.verification.device.compare import Question, place, verify_on_device
from converter.verification.device.placement import CPU, On
from converter.verification.device.runs import framework_party
from converter.verification.first_difference import Located
from converter.verification.graphs import (
    Options,
    cannot_run,
    case_to_look_into,
    check_names,
    looked_into,
    unable,
)
from converter.verification.inputs import draw as inputs
from converter.verification.report import CaseReport, GraphReport, LayerDifference, Measure
from converter.verification.runners import NoRun, Prepared, SourceRun, output, prepare, run_source
from converter.verification.sources.keras import notes_on_keras, vocabulary
from formats.core.bundle import Bundle, TensorSpec
from formats.errors import CorruptError, UnsupportedError
from formats.keras.variable_names import safe

TODAY = "3"  # the version that a written file is of


def verify_keras(
    source: Path, bundle: Bundle, written: Path, *, options: Options | None = None
) -> GraphReport:
    """Compare a written file with its source.

    Args:
        source: The artifact.
        bundle: As read from it.
        written: The `.keras` file.
        options: Tolerances and inputs.

    Returns:
        A report; ``failed`` where outputs differ, or today's Keras does not load the file.

    Raises:
        EnvironmentFault: A child died, hung, or took too much memory.
        UsageError: The user's inputs or tolerances are not for this model.
    """
    begin = perf_counter()
    options = options or Options()
    report = cannot_run(bundle, options, needs_onnx=False)
    if report is None:
        try:
            model = model_of(bundle)
        except (CorruptError, UnsupportedError) as e:
            report = GraphReport("not run", e.found)
        else:
            report = _Comparison(source, bundle, written, model, options).run()
    return replace(report, seconds=perf_counter() - begin)


@dataclass(frozen=True, slots=True)
class _Comparison:
    source: Path
    bundle: Bundle
    written: Path
    model: Model
    options: Options

    def run(self) -> GraphReport:
        """Run both sides on the same inputs, and their layers where that says more."""
        names = _output_names(self.model)
        check_names(self.options, names)
        specs = _inputs(self.model)
        dtypes = {compute_dtype(layer.config) or "float32" for _, layer in layers_of(self.model)}
        tolerance = Tolerance(self.options.atol, self.options.rtol, coarsest(dtypes))
        with tempfile.TemporaryDirectory(prefix="convert-verify-") as name:
            folders = Path(name, "source"), Path(name, "written")
            for folder in folders:
                folder.mkdir()
            plan = self._plan(specs)
            before, after = (prepare(folder, specs, plan) for folder in folders)
            there = self._run_source(before, ())
            if isinstance(there, NoRun):
                return unable(there, "Keras")
            # What the source took of alternatives, the file must take as well.
            after = replace(after, groups=tuple((number,) for number in there.chosen))
            here = self._run_written(after, ())
            if isinstance(here, NoRun):
                if here.is_missing:
                    return unable(here, "Keras")
                return GraphReport("failed", f"Keras does not run the file: {here.reason}")
            chosen = [number for number in there.chosen if number in here.chosen]
            report = compared(before, after, there, here, chosen, specs, names, tolerance)
            report = replace(
                report,
                seed=None if self.options.inputs else self.options.seed,
                notes=tuple(dict.fromkeys((*notes_on_keras(self.bundle, there), *here.notes))),
            )
            on = place(self.options.device, allow_tf32=self.options.allow_tf32)
            if report.status == "passed" and on is not None:
                cases = {number: before.cases[number].name for number in chosen}
                alike = Question(names, cases, tolerance, self.options.allow_cpu_nodes)
                asked = framework_party(before, there, lambda p, on: self._run_source(p, (), on))
                answer = framework_party(after, here, lambda p, on: self._run_written(p, (), on))
                report = report.with_device(verify_on_device(asked, answer, alike, on))
            case = case_to_look_into(report, chosen)
            if case is None:
                return report
            found = self._first_difference(before, after, case, tolerance.general())
        return looked_into(report, found)

    def _plan(self, specs: Sequence[TensorSpec]) -> list[list[inputs.Case]]:
        if self.options.inputs is not None:
            return inputs.from_file(self.options.inputs, specs)
        hints = inputs.hints(self.model, vocabulary(self.bundle))
        found = [hints.get(spec.name, inputs.Hint()) for spec in specs]
        samples = max(self.options.samples, 1)
        plan = inputs.plan(specs, found, seed=self.options.seed, samples=samples)
        return [*inputs.from_example(self.options.example, specs), *plan]

    def _run_source(
        self, prepared: Prepared, layers: Sequence[str], on: On = CPU
    ) -> SourceRun | NoRun:
        about = self.bundle.metadata
        version = about.recorded.get("keras_version", "")
        return run_source(
            self.source, about.format, version, prepared, self.options.allowance,
            layers=layers, trust=self.options.trust, on=on,
        )  # fmt: skip

    def _run_written(
        self, prepared: Prepared, layers: Sequence[str], on: On = CPU
    ) -> SourceRun | NoRun:
        return run_source(
            self.written, "keras", TODAY, prepared, self.options.allowance,
            layers=layers, trust=self.options.trust, only="keras", on=on,
        )  # fmt: skip

    def _first_difference(
        self, before: Prepared, after: Prepared, case: int, tolerance: Tolerance
    ) -> Located:
        """Return the first layer, as the source calls them, whose output differs in a case."""
        classes = {"/".join(path): layer.class_name for path, layer in layers_of(self.model)}
        now = {"/".join(p): "/".join(map(safe, p)) for p, _ in layers_of(self.model)}
        sides = [
            Prepared(side.folder, side.names, side.cases, ((case,),)) for side in (before, after)
        ]
        there = self._run_source(sides[0], sorted(now))
        here = self._run_written(sides[1], sorted(now.values()))
        if isinstance(there, NoRun) or isinstance(here, NoRun):
            return Located()
        last_equal, equal = None, 0
        for path, calls in there.layers.items():  # in the order in which they ran
            others = here.layers.get(now[path], ())
            if len(others) != len(calls):
                continue  # other steps make it today
            measures = [
                compare(path, Array(np.load(a), dtype), Array(np.load(b), other), tolerance)
                for (a, _, dtype), (b, _, other) in zip(calls, others, strict=True)
            ]
            wrong = [m for m in measures if not m.passed and 0 not in m.shape]
            if wrong:
                worst = max(wrong, key=lambda m: m.max_rel)
                first = LayerDifference(path, classes[path], worst, (), last_equal)
                return Located(first, equal)
            last_equal, equal = path, equal + 1
        return Located(None, equal)


def _inputs(model: Model) -> list[TensorSpec]:
    specs = []
    for reference in references(model.inputs):
        shape, dtype = input_spec(model.layers[reference.layer])
        sizes = tuple(n if isinstance(n, int) else str(n) for n in shape)
        specs.append(TensorSpec(reference.layer, dtype, sizes))
    return specs


def _output_names(model: Model) -> list[str]:
    """Return what a graph's outputs are called: after their layers, each otherwise."""
    used = {reference.layer for reference in references(model.inputs)}
    names: list[str] = []
    for reference in references(model.outputs):
        base = reference.layer if reference.layer not in used else f"{reference.layer}_out"
        name, number = base, 1
        while name in used:
            name, number = f"{base}_{number}", number + 1
        used.add(name)
        names.append(name)
    return names


def compared(
    before: Prepared, after: Prepared, there: SourceRun, here: SourceRun, chosen: Sequence[int],
    specs: Sequence[TensorSpec], names: Sequence[str], tolerance: Tolerance,
    who: str = "today's Keras",
) -> GraphReport:  # fmt: skip
    """Compare what two runs on the same inputs gave: the source's, and the written file's.

    Args:
        before: What the source was given.
        after: What the file was given.
        there: What the source gave.
        here: What the file gave.
        chosen: Numbers of the cases that both ran.
        specs: Of the inputs.
        names: Of the outputs.
        tolerance: What is allowed.
        who: Runs the file.
    """
    cases = tuple(
        CaseReport(
            before.cases[number].name,
            {
                spec.name: (spec.dtype, array.shape)
                for spec, array in zip(specs, before.cases[number].arrays, strict=True)
            },
        )
        for number in chosen
    )
    report = GraphReport(
        "failed", "", None, there.runtime, here.runtime,
        cases=cases, skipped=(*there.refused, *here.refused),
    )  # fmt: skip
    if not chosen:
        return replace(report, reason="there is no case that both run")
    if len(chosen) < len(there.chosen):
        return replace(report, reason=f"{who} fails on inputs: {here.refused[0]}")
    measures: dict[str, list[Measure]] = {}
    arrays: dict[str, list[np.ndarray]] = {}
    for number in chosen:
        dtypes = list(zip(there.dtypes[number], here.dtypes[number], strict=False))
        counts = len(there.dtypes[number]), len(here.dtypes[number])
        if set(counts) != {len(names)}:
            text = f"the file has {counts[1]} outputs, the source {counts[0]}"
            return replace(report, reason=text)
        for i, (name, (dtype, other)) in enumerate(zip(names, dtypes, strict=True)):
            expected = output(before, "out", number, i, dtype)
            got = output(after, "out", number, i, other)
            measure = compare(name, expected, got, tolerance, before.cases[number].name)
            measures.setdefault(name, []).append(measure)
            arrays.setdefault(name, []).append(expected.data)
    outputs = {
        name: replace(
            measure,
            says_little=bool(measure.elements)
            and says_little(arrays[name], measures[name][0].atol),
        )
        for name, measure in settled(measures).items()
    }
    failed = [m for m in outputs.values() if not m.passed]
    if not outputs:
        return replace(report, reason="there is no output to compare")
    if failed:
        reason = f"{len(failed)} of {len(outputs)} outputs differ: {failed[0].name!r}: "
        return replace(report, reason=reason + failed[0].problems[0], outputs=outputs)
    return replace(report, status="passed", outputs=outputs)
