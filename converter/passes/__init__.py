"""Graph passes: each is a function of a graph and the weights it names, and changes the graph."""

from collections.abc import Mapping

from converter.lower.graph import Graph, needed
from converter.passes.fold_batchnorm import fold_batchnorm
from converter.passes.fold_constants import fold_constants
from converter.passes.fold_scale import fold_scale
from converter.passes.recognise_lines import recognise_lines
from formats.core.weights import Tensor

# In this order, each with its reason.
PASSES = (
    recognise_lines,  # convolutions of lines as such: what follows them is then behind them
    fold_constants,  # kernels in ONNX's layout, so that what follows sees initializers
    fold_scale,  # normalisations that are written as plain arithmetic, likewise
    fold_batchnorm,  # runtimes do it at load; here it halves the nodes and costs nothing
)


def run(graph: Graph, weights: Mapping[str, Tensor]) -> Graph:
    """Return the graph after all passes: for an output that holds its weights itself.

    A graph that somebody else made stays as it is: the passes know the operators, and the versions
    of them, that our own lowering writes.
    """
    if graph.exporter:
        return graph
    for apply in PASSES:
        apply(graph, weights)
    return needed(graph)
