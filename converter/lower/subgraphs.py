"""Inner graphs: what those of loops and branches have in common."""

from collections.abc import Sequence
from dataclasses import replace

from converter.lower.builder import Builder
from converter.lower.graph import Graph, Node
from converter.lower.values import Value


def outputs_of(op: Builder, body: Graph, values: Sequence[Value]) -> list[str]:
    """Return names for a body's outputs: each made in it, and only once there.

    Args:
        op: The builder, in the body.
        body: Which gets a node for what was made outside, or stands there twice.
        values: In the order of axes in which they stand in the graph.
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
    """Add an input of a body, of the dtype, shape and order of axes of a value."""
    shape = tuple(like.shape[i] for i in like.stored)
    found = op.input(op.unique(base), like.dtype, shape)
    return replace(found, shape=like.shape, stored=like.stored)
