"""Rewrite the bytes of a SavedModel with its placements changed.

Only the fields named here are changed. Their numbers are looked up in
`formats.tensorflow.schemas`.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TypeVar

from converter.devices.names import tensorflow_kind
from converter.devices.savedmodel.collectives import Reductions, build_replacement
from converter.devices.savedmodel.kernels import has_gpu_kernel, may_be_placed
from converter.devices.savedmodel.nodes import encode_node, type_attribute
from converter.devices.savedmodel.replicas import MergedCopies, read_output
from converter.devices.savedmodel.scopes import ALLOWED, Graph, Node, Scope
from formats.containers.protobuf.rewriting import (
    DROP,
    Answer,
    Body,
    Edit,
    Pieces,
    parts,
    rewrite_message,
)
from formats.containers.protobuf.wire import LEN
from formats.errors import CorruptError
from formats.tensorflow.schemas import MESSAGES

_CONTROL = "^"


@dataclass(slots=True)
class GraphEdits:
    """What to change in one meta graph.

    Attributes:
        graph: The meta graph.
        device: The device that placed nodes and variables name; "" for none.
        placed: The nodes that are placed, as (function, node); no other node names a device.
        changes: How copies of variables are merged.
        counts: Change → how often it was made; filled by `rewrite`.
        cleared: Former device → how often it was removed; likewise.
        unplaced_variables: Variables that are not placed.
        reductions: Collectives that are computed on one device.
    """

    graph: Graph
    device: str
    placed: set[tuple[str, str]]
    changes: MergedCopies
    counts: Counter[str] = field(default_factory=Counter)
    cleared: Counter[str] = field(default_factory=Counter)
    unplaced_variables: set[str] = field(default_factory=set)
    reductions: Reductions = field(default_factory=Reductions)

    def replacement_node(self, scope: Scope, member: Node, redirected: Mapping[str, str]) -> bytes:
        """Return the node that replaces a collective."""
        return self._replacement(scope, member, redirected)[0]

    def list_added_nodes(self, scope: Scope, redirected: Mapping[str, str]) -> list[bytes]:
        """Return the nodes that the replacements of collectives need."""
        return [
            made
            for function, name in self.reductions.found
            if function == scope.name
            for made in self._replacement(scope, scope.nodes[name], redirected)[1]
        ]

    def _replacement(
        self, scope: Scope, member: Node, redirected: Mapping[str, str]
    ) -> tuple[bytes, list[bytes]]:
        found = self.reductions.found[scope.name, member.name]
        inputs = tuple(redirected.get(name, name) for name in found.inputs)
        kind = tensorflow_kind(self.device)
        plain = Node("", found.op, (), "", types={"T": member.types["T"], "Tidx": (3,)})
        device = self.device if kind and may_be_placed(plain, kind) else ""
        return build_replacement(scope, member, replace(found, inputs=inputs), device)


def rewrite(saved_model: Body, plans: list[GraphEdits]) -> Pieces:
    """Return a SavedModel with each of its meta graphs changed as planned.

    Raises:
        CorruptError: It is damaged.
    """
    waiting = iter(plans)
    edits = _edits("SavedModel", meta_graphs=lambda body: _meta_graph(body, next(waiting)))
    return rewrite_message(saved_model, edits) or [saved_model]


def _meta_graph(body: Body, plan: GraphEdits) -> Answer:
    main = _edits(
        "GraphDef",
        node=lambda body: _node(body, plan.graph.main, plan),
        library=lambda library: rewrite_message(
            library, _edits("FunctionDefLibrary", function=lambda f: _function(f, plan))
        ),
    )
    beside = [
        (_number("GraphDef", "node"), [b]) for b in plan.list_added_nodes(plan.graph.main, {})
    ]

    def take_added() -> list[tuple[int, Pieces]]:
        """Return the nodes to add, once: a message may come in several parts."""
        taken: list[tuple[int, Pieces]] = [(n, [*p]) for n, p in beside]
        beside.clear()
        return taken

    objects = _edits("SavedObjectGraph", nodes=lambda node: _object(node, plan))
    edits = _edits(
        "MetaGraphDef",
        graph_def=lambda graph: rewrite_message(graph, main, take_added()),
        object_graph_def=lambda graph: rewrite_message(graph, objects),
    )
    return rewrite_message(body, edits)


def _function(body: Body, plan: GraphEdits) -> Answer:
    signature = _member(body, "FunctionDef", "signature")
    scope = _require(plan.graph.functions, _text(_member(signature, "OpDef", "name")))
    redirected: dict[str, str] = {}
    beside: list[bytes] = []
    for name in sorted(plan.changes.zeroed.get(scope.name, ())):
        read = scope.nodes[name]
        output = f"{name}:{read_output(read.op)}"
        zeros = f"{name}/zeros"
        redirected |= {f"{output}:0": f"{zeros}:y:0", output: f"{zeros}:y:0"}
        (kind,) = read.types["dtype"]
        beside.append(encode_node(zeros, "ZerosLike", [f"{output}:0"], T=type_attribute(kind)))
    for function, name in plan.reductions.found:
        if function == scope.name:
            redirected |= {f"{name}:data:0": f"{name}:output:0", f"{name}:data": f"{name}:output:0"}
    beside += plan.list_added_nodes(scope, redirected)
    added: list[tuple[int, Pieces]] = [(_number("FunctionDef", "node_def"), [b]) for b in beside]

    def result(entry: Body) -> Answer:
        value = _text(_member(entry, "", "value"))
        if value not in redirected:
            return None
        return rewrite_message(entry, {2: lambda _: [redirected[value].encode()]})

    edits = _edits(
        "FunctionDef", node_def=lambda body: _node(body, scope, plan, redirected), ret=result
    )
    return rewrite_message(body, edits, added)


def _node(
    body: Body, scope: Scope, plan: GraphEdits, redirected: Mapping[str, str] | None = None
) -> Answer:
    old = _require(scope.nodes, _text(_member(body, "NodeDef", "name")))
    changes = plan.changes
    if not scope.name and old.name in changes.dropped:
        return DROP
    renamed = changes.renamed if not scope.name else {}
    if old.device:
        plan.cleared[old.device] += 1
    if old.name in changes.stopped.get(scope.name, ()):
        return [_encode_noop(old, scope)]
    if (scope.name, old.name) in plan.reductions.found:
        return [plan.replacement_node(scope, old, redirected or {})]
    edits: dict[int, Edit] = {}
    added: list[tuple[int, Pieces]] = []
    device = plan.device if (scope.name, old.name) in plan.placed else ""
    if device:
        plan.counts["placed"] += 1
    if device != old.device:
        edits |= _edits("NodeDef", device=lambda _: DROP)
        if device:
            added.append((_number("NodeDef", "device"), [device.encode()]))
    if renamed or redirected:
        edits |= _edits("NodeDef", input=lambda name: _input(name, renamed, redirected or {}))
    if old.allowed or any(name in renamed for name in old.colocated):
        edits |= _edits("NodeDef", attr=lambda entry: _attribute(entry, old, renamed, plan))
    return rewrite_message(body, edits, added) if edits or added else None


def _input(body: Body, renamed: Mapping[str, str], redirected: Mapping[str, str]) -> Answer:
    name = _text(body)
    if name in redirected:
        return [redirected[name].encode()]
    control = name.startswith(_CONTROL)
    source, colon, output = name.removeprefix(_CONTROL).partition(":")
    if source not in renamed:
        return None
    return [f"{_CONTROL if control else ''}{renamed[source]}{colon}{output}".encode()]


def _attribute(body: Body, node: Node, renamed: Mapping[str, str], plan: GraphEdits) -> Answer:
    name = _text(_member(body, "", "key"))
    if name == ALLOWED and node.allowed:
        plan.counts["allowed devices"] += 1
        plan.cleared.update(node.allowed)
        return DROP
    if name != "_class":
        return None

    def rename_colocation(text: Body) -> Answer:
        front, _, other = _text(text).partition("loc:@")
        if front or other not in renamed:
            return None
        plan.counts["colocations"] += 1
        return [f"loc:@{renamed[other]}".encode()]

    names = _edits("AttrValue.ListValue", s=rename_colocation)
    value = _edits("AttrValue", list=lambda body: rewrite_message(body, names))
    return rewrite_message(body, {2: lambda body: rewrite_message(body, value)})


def _encode_noop(stopped: Node, scope: Scope) -> bytes:
    """Return a node of the same name that waits for the inputs of the update and does nothing."""
    waits: list[str] = []
    for name in stopped.inputs:
        source = name.removeprefix(_CONTROL).split(":", 1)[0]
        if source not in scope.arguments and source not in waits:
            waits.append(source)
    return encode_node(stopped.name, "NoOp", [_CONTROL + w for w in waits])


def _object(body: Body, plan: GraphEdits) -> Answer:
    edits = _edits(
        "SavedObject",
        variable=lambda variable: _variable(variable, plan),
        resource=lambda resource: _resource(resource, plan),
    )
    return rewrite_message(body, edits)


def _variable(body: Body, plan: GraphEdits) -> Answer:
    """Edit a variable of the object graph: set its device, remove its copies."""
    name, old, dtype, copies = "", "", 0, 0
    for part, value in parts(body):
        if part.number == _number("SavedVariable", "name"):
            name = _text(value)
        elif part.number == _number("SavedVariable", "device"):
            old = _text(value)
        elif part.number == _number("SavedVariable", "dtype"):
            dtype = _bytes(value)[0] if part.wire == 0 else 0
        elif part.number == _number(
            "SavedVariable", "experimental_distributed_variable_components"
        ):
            copies += 1
    wanted = plan.device
    handle = Node(name, "VarHandleOp", (), "", types={"dtype": (dtype,)})
    on_gpu = tensorflow_kind(wanted) == "GPU"
    if name in plan.unplaced_variables or (on_gpu and not has_gpu_kernel(handle)):
        wanted = ""
    if copies:
        plan.counts["variables of replicas"] += 1
    if old:
        plan.counts["devices of variables cleared"] += 1
        plan.cleared[old] += 1
    if wanted:
        plan.counts["variables placed"] += 1
    edits = _edits(
        "SavedVariable",
        experimental_distributed_variable_components=lambda _: DROP,
        **({"device": lambda _: DROP} if old != wanted else {}),
    )
    added: list[tuple[int, Pieces]] = []
    if wanted and old != wanted:
        added.append((_number("SavedVariable", "device"), [wanted.encode()]))
    return rewrite_message(body, edits, added)


def _resource(body: Body, plan: GraphEdits) -> Answer:
    """Remove the device of a table or other resource: TensorFlow chooses one."""
    device = _text(_member(body, "SavedResource", "device"))
    if not device:
        return None
    plan.cleared[device] += 1
    plan.counts["devices of resources cleared"] += 1
    return rewrite_message(body, _edits("SavedResource", device=lambda _: DROP))


_T = TypeVar("_T")


def _require(found: Mapping[str, _T], name: str) -> _T:
    if name not in found:
        raise CorruptError(f"{name!r:.200} is spread over several messages")
    return found[name]


def _edits(kind: str, /, **edits: Callable[[Body], Answer]) -> dict[int, Edit]:
    return {_number(kind, name): edit for name, edit in edits.items()}


@cache
def _number(kind: str, name: str) -> int:
    """Return the number of a field; entries of maps have a key and a value."""
    if not kind:
        return {"key": 1, "value": 2}[name]
    return next(n for n, row in MESSAGES[kind].items() if row.split()[0] == name)


def _member(body: Body, kind: str, name: str) -> Body:
    number = _number(kind, name)
    found: Body = b""
    for part, value in parts(body):
        if part.number == number and part.wire == LEN:
            found = value
    return found


def _text(body: Body) -> str:
    return _bytes(body).decode("utf-8", "backslashreplace")


def _bytes(body: Body) -> bytes:
    return body if isinstance(body, bytes) else body.read()
