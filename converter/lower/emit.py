"""Encode a graph as an ONNX file; weights are streamed, or stay in external files.

Messages are preceded by their lengths, so sizes are computed first and bytes are then written once:
memory does not grow with the weights. Importing onnx would take as long as converting a model, and
its protobufs hold several copies of every tensor; tests check the files with `onnx.checker`.
Spec: https://github.com/onnx/onnx/blob/v1.23.0/onnx/onnx.in.proto
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from converter.lower.element_types import element_type
from converter.lower.graph import Attribute, Encoded, Folded, Graph, Node, Shape, Spec, Weight
from converter.lower.states import PROPERTY, encode_states
from converter.version import VERSION
from formats.core.weights import DTYPES, Piece, Tensor, numpy_dtype
from formats.errors import InternalError

# Opset -> the IR version of its release, https://github.com/onnx/onnx/blob/v1.23.0/onnx/helper.py
IR_VERSIONS = {18: 8, 19: 9, 20: 9, 21: 10, 22: 10}
DOMAINS = {"ai.onnx.ml": 3}
PRODUCER = "model-convert"


@dataclass(frozen=True, slots=True)
class Lazy:
    """Bytes that are computed when they are written."""

    nbytes: int
    make: Callable[[], Iterable[Piece]]


@dataclass(frozen=True, slots=True)
class External:
    """Location of a weight's bytes outside the ONNX file."""

    location: str
    offset: int
    length: int


class Message:
    """A protobuf message being encoded: a list of bytes and of lazy parts."""

    __slots__ = ("nbytes", "parts")

    def __init__(self) -> None:
        self.parts: list[bytearray | Lazy] = []  # small appends extend the last bytearray in place
        self.nbytes = 0

    def number(self, field: int, value: int) -> None:
        """Append a varint."""
        self._append(_varint(field << 3) + _varint(value & (1 << 64) - 1))

    def real(self, field: int, value: float) -> None:
        """Append a 32-bit float."""
        self._append(_varint(field << 3 | 5) + struct.pack("<f", value))

    def data(self, field: int, value: "bytes | str | Message | Lazy") -> None:
        """Append bytes, a string or another message."""
        if isinstance(value, str):
            value = value.encode("utf-8", "backslashreplace")
        size = len(value) if isinstance(value, bytes) else value.nbytes
        self._append(_varint(field << 3 | 2) + _varint(size))
        if isinstance(value, Message):
            for part in value.parts:
                self._append(part)
        else:
            self._append(value)

    def _append(self, part: bytes | bytearray | Lazy) -> None:
        if isinstance(part, bytes | bytearray):
            last = self.parts[-1] if self.parts else None
            if not isinstance(last, bytearray):
                last = bytearray()
                self.parts.append(last)
            last += part
            self.nbytes += len(part)
        else:
            self.parts.append(part)
            self.nbytes += part.nbytes

    def pieces(self) -> Iterable[Piece]:
        """Yield the message's bytes, in order."""
        for part in self.parts:
            if isinstance(part, bytearray):
                yield bytes(part)
            else:
                yield from part.make()


def model(
    graph: Graph,
    weights: Mapping[str, Tensor],
    *,
    external: Mapping[str, External] | None = None,
) -> Message:
    """Return a ModelProto.

    Args:
        graph: Graph to encode.
        weights: Tensors that it names.
        external: Locations of initializers outside the file; all others are embedded.
    """
    message = Message()
    message.number(1, graph.ir_version or IR_VERSIONS[graph.opset])
    message.data(2, PRODUCER)
    message.data(3, VERSION)
    message.data(7, _graph(graph, weights, external or {}))
    versions = {"": graph.opset} if graph.opset else {}  # a tree ensemble needs ai.onnx.ml only
    for domain, version in {**versions, **_domains(graph, graph.domains)}.items():
        opset = Message()
        opset.data(1, domain)
        opset.number(2, version)
        message.data(8, opset)
    properties = dict(graph.metadata)
    if graph.states:
        properties[PROPERTY] = encode_states(graph, weights)
    for key, text in properties.items():
        message.data(14, _pair(key, text))
    return message


def _domains(graph: Graph, versions: Mapping[str, int]) -> dict[str, int]:
    """Return the domains other than ONNX's own that a graph uses, with their versions."""
    found = {}
    for node in graph.nodes:
        if node.domain:
            found[node.domain] = versions.get(node.domain) or DOMAINS[node.domain]
        for value in node.attributes.values():
            if isinstance(value, Graph):
                found.update(_domains(value, versions))
    return found


def _pair(key: str, value: str) -> Message:
    message = Message()
    message.data(1, key)
    message.data(2, value)
    return message


def _graph(
    graph: Graph, weights: Mapping[str, Tensor], external: Mapping[str, External]
) -> Message:
    message = Message()
    for node in graph.nodes:
        message.data(1, _node(node, weights, external))
    message.data(2, graph.name)
    for name, initializer in graph.initializers.items():
        message.data(5, _initializer(name, initializer, weights, external))
    for name in graph.inputs:
        message.data(11, _value_info(name, graph.specs.get(name)))
    for name in graph.outputs:
        message.data(12, _value_info(name, graph.specs.get(name)))
    return message


def _node(node: Node, weights: Mapping[str, Tensor], external: Mapping[str, External]) -> Message:
    message = Message()
    for name in node.inputs:
        message.data(1, name)
    for name in node.outputs:
        message.data(2, name)
    message.data(3, node.name)
    message.data(4, node.op_type)
    for name, value in node.attributes.items():
        message.data(5, _attribute(name, value, weights, external))
    if node.domain:
        message.data(7, node.domain)
    return message


def _attribute(
    name: str, value: Attribute, weights: Mapping[str, Tensor], external: Mapping[str, External]
) -> Message:
    message = Message()
    message.data(1, name)
    if isinstance(value, bool | int | np.integer):
        message.number(3, int(value))
        message.number(20, 2)
    elif isinstance(value, float | np.floating):
        message.real(2, float(value))
        message.number(20, 1)
    elif isinstance(value, str | bytes):
        message.data(4, value)
        message.number(20, 3)
    elif isinstance(value, np.ndarray):
        message.data(5, array("", value))
        message.number(20, 4)
    elif isinstance(value, Graph):
        message.data(6, _graph(value, weights, external))
        message.number(20, 5)
    elif isinstance(value, Encoded):
        for encoded in value.values:
            message.data(value.field, encoded)
        message.number(20, value.kind)
    elif all(isinstance(v, int) for v in value):
        for v in value:
            message.number(8, int(v))
        message.number(20, 7)
    elif all(isinstance(v, float) for v in value):
        for v in value:
            message.real(7, float(v))
        message.number(20, 6)
    else:
        for v in value:
            message.data(9, v if isinstance(v, bytes) else str(v))
        message.number(20, 8)
    return message


def _initializer(
    name: str,
    value: Weight | Folded | np.ndarray,
    weights: Mapping[str, Tensor],
    external: Mapping[str, External],
) -> Message:
    if isinstance(value, np.ndarray):
        return array(name, value)
    content = data(value, weights)
    if isinstance(value, Folded):
        message = head(name, value.dtype, value.shape)
    else:
        tensor = weights[value.tensor]
        message = head(name, tensor.dtype.name, tensor.shape)
    place = external.get(value.tensor if isinstance(value, Weight) else name)
    if place is None:
        message.data(9, content)
        return message
    for key, text in (
        ("location", place.location), ("offset", place.offset), ("length", place.length),
    ):  # fmt: skip
        message.data(13, _pair(key, str(text)))
    message.number(14, 1)
    return message


def data(value: Weight | Folded, weights: Mapping[str, Tensor]) -> Lazy:
    """Return the bytes of a weight or of a folded initializer."""
    if isinstance(value, Weight):
        return Lazy(weights[value.tensor].nbytes, weights[value.tensor].pieces)
    size = DTYPES[value.dtype].nbytes(prod(value.shape))
    return Lazy(size, lambda: _contiguous(value))


def _contiguous(value: Folded) -> Iterable[Piece]:
    array = np.asarray(value.make(), order="C")  # keeps rank 0, unlike ascontiguousarray
    if array.shape != value.shape or array.dtype != numpy_dtype(DTYPES[value.dtype]):
        raise InternalError(f"a constant is {array.dtype}{array.shape}, not {value}")
    data = array.reshape(-1).view(np.uint8).data
    for start in range(0, len(data), 1 << 20):
        yield bytes(data[start : start + (1 << 20)])


def array(name: str, values: np.ndarray) -> Message:
    """Return a TensorProto with an array's values; object arrays hold strings."""
    kind = "string" if values.dtype.kind in "OUS" else values.dtype.name
    message = head(name, kind, values.shape)
    if kind == "string":
        for text in values.flat:
            message.data(6, text if isinstance(text, bytes) else str(text))
    else:
        message.data(9, np.ascontiguousarray(values).tobytes())
    return message


def head(name: str, dtype: str, sizes: tuple[int, ...]) -> Message:
    """Return a TensorProto with a name, dtype and shape, and no data yet."""
    message = Message()
    for n in sizes:
        message.number(1, n)
    message.number(2, element_type(dtype))
    if name:
        message.data(8, name)
    return message


def _value_info(name: str, spec: Spec | None) -> Message:
    message = Message()
    message.data(1, name)
    if spec is None:  # an output of a subgraph: runtimes infer its type
        return message
    if spec.type:
        message.data(2, spec.type)
        return message
    tensor = Message()
    tensor.number(1, element_type(spec.dtype))
    if not spec.unranked:
        tensor.data(2, shape(spec.shape))
    kind = Message()
    kind.data(1, tensor)
    message.data(2, kind)
    return message


def shape(sizes: Shape) -> Message:
    """Return a TensorShapeProto."""
    message = Message()
    for n in sizes:
        dimension = Message()
        if isinstance(n, int):
            dimension.number(1, n)
        elif n is not None:
            dimension.data(2, n)
        message.data(1, dimension)
    return message


def _varint(value: int) -> bytes:
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)
