"""Read attributes and types of an ONNX file.

Numbers, strings, lists of these, dense tensors and subgraphs become Python values, as in lowered
graphs; types, sparse tensors and tensors of fewer than eight bits are passed on encoded.
Spec: https://github.com/onnx/onnx/blob/v1.23.0/onnx/onnx.in.proto, AttributeProto and TypeProto
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from converter.lower import emit
from converter.lower.element_types import ELEMENT_TYPES
from converter.lower.graph import Attribute, Encoded, Graph, Shape, Spec
from formats.containers.protobuf.messages import Message
from formats.core.plurals import count
from formats.core.storage import File
from formats.core.strings import Strings
from formats.core.weights import Tensor
from formats.errors import CorruptError, UnsupportedError
from formats.onnx import tensors

Opener = Callable[[str], File]

# fmt: off
# AttributeType -> name and number of the field of AttributeProto that holds its value.
FIELDS: Mapping[int, tuple[str, int]] = {
    1:  ("f", 2),        2:  ("i", 3),        3:  ("s", 4),               4:  ("t", 5),
    5:  ("g", 6),        6:  ("floats", 7),   7:  ("ints", 8),            8:  ("strings", 9),
    9:  ("tensors", 10), 10: ("graphs", 11),  11: ("sparse_tensor", 22),
    12: ("sparse_tensors", 23),               13: ("tp", 14),             14: ("type_protos", 15),
}
# fmt: on
GRAPHS = 10
MOST_AXES = 64
BY_FIELD = {name: kind for kind, (name, _) in FIELDS.items()}


@dataclass(frozen=True, slots=True)
class Reference:
    """An attribute of a node in a function that refers to an attribute of the function."""

    name: str


def attribute(
    proto: Message, where: str, member: Opener, graph: Callable[[Message], Graph]
) -> "Attribute | Reference":
    """Return the value of an attribute.

    Args:
        proto: Decoded AttributeProto.
        where: Node and attribute, for messages.
        member: Function that opens a file of external data.
        graph: Function that reads a subgraph.

    Raises:
        CorruptError: The attribute has no value, or one that does not match its type.
        UnsupportedError: It is a list of graphs, which no current operator has.
    """
    if proto.ref_attr_name:
        return Reference(proto.ref_attr_name)
    kind = _kind(proto, where)
    name, number = FIELDS[kind]
    value: Any = getattr(proto, name)
    if kind == GRAPHS:
        raise UnsupportedError("an attribute that is a list of graphs", where=where)
    if name == "g":
        return graph(value)
    if name == "t":
        found = tensors.from_proto(value, where, member)
        if isinstance(found, Strings) or found.dtype.bits >= 8:
            return array(found)
        return Encoded(kind, number, (tensor_bytes(found),))
    if name == "s":
        return _text(value)
    if name in ("i", "f"):
        return int(value) if name == "i" else float(value)
    if name == "ints":
        return [int(v) for v in value]
    if name in ("floats", "strings") and not value:
        return Encoded(kind, number)  # an empty Python list has no element type
    if name == "floats":
        return [float(v) for v in value]
    if name == "strings":
        return _texts(value)
    return Encoded(kind, number, _encode(name, value, where, member))


def _kind(proto: Message, where: str) -> int:
    """Return the AttributeType; files before IR version 2 do not record it."""
    if proto.type in FIELDS:
        return int(proto.type)
    for name, kind in BY_FIELD.items():
        if proto.has(name):
            return kind
    raise CorruptError(f"an attribute of type {proto.type} without a value", where=where)


def _encode(name: str, value: Any, where: str, member: Opener) -> tuple[bytes, ...]:
    if name in ("tp", "type_protos"):
        return tuple(type_bytes(v, where) for v in ([value] if name == "tp" else value))
    if name == "tensors":
        return tuple(_tensor_or_texts(tensors.from_proto(v, where, member)) for v in value)
    protos = [value] if name == "sparse_tensor" else value
    return tuple(_sparse(v, where, member) for v in protos)


def _sparse(proto: Message, where: str, member: Opener) -> bytes:
    message = emit.Message()
    for number, part in ((1, proto.values), (2, proto.indices)):
        message.data(number, _tensor_or_texts(tensors.from_proto(part, where, member)))
    for n in tensors.shape_of(proto, where):
        message.number(3, n)
    return written(message)


def _tensor_or_texts(found: Tensor | Strings) -> bytes:
    return written(emit.array("", array(found))) if isinstance(found, Strings) else (
        tensor_bytes(found)
    )  # fmt: skip


def tensor_bytes(tensor: Tensor) -> bytes:
    """Return a tensor as an encoded TensorProto without a name."""
    message = emit.head("", tensor.dtype.name, tensor.shape)
    message.data(9, tensor.tobytes())
    return written(message)


def written(message: emit.Message) -> bytes:
    """Return the bytes of a small message."""
    return b"".join(p if isinstance(p, bytes) else p.read() for p in message.pieces())


def array(found: Tensor | Strings) -> "np.ndarray":
    """Return a tensor as an array; strings are bytes objects."""
    if isinstance(found, Tensor):
        return found.numpy()
    result = np.empty(len(found.values()), object)
    result[:] = found.values()
    return result.reshape(found.shape)


def _texts(values: Sequence[bytes]) -> list[str] | list[bytes]:
    try:
        return [v.decode() for v in values]
    except UnicodeDecodeError:
        return list(values)


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


# -- types ---------------------------------------------------------------------------------------


def spec(value: Message) -> Spec | None:
    """Return the dtype and shape in a ValueInfoProto, or None where it has no type.

    Raises:
        UnsupportedError: The element type is unknown.
    """
    kind = value.type.which("value")
    if kind is None:
        return None
    if kind != "tensor_type":
        encoded = type_bytes(value.type, value.name)
        return Spec(kind.removesuffix("_type"), (), unranked=True, type=encoded)
    tensor = value.type.tensor_type
    dtype = tensors.element_name(tensor.elem_type)
    if dtype not in ELEMENT_TYPES:
        if not tensor.elem_type:
            return None
        raise UnsupportedError(f"a value of {dtype}", where=value.name)
    if not tensor.has("shape"):
        return Spec(dtype, (), unranked=True)
    return Spec(dtype, shape(tensor.shape))


def shape(proto: Message) -> Shape:
    """Return a shape: static sizes, names of symbolic dimensions, and None where unknown.

    Raises:
        CorruptError: There are more than `MOST_AXES` axes.
    """
    found: list[int | str | None] = []
    if len(proto.dim) > MOST_AXES:
        raise CorruptError(
            f"a value of {count('axis', len(proto.dim))}", expected=f"at most {MOST_AXES}"
        )
    for dim in proto.dim:
        if dim.which("value") == "dim_value" and dim.dim_value >= 0:
            found.append(int(dim.dim_value))
        else:  # some exporters write a negative size for an unknown one
            found.append(str(dim.dim_param) or None)
    return tuple(found)


def type_bytes(proto: Message, where: str) -> bytes:
    """Return a decoded TypeProto, encoded again.

    Raises:
        UnsupportedError: The type is opaque.
    """
    return written(_type(proto, where))


def _type(proto: Message, where: str) -> emit.Message:
    kind = proto.which("value")
    inner, message = emit.Message(), emit.Message()
    if kind in ("tensor_type", "sparse_tensor_type"):
        said = getattr(proto, kind)
        inner.number(1, said.elem_type)
        if said.has("shape"):
            inner.data(2, emit.shape(shape(said.shape)))
        message.data(1 if kind == "tensor_type" else 8, inner)
    elif kind in ("sequence_type", "optional_type"):
        inner.data(1, _type(getattr(proto, kind).elem_type, where))
        message.data(4 if kind == "sequence_type" else 9, inner)
    elif kind == "map_type":
        inner.number(1, proto.map_type.key_type)
        inner.data(2, _type(proto.map_type.value_type, where))
        message.data(5, inner)
    else:
        raise UnsupportedError(f"a value of type {kind or 'nothing'}", where=where)
    if proto.denotation:
        message.data(6, proto.denotation)
    return message
