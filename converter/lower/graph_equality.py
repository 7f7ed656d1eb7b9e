"""Compare graphs for equality: SavedModels have one function under several names."""

from collections.abc import Hashable
from operator import itemgetter

import numpy as np

from converter.lower.graph import Attribute, Folded, Graph, Weight


def equality_key(graph: Graph) -> Hashable:
    """Return a key that is equal for graphs that differ only in the names of inner values."""
    return _of(graph, {}, graph)


def _of(graph: Graph, numbers: dict[str, int], outermost: Graph) -> Hashable:
    def number(name: str) -> Hashable:
        if not name:
            return None
        found = outermost.initializers.get(name)
        if isinstance(found, Weight):
            return found.tensor
        if isinstance(found, Folded):
            return (name, found.shape)  # its function cannot be compared
        if found is not None:
            return (found.dtype.str, found.shape, _content(found))
        return numbers.setdefault(name, len(numbers))

    inputs = [(name if graph is outermost else "", number(name)) for name in graph.inputs]
    specs = [(graph.specs[n].dtype, graph.specs[n].shape) for n in graph.inputs]
    nodes = [
        (
            node.op_type,
            node.domain,
            tuple(number(n) for n in node.inputs),
            tuple(number(n) for n in node.outputs),
            tuple(
                (name, _attribute(value, numbers, outermost))
                for name, value in sorted(node.attributes.items(), key=itemgetter(0))
            ),
        )
        for node in graph.nodes
    ]
    outputs = [(name if graph is outermost else "", number(name)) for name in graph.outputs]
    sizes = tuple(tuple(isinstance(n, int) and n for n in shape) for _, shape in specs)
    kinds = tuple(dtype for dtype, _ in specs)
    return (tuple(inputs), kinds, sizes, tuple(nodes), tuple(outputs))


def _attribute(value: Attribute, numbers: dict[str, int], outermost: Graph) -> Hashable:
    if isinstance(value, Graph):
        return repr(_of(value, numbers, outermost))
    if isinstance(value, np.ndarray):
        return repr((value.dtype.str, value.shape, _content(value)))
    return repr(value)


def _content(array: np.ndarray) -> Hashable:
    return tuple(array.flat) if array.dtype.kind == "O" else array.tobytes()
