"""Compare ONNX files with their sources: onnxruntime runs the file, a framework the source."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from converter.devices.names import parse_torch_device
from converter.lower.graph import Graph
from converter.options import Options
from converter.verification.compare import ROUNDED, coarsest_dtype
from converter.verification.engine import allowance, compare_models, plan_inputs, tolerance
from converter.verification.first_difference import LayerComparison, find_first_difference
from converter.verification.inputs.draw import Case, Hint
from converter.verification.inputs.first_states import add_first_runs
from converter.verification.obstacles import describe_findings, find_obstacle
from converter.verification.onnx_values import OnnxInterface, read_interface
from converter.verification.pair import Pair
from converter.verification.report import GraphReport
from converter.verification.runners import PreparedInputs, SourceRun
from converter.verification.smoke import run_alone
from converter.verification.sources.keras import FRAMEWORKS, Source, lower_file
from converter.verification.sources.onnx_file import OnnxSource
from converter.verification.sources.torch import RunInTorch, Torch, topology_kind
from formats.core.bundle import Bundle, TensorSpec
from formats.core.plurals import count
from formats.core.weights import DTYPES, Tensor
from formats.errors import UsageError

DEFAULT = Options()


def verify_graph(
    source: Path,
    bundle: Bundle,
    model_onnx: Path,
    *,
    options: Options = DEFAULT,
    signature: str | None = None,
    program: Path | None = None,
) -> GraphReport:
    """Compare a converted graph with its source.

    Args:
        source: The artifact.
        bundle: The bundle read from it.
        model_onnx: The ONNX file; its external data lies in the same folder.
        options: Options of the conversion: tolerances, inputs, device.
        signature: Signature of the source that the file was converted from; default: the one with
            inputs and outputs of the file's names.
        program: An exported program made from the file, which torch runs in its place.

    Returns:
        A report; ``failed`` if outputs differ or nothing could be compared.

    Raises:
        DependencyError: A child died, hung, or took too much memory.
        SourceError: The ONNX file is damaged.
        UsageError: The user's inputs or tolerances are not for this model.
    """
    file = read_interface(model_onnx, options.limits)
    if file.findings:
        return GraphReport(
            "not run", f"the graph would run code ({describe_findings(file.findings)})"
        )
    report = None
    if options.verify != "smoke":
        report = _compare_with_source(source, bundle, model_onnx, file, options, signature, program)
    if report is not None and (report.status != "not run" or report.is_failing):
        return report  # inputs on which the source fails are no test of the graph
    report = report or GraphReport("not run", "verify='smoke'")
    if program is not None:
        return report
    smoke = run_alone(model_onnx, file, lower_file(file), options)
    if smoke.status == "failed":
        return replace(report, status="failed", reason=smoke.reason, smoke=smoke)
    return replace(report, smoke=smoke)


def _compare_with_source(
    source: Path,
    bundle: Bundle,
    model_onnx: Path,
    file: OnnxInterface,
    options: Options,
    signature: str | None,
    program: Path | None,
) -> GraphReport:
    """Compare a file, or the program made from it, with its source, run by its framework."""
    if obstacle := find_obstacle(bundle, options, needs_onnx=program is None):
        return obstacle
    tolerance(options, "float32", [spec.name for spec in file.outputs])  # before anything is run
    framework = FRAMEWORKS[topology_kind(bundle, options.arch)]
    found = framework.candidates(source, bundle, file, options, signature)
    if isinstance(found, GraphReport):
        return found
    reports = []
    for candidate in found:
        if wrong := _compare_names(file, candidate.declared):
            reports.append(GraphReport("failed", wrong))
            continue
        pair = _pair(candidate, framework.name, model_onnx, file, options, bundle.weights)
        if program is not None:
            pair = replace(
                pair, candidate=_run_program(program, file, options), runtime="torch", locate=None
            )
        reports.append(compare_models(pair, options))
        if reports[-1].status == "passed":
            return reports[-1]
    return replace(reports[0], seconds=sum(report.seconds for report in reports))


def _compare_names(file: OnnxInterface, graph: Graph | None) -> str:
    """Return how a file's inputs or outputs differ from the source's in name, order or dtype.

    Inputs may be in another order: they are fed by name.
    """
    if graph is None:
        return ""
    for what, found, expected in (
        ("input", file.inputs, graph.inputs),
        ("output", file.outputs, graph.outputs),
    ):
        names = [spec.name for spec in found]
        if sorted(names) != sorted(expected):
            return f"the {what}s are named {_list(names)}, the source's {_list(expected)}"
        if what == "output" and names != [*expected]:
            return f"the outputs are in the order {_list(names)}, the source's {_list(expected)}"
        for spec in found:
            own = graph.specs.get(spec.name)
            if own is not None and spec.dtype != own.dtype and own.dtype in DTYPES:
                return f"{what} {spec.name!r} is {spec.dtype}; the source's is {own.dtype}"
    return ""


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "(none)"


def _pair(
    source: Source, framework: str, model_onnx: Path, file: OnnxInterface, options: Options,
    weights: Mapping[str, Tensor],
) -> Pair:  # fmt: skip
    graph, names = source.graph, [spec.name for spec in file.outputs]
    precision = coarsest_dtype({s.dtype for s in graph.specs.values()}) if graph else "float32"
    if graph is not None and graph.rounded:
        precision = coarsest_dtype({precision, ROUNDED})
    bounds = tolerance(options, precision, names)

    def locate(
        theirs: PreparedInputs, ours: PreparedInputs, case: int, is_different: bool
    ) -> LayerComparison:
        del ours  # the file is run once more, for values of its graph
        if graph is None:
            return LayerComparison()
        return find_first_difference(
            source, graph, model_onnx, file, theirs, case, bounds, allowance(options),
            is_different=is_different, every=options.comparison.layers,
        )  # fmt: skip

    hints = source.hints()
    return Pair(
        reference=source,
        candidate=OnnxSource(model_onnx, file, allowance(options), graph),
        framework=framework,
        runtime="onnxruntime",
        specs=file.inputs,
        outputs=names,
        plan=_plan(source, file, hints, options, weights),
        tolerance=bounds,
        allowance=allowance(options),
        tensors=[] if graph is None else [graph.sources.get(s.name, s.name) for s in file.inputs],
        hints=[hints.get(spec.name, Hint()) for spec in file.inputs],
        noise_graph=lambda _: (model_onnx, file),
        notes=lambda there, _: [*source.notes(there), *_notes(file, there)],
        mismatch=lambda there: _mismatch(file, there, cast_by_layers=source.has_layers),
        locate=None if graph is None else locate,
    )


def _plan(
    source: Source, file: OnnxInterface, hints: Mapping[str, Hint], options: Options,
    weights: Mapping[str, Tensor],
) -> Sequence[Sequence[Case]]:  # fmt: skip
    """Return the cases to run; of a model that keeps state, from its first state as well."""

    def plan(specs: Sequence[TensorSpec]) -> list[list[Case]]:
        return plan_inputs(
            specs, hints, options, is_varied=not source.has_layers, with_example=True
        )

    if not file.states:
        return plan(file.inputs)
    try:
        cases = plan(file.inputs)
    except UsageError:  # a user's file without state
        cases = plan(file.inputs[: -len(file.states)])
    return add_first_runs(cases, file.inputs, file.states, weights)


def _run_program(program: Path, file: OnnxInterface, options: Options) -> RunInTorch:
    """Return the exported program made from a file, as a model to compare."""
    dtypes = tuple(spec.dtype for spec in file.inputs)
    devices = frozenset({str(parse_torch_device(options.device))})
    asked = Torch(program, "exported_program", dtypes, devices=devices)
    return RunInTorch(asked, allowance(options))


def _mismatch(file: OnnxInterface, there: SourceRun, *, cast_by_layers: bool) -> str:
    """Return why a file's inputs are not the source's, or ""."""
    if len(there.inputs) != len(file.inputs):
        return f"the graph has {count('input', len(file.inputs))}, the source {len(there.inputs)}"
    for spec, (name, dtype, _) in zip(file.inputs, there.inputs, strict=False):
        if dtype != spec.dtype and not cast_by_layers:
            return f"input {name!r} is {spec.dtype}; the source's is {dtype}"
    return ""


def _notes(file: OnnxInterface, there: SourceRun) -> list[str]:
    """Return remarks on the runs for the report."""
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
