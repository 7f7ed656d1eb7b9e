"""Replace `x * erfc(-x / sqrt(2)) / 2` by `x * (1 + erf(x / sqrt(2))) / 2`, which runtimes fuse.

Keras 3 computes gelu by erfc, which ONNX lacks: with an exact tail, it takes about twenty nodes. In
gelu, the tail is multiplied by x, and its error is below the float32 precision of results for
ordinary x. onnxruntime fuses the form with erf into one kernel.
"""

from math import sqrt

import numpy as np

from converter.lower.graph import Graph, Node, Spec, needed

CLOSE = 1e-6
ROOT = sqrt(0.5)


def recognise_gelu(graph: Graph) -> None:
    """Rewrite each gelu to the form that runtimes fuse."""
    made = {name: node for node in graph.nodes for name in node.outputs}
    nodes: list[Node] = []
    found = False
    for node in graph.nodes:
        match = _match(graph, made, node) if node.op_type == "Mul" else None
        if match is None:
            nodes.append(node)
            continue
        found = True
        nodes += _gelu(graph, node, *match)
    if found:
        graph.nodes[:] = nodes
        graph.nodes[:] = needed(graph).nodes


def _match(graph: Graph, made: dict[str, Node], node: Node) -> tuple[str, float] | None:
    """Return x and factor where a node is `factor * x * erfc(-x / sqrt(2))`, else None."""
    for left, right in (node.inputs, node.inputs[::-1]):
        inner = _erfc_of(graph, made, right)
        scaled = _match_scale(graph, made, inner) if inner is not None else None
        if scaled is None or abs(scaled[1] + ROOT) > CLOSE:
            continue
        x = scaled[0]
        if left == x:
            return x, 1.0
        factor = _match_scale(graph, made, left)
        if factor is not None and factor[0] == x and graph.specs[x].dtype == "float32":
            return factor
    return None


def _erfc_of(graph: Graph, made: dict[str, Node], name: str) -> str | None:
    """Return u where a value is `erfc(u)`, as computed by `converter.lower.ops.special`."""
    where = made.get(name)
    if where is None or where.op_type != "Where":
        return None
    near, above = made.get(where.inputs[2]), made.get(where.inputs[0])
    if near is None or above is None or (near.op_type, above.op_type) != ("Sub", "Greater"):
        return None
    erf = made.get(near.inputs[1])
    if erf is None or erf.op_type != "Erf" or _number(graph, near.inputs[0]) != 1:
        return None
    return erf.inputs[0] if above.inputs[0] == erf.inputs[0] else None


def _match_scale(graph: Graph, made: dict[str, Node], name: str) -> tuple[str, float] | None:
    """Return x and c where a value is `c * x`, else None."""
    node, factor = made.get(name), 1.0
    while node is not None and node.op_type in ("Mul", "Neg", "Div"):
        if node.op_type == "Neg":
            name, factor = node.inputs[0], -factor
        else:
            numbers = [_number(graph, n) for n in node.inputs]
            if numbers[1] is not None:
                name = node.inputs[0]
                factor = factor * numbers[1] if node.op_type == "Mul" else factor / numbers[1]
            elif numbers[0] is not None and node.op_type == "Mul":
                name, factor = node.inputs[1], factor * numbers[0]
            else:
                break
        node = made.get(name)
    return (name, factor) if factor != 1.0 else None


def _number(graph: Graph, name: str) -> float | None:
    found = graph.initializers.get(name)
    if isinstance(found, np.ndarray) and found.size == 1 and found.dtype == np.float32:
        return float(found.reshape(-1)[0])
    return None


def _gelu(graph: Graph, node: Node, x: str, factor: float) -> list[Node]:
    out = node.outputs[0]
    spec = Spec("float32", graph.specs[out].shape)
    names = {step: f"{out}/{step}" for step in ("divided", "erf", "raised", "product")}
    for name in names.values():
        graph.specs[name] = spec

    def constant(value: float) -> str:
        name = f"{out}/{value:.4g}"
        graph.initializers[name] = np.array(value, "float32")
        graph.specs[name] = Spec("float32", ())
        return name

    return [
        Node("Div", [x, constant(sqrt(2))], [names["divided"]], {}, names["divided"]),
        Node("Erf", [names["divided"]], [names["erf"]], {}, names["erf"]),
        Node("Add", [names["erf"], constant(1.0)], [names["raised"]], {}, names["raised"]),
        Node("Mul", [x, names["raised"]], [names["product"]], {}, names["product"]),
        Node("Mul", [names["product"], constant(factor)], [out], {}, out),
    ]
