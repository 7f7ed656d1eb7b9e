"""Protocol buffers without generated code: a schema table, lazy messages, bytes left in the file.

Spec: https://protobuf.dev/programming-guides/encoding/

A schema is a literal table, message name → field number → ``"name type"``:

    "NodeDef": {1: "name string", 3: "input string*", 5: "attr map string AttrValue"}

``*`` repeats a field; ``~`` leaves it where it is: ``bytes~`` comes back as a `Span` and
``float*~`` as `Packed`, so that a file of two gigabytes costs what its structure costs. A name in
parentheses is the field's oneof. Enums are plain integers; their names are in `Schema.enums`.

A message is decoded one level at a time, when one of its fields is first asked for. Damage deeper
down therefore shows up (as `CorruptError`) where it is touched. Attributes that are absent have
their proto default, an empty message included; `Message.has` tells absent from default.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

from formats.containers.protobuf import wire
from formats.containers.protobuf.packed import FIXED, Packed
from formats.core.storage import Buffer, Span
from formats.errors import LimitError
from formats.limits import Limits

_DEFAULTS: Mapping[str, object] = {
    "string": "",
    "bytes": b"",
    "bool": False,
    "float": 0.0,
    "double": 0.0,
}
_NO_MAP: Final[Mapping[Any, Any]] = MappingProxyType({})


class Message:
    """One message; its fields are attributes. Subclasses are made by `Schema`."""

    __slots__ = ("__dict__", "_depth", "_end", "_start", "_window")

    _name: ClassVar[str] = ""
    _tags: ClassVar[dict[int, wire.Row]] = {}
    _fields: ClassVar[dict[str, "Field"]] = {}
    _oneofs: ClassVar[dict[str, tuple[str, ...]]] = {}

    # Where the undecoded bytes are; no window means that all is decoded. Four slots and no tuple,
    # because there may be millions of messages.
    _window: wire.Window | None
    _start: int
    _end: int
    _depth: int

    def __getattr__(self, name: str) -> Any:
        # Reached when the field is not decoded yet, or absent.
        field = self._fields.get(name)
        if field is None:
            raise AttributeError(f"{self._name} has no field {name!r}")
        if self._window is not None:
            self._fill()
            if name in self.__dict__:
                return self.__dict__[name]
        return field.default

    def has(self, name: str) -> bool:
        """Return whether a field is present (for repeated ones: not empty)."""
        self._fill()
        return name in self.__dict__

    def which(self, oneof: str) -> str | None:
        """Return the one field of ``oneof`` that is present."""
        self._fill()
        return next((name for name in self._oneofs[oneof] if name in self.__dict__), None)

    def present(self) -> Mapping[str, Any]:
        """Return all fields that are present."""
        self._fill()
        return self.__dict__

    def each(self, name: str) -> Iterator["Message"]:
        """Yield the messages of a repeated field, and forget what was decoded of each.

        For one pass over very many: a graph of a million nodes does not fit into memory decoded.
        """
        for child in getattr(self, name):
            window = child._window
            if window is None:
                yield child
                continue
            left = window.context.values_left
            yield child
            del child.__dict__
            child._window = window
            window.context.values_left = left

    def _fill(self) -> None:
        if self._window is not None:
            window, self._window = self._window, None
            wire.decode_level(self, window, self._start, self._end, self._depth)

    def __repr__(self) -> str:
        state = "undecoded" if self._window is not None else ", ".join(self.__dict__)
        return f"<{self._name}: {state}>"


class Field:
    """One field of a message type, for parsers of other encodings."""

    __slots__ = (
        "_default", "entry", "is_lazy", "is_repeated", "key_kind", "kind", "message", "name",
        "rivals",
    )  # fmt: skip

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind  # scalar kind, "enum <name>", or "message"
        self.message: type[Message] | None = None
        self.key_kind: str | None = None  # of a map
        self.entry: type[Message] | None = None  # of a map
        self.is_repeated = False
        self.is_lazy = False
        self.rivals: tuple[str, ...] = ()  # other fields of the same oneof
        self._default: object = None

    @property
    def default(self) -> object:
        """Value of the field where it is absent; not to be changed."""
        if self._default is None:
            self._default = self._make_default()
        return self._default

    def _make_default(self) -> object:
        if self.key_kind is not None:
            return _NO_MAP
        if self.is_repeated:
            return Packed(self.kind) if self.is_lazy else ()
        if self.message is not None:
            return new(self.message)
        return _DEFAULTS.get(self.kind, 0)


def new(kind: type[Message]) -> Message:
    """Return an empty message."""
    message = kind.__new__(kind)
    message._window = None
    return message


class Schema:
    """Message types compiled from a table.

    Attributes:
        enums: Enum name → number → name.
    """

    def __init__(
        self,
        messages: Mapping[str, Mapping[int, str]],
        enums: Mapping[str, Mapping[int, str]] = _NO_MAP,
    ) -> None:
        self.enums = enums
        self._types = {name: _new_type(name) for name in messages}
        for name, rows in messages.items():
            self._compile(self._types[name], rows)

    def __getitem__(self, name: str) -> type[Message]:
        return self._types[name]

    def _compile(self, kind: type[Message], rows: Mapping[int, str]) -> None:
        numbers = {}
        for number, row in rows.items():
            name, spec, *rest = row.split()
            field = self._field(name, spec, rest)
            kind._fields[name] = field
            numbers[name] = number
            if rest and rest[-1].startswith("("):
                oneof = rest[-1].strip("()")
                kind._oneofs[oneof] = (*kind._oneofs.get(oneof, ()), name)
        for members in kind._oneofs.values():
            for name in members:
                kind._fields[name].rivals = tuple(m for m in members if m != name)
        for name, field in kind._fields.items():
            field.entry = _entry(field)
            for wire_type, action in _actions(field):
                kind._tags[numbers[name] << 3 | wire_type] = action

    def _field(self, name: str, spec: str, rest: list[str]) -> Field:
        if spec == "map":
            field = Field(name, "message")
            field.key_kind, value = rest[0], rest[1]
            field.kind, field.message = self._kind(value)
            return field
        field = Field(name, "")
        field.is_lazy = spec.endswith("~")
        spec = spec.removesuffix("~")
        field.is_repeated = spec.endswith("*")
        field.kind, field.message = self._kind(spec.removesuffix("*"))
        return field

    def _kind(self, spec: str) -> tuple[str, type[Message] | None]:
        if spec in self._types:
            return "message", self._types[spec]
        if spec in self.enums:
            return f"enum {spec}", None
        return spec, None


def _entry(field: Field) -> type[Message] | None:
    """Return the type of a map's entries."""
    if field.key_kind is None:
        return None
    entry = _new_type(f"{field.name} entry")
    key, value = Field("key", field.key_kind), Field("value", field.kind)
    value.message = field.message
    entry._fields = {"key": key, "value": value}
    for number, part in ((1, key), (2, value)):
        for wire_type, row in _actions(part):
            entry._tags[number << 3 | wire_type] = row
    return entry


def _new_type(name: str) -> type[Message]:
    kind: type[Message] = type(name, (Message,), {"_name": name})
    kind._tags, kind._fields, kind._oneofs = {}, {}, {}
    return kind


def _actions(field: Field) -> Iterator[tuple[int, wire.Row]]:
    """Yield, for each wire type that the field may have, what to do."""
    name, many, lazy = field.name, field.is_repeated, field.is_lazy

    def row(action: int, extra: object) -> wire.Row:
        return (action, name, extra, field.rivals)

    if field.entry is not None:
        usual = field.message if field.key_kind == "string" else None
        yield wire.LEN, row(wire.MAP, (field.entry, usual))
    elif field.message is not None:
        yield wire.LEN, row(wire.MESSAGES if many else wire.MESSAGE, field.message)
    elif field.kind == "string":
        yield wire.LEN, row(wire.STRINGS if many else wire.STRING, None)
    elif field.kind == "bytes":
        yield wire.LEN, row(wire.BLOB if lazy else wire.MANY_BYTES if many else wire.BYTES, None)
    else:
        kind = field.kind.split()[0]
        if kind in FIXED:
            wire_type = wire.I32 if FIXED[kind].size == 4 else wire.I64
            single, several, left = wire.ONE_FIXED, wire.FIXEDS, wire.FIXED_LAZY
        else:
            wire_type = wire.VARINT
            single, several, left = wire.ONE_VARINT, wire.VARINTS, wire.VARINT_LAZY
        # A parser must accept packed and unpacked alike.
        yield wire_type, row((left if lazy else several) if many else single, kind)
        if many:
            yield wire.LEN, row(wire.PACKED_LAZY if lazy else wire.PACKED, kind)


def decode(span: Span, kind: type[Message], limits: Limits, *, whole: int | None = None) -> Message:
    """Return the message that fills ``span``; nothing of it is decoded yet.

    Up to ``whole`` bytes (default: `wire.WHOLE`) are read at once and kept; of more, only what is
    looked at.

    Raises:
        LimitError: It is larger than any protobuf may be.
    """
    if span.length > limits.max_message_bytes:
        raise LimitError(
            f"a protobuf of {span.length} bytes",
            expected=f"at most {limits.max_message_bytes}",
            where=span.name,
        )
    context = wire.Context(limits)
    message = kind.__new__(kind)
    message._depth = 0
    if span.length <= (wire.WHOLE if whole is None else whole):
        message._window = wire.Window(span.storage, context, span.read(), span.offset)
        message._start, message._end = 0, span.length
    else:
        message._window = wire.Window(span.storage, context)
        message._start, message._end = span.offset, span.offset + span.length
    return message


def decode_bytes(data: bytes, kind: type[Message], limits: Limits, where: str) -> Message:
    """Return the message that ``data`` encodes, as `decode` does."""
    return decode(Span.whole(Buffer(data, where)), kind, limits)
