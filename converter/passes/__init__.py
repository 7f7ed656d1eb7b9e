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

# Passes in the order in which they run, each with its reason.
SIMPLIFICATIONS = (
    eliminate_common_subexpressions,  # front ends compute the same shapes again and again
    recognise_gelu,  # runtimes have a kernel for it
    sink_into_branches,  # nodes that only one branch of an If needs run only in that branch
)
PASSES = (
    recognise_lines,  # 1-D convolutions, so that the nodes after them can be folded
    fold_constants,  # kernels in ONNX's layout, so that later passes see initializers
    fold_scale,  # normalizations that are written as plain arithmetic
    fold_batchnorm,  # runtimes do it at load; here it halves the nodes and costs nothing
)
MAX_DEPTH = 30  # of nested subgraphs: protobuf readers allow 100 messages, three for each level


def simplify(graph: Graph) -> None:
    """Simplify a graph of convert's own lowering, for every output format.

    Raises:
        UnsupportedError: Branches and loops are nested too deeply for a protobuf.
    """
    if graph.exporter:
        return
    for apply in SIMPLIFICATIONS:
        apply(graph)
    if _depth(graph) > MAX_DEPTH:
        raise UnsupportedError(f"branches and loops nested more than {MAX_DEPTH} deep")


def _depth(graph: Graph) -> int:
    """Return the nesting depth of subgraphs in a graph."""
    return max((_depth(body) + 1 for node in graph.nodes for body in node.bodies), default=0)


def run(graph: Graph, weights: Mapping[str, Tensor]) -> Graph:
    """Run all passes on a graph whose output file contains its weights.

    Graphs from other exporters are not changed: the passes support only the operators, and their
    versions, that convert's own lowering writes.
    """
    if graph.exporter:
        return graph
    for apply in PASSES:
        apply(graph, weights)
    return needed(graph)
