"""Reductions over several devices, computed on one.

A collective waits for its partners: the ops of the same group and instance (NCCL: of the same
shared name), one for each device. Where all of them stand in one graph or function, as they do
where a strategy of one machine ran its replicas, what they compute is what a plain op computes of
all their inputs; so each becomes that op. A group whose partners are elsewhere (other workers)
stays a gap.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from converter.devices.savedmodel.distributed_ops import REDUCTIONS
from converter.devices.savedmodel.nodes import integer, node, scalar, truth, type_of
from converter.devices.savedmodel.scopes import Graph, Node, Scope, source_of
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
    """What a node reduces: all these inputs, by this op."""

    inputs: tuple[str, ...]
    op: str


@dataclass(slots=True)
class Reductions:
    """Nodes whose partners are all here, as (function, node)."""

    found: dict[tuple[str, str], Reduction] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)


def reductions(graph: Graph) -> Reductions:
    """Return the collective reductions of a graph that a single device can compute."""
    result = Reductions()
    for scope in graph.scopes:
        groups: dict[object, list[tuple[Node, int, str]]] = {}
        for member in scope.nodes.values():
            if member.op in REDUCTIONS:
                described = _described(scope, member)
                if described is not None:
                    key, size, op = described
                    groups.setdefault(key, []).append((member, size, op))
        for members in groups.values():
            inputs = tuple(i for m, _, _ in members for i in _data(m))
            sizes = {size for _, size, _ in members}
            ops = {(op, m.types.get("T")) for m, _, op in members}
            if sizes != {len(inputs)} or len(ops) != 1:
                continue
            for member, _, op in members:
                result.found[scope.name, member.name] = Reduction(inputs, op)
                result.counts[member.op] += 1
    return result


def replacement(
    scope: Scope, member: Node, reduction: Reduction, device: str
) -> tuple[bytes, list[bytes]]:
    """Return the node that takes a member's place, and those that it needs beside it.

    What it yields is called ``output``, where a collective's is ``data``.
    """
    (kind,) = member.types["T"]
    axis, stacked = f"{member.name}/axis", f"{member.name}/all"
    between = ":output:0" if scope.name else ""
    waits = [i for i in member.inputs if i.startswith("^")]
    beside = [
        node(axis, "Const", [], device=device, dtype=type_of(_INT32), value=scalar(0)),
        node(
            stacked, "Pack", reduction.inputs, device=device,
            N=integer(len(reduction.inputs)), T=type_of(kind), axis=integer(0),
        ),
    ]  # fmt: skip
    instead = node(
        member.name, reduction.op, [f"{stacked}{between}", f"{axis}{between}", *waits],
        device=device, T=type_of(kind), Tidx=type_of(_INT32), keep_dims=truth(value=False),
    )  # fmt: skip
    return instead, beside


def _described(scope: Scope, member: Node) -> tuple[object, int, str] | None:
    """Return which group a member is of, how many partners it has, and what they compute."""
    raw = member.raw
    try:
        if member.op.startswith("Nccl"):
            op = _PLAIN[_text(raw["reduction"])]
            size = raw["num_devices"].i
            if member.op == "NcclReduce":  # takes all inputs itself
                return (member.op, member.name), size, op
            name = _text(raw["shared_name"]) if "shared_name" in raw else ""
            return ((member.op, name), size, op) if name else None
        op = _PLAIN[_text(raw["merge_op"])]
        if _text(raw["final_op"]) == "Div":
            if op != "Sum" or not set(member.types.get("T", ())) <= _FLOATS:
                return None
            op = "Mean"
        if member.op == "CollectiveReduce":
            keys = (raw["group_key"].i, raw["instance_key"].i)
            return (member.op, keys), raw["group_size"].i, op
        size, *keys2 = (_number(scope, name) for name in member.inputs[1:4])
    except (KeyError, ValueError, ConvertError):
        return None
    return (member.op, tuple(keys2)), size, op


def _data(member: Node) -> Iterator[str]:
    """Yield what a member reduces."""
    inputs = [i for i in member.inputs if not i.startswith("^")]
    yield from inputs if member.op == "NcclReduce" else inputs[:1]


def _text(value: Message) -> str:
    return str(value.s.decode("utf-8", "replace"))


def _number(scope: Scope, name: str) -> int:
    """Return the number that an input is, where it is a constant.

    Raises:
        ValueError: It is none.
    """
    constant = scope.nodes.get(source_of(name))
    if constant is None or "value" not in constant.raw:
        raise ValueError(name)
    tensor = tensor_proto.from_proto(constant.raw["value"].tensor, constant.name)
    if isinstance(tensor, Strings) or tensor.shape or tensor.nbytes != 4:
        raise ValueError(name)
    data = tensor.tobytes()
    return int.from_bytes(data, "little", signed=True)
