"""A program and the same program moved, both run by torch on the same inputs.

On the CPU: the source as it is, where torch takes it there (a program of tensors alone, loaded with
``map_location``), else moved to the CPU by `move_program`; and the output, moved back to the CPU
where it was written for another device. On that device, where it is here: the output as it is, and
the source, if torch takes it there.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from converter.devices.names import TorchDevice, parse_torch_device
from converter.devices.torch.programs import move_program
from converter.lower import lower
from converter.options import Options
from converter.verification.compare import Tolerance, coarsest, compare, settled
from converter.verification.device.compare import Question, beside, place, verify_on_device
from converter.verification.device.placement import CPU, On
from converter.verification.device.runs import framework_party
from converter.verification.graphs import Options as Verification
from converter.verification.graphs import cannot_run, unable
from converter.verification.inputs import draw as inputs
from converter.verification.inputs import graph_hints
from converter.verification.inputs.draw import Case, Hint
from converter.verification.options import verification_of
from converter.verification.report import CaseReport, GraphReport, Measure
from converter.verification.runners import NoRun, Prepared, SourceRun, output, prepare
from converter.verification.sources.torch import Torch, form_of, named_devices, run_torch
from formats.artifact import Artifact
from formats.core.bundle import Bundle, TensorSpec
from formats.core.weights import DTYPES
from formats.errors import CorruptError, UnsupportedError, UsageError
from formats.torch import script as torch_script


def verify_program(
    source: Path, bundle: Bundle, written: Path, options: Options
) -> Mapping[str, GraphReport]:
    """Compare a TorchScript or exported program with the same program on another device.

    Args:
        source: The source's archive.
        bundle: As read from the source.
        written: The output.
        options: Of the conversion.

    Raises:
        EnvironmentFault: A child died, hung, or took too much memory.
        UsageError: The user's inputs are not this program's.
    """
    device = parse_torch_device(options.device)
    if bundle.metadata.format == "torchscript":
        known = _recorded_inputs(bundle, Artifact(source, options.limits))
        return run_both(source, written, bundle, device, known, options)
    if len(bundle.signatures) != 1:
        return {"": GraphReport("not run", "several programs in one archive are not run yet")}
    known = bundle.signatures[0].inputs
    return run_both(source, written, bundle, device, known, options)


def _recorded_inputs(bundle: Bundle, artifact: Artifact) -> tuple[TensorSpec, ...]:
    """Return what is recorded of the inputs: of a trace, names, types and sizes of its example."""
    declared = next((s.inputs for s in bundle.signatures if s.name == "forward"), ())
    traced = torch_script.traced_inputs(artifact)
    if len(traced) != len(declared):
        return declared
    pairs = zip(declared, traced, strict=True)
    return tuple(TensorSpec(spec.name, dtype, shape) for spec, (dtype, shape) in pairs)


def run_both(
    source: Path,
    written: Path,
    bundle: Bundle,
    device: TorchDevice,
    specs: Sequence[TensorSpec],
    options: Options,
) -> Mapping[str, GraphReport]:
    """Compare what a program and the program moved to a device compute.

    Args:
        source: The source's archive.
        written: The output.
        bundle: As read from the source.
        device: That the output is for.
        specs: Of the program's inputs, as far as they are known without the user.
        options: Of the conversion.

    Raises:
        EnvironmentFault: A child died, hung, or took too much memory.
        UsageError: The user's inputs are not this program's.
    """
    begin = perf_counter()
    how = verification_of(options)
    report = cannot_run(bundle, how, needs_onnx=False)
    specs = options.inputs or specs
    unknown = [s.name for s in specs if s.shape is None or s.dtype not in DTYPES]
    if report is None and (not specs or unknown):
        report = GraphReport(
            "not run",
            f"the program does not record its inputs ({', '.join(unknown) or 'none'}): "
            "--input NAME:DTYPE:SIZES says them",
        )
    if report is None:
        with tempfile.TemporaryDirectory(prefix="convert-moved-") as name:
            report = _Both(source, written, bundle, device, specs, how, Path(name)).report()
    return {"": replace(report, seconds=perf_counter() - begin)}


class _Both:
    """Two programs, and the inputs of both."""

    def __init__(
        self,
        source: Path,
        written: Path,
        bundle: Bundle,
        device: TorchDevice,
        specs: Sequence[TensorSpec],
        how: Verification,
        folder: Path,
    ) -> None:
        self.source, self.written, self.device = source, written, device
        self.bundle, self.how, self.folder = bundle, how, folder
        self.specs = tuple(specs)
        self.form = form_of(bundle, None)

    def report(self) -> GraphReport:
        """Run both, and compare."""
        plan = self._plan()
        prepared = prepare(self.folder, self.specs, plan)
        there, notes = self._source(prepared)
        if isinstance(there, NoRun):
            return unable(there, "torch")
        ours = beside(prepared, there.chosen, "moved")
        path = self.written
        if self.device.kind != "cpu":
            path = self._on_cpu(self.written, "output")
            notes.append("on the CPU, the output was run moved back there")
        here = self._run(path, ours)
        if isinstance(here, NoRun):
            return GraphReport("failed", f"torch does not run the output: {here.reason}")
        report = self._compared(prepared, ours, there, here)
        report = replace(report, notes=(*there.notes, *notes))
        on = self._place()
        if report.status != "passed" or on is None:
            return report
        alike = Question(
            outputs=[*report.outputs],
            cases={n: prepared.cases[n].name for n in there.chosen},
            tolerance=self._tolerance(),
            allow_cpu_nodes=self.how.allow_cpu_nodes,
            skipped=there.unstable,
        )
        parties = (
            framework_party(prepared, there, lambda p, w: self._run(self.source, p, w)),
            framework_party(ours, here, lambda p, w: self._run(self.written, p, w)),
        )
        return report.with_device(verify_on_device(*parties, alike, on))

    def _source(self, prepared: Prepared) -> tuple[SourceRun | NoRun, list[str]]:
        """Run the source on the CPU, as it is or moved there."""
        named = sorted(named_devices(self.bundle) - {"cpu"})
        why = f"it names {', '.join(named)}"
        if not named:
            found = self._run(self.source, prepared)
            if not isinstance(found, NoRun) or found.is_missing:
                return found, []
            why = found.reason
        moved = self._run(self._on_cpu(self.source, "source"), prepared)
        if isinstance(moved, NoRun):
            return moved, []
        return moved, [f"the source was run moved to the CPU, for as it is: {why}"]

    def _run(self, path: Path, prepared: Prepared, on: On = CPU) -> SourceRun | NoRun:
        asked = Torch(path, self.form, tuple(s.dtype for s in self.specs), self.how.trust)
        return run_torch(asked, prepared, self.how.allowance, on=on)

    def _on_cpu(self, path: Path, name: str) -> Path:
        made = self.folder / f"{name}-on-cpu{path.suffix}"
        move_program(Artifact(path, self.how.limits), self.form, "cpu", made)
        return made

    def _plan(self) -> list[list[Case]]:
        if self.how.inputs is not None:
            return inputs.from_file(self.how.inputs, self.specs)
        try:
            known = graph_hints.hints(lower(self.bundle, inputs=self.specs))
        except (CorruptError, UnsupportedError):
            known = {}  # torch decides which inputs it takes
        found = [known.get(spec.name, Hint()) for spec in self.specs]
        how = self.how
        return inputs.plan(
            self.specs, found, seed=how.seed, samples=max(how.samples, 1), is_varied=True
        )

    def _place(self) -> On | None:
        try:
            return place(str(self.device), allow_tf32=self.how.allow_tf32)
        except UsageError:  # a device that only torch has a word for
            return None

    def _tolerance(self) -> Tolerance:
        precision = coarsest({t.dtype.name for t in self.bundle.weights.values()})
        return Tolerance(self.how.atol, self.how.rtol, precision)

    def _compared(
        self, prepared: Prepared, ours: Prepared, there: SourceRun, here: SourceRun
    ) -> GraphReport:
        cases = tuple(
            CaseReport(
                prepared.cases[number].name,
                {
                    spec.name: (spec.dtype, array.shape)
                    for spec, array in zip(self.specs, prepared.cases[number].arrays, strict=True)
                },
            )
            for number in there.chosen
        )
        seed = None if self.how.inputs else self.how.seed
        report = GraphReport(
            "failed", "", None, there.runtime, here.runtime, seed, cases, there.refused
        )
        if here.refused or here.chosen != there.chosen:
            return replace(report, reason=f"the output fails on {'; '.join(here.refused)}")
        measures: dict[str, list[Measure]] = {}
        unstable = there.unstable | here.unstable
        for case in there.chosen:
            if len(here.dtypes[case]) != len(there.dtypes[case]):
                return replace(report, reason="the output has another number of outputs")
            for i, (theirs, mine) in enumerate(
                zip(there.dtypes[case], here.dtypes[case], strict=True)
            ):
                if i in unstable:
                    continue
                expected = output(prepared, "out", case, i, theirs)
                found = output(ours, "out", case, i, mine)
                name = self._name(i)
                measure = compare(
                    name, expected, found, self._tolerance(), prepared.cases[case].name
                )
                measures.setdefault(name, []).append(measure)
        outputs = settled(measures)
        wrong = [m for m in outputs.values() if not m.passed]
        if wrong:
            reason = f"{len(wrong)} of {len(outputs)} outputs differ: {wrong[0].problems[0]}"
            return replace(report, reason=reason, outputs=outputs)
        if unstable:
            why = f"{len(unstable)} outputs differ from run to run ({', '.join(there.random)})"
            return replace(report, status="not run", reason=why, outputs=outputs)
        if not outputs:
            return replace(report, reason="there is no output to compare")
        return replace(report, status="passed", outputs=outputs)

    def _name(self, i: int) -> str:
        declared = self.bundle.signatures[0].outputs if self.bundle.signatures else ()
        return declared[i].name if i < len(declared) else f"output-{i}"
