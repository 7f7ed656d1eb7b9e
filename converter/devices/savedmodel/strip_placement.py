"""A SavedModel of several devices as one of none, in memory: what lowering starts from."""

from collections.abc import Mapping
from dataclasses import replace

from converter.devices.savedmodel.distributed_ops import needs_partners
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.core.storage import Buffer, Span
from formats.tensorflow.savedmodel import BINARY


def on_no_device(bundle: Bundle, artifact: Artifact) -> Bundle:
    """Return a bundle whose graph has one copy of each variable, and waits for no other device.

    Any other bundle is returned as it is.

    Raises:
        UnsupportedError: It needs what no single device can do.
    """
    topology = bundle.topology
    if bundle.metadata.format != "savedmodel" or topology is None:
        return bundle
    if not bundle.metadata.distribution and not _has_partners(topology.summary):
        return bundle
    from converter.write.savedmodel.folder import plan

    made = plan(bundle, artifact, "")
    data = b"".join(p.read() if isinstance(p, Span) else p for p in made.graph)
    about = bundle.metadata
    changes = made.bundle.metadata.normalisations
    return replace(
        bundle,
        topology=replace(topology, content={BINARY: Span.whole(Buffer(data, BINARY))}),
        metadata=replace(about, normalisations=(*about.normalisations, *changes)),
    )


def _has_partners(summary: Mapping[str, object]) -> bool:
    """Tell whether any graph has ops that wait for other devices."""
    graphs = summary.get("meta_graphs")
    several = graphs.values() if isinstance(graphs, Mapping) else [summary]
    found = [g.get("ops") for g in several if isinstance(g, Mapping)]
    return any(needs_partners(str(op)) for ops in found if isinstance(ops, Mapping) for op in ops)
