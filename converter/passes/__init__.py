"""Graph passes: each takes a graph and its weights, and changes the graph in place."""

from collections.abc import Mapping

from converter.lower.graph import Graph, needed
from converter.passes.fold_batchnorm import fold_batchnorm
from converter.passes.fold_constants import fold_constants
from converter.passes.fold_scale import fold_scale
from converter.passes.recognise_lines import recognise_lines
from formats.core.weights import Tensor

# In this order, each with its reason.
PASSES = (
    recognise_lines,  # 1-D convolutions, so that the nodes after them can be folded
    fold_constants,  # kernels in ONNX's layout, so that what follows sees initializers
    fold_scale,  # normalisations that are written as plain arithmetic, likewise
    fold_batchnorm,  # runtimes do it at load; here it halves the nodes and costs nothing
)


def run(graph: Graph, weights: Mapping[str, Tensor]) -> Graph:
    """Run all passes on a graph whose output file holds its weights itself.

    Graphs from other exporters stay unchanged: the passes know only the operators, and their
    versions, that our own lowering writes.
    """
    if graph.exporter:
        return graph
    for apply in PASSES:
        apply(graph, weights)
    return needed(graph)
