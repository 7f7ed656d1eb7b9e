"""What only one branch of an If needs is computed in that branch, and nowhere else.

TensorFlow 1 has no bodies: a condition's sides are nodes among others, joined by a Merge, of which
lowering makes an If that chooses. What is computed in vain may cost, fail, or never end. Branches
of one condition that do not depend on each other become one If, so that they share what they need.
"""

from collections.abc import Iterator

from converter.lower.graph import Graph, Node, free_names

Reader = int | tuple[int, str]  # a node by its identity, or a branch of an If


def sink_into_branches(graph: Graph) -> None:
    """Move nodes into the branches that need them, in a graph and in all inside it."""
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


# -- one If of several -----------------------------------------------------------------------------


def _join(graph: Graph) -> None:
    """Make one If of neighbours with the same condition."""
    last: dict[str, Node] = {}
    for node in list(graph.nodes):
        if node.op_type != "If":
            continue
        before = last.get(node.inputs[0])
        if before is not None:
            _behind(graph, before, node)
        last[node.inputs[0]] = node


def _behind(graph: Graph, first: Node, second: Node) -> None:
    """Make one If of two, in the place of the second, unless that needs what the first yields."""
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


# -- into the branches -----------------------------------------------------------------------------


def _sink(graph: Graph) -> None:
    readers: dict[str, list[Reader]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(id(node))
        for key, body in _bodies(node):
            reader = (id(node), key) if node.op_type == "If" else id(node)
            for name in free_names(body):
                readers.setdefault(name, []).append(reader)
    made = {name: i for i, node in enumerate(graph.nodes) for name in node.outputs}
    wanted, constant = set(graph.outputs), _constants(graph)
    gone: set[int] = set()
    for place in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[place]
        if node.op_type != "If" or id(node) in gone:
            continue
        for key, body in _bodies(node):
            inside: set[Reader] = {(id(node), key)}
            moved: set[int] = set()
            waiting = {made[n] for n in free_names(body) if n in made}
            while waiting:
                number = max(waiting)
                waiting.discard(number)
                other = graph.nodes[number]
                if id(other) in gone or wanted.intersection(other.outputs):
                    continue
                if any(n in constant for n in other.outputs):
                    continue
                if not all(r in inside for n in other.outputs for r in readers.get(n, ())):
                    continue
                moved.add(number)
                inside.add(id(other))
                inside.update((id(other), k) for k, _ in _bodies(other))
                gone.add(id(other))
                waiting.update(made[n] for n in _read(other) if n in made)
            taken = [graph.nodes[i] for i in sorted(moved)]
            body.nodes[:0] = taken
            names = (name for other in taken for name in other.outputs)
            body.specs = {**{n: graph.specs[n] for n in names if n in graph.specs}, **body.specs}
    graph.nodes[:] = [node for node in graph.nodes if id(node) not in gone]


def _constants(graph: Graph) -> set[str]:
    """Return the names of what is made of constants alone: it is made once, and folded."""
    found = set(graph.initializers)
    for node in graph.nodes:
        if node.inputs and not any(_bodies(node)) and all(not n or n in found for n in node.inputs):
            found.update(node.outputs)
    return found
