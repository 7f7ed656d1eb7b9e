"""A graph of reduced precision against the same graph in full precision, both in onnxruntime.

The source is compared with the full one, to the noise of float32; what was lost on purpose is
measured here, and held against what so few bits are expected to lose.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from converter.child.process import Allowance
from converter.lower.graph import Graph
from converter.verification.compare import Tolerance, compare, settled
from converter.verification.device.compare import Question, place, verify_on_device
from converter.verification.device.runs import onnx_party
from converter.verification.graphs import Options
from converter.verification.inputs import draw as inputs
from converter.verification.inputs import graph_hints
from converter.verification.onnx_values import Declared, declared
from converter.verification.report import CaseReport, GraphReport, Measure
from converter.verification.runners import (
    ONNX_EXTRA,
    OnnxRun,
    Prepared,
    has_onnxruntime,
    output,
    prepare,
    run_onnx,
)

FULL, REDUCED = "full", "reduced"


def verify_precision(
    full: Path,
    reduced: Path,
    graph: Graph,
    dtype: str,
    *,
    there: Path | None = None,
    options: Options | None = None,
) -> GraphReport:
    """Compare two graphs that differ in nothing but their precision.

    Args:
        full: The ONNX file in full precision.
        reduced: The other; its inputs and outputs are of the same names and dtypes.
        graph: The full one, which says what its inputs stand for.
        dtype: The narrow one: what its roundings may lose, is allowed (`comparison.RELATIVE`).
        there: What runs on a device, where CPUs take another file: by default ``reduced``.
        options: Inputs, and the device, if any.

    Returns:
        A report; ``source`` is who ran the full one.

    Raises:
        EnvironmentFault: A child died, hung, or took too much memory.
    """
    begin = perf_counter()
    options = options or Options()
    if not has_onnxruntime():
        return GraphReport("not run", "onnxruntime is not installed", lacking=ONNX_EXTRA)
    file = declared(full, options.limits)
    plan = _plan(file, graph, options)
    with tempfile.TemporaryDirectory(prefix="convert-verify-") as name:
        prepared = prepare(Path(name), file.inputs, plan)
        whole, chosen = _first_that_run(full, prepared, file, options.allowance)
        here = _run(reduced, REDUCED, prepared, file, chosen, options.allowance)
        report = _compared(prepared, file, whole, here, chosen, Tolerance(precision=dtype))
        on = place(options.device, allow_tf32=options.allow_tf32)
        if on is not None and report.status == "passed":
            outputs = {spec.name: spec.dtype for spec in file.outputs}
            source, converted = (
                onnx_party(model, prepared, tuple(chosen), outputs, options.allowance, side)
                for model, side in ((full, FULL), (there or reduced, REDUCED))
            )
            names = {number: prepared.cases[number].name for number in chosen}
            alike = Question([*outputs], names, Tolerance(precision=dtype), options.allow_cpu_nodes)
            report = report.with_device(verify_on_device(source, converted, alike, on))
    seed = None if options.inputs else options.seed
    return replace(report, seed=seed, seconds=perf_counter() - begin)


def _plan(file: Declared, graph: Graph, options: Options) -> list[list[inputs.Case]]:
    if options.inputs is not None:
        return inputs.from_file(options.inputs, file.inputs)
    known = graph_hints.hints(graph)
    found = [known.get(spec.name, inputs.Hint()) for spec in file.inputs]
    return inputs.plan(
        file.inputs, found, seed=options.seed, samples=max(options.samples, 1), is_varied=True
    )


def _first_that_run(
    model: Path, prepared: Prepared, file: Declared, allowance: Allowance
) -> tuple[OnnxRun, list[int]]:
    """Run the first alternative of each case that the model takes."""
    waiting = [list(group) for group in prepared.groups]
    chosen: list[int] = []
    while True:
        cases = [group.pop(0) for group in waiting]
        run = _run(model, FULL, prepared, file, cases, allowance)
        chosen += [n for n in cases if n not in run.errors]
        waiting = [g for g, n in zip(waiting, cases, strict=True) if g and n in run.errors]
        if run.refused or not waiting:
            return run, sorted(chosen)


def _run(
    model: Path,
    side: str,
    prepared: Prepared,
    file: Declared,
    cases: Sequence[int],
    allowance: Allowance,
) -> OnnxRun:
    outputs = {spec.name: spec.dtype for spec in file.outputs}
    return run_onnx(model, prepared, cases, outputs, allowance, prefix=side)


def _compared(
    prepared: Prepared,
    file: Declared,
    there: OnnxRun,
    here: OnnxRun,
    chosen: Sequence[int],
    tolerance: Tolerance,
) -> GraphReport:
    cases = tuple(
        CaseReport(
            prepared.cases[number].name,
            {
                spec.name: (spec.dtype, array.shape)
                for spec, array in zip(file.inputs, prepared.cases[number].arrays, strict=True)
            },
        )
        for number in chosen
    )
    report = GraphReport("failed", "", None, there.runtime, here.runtime, cases=cases)
    for run, which in ((there, "full precision"), (here, "reduced precision")):
        if run.refused:
            return replace(report, reason=f"onnxruntime refuses it in {which}: {run.refused}")
    for text in here.errors.values():
        return replace(report, reason=f"onnxruntime fails in reduced precision: {text}")
    if not chosen or not file.outputs:
        return replace(report, reason="there is no output to compare")
    measures: dict[str, list[Measure]] = {}
    for number in chosen:
        for i, spec in enumerate(file.outputs):
            expected, found = (
                output(prepared, side, number, i, spec.dtype) for side in (FULL, REDUCED)
            )
            name = prepared.cases[number].name
            measures.setdefault(spec.name, []).append(
                compare(spec.name, expected, found, tolerance, name)
            )
    outputs = settled(measures)
    failed = [m for m in outputs.values() if not m.passed]
    if not failed:
        return replace(report, status="passed", outputs=outputs)
    reason = f"{len(failed)} of {len(outputs)} outputs differ: {failed[0].name!r}: "
    return replace(report, reason=reason + failed[0].problems[0], outputs=outputs)
