"""A converted graph against its source, each computed by its own runtime.

What can be compared is compared, in two batch sizes and two of every other free size. What cannot
be is reported as not run, with the reason; it is never taken for success, nor for failure.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from converter.child.process import Allowance
from converter.child.trust import Trusted
from converter.options import Arch
from converter.verification import first_difference
from converter.verification.compare import (
    ROUNDED,
    Tolerance,
    are_empty,
    coarsest,
    compare,
    says_little,
    settled,
)
from converter.verification.device.compare import Question, place, verify_on_device
from converter.verification.device.runs import framework_party, onnx_party
from converter.verification.inputs import draw as inputs
from converter.verification.onnx_values import Declared, declared
from converter.verification.report import CaseReport, GraphReport, Measure
from converter.verification.runners import (
    FRAMEWORK_EXTRA,
    ONNX_EXTRA,
    TORCH_EXTRA,
    NoRun,
    OnnxRun,
    Prepared,
    SourceRun,
    has_onnxruntime,
    output,
    prepare,
    run_onnx,
)
from converter.verification.sources.keras import FRAMEWORKS, Source, Told
from converter.verification.sources.torch import form_of
from formats.core.bundle import Bundle, Finding, TensorSpec
from formats.errors import UsageError
from formats.limits import DEFAULT, Limits


@dataclass(frozen=True, slots=True)
class Options:
    """What a verification may be told.

    Attributes:
        atol: By output; the empty name stands for all others. See `comparison`.
        rtol: Likewise.
        inputs: A user's .npz, in place of random inputs.
        seed: Of random inputs.
        samples: Draws for each combination of sizes.
        allowance: For each child.
        trust: Modules of the user's that the source's own classes may be taken from.
        signature: Which of the source's the file was converted from, where it has several; by
            default whichever has inputs and outputs of the file's names.
        arch: Who makes the module that a state dict is of.
        specs: Inputs of a program that does not record them.
        device: Where both sides shall run as well; None for the CPU alone.
        allow_tf32: Whether a GPU may round products to TF32, on either side.
        allow_cpu_nodes: How many nodes may run on the CPU where another device was asked for.
        example: A registry's .npz, tried beside random inputs where it is of the model's inputs.
    """

    atol: Mapping[str, float] = field(default_factory=dict)
    rtol: Mapping[str, float] = field(default_factory=dict)
    inputs: Path | None = None
    seed: int = 0
    samples: int = 1
    allowance: Allowance = field(default_factory=Allowance)
    trust: Sequence[Trusted] = ()
    limits: Limits = DEFAULT
    signature: str | None = None
    arch: Arch | None = None
    specs: Sequence[TensorSpec] = ()
    device: str | None = None
    allow_tf32: bool = False
    allow_cpu_nodes: int = 0
    example: Path | None = None


def verify_graph(
    source: Path,
    bundle: Bundle,
    model_onnx: Path,
    *,
    options: Options | None = None,
) -> GraphReport:
    """Compare a converted graph with its source.

    Args:
        source: The artifact.
        bundle: As read from it.
        model_onnx: The ONNX file; its external data stands beside it.
        options: Tolerances and inputs.

    Returns:
        A report; ``failed`` where outputs differ or nothing could be compared.

    Raises:
        EnvironmentFault: A child died, hung, or took too much memory.
        SourceError: The ONNX file is damaged.
        UsageError: The user's inputs or tolerances are not for this model.
    """
    begin = perf_counter()
    options = options or Options()
    report = cannot_run(bundle, options, needs_onnx=True) or _verified(
        source, bundle, model_onnx, options
    )
    return replace(report, seconds=perf_counter() - begin)


def cannot_run(bundle: Bundle, options: Options, *, needs_onnx: bool) -> GraphReport | None:
    """Return the report of a source that nothing here can or may run."""
    kind = form_of(bundle, options.arch)
    if not kind:
        return GraphReport("not run", "the source records no computation")
    if kind not in FRAMEWORKS:
        return GraphReport("not run", f"graphs of kind {kind} are not run yet")
    # What Keras looks up by name, it finds in trusted modules or nowhere.
    findings = [
        f for f in bundle.metadata.findings if f.kind != "custom-object" or not options.trust
    ]
    if findings:
        return GraphReport("not run", f"the source would run code of its own ({_named(findings)})")
    if needs_onnx and not has_onnxruntime():
        return GraphReport("not run", "onnxruntime is not installed", lacking=ONNX_EXTRA)
    framework = FRAMEWORKS[kind]
    if not framework.may_be_here():
        return unable(NoRun("", is_missing=True), framework.name)
    return None


def _named(findings: Sequence[Finding]) -> str:
    rest = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
    return f"{findings[0].kind}: {findings[0].subject}{rest}"


def _verified(source: Path, bundle: Bundle, model_onnx: Path, options: Options) -> GraphReport:
    file = declared(model_onnx, options.limits)
    if file.findings:
        return GraphReport("not run", f"the graph would run code ({_named(file.findings)})")
    check_names(options, [spec.name for spec in file.outputs])
    framework = FRAMEWORKS[form_of(bundle, options.arch)]
    told = Told(options.trust, options.signature, options.arch, options.specs)
    found = framework.candidates(source, bundle, file, options.allowance, told)
    if isinstance(found, GraphReport):
        return found
    reports = []
    for candidate in found:
        reports.append(_compared_with(candidate, framework.name, model_onnx, file, options))
        if reports[-1].status == "passed":
            return reports[-1]
    return reports[0]


def _compared_with(
    source: Source, framework: str, model_onnx: Path, file: Declared, options: Options
) -> GraphReport:
    plan = _plan(source, file, options)
    on = place(options.device, allow_tf32=options.allow_tf32)
    graph = source.graph
    precision = coarsest({s.dtype for s in graph.specs.values()}) if graph else "float32"
    if graph is not None and graph.rounded:
        precision = coarsest({precision, ROUNDED})
    tolerance = Tolerance(options.atol, options.rtol, precision)
    with tempfile.TemporaryDirectory(prefix="convert-verify-") as name:
        prepared = prepare(Path(name), file.inputs, plan)
        there = source.run(prepared)
        if isinstance(there, NoRun):
            return unable(there, framework)
        outputs = {spec.name: spec.dtype for spec in file.outputs}
        here = run_onnx(model_onnx, prepared, there.chosen, outputs, options.allowance)
        report = _compared(prepared, file, there, here, tolerance)
        report = replace(
            report,
            seed=None if options.inputs else options.seed,
            notes=(*source.notes(there), *_notes(file, there)),
        )
        if not source.has_layers and (wrong := _other_dtypes(file, there)):
            return replace(report, status="failed", reason=wrong)
        if report.status == "passed" and on is not None:
            names = {number: prepared.cases[number].name for number in there.chosen}
            alike = Question([*outputs], names, tolerance, options.allow_cpu_nodes, there.unstable)
            asked = framework_party(prepared, there, lambda p, on: source.run(p, on=on))
            answer = onnx_party(model_onnx, prepared, there.chosen, outputs, options.allowance)
            report = report.with_device(verify_on_device(asked, answer, alike, on))
        case = case_to_look_into(report, there.chosen)
        if case is None or graph is None:
            return report
        found = first_difference.first_difference(
            source, graph, model_onnx, file, prepared, case, tolerance, options.allowance
        )
    return looked_into(report, found)


def check_names(options: Options, outputs: Sequence[str]) -> None:
    """Refuse bounds of outputs that are not there.

    Raises:
        UsageError: There is one.
    """
    known = {"", *outputs}
    for option, given in (("--atol", options.atol), ("--rtol", options.rtol)):
        for name in given:
            if name not in known:
                raise UsageError(
                    f"{option} names the output {name!r}", expected=", ".join(sorted(known - {""}))
                )


def _plan(source: Source, file: Declared, options: Options) -> list[list[inputs.Case]]:
    if options.inputs is not None:
        return inputs.from_file(options.inputs, file.inputs)
    known = source.hints()
    found = [known.get(spec.name, inputs.Hint()) for spec in file.inputs]
    plan = inputs.plan(
        file.inputs,
        found,
        seed=options.seed,
        samples=max(options.samples, 1),
        is_varied=not source.has_layers,
    )
    return [*inputs.from_example(options.example, file.inputs), *plan]


def unable(run: NoRun, framework: str) -> GraphReport:
    """Return the report of a source that no framework here runs."""
    if run.is_missing:
        return GraphReport(
            "not run",
            f"no {framework} is installed that could run the source"
            + (f" ({run.reason})" if run.reason else ""),
            lacking=TORCH_EXTRA if framework == "torch" else FRAMEWORK_EXTRA,
        )
    return GraphReport(
        "not run", f"no {framework} here runs the source: verified on weights only ({run.reason})"
    )


def _compared(
    prepared: Prepared, file: Declared, there: SourceRun, here: OnnxRun, tolerance: Tolerance
) -> GraphReport:
    cases = tuple(
        CaseReport(
            prepared.cases[number].name,
            {
                spec.name: (spec.dtype, array.shape)
                for spec, array in zip(file.inputs, prepared.cases[number].arrays, strict=True)
            },
        )
        for number in there.chosen
    )
    report = GraphReport(
        "failed", "", None, there.runtime, here.runtime, cases=cases, skipped=there.refused
    )
    if here.refused:
        return replace(report, reason=f"onnxruntime refuses the graph: {here.refused}")
    for case, text in here.errors.items():
        where = prepared.cases[case].name
        return replace(report, reason=f"onnxruntime fails on {where}: {text}")
    if len(there.inputs) != len(file.inputs):
        return replace(
            report,
            reason=f"the graph has {len(file.inputs)} inputs, the source {len(there.inputs)}",
        )
    measures: dict[str, list[Measure]] = {}
    arrays: dict[str, list[np.ndarray]] = {}
    for case in there.chosen:
        dtypes = there.dtypes[case]
        if len(dtypes) != len(file.outputs):
            return replace(
                report,
                reason=f"the graph has {len(file.outputs)} outputs, the source {len(dtypes)}",
            )
        for i, (spec, dtype) in enumerate(zip(file.outputs, dtypes, strict=True)):
            if i in there.unstable:
                continue
            expected = output(prepared, "out", case, i, dtype)
            found = output(prepared, "onnx", case, i, spec.dtype)
            measure = compare(spec.name, expected, found, tolerance, prepared.cases[case].name)
            measures.setdefault(spec.name, []).append(measure)
            arrays.setdefault(spec.name, []).append(expected.data)
    outputs = {
        name: replace(
            measure,
            says_little=bool(measure.elements)
            and says_little(arrays[name], measures[name][0].atol),
        )
        for name, measure in settled(measures).items()
    }
    failed = [m for m in outputs.values() if not m.passed]
    if not failed and there.unstable:
        return replace(report, status="not run", reason=_unstable(file, there), outputs=outputs)
    if not outputs:
        return replace(report, reason="there is no output to compare")
    if not failed:
        return replace(report, status="passed", outputs=outputs)
    reason = f"{len(failed)} of {len(outputs)} outputs differ: {failed[0].name!r}: "
    return replace(report, reason=reason + failed[0].problems[0], outputs=outputs)


def _unstable(file: Declared, there: SourceRun) -> str:
    """Return why outputs are not comparable."""
    names = ", ".join(repr(file.outputs[i].name) for i in sorted(there.unstable))
    rest = "; all others agree" if len(there.unstable) < len(file.outputs) else ""
    why = f" ({', '.join(there.random)})" if there.random else ""
    return f"{names} of the source itself differs from run to run{why}: not comparable{rest}"


def case_to_look_into(report: GraphReport, chosen: Sequence[int]) -> int | None:
    """Return the number of a case in which layers must be compared, or None."""
    wanted = [m for m in report.outputs.values() if not m.passed or m.says_little]
    if not wanted:
        return None
    names = {m.worst_case for m in wanted if not m.passed}
    numbers = {case.name: n for case, n in zip(report.cases, chosen, strict=True)}
    return min((n for name, n in numbers.items() if name in names), default=chosen[-1])


def looked_into(report: GraphReport, found: first_difference.Located) -> GraphReport:
    """Return a report with what the comparison of layers adds to it."""
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


def _other_dtypes(file: Declared, there: SourceRun) -> str:
    """Return which input has another dtype than the source's, or nothing."""
    for spec, (name, dtype, _) in zip(file.inputs, there.inputs, strict=False):
        if dtype != spec.dtype:
            return f"input {name!r} is {spec.dtype}; the source's is {dtype}"
    return ""


def _notes(file: Declared, there: SourceRun) -> list[str]:
    """Return what the figures do not show."""
    notes = []
    by_name = {name: (dtype, shape) for name, dtype, shape in there.inputs}
    for spec in file.inputs:
        dtype, shape = by_name.get(spec.name, (spec.dtype, None))
        if dtype != spec.dtype:
            notes.append(f"input {spec.name!r} is {spec.dtype}; the source's is {dtype}")
        for axis, (ours, theirs) in enumerate(zip(spec.shape or (), shape or (), strict=False)):
            if isinstance(ours, int) and theirs is None:
                notes.append(f"input {spec.name!r} fixes axis {axis}, which the source leaves free")
    return notes
