"""The graph that lowering builds: ONNX's own terms, without its protobufs and without data.

A graph names its weights and never holds them: an initializer is either a `Weight` of the bundle or
a small constant. ONNX files are written from this (`converter.lower.emit`), and graph passes
rewrite it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from converter.lower.dims import Dim as Dim
from converter.lower.dims import Shape as Shape

if TYPE_CHECKING:
    import numpy as np

    from converter.lower.encoded import Encoded as EncodedInput

Attribute: TypeAlias = (
    "int | float | str | bytes | list[int] | list[float] | list[str] | list[bytes] | Graph"
    " | np.ndarray | Encoded"
)


@dataclass(frozen=True, slots=True)
class Weight:
    """An initializer that is a tensor of the bundle, as it is stored there."""

    tensor: str


@dataclass(frozen=True, slots=True)
class Encoded:
    """An attribute that is handed on as it stands in an ONNX file: types, sparse tensors, lists.

    Attributes:
        kind: Number of its AttributeType.
        field: Number of the field that holds its values.
        values: Each one encoded; none for an empty list, whose type only ``kind`` tells.
    """

    kind: int
    field: int
    values: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Folded:
    """An initializer that a pass computed: made when it is written, and not kept."""

    dtype: str
    shape: tuple[int, ...]
    make: "Callable[[], np.ndarray]"


@dataclass(slots=True)
class Node:
    """One operation. ``domain`` is ONNX's own where it is empty."""

    op_type: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Attribute] = field(default_factory=dict)
    name: str = ""
    domain: str = ""

    @property
    def bodies(self) -> "list[Graph]":
        """The inner graphs of a loop or a branch."""
        return [value for value in self.attributes.values() if isinstance(value, Graph)]


@dataclass(frozen=True, slots=True)
class Spec:
    """dtype (numpy's name) and shape of a value; ``unranked`` where not even the rank is known.

    What is no tensor (a sequence, a map) has the encoded TypeProto that says so as its ``type``.
    """

    dtype: str
    shape: Shape
    unranked: bool = False
    type: bytes = b""


@dataclass(frozen=True, slots=True)
class Trace:
    """Which value of the graph is what a layer of the source yields: for verification.

    Attributes:
        layer: Names of the models it is in and its own, between slashes.
        class_name: The source's.
        output: Which of the layer's outputs this is.
        value: Name in the graph.
        stored: Axis ``i`` of that value is axis ``stored[i]`` of the layer's output.
    """

    layer: str
    class_name: str
    output: int
    value: str
    stored: tuple[int, ...]


@dataclass(slots=True)
class Graph:
    """Nodes in topological order, and what they name.

    Attributes:
        nodes: In an order in which each comes after those it needs.
        inputs: Names of the graph's inputs, in the source's order.
        outputs: Names of its outputs, likewise.
        specs: What is known of each value.
        initializers: Name → weight of the bundle, or a small constant.
        opset: Version of ONNX's own operators.
        name: Of the model.
        traces: Outputs of layers that are values here, each after those it is made of; one layer
            called several times has several. A pass may take the value away: so goes its trace.
        trusted: Modules of the user's that supplied some of it → SHA-256 of their files.
        narrowed: Operator → how many of float64 are computed in float32, for want of a kernel.
        rounded: Whether the source rounds to integers of 8 bits on the way, as the graph does: what
            lies half-way between two may become either.
        random: Where in the source → the operation there that draws numbers: here it draws others.
        signature: Of TensorFlow's signatures, which one this is; empty where there is none.
        sources: Name of an input or output → the tensor that it is in TensorFlow's graph.
        left_out: Outputs that nothing says are wanted → why they are not here.
        encoded: Inputs of the source that are no inputs here, and what stands for them.
        unkept: Variables that the source assigns to, which a graph without state cannot.
        exporter: Who else made it, with the version; empty where we did.
        notes: What its exporter warned of, and what a reader should know of it besides.
        domains: Versions of operators other than ONNX's own, where they are not the usual ones.
        metadata: Key and value of what users of the file may look up in it.
        ir_version: Of the file format that it needs at least; zero for what goes with ``opset``.
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
    # An inner graph has those of all around it: only what it names is looked up.
    specs = {n: graph.specs[n] for n in sorted(named) if n in graph.specs}
    traces = [t for t in graph.traces if t.value in made]
    return replace(graph, nodes=nodes, specs=specs, initializers=initializers, traces=traces)


def free_names(graph: Graph) -> set[str]:
    """Return the names that a graph reads or yields, its own included."""
    names = set(graph.outputs)
    for node in graph.nodes:
        names.update(node.inputs)
        for body in node.bodies:
            names |= free_names(body)
    return names


def consumers(graph: Graph) -> Mapping[str, list[Node]]:
    """Return the nodes that read each value; inner graphs count for the node that holds them."""
    found: dict[str, list[Node]] = {}
    for node in graph.nodes:
        names = set(node.inputs)
        for body in node.bodies:
            names |= free_names(body)
        for name in names:
            found.setdefault(name, []).append(node)
    return found
