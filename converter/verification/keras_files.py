"""Compare written `.keras` files with their sources; Keras runs each in its own child process.

The source runs in its own Keras version if that is installed, the file in the current one. Outputs
are named like those of a graph, after the layers that compute them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from converter.child.process import Allowance
from converter.lower.graph import Graph
from converter.lower.keras.lowering import input_spec, model_of
from converter.lower.keras.model import Model, references
from converter.lower.keras.table import compute_dtype
from converter.lower.keras.weight_mapping import layers_of
from converter.lower.values import inverse
from converter.options import Options
from converter.verification.compare import Array, Tolerance, coarsest_dtype, compare
from converter.verification.engine import allowance, compare_models, plan_inputs, tolerance
from converter.verification.first_difference import MARGIN, LayerComparison, measure_layer_noise
from converter.verification.inputs import draw as inputs
from converter.verification.noise_graph import lower_quietly, write_noise_graph
from converter.verification.obstacles import find_obstacle
from converter.verification.pair import Pair
from converter.verification.placement import CPU, DeviceRequest
from converter.verification.report import GraphReport, LayerDifference, LayerError
from converter.verification.runners import PreparedInputs, RunSkipped, SourceRun, run_keras
from converter.verification.sources.keras import KerasSource, notes_on_keras, vocabulary
from converter.verification.verdict import Evidence
from formats.core.bundle import Bundle, TensorSpec
from formats.errors import CorruptError, UnsupportedError
from formats.keras.variable_names import safe

CURRENT = "3"  # Keras version of written files
DEFAULT = Options()


def verify_keras(
    source: Path, bundle: Bundle, written: Path, *, options: Options = DEFAULT
) -> GraphReport:
    """Compare a written file with its source.

    Args:
        source: The artifact.
        bundle: The bundle read from it.
        written: The `.keras` file.
        options: Options of the conversion: tolerances, inputs, device.

    Returns:
        A report; ``failed`` if outputs differ, or the current Keras does not load the file.

    Raises:
        DependencyError: A child died, hung, or took too much memory.
        UsageError: The user's inputs or tolerances do not fit this model.
    """
    if obstacle := find_obstacle(bundle, options, needs_onnx=False):
        return obstacle
    try:
        model = model_of(bundle)
    except (CorruptError, UnsupportedError) as e:
        return GraphReport("not run", e.found)
    names, specs = _output_names(model), _inputs(model)
    dtypes = {compute_dtype(layer.config) or "float32" for _, layer in layers_of(model)}
    bounds = tolerance(options, coarsest_dtype(dtypes), names)
    graph = lower_quietly(bundle)
    before = KerasSource(source, bundle, allowance(options), options.trust, None)
    after = _WrittenFile(written, options)

    def locate(
        theirs: PreparedInputs, ours: PreparedInputs, case: int, is_different: bool
    ) -> LayerComparison:
        every = options.comparison.layers
        known = _measure_layers(graph, bundle, theirs, case, allowance(options), with_exact=every)
        margin = 1.0 if is_different else MARGIN
        return _first_difference(
            model, (before, theirs), (after, ours), case, bounds.general(),
            known, margin=margin, every=every,
        )  # fmt: skip

    pair = Pair(
        reference=before,
        candidate=after,
        framework="Keras",
        runtime="Keras",
        specs=specs,
        outputs=names,
        plan=plan_inputs(
            specs, inputs.find_hints(model, vocabulary(bundle)), options, with_example=True
        ),
        tolerance=bounds,
        allowance=allowance(options),
        notes=lambda there, here: [*notes_on_keras(bundle, there), *here.notes],
        noise_graph=lambda folder: write_noise_graph(graph, bundle, folder),
        locate=locate,
    )
    return compare_models(pair, options)


@dataclass(frozen=True, slots=True)
class _WrittenFile:
    """A file that the current Keras runs."""

    path: Path
    options: Options

    def run(
        self, prepared: PreparedInputs, layers: Sequence[str] = (), on: DeviceRequest = CPU
    ) -> SourceRun | RunSkipped:
        """Run it."""
        return run_keras(
            self.path, "keras", CURRENT, prepared, allowance(self.options),
            layers=layers, trust=self.options.trust, only="keras", on=on,
        )  # fmt: skip


def _measure_layers(
    graph: Graph | None,
    bundle: Bundle,
    prepared: PreparedInputs,
    case: int,
    allowance: Allowance,
    *,
    with_exact: bool,
) -> dict[str, list[Evidence]]:
    """Return the noise of each layer's outputs, in the order of its calls; by path of the layer."""
    folder = prepared.folder / "layers"
    folder.mkdir(exist_ok=True)
    written = write_noise_graph(graph, bundle, folder)
    if graph is None or written is None or len(written[1].inputs) != len(prepared.names):
        return {}
    model, file = written
    names = tuple(spec.name for spec in file.inputs)
    alone = PreparedInputs(prepared.folder, names, prepared.cases, ((case,),))
    traces = [trace for trace in graph.traces if trace.value in file.values]
    values = {trace.value: graph.specs[trace.value].dtype for trace in traces}
    noise = measure_layer_noise(model, file, alone, case, values, allowance, with_exact=with_exact)
    found: dict[str, list[Evidence]] = {}
    if noise is None:
        return found
    for trace in traces:
        evidence = noise.evidence(case, [*values].index(trace.value))
        found.setdefault(trace.layer, []).append(evidence.transpose(inverse(trace.stored)))
    return found


def _first_difference(
    model: Model,
    before: tuple[KerasSource, PreparedInputs],
    after: tuple[_WrittenFile, PreparedInputs],
    case: int,
    bounds: Tolerance,
    known: Mapping[str, Sequence[Evidence]],
    *,
    margin: float,
    every: bool,
) -> LayerComparison:
    """Return the first layer, by its name in the source, whose output differs in a case."""
    classes = {"/".join(path): layer.class_name for path, layer in layers_of(model)}
    current = {"/".join(p): "/".join(map(safe, p)) for p, _ in layers_of(model)}

    def only(side: PreparedInputs) -> PreparedInputs:
        return PreparedInputs(side.folder, side.names, side.cases, ((case,),))

    there = before[0].run(only(before[1]), sorted(current))
    here = after[0].run(only(after[1]), sorted(current.values()))
    if isinstance(there, RunSkipped) or isinstance(here, RunSkipped):
        return LayerComparison()
    last_equal, equal = None, 0
    first: LayerDifference | None = None
    errors: list[LayerError] = []
    for path, calls in there.layers.items():  # in execution order
        others = here.layers.get(current[path], ())
        if len(others) != len(calls):
            continue  # other steps make it today
        noise = _pad(known.get(path, ()), len(calls))
        measures = [
            compare(
                path,
                Array(np.load(a), dtype),
                Array(np.load(b), other),
                bounds,
                evidence=one and one.scale(margin),
            )
            for (a, _, dtype), (b, _, other), one in zip(calls, others, noise, strict=True)
        ]
        levels = [None if one is None else one.level for one in noise]
        errors.append(LayerError.of(path, classes[path], measures, levels))
        if first is not None:
            continue
        wrong = [m for m in measures if not m.passed and 0 not in m.shape]
        if not wrong:
            last_equal, equal = path, equal + 1
            continue
        worst = max(wrong, key=lambda m: m.max_rel)
        first = LayerDifference(path, classes[path], worst, (), last_equal)
        if not every:
            break
    return LayerComparison(first, equal, errors=tuple(errors))


def _pad(known: Sequence[Evidence], count: int) -> Sequence[Evidence | None]:
    """Return what is known of each output of a layer; None for other numbers of calls."""
    return known if len(known) == count else [None] * count


def _inputs(model: Model) -> list[TensorSpec]:
    specs = []
    for reference in references(model.inputs):
        shape, dtype = input_spec(model.layers[reference.layer])
        sizes = tuple(n if isinstance(n, int) else str(n) for n in shape)
        specs.append(TensorSpec(reference.layer, dtype, sizes))
    return specs


def _output_names(model: Model) -> list[str]:
    """Return the names of a graph's outputs: the unique names of their layers."""
    used = {reference.layer for reference in references(model.inputs)}
    names: list[str] = []
    for reference in references(model.outputs):
        base = reference.layer if reference.layer not in used else f"{reference.layer}_out"
        name, number = base, 1
        while name in used:
            name, number = f"{base}_{number}", number + 1
        used.add(name)
        names.append(name)
    return names
