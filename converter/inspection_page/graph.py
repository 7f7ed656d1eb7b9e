"""Data of the page about graphs: nodes by blocks of their names, and the values between them.

A graph of more than `MOST` nodes is drawn with the nodes of its deepest blocks as one each.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from converter.inspection_page.circles import split_circles
from converter.inspection_page.name_tree import SCOPES, Block, build_tree, split_name

if TYPE_CHECKING:
    from converter.lower.graph import Attribute, Graph, Node, Spec

MOST = 20_000  # nodes on the page
SHOWN = 12  # attributes, weights, inputs and outputs of a node
LONGEST = 200  # characters of a name or an attribute


def describe_graph(graph: "Graph") -> dict[str, Any]:
    """Return a graph as JSON: a tree of nodes, and edges between nodes with dtypes and shapes."""
    scopes = (_name_node(node, graph) for node in graph.nodes)
    names = [*_unique([*map(_flat, graph.inputs), *scopes])]
    numbers = _merge_deep(names)
    shown = [*dict.fromkeys(numbers.values())]
    index = {name: i for i, name in enumerate(shown)}
    items: list[dict[str, Any]] = [{} for _ in shown]
    edges: dict[tuple[int, int, str], None] = {}
    computed = set(graph.inputs)  # values that depend on inputs
    producers: dict[str, int] = {}
    for name, value in zip(names, graph.inputs, strict=False):
        producers[value] = index[numbers[name]]
        items[producers[value]] = {
            "op": "input", "name": value[:LONGEST], "out": [[value[:LONGEST], _type(graph, value)]],
        }  # fmt: skip
    for name, node in zip(names[len(graph.inputs) :], graph.nodes, strict=True):
        number = index[numbers[name]]
        if items[number]:  # nodes of a deep block that are one
            items[number]["count"] = items[number].get("count", 1) + 1
        else:
            items[number] = _describe_node(graph, node)
            if numbers[name] != name:
                items[number]["name"] = numbers[name][:LONGEST]
        read = [*_read_values(node)]
        if not computed.isdisjoint(read) or not read:
            computed.update(node.outputs)
            items[number]["computed"] = True
        for value in read:
            source = producers.get(value)
            if source is not None and source != number:
                edges[source, number, value] = None
        producers.update((value, number) for value in node.outputs if value)
    values = {value: i for i, value in enumerate(dict.fromkeys(value for _, _, value in edges))}
    pairs = [*dict.fromkeys((a, b) for a, b, _ in edges)]
    classes = {trace.layer: trace.class_name for trace in graph.traces}
    return {
        "signature": graph.signature,
        "opset": graph.opset,
        "nodes": len(graph.nodes),
        "exporter": graph.exporter,
        "inputs": [[name, _type(graph, name)] for name in graph.inputs],
        "outputs": [[name, _type(graph, name)] for name in graph.outputs],
        "merged": len(names) - len(shown),
        "tree": _plain_tree(split_circles(build_tree(shown, SCOPES), pairs), "", classes),
        "items": items,
        "edges": [[source, to, values[value]] for source, to, value in edges],
        "values": [[_type(graph, value), value in computed] for value in values],
    }


def _name_node(node: "Node", graph: "Graph") -> str:
    """Return the name of a node, whose scopes are the blocks that it is in."""
    if _is_output(node, graph):
        return _flat(node.outputs[0])
    if node.name:
        return node.name
    value = next(filter(None, node.outputs), "")
    return value if node.op_type in value else f"{value}/{node.op_type}".removeprefix("/")


def _flat(name: str) -> str:
    """Return a name of an input or output without scopes."""
    return name.replace("/", "\u2215")


def _is_output(node: "Node", graph: "Graph") -> bool:
    return node.op_type == "Identity" and node.outputs[0] in graph.outputs


def _unique(names: Iterable[str]) -> Iterable[str]:
    """Yield names, with a number after those that are not the first."""
    seen: set[str] = set()
    for i, name in enumerate(names):
        fresh = name if name not in seen else f"{name} ({i})"
        seen.add(fresh)
        yield fresh


def _merge_deep(names: list[str]) -> dict[str, str]:
    """Return name → itself, or the block whose nodes are drawn as one."""
    if len(names) <= MOST:
        return dict(zip(names, names, strict=True))
    parts = [split_name(name, SCOPES) for name in names]
    for depth in range(max(map(len, parts)) - 1, 0, -1):
        merged = {name: "".join(p[:depth]) for name, p in zip(names, parts, strict=True)}
        if len(set(merged.values())) <= MOST:
            return merged
    # A graph without blocks: runs of its nodes.
    size = -(-len(names) // MOST)
    return {name: names[i // size * size] for i, name in enumerate(names)}


def _read_values(node: "Node") -> Iterable[str]:
    from converter.lower.graph import free_names

    yield from node.inputs
    for body in node.bodies:
        yield from free_names(body)


def _describe_node(graph: "Graph", node: "Node") -> dict[str, Any]:
    is_output = _is_output(node, graph)
    weights = [name for name in node.inputs if name in graph.initializers]
    described = {
        "op": "output" if is_output else node.op_type,
        "domain": node.domain,
        "name": node.outputs[0][:LONGEST] if is_output else node.name[:LONGEST],
        "attributes": {key: _text(value) for key, value in [*node.attributes.items()][:SHOWN]},
        "weights": [[name[:LONGEST], _type(graph, name)] for name in weights[:SHOWN]],
        "in": [
            [name[:LONGEST], _type(graph, name)]
            for name in node.inputs[:SHOWN]
            if name and name not in graph.initializers
        ],
        "out": [[name[:LONGEST], _type(graph, name)] for name in node.outputs[:SHOWN] if name],
    }
    return {key: value for key, value in described.items() if value}


def _type(graph: "Graph", value: str) -> str:
    spec: Spec | None = graph.specs.get(value)
    if spec is None:
        held = graph.initializers.get(value)
        shape, dtype = getattr(held, "shape", None), getattr(held, "dtype", "")
        return "" if shape is None else _spell(str(dtype), shape)
    if spec.type:
        return "not a tensor"
    return f"{spec.dtype} of any rank" if spec.unranked else _spell(spec.dtype, spec.shape)


def _spell(dtype: str, shape: Iterable[object]) -> str:
    sizes = "\u00d7".join("?" if size is None else str(size) for size in shape)
    return f"{dtype} {sizes or 'scalar'}"[:LONGEST]


def _text(value: "Attribute") -> str:
    from converter.lower.graph import Graph

    if isinstance(value, Graph):
        return f"a graph of {len(value.nodes)} nodes"
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _plain_tree(block: Block, path: str, classes: dict[str, str]) -> list[Any]:
    """Return a block as JSON: its label, the class of its layer, and its members."""
    inner = path if block.is_run else path + block.label
    return [
        block.label.rstrip("/")[:LONGEST] or "/",
        "" if block.is_run else classes.get(inner.rstrip("/"), ""),
        [
            _plain_tree(member, inner, classes) if isinstance(member, Block) else member
            for member in block.members
        ],
    ]
