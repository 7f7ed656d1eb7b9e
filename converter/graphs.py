"""Lower the signatures of a source to graphs, and choose the exporter.

A signature that cannot be lowered is left out and reported, as long as another one can be lowered.
Signatures requested by name must be lowered, or nothing is written.
"""

import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from converter.lower import lower
from converter.normalise.quantized.forms import FindForm
from converter.opsets import OPSET, OPSETS, QUANTIZED
from converter.options import Options
from formats import components, hugging_face
from formats.artifact import Artifact
from formats.core.bundle import JSON, Bundle, FixedInput, LeftOut, Normalisation, TensorSpec
from formats.core.plurals import count, list_counts
from formats.errors import (
    ConvertError,
    CorruptError,
    DependencyError,
    Gaps,
    SafetyError,
    UnsupportedError,
    UsageError,
)

if TYPE_CHECKING:
    from converter.capture.capture_graph import CaptureRequest
    from converter.child.trust import Trusted
    from converter.lower.graph import Graph

PRETRAINED = hugging_face.KIND
NO_COMPUTATION = (
    "of nothing",
    "tf_object_graph",
    hugging_face.ADAPTER,
)  # kinds of topologies without a computation
FOLDERS = (*hugging_face.KINDS, components.SENTENCES)  # kinds of folders that a library loads
TORCH = ("torchscript", "exported_program", "torch_modules", *FOLDERS)  # kinds of topologies
ASKED = re.compile(r"takes opset=(\d+)")  # phrase in messages of unsupported ops


def graphs_of(
    bundle: Bundle, artifact: Artifact, options: Options, *, only_one: bool
) -> "tuple[Bundle, list[Graph]]":
    """Return a source's graphs, the default one first, and the bundle with the omissions recorded.

    Args:
        bundle: The model.
        artifact: Its files.
        options: Opset, trusted modules and requested signatures; exporter and inputs of torch
            programs.
        only_one: Whether the output is a single file: then only the first graph is lowered.

    Raises:
        UnsupportedError: No signature can be lowered, or a requested one cannot.
        CorruptError: The topology is damaged.
        UsageError: A requested signature does not exist.
        SafetyError: Lowering would run untrusted code.
        DependencyError: A required framework is not installed, or its process died.
    """
    bundle, graphs = _graphs_of(bundle, artifact, options, only_one=only_one)
    if options.propagate_nan:
        from converter.passes.propagate_nan import propagate_nan

        for graph in graphs:
            propagate_nan(graph)
    return bundle, graphs


def _graphs_of(
    bundle: Bundle, artifact: Artifact, options: Options, *, only_one: bool
) -> "tuple[Bundle, list[Graph]]":
    if bundle.topology is not None and bundle.topology.kind == hugging_face.ADAPTER:
        raise UnsupportedError(
            "an adapter computes nothing without its base", hint="merge_adapter=BASE merges the two"
        )
    if options.task is not None and (bundle.topology is None or bundle.topology.kind != PRETRAINED):
        raise UsageError("task= with a source that is no Hugging Face folder of transformers'")
    opset, wanted = options.opset or _least(options), options.signatures
    if bundle.topology is not None and bundle.topology.kind == components.DIFFUSERS:
        return _of_pipeline(bundle, artifact, options, opset or OPSET, only_one=only_one)
    if options.arch is not None or (bundle.topology and bundle.topology.kind in TORCH):
        bundle, found = _of_torch(bundle, artifact, options, opset or OPSET)
        graphs = _select_parts(found, options, only_one=only_one)
        return _record_deviations(bundle, graphs, ()), graphs
    names: list[str | None] = [*wanted] or _signatures(bundle)
    if only_one and len(wanted) > 1:
        raise UsageError(f"{len(wanted)} signatures in one file", hint="Give out= a folder's name")
    left_out: list[LeftOut] = []
    graphs = []
    failures: list[ConvertError] = []
    alike: dict[object, str] = {}
    for name in names:
        if only_one and graphs:
            reason = "the output is one file, for one signature; signatures= says which"
            left_out.append(LeftOut(f"signature {name}", reason))
            continue
        try:
            graph = _lower(bundle, opset, options, name)
        except (UnsupportedError, CorruptError) as e:
            if wanted or len(names) == 1:
                raise
            failures.append(e)
            left_out.append(LeftOut(f"signature {name}", reason_of(e), gaps_of(e)))
            continue
        if len(names) > 1:
            from converter.lower.graph_equality import equality_key

            twin = alike.setdefault(equality_key(graph), str(name))
            if twin != name:
                left_out.append(LeftOut(f"signature {name}", f"it is the same as {twin}"))
                continue
        graphs.append(graph)
    if not graphs:
        raise failures[0]
    return _record_deviations(bundle, graphs, left_out), graphs


def _select_parts(graphs: "Sequence[Graph]", options: Options, *, only_one: bool) -> "list[Graph]":
    """Return the graphs of the parts of a model that are wanted: all, if none is named.

    Raises:
        UsageError: There is no part of that name, or there are several for one file.
    """
    wanted, parts = options.signatures, [graph.signature for graph in graphs]
    for name in wanted:
        if name not in parts:
            known = ", ".join(filter(None, parts))
            raise UsageError(f"has no part {name!r}", expected=known or "none: it has one graph")
    found = [graph for graph in graphs if not wanted or graph.signature in wanted]
    if only_one and len(found) > 1:
        is_triton = options.to == "triton"
        several = "triton='layout=repository'" if is_triton else "out= a folder's name"
        raise UsageError(
            f"{len(found)} graphs in one {'model' if is_triton else 'file'}",
            hint=f"Give {several}, or signatures= one of {', '.join(parts)}",
        )
    return found


def lower_required(
    bundle: Bundle, artifact: Artifact, options: Options, *, only_one: bool = False
) -> "tuple[Bundle, list[Graph]]":
    """Remove placements and replicas of a model, and return its graphs.

    Raises:
        ConvertError: As `graphs_of`.
    """
    alone = bundle
    if bundle.metadata.format == "savedmodel":
        from converter.devices.savedmodel.strip_placement import strip_placement

        alone = strip_placement(bundle, artifact)
    annotated, graphs = graphs_of(alone, artifact, options, only_one=only_one)
    return replace(annotated, topology=bundle.topology), graphs


def lower_optional(
    bundle: Bundle, artifact: Artifact, options: Options
) -> "tuple[Bundle, list[Graph]]":
    """Return the graphs, or a bundle that records why there is none; its weights stay usable.

    Raises:
        ConvertError: A graph was requested, or trusted code failed.
    """
    if bundle.topology is None and options.arch is None:
        return bundle, []
    try:
        return lower_required(bundle, artifact, options)
    except (UnsupportedError, CorruptError, SafetyError, DependencyError, UsageError) as e:
        # A UsageError means a faulty trusted module, or a torch program without inputs.
        if options.asks_for_graph or (isinstance(e, UsageError) and options.trust):
            raise
        return leave_out_graph(bundle, reason_of(e), gaps_of(e)), []


def options_of_quantized(options: Options) -> Options:
    """Return the options for graphs whose weights stay quantised.

    Raises:
        UsageError: The options are for graphs of floats.
    """
    opset = options.opset or QUANTIZED
    hint = "dequantize=True makes floats of them"
    if opset < QUANTIZED:
        raise UsageError(
            f"opset={opset} with weights that stay quantised", expected=f"{QUANTIZED} or later",
            hint=hint,
        )  # fmt: skip
    if options.precision is not None:
        raise UsageError(
            f"precision={options.precision!r} with weights that stay quantised", hint=hint
        )
    return replace(options, opset=opset)


def keep_quantized(
    graphs: "Sequence[Graph]", bundle: Bundle, forms: Mapping[Hashable, FindForm]
) -> Bundle:
    """Replace floats in graphs by the operators that compute them: see the pass of this name."""
    from converter.passes import keep_quantized as module  # weights alone do without numpy

    return module.keep_quantized(graphs, bundle, forms)


def leave_out_graph(bundle: Bundle, reason: str, gaps: Gaps = ()) -> Bundle:
    """Return a bundle whose metadata records why its computation is left out."""
    kind = "of nothing" if bundle.topology is None else bundle.topology.kind
    entry = LeftOut(f"graph ({kind})", reason, () if kind in NO_COMPUTATION else gaps)
    metadata = replace(bundle.metadata, left_out=(*bundle.metadata.left_out, entry))
    return replace(bundle, metadata=metadata)


def lower_signature(
    bundle: Bundle,
    opset: int | None = None,
    trust: "Sequence[Trusted]" = (),
    signature: str | None = None,
    inputs: "Sequence[TensorSpec]" = (),
    state: str = "drop",
) -> "Graph":
    """Lower one signature, and simplify its graph.

    Raises:
        ConvertError: As `converter.lower.lower`, or the simplified graph nests too deeply.
    """
    from converter.passes import simplify

    graph = lower(bundle, opset, trust, signature, inputs, state)
    if state == "io" and not graph.states and not graph.unkept:
        graph.notes.append("state='io': the source assigns no state between its runs")
    simplify(graph)
    return graph


def describe_graph(graph: "Graph") -> str:
    """Return a line about a graph: its signature, size, opset and exporter."""
    of = f"signature {graph.signature}: " if graph.signature else ""
    by = f", by {graph.exporter}" if graph.exporter else ""
    return f"{of}{count('node', len(graph.nodes))}, opset {graph.opset}{by}"


def graph_facts(graph: "Graph") -> dict[str, JSON]:
    """Return ``signature``, ``nodes``, ``opset`` and ``exporter`` of a graph, for reports."""
    return {
        "signature": graph.signature,
        "nodes": len(graph.nodes),
        "opset": graph.opset,
        "exporter": graph.exporter,
    }


def _least(options: Options) -> int | None:
    """Return the lowest opset for a precision: before 22, convolutions lack bfloat16."""
    return max(OPSETS) if options.precision == "bf16" else None


def _of_torch(
    bundle: Bundle, artifact: Artifact, options: Options, opset: int
) -> "tuple[Bundle, Sequence[Graph]]":
    """Lower a torch program natively; if it has unsupported ops, have torch export it."""
    gap: ConvertError | None = None
    is_pretrained = bundle.topology is not None and bundle.topology.kind in FOLDERS
    if options.arch is None and options.exporter in ("auto", "native") and not is_pretrained:
        try:
            return bundle, [_natively(bundle, opset, options)]
        except (UnsupportedError, CorruptError) as e:
            if options.exporter == "native" or options.state == "io":
                raise
            gap = e
    if options.state == "io":
        raise UnsupportedError(
            "state='io' with a graph that torch exports",
            hint="Convert lowers TorchScript archives and exported programs (.pt2) itself",
        )
    from converter.capture.capture_graph import capture_graphs

    try:
        captured = capture_graphs(artifact.path, bundle, _request(options, opset))
    except (UnsupportedError, CorruptError) as e:
        if gap is not None:
            e.add_note(f"convert itself: {gap.found}")
            e.gaps = gap.gaps
        raise
    except UsageError as e:
        if not isinstance(gap, UnsupportedError):
            raise
        gap.add_note(f"torch: {e.found}")  # here the inputs were no obstacle
        raise gap from e
    except DependencyError as e:
        if gap is None:
            raise
        raise DependencyError(
            f"{gap.found}; and {e.found}", where=e.where, hint=e.hint, gaps=gaps_of(gap)
        ) from e
    if gap is not None:
        captured.graphs[0].notes.insert(0, f"torch exported it, for here {gap.found}")
    return captured.bundle, captured.graphs


def _of_pipeline(
    bundle: Bundle, artifact: Artifact, options: Options, opset: int, *, only_one: bool
) -> "tuple[Bundle, list[Graph]]":
    """Have torch export the components of a pipeline, each by itself."""
    from converter.capture.pipelines import capture_pipeline

    wanted = options.signatures
    captured = capture_pipeline(artifact.path, bundle, _request(options, opset), wanted)
    graphs = _select_parts(captured.graphs, options, only_one=only_one)
    left_out = [
        LeftOut(f"graph of {name}", reason_of(e), gaps_of(e))
        for name, e in captured.failures.items()
    ]
    return _record_deviations(captured.bundle, graphs, left_out), graphs


def _request(options: Options, opset: int) -> "CaptureRequest":
    """Return how torch is to export a source."""
    from converter.capture.capture_graph import CaptureRequest

    return CaptureRequest(
        opset=opset, exporter=options.exporter, arch=options.arch, task=options.task,
        inputs=options.inputs, hinted=options.hinted_inputs, trust=options.trust,
        limits=options.limits,
    )  # fmt: skip


def _natively(bundle: Bundle, opset: int, options: Options) -> "Graph":
    """Lower a torch program; if it records no inputs, use those of a registry or an .npz file."""
    hinted, is_own = options.hinted_inputs, False
    if not hinted and options.comparison.inputs is not None:
        from converter.capture.examples import describe_arrays
        from converter.lower.states import PAST

        described = describe_arrays(options.comparison.inputs)
        hinted, is_own = tuple(s for s in described if not s.name.startswith(PAST)), True
    records = bundle.topology is not None and bundle.topology.kind == "exported_program"
    if hinted and not records and all(isinstance(spec, FixedInput) for spec in options.inputs):
        # A single input matches whatever its name in the registry.
        given = (replace(hinted[0], name=""),) if len(hinted) == 1 else hinted
        try:
            return lower_signature(
                bundle, opset, inputs=(*given, *options.inputs), state=options.state
            )
        except UsageError:
            pass  # its arguments have other names
        except (UnsupportedError, CorruptError):
            if is_own:
                raise
    return lower_signature(bundle, opset, inputs=options.inputs, state=options.state)


def _lower(bundle: Bundle, opset: int | None, options: Options, name: str | None) -> "Graph":
    """Lower with the default opset; if operators are missing there, with the one that has them."""
    try:
        return lower_signature(bundle, opset, options.trust, name, state=options.state)
    except UnsupportedError as e:
        newer = [int(n) for n in ASKED.findall(e.found)]
        if opset is not None or not newer:
            raise
        return lower_signature(bundle, max(newer), options.trust, name, state=options.state)


def _signatures(bundle: Bundle) -> list[str | None]:
    if bundle.topology is None or bundle.topology.kind != "graphdef":
        return [None]
    from converter.lower.tf.lowering import signatures

    return [*signatures(bundle)] or [None]


def reason_of(error: ConvertError) -> str:
    """Return the reason for an omission from its error."""
    return error.found if error.hint is None else f"{error.found} ({error.hint})"


def gaps_of(error: ConvertError) -> Gaps:
    """Return the unsupported items of an error: those counted, or else the one that it names."""
    if isinstance(error, UnsupportedError) and not error.gaps:
        return ((error.found.removeprefix("not supported: "), 1),)
    return error.gaps


def _record_deviations(
    bundle: Bundle, graphs: "Sequence[Graph]", left_out: Sequence[LeftOut]
) -> Bundle:
    """Record in the bundle where graphs deviate from the source."""
    from converter.lower.encoded import AS_INPUT, describe_inputs, roots

    changes: list[Normalisation] = []
    narrowed: dict[str, int] = {}
    unkept: set[str] = set()
    overwritten: set[str] = set()
    for graph in graphs:
        unkept.update(graph.unkept)
        overwritten.update(graph.overwritten)
        left_out = [
            *left_out, *(LeftOut(f"output {n}", why) for n, why in graph.left_out.items()),
        ]  # fmt: skip
        for op_type, number in graph.narrowed.items():
            narrowed[op_type] = narrowed.get(op_type, 0) + number
    if narrowed:
        detail = (
            f"{list_counts(dict(sorted(narrowed.items())))}: onnxruntime has them in no wider type"
        )
        what = "nodes computed in float32, not float64"
        changes.append(Normalisation(what, sum(narrowed.values()), detail))
    drawn = Counter(op for graph in graphs for op in graph.random.values())
    if drawn:
        ops = list_counts(dict(sorted(drawn.items())))
        detail = f"{ops}: of the same distribution, by ONNX's generator"
        changes.append(Normalisation("ops that draw other numbers", drawn.total(), detail))
    for graph in graphs:
        for one, what in zip(roots(graph.encoded), describe_inputs(graph.encoded), strict=True):
            change = Normalisation(f"{one.kind}{AS_INPUT}", len(one.parts), what)
            changes += [change] * (change not in changes)
    states = {state.tensor: state for graph in graphs for state in graph.states}
    if states:
        pairs = [f"{s.input} -> {s.output}" for s in [*states.values()][:5]]
        changes.append(
            Normalisation("states made inputs and outputs", len(states), ", ".join(pairs))
        )
    if unkept:
        detail = f"{', '.join(sorted(unkept)[:5])}: a graph keeps no state between its runs"
        changes.append(Normalisation("assignments to variables left out", len(unkept), detail))
    if overwritten:
        detail = f"{', '.join(sorted(overwritten)[:5])}: a graph leaves its inputs as they are"
        changes.append(Normalisation("writes to inputs left out", len(overwritten), detail))
    about = bundle.metadata
    metadata = replace(
        about,
        normalisations=(*about.normalisations, *changes),
        left_out=(*about.left_out, *left_out),
    )
    return replace(bundle, metadata=metadata)
