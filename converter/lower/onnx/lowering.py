"""Read an ONNX file into a graph with the same nodes, opsets and names.

The graph is equivalent, and its weights are those of the bundle: constants become initializers,
local functions are inlined, inputs with a default value become constants, and sparse tensors become
dense. Parts of the file that a graph cannot represent are counted in its notes.
Spec: https://github.com/onnx/onnx/blob/v1.23.0/docs/IR.md
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from converter.lower.graph import Folded, Graph, Node, Spec
from converter.lower.onnx.attributes import Opener, Reference, attribute, spec
from converter.lower.onnx.dtypes import infer_dtypes
from converter.lower.onnx.functions import Call, Function, Key, inline_functions
from converter.lower.onnx.tensors import SHAPED_BY_NUMBERS, Initializer, Tensors
from formats.containers.protobuf import text_format
from formats.containers.protobuf.messages import Message, decode
from formats.core.bundle import Bundle
from formats.core.storage import File, Span
from formats.errors import CorruptError, SourceError, UnsupportedError
from formats.limits import DEFAULT, Limits
from formats.onnx.files import TEXT
from formats.onnx.schemas import SCHEMA

OLDEST_IR = 4  # the first IR version whose initializers need not be inputs


def lower(bundle: Bundle, *, opset: int | None = None, limits: Limits = DEFAULT) -> Graph:
    """Return the graph of a bundle that was read from an ONNX file.

    Args:
        bundle: Bundle with a topology of kind ``onnx``.
        opset: Requested opset; operators are never converted to another version.
        limits: Limits on the size of the file's contents.

    Raises:
        CorruptError: The file is damaged.
        UnsupportedError: Its contents are not supported, or its opset is not the requested one.
        LimitError: The graph is too large with its functions inlined.
    """
    content = bundle.topology.content if bundle.topology else None
    runs = content.items() if isinstance(content, Mapping) else ()
    files = {name: span for name, span in runs if isinstance(span, Span)}
    if not files:
        raise CorruptError("there is no ONNX file in the bundle")
    name, span = next(iter(files.items()))

    def member(location: str) -> File:
        found = files[location].storage if location in files else None
        if not isinstance(found, File):
            raise SourceError(f"no file {location!r}", where=name)
        return found

    if TEXT.match(span.read(0, min(1 << 16, span.length))):
        model = text_format.parse(span, SCHEMA["ModelProto"], SCHEMA, limits)
    else:
        model = decode(span, SCHEMA["ModelProto"], limits)
    graph = _Reader(Tensors(bundle.weights, member, limits), member).model(model, limits)
    if opset not in (None, graph.opset):
        raise UnsupportedError(
            f"the source is written for opset {graph.opset}, not {opset}",
            hint="Omit opset=: operators of ONNX files are not converted to another opset",
        )
    return graph


class _Reader:
    """Reads one file.

    Attributes:
        left_out: Kinds of parts that a graph cannot represent, and their counts.
    """

    def __init__(self, tensors: Tensors, member: Opener) -> None:
        self.tensors = tensors
        self.member = member
        self.left_out: Counter[str] = Counter()
        self._keys: frozenset[Key] = frozenset()
        self._opset = 0

    def model(self, model: Message, limits: Limits) -> Graph:
        """Return the graph of the whole model."""
        versions = {_domain(o.domain): int(o.version) for o in model.opset_import}
        versions = versions or {"": 1}  # IR versions 1 and 2 had only one opset
        self._opset = versions.get("", 0)
        self._keys = frozenset(map(_key, model.functions))
        graph = self.graph(model.graph, "")
        if model.functions:
            functions = {_key(f): self.function(f, versions) for f in model.functions}
            graph = inline_functions(graph, functions, limits)
        if not graph.outputs:
            raise UnsupportedError("the graph has no outputs")
        _check_names(graph, frozenset())
        for name in (*graph.inputs, *graph.outputs):
            if name not in graph.specs:
                raise UnsupportedError(
                    f"{name!r:.80} is an input or output without a type",
                    hint="onnx.shape_inference.infer_shapes gives outputs their types",
                )
        infer_dtypes(graph)
        used = _domains(graph)
        missing = sorted(used - set(versions))
        if missing:
            raise CorruptError(f"operators of domain {missing[0]!r}, and no version of it")
        graph.domains = {d: v for d, v in versions.items() if d in used and d}
        graph.ir_version = max(OLDEST_IR, int(model.ir_version))
        graph.metadata = {str(p.key): str(p.value) for p in model.metadata_props}
        words = (model.producer_name, model.producer_version)
        graph.exporter = " ".join(w for w in words if w) or "onnx"
        self.left_out["training steps"] += len(model.training_info)
        self.left_out["device configurations"] += len(model.configuration)
        graph.notes = [f"{what}: {n}" for what, n in sorted(self.left_out.items()) if n]
        return graph

    def function(self, proto: Message, versions: dict[str, int]) -> Function:
        """Return one of the model's functions.

        Raises:
            UnsupportedError: The function imports other opset versions than the model.
        """
        for said in proto.opset_import:
            domain, version = _domain(said.domain), int(said.version)
            if versions.setdefault(domain, version) != version:
                raise UnsupportedError(
                    f"the function {proto.name!r} has version {version} of "
                    f"{domain or 'ai.onnx'}, the model {versions[domain]}"
                )
        path = ".".join(p for p in (str(proto.domain), str(proto.name)) if p)
        body = Graph(path, self._opset, inputs=list(proto.input), outputs=list(proto.output))
        self.nodes(proto, path, body)
        defaults: dict[str, Any] = {
            str(a.name): attribute(a, path, self.member, lambda g: self.graph(g, path))
            for a in proto.attribute_proto
        }
        return Function(_key(proto), body, defaults)

    def graph(self, proto: Message, path: str) -> Graph:
        """Return the main graph, or the subgraph in the attribute that ``path`` names."""
        graph = Graph(str(proto.name) or "model", self._opset)
        for value in (*proto.value_info, *proto.input, *proto.output):
            found = spec(value)
            if found is not None:
                graph.specs[str(value.name)] = found
        shaping = _shaping(proto)
        for tensor in proto.initializer:
            name = str(tensor.name)
            made = self.tensors.dense(tensor, _origin(path, name), shapes=name in shaping)
            self.initialize(graph, name, made)
        for sparse in proto.sparse_initializer:
            name = str(sparse.values.name)
            self.initialize(graph, name, self.tensors.sparse(sparse, _origin(path, name)))
        names = [str(v.name) for v in proto.input]
        graph.inputs = [n for n in names if n not in graph.initializers]
        graph.outputs = [str(v.name) for v in proto.output]
        defaults = len(names) - len(graph.inputs)
        self.left_out["inputs with a default value, which is a constant now"] += defaults
        self.left_out["annotations of quantisation"] += len(proto.quantization_annotation)
        self.nodes(proto, path, graph)
        return graph

    def initialize(self, graph: Graph, name: str, made: Initializer) -> None:
        """Add an initializer to a graph."""
        graph.initializers[name] = made
        if isinstance(made, np.ndarray):
            dtype = "string" if made.dtype.kind == "O" else made.dtype.name
            graph.specs[name] = Spec(dtype, made.shape)
        elif isinstance(made, Folded):
            graph.specs[name] = Spec(made.dtype, made.shape)
        else:
            tensor = self.tensors.weights[made.tensor]
            graph.specs[name] = Spec(tensor.dtype.name, tensor.shape)

    def nodes(self, proto: Message, path: str, graph: Graph) -> None:
        """Read the nodes of a graph or function; constants become initializers."""
        shaping = _shaping(proto)
        for said in proto.node:
            name = next(iter(said.output), "")
            # Not every runtime supports an initializer as a graph output: keep the node.
            made = None
            if said.op_type == "Constant" and name and name not in graph.outputs:
                made = self.constant(said, _origin(path, name), shapes=name in shaping)
            if made is None:
                graph.nodes.append(self.node(said, path))
            else:
                self.initialize(graph, name, made)

    def constant(self, said: Message, origin: str, *, shapes: bool) -> Initializer | None:
        """Return the tensor of a Constant, or None where its value is not a tensor."""
        if _domain(said.domain) or len(said.attribute) != 1 or said.attribute[0].ref_attr_name:
            return None
        (value,) = said.attribute
        if value.name == "value" and value.has("t"):
            return self.tensors.dense(value.t, origin, shapes=shapes)
        if value.name == "sparse_value" and value.has("sparse_tensor"):
            return self.tensors.sparse(value.sparse_tensor, origin)
        return None

    def node(self, said: Message, path: str) -> Node:
        """Return a node; its subgraphs have the same paths as in the reader of the bundle."""
        op, outputs = str(said.op_type), [str(n) for n in said.output]
        called = str(said.name) or next((o for o in outputs if o), op)
        attributes: dict[str, Any] = {}
        for proto in said.attribute:
            place = f"{path}/{called}.{proto.name}".lstrip("/")

            def inner(graph: Message, place: str = place) -> Graph:
                return self.graph(graph, place)

            attributes[str(proto.name)] = attribute(proto, place, self.member, inner)
        self.left_out["doc strings of nodes"] += bool(said.doc_string or said.metadata_props)
        self.left_out["devices of nodes"] += bool(said.device_configurations)
        inputs, domain = [str(n) for n in said.input], _domain(said.domain)
        key = (domain, op, str(said.overload))
        if key in self._keys:
            return Call(op, inputs, outputs, attributes, str(said.name), domain, key)
        return Node(op, inputs, outputs, attributes, str(said.name), domain)


def _check_names(graph: Graph, outside: frozenset[str]) -> None:
    """Check that each name is defined once, and that no undefined name is read.

    Raises:
        CorruptError: A name is empty, defined twice or undefined.
    """
    made = [*graph.inputs, *graph.initializers]
    made += [name for node in graph.nodes for name in node.outputs if name]
    known = outside.union(made)
    if len(set(made)) < len(made) or "" in known:
        twice = next((n for n, count in Counter(made).items() if count > 1), "")
        raise CorruptError(f"{twice!r:.80} is defined twice" if twice else "a name is empty")
    for node in graph.nodes:
        for name in node.inputs:
            if name and name not in known:
                raise CorruptError(f"{node.op_type} reads {name!r:.80}, which is undefined")
        values: Iterable[object] = node.attributes.values()
        for value in values:
            if isinstance(value, Reference):
                raise CorruptError(f"{node.op_type} has a function's attribute outside a function")
            if isinstance(value, Graph):
                _check_names(value, known)
    for name in graph.outputs:
        if name not in known:
            raise CorruptError(f"the graph output {name!r:.80} is undefined")


def _shaping(proto: Message) -> set[str]:
    """Return the names of inputs, floating-point ones too, from which shapes are inferred."""
    names: set[str] = set()
    for node in proto.node:
        if node.op_type in SHAPED_BY_NUMBERS:
            names.update(node.input if node.op_type == "Range" else node.input[1:])
    return names


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else str(name)


def _key(proto: Message) -> Key:
    return (_domain(proto.domain), str(proto.name), str(proto.overload))


def _origin(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _domains(graph: Graph) -> set[str]:
    """Return the domains of a graph's operators."""
    found = set()
    for node in graph.nodes:
        found.add(node.domain)
        for value in node.attributes.values():
            if isinstance(value, Graph):
                found |= _domains(value)
    return found
