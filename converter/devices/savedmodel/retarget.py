"""A SavedModel's graph for one device or for none, without TensorFlow.

Decides for every node of every meta graph where it is placed, merges the copies of variables that
replicas keep, and computes reductions over devices on one. Nothing is written to a file.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from converter.devices.names import tensorflow_kind
from converter.devices.savedmodel.collectives import find_reductions
from converter.devices.savedmodel.distributed_ops import needs_other_devices
from converter.devices.savedmodel.kernels import is_variable
from converter.devices.savedmodel.placement import choose_nodes
from converter.devices.savedmodel.replicas import describe_changes, merge_copies
from converter.devices.savedmodel.rewriting import GraphEdits, rewrite
from converter.devices.savedmodel.scopes import Node, Scope, read_graph
from converter.devices.savedmodel.unsupported_ops import (
    describe_ops,
    find_served_nodes,
    may_need_gpu,
    needs_gpu,
)
from formats.artifact import Artifact
from formats.containers.protobuf import text_format
from formats.containers.protobuf.encoder import encode
from formats.containers.protobuf.messages import Message, decode
from formats.containers.protobuf.rewriting import Pieces
from formats.core.bundle import Normalisation
from formats.core.plurals import count, list_counts
from formats.core.storage import Buffer, Span
from formats.errors import UnsupportedError
from formats.tensorflow.savedmodel import BINARY, TEXT
from formats.tensorflow.schemas import SCHEMA


@dataclass(frozen=True, slots=True)
class RetargetedGraph:
    """A SavedModel's graph with its placements changed.

    Attributes:
        pieces: The bytes of ``saved_model.pb``, most of them spans of the source.
        normalisations: What was changed, counted over all meta graphs.
        warnings: What was found and is kept as it is.
        placed: How many nodes name the device.
    """

    pieces: Pieces
    normalisations: tuple[Normalisation, ...]
    warnings: tuple[str, ...]
    placed: int


def retarget_graph(artifact: Artifact, device: str) -> RetargetedGraph:
    """Return the graph of a SavedModel as it is for a device.

    Args:
        artifact: The SavedModel's folder, or its graph alone.
        device: As `parse_tensorflow_device` returns it; ``""`` removes all placements.

    Raises:
        UnsupportedError: No single device can run its signatures.
        CorruptError: The graph is damaged.
    """
    span = _read_graph(artifact)
    message = decode(span, SCHEMA["SavedModel"], artifact.limits)
    plans: list[GraphEdits] = []
    unsupported: list[str] = []
    warnings: list[str] = []
    for meta_graph in message.meta_graphs:
        edits, needs, notes = _plan_edits(meta_graph, artifact, device, span.name)
        plans.append(edits)
        unsupported += needs
        warnings += notes
    if unsupported:
        raise UnsupportedError(
            f"the signatures need {'; '.join(dict.fromkeys(unsupported))}", where=artifact.path
        )
    pieces = rewrite(span, plans)
    return RetargetedGraph(
        pieces=pieces,
        normalisations=tuple(_normalisations(plans, device)),
        warnings=tuple(dict.fromkeys(warnings)),
        placed=sum(plan.counts["placed"] for plan in plans),
    )


def why_incomparable(normalisations: Iterable[Normalisation]) -> str:
    """Return why the source itself computes something else on one device; ``""`` if it does not.

    Args:
        normalisations: Of its retargeted graph.
    """
    names = {change.name for change in normalisations}
    if names & {"reads of copies of sums made zeros", "updates of copies stopped"}:
        return "on one device, the source itself counts or updates once for each replica"
    if "reductions over devices" in names:
        return "on one device, the source itself waits for others"
    return ""


def _read_graph(artifact: Artifact) -> Span:
    """Return the graph in the wire format; a text file is parsed and encoded."""
    name = BINARY if BINARY in artifact.names else TEXT
    file = artifact.file if artifact.is_file else artifact.member(name)
    span = Span.whole(file)
    if span.length and span.read(0, 1)[0] not in (0x08, 0x12):
        text = text_format.parse(span, SCHEMA["SavedModel"], SCHEMA, artifact.limits, complete=True)
        span = Span.whole(Buffer(encode(text), span.name))
    return span


def _plan_edits(
    meta_graph: Message, artifact: Artifact, device: str, where: str
) -> tuple[GraphEdits, list[str], list[str]]:
    """Return the edits of a meta graph, what its signatures need in vain, and warnings."""
    graph = read_graph(meta_graph, artifact.limits, where)
    changes = merge_copies(graph, meta_graph.object_graph_def)
    chosen = choose_nodes(graph, device)
    left = {
        node.name
        for node in graph.main.nodes.values()
        if is_variable(node) and ("", node.name) not in chosen
    }
    alone = find_reductions(graph)
    edits = GraphEdits(graph, device, chosen, changes, unplaced_variables=left, reductions=alone)
    done = alone.found

    def remaining(found: Iterable[tuple[Scope, Node]]) -> list[tuple[Scope, Node]]:
        return [(s, n) for s, n in found if (s.name, n.name) not in done]

    reached = remaining(find_served_nodes(graph, meta_graph))
    everything = remaining((s, n) for s in graph.scopes for n in s.nodes.values())
    unsupported, warnings = [], []
    partners = [x for x in reached if needs_other_devices(x[1].op)]
    if partners:
        unsupported.append(f"devices that work together: {describe_ops(partners)}")
    elif rest := [x for x in everything if needs_other_devices(x[1].op)]:
        warnings.append(f"outside of the signatures, devices work together: {describe_ops(rest)}")
    on_gpu = [x for x in reached if needs_gpu(x[1])]
    if on_gpu and tensorflow_kind(device) == "CPU":
        unsupported.append(f"a GPU: {describe_ops(on_gpu)}")
    elif on_gpu and not device:
        warnings.append(f"only a GPU runs {describe_ops(on_gpu)}")
    rarely = [x for x in reached if may_need_gpu(x[1])]
    if rarely and tensorflow_kind(device) != "GPU":
        warnings.append(
            f"channels first, a GPU runs this, and a CPU only with oneDNN: {describe_ops(rarely)}"
        )
    return edits, unsupported, warnings


def _normalisations(plans: list[GraphEdits], device: str) -> Iterator[Normalisation]:
    """Yield what was changed, all meta graphs together."""
    counts: Counter[str] = Counter()
    cleared: Counter[str] = Counter()
    for edits in plans:
        counts += edits.counts
        cleared += edits.cleared
        counts["reductions over devices"] += edits.reductions.counts.total()
        for text in describe_changes(edits.changes):
            number, _, what = text.partition(" ")
            counts[what] += int(number)
    if cleared:
        detail = list_counts(dict(sorted(cleared.items())))
        yield Normalisation("placements cleared", cleared.total(), detail)
    if device:
        yield Normalisation(
            "placements set",
            counts["placed"] + counts["variables placed"],
            f"{device}, of {count('node', counts['placed'])} and "
            f"{count('variable', counts['variables placed'])} of the object graph; the others go "
            "where their kernels and variables are",
        )
    for name in (
        "copies of variables made one",
        "reads of copies of sums made zeros",
        "updates of copies stopped",
        "reductions over devices",
        "variables of replicas",
        "colocations",
        "allowed devices",
    ):
        if counts[name]:
            yield Normalisation(name, counts[name], _DETAILS[name])


_DETAILS = {
    "copies of variables made one": "each replica's own are gone from the graph",
    "reads of copies of sums made zeros": "the sum over replicas is in the first one",
    "updates of copies stopped": "the first one is updated",
    "reductions over devices": "computed on one, of all their inputs",
    "variables of replicas": "made plain variables of the object graph",
    "colocations": "bound to the first copy",
    "allowed devices": "of variables that spanned devices, taken away",
}
