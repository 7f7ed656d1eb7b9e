"""Read the interface of an ONNX file, and expose more of its values as outputs.

Fields appended to the bytes of a protobuf message are merged into it, so outputs can be added to a
model without decoding, rewriting or copying it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from converter.lower.element_types import element_type
from converter.lower.emit import Message
from converter.lower.states import PROPERTY, RecordedState, parse_states
from formats.artifact import Artifact
from formats.containers.protobuf.messages import Message as ProtoMessage
from formats.containers.protobuf.messages import decode
from formats.core.bundle import SafetyFinding, Signature, TensorSpec
from formats.core.storage import Span
from formats.core.weights import Tensor
from formats.limits import DEFAULT, Limits
from formats.onnx import files as onnx_files
from formats.onnx.schemas import SCHEMA

# numpy has no such types: they are cast to float32, which represents each value exactly.
WIDENED = frozenset(
    ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
)
WIDE = "float32"
INT, INTS = 2, 7  # AttributeProto.AttributeType


@dataclass(frozen=True, slots=True)
class NodeInterface:
    """A node of the main graph: its name, operator, inputs, outputs, and attributes of integers."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    numbers: Mapping[str, int | list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OnnxInterface:
    """Inputs, outputs and values of an ONNX file.

    Attributes:
        inputs: Inputs without an initializer.
        outputs: Outputs, with dtype and shape.
        values: Names of all outputs of nodes of the main graph.
        findings: Nodes that run code or read files.
        path: Path of the file.
        weights: Initializers of the main graph, by name.
        nodes: Nodes of the main graph, in order.
        states: Pairs of inputs and outputs that are state; they are the last inputs and outputs.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    values: frozenset[str]
    findings: tuple[SafetyFinding, ...]
    path: Path | None = None
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    nodes: tuple[NodeInterface, ...] = ()
    states: tuple[RecordedState, ...] = ()


def read_interface(path: Path, limits: Limits = DEFAULT) -> OnnxInterface:
    """Read the interface of an ONNX file.

    Raises:
        SourceError: It is not an ONNX file, or is damaged.
    """
    artifact = Artifact(path, limits)
    bundle = onnx_files.read(artifact)
    (signature,) = bundle.signatures
    model = decode(Span.whole(artifact.file), SCHEMA["ModelProto"], limits)
    values = frozenset(
        name for node in model.graph.each("node") for name in list(node.output) if name
    )
    names = [tensor.name for tensor in model.graph.each("initializer")]
    weights = {name: bundle.weights[name] for name in names if name in bundle.weights}
    nodes = tuple(
        NodeInterface(
            node.name or node.op_type,
            node.op_type,
            tuple(node.input),
            tuple(node.output),
            _read_numbers(node),
        )
        for node in model.graph.each("node")
    )
    findings = bundle.metadata.findings
    kept = [p.value for p in model.each("metadata_props") if p.key == PROPERTY]
    states = parse_states(kept[0]) if kept else ()
    if not _are_last(states, signature):
        states = ()
    return OnnxInterface(
        signature.inputs, signature.outputs, values, findings, path, weights, nodes, states
    )


def _read_numbers(node: ProtoMessage) -> dict[str, int | list[int]]:
    """Return the attributes of a node that are integers, or lists of them."""
    found: dict[str, int | list[int]] = {}
    for attribute in node.each("attribute"):
        if attribute.type == INT:
            found[attribute.name] = attribute.i
        elif attribute.type == INTS:
            found[attribute.name] = [*attribute.ints]
    return found


def state_of(file: OnnxInterface, wanted: str = "drop") -> str:
    """Return the option ``state`` that a file was made with, or must have been made with."""
    return "io" if file.states else wanted


def without_states(file: OnnxInterface) -> OnnxInterface:
    """Return a file with those inputs and outputs alone that are no state."""
    count = len(file.states)
    inputs, outputs = (specs[: len(specs) - count] for specs in (file.inputs, file.outputs))
    return replace(file, inputs=inputs, outputs=outputs, states=())


def _are_last(states: Sequence[RecordedState], signature: Signature) -> bool:
    """Return whether recorded states are the last inputs and outputs of a file, in order."""
    inputs, outputs = ([spec.name for spec in s] for s in (signature.inputs, signature.outputs))
    ends = zip(inputs[-len(states) :], outputs[-len(states) :], strict=False)
    return [(s.input, s.output) for s in states] == [*ends][: len(states)]


def expose_values(names: Iterable[str], widened: Iterable[str]) -> tuple[bytes, dict[str, str]]:
    """Return the bytes that add outputs to a model, and the names of these outputs by value.

    Args:
        names: Names of values that are not outputs yet.
        widened: Names of values, outputs or not, that are cast to float32.
    """
    graph = Message()
    found: dict[str, str] = {}
    cast = set(widened)
    for name in [*names, *cast]:
        if name in found:
            continue
        shown = f"{name}/as_{WIDE}" if name in cast else name
        if name in cast:
            graph.data(1, _cast(name, shown))
        info = Message()
        info.data(1, shown)  # the runtime infers its type
        graph.data(12, info)
        found[name] = shown
    model = Message()
    model.data(7, graph)
    return b"".join(p for p in model.pieces() if isinstance(p, bytes)), found


def _cast(name: str, shown: str) -> Message:
    to = Message()
    to.data(1, "to")
    to.number(3, element_type(WIDE))
    to.number(20, 2)
    node = Message()
    node.data(1, name)
    node.data(2, shown)
    node.data(3, shown)
    node.data(4, "Cast")
    node.data(5, to)
    return node
