"""Encoded inputs (images, records, strings) and the decoded inputs that replace them.

See `converter.lower.encoded`. A parser op reads a string. Where that is an input of the graph, a
copy of one or, in a loop, an element of one, the outputs of the parser become inputs of the graph.
After lowering, `settle` removes the inputs that nothing reads as strings anymore.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from converter.lower import encoded
from converter.lower.encoded import FINGERPRINT, PICTURE, TEXT, Encoded, Part
from converter.lower.graph import Graph, Node, Shape, free_names, needed
from converter.lower.hashed_strings import COPIES, Fingerprints
from converter.lower.tf.context import Context
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value, identity
from formats.core.plurals import count
from formats.errors import UnsupportedError

FARTHEST = 64  # copies of copies
MOST_SEARCHES = 200  # for the input that a string is a copy of: each looks at all nodes
PNG = b"\x89PNG\r\n\x1a\n"  # https://www.w3.org/TR/png-3/#5PNG-file-signature
TOGETHER = {encoded.VALUES, encoded.LENGTHS}  # roles of the two parts of one feature
UNLIKE = (encoded.VALUES, encoded.RATE)  # roles of parts that have no row for each string


@dataclass(frozen=True, slots=True)
class Origin:
    """The input that a string comes from.

    Attributes:
        name: Name of the input.
        shape: Shape of the strings that are decoded: one for each row of the decoded input.
        index: Index of the string in the input, a scalar; None for all strings.
    """

    name: str
    shape: Shape
    index: Value | None


@dataclass(slots=True)
class _Record:
    """An `Encoded` under construction."""

    kind: str
    shape: Shape
    several: bool
    settings: Mapping[str, "str | int | bool"]
    parts: dict[tuple[str, str], Part] = field(default_factory=dict)
    roles: dict[str, set[str]] = field(default_factory=dict)  # by key


class Decoded:
    """The inputs of a graph that are decoded in it."""

    def __init__(self, op: Context) -> None:
        """Take the builder, to which the inputs are already added."""
        self._op = op
        self._records: dict[str, _Record] = {}
        self._fingerprints = Fingerprints(op, self._fingerprint)
        self._searches = 0
        self._known: set[str] = set()
        self._asked: set[str] = set()  # inputs whose first bytes are read
        self._axes: dict[str, str] = {}  # symbolic dimensions -> inputs that have them

    def origin(self, text: Value, what: str) -> Origin:
        """Return the input that a string comes from.

        Raises:
            Unsupported: It is computed, and ONNX has no operator for ``what``.
        """
        op, name, index = self._op, text.name, None
        shape = text.shape
        inputs = self._inputs()
        makers = {} if name in inputs else self._makers()
        for _ in range(FARTHEST):
            if name in inputs:
                break
            node = makers.get(name)
            if node is None:
                break
            if node.op_type == "Gather" and index is None and not node.attributes.get("axis"):
                index = _value(op, node.inputs[1])
                shape = op.graph.specs[node.inputs[0]].shape
                if index.rank or len(shape) != 1:
                    break
            elif node.op_type not in COPIES:
                break
            name = node.inputs[0]
        if name not in inputs or op.graph.specs[name].dtype != "string":
            raise Unsupported(f"{what} of a string that is not an input: ONNX cannot express it")
        return Origin(name, self._named(name, shape), index)

    def whole(self, origin: Origin) -> Origin:
        """Return the origin of all strings of an input, in the shape of the input.

        Raises:
            Unsupported: The input has more than one axis, or no known rank.
        """
        spec = self._op.graph.specs[origin.name]
        if spec.unranked or len(spec.shape) > 1:
            raise Unsupported(f"strings in {count('axis', len(spec.shape))}")
        return Origin(origin.name, self._named(origin.name, spec.shape), None)

    def _inputs(self) -> set[str]:
        """Return the names of the graph's inputs, whose number may grow between calls."""
        names = self._op.enclosing[-1].inputs
        self._known.update(names[len(self._known) :])
        return self._known

    def _makers(self) -> dict[str, Node]:
        """Map the names of visible values to the nodes that compute them.

        Raises:
            Unsupported: There were too many searches.
        """
        self._searches += 1
        if self._searches > MOST_SEARCHES:
            raise Unsupported(f"more than {MOST_SEARCHES} copies of inputs, decoded")
        graphs = self._op.enclosing[::-1]
        return {out: node for graph in graphs for node in graph.nodes for out in node.outputs}

    def _named(self, name: str, shape: Shape) -> Shape:
        """Return a shape of strings with a symbolic dimension for each unknown size."""
        spec = self._op.graph.specs[name]
        if len(spec.shape) == len(shape) and not spec.unranked:
            shape = tuple(m if n is None else n for n, m in zip(shape, spec.shape, strict=True))
        names = [f"{name}/count", *(f"{name}/axis{i}" for i in range(1, len(shape)))]
        return tuple(m if n is None else n for n, m in zip(shape, names, strict=False))

    def begins(self, text: Value, first: int, count: int) -> bytes:
        """Return the first bytes of an encoded image, for a graph that selects its decoder by them.

        The image is assumed to be a PNG; `settle` checks this in the end.

        Raises:
            Unsupported: The bytes are not the first ones of a scalar input.
        """
        if text.rank or first or not 0 < count <= len(PNG):
            raise Unsupported("a part of a string that is not constant")
        self._asked.add(self.origin(text, "a part").name)
        return PNG[:count]

    def fingerprint(self, text: Value) -> Value:
        """Return the fingerprints of the strings of an input, or of some of them.

        Raises:
            Unsupported: The strings are computed.
        """
        return replace(text, name=self._fingerprints.of(text.name), dtype="int64")

    def _fingerprint(self, name: str) -> str:
        spec = self._op.graph.specs[name]
        if spec.unranked:
            raise Unsupported("hashes of strings of unknown rank")
        shape = self._named(name, spec.shape)
        part = Part(FINGERPRINT, "", "uint64", shape)
        origin = Origin(name, shape, None)
        return self.part(origin, TEXT, part, called=f"{name}/{FINGERPRINT}").name

    def axis(self, origin: Origin, key: str, what: str) -> str:
        """Return a symbolic dimension for a size of a feature; equal names are equal sizes."""
        name = f"{key}/{what}"
        owner = self._axes.setdefault(name, origin.name)
        return name if owner == origin.name else f"{origin.name}/{name}"

    def part(
        self, origin: Origin, kind: str, part: Part, *,
        settings: Mapping[str, "str | int | bool"] | None = None, called: str = "",
    ) -> Value:  # fmt: skip
        """Return the input that replaces a part of an encoded input, or the element at its index.

        Args:
            origin: The input.
            kind: Kind of the encoded bytes.
            part: The part, without a name, with its shape in the graph.
            settings: Settings of the decoder.
            called: Preferred name; the key of the part, by default.

        Raises:
            Unsupported: The same bytes are decoded in two ways.
        """
        spec = self._op.graph.specs[origin.name]
        shape = origin.shape if spec.unranked else self._named(origin.name, spec.shape)
        new = _Record(kind, shape, bool(origin.shape), settings or {})
        record = self._records.setdefault(origin.name, new)
        same = (record.kind, record.several, record.settings)
        if same != (new.kind, new.several, new.settings):
            raise Unsupported(f"an input that is decoded in two ways: {record.kind}, {kind}")
        found = record.parts.get((part.key, part.role))
        if found is None:
            for role in record.roles.setdefault(part.key, set()) if part.key else ():
                if {role, part.role} != TOGETHER:
                    raise Unsupported(f"feature {part.key!r}, parsed as {role} and as {part.role}")
            name = self._op.late_input(called or part.key, part.dtype, part.shape)
            found = record.parts[part.key, part.role] = replace(part, name=name)
            record.roles.setdefault(part.key, set()).add(part.role)
        elif (found.dtype, found.shape) != (part.dtype, part.shape):
            which = f"feature {part.key!r}" if part.key else f"a {kind}"
            raise Unsupported(f"{which} in two types or shapes: {found.dtype} and {part.dtype}")
        whole = Value(found.name, found.dtype, found.shape, identity(len(found.shape)))
        return whole if origin.index is None else self._op.gather(whole, origin.index)

    # -- after lowering ----------------------------------------------------------------------------

    def settle(self, graph: Graph) -> Graph:
        """Remove inputs that are replaced and parts that nothing reads; record the rest.

        Args:
            graph: The graph with all outputs, without unneeded nodes.

        Raises:
            UnsupportedError: An input is also read as a string.
        """
        if self._fingerprints.names:
            self._fingerprints.replace(graph)
            graph = needed(graph)
        for name in self._asked:
            record = self._records.get(name)
            if record is None or record.kind != PICTURE or record.settings["form"] != "PNG":
                raise UnsupportedError(f"op Substr: a part of the string {name!r}")
        self._measure(graph)
        read = {name for node in graph.nodes for name in _read_by(node)}
        for name in sorted(read & {*self._records}):
            readers = sorted({n.op_type for n in graph.nodes if name in _read_by(n)})
            text = f"input {name!r} is decoded, and read by {', '.join(readers)} as a string too"
            raise UnsupportedError(text)
        self._forget_unread(read)
        kept = read | {*self._records}
        parts = self._parts()
        order: list[str] = []
        for name in graph.inputs:
            if name not in parts:
                order += self._leaves(name, kept) if name in self._records else [name]
        graph.inputs = order
        words = tuple(sorted(self._fingerprints.words))
        graph.encoded = [
            Encoded(name, record.kind, record.shape, record.several, tuple(
                part if part.name in kept else replace(part, name="")
                for part in record.parts.values()
            ), record.settings, words if record.kind == TEXT else ())
            for name, record in self._records.items()
        ]  # fmt: skip
        return graph

    def _forget_unread(self, read: set[str]) -> None:
        """Drop the records of decoded parts that are decoded again and then not read."""
        inner = self._parts()
        for name in [*reversed(self._records)]:
            parts = {part.name for part in self._records[name].parts.values()}
            if name in inner and not parts & (read | self._records.keys()):
                del self._records[name]

    def _parts(self) -> set[str]:
        return {part.name for one in self._records.values() for part in one.parts.values()}

    def _measure(self, graph: Graph) -> None:
        """Let Shape nodes of encoded inputs read a decoded part, which has as many rows."""
        read = {n for node in graph.nodes for n in _read_by(node)}
        stands_for: dict[str, tuple[str, int]] = {}
        for name, record in self._records.items():
            rank, rows = len(record.shape), record.shape
            fitting = [
                p for p in record.parts.values() if p.role not in UNLIKE and p.shape[:rank] == rows
            ]
            if fitting and rank:
                part = next((p for p in fitting if p.name in read), fitting[0])
                stands_for[name] = part.name, rank
        for node in _nodes(graph) if stands_for else ():
            if node.op_type == "Shape" and node.inputs[0] in stands_for:
                node.inputs[0], rank = stands_for[node.inputs[0]]
                node.attributes.setdefault("start", 0)
                end = node.attributes.get("end", rank)
                node.attributes["end"] = min(end, rank) if isinstance(end, int) else rank

    def _leaves(self, name: str, kept: set[str]) -> Iterator[str]:
        for part in self._records[name].parts.values():
            if part.name in self._records:
                yield from self._leaves(part.name, kept)
            elif part.name in kept:
                yield part.name


def _value(op: Context, name: str) -> Value:
    spec = op.graph.specs[name]
    return Value(name, spec.dtype, spec.shape, identity(len(spec.shape)))


def _read_by(node: Node) -> set[str]:
    names = set(node.inputs)
    for value in node.attributes.values():
        if isinstance(value, Graph):
            names |= free_names(value)
    return names


def _nodes(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        for value in node.attributes.values():
            if isinstance(value, Graph):
                yield from _nodes(value)
