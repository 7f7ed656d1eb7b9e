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

from converter.child import Allowance
from converter.lower import KINDS, lower
from converter.lower.graph import Graph
from converter.lower.keras.lowering import model_of
from converter.lower.keras.model import is_model
from converter.trust import Trusted
from converter.verify import inputs, locate
from converter.verify.comparison import Tolerance, coarsest, compare, joined, says_little
from converter.verify.onnx_values import Declared, declared
from converter.verify.report import CaseReport, GraphReport, Measure
from converter.verify.runners import (
    KERAS_EXTRA,
    ONNX_EXTRA,
    NoRun,
    OnnxRun,
    Prepared,
    SourceRun,
    has_onnxruntime,
    may_have_keras,
    output,
    prepare,
    run_onnx,
    run_source,
)
from formats.bundle import Bundle, Finding
from formats.errors import CorruptError, UnsupportedError, UsageError
from formats.limits import DEFAULT, Limits

VOCABULARY_BYTES = 1 << 20


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
    """

    atol: Mapping[str, float] = field(default_factory=dict)
    rtol: Mapping[str, float] = field(default_factory=dict)
    inputs: Path | None = None
    seed: int = 0
    samples: int = 1
    allowance: Allowance = field(default_factory=Allowance)
    trust: Sequence[Trusted] = ()
    limits: Limits = DEFAULT


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
    if bundle.topology is None:
        return GraphReport("not run", "the source records no computation")
    if bundle.topology.kind not in KINDS:
        return GraphReport("not run", f"graphs of kind {bundle.topology.kind} are not run yet")
    # What Keras looks up by name, it finds in trusted modules or nowhere.
    findings = [
        f for f in bundle.metadata.findings if f.kind != "custom-object" or not options.trust
    ]
    if findings:
        return GraphReport("not run", f"the source would run code of its own ({_named(findings)})")
    if needs_onnx and not has_onnxruntime():
        return GraphReport("not run", "onnxruntime is not installed", lacking=ONNX_EXTRA)
    if not may_have_keras():
        return no_keras(NoRun("", is_missing=True))
    return None


def _named(findings: Sequence[Finding]) -> str:
    rest = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
    return f"{findings[0].kind}: {findings[0].subject}{rest}"


def _verified(source: Path, bundle: Bundle, model_onnx: Path, options: Options) -> GraphReport:
    file = declared(model_onnx, options.limits)
    if file.findings:
        return GraphReport("not run", f"the graph would run code ({_named(file.findings)})")
    check_names(options, [spec.name for spec in file.outputs])
    graph = _lowered(bundle, options.trust)
    plan = _plan(bundle if graph else None, file, options)
    precision = coarsest({s.dtype for s in graph.specs.values()}) if graph else "float32"
    tolerance = Tolerance(options.atol, options.rtol, precision)
    version = bundle.metadata.recorded.get("keras_version", "")
    with tempfile.TemporaryDirectory(prefix="convert-verify-") as name:
        prepared = prepare(Path(name), file.inputs, plan)
        there = run_source(
            source, bundle.metadata.format, version, prepared, options.allowance,
            trust=options.trust,
        )  # fmt: skip
        if isinstance(there, NoRun):
            return no_keras(there)
        outputs = {spec.name: spec.dtype for spec in file.outputs}
        here = run_onnx(model_onnx, prepared, there.chosen, outputs, options.allowance)
        report = _compared(prepared, file, there, here, tolerance)
        report = replace(
            report,
            seed=None if options.inputs else options.seed,
            notes=tuple(_notes(bundle, file, there)),
        )
        case = case_to_look_into(report, there.chosen)
        if case is None or graph is None:
            return report
        found = locate.first_difference(
            source, bundle, graph, model_onnx, file, prepared, case, tolerance, options.allowance,
            options.trust,
        )  # fmt: skip
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


def _lowered(bundle: Bundle, trust: Sequence[Trusted]) -> Graph | None:
    """Return the source's graph, which says what its layers are called in the file."""
    try:
        return lower(bundle, trust=trust)
    except (CorruptError, UnsupportedError):
        return None  # the file is somebody else's: it can be compared, and no layer be named


def _plan(bundle: Bundle | None, file: Declared, options: Options) -> list[list[inputs.Case]]:
    if options.inputs is not None:
        return inputs.from_file(options.inputs, file.inputs)
    known = {} if bundle is None else _hints(bundle)
    found = [known.get(spec.name, inputs.Hint()) for spec in file.inputs]
    return inputs.plan(file.inputs, found, seed=options.seed, samples=max(options.samples, 1))


def _hints(bundle: Bundle) -> Mapping[str, inputs.Hint]:
    """Return what the layers of a model say of its inputs; a class of its author's says nothing."""
    content = None if bundle.topology is None else bundle.topology.content
    if not isinstance(content, Mapping) or not is_model(content):
        return {}
    return inputs.hints(model_of(bundle), vocabulary(bundle))


def vocabulary(bundle: Bundle) -> list[str]:
    """Return words that the source's lookups know."""
    words: list[str] = []
    for name, span in bundle.assets.items():
        if "vocabulary" in name:
            text = span.read(0, min(span.length, VOCABULARY_BYTES)).decode("utf-8", "replace")
            words += [line for line in text.split("\n") if line and not line.startswith("[")]
    return words


def no_keras(run: NoRun) -> GraphReport:
    """Return the report of a source that no Keras here runs."""
    if run.is_missing:
        return GraphReport(
            "not run",
            "no Keras is installed that could run the source"
            + (f" ({run.reason})" if run.reason else ""),
            lacking=KERAS_EXTRA,
        )
    return GraphReport(
        "not run", f"no Keras here runs the source: verified on weights only ({run.reason})"
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
            expected = output(prepared, "out", case, i, dtype)
            found = output(prepared, "onnx", case, i, spec.dtype)
            measure = compare(spec.name, expected, found, tolerance, prepared.cases[case].name)
            measures.setdefault(spec.name, []).append(measure)
            arrays.setdefault(spec.name, []).append(expected.data)
    outputs = {
        name: replace(joined(found), says_little=says_little(arrays[name], found[0].atol))
        for name, found in measures.items()
    }
    failed = [m for m in outputs.values() if not m.passed]
    if not outputs:
        return replace(report, reason="there is no output to compare")
    if not failed:
        return replace(report, status="passed", outputs=outputs)
    reason = f"{len(failed)} of {len(outputs)} outputs differ: {failed[0].name!r}: "
    return replace(report, reason=reason + failed[0].problems[0], outputs=outputs)


def case_to_look_into(report: GraphReport, chosen: Sequence[int]) -> int | None:
    """Return the number of a case in which layers must be compared, or None."""
    wanted = [m for m in report.outputs.values() if not m.passed or m.says_little]
    if not wanted:
        return None
    names = {m.worst_case for m in wanted if not m.passed}
    numbers = {case.name: n for case, n in zip(report.cases, chosen, strict=True)}
    return min((n for name, n in numbers.items() if name in names), default=chosen[-1])


def looked_into(report: GraphReport, found: locate.Located) -> GraphReport:
    """Return a report with what the comparison of layers adds to it."""
    report = replace(report, layers=found.equal, first_difference=found.difference)
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


def notes_on_source(bundle: Bundle, there: SourceRun) -> list[str]:
    """Return what a reader should know of how the source was run."""
    wanted = bundle.metadata.recorded.get("keras_version", "")
    if wanted.startswith(("1.", "2.")) and there.runtime.name == "keras":
        other = (
            f"written by Keras {wanted} and run by Keras {there.runtime.version}, "
            "which computes some layers differently"
        )
        return [*there.notes, other]
    return [*there.notes]


def _notes(bundle: Bundle, file: Declared, there: SourceRun) -> list[str]:
    """Return what the figures do not show."""
    notes = notes_on_source(bundle, there)
    by_name = {name: (dtype, shape) for name, dtype, shape in there.inputs}
    for spec in file.inputs:
        dtype, shape = by_name.get(spec.name, (spec.dtype, None))
        if dtype != spec.dtype:
            notes.append(f"input {spec.name!r} is {spec.dtype}; the source's is {dtype}")
        for axis, (ours, theirs) in enumerate(zip(spec.shape or (), shape or (), strict=False)):
            if isinstance(ours, int) and theirs is None:
                notes.append(f"input {spec.name!r} fixes axis {axis}, which the source leaves free")
    return notes
