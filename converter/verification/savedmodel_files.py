"""Compare SavedModels placed on another device with their sources; TensorFlow runs both.

Both are compared without device placements first. If a device is requested, they are then compared
on it: the source is placed there by us, the output as its own placements say. Each signature is run
on the same inputs, each model in its own child process.
"""

from collections.abc import Mapping
from pathlib import Path

from converter.devices.savedmodel.retarget import why_incomparable
from converter.lower.graph import Graph
from converter.options import Options
from converter.verification.compare import coarsest_dtype
from converter.verification.engine import allowance, compare_models, plan_inputs, tolerance
from converter.verification.noise_graph import lower_quietly, write_noise_graph
from converter.verification.obstacles import find_obstacle
from converter.verification.pair import Pair
from converter.verification.report import GraphReport
from converter.verification.sources.keras import TensorFlowSource
from converter.verification.sources.tensorflow import Binding, with_encoded
from formats import catalog
from formats.artifact import Artifact
from formats.core.bundle import Bundle, Normalisation, Signature, TensorSpec
from formats.errors import UsageError

DEFAULT = Options()


def verify_savedmodel(
    source: Path,
    bundle: Bundle,
    written: Path,
    *,
    changes: tuple[Normalisation, ...] = (),
    options: Options = DEFAULT,
    signature: str | None = None,
) -> Mapping[str, GraphReport]:
    """Compare a SavedModel with its source, signature by signature.

    Args:
        source: The artifact.
        bundle: The bundle read from it.
        written: The folder of the written SavedModel.
        changes: Changes made to it, if known.
        options: Options of the conversion: tolerances, inputs, device.
        signature: The signature to compare; default: all.

    Returns:
        A report for each signature with outputs; or a single one, under "", with the reason why
        there is none.

    Raises:
        DependencyError: A child died, hung, or took too much memory.
        UsageError: The user's inputs, tolerances or signature do not fit this model.
    """
    if reason := why_incomparable(changes):
        return {"": GraphReport("not run", reason)}
    known = [s.name for s in bundle.signatures]
    if signature not in (None, *known):
        raise UsageError(f"there is no signature {signature!r}", expected=", ".join(known))
    rewritten = catalog.read(Artifact(written, options.limits), "savedmodel")
    return {
        one.name: find_obstacle(bundle, options, needs_onnx=False)
        or _compare_signature(source, bundle, written, rewritten, one, options)
        for one in bundle.signatures
        if one.outputs and signature in (None, one.name)
    }


def _compare_signature(
    source: Path,
    bundle: Bundle,
    written: Path,
    rewritten: Bundle,
    signature: Signature,
    options: Options,
) -> GraphReport:
    specs = list(signature.inputs)
    strange = [s.name for s in (*specs, *signature.outputs) if "(" in s.dtype]
    if strange:
        return GraphReport("not run", f"{strange[0]!r} of {signature.name!r} is no plain tensor")
    names = [spec.name for spec in signature.outputs]
    binding = Binding(
        signature.name,
        tuple(spec.name for spec in specs),
        tuple(names),
        (f"signature {signature.name!r}",),
    )
    graph = lower_quietly(bundle, signature.name)
    if graph is not None and graph.encoded:
        # Encoded bytes are built from the arrays that they decode to.
        specs = [_spec(graph, name) for name in graph.inputs]
        binding = with_encoded(binding, graph, binding.feeds)
    before = TensorFlowSource(source, bundle, allowance(options), binding, graph)
    # On a device, its own recorded placements must put it there.
    after = TensorFlowSource(written, rewritten, allowance(options), binding, graph, as_placed=True)
    precision = coarsest_dtype({s.dtype for s in graph.specs.values()}) if graph else "float32"
    pair = Pair(
        reference=before,
        candidate=after,
        framework="TensorFlow",
        runtime="TensorFlow",
        specs=specs,
        outputs=names,
        plan=plan_inputs(specs, before.hints(), options),
        tolerance=tolerance(options, precision, names),
        allowance=allowance(options),
        tensors=[] if graph is None else [graph.sources.get(s.name, s.name) for s in specs],
        notes=lambda there, _: before.notes(there),
        noise_graph=lambda folder: write_noise_graph(graph, bundle, folder),
    )
    return compare_models(pair, options)


def _spec(graph: Graph, name: str) -> TensorSpec:
    """Return the spec of a graph's input."""
    spec = graph.specs[name]
    sizes = tuple(f"{name}/{i}" if n is None else n for i, n in enumerate(spec.shape))
    return TensorSpec(name, spec.dtype, None if spec.unranked else sizes)
