"""GraphDefs and functions as plain records: nodes by name, inputs resolved, attributes typed.

Spec: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/framework/node_def.proto
and function.proto in the same directory.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from converter.lower.graph import Dim
from formats.containers.protobuf.messages import Message
from formats.errors import CorruptError
from formats.tensorflow import tensor_proto

ARGUMENT = "_Arg"  # op of the nodes that represent a function's arguments


@dataclass(frozen=True, slots=True)
class Port:
    """One output of a node: output ``number`` of those named ``arg``.

    Attributes:
        node: Name of the node.
        arg: Name of the output in the op's definition, used in functions only; else empty.
        number: Index among the outputs of that name, or among all.
    """

    node: str
    arg: str
    number: int


@dataclass(frozen=True, slots=True)
class Reference:
    """A function that an attribute names."""

    name: str


@dataclass(slots=True)
class Node:
    """One node.

    Attributes:
        name: Name in its graph or function.
        op: Name of the TensorFlow op.
        inputs: Outputs that it reads, in order.
        controls: Nodes that run before it.
        raw: Attributes, undecoded; `attribute` decodes one.
        device: Device, as recorded in the file.
    """

    name: str
    op: str
    inputs: list[Port]
    controls: list[str]
    raw: Mapping[str, Message]
    device: str = ""

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute, decoded."""
        found = self.raw.get(name)
        return default if found is None else attribute(found)


@dataclass(slots=True)
class Body:
    """A graph or a function: its nodes by name, and its results.

    Attributes:
        name: Name of the function; empty for the main graph.
        nodes: Nodes by name, in the file's order.
        arguments: Names of its arguments, which are nodes too.
        results: Outputs that it returns, in order.
        effects: Nodes that run although nothing reads them.
        raw: Attributes of the function, undecoded.
    """

    name: str
    nodes: dict[str, Node] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    results: list[Port] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    raw: Mapping[str, Message] = field(default_factory=dict)


class Library:
    """The main graph and its functions; each function is parsed on first use."""

    def __init__(self, graph: Message) -> None:
        """Take a GraphDef."""
        self.main = Body("")
        for proto in graph.node:
            node = _node(proto, is_function=False)
            self.main.nodes[node.name] = node
        self._functions = {f.signature.name: f for f in graph.library.function}
        self._parsed: dict[str, Body] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._functions

    def function(self, name: str) -> Body:
        """Return a function's body.

        Raises:
            CorruptError: There is no function of that name.
        """
        found = self._parsed.get(name)
        if found is None:
            proto = self._functions.get(name)
            if proto is None:
                raise CorruptError(f"a node calls the function {name!r}, which is not there")
            found = self._parsed[name] = _function(proto)
        return found


def _node(proto: Message, *, is_function: bool) -> Node:
    inputs, controls = [], []
    for text in proto.input:
        if text.startswith("^"):
            controls.append(text[1:])
        else:
            inputs.append(in_function(text) if is_function else in_graph(text))
    return Node(proto.name, proto.op, inputs, controls, proto.attr, proto.device)


def in_graph(text: str) -> Port:
    """Parse an input ``node`` or ``node:1`` of a graph."""
    name, _, number = text.rpartition(":")
    if name and number.isdecimal():
        return Port(name, "", int(number))
    return Port(text, "", 0)


def in_function(text: str) -> Port:
    """Parse an input ``argument`` or ``node:output:1`` of a function."""
    name, *rest = text.split(":")
    if len(rest) == 2 and rest[1].isdecimal():
        return Port(name, rest[0], int(rest[1]))
    if len(rest) == 1 and rest[0].isdecimal():
        return Port(name, "", int(rest[0]))
    return Port(name, rest[0] if rest else "", 0)


def _function(proto: Message) -> Body:
    signature = proto.signature
    body = Body(signature.name, raw=proto.attr)
    for argument in signature.input_arg:
        body.arguments.append(argument.name)
        body.nodes[argument.name] = Node(argument.name, ARGUMENT, [], [], {})
    for inner in proto.node_def:
        node = _node(inner, is_function=True)
        body.nodes[node.name] = node
    for result in signature.output_arg:
        text = proto.ret.get(result.name)
        if text is None:
            raise CorruptError(f"function {signature.name!r} does not say what it returns")
        body.results.append(in_function(text))
    body.effects = list(proto.control_ret.values())
    return body


# -- attributes ------------------------------------------------------------------------------------


def attribute(proto: Message) -> Any:
    """Decode an AttrValue: dtypes become names, shapes become tuples or None."""
    kind = proto.which("value")
    if kind is None:
        return None
    value = getattr(proto, kind)
    if kind == "list":
        for name, decode in _DECODERS.items():
            if value.has(name):
                return [decode(part) for part in getattr(value, name)]
        return []
    return _DECODERS.get(kind, _same)(value)


def is_type(proto: Message) -> bool:
    """Return whether an AttrValue is a dtype or a list of dtypes."""
    kind = proto.which("value")
    return kind == "type" or (kind == "list" and bool(proto.list.has("type")))


def shape_of(proto: Message) -> tuple[Dim, ...] | None:
    """Return the shape of a TensorShapeProto, None for unknown sizes; None for an unknown rank."""
    if proto.unknown_rank:
        return None
    return tuple(d.size if d.size >= 0 else None for d in proto.dim)


def _same(value: Any) -> Any:
    return value


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "s": _text,
    "i": _same,
    "f": _same,
    "b": _same,
    "type": tensor_proto.type_name,
    "shape": shape_of,
    "tensor": _same,
    "func": lambda value: Reference(value.name),
}


# Ops whose attributes may name functions; the attributes of other ops are not decoded.
CALLERS = frozenset((
    "PartitionedCall", "StatefulPartitionedCall", "TPUPartitionedCall", "If", "StatelessIf", "_If",
    "Case", "StatelessCase", "While", "StatelessWhile", "_While", "For", "RemoteCall",
    "SymbolicGradient", "BatchFunction", "MapDefun",
))  # fmt: skip


def named_functions(node: Node) -> Iterator[str]:
    """Yield the functions that a node's attributes name."""
    if node.op not in CALLERS:
        return
    for proto in node.raw.values():
        kind = proto.which("value")
        if kind == "func":
            yield proto.func.name
        elif kind == "list" and proto.list.has("func"):
            yield from (part.name for part in proto.list.func)


# Quantized dtypes of TensorFlow -> their storage dtypes.
QUANTIZED = {
    "quint8": "uint8", "qint8": "int8", "quint16": "uint16", "qint16": "int16", "qint32": "int32",
}  # fmt: skip
