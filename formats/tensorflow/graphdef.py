"""Files of TensorFlow graphs: GraphDef and MetaGraphDef, binary or text.

The constants of a frozen graph are its weights, so every Const node's tensor is in the bundle:
under the node's name, and those of the function library as ``function/node``. Variables of a graph
that is not frozen are named in `Metadata.left_out`: their values are in a checkpoint, which
`formats.tensorflow.graph_with_checkpoint` joins.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from formats.artifact import Artifact
from formats.containers.protobuf import text_format
from formats.containers.protobuf.messages import Message, decode, decode_bytes
from formats.containers.protobuf.wire import LEN, VARINT, outline
from formats.core.bundle import Bundle, Metadata, Signature, Topology
from formats.core.collector import Collector
from formats.core.storage import Span
from formats.errors import ConvertError, UnknownFormatError
from formats.limits import DEFAULT, Limits
from formats.tensorflow.graph_summary import (
    Axes,
    Survey,
    add_constant,
    graph_versions,
    placeholders,
    read_recorded_versions,
    signatures,
    survey,
)
from formats.tensorflow.schemas import SCHEMA

GRAPH, META_GRAPH, SAVED_MODEL = "GraphDef", "MetaGraphDef", "SavedModel"

_SNIFFED = 1 << 16  # bytes; a first node that is larger is judged by its beginning
_OP = re.compile(r"[A-Za-z_>][A-Za-z0-9_>.\-]{0,200}")
_NODE = re.compile(r"[A-Za-z0-9._][A-Za-z0-9_.\\/>\-]{0,2000}")
_TEXT = {
    GRAPH: re.compile(rb"(?:\s|#[^\n]*\n)*(?:node|library|versions)\s*:?\s*[{<]"),
    META_GRAPH: re.compile(
        rb"(?:\s|#[^\n]*\n)*(?:meta_info_def|graph_def|saver_def|collection_def|signature_def)"
        rb"\s*:?\s*[{<]"
    ),
    SAVED_MODEL: re.compile(
        rb"(?:\s|#[^\n]*\n)*(?:saved_model_schema_version\s*:|meta_graphs\s*:?\s*[{<])"
    ),
}


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that the artifact is a GraphDef or a MetaGraphDef."""
    try:
        span = _span(artifact)
    except ConvertError:
        return None
    found = kind_of(span) if span is not None else None
    if found is None or found[0] == SAVED_MODEL:
        return None
    kind, is_text = found
    return f"{'text' if is_text else 'binary'} {kind}"


@dataclass(frozen=True, slots=True)
class Opened:
    """A graph, looked through.

    Attributes:
        kind: GraphDef or MetaGraphDef.
        graph: The GraphDef, which may be part of the other.
        recorded: Versions.
        declared: Signatures; of a GraphDef, what it is fed.
    """

    kind: str
    is_text: bool
    span: Span
    graph: Message
    facts: Survey
    recorded: dict[str, str]
    declared: tuple[Signature, ...]


def open_graph(artifact: Artifact) -> Opened:
    """Look through a graph.

    Raises:
        CorruptError: It is damaged.
        UnknownFormatError: It is not a GraphDef.
    """
    span, limits = _span(artifact), artifact.limits
    found = kind_of(span) if span is not None else None
    if span is None or found is None or found[0] == SAVED_MODEL:
        raise UnknownFormatError("is no GraphDef and no MetaGraphDef", where=artifact.path)
    kind, is_text = found
    message = parse(span, kind, limits, is_text=is_text)
    graph = message.graph_def if kind == META_GRAPH else message
    facts = survey(graph, limits, span.name)
    axes = Axes()
    declared: tuple[Signature, ...]
    if kind == META_GRAPH:
        recorded = read_recorded_versions(message)
        if message.meta_info_def.tags:
            recorded["tags"] = ", ".join(message.meta_info_def.tags)
        declared = tuple(signatures(message, axes))
    else:
        recorded = graph_versions(graph)
        inputs = placeholders(facts.placeholders, axes)
        # A GraphDef says what it is fed, and not what is fetched from it.
        declared = (Signature("graph", inputs, ()),) if inputs else ()
    return Opened(kind, is_text, span, graph, facts, recorded, declared)


def read(artifact: Artifact) -> Bundle:
    """Read a graph; no constant's bytes are touched.

    Raises:
        CorruptError: The graph is damaged.
        UnknownFormatError: It is not a GraphDef.
        UnsupportedError: A constant is of a kind we do not know.
    """
    opened = open_graph(artifact)
    facts = opened.facts
    collector = Collector(artifact.limits)
    for constant in facts.constants:
        add_constant(constant, collector, [constant.name])
    for name in facts.variables:
        collector.leave_out(name, "a variable; its value is in a checkpoint, not in the graph")
    for name in facts.hollow:
        collector.leave_out(name, "a constant without a value")
    collected = collector.finish()
    frozen = "with variables" if facts.variables else "frozen" if facts.constants else "no weights"
    metadata = Metadata(
        format="graphdef",
        variant=f"{opened.kind}, {'text' if opened.is_text else 'binary'}, {frozen}",
        framework="tensorflow",
        recorded=opened.recorded,
        devices=facts.devices,
        findings=tuple(facts.findings),
    )
    return Bundle(
        metadata=collected.complete(metadata),
        weights=collected.weights,
        encodings=collected.encodings,
        topology=Topology("graphdef", facts.summary(), {Path(opened.span.name).name: opened.span}),
        signatures=opened.declared,
    )


def _span(artifact: Artifact) -> Span | None:
    """Return the file; in a folder, a graph with the file name of a SavedModel."""
    if artifact.is_folder and "saved_model.pb" in artifact.names:
        return Span.whole(artifact.member("saved_model.pb"))
    return artifact.span if artifact.is_file else None


def parse(span: Span, kind: str, limits: Limits, *, is_text: bool) -> Message:
    """Return the message of this kind that a file holds."""
    if is_text:
        return text_format.parse(span, SCHEMA[kind], SCHEMA, limits)
    return decode(span, SCHEMA[kind], limits)


def kind_of(span: Span) -> tuple[str, bool] | None:
    """Tell GraphDef, MetaGraphDef and SavedModel apart by their first fields, from all else too.

    Returns:
        The message, and whether it is text; or None.
    """
    head = span.read(0, min(4096, span.length))
    for kind, pattern in _TEXT.items():
        if pattern.match(head):
            return kind, True
    if not head or head[0] not in (0x08, 0x0A, 0x12, 0x18, 0x22, 0x2A):
        return None
    data = span.read(0, min(_SNIFFED, span.length))
    fields = outline(data, 8)
    if not fields:
        return None
    try:
        if _is_saved_model(data, fields):
            return SAVED_MODEL, False
        if _is_meta_graph(data, fields):
            return META_GRAPH, False
        if _is_graph(data, fields):
            return GRAPH, False
    except ConvertError:
        return None
    return None


def _is_saved_model(data: bytes, fields: list[tuple[int, int, int, int]]) -> bool:
    wires = {(number, wire) for number, wire, _, _ in fields}
    if not wires <= {(1, VARINT), (2, LEN)} or (2, LEN) not in wires:
        return False
    part = next(data[start:end] for number, _, start, end in fields if number == 2)
    inner = outline(part, 8)
    return bool(inner) and _is_meta_graph(part, inner)


def _is_meta_graph(data: bytes, fields: list[tuple[int, int, int, int]]) -> bool:
    """A MetaGraphDef begins with its info, or, if that is empty, with its graph."""
    if any(wire != LEN or number > 7 for number, wire, _, _ in fields):
        return False
    number, _, start, end = fields[0]
    part = data[start:end]
    if number == 2:
        inner = outline(part, 8)
        return bool(inner) and _is_graph(part, inner)
    if number != 1:
        return False
    inner = outline(part, 64)
    known = {(1, LEN), (2, LEN), (3, LEN), (4, LEN), (5, LEN), (6, LEN), (7, VARINT), (8, LEN)}
    if not all((n, w) in known for n, w, _, _ in inner):
        return False
    for n, _, a, b in inner:
        if n == 2:  # the list of ops that the graph uses
            ops = outline(part[a:b], 2)
            if not ops:
                continue
            name = outline(part[a:b][ops[0][2] : ops[0][3]], 1)
            first = part[a:b][ops[0][2] : ops[0][3]]
            return ops[0][0] == 1 and bool(name) and _is_op(first[name[0][2] : name[0][3]])
        if n == 5:
            return bool(re.match(rb"\d+\.\d+", part[a:b]))
    # Nothing but tags, or nothing: what follows must be a graph.
    second = next(((a, b) for n, w, a, b in fields if n == 2), None)
    if second is None:
        return False
    part = data[second[0] : second[1]]
    graph = outline(part, 8)
    return bool(graph) and _is_graph(part, graph)


def _is_graph(data: bytes, fields: list[tuple[int, int, int, int]]) -> bool:
    known = {(1, LEN), (2, LEN), (3, VARINT), (4, LEN), (5, LEN)}
    if any((number, wire) not in known for number, wire, _, _ in fields):
        return False
    number, _, start, end = next((f for f in fields if f[0] in (1, 2)), (0, 0, 0, 0))
    part = data[start:end]
    if number == 2:  # a library of functions, each of which begins with its signature
        function = outline(part, 1)
        if not function or function[0][0] not in (1, 2):
            return False
        body = part[function[0][2] : function[0][3]]
        signature = outline(body, 1)
        if not signature or signature[0][0] != 1:
            return function[0][0] == 2
        name = outline(body[signature[0][2] : signature[0][3]], 1)
        inner = body[signature[0][2] : signature[0][3]]
        return bool(name) and name[0][0] == 1 and inner[name[0][2] : name[0][3]].isascii()
    if number != 1:
        return False
    # The name and the op come before everything large.
    texts = {n: part[a:b] for n, w, a, b in reversed(outline(part, 2)) if w == LEN}
    if not {1, 2} <= texts.keys():
        node = decode_bytes(part, SCHEMA["NodeDef"], DEFAULT, "node")
        texts = {1: node.name.encode("utf-8", "replace"), 2: node.op.encode("utf-8", "replace")}
    return _is_op(texts[2]) and bool(_NODE.fullmatch(texts[1].decode("latin-1")))


def _is_op(name: bytes) -> bool:
    return bool(_OP.fullmatch(name.decode("latin-1")))
