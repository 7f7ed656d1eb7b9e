"""Replace reductions over several devices by plain reductions.

A collective waits for its partners: the ops of the same group and instance (NCCL: of the same
shared name), one for each device. If all of them are in one graph or function, as they are where a
strategy ran its replicas on one machine, a plain op over all their inputs computes the same, and
replaces each of them. A group with partners elsewhere (other workers) stays unsupported.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from converter.devices.savedmodel.distributed_ops import REDUCTIONS
from converter.devices.savedmodel.nodes import (
    bool_attribute,
    encode_node,
    int_attribute,
    int_tensor_attribute,
    type_attribute,
)
from converter.devices.savedmodel.scopes import Graph, Node, Scope, source_name
from formats.containers.protobuf.messages import Message
from formats.core.strings import Strings
from formats.errors import ConvertError
from formats.tensorflow import tensor_proto

_PLAIN = {
    "sum": "Sum", "prod": "Prod", "min": "Min", "max": "Max",
    "Add": "Sum", "Mul": "Prod", "Min": "Min", "Max": "Max",
}  # fmt: skip
_FLOATS = frozenset((1, 2, 14, 19))  # float, double, bfloat16, half
_INT32 = 3


@dataclass(frozen=True, slots=True)
class Reduction:
    """The inputs that a node reduces, and the op."""

    inputs: tuple[str, ...]
    op: str


@dataclass(slots=True)
class Reductions:
    """Reductions whose partners are all in the graph, by (function, node)."""

    found: dict[tuple[str, str], Reduction] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)


def find_reductions(graph: Graph) -> Reductions:
    """Return the collective reductions of a graph that a single device can compute."""
    result = Reductions()
    for scope in graph.scopes:
        groups: dict[object, list[tuple[Node, int, str]]] = {}
        for member in scope.nodes.values():
            if member.op in REDUCTIONS:
                described = _find_group(scope, member)
                if described is not None:
                    key, size, op = described
                    groups.setdefault(key, []).append((member, size, op))
        for members in groups.values():
            inputs = tuple(i for m, _, _ in members for i in _reduced_inputs(m))
            sizes = {size for _, size, _ in members}
            ops = {(op, m.types.get("T")) for m, _, op in members}
            if sizes != {len(inputs)} or len(ops) != 1:
                continue
            for member, _, op in members:
                result.found[scope.name, member.name] = Reduction(inputs, op)
                result.counts[member.op] += 1
    return result


def build_replacement(
    scope: Scope, member: Node, reduction: Reduction, device: str
) -> tuple[bytes, list[bytes]]:
    """Return the node that replaces a collective, and the nodes that it needs.

    Its output is named ``output``; that of a collective is named ``data``.
    """
    (kind,) = member.types["T"]
    axis, stacked = f"{member.name}/axis", f"{member.name}/all"
    between = ":output:0" if scope.name else ""
    waits = [i for i in member.inputs if i.startswith("^")]
    beside = [
        encode_node(axis, "Const", [], device=device,
                    dtype=type_attribute(_INT32), value=int_tensor_attribute(0)),
        encode_node(
            stacked, "Pack", reduction.inputs, device=device,
            N=int_attribute(len(reduction.inputs)), T=type_attribute(kind), axis=int_attribute(0),
        ),
    ]  # fmt: skip
    instead = encode_node(
        member.name, reduction.op, [f"{stacked}{between}", f"{axis}{between}", *waits],
        device=device, T=type_attribute(kind), Tidx=type_attribute(_INT32),
        keep_dims=bool_attribute(value=False),
    )  # fmt: skip
    return instead, beside


def _find_group(scope: Scope, member: Node) -> tuple[object, int, str] | None:
    """Return the key and size of a collective's group, and its reduction; None if unknown."""
    raw = member.raw
    try:
        if member.op.startswith("Nccl"):
            op = _PLAIN[_decode(raw["reduction"])]
            size = raw["num_devices"].i
            if member.op == "NcclReduce":  # takes all inputs itself
                return (member.op, member.name), size, op
            name = _decode(raw["shared_name"]) if "shared_name" in raw else ""
            return ((member.op, name), size, op) if name else None
        op = _PLAIN[_decode(raw["merge_op"])]
        if _decode(raw["final_op"]) == "Div":
            if op != "Sum" or not set(member.types.get("T", ())) <= _FLOATS:
                return None
            op = "Mean"
        if member.op == "CollectiveReduce":
            keys = (raw["group_key"].i, raw["instance_key"].i)
            return (member.op, keys), raw["group_size"].i, op
        size, *keys2 = (_read_constant(scope, name) for name in member.inputs[1:4])
    except (KeyError, ValueError, ConvertError):
        return None
    return (member.op, tuple(keys2)), size, op


def _reduced_inputs(member: Node) -> Iterator[str]:
    """Yield the inputs that a collective reduces."""
    inputs = [i for i in member.inputs if not i.startswith("^")]
    yield from inputs if member.op == "NcclReduce" else inputs[:1]


def _decode(value: Message) -> str:
    return str(value.s.decode("utf-8", "replace"))


def _read_constant(scope: Scope, name: str) -> int:
    """Return the value of an input that is a constant integer.

    Raises:
        ValueError: It is not constant.
    """
    constant = scope.nodes.get(source_name(name))
    if constant is None or "value" not in constant.raw:
        raise ValueError(name)
    tensor = tensor_proto.from_proto(constant.raw["value"].tensor, constant.name)
    if isinstance(tensor, Strings) or tensor.shape or tensor.nbytes != 4:
        raise ValueError(name)
    data = tensor.tobytes()
    return int.from_bytes(data, "little", signed=True)
