"""ONNX models: weights inline, typed or raw, sparse, or in external files.

The weights are the initialisers of the graph, of its subgraphs and of the model's own functions,
and the tensors in attributes: a Constant's under the name of its output, another node's as
``<output>.<attribute>``. ConstantOfShape's fill value is part of the node and stays there.
A sparse tensor becomes ``<name>.values`` and ``<name>.indices``, bound by an `Encoding`.
Spec: https://github.com/onnx/onnx/blob/v1.23.0/onnx/onnx.proto
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from formats.artifact import Artifact
from formats.containers.protobuf import text_format
from formats.containers.protobuf.messages import Message, decode
from formats.containers.protobuf.packed import Packed
from formats.containers.protobuf.wire import LEN, VARINT, outline
from formats.core.bundle import (
    JSON,
    Bundle,
    Encoding,
    Group,
    Metadata,
    SafetyFinding,
    Signature,
    TensorSpec,
    Topology,
)
from formats.core.collector import Collector
from formats.core.storage import File, Span
from formats.core.strings import Strings
from formats.core.weights import DTYPES, Tensor
from formats.errors import (
    ConvertError,
    CorruptError,
    LimitError,
    UnknownFormatError,
    UnsupportedError,
)
from formats.onnx import tensors as onnx_tensors
from formats.onnx import triton
from formats.onnx.schemas import SCHEMA

_SNIFFED = 1 << 16  # bytes
_LONGEST_TEXT = 1 << 16  # bytes of one piece of user metadata that is kept

# fmt: off
# Number and wire type of each field of the messages that sniffing looks at.
_MODEL = {(1, VARINT), (5, VARINT), *((n, LEN) for n in (2, 3, 4, 6, 7, 8, 14, 20, 25, 26))}
_GRAPH = {(n, LEN) for n in (1, 2, 5, 10, 11, 12, 13, 14, 15, 16)}
_NODE = {(n, LEN) for n in range(1, 11)}
# fmt: on

# In text: protobuf's own format, ONNX's readable one, JSON. Only the first is read.
TEXT = re.compile(rb"(?:\s|#[^\n]*\n)*ir_version\s*:")
_READABLE = re.compile(rb"\s*<[^>]{0,2000}?\bir_version\s*:")
_JSON = re.compile(rb"\s*\{[^{]{0,2000}?\"(?:irVersion|ir_version)\"\s*:")

# Ops that run Python: onnxruntime's PyOp, and those of onnxruntime-extensions.
_PYTHON_OPS = ("PyOp", "PyCustomOp")


@dataclass(slots=True)
class _Model:
    """What a walk over all graphs of a model found."""

    artifact: Artifact
    folder: str  # of the model in the artifact, with a slash at its end
    collector: Collector
    ops: Counter[str] = field(default_factory=Counter)
    findings: list[SafetyFinding] = field(default_factory=list)
    nodes: int = 0
    attributes: int = 0
    subgraphs: int = 0
    files: set[str] = field(default_factory=set)
    sparse: list[tuple[str, tuple[int, ...], Tensor, Tensor]] = field(default_factory=list)


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that the artifact is an ONNX model, or a folder around one."""
    if artifact.is_folder:
        name = _only_model(artifact)
        if name is None:
            return None
        try:
            file = artifact.member(name)
        except ConvertError:
            return None
        found = _evidence(file.read(0, min(_SNIFFED, file.size)))
        return f"folder with {name}: {found}" if found else None
    if not artifact.is_file or not artifact.head:
        return None
    return _evidence(artifact.span.read(0, min(_SNIFFED, artifact.span.length)))


def read(artifact: Artifact) -> Bundle:
    """Read a model; no weight's bytes are touched.

    Raises:
        CorruptError: The model is damaged.
        SafetyError: Its external data lies outside its folder.
        SourceError: Its external data is missing.
        UnsupportedError: A tensor is of a kind we do not know.
    """
    span = _model_span(artifact)
    head = span.read(0, min(_SNIFFED, span.length))
    if _READABLE.match(head) or _JSON.match(head):
        raise UnsupportedError(
            "is an ONNX model written as text",
            expected="a protobuf, binary or text",
            where=span.name,
            hint="Write it with onnx.save as .onnx first",
        )
    if TEXT.match(head):
        model = text_format.parse(span, SCHEMA["ModelProto"], SCHEMA, artifact.limits)
    else:
        model = decode(span, SCHEMA["ModelProto"], artifact.limits)
    if not model.has("graph"):
        raise CorruptError("the model has no graph", where=span.name)
    _check_counts(model, artifact.limits.max_objects, span.name)
    folder, slash, _ = _model_name(artifact).rpartition("/")
    walk = _Model(artifact, folder + slash, Collector(artifact.limits))
    _walk(walk, [("", model.graph)], None)
    steps = [g for t in model.training_info for g in (t.initialization, t.algorithm)]
    _walk(walk, [("training", g) for g in steps], "training")
    _walk(walk, [(".".join(p for p in (f.domain, f.name) if p), f) for f in model.functions], None)
    collected = walk.collector.finish()
    metadata = Metadata(
        format="onnx",
        variant="external data" if walk.files else "inline",
        framework="onnx",
        recorded={**_recorded(model), **triton.describe_configuration(artifact)},
        distribution=_configurations(model),
        user=_user(model),
        findings=tuple(walk.findings),
    )
    summary: dict[str, JSON] = {
        "nodes": walk.nodes,
        "functions": len(model.functions),
        "subgraphs": walk.subgraphs,
        "ops": dict(sorted(walk.ops.items())),
    }
    if walk.files:
        summary["external_files"] = [*sorted(walk.files)]
    others = {n: Span.whole(artifact.member(walk.folder + n)) for n in sorted(walk.files)}
    return Bundle(
        metadata=collected.complete(metadata),
        weights=collected.weights,
        leftovers=collected.leftovers,
        encodings={**collected.encodings, **_sparse_encodings(walk, collected.weights)},
        topology=Topology("onnx", summary, {_model_name(artifact): span, **others}),
        signatures=(_signature(model.graph),),
    )


def _only_model(artifact: Artifact) -> str | None:
    """Return the path of the one model in a folder, which may be a model of a Triton repository."""
    names = [n for n in artifact.names if n.lower().endswith(".onnx")]
    return names[0] if len(names) == 1 else triton.find_model(artifact)


def _model_name(artifact: Artifact) -> str:
    return artifact.name if artifact.is_file else _only_model(artifact) or ""


def _model_span(artifact: Artifact) -> Span:
    if artifact.is_file:
        return artifact.span
    name = _only_model(artifact) if artifact.is_folder else None
    if name is None:
        raise UnknownFormatError("is no ONNX model", where=artifact.path)
    return Span.whole(artifact.member(name))


def _evidence(data: bytes) -> str | None:
    """Return whether a message is a ModelProto, by its fields and the start of its graph."""
    for pattern, what in ((TEXT, "text protobuf"), (_READABLE, "text"), (_JSON, "JSON")):
        if pattern.match(data):
            return f"ONNX model as {what}"
    fields = outline(data, 64)
    if not fields or any((number, wire) not in _MODEL for number, wire, _, _ in fields):
        return None
    numbers = {number for number, _, _, _ in fields}
    if not {7} <= numbers or not numbers & {1, 8}:
        return None
    begin, end = next((a, b) for number, _, a, b in fields if number == 7)
    graph = data[begin:end]
    inner = outline(graph, 16)
    if not inner and begin < len(data):
        return None
    if any((number, wire) not in _GRAPH for number, wire, _, _ in inner):
        return None
    for number, _, a, b in inner:
        if number == 1:
            node = outline(graph[a:b], 16)
            if not node or any((n, w) not in _NODE for n, w, _, _ in node):
                return None
            break
    if not inner and not numbers & {8}:
        return None
    return "ModelProto with a graph" + (" and opset imports" if 8 in numbers else "")


def _check_counts(model: Message, most: int, where: str) -> None:
    """Raise LimitError where a model declares more than anyone can look at in time."""
    graph = model.graph
    declared = (
        graph.input, graph.output, model.training_info, model.functions, model.opset_import,
        model.configuration, model.metadata_props,
    )  # fmt: skip
    if sum(map(len, declared)) > most:
        raise LimitError(
            f"more than {most} inputs, outputs, functions and other declarations", where=where
        )


def _walk(walk: _Model, graphs: list[tuple[str, Message]], group: Group | None) -> None:
    """Collect the tensors of graphs and functions, and of all graphs in them."""
    pending = graphs[::-1]
    while pending:
        path, graph = pending.pop()
        if isinstance(graph, SCHEMA["GraphProto"]):
            for tensor in graph.initializer:
                _add(walk, path, tensor.name, tensor, group)
            for sparse in graph.sparse_initializer:
                _add_sparse(walk, path, sparse.values.name, sparse, group)
        inner: list[tuple[str, Message]] = []
        for node in graph.each("node"):
            inner += _visit(walk, path, node, group)
        walk.subgraphs += len(inner)
        pending += inner[::-1]


def _visit(
    walk: _Model, path: str, node: Message, group: Group | None
) -> Iterator[tuple[str, Message]]:
    """Count a node and collect the tensors in its attributes; yield the graphs in them."""
    attributes = node.attribute
    walk.nodes += 1
    walk.attributes += len(attributes)
    most = walk.artifact.limits.max_nodes
    if walk.nodes + walk.attributes > most:
        raise LimitError(f"more than {most} nodes and attributes", where=walk.artifact.path)
    op = node.op_type
    walk.ops[f"{node.domain}.{op}" if node.domain not in ("", "ai.onnx") else op] += 1
    output = next((o for o in node.output if o), node.name or op)
    if op.startswith(_PYTHON_OPS):
        walk.findings.append(SafetyFinding("py-func", op, output))
    elif op == "EPContext" and any(a.name == "embed_mode" and not a.i for a in attributes):
        walk.findings.append(SafetyFinding("file-op", op, output))
    for attribute in attributes:
        _add_attribute(walk, path, output, op, attribute, group)
        place = f"{path}/{node.name or output}.{attribute.name}".lstrip("/")
        if attribute.has("g"):
            yield place, attribute.g
        for i, graph in enumerate(attribute.graphs):
            yield f"{place}.{i}", graph


def _add_attribute(
    walk: _Model, path: str, output: str, op: str, attribute: Message, group: Group | None
) -> None:
    """Collect the tensors of an attribute."""
    what = attribute.name
    if op == "ConstantOfShape":
        return
    if op == "Constant":
        name = output
        value = _plain_constant(attribute, name)
        if value is not None:
            walk.collector.add(_candidates(path, name), value, group)
    else:
        name = f"{output}.{what}"
    if attribute.has("t"):
        _add(walk, path, name, attribute.t, group)
    if attribute.has("sparse_tensor"):
        _add_sparse(walk, path, name, attribute.sparse_tensor, group)
    for i, tensor in enumerate(attribute.tensors):
        _add(walk, path, f"{name}.{i}", tensor, group)
    for i, tensor in enumerate(attribute.sparse_tensors):
        _add_sparse(walk, path, f"{name}.{i}", tensor, group)


def _plain_constant(attribute: Message, name: str) -> Tensor | Strings | None:
    """Return the tensor of a Constant that is written as numbers or strings."""
    what = attribute.name
    if what in ("value_int", "value_ints"):
        if what == "value_int":
            data = attribute.i.to_bytes(8, "little", signed=True)
            return Tensor.inline(DTYPES["int64"], (), data, origin=name)
        ints = attribute.ints
        return Tensor.computed(
            DTYPES["int64"], (len(ints),), lambda: ints.little_endian(8), origin=name
        )
    if what in ("value_float", "value_floats"):
        if what == "value_float":
            data = Packed.encode("float", attribute.f)
            return Tensor.inline(DTYPES["float32"], (), data, origin=name)
        floats = attribute.floats
        return Tensor.computed(
            DTYPES["float32"], (len(floats),), lambda: floats.little_endian(4), origin=name
        )
    if what in ("value_string", "value_strings"):
        texts = [attribute.s] if what == "value_string" else list(attribute.strings)
        return Strings.of(() if what == "value_string" else (len(texts),), texts, origin=name)
    return None


def _candidates(path: str, name: str) -> list[str]:
    return [name, f"{path}/{name}"] if path else [name]


def _add(walk: _Model, path: str, name: str, proto: Message, group: Group | None) -> None:
    origin = f"{path}/{name}" if path else name
    walk.collector.add(_candidates(path, name), _tensor(walk, proto, origin), group)


def _add_sparse(walk: _Model, path: str, name: str, proto: Message, group: Group | None) -> None:
    origin = f"{path}/{name}" if path else name
    shape = onnx_tensors.shape_of(proto, origin)
    values = _tensor(walk, proto.values, origin)
    indices = _tensor(walk, proto.indices, origin)
    if isinstance(values, Strings) or isinstance(indices, Strings):
        raise UnsupportedError("a sparse tensor of strings", where=origin)
    count = values.size
    if indices.shape not in ((count,), (count, len(shape))):
        raise CorruptError(
            f"{count} values of a sparse tensor, but indices of shape {list(indices.shape)}",
            where=origin,
        )
    parts = {"values": values, "indices": indices}
    for part, tensor in parts.items():
        walk.collector.add([f"{c}.{part}" for c in _candidates(path, name)], tensor, group)
    walk.sparse.append((name, shape, values, indices))


def _tensor(walk: _Model, proto: Message, origin: str) -> Tensor | Strings:
    def member(name: str) -> File:
        walk.files.add(name)
        return walk.artifact.member(walk.folder + name)

    return onnx_tensors.from_proto(proto, origin, member)


def _sparse_encodings(walk: _Model, tensors: Mapping[str, Tensor]) -> dict[str, Encoding]:
    names = {id(t.data): name for name, t in tensors.items()}
    found = {}
    for name, shape, values, indices in walk.sparse:
        if id(values.data) not in names:
            continue  # among the leftovers
        parts = {"values": names[id(values.data)], "indices": names[id(indices.data)]}
        layout: JSON = "linear" if len(indices.shape) == 1 else "coordinates"
        logical = parts["values"].removesuffix(".values") or name
        parameters = {"indices": layout}
        found[logical] = Encoding("sparse_coo", values.dtype.name, shape, parts, parameters)
    return found


def _recorded(model: Message) -> dict[str, str]:
    opsets = {o.domain or "ai.onnx": o.version for o in model.opset_import}
    found = {
        "ir_version": str(model.ir_version) if model.ir_version else "",
        "opset_import": ", ".join(f"{d} {v}" for d, v in sorted(opsets.items())),
        "producer_name": model.producer_name,
        "producer_version": model.producer_version,
        "domain": model.domain,
        "model_version": str(model.model_version) if model.model_version else "",
    }
    return {name: value for name, value in found.items() if value}


def _configurations(model: Message) -> dict[str, JSON]:
    """Return how many devices the model's own device configurations want."""
    return {c.name: c.num_devices for c in model.configuration}


def _user(model: Message) -> dict[str, JSON]:
    found: dict[str, JSON] = {
        p.key: p.value for p in model.metadata_props if len(p.value) <= _LONGEST_TEXT
    }
    if model.doc_string and len(model.doc_string) <= _LONGEST_TEXT:
        found.setdefault("doc_string", model.doc_string)
    return found


def _signature(graph: Message) -> Signature:
    """Return the graph's inputs and outputs; an input with an initialiser has a default instead."""
    initialised = {t.name for t in graph.initializer}
    initialised |= {s.values.name for s in graph.sparse_initializer}
    axes = iter(range(1 << 62))
    inputs = tuple(_spec(v, axes) for v in graph.input if v.name not in initialised)
    return Signature("main", inputs, tuple(_spec(v, axes) for v in graph.output))


def _spec(value: Message, axes: Iterator[int]) -> TensorSpec:
    dtype, shape_proto = _type_name(value.type)
    if shape_proto is None:
        return TensorSpec(value.name, dtype, None)
    shape = []
    for dim in shape_proto.dim:
        which = dim.which("value")
        if which == "dim_value" and dim.dim_value >= 0:
            shape.append(dim.dim_value)
        else:
            shape.append(dim.dim_param or f"unk__{next(axes)}")
    return TensorSpec(value.name, dtype, tuple(shape))


def _type_name(proto: Message) -> tuple[str, Message | None]:
    """Return what a type is called, and a plain tensor's shape."""
    around: list[str] = []
    while True:
        kind = proto.which("value")
        if kind in ("tensor_type", "sparse_tensor_type"):
            inner = getattr(proto, kind)
            name = onnx_tensors.element_name(inner.elem_type)
            if kind == "sparse_tensor_type":
                name = f"sparse({name})"
            shape = inner.shape if inner.has("shape") and not around else None
            return "".join(f"{a}(" for a in around) + name + ")" * len(around), shape
        if kind in ("sequence_type", "optional_type"):
            around.append(kind.removesuffix("_type"))
            proto = getattr(proto, kind).elem_type
        elif kind == "map_type":
            around.append(f"map of {onnx_tensors.element_name(proto.map_type.key_type)} to ")
            proto = proto.map_type.value_type
        else:
            name = "opaque" if kind else "unknown"
            return "".join(f"{a}(" for a in around) + name + ")" * len(around), None
