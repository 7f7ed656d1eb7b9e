"""The nodes that a trusted lowering built, checked and added to the graph."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from converter.lower import emit, plain_graph
from converter.lower.builder import Builder
from converter.lower.graph import Attribute, Graph, Node, Spec, Weight
from converter.lower.keras.table import Masked
from converter.lower.values import Value


def splice(
    op: Builder, answer: Mapping[str, Any], values: Sequence[Value], weights: Mapping[str, str]
) -> Any:
    """Put the nodes of an answer into the graph, and return the values that a handler would.

    Raises:
        MalformedGraphError: The answer is not a graph.
    """
    given = [f"in/{i}" for i in range(len(values))]
    graph = plain_graph.decode(answer.get("graph"), "lowering", op.graph.opset, given, weights)
    _check(graph, op, weights)
    names: dict[str, Value] = dict(zip(given, values, strict=True))
    for name, initializer in graph.initializers.items():
        if isinstance(initializer, Weight):
            names[name] = op.weight(weights[initializer.tensor])
        elif isinstance(initializer, np.ndarray):
            names[name] = op.constant(initializer)
    for node in graph.nodes:
        known = {name: value.name for name, value in names.items()}
        made = op.node(
            node.op_type,
            [names[name] if name else None for name in node.inputs],
            [(graph.specs[n].dtype, graph.specs[n].shape) for n in node.outputs],
            attributes={k: _rename(op, v, known) for k, v in node.attributes.items()},
            domain=node.domain,
        )
        names.update(zip(node.outputs, made, strict=True))

    outputs = [names[name] for name in graph.outputs]
    count, masks = answer.get("outputs"), answer.get("masks")
    known_masks = [m for m in masks if m is True] if isinstance(masks, list) else []
    if not isinstance(count, int) or count < 1 or count + len(known_masks) != len(outputs):
        raise plain_graph.MalformedGraphError("other outputs than it says")
    found = outputs[:count]
    value = found[0] if len(found) == 1 else found
    if not answer.get("decides"):
        return value
    rest = iter(outputs[count:])
    return Masked(value, [next(rest) if m is True else None for m in masks or ()])


def _check(graph: Graph, op: Builder, weights: Mapping[str, str]) -> None:
    """Check the nodes with onnx, and its inferred shapes against the declared ones."""
    for node in graph.nodes:
        for name in (*node.outputs, *graph.outputs):
            if name not in graph.specs:
                raise plain_graph.MalformedGraphError(f"nothing is said of the value {name!r:.80}")
    # Weights are inputs here: their values say nothing.
    initializers = {n: i for n, i in graph.initializers.items() if isinstance(i, np.ndarray)}
    inputs = [*graph.inputs, *(n for n in graph.initializers if n not in initializers)]
    for name, initializer in graph.initializers.items():
        if isinstance(initializer, Weight):
            tensor = op.weights[weights[initializer.tensor]]
            graph.specs[name] = Spec(tensor.dtype.name, tensor.shape)
    outputs = list(dict.fromkeys(o for n in graph.nodes for o in n.outputs if o in graph.outputs))
    if not outputs:
        return  # it passes on its input
    alone = Graph(
        "lowering", graph.opset, graph.nodes, inputs, outputs, graph.specs, dict(initializers)
    )
    pieces = emit.model(alone, {}).pieces()
    model = b"".join(p for p in pieces if isinstance(p, bytes))
    problem = plain_graph.problem(model, graph.specs)
    if problem:
        raise plain_graph.MalformedGraphError(problem)


def _rename(op: Builder, value: Attribute, known: Mapping[str, str]) -> Attribute:
    """Return an attribute whose graph, if it is one, has names that nothing else has."""
    if not isinstance(value, Graph):
        return value
    names = dict(known)
    made: list[str] = [*value.inputs, *(o for n in value.nodes for o in n.outputs)]
    for name in made:
        names[name] = op.unique("inner")
        if name in value.specs:
            op.graph.specs[names[name]] = value.specs[name]
    nodes = [
        Node(
            n.op_type,
            [names[i] if i else "" for i in n.inputs],
            [names[o] for o in n.outputs],
            {k: _rename(op, v, names) for k, v in n.attributes.items()},
            op.unique(n.op_type),
            n.domain,
        )
        for n in value.nodes
    ]
    return Graph(
        op.unique("body"),
        value.opset,
        nodes,
        [names[n] for n in value.inputs],
        [names[n] for n in value.outputs],
        op.graph.specs,
    )
