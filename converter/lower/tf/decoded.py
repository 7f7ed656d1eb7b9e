"""Inputs of bytes, and the inputs that stand for what these decode to (`converter.lower.encoded`).

A parser is handed a string. Where that is an input of the graph, or a copy of one, or of one its
element in a loop, what the parser yields is added to the graph's inputs. Which inputs nothing reads
as strings any more is known when all is walked: `settle` takes those away.
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
from formats.errors import UnsupportedError

FARTHEST = 64  # copies of copies
MOST_SEARCHES = 200  # for what a string is a copy of: each looks at all nodes
PNG = b"\x89PNG\r\n\x1a\n"  # https://www.w3.org/TR/png-3/#5PNG-file-signature
TOGETHER = {encoded.VALUES, encoded.LENGTHS}  # roles of the two parts of one feature
UNLIKE = (encoded.VALUES, encoded.RATE)  # roles of parts that have no row for each text


@dataclass(frozen=True, slots=True)
class Origin:
    """Which input a string is.

    Attributes:
        name: Of the input.
        shape: Of the strings that are decoded: one for each row of what stands for the input.
        index: Number of the one that this is, a scalar; None for all of them.
    """

    name: str
    shape: Shape
    index: Value | None


@dataclass(slots=True)
class _Record:
    """An `Encoded` that is being put together."""

    kind: str
    shape: Shape
    several: bool
    settings: Mapping[str, "str | int | bool"]
    parts: dict[tuple[str, str], Part] = field(default_factory=dict)
    roles: dict[str, set[str]] = field(default_factory=dict)  # by key


class Decoded:
    """The inputs of a graph that are decoded in it."""

    def __init__(self, op: Context) -> None:
        """Take the builder, in which they are inputs already."""
        self._op = op
        self._records: dict[str, _Record] = {}
        self._fingerprints = Fingerprints(op, self._fingerprint)
        self._searches = 0
        self._known: set[str] = set()
        self._asked: set[str] = set()  # inputs of which it was asked how they begin
        self._axes: dict[str, str] = {}  # names of axes -> inputs that have them

    def origin(self, text: Value, what: str) -> Origin:
        """Return which input a string is.

        Raises:
            Unsupported: None: ONNX has no operator that could do ``what`` to it.
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
            raise Unsupported(f"{what} of what is no input: ONNX cannot express it")
        return Origin(name, self._named(name, shape), index)

    def whole(self, origin: Origin) -> Origin:
        """Return an input in its own shape, whatever shape the strings are in.

        Raises:
            Unsupported: They are not in a row.
        """
        spec = self._op.graph.specs[origin.name]
        if spec.unranked or len(spec.shape) > 1:
            raise Unsupported(f"texts in {len(spec.shape)} axes")
        return Origin(origin.name, self._named(origin.name, spec.shape), None)

    def _inputs(self) -> set[str]:
        """Return the names of the graph's inputs, of which there may be more each time."""
        names = self._op.enclosing[-1].inputs
        self._known.update(names[len(self._known) :])
        return self._known

    def _makers(self) -> dict[str, Node]:
        """Return which nodes make what can be seen from here.

        Raises:
            Unsupported: It was looked for too often.
        """
        self._searches += 1
        if self._searches > MOST_SEARCHES:
            raise Unsupported(f"more than {MOST_SEARCHES} copies of inputs, decoded")
        graphs = self._op.enclosing[::-1]
        return {out: node for graph in graphs for node in graph.nodes for out in node.outputs}

    def _named(self, name: str, shape: Shape) -> Shape:
        """Return a shape of strings all of whose sizes have a name."""
        spec = self._op.graph.specs[name]
        if len(spec.shape) == len(shape) and not spec.unranked:
            shape = tuple(m if n is None else n for n, m in zip(shape, spec.shape, strict=True))
        names = [f"{name}/count", *(f"{name}/axis{i}" for i in range(1, len(shape)))]
        return tuple(m if n is None else n for n, m in zip(shape, names, strict=False))

    def begins(self, text: Value, first: int, count: int) -> bytes:
        """Return how an encoded picture begins, for what chooses a decoder by that: as PNGs do.

        Whether it is a picture is known in the end (`settle`).

        Raises:
            Unsupported: It is not the beginning of an input that is asked for.
        """
        if text.rank or first or not 0 < count <= len(PNG):
            raise Unsupported("a part of a text that is no constant")
        self._asked.add(self.origin(text, "a part").name)
        return PNG[:count]

    def fingerprint(self, text: Value) -> Value:
        """Return the fingerprints of strings that are an input, or some of one.

        Raises:
            Unsupported: They are computed.
        """
        return replace(text, name=self._fingerprints.of(text.name), dtype="int64")

    def _fingerprint(self, name: str) -> str:
        spec = self._op.graph.specs[name]
        if spec.unranked:
            raise Unsupported("hashes of texts of unknown rank")
        shape = self._named(name, spec.shape)
        part = Part(FINGERPRINT, "", "uint64", shape)
        origin = Origin(name, shape, None)
        return self.part(origin, TEXT, part, called=f"{name}/{FINGERPRINT}").name

    def axis(self, origin: Origin, key: str, what: str) -> str:
        """Return a name for a size of a feature: equal names are equal sizes."""
        name = f"{key}/{what}"
        owner = self._axes.setdefault(name, origin.name)
        return name if owner == origin.name else f"{origin.name}/{name}"

    def part(
        self, origin: Origin, kind: str, part: Part, *,
        settings: Mapping[str, "str | int | bool"] | None = None, called: str = "",
    ) -> Value:  # fmt: skip
        """Return what stands for a part of an input, of the element that is meant.

        Args:
            origin: The input.
            kind: What its bytes are.
            part: Without a name, and with the shape that it has in the graph.
            settings: Of the decoder.
            called: What its name shall be, if that is free.

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

    # -- in the end ----------------------------------------------------------------------------

    def settle(self, graph: Graph) -> Graph:
        """Take inputs away that are replaced, and parts that nothing reads; say what was done.

        Args:
            graph: With all outputs, and nothing that they do not need.

        Raises:
            UnsupportedError: An input is read as the text that it is, too.
        """
        if self._fingerprints.names:
            self._fingerprints.replace(graph)
            graph = needed(graph)
        for name in self._asked:
            record = self._records.get(name)
            if record is None or record.kind != PICTURE or record.settings["form"] != "PNG":
                raise UnsupportedError(f"op Substr: a part of the text {name!r}")
        self._measure(graph)
        read = {name for node in graph.nodes for name in _read_by(node)}
        for name in sorted(read & {*self._records}):
            readers = sorted({n.op_type for n in graph.nodes if name in _read_by(n)})
            text = f"input {name!r} is decoded, and read by {', '.join(readers)} as a text too"
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
        """Take parts that are decoded themselves for unread ones, where nothing reads that."""
        inner = self._parts()
        for name in [*reversed(self._records)]:
            parts = {part.name for part in self._records[name].parts.values()}
            if name in inner and not parts & (read | self._records.keys()):
                del self._records[name]

    def _parts(self) -> set[str]:
        return {part.name for one in self._records.values() for part in one.parts.values()}

    def _measure(self, graph: Graph) -> None:
        """Have what asks how many strings there are ask it of a part, which has as many rows."""
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
