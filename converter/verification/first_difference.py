"""Where two runs of a model part: the first layer whose output differs.

Lowering notes which value of the graph each layer's output is (`Trace`). The source is run again
with its layers watched, the graph with those values as outputs, and they are compared in the
source's order. A layer that a pass folded into another has no value: it is named with that one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from converter.child.process import Allowance
from converter.lower.graph import Graph, Trace
from converter.lower.values import inverse
from converter.verification.compare import Array, Tolerance, compare
from converter.verification.onnx_values import OnnxInterface
from converter.verification.report import LayerDifference, Measure
from converter.verification.runners import PreparedInputs, RunSkipped, load_output, run_onnx
from converter.verification.sources.keras import Source


@dataclass(frozen=True, slots=True)
class LayerComparison:
    """What a comparison of layers found.

    Attributes:
        difference: The first that differs.
        equal: How many do not, up to there.
        measured: How many of these have elements to compare.
    """

    difference: LayerDifference | None = None
    equal: int = 0
    measured: int = 0


def find_first_difference(
    source: Source,
    graph: Graph,
    model: Path,
    file: OnnxInterface,
    prepared: PreparedInputs,
    case: int,
    tolerance: Tolerance,
    allowance: Allowance,
) -> LayerComparison:
    """Return the first layer whose output differs in a case.

    Args:
        source: The artifact, and who runs it.
        graph: As lowered from it, before any pass.
        model: The ONNX file.
        file: What that declares.
        prepared: The inputs.
        case: Number of the inputs to run.
        tolerance: What is noise.
        allowance: For each child.

    Raises:
        EnvironmentFault: A child died, hung, or took too much memory.
    """
    returned = {spec.name for spec in file.outputs}
    traces = [t for t in graph.traces if t.value in file.values and t.value not in returned]
    if not traces:
        return LayerComparison()
    alone = PreparedInputs(prepared.folder, prepared.names, prepared.cases, ((case,),))
    there = source.run(alone, sorted({t.layer for t in traces}))
    if isinstance(there, RunSkipped) or not there.chosen:
        return LayerComparison()
    values = {t.value: graph.specs[t.value].dtype for t in traces}
    here = run_onnx(model, alone, [case], {}, allowance, more=values, prefix="value")
    if here.refused or here.errors:
        return LayerComparison()
    numbers = {value: i for i, value in enumerate(values)}
    last_equal, equal, measured = None, 0, 0
    for trace in traces:
        recorded = there.layers.get(trace.layer, ())
        calls = [(path, dtype) for path, i, dtype in recorded if i == trace.output]
        if not calls:
            continue
        found = load_output(alone, "value", case, numbers[trace.value], values[trace.value])
        moved = Array(found.data.transpose(inverse(trace.stored)), found.dtype)
        measures = [
            compare(trace.layer, Array(np.load(path), dtype), moved, tolerance.general())
            for path, dtype in calls
        ]
        # A layer that is called several times: which of its calls this is, its values say.
        if any(_agrees(m) for m in measures):
            last_equal, equal = trace.layer, equal + 1
            measured += any(m.passed and m.elements for m in measures)
            continue
        nearest = min(measures, key=lambda m: (bool(m.elements == 0), m.max_abs))
        merged = _merged(graph, trace, set(values))
        first = LayerDifference(trace.layer, trace.class_name, nearest, merged, last_equal)
        return LayerComparison(first, equal, measured)
    return LayerComparison(None, equal, measured)


def _agrees(measure: Measure) -> bool:
    """Tell whether a layer's output is what it should be, or says nothing: an empty one is fine."""
    return measure.passed or 0 in measure.shape


def _merged(graph: Graph, trace: Trace, shown: set[str]) -> tuple[str, ...]:
    """Return the layers before this one whose values the file does not have.

    Their nodes stand between this layer's value and those that are there.
    """
    makers = {name: node for node in graph.nodes for name in node.outputs}
    hidden = _by_value(graph.traces, shown)
    found: dict[str, None] = {}
    todo, done = [trace.value], {trace.value}
    while todo:
        node = makers.get(todo.pop())
        if node is None:
            continue
        for name in node.inputs:
            if name in done or name in shown:
                continue
            done.add(name)
            todo.append(name)
            found.update(dict.fromkeys(hidden.get(name, ())))
    return tuple(name for name in found if name != trace.layer)


def _by_value(traces: Sequence[Trace], shown: set[str]) -> Mapping[str, Sequence[str]]:
    layers: dict[str, list[str]] = {}
    for trace in traces:
        if trace.value not in shown:
            layers.setdefault(trace.value, []).append(trace.layer)
    return layers
