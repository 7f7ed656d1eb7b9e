"""Encode NodeDefs and their attributes."""

from collections.abc import Sequence
from typing import Any

from formats.containers.protobuf.encoder import encode
from formats.containers.protobuf.messages import Message, new
from formats.tensorflow.schemas import SCHEMA

_INT32 = 3


def encode_node(
    name: str, op: str, inputs: Sequence[str], *, device: str = "", **attributes: Message
) -> bytes:
    """Return the bytes of a NodeDef."""
    values: dict[str, Any] = {"name": name, "op": op, "input": list(inputs), "attr": attributes}
    if device:
        values["device"] = device
    return encode(_message("NodeDef", **{k: v for k, v in values.items() if v}))


def type_attribute(number: int) -> Message:
    """Return an attribute that is a DataType."""
    return _message("AttrValue", type=number)


def int_attribute(value: int) -> Message:
    """Return an attribute that is an integer."""
    return _message("AttrValue", i=value)


def bool_attribute(*, value: bool) -> Message:
    """Return an attribute that is a boolean."""
    return _message("AttrValue", b=value)


def int_tensor_attribute(value: int) -> Message:
    """Return an attribute that is a scalar int32 tensor."""
    content = value.to_bytes(4, "little", signed=True)
    shape = _message("TensorShapeProto")
    tensor = _message("TensorProto", dtype=_INT32, tensor_shape=shape, tensor_content=content)
    return _message("AttrValue", tensor=tensor)


def _message(kind: str, **values: Any) -> Message:
    message = new(SCHEMA[kind])
    message.__dict__.update(values)
    return message
