"""Merge nodes with equal operators, inputs and attributes: mostly computations of shapes."""

from collections.abc import Hashable

import numpy as np

from converter.lower.graph import Graph, Node

# Operators whose results are random, or that have subgraphs.
DIFFERENT = frozenset((
    "Bernoulli", "Dropout", "If", "Loop", "Multinomial", "RandomNormal", "RandomNormalLike",
    "RandomUniform", "RandomUniformLike", "Scan",
))  # fmt: skip


def eliminate_common_subexpressions(graph: Graph) -> None:
    """Keep only the first of equal nodes; subgraphs read its outputs too."""
    renamed: dict[str, str] = {}
    _merge(graph, renamed, {}, set(graph.outputs))


def _merge(
    graph: Graph, renamed: dict[str, str], seen: dict[Hashable, Node], kept: set[str]
) -> None:
    nodes = []
    for node in graph.nodes:
        node.inputs[:] = [renamed.get(name, name) for name in node.inputs]
        for body in node.bodies:
            # Nodes of a subgraph are visible only inside it.
            _merge(body, renamed, dict(seen), set(body.outputs))
            body.outputs[:] = [renamed.get(name, name) for name in body.outputs]
        key = _key(node)
        first = seen.get(key) if key is not None else None
        if first is None or kept.intersection(node.outputs):
            if key is not None:
                seen.setdefault(key, node)
            nodes.append(node)
            continue
        renamed.update(zip(node.outputs, first.outputs, strict=True))
    graph.nodes[:] = nodes
    graph.traces[:] = [t for t in graph.traces if t.value not in renamed]


def _key(node: Node) -> Hashable | None:
    if node.op_type in DIFFERENT or not node.inputs:
        return None
    attributes = tuple((name, _content(node.attributes[name])) for name in sorted(node.attributes))
    return (node.op_type, node.domain, tuple(node.inputs), len(node.outputs), attributes)


def _content(value: object) -> Hashable:
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    return repr(value)
