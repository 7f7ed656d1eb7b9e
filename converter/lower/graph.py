"""The graph that lowering builds: an ONNX graph without protobufs and without the data of weights.

A graph refers to its weights by name: an initializer is a `Weight` of the bundle, a `Folded` tensor
or a small constant. Graph passes rewrite the graph, and `converter.lower.emit` writes it to an ONNX
file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from converter.lower.dims import Dim as Dim
from converter.lower.dims import Shape as Shape

if TYPE_CHECKING:
    import numpy as np

    from converter.lower.encoded import Encoded as EncodedInput
    from formats.core.bundle import JSON

Attribute: TypeAlias = (
    "int | float | str | bytes | list[int] | list[float] | list[str] | list[bytes] | Graph"
    " | np.ndarray | Encoded"
)


@dataclass(frozen=True, slots=True)
class Weight:
    """An initializer that is an unchanged tensor of the bundle."""

    tensor: str


@dataclass(frozen=True, slots=True)
class Encoded:
    """An attribute of an ONNX file that is copied unchanged: a type, sparse tensor or list.

    Attributes:
        kind: Number of its AttributeType.
        field: Number of the protobuf field that holds its values.
        values: Encoded values; empty for an empty list, whose type only ``kind`` records.
    """

    kind: int
    field: int
    values: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Folded:
    """An initializer whose data are computed when they are written, and not kept in memory."""

    dtype: str
    shape: tuple[int, ...]
    make: "Callable[[], np.ndarray]"


@dataclass(slots=True)
class Node:
    """One operation. An empty ``domain`` is ONNX's own."""

    op_type: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Attribute] = field(default_factory=dict)
    name: str = ""
    domain: str = ""

    @property
    def bodies(self) -> "list[Graph]":
        """The subgraphs of a loop or a branch."""
        return [value for value in self.attributes.values() if isinstance(value, Graph)]


@dataclass(frozen=True, slots=True)
class Spec:
    """Dtype (NumPy's name) and shape of a value; ``unranked`` where the rank is unknown.

    The ``type`` of a value that is not a tensor (a sequence, a map) is its encoded TypeProto.
    """

    dtype: str
    shape: Shape
    unranked: bool = False
    type: bytes = b""


@dataclass(frozen=True, slots=True)
class Trace:
    """The value of the graph that corresponds to an output of a source layer, for verification.

    Attributes:
        layer: Names of the models that contain the layer and its own name, joined by slashes.
        class_name: Class of the layer in the source.
        output: Index of the layer's output.
        value: Name of the value in the graph.
        stored: Axis ``i`` of that value is axis ``stored[i]`` of the layer's output.
    """

    layer: str
    class_name: str
    output: int
    value: str
    stored: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class State:
    """A value that the source keeps from one run to the next: here an input and an output.

    Attributes:
        tensor: Name of the tensor, variable or attribute of the source.
        input: Input of the graph that takes its value before the run.
        output: Output of the graph that gives its value after the run.
        shape: Shape of the value before the first run; names of axes are those of inputs.
        initial: That value: a number that fills it, or nested lists; None for the bundle's tensor
            of this name.
    """

    tensor: str
    input: str
    output: str
    shape: Shape
    initial: "JSON" = None


@dataclass(slots=True)
class Graph:
    """Nodes in topological order, and the values that they read and write.

    Attributes:
        nodes: Nodes in topological order.
        inputs: Names of the graph's inputs, in the source's order.
        outputs: Names of its outputs, in the source's order.
        specs: Dtype and shape of each value, as far as they are known.
        initializers: Name → weight of the bundle, folded tensor or small constant.
        opset: Version of ONNX's own operators.
        name: Name of the model.
        traces: Outputs of source layers that are values of the graph, in topological order; one for
            each call of a layer. A pass that removes a value removes its trace.
        trusted: Names of the trusted modules that supplied layers → SHA-256 of their files.
        narrowed: Operator → number of its float64 nodes computed in float32 for lack of a kernel.
        rounded: Whether source and graph round to 8-bit integers: a value half-way between two
            integers may round to either.
        random: Node of the source → its random operation, which draws other values here.
        signature: Name of the TensorFlow signature; empty where there is none.
        sources: Name of an input or output → the tensor of TensorFlow's graph.
        left_out: Optional outputs that are omitted → the reason.
        encoded: Inputs of the source that other inputs replace here.
        unkept: Variables that the source assigns, whose updates a stateless graph does not keep.
        overwritten: Inputs that the source writes to, which a graph leaves as they are.
        states: Variables whose updates are outputs, to be fed to inputs of the next run.
        exporter: Name and version of the tool that made the graph, where it was not convert.
        notes: Warnings of the exporter, and notes to the reader.
        domains: Versions of operator domains other than ONNX's own, where they are not the default.
        metadata: Metadata properties of the file.
        ir_version: Minimum IR version of the file; zero for that of ``opset``.
    """

    name: str
    opset: int
    nodes: list[Node] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    specs: dict[str, Spec] = field(default_factory=dict)
    initializers: "dict[str, Weight | Folded | np.ndarray]" = field(default_factory=dict)
    traces: list[Trace] = field(default_factory=list)
    trusted: dict[str, str] = field(default_factory=dict)
    narrowed: dict[str, int] = field(default_factory=dict)
    rounded: bool = False
    random: dict[str, str] = field(default_factory=dict)
    signature: str = ""
    sources: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    encoded: "list[EncodedInput]" = field(default_factory=list)
    unkept: list[str] = field(default_factory=list)
    overwritten: list[str] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    exporter: str = ""
    notes: list[str] = field(default_factory=list)
    domains: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    ir_version: int = 0


def needed(graph: Graph) -> Graph:
    """Return the graph without nodes and initializers that no output needs."""
    wanted = set(graph.outputs)
    nodes = []
    for node in reversed(graph.nodes):
        if wanted.intersection(node.outputs):
            nodes.append(node)
            wanted.update(node.inputs)
            for body in node.bodies:
                wanted.update(free_names(body))
    nodes.reverse()
    initializers = {n: v for n, v in graph.initializers.items() if n in wanted}
    made = {name for node in nodes for name in node.outputs}
    named = wanted | made | set(graph.inputs)
    # A subgraph shares the specs of the graphs around it: keep only those of names it uses.
    specs = {n: graph.specs[n] for n in sorted(named) if n in graph.specs}
    traces = [t for t in graph.traces if t.value in made]
    return replace(graph, nodes=nodes, specs=specs, initializers=initializers, traces=traces)


def free_names(graph: Graph) -> set[str]:
    """Return the names that a graph's nodes read, subgraphs included, and those of its outputs."""
    names = set(graph.outputs)
    for node in graph.nodes:
        names.update(node.inputs)
        for body in node.bodies:
            names |= free_names(body)
    return names


def consumers(graph: Graph) -> Mapping[str, list[Node]]:
    """Return the nodes that read each value; a node reads what its subgraphs read."""
    found: dict[str, list[Node]] = {}
    for node in graph.nodes:
        names = set(node.inputs)
        for body in node.bodies:
            names |= free_names(body)
        for name in names:
            found.setdefault(name, []).append(node)
    return found
