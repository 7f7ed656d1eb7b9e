"""The graphs of a pipeline of diffusers: one of each component, of an autoencoder two.

Each component is a folder that is exported by itself. A component that has no graph is left to the
caller to report, as long as another one has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from converter.capture.capture_graph import CaptureRequest, capture_graphs
from converter.capture.diffusion_models import DECODER, ENCODER
from converter.capture.matching import PREFIX
from converter.lower.graph import Graph
from formats import components, hugging_face
from formats.core.bundle import Bundle, Topology
from formats.errors import ConvertError, CorruptError, UnsupportedError, UsageError

FIRST = ("unet", "transformer", "prior")  # components whose graph is the default one


@dataclass(frozen=True, slots=True)
class CapturedPipeline:
    """Graphs, the bundle whose weights they name, and the errors of components without a graph."""

    bundle: Bundle
    graphs: tuple[Graph, ...]
    failures: dict[str, ConvertError]


def list_components(topology: Topology) -> list[str]:
    """Return the folders of a pipeline's components that have weights, the default one first."""
    content = topology.content if isinstance(topology.content, dict) else {}
    weights = content.get("weights")
    found = [str(name) for name in weights] if isinstance(weights, list) else []
    return sorted(found, key=lambda name: name not in FIRST)


def find_component(topology: Topology | None, signature: str) -> str:
    """Return the folder of the component that a graph is of; empty if the source has only one."""
    if topology is None or topology.kind != components.DIFFUSERS:
        return ""
    known = list_components(topology)
    parts = {f"{name}_{part}": name for name in known for part in (ENCODER, DECODER)}
    return signature if signature in known else parts.get(signature, "")


def capture_pipeline(
    source: Path, bundle: Bundle, request: CaptureRequest, wanted: Sequence[str]
) -> CapturedPipeline:
    """Return the graphs that torch exports from the components of a pipeline.

    Args:
        source: Its folder.
        bundle: As read from it.
        request: How they are exported.
        wanted: Names of graphs; all, if empty.

    Raises:
        UnsupportedError: No component has a graph, or one that is wanted has none.
        UsageError: There is no component of that name.
        ConvertError: As `capture_graphs`.
    """
    assert bundle.topology is not None
    known = list_components(bundle.topology)
    chosen = [find_component(bundle.topology, name) for name in wanted] or known
    if "" in chosen:
        name = wanted[chosen.index("")]
        raise UsageError(f"has no component {name!r}", expected=", ".join(known))
    configs = components.configs_of(bundle.topology)
    weights = dict(bundle.weights)
    graphs: list[Graph] = []
    failures: dict[str, ConvertError] = {}
    for folder in dict.fromkeys(chosen):
        part = replace(
            bundle,
            weights={n: t for n, t in weights.items() if n.startswith((f"{folder}/", PREFIX))},
            topology=Topology(hugging_face.DIFFUSERS, {}, dict(configs.get(folder, {}))),
        )
        try:
            captured = capture_graphs(source / folder, part, request)
        except (UnsupportedError, CorruptError) as e:
            if wanted or len(known) == 1:
                raise
            failures[folder] = e
            continue
        weights |= captured.bundle.weights
        graphs += captured.graphs
    if not graphs:
        raise next(iter(failures.values()))
    return CapturedPipeline(replace(bundle, weights=weights), tuple(graphs), failures)
