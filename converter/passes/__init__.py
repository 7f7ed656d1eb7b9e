"""Graph passes: each changes a graph in place; those that fold weights also read them."""

from collections.abc import Mapping

from converter.lower.graph import Graph, needed
from converter.passes.eliminate_common_subexpressions import eliminate_common_subexpressions
from converter.passes.fold_batchnorm import fold_batchnorm
from converter.passes.fold_constants import fold_constants
from converter.passes.fold_scale import fold_scale
from converter.passes.recognise_gelu import recognise_gelu
from converter.passes.recognise_lines import recognise_lines
from converter.passes.sink_into_branches import sink_into_branches
from formats.core.weights import Tensor
from formats.errors import UnsupportedError

# In this order, each with its reason.
SIMPLIFICATIONS = (
    eliminate_common_subexpressions,  # front ends compute the same shapes again and again
    recognise_gelu,  # runtimes have a kernel for it
    sink_into_branches,  # what only one branch of an If needs is computed there alone
)
PASSES = (
    recognise_lines,  # 1-D convolutions, so that the nodes after them can be folded
    fold_constants,  # kernels in ONNX's layout, so that what follows sees initializers
    fold_scale,  # normalisations that are written as plain arithmetic, likewise
    fold_batchnorm,  # runtimes do it at load; here it halves the nodes and costs nothing
)
MAX_DEPTH = 30  # graphs in graphs: protobuf's readers stop at 100 messages, three for each


def simplify(graph: Graph) -> None:
    """Simplify a graph that our own lowering made, whatever file it is written to.

    Raises:
        UnsupportedError: Branches and loops are nested too deeply for a protobuf.
    """
    if graph.exporter:
        return
    for apply in SIMPLIFICATIONS:
        apply(graph)
    if _depth(graph) > MAX_DEPTH:
        raise UnsupportedError(f"branches and loops in each other, more than {MAX_DEPTH} deep")


def _depth(graph: Graph) -> int:
    """Return how deeply graphs are nested in a graph."""
    return max((_depth(body) + 1 for node in graph.nodes for body in node.bodies), default=0)


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
