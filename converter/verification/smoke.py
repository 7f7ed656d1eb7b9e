"""Run a converted graph alone, where its source cannot be run.

This shows that the graph is whole, not that it computes what the source does: onnxruntime loads it,
its outputs have the dtypes and shapes that it declares, they are finite, and the same each time.
"""

import tempfile
from math import prod
from pathlib import Path

import numpy as np

from converter.child.process import Allowance
from converter.lower.graph import Graph
from converter.options import Options
from converter.verification.engine import plan_inputs
from converter.verification.inputs import graph_hints
from converter.verification.inputs.draw import storage_dtype
from converter.verification.onnx_values import OnnxInterface
from converter.verification.report import SmokeReport
from converter.verification.runners import (
    PreparedInputs,
    RunSkipped,
    SourceRun,
    has_onnxruntime,
    load_output,
    run_onnx,
    write_inputs,
)
from converter.verification.sources.onnx_file import OnnxSource
from formats.core.bundle import TensorSpec
from formats.errors import DependencyError, UsageError

LARGEST = 1 << 27  # elements of an input
# A run alone is a courtesy: a graph that takes longer is left to a comparison.
SECONDS, BYTES_PER_SECOND = 8.0, 50e6


def run_alone(
    model: Path, file: OnnxInterface, graph: Graph | None, options: Options
) -> SmokeReport:
    """Run a graph twice on random inputs.

    Args:
        model: The ONNX file.
        file: Its interface.
        graph: The graph, which describes its inputs, if it is known.
        options: Inputs and time limit of the comparison.

    Returns:
        A report; ``failed`` if onnxruntime finds the graph invalid.
    """
    if not has_onnxruntime():
        return SmokeReport("not run", "onnxruntime is not installed")
    if any(prod(n for n in s.shape or () if isinstance(n, int)) > LARGEST for s in file.inputs):
        return SmokeReport("not run", "its inputs are too large to be drawn")
    hints = {} if graph is None else graph_hints.find_hints(graph)
    seconds = SECONDS + sum(t.nbytes for t in file.weights.values()) / BYTES_PER_SECOND
    allowed = Allowance(min(options.comparison.timeout, seconds))
    try:
        plan = plan_inputs(file.inputs, hints, options, is_varied=True, with_example=True)
        with tempfile.TemporaryDirectory(prefix="convert-smoke-") as name:
            prepared = write_inputs(Path(name), file.inputs, plan)
            run = OnnxSource(model, file, allowed, graph).run(prepared)
            if isinstance(run, RunSkipped):
                is_refused = "INVALID_GRAPH" in run.reason and "opset" not in run.reason
                return SmokeReport("failed" if is_refused else "not run", run.reason)
            return _check(model, file, prepared, run, allowed)
    except (DependencyError, UsageError) as e:
        return SmokeReport("not run", e.found)
    except (MemoryError, ValueError) as e:  # of arrays that NumPy cannot have
        return SmokeReport("not run", f"its inputs cannot be drawn: {e}")


def _check(
    model: Path, file: OnnxInterface, prepared: PreparedInputs, run: SourceRun, allowed: Allowance
) -> SmokeReport:
    """Return what the outputs of a run show."""
    outputs = {spec.name: spec.dtype for spec in file.outputs}
    run_onnx(model, prepared, run.chosen, outputs, allowed, prefix="again")
    cases = tuple(prepared.cases[case].name for case in run.chosen)
    for case in run.chosen:
        for i, spec in enumerate(file.outputs):
            first, again = (
                load_output(prepared, prefix, case, i, spec.dtype).data
                for prefix in ("out", "again")
            )
            if wrong := _describe(spec, first):
                reason = f"{spec.name!r} {wrong} ({prepared.cases[case].name})"
                return SmokeReport("not run", reason, run.runtime, cases)
            if first.dtype.kind == "f" and not np.isfinite(first).all():
                reason = f"{spec.name!r} is not finite ({prepared.cases[case].name})"
                return SmokeReport("not run", reason, run.runtime, cases)
            if not np.array_equal(first, again):
                reason = f"{spec.name!r} differs from run to run"
                return SmokeReport("not run", reason, run.runtime, cases)
    return SmokeReport("passed", "", run.runtime, cases)


def _describe(spec: TensorSpec, array: np.ndarray) -> str:
    """Return how an output differs from what the graph declares, or ""."""
    if spec.dtype != "string" and array.dtype != storage_dtype(spec.dtype):
        return f"is {array.dtype}, and declared as {spec.dtype}"
    if spec.shape is None:
        return ""
    is_alike = len(spec.shape) == array.ndim and all(
        isinstance(n, str) or n == size for n, size in zip(spec.shape, array.shape, strict=True)
    )
    return "" if is_alike else f"has shape {list(array.shape)}, declared as {list(spec.shape)}"
