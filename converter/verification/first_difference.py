"""Search for the first layer whose output differs between two runs of a model.

Lowering records which value of the graph is the output of each layer (`Trace`). The source is run
again with its layers recorded, and the graph with those values as outputs; they are compared in the
order of the source. A layer that a pass folded into another one has no value: it is reported with
that layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from converter.child.process import Allowance
from converter.lower.graph import Graph, Trace
from converter.lower.values import inverse
from converter.verification.compare import Array, Tolerance, compare
from converter.verification.measure import Measure
from converter.verification.noise import Noise, measure_noise
from converter.verification.onnx_values import OnnxInterface
from converter.verification.report import LayerDifference, LayerError
from converter.verification.runners import PreparedInputs, RunSkipped, load_output, run_onnx
from converter.verification.sources.keras import Source
from formats.errors import DependencyError

RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
     "RandomUniformLike")
)  # fmt: skip
MARGIN = 16.0  # times the noise of a layer, where its output does not show a difference


@dataclass(frozen=True, slots=True)
class LayerComparison:
    """Result of a comparison of layers.

    Attributes:
        difference: The first layer that differs, if any.
        equal: Number of equal layers before it.
        measured: Number of these that have elements to compare.
        errors: Errors of the layers that were compared, in the order of the source.
    """

    difference: LayerDifference | None = None
    equal: int = 0
    measured: int = 0
    errors: tuple[LayerError, ...] = ()


def find_first_difference(
    source: Source,
    graph: Graph,
    model: Path,
    file: OnnxInterface,
    prepared: PreparedInputs,
    case: int,
    tolerance: Tolerance,
    allowance: Allowance,
    *,
    is_different: bool,
    every: bool = False,
) -> LayerComparison:
    """Return the first layer whose output differs in a case.

    Args:
        source: The source and its framework.
        graph: The lowered source, before any pass.
        model: The ONNX file.
        file: Its interface.
        prepared: The inputs.
        case: Index of the case to run.
        tolerance: Tolerance of the comparison.
        allowance: Limits of each child process.
        is_different: Whether outputs differ, so that a layer is looked for that explains it. Else
            layers are compared because the outputs say little, and with more margin: the noise of
            so many values is measured in a few runs only.
        every: Whether the layers after the first difference are compared, too, and the errors of
            both models measured against the graph in float64.

    Raises:
        DependencyError: A child died, hung, or took too much memory.
    """
    shown = file.values - {spec.name for spec in file.outputs} - find_random_values(file)
    traces = [t for t in graph.traces if t.value in shown]
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
    noise = measure_layer_noise(model, file, alone, case, values, allowance, with_exact=every)
    margin = 1.0 if is_different else MARGIN
    last_equal, equal, measured = None, 0, 0
    first: LayerDifference | None = None
    errors: list[LayerError] = []
    for trace in traces:
        recorded = there.layers.get(trace.layer, ())
        calls = [(path, dtype) for path, i, dtype in recorded if i == trace.output]
        if not calls:
            continue
        found = load_output(alone, "value", case, numbers[trace.value], values[trace.value])
        axes = inverse(trace.stored)
        moved = Array(found.data.transpose(axes), found.dtype)
        evidence, level = None, None
        if noise is not None:
            known = noise.evidence(case, numbers[trace.value]).transpose(axes)
            evidence, level = known.scale(margin), known.level
        measures = [
            compare(
                trace.layer, Array(np.load(path), dtype), moved, tolerance.general(),
                evidence=evidence,
            )
            for path, dtype in calls
        ]  # fmt: skip
        # A layer may be called several times: the call with the nearest values is this one.
        nearest = min(
            measures, key=lambda m: (not _is_equal_or_empty(m), m.elements == 0, m.max_abs)
        )
        errors.append(LayerError.of(trace.layer, trace.class_name, [nearest], [level]))
        if first is not None:
            continue
        if _is_equal_or_empty(nearest):
            last_equal, equal = trace.layer, equal + 1
            measured += any(m.passed and m.elements for m in measures)
            continue
        merged = _find_folded_layers(graph, trace, set(values))
        first = LayerDifference(trace.layer, trace.class_name, nearest, merged, last_equal)
        if not every:
            break
    return LayerComparison(first, equal, measured, tuple(errors))


def find_random_values(file: OnnxInterface) -> set[str]:
    """Return the values that are drawn at random, and those that are computed from them."""
    found: set[str] = set()
    for node in file.nodes:
        if node.op_type in RANDOM or not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found


def measure_layer_noise(
    model: Path,
    file: OnnxInterface,
    prepared: PreparedInputs,
    case: int,
    values: Mapping[str, str],
    allowance: Allowance,
    *,
    with_exact: bool,
) -> Noise | None:
    """Return the noise of values inside a graph, or None if it cannot be measured."""
    try:
        return measure_noise(
            model, file, prepared, [case], values, allowance, with_exact=with_exact
        )
    except DependencyError:
        return None


def _is_equal_or_empty(measure: Measure) -> bool:
    """Return whether a layer's outputs are equal, or empty."""
    return measure.passed or 0 in measure.shape


def _find_folded_layers(graph: Graph, trace: Trace, shown: set[str]) -> tuple[str, ...]:
    """Return the layers that are folded into this one.

    Their nodes are between this layer's value and the values in the file.
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
