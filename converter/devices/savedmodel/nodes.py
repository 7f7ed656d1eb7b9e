"""Nodes that are written where the source had others, or none."""

from collections.abc import Sequence
from typing import Any

from formats.containers.protobuf.encoder import encode
from formats.containers.protobuf.messages import Message, new
from formats.tensorflow.schemas import SCHEMA

_INT32 = 3


def node(
    name: str, op: str, inputs: Sequence[str], *, device: str = "", **attributes: Message
) -> bytes:
    """Return a NodeDef."""
    values: dict[str, Any] = {"name": name, "op": op, "input": list(inputs), "attr": attributes}
    if device:
        values["device"] = device
    return encode(_made("NodeDef", **{k: v for k, v in values.items() if v}))


def type_of(number: int) -> Message:
    """Return an attribute that is a DataType."""
    return _made("AttrValue", type=number)


def integer(value: int) -> Message:
    """Return an attribute that is a number."""
    return _made("AttrValue", i=value)


def truth(*, value: bool) -> Message:
    """Return an attribute that is a truth value."""
    return _made("AttrValue", b=value)


def scalar(value: int) -> Message:
    """Return an attribute that is a tensor of one number of 32 bits."""
    content = value.to_bytes(4, "little", signed=True)
    shape = _made("TensorShapeProto")
    tensor = _made("TensorProto", dtype=_INT32, tensor_shape=shape, tensor_content=content)
    return _made("AttrValue", tensor=tensor)


def _made(kind: str, **values: Any) -> Message:
    message = new(SCHEMA[kind])
    message.__dict__.update(values)
    return message
