"""Remove device placements and merge replicated variables before lowering."""

from collections.abc import Mapping
from dataclasses import replace

from converter.devices.savedmodel.distributed_ops import needs_other_devices
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.core.storage import Buffer, Span
from formats.tensorflow.savedmodel import BINARY


def strip_placement(bundle: Bundle, artifact: Artifact) -> Bundle:
    """Return a SavedModel's bundle with one copy of each variable and no ops over several devices.

    A bundle that has neither replicas nor such ops is returned as it is.

    Raises:
        UnsupportedError: No single device can run its signatures.
    """
    topology = bundle.topology
    if topology is None:
        return bundle
    if not bundle.metadata.distribution and not _has_partners(topology.summary):
        return bundle
    # Imported late: most sources that are lowered have nothing to strip.
    from converter.devices.savedmodel.retarget import retarget_graph

    graph = retarget_graph(artifact, device="")
    data = b"".join(p.read() if isinstance(p, Span) else p for p in graph.pieces)
    about = bundle.metadata
    return replace(
        bundle,
        topology=replace(topology, content={BINARY: Span.whole(Buffer(data, BINARY))}),
        metadata=replace(about, normalisations=(*about.normalisations, *graph.normalisations)),
    )


def _has_partners(summary: Mapping[str, object]) -> bool:
    """Return whether a graph has ops that wait for other devices."""
    graphs = summary.get("meta_graphs")
    several = graphs.values() if isinstance(graphs, Mapping) else [summary]
    found = [g.get("ops") for g in several if isinstance(g, Mapping)]
    return any(
        needs_other_devices(str(op)) for ops in found if isinstance(ops, Mapping) for op in ops
    )
