"""Reconstruct TensorFlow 1 loops from Enter, Merge, Switch, NextIteration and Exit nodes.

A frame is the nodes between its Enters and its Exits. A variable of the loop is a Merge of an Enter
and a NextIteration; the condition reads Merges, and the iteration reads the Switches that follow
them. So one body contains both, with the Merges as arguments: a `LoopNode` replaces the frame (see
`loops.build_frame_loop`).
Spec: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/ops/control_flow_ops.cc
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from converter.lower.tf.graphdef import ARGUMENT, Body, Node, Port

ENTERS = frozenset(("Enter", "RefEnter"))
EXITS = frozenset(("Exit", "RefExit"))
MERGES = frozenset(("Merge", "RefMerge"))
NEXTS = frozenset(("NextIteration", "RefNextIteration"))
SWITCHES = frozenset(("Switch", "RefSwitch"))


@dataclass(frozen=True, slots=True)
class Frame:
    """One loop.

    Attributes:
        body: Condition and iteration; the arguments are the variables, then loop invariants.
        condition: Output that says whether there is another iteration.
        results: Values of the variables after an iteration.
    """

    body: Body
    condition: Port
    results: list[Port]


@dataclass(slots=True)
class LoopNode(Node):
    """The node that replaces a frame."""

    frame: Frame | None = None


def frame_of(node: Node) -> Frame:
    """Return the frame that a node replaces."""
    assert isinstance(node, LoopNode)
    assert node.frame is not None
    return node.frame


def restructure(body: Body) -> None:
    """Replace the nodes of each frame by one `LoopNode`, inner frames first."""
    waiting: dict[str, list[Node]] = {}
    for node in body.nodes.values():
        if node.op in ENTERS:
            waiting.setdefault(str(node.attribute("frame_name", "")), []).append(node)
    while waiting:
        readers = _readers(body)
        reached = {name: _inside(body, readers, enters) for name, enters in waiting.items()}
        inner = [
            name
            for name, inside in reached.items()
            if not any(
                e.name in inside for other in waiting if other != name for e in waiting[other]
            )
        ]
        if not inner:
            return  # mutually nested frames: their nodes are not supported
        for name in inner:
            enters = waiting.pop(name)
            current = [body.nodes[e.name] for e in enters]  # they may read an inner loop
            _replace(body, name, current, reached[name])


def _readers(body: Body) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in body.nodes.values():
        for before in (*(p.node for p in node.inputs), *node.controls):
            found.setdefault(before, []).append(node.name)
    return found


def _inside(body: Body, readers: dict[str, list[str]], enters: Iterable[Node]) -> set[str]:
    """Return the names of the nodes that depend on Enters, up to Exits."""
    found: set[str] = set()
    stack = [enter.name for enter in enters]
    while stack:
        name = stack.pop()
        if name in found:
            continue
        found.add(name)
        if body.nodes[name].op not in EXITS:
            stack += readers.get(name, ())
    return found


def _replace(body: Body, name: str, enters: list[Node], inside: set[str]) -> None:
    nodes = body.nodes
    entering = {enter.name for enter in enters}
    conditions = {n for n in inside if nodes[n].op == "LoopCond"}
    variables: dict[
        str, tuple[Port, Port]
    ] = {}  # name of the Merge -> its initial and its next value
    for node in list(nodes.values()):
        if node.name not in inside or node.op not in MERGES or len(node.inputs) != 2:
            continue
        sides = {nodes[p.node].op: p.node for p in node.inputs if p.node in nodes}
        first = next((p.node for p in node.inputs if p.node in entering), None)
        again = next((sides[op] for op in NEXTS if op in sides), None)
        if first is not None and again is not None:
            variables[node.name] = (nodes[first].inputs[0], nodes[again].inputs[0])
    if len(conditions) != 1 or not variables:
        return
    (loop_condition,) = conditions
    begun = {p.node for merge in variables for p in nodes[merge].inputs}
    constant = [enter for enter in enters if enter.name not in begun]
    made = _Frame(body, inside, variables, loop_condition, constant)
    loop = LoopNode(
        f"{name}:loop", "_Loop",
        [*(start for start, _ in variables.values()), *(e.inputs[0] for e in constant)],
        [c for e in enters for c in e.controls], {}, enters[0].device,
    )  # fmt: skip
    loop.frame = made.frame()
    loop.inputs += made.seen.values()
    numbers = {merge: i for i, merge in enumerate(variables)}
    for inner in inside:
        node = nodes[inner]
        if node.op not in EXITS:
            del nodes[inner]
            continue
        merge = made.switched.get(node.inputs[0].node)
        if merge is not None:
            port = Port(loop.name, "", numbers[merge])
            nodes[inner] = Node(inner, "Identity", [port], [], {}, node.device)
    nodes[loop.name] = loop


class _Frame:
    """A frame that is being converted to a body.

    Attributes:
        seen: Outer values that its nodes read without an Enter, by the new argument's name.
        switched: Name of a Switch -> the Merge that it passes to the iteration or the Exit.
    """

    def __init__(
        self, body: Body, inside: set[str], variables: dict[str, tuple[Port, Port]],
        condition: str, constant: list[Node],
    ) -> None:  # fmt: skip
        self._nodes = body.nodes
        self._inside = inside
        self._variables = variables
        self._condition = condition
        self._constant = {enter.name for enter in constant}
        self._arguments = [*variables, *(enter.name for enter in constant)]
        self.seen: dict[str, Port] = {}
        self.switched = {
            n: body.nodes[n].inputs[0].node
            for n in inside
            if body.nodes[n].op in SWITCHES
            and body.nodes[n].inputs[1].node == condition
            and body.nodes[n].inputs[0].node in variables
        }
        self._name = body.name

    def frame(self) -> Frame:
        """Build the body, its condition and its results."""
        inner = Body(self._name)
        for name in (n for n in self._nodes if n in self._inside):
            node = self._nodes[name]
            if node.op in EXITS or node.op in NEXTS:
                continue
            if name in self._variables or name in self._constant:
                inner.nodes[name] = Node(name, ARGUMENT, [], [], {})
            elif name in self.switched:
                port = Port(self.switched[name], "", 0)
                inner.nodes[name] = Node(name, "Identity", [port], [], {}, node.device)
            elif node.op not in ENTERS:
                inputs = [self._port(p) for p in node.inputs]
                controls = [c for c in node.controls if c in self._inside]
                inner.nodes[name] = replace(node, inputs=inputs, controls=controls)
        condition = self._port(self._nodes[self._condition].inputs[0])
        results = [self._port(port) for _, port in self._variables.values()]
        for name in self.seen:
            inner.nodes[name] = Node(name, ARGUMENT, [], [], {})
        for node in inner.nodes.values():
            node.controls = [c for c in node.controls if c in inner.nodes]
        inner.arguments = [*self._arguments, *self.seen]
        return Frame(inner, condition, results)

    def _port(self, port: Port) -> Port:
        """Convert a port of the graph to a port of the body."""
        if port.node in self.switched:
            return Port(port.node, "", 0)
        if port.node in self._inside:
            return port
        name = f"{port.node}:{port.arg}:{port.number}"
        self.seen[name] = port
        return Port(name, "", 0)
