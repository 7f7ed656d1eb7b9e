"""Read a meta graph: its nodes, and those of each of its functions.

Name, op, inputs, device, dtypes and called functions of a node are read in one pass. Its other
attributes are not decoded.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from converter.devices.savedmodel.distributed_ops import REDUCTIONS
from formats.containers.protobuf.messages import Message
from formats.errors import CorruptError, LimitError
from formats.limits import Limits

ALLOWED = "allowed_devices"  # of VarHandleOp: the one attribute by which an op names devices


@dataclass(slots=True)
class Node:
    """One node.

    Attributes:
        types: Attribute → the DataTypes that it holds.
        calls: Names of the functions in its attributes.
        colocated: Names of the nodes that it is colocated with (``_class``: ``loc:@name``).
        raw: All attributes, undecoded, of constants and of reductions over devices.
        allowed: Devices that a variable spans, by its own attribute.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    device: str
    types: dict[str, tuple[int, ...]] = field(default_factory=dict)
    calls: tuple[str, ...] = ()
    colocated: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    raw: Mapping[str, Message] = field(default_factory=dict)
    data_format: str = ""
    shape: object = None


@dataclass(slots=True)
class Scope:
    """The graph, or one function.

    Attributes:
        name: The function's; "" for the graph.
        arguments: The function's inputs in order.
        results: What the function returns: name → ``node:output:index``.
    """

    name: str
    nodes: dict[str, Node] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    results: dict[str, str] = field(default_factory=dict)

    def consumers(self) -> dict[str, list[tuple[Node, int]]]:
        """Return name of a node or argument → the nodes that take it, and at which input."""
        found: dict[str, list[tuple[Node, int]]] = {}
        for node in self.nodes.values():
            for index, name in enumerate(node.inputs):
                if not name.startswith("^"):
                    found.setdefault(source_name(name), []).append((node, index))
        return found


@dataclass(slots=True)
class Graph:
    """All scopes of one meta graph."""

    main: Scope
    functions: dict[str, Scope]

    @property
    def scopes(self) -> Iterator[Scope]:
        """The graph itself, then its functions."""
        yield self.main
        yield from self.functions.values()

    def reachable(self, roots: set[str]) -> Iterator[tuple[Scope, Node]]:
        """Yield the nodes that some nodes of the graph need, and those of the functions called."""
        seen: set[str] = set()
        waiting = [n for n in roots if n in self.main.nodes]
        called: set[str] = set()
        while waiting:
            name = waiting.pop()
            node = self.main.nodes.get(name)
            if node is None or name in seen:
                continue
            seen.add(name)
            yield self.main, node
            called.update(node.calls)
            waiting += [source_name(i.removeprefix("^")) for i in node.inputs]
        done: set[str] = set()
        while called:
            name = called.pop()
            scope = self.functions.get(name)
            if scope is None or name in done:
                continue
            done.add(name)
            for node in scope.nodes.values():
                yield scope, node
                called.update(node.calls)


def source_name(name: str) -> str:
    """Return the name of the node or argument of an input: ``a`` of ``a:0`` and of ``a:z:0``."""
    return name.split(":", 1)[0]


def read_graph(meta_graph: Message, limits: Limits, where: str) -> Graph:
    """Read a MetaGraphDef.

    Raises:
        CorruptError: A node is damaged, or two have one name.
        LimitError: There are too many nodes.
    """
    graph = meta_graph.graph_def
    budget = [limits.max_nodes]
    main = _scope(Scope(""), graph.each("node"), budget, where)
    functions: dict[str, Scope] = {}
    for function in graph.library.each("function"):
        signature = function.signature
        arguments = tuple(a.name for a in signature.input_arg)
        scope = Scope(signature.name, arguments=arguments, results=dict(function.ret))
        functions[scope.name] = _scope(scope, function.each("node_def"), budget, where)
    return Graph(main, functions)


def _scope(scope: Scope, nodes: Iterator[Message], budget: list[int], where: str) -> Scope:
    for message in nodes:
        budget[0] -= 1
        if budget[0] < 0:
            raise LimitError("a graph of too many nodes", where=where)
        node = _node(message)
        if node.name in scope.nodes:
            raise CorruptError(f"two nodes are named {node.name!r:.200}", where=where)
        scope.nodes[node.name] = node
    return scope


def _node(message: Message) -> Node:
    node = Node(message.name, message.op, tuple(message.input), message.device)
    if node.op in REDUCTIONS or node.op == "Const":
        node.raw = message.attr
    for name, value in message.attr.items():
        kind = value.which("value")
        if kind == "type":
            node.types[name] = (value.type,)
        elif kind == "func":
            node.calls += (value.func.name,)
        elif kind == "shape" and node.op in ("VarHandleOp", "VariableV2"):
            node.shape = [d.size for d in value.shape.dim]
        elif kind == "s" and name == "data_format":
            node.data_format = value.s.decode("utf-8", "replace")
        elif kind == "list":
            _list(node, name, value.list)
    return node


def _list(node: Node, name: str, value: Message) -> None:
    present: Mapping[str, object] = value.present()
    if "type" in present:
        node.types[name] = tuple(value.type)
    elif "func" in present:
        node.calls += tuple(f.name for f in value.func)
    elif "s" in present and name == "_class":
        names = (s.decode("utf-8", "replace") for s in value.s)
        node.colocated = tuple(n.removeprefix("loc:@") for n in names if n.startswith("loc:@"))
    elif "s" in present and name == ALLOWED:
        node.allowed = tuple(s.decode("utf-8", "replace") for s in value.s)
