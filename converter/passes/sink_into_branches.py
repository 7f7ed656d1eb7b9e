"""Move nodes that only one branch of an If needs into that branch.

TensorFlow 1 has no subgraphs: both sides of a condition are ordinary nodes, joined by a Merge that
lowering replaces by an If. Computing the side that is not taken may be slow, fail, or not end. Ifs
with the same condition that do not depend on each other are merged, so that they share nodes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from converter.lower.graph import Graph, Node, free_names

Reader = int | tuple[int, str]  # a node by its identity, or a branch of an If


def sink_into_branches(graph: Graph) -> None:
    """Move nodes into the branches that need them, in a graph and all its subgraphs."""
    if any(node.op_type == "If" for node in graph.nodes):
        _join(graph)
        _sink(graph)
    for node in graph.nodes:
        for _, inner in _bodies(node):
            sink_into_branches(inner)


def _bodies(node: Node) -> Iterator[tuple[str, Graph]]:
    for key, value in node.attributes.items():
        if isinstance(value, Graph):
            yield key, value


# -- merging Ifs -----------------------------------------------------------------------------------


def _join(graph: Graph) -> None:
    """Merge consecutive Ifs with the same condition."""
    last: dict[str, Node] = {}
    for node in list(graph.nodes):
        if node.op_type != "If":
            continue
        before = last.get(node.inputs[0])
        if before is not None:
            _behind(graph, before, node)
        last[node.inputs[0]] = node


def _behind(graph: Graph, first: Node, second: Node) -> None:
    """Merge two Ifs at the position of the second, unless it depends on outputs of the first."""
    nodes = graph.nodes
    start = next(i for i, n in enumerate(nodes) if n is first)
    stop = next(i for i, n in enumerate(nodes) if n is second)
    yielded = set(first.outputs)
    kept, later = [], []
    for node in nodes[start + 1 : stop]:
        if yielded.isdisjoint(_read(node)):
            kept.append(node)
        else:
            later.append(node)
            yielded.update(node.outputs)
    if not yielded.isdisjoint(_read(second)):
        return
    for key, body in _bodies(second):
        other = first.attributes[key]
        assert isinstance(other, Graph)
        body.nodes[:0] = other.nodes
        body.outputs[:0] = other.outputs
        body.specs = {**other.specs, **body.specs}
    second.outputs[:0] = first.outputs
    nodes[start : stop + 1] = [*kept, second, *later]


def _read(node: Node) -> set[str]:
    names = set(node.inputs)
    for _, body in _bodies(node):
        names |= free_names(body)
    return names


# -- moving nodes into branches --------------------------------------------------------------------


@dataclass(slots=True)
class _Uses:
    """Readers and producers of the values of a graph.

    Attributes:
        readers: Nodes and branches that read a value.
        producers: Index of the node that computes a value.
        fixed: Indices of nodes that must not move, or that have been moved.
    """

    readers: dict[str, list[Reader]]
    producers: dict[str, int]
    fixed: set[int]


def _sink(graph: Graph) -> None:
    """Move each node that only one branch needs into that branch."""
    uses = _find_uses(graph)
    moved: set[int] = set()
    for index in reversed(range(len(graph.nodes))):
        node = graph.nodes[index]
        if node.op_type != "If" or index in moved:
            continue
        for key, body in _bodies(node):
            taken = _find_nodes_for(graph, uses, (id(node), key), body)
            moved |= taken
            nodes = [graph.nodes[i] for i in sorted(taken)]
            names = (name for other in nodes for name in other.outputs)
            body.nodes[:0] = nodes
            body.specs = {**{n: graph.specs[n] for n in names if n in graph.specs}, **body.specs}
    graph.nodes[:] = [node for i, node in enumerate(graph.nodes) if i not in moved]


def _find_uses(graph: Graph) -> _Uses:
    readers: dict[str, list[Reader]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(id(node))
        for key, body in _bodies(node):
            reader = (id(node), key) if node.op_type == "If" else id(node)
            for name in free_names(body):
                readers.setdefault(name, []).append(reader)
    producers = {name: i for i, node in enumerate(graph.nodes) for name in node.outputs}
    stay = {*graph.outputs, *_constants(graph)}
    return _Uses(readers, producers, {producers[name] for name in stay if name in producers})


def _find_nodes_for(graph: Graph, uses: _Uses, branch: Reader, body: Graph) -> set[int]:
    """Return the indices of the nodes that only one branch needs, and mark them as moved."""
    inside: set[Reader] = {branch}
    taken: set[int] = set()
    waiting = {uses.producers[n] for n in free_names(body) if n in uses.producers}
    while waiting:
        index = max(waiting)  # all nodes that read its outputs have been visited
        waiting.discard(index)
        node = graph.nodes[index]
        readers = (r for name in node.outputs for r in uses.readers.get(name, ()))
        if index in uses.fixed or not inside.issuperset(readers):
            continue
        taken.add(index)
        uses.fixed.add(index)
        inside.add(id(node))
        inside.update((id(node), key) for key, _ in _bodies(node))
        waiting.update(uses.producers[n] for n in _read(node) if n in uses.producers)
    return taken


def _constants(graph: Graph) -> set[str]:
    """Return the names of values computed from constants only, which stay to be folded."""
    found = set(graph.initializers)
    for node in graph.nodes:
        if node.inputs and not any(_bodies(node)) and all(not n or n in found for n in node.inputs):
            found.update(node.outputs)
    return found
