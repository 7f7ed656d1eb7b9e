"""Inputs and outputs of the subgraphs of loops and branches."""

from collections.abc import Sequence
from dataclasses import replace

from converter.lower.builder import Builder
from converter.lower.graph import Graph, Node
from converter.lower.values import Value


def outputs_of(op: Builder, body: Graph, values: Sequence[Value]) -> list[str]:
    """Return distinct names for a subgraph's outputs, each computed by a node of the subgraph.

    Args:
        op: Builder, in the subgraph.
        body: Subgraph; gets an Identity for an outer value and for a second use of a value.
        values: Outputs, in their stored order of axes.
    """
    made = {name for node in body.nodes for name in node.outputs}
    names: list[str] = []
    for value in values:
        name = value.name
        if name not in made or name in names:
            name = op.unique("out")
            body.nodes.append(Node("Identity", [value.name], [name], {}, name))
            body.specs[name] = body.specs[value.name]
        names.append(name)
    return names


def state_input(op: Builder, base: str, like: Value) -> Value:
    """Add an input to a subgraph, with the dtype, shape and stored order of a value."""
    shape = tuple(like.shape[i] for i in like.stored)
    found = op.input(op.unique(base), like.dtype, shape)
    return replace(found, shape=like.shape, stored=like.stored)
