"""Compare a source with its output, each run by its own runtime.

Both get the same inputs, in two batch sizes and two sizes of every other dynamic axis. What cannot
be compared is reported as not run, with the reason; this is neither success nor failure. If outputs
differ, or hardly depend on the inputs, layers are compared as well; if a device is requested and
both agree on the CPU, both are run there too.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Protocol

import numpy as np

from converter.child.process import Allowance
from converter.extras import describe_install
from converter.options import Options
from converter.verification.compare import (
    Tolerance,
    are_empty,
    compare,
    merge_measures,
    says_little,
)
from converter.verification.coverage import extend_plan
from converter.verification.device import (
    TF32_UNITS,
    ComparedCases,
    make_compared_model,
    request_device,
    select_cases,
    verify_on_device,
)
from converter.verification.first_difference import LayerComparison
from converter.verification.inputs import draw as inputs
from converter.verification.inputs.draw import Case, Hint
from converter.verification.noise import Noise, measure_noise
from converter.verification.onnx_values import OnnxInterface
from converter.verification.placement import CPU, DeviceRequest
from converter.verification.report import CaseReport, GraphReport, Measure
from converter.verification.runners import (
    PreparedInputs,
    RunSkipped,
    SourceRun,
    has_onnxruntime,
    load_output,
    write_inputs,
)
from converter.verification.sources.keras import FRAMEWORKS
from converter.verification.sources.torch import topology_kind
from formats.core.bundle import Bundle, SafetyFinding, TensorSpec
from formats.errors import CorruptError, DependencyError, UsageError

ANY_NUMBER = 1 << 31
REFERENCE = "pickle-reference"  # a finding that runs nothing
DAMAGE = ("DataLossError", "BadZipFile", "Bad CRC-32")  # in words of frameworks


class Model(Protocol):
    """A model that a runtime runs."""

    def run(
        self, prepared: PreparedInputs, layers: Sequence[str] = (), on: DeviceRequest = CPU
    ) -> SourceRun | RunSkipped:
        """Run it on cases; return the outputs, and those of layers."""
        ...


@dataclass(frozen=True, slots=True)
class Pair:
    """A source and its output, and how they are compared.

    Attributes:
        reference: The source.
        candidate: The output written from it.
        framework: Framework of the source, for messages.
        runtime: Runtime of the candidate, for messages.
        specs: Specs of the inputs of both.
        outputs: Names of the outputs, in order.
        plan: Alternatives of each case, one of which the source must accept.
        tolerance: Tolerance of the comparison.
        allowance: Limits of each child process.
        notes: Remarks on both runs for the report.
        mismatch: Returns why the inputs differ from the source's, given its run, or "".
        locate: Compares layers in the case of an index, given the prepared inputs, and whether
            outputs differ, which a layer must explain; None if
            layers cannot be compared.
        has_more_outputs: Whether the source may return more outputs than it declares.
        noise_graph: Returns an ONNX file of what both compute, to measure its noise with, and its
            interface; given a folder for it. None if there is none.
        noise_scale: Size of the rounding errors, in units in the last place of the dtypes.
        tensors: For each input, the name of the source's tensor that it feeds: two keys of a
            signature may name one.
        hints: Hints on the values of the inputs, in order; without them, none are drawn in
            addition to the plan.
    """

    reference: Model
    candidate: Model
    framework: str
    runtime: str
    specs: Sequence[TensorSpec]
    outputs: Sequence[str]
    plan: Sequence[Sequence[Case]]
    tolerance: Tolerance
    allowance: Allowance = field(default_factory=Allowance)
    notes: Callable[[SourceRun, SourceRun], Sequence[str]] = lambda there, _: there.notes
    mismatch: Callable[[SourceRun], str] = lambda _: ""
    locate: Callable[[PreparedInputs, PreparedInputs, int, bool], LayerComparison] | None = None
    has_more_outputs: bool = False
    noise_graph: Callable[[Path], tuple[Path, OnnxInterface] | None] = lambda _: None
    noise_scale: float = 1.0
    tensors: Sequence[str] = ()
    hints: Sequence[Hint] = ()

    def with_outputs_of(self, run: SourceRun) -> "Pair":
        """Return the pair with a name for each output that the source returned."""
        if not self.has_more_outputs:
            return self
        count = len(run.dtypes[run.chosen[0]])
        more = (f"output-{i}" for i in range(len(self.outputs), count))
        return replace(self, outputs=[*self.outputs[:count], *more])


# -- options ---------------------------------------------------------------------------------------


def allowance(options: Options) -> Allowance:
    """Return the limits of each child process."""
    return Allowance(options.comparison.timeout)


def find_requested_device(options: Options) -> DeviceRequest | None:
    """Return the device to run both models on in addition to the CPU, or None.

    Models are compared on a device if that is requested, or if the device is available.

    Raises:
        UsageError: It is not the name of a device.
    """
    asked = "device" in (options.verify, options.require) or options.verify == "auto"
    device = options.device if asked else None
    try:
        return request_device(device, allow_tf32=options.comparison.allow_tf32)
    except UsageError:
        if "device" in (options.verify, options.require):
            raise
        return None  # only the target has a name for it


def count_allowed_cpu_nodes(options: Options) -> int:
    """Return how many nodes may run on the CPU where another device is requested.

    By default, nodes that a runtime leaves on the CPU by design (strings, shapes) are counted, but
    are not a failure.
    """
    allowed = options.comparison.allow_cpu_nodes
    is_asked = "device" in (options.verify, options.require)
    return allowed if is_asked or allowed else ANY_NUMBER


def tolerance(options: Options, precision: str, outputs: Sequence[str]) -> Tolerance:
    """Return the tolerance for models of a precision.

    Raises:
        UsageError: A bound names an output that does not exist.
    """
    how, known = options.comparison, {"", *outputs}
    for option, given in (("atol=", how.atol), ("rtol=", how.rtol)):
        for name in given:
            if name not in known:
                raise UsageError(
                    f"{option} names the output {name!r}", expected=", ".join(sorted(known - {""}))
                )
    return Tolerance(how.atol, how.rtol, precision)


def plan_inputs(
    specs: Sequence[TensorSpec],
    hints: Mapping[str, Hint],
    options: Options,
    *,
    is_varied: bool = False,
    with_example: bool = False,
) -> list[list[Case]]:
    """Return the user's inputs, or random ones.

    Args:
        specs: Specs of the inputs.
        hints: Hints on their values, by name.
        options: ``inputs``, ``seed``, ``samples`` and ``example`` of the comparison.
        is_varied: Whether to draw alternatives, one of which the source accepts.
        with_example: Whether to try a registry's example, too.

    Raises:
        UsageError: The user's inputs do not fit this model.
    """
    how = options.comparison
    if how.inputs is not None:
        return inputs.cases_from_file(how.inputs, specs)
    found = [hints.get(spec.name, Hint()) for spec in specs]
    plan = inputs.plan_cases(
        specs, found, seed=how.seed, samples=max(how.samples, 1), is_varied=is_varied
    )
    return [*(inputs.cases_from_example(how.example, specs) if with_example else ()), *plan]


# -- obstacles -------------------------------------------------------------------------------------


def find_obstacle(bundle: Bundle, options: Options, *, needs_onnx: bool) -> GraphReport | None:
    """Return the report of a source that cannot or must not be run here, or None."""
    kind = topology_kind(bundle, options.arch)
    if not kind:
        return GraphReport("not run", "the source holds no graph")
    if kind not in FRAMEWORKS:
        return GraphReport("not run", f"graphs of kind {kind} are not run yet")
    # What Keras looks up by name, it finds in trusted modules or nowhere.
    findings = [
        f
        for f in bundle.metadata.findings
        if f.kind != REFERENCE and (f.kind != "custom-object" or not options.trust)
    ]
    if findings:
        found = describe_findings(findings)
        return GraphReport("not run", f"the source would run code of its own ({found})")
    if needs_onnx and not has_onnxruntime():
        return report_missing_onnxruntime()
    framework = FRAMEWORKS[kind]
    if not framework.may_be_here():
        return report_skipped(RunSkipped("", is_missing=True), framework.name)
    return None


def describe_findings(findings: Sequence[SafetyFinding]) -> str:
    """Return the first finding, and the number of further ones."""
    rest = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
    return f"{findings[0].kind}: {findings[0].subject}{rest}"


def report_missing_onnxruntime() -> GraphReport:
    """Return the report for a missing onnxruntime."""
    return GraphReport("not run", "onnxruntime is not installed", lacking=describe_install("cpu"))


def report_skipped(run: RunSkipped, framework: str) -> GraphReport:
    """Return the report of a model that no installed framework runs.

    Raises:
        CorruptError: The framework finds the source damaged.
    """
    if any(word in run.reason for word in DAMAGE):
        raise CorruptError(f"{framework} finds the source damaged: {run.reason}")
    if run.is_missing:
        return GraphReport(
            "not run",
            f"no {framework} is installed that could run the source"
            + (f" ({run.reason})" if run.reason else ""),
            lacking=describe_install("torch" if framework == "torch" else "tensorflow"),
        )
    if run.failure:
        reason = f"the source itself fails on every input that was drawn: {run.failure}"
        return GraphReport("not run", reason, is_failing=True)
    return GraphReport(
        "not run", f"no {framework} here runs the source: verified on weights only ({run.reason})"
    )


# -- the comparison --------------------------------------------------------------------------------


def compare_models(pair: Pair, options: Options) -> GraphReport:
    """Run a source and its output on the same inputs, and compare their results.

    Returns:
        A report; ``failed`` if outputs differ or nothing could be compared.

    Raises:
        DependencyError: A child died, hung, or took too much memory.
    """
    begin = perf_counter()
    on = find_requested_device(options)
    with tempfile.TemporaryDirectory(prefix="convert-verify-") as name:
        report = _compare_in(Path(name), pair, on, options)
    seed = None if options.comparison.inputs else options.comparison.seed
    if report.cases:
        report = replace(report, seed=seed)
    return replace(report, seconds=perf_counter() - begin)


def _compare_in(
    folder: Path, pair: Pair, on: DeviceRequest | None, options: Options
) -> GraphReport:
    graph = pair.noise_graph(folder)
    plan, coverage = pair.plan, None
    if graph is not None:
        plan, coverage = extend_plan(
            *graph, pair.specs, pair.hints, pair.plan, folder, pair.allowance,
            may_draw=bool(pair.hints) and options.comparison.inputs is None,
        )  # fmt: skip
    if pair.tensors:
        plan = inputs.share_arrays(plan, pair.tensors)
    theirs = write_inputs(folder, pair.specs, plan)
    there = pair.reference.run(theirs)
    if isinstance(there, RunSkipped):
        if there.failure and options.comparison.inputs is not None:
            raise UsageError(
                f"the source itself fails on every input given: {there.failure}",
                expected="inputs that the model accepts",
            )
        return report_skipped(there, pair.framework)
    pair = pair.with_outputs_of(there)
    # The candidate must accept the same alternatives as the source.
    ours = select_cases(theirs, there.chosen, "candidate")
    here = pair.candidate.run(ours)
    if isinstance(here, RunSkipped):
        if here.is_missing:
            return report_skipped(here, pair.runtime)
        reason = f"{pair.runtime} does not run the output: {here.reason}"
        return GraphReport("failed", reason, source=there.runtime)
    report = replace(_compare_outputs(pair, graph, theirs, ours, there, here), coverage=coverage)
    notes = dict.fromkeys([*report.notes, *pair.notes(there, here)])
    report = replace(report, notes=tuple(notes))
    if wrong := pair.mismatch(there):
        return replace(report, status="failed", reason=wrong)
    if report.status == "passed" and on is not None:
        cases = {number: theirs.cases[number].name for number in there.chosen}
        scale = max(pair.noise_scale, TF32_UNITS if on.allow_tf32 else 1.0)
        noise = _measure_noise(pair, graph, ours, there.chosen, scale)
        question = ComparedCases(
            pair.outputs,
            cases,
            pair.tolerance,
            count_allowed_cpu_nodes(options),
            there.unstable,
            noise,
        )
        parties = (
            make_compared_model(theirs, there, lambda p, on: pair.reference.run(p, on=on)),
            make_compared_model(ours, here, lambda p, on: pair.candidate.run(p, on=on)),
        )
        report = report.with_device(verify_on_device(*parties, question, on))
    case = _case_to_look_into(report, there.chosen)
    every = options.comparison.layers
    found = LayerComparison()
    if pair.locate is not None and (every or case is not None):
        number = there.chosen[0] if case is None else case
        found = pair.locate(theirs, ours, number, report.status == "failed")
        if case is not None:
            report = _with_layers(report, found)
    return report.with_layer_errors(found.errors) if every else report


def _compare_outputs(
    pair: Pair,
    graph: tuple[Path, OnnxInterface] | None,
    theirs: PreparedInputs,
    ours: PreparedInputs,
    there: SourceRun,
    here: SourceRun,
) -> GraphReport:
    report = GraphReport(
        "failed", "", None, there.runtime, here.runtime,
        cases=_describe_cases(pair, theirs, there), skipped=there.refused,
    )  # fmt: skip
    if here.refused:
        return replace(report, reason=f"{pair.runtime} fails on {here.refused[0]}")
    for number in there.chosen:
        counts = len(here.dtypes[number]), len(there.dtypes[number])
        if set(counts) != {len(pair.outputs)}:
            text = f"the converted model has {counts[0]} outputs, the source {counts[1]}"
            return replace(report, reason=text)
    unstable = there.unstable | here.unstable
    outputs = _measure_outputs(pair, theirs, ours, there, here, None)
    is_explicit = all(pair.tolerance.is_explicit(name) for name in outputs)
    if not is_explicit and any(m.verdict != "equal" for m in outputs.values()):
        noise = _measure_noise(pair, graph, ours, there.chosen, pair.noise_scale)
        if noise is None:
            note = "the noise of rounding was not measured: a fixed tolerance decides"
            report = replace(report, notes=(*report.notes, note))
        outputs = _measure_outputs(pair, theirs, ours, there, here, noise)
    failed = [m for m in outputs.values() if not m.passed]
    if failed:
        reason = f"{len(failed)} of {len(outputs)} outputs differ: {failed[0].name!r}:"
        if len(outputs) == 1:
            reason = f"the output {failed[0].name!r}"
        return replace(report, reason=f"{reason} {failed[0].problems[0]}", outputs=outputs)
    if unstable:
        reason = _describe_unstable(pair, unstable, there)
        return replace(report, status="not run", reason=reason, outputs=outputs)
    if not outputs:
        return replace(report, reason="there is no output to compare")
    if unclear := [m.name for m in outputs.values() if m.verdict == "ill-conditioned"]:
        names = ", ".join(map(repr, unclear))
        reason = f"{names} cannot be decided: rounding alone changes it as much as its values vary"
        return replace(report, status="not run", reason=reason, outputs=outputs)
    return replace(report, status="passed", outputs=outputs)


def _measure_noise(
    pair: Pair,
    graph: tuple[Path, OnnxInterface] | None,
    ours: PreparedInputs,
    cases: Sequence[int],
    scale: float,
) -> Noise | None:
    """Return the noise of what both models compute, or None if it cannot be measured."""
    if graph is None or len(graph[1].inputs) != len(pair.specs):
        return None
    path, file = graph
    try:
        prepared = replace(ours, names=tuple(spec.name for spec in file.inputs))
        outputs = {spec.name: spec.dtype for spec in file.outputs}
        return measure_noise(path, file, prepared, cases, outputs, pair.allowance, scale=scale)
    except DependencyError:
        return None  # it needs more memory than the comparison, which has been made


def _measure_outputs(
    pair: Pair,
    theirs: PreparedInputs,
    ours: PreparedInputs,
    there: SourceRun,
    here: SourceRun,
    noise: Noise | None,
) -> dict[str, Measure]:
    """Return the difference of each output that does not differ from run to run."""
    measures: dict[str, list[Measure]] = {}
    arrays: dict[str, list[np.ndarray]] = {}
    for number in there.chosen:
        for i, name in enumerate(pair.outputs):
            if i in there.unstable | here.unstable:
                continue
            expected = load_output(theirs, "out", number, i, there.dtypes[number][i])
            found = load_output(ours, "out", number, i, here.dtypes[number][i])
            evidence = None if noise is None else noise.evidence(number, i)
            case = theirs.cases[number].name
            measure = compare(name, expected, found, pair.tolerance, case, evidence)
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


def _describe_cases(pair: Pair, prepared: PreparedInputs, run: SourceRun) -> tuple[CaseReport, ...]:
    return tuple(
        CaseReport(
            prepared.cases[number].name,
            {
                spec.name: (spec.dtype, array.shape)
                for spec, array in zip(pair.specs, prepared.cases[number].arrays, strict=True)
            },
        )
        for number in run.chosen
    )


def _describe_unstable(pair: Pair, unstable: frozenset[int], there: SourceRun) -> str:
    """Return why outputs are not comparable."""
    names = ", ".join(repr(pair.outputs[i]) for i in sorted(unstable))
    rest = "; all others agree" if len(unstable) < len(pair.outputs) else ""
    why = f" ({', '.join(there.random)})" if there.random else ""
    return f"{names} of the source itself differs from run to run{why}: not comparable{rest}"


def _case_to_look_into(report: GraphReport, chosen: Sequence[int]) -> int | None:
    """Return the index of a case in which layers must be compared, or None."""
    wanted = [m for m in report.outputs.values() if not m.passed or m.says_little]
    if not wanted:
        return None
    names = {m.worst_case for m in wanted if not m.passed}
    numbers = {case.name: n for case, n in zip(report.cases, chosen, strict=True)}
    return min((n for name, n in numbers.items() if name in names), default=chosen[-1])


def _with_layers(report: GraphReport, found: LayerComparison) -> GraphReport:
    """Return a report with the result of the comparison of layers."""
    report = replace(report, layers=found.equal, first_difference=found.difference)
    if found.difference is None and found.measured and are_empty(report.outputs):
        names = ", ".join(map(repr, report.outputs))
        note = f"{names} has no elements at any size that was tried: {found.measured} layers were"
        outputs = {n: replace(m, problems=()) for n, m in report.outputs.items()}
        notes = (*report.notes, f"{note} compared in its place")
        return replace(report, status="passed", reason="", outputs=outputs, notes=notes)
    if report.status == "failed":
        where = "no layer alone differs by more than noise, or none can be looked at"
        if found.difference is not None:
            where = f"the first layer that differs is {found.difference}"
        return replace(report, reason=f"{report.reason}; {where}")
    names = ", ".join(repr(m.name) for m in report.outputs.values() if m.says_little)
    if found.difference is not None:
        reason = f"the layer {found.difference} differs, which {names} does not show"
        return replace(report, status="failed", reason=reason)
    note = f"{names} hardly depends on the inputs: {found.equal} layers were compared as well"
    return replace(report, notes=(*report.notes, note))
