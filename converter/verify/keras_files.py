"""A written `.keras` file against its source: both run by Keras, each in a child of its own.

The source runs in the Keras of its age where that is here, the file in today's.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from converter.lower.keras.lowering import input_spec, model_of
from converter.lower.keras.model import Model, references
from converter.lower.keras.owners import layers_of
from converter.lower.keras.table import compute_dtype
from converter.verify import inputs
from converter.verify.comparison import Tolerance, coarsest, compare, joined
from converter.verify.graphs import Options, no_keras
from converter.verify.report import CaseReport, GraphReport, Measure
from converter.verify.runners import (
    KERAS_EXTRA,
    NoRun,
    Prepared,
    SourceRun,
    may_have_keras,
    output,
    prepare,
    run_source,
)
from formats.bundle import Bundle, TensorSpec

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
    """
    begin = perf_counter()
    options = options or Options()
    if bundle.metadata.findings:
        return GraphReport("not run", "the source would run code of its own")
    if not may_have_keras():
        return GraphReport("not run", "no Keras is installed", lacking=KERAS_EXTRA)
    return replace(_run(source, bundle, written, options), seconds=perf_counter() - begin)


def _run(source: Path, bundle: Bundle, written: Path, options: Options) -> GraphReport:
    model = model_of(bundle)
    specs = _inputs(model)
    hints = inputs.hints(model)
    found = [hints.get(spec.name, inputs.Hint()) for spec in specs]
    plan = inputs.plan(specs, found, seed=options.seed, samples=max(options.samples, 1))
    version = bundle.metadata.recorded.get("keras_version", "")
    with tempfile.TemporaryDirectory(prefix="convert-verify-") as name:
        folders = Path(name, "source"), Path(name, "written")
        for folder in folders:
            folder.mkdir()
        before, after = (prepare(folder, specs, plan) for folder in folders)
        there = run_source(source, bundle.metadata.format, version, before, options.allowance)
        if isinstance(there, NoRun):
            return no_keras(there)
        here = run_source(written, "keras", TODAY, after, options.allowance, only="keras")
        if isinstance(here, NoRun):
            if here.is_missing:
                return no_keras(here)
            return GraphReport("failed", f"Keras does not run the file: {here.reason}")
        dtypes = {compute_dtype(layer.config) or "float32" for _, layer in layers_of(model)}
        tolerance = Tolerance(options.atol, options.rtol, coarsest(dtypes))
        return _compared(before, after, there, here, specs, tolerance, options.seed)


def _inputs(model: Model) -> list[TensorSpec]:
    specs = []
    for reference in references(model.inputs):
        shape, dtype = input_spec(model.layers[reference.layer])
        sizes = tuple(n if isinstance(n, int) else str(n) for n in shape)
        specs.append(TensorSpec(reference.layer, dtype, sizes))
    return specs


def _compared(
    before: Prepared, after: Prepared, there: SourceRun, here: SourceRun,
    specs: list[TensorSpec], tolerance: Tolerance, seed: int,
) -> GraphReport:  # fmt: skip
    chosen = [number for number in there.chosen if number in here.chosen]
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
        cases=cases, skipped=(*there.refused, *here.refused), seed=seed,
    )  # fmt: skip
    if not chosen:
        return replace(report, reason="there is no case that both run")
    measures: dict[str, list[Measure]] = {}
    for number in chosen:
        dtypes = there.dtypes[number], here.dtypes[number]
        if list(dtypes[0]) != list(dtypes[1]):
            return replace(
                report, reason=f"outputs are {dtypes[1]}, those of the source {dtypes[0]}"
            )
        for i, dtype in enumerate(dtypes[0]):
            expected, got = (output(side, "out", number, i, dtype) for side in (before, after))
            measure = compare(f"output {i}", expected, got, tolerance, before.cases[number].name)
            measures.setdefault(f"output {i}", []).append(measure)
    outputs = {name: joined(found) for name, found in measures.items()}
    failed = [m for m in outputs.values() if not m.passed]
    if failed:
        reason = f"{len(failed)} of {len(outputs)} outputs differ: {failed[0].name!r}: "
        return replace(report, reason=reason + failed[0].problems[0], outputs=outputs)
    return replace(report, status="passed", outputs=outputs)
