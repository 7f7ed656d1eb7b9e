"""A parser of protobuf's text format (``.pbtxt``, ``.prototxt``, ``checkpoint``).

Spec: https://protobuf.dev/reference/protobuf/textformat-spec/
Taken as parsers of TensorFlow's age took it: separators are optional, ``< >`` is ``{ }``, an enum
may be a number. Extensions and expanded Any messages are skipped, as unknown fields are. There is
no recursion, so depth costs nothing but is bounded all the same.
"""

import re
from functools import lru_cache
from typing import Any

from formats.containers.protobuf.messages import Field, Message, Schema, new
from formats.containers.protobuf.packed import Packed
from formats.core.storage import Buffer, Span
from formats.errors import CorruptError, LimitError, UnsupportedError
from formats.limits import Limits

_TOKEN = re.compile(
    rb"""
    (?: \s++ | \#[^\n]*+ )*+
    (?:
      (?P<string> "[^"\\\n]*+(?:\\.[^"\\\n]*+)*+" | '[^'\\\n]*+(?:\\.[^'\\\n]*+)*+' )
    | (?P<number> 0[xX][0-9a-fA-F]++ | (?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?[fF]? )
    | (?P<name>   [A-Za-z_][A-Za-z0-9_]*+ )
    | (?P<mark>   [-:{}<>\[\],;/.] )
    )?
    """,
    re.VERBOSE | re.DOTALL,
)
_UNUSUAL = re.compile(rb"\\(?:[^abfnrtv\\'\"0-7x]|x[0-9a-fA-F]?(?![0-9a-fA-F])|[4-7][0-7][0-7])")
_ESCAPE = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_PLAIN_ESCAPES = {
    b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
    b"\\": b"\\", b"'": b"'", b'"': b'"', b"?": b"?",
}  # fmt: skip
_SIGNED_32, _UNSIGNED_32 = range(-(1 << 31), 1 << 31), range(1 << 32)
_SIGNED_64, _UNSIGNED_64 = range(-(1 << 63), 1 << 63), range(1 << 64)
_RANGES = {
    "int32": _SIGNED_32, "sint32": _SIGNED_32, "sfixed32": _SIGNED_32, "enum": _SIGNED_32,
    "int64": _SIGNED_64, "sint64": _SIGNED_64, "sfixed64": _SIGNED_64,
    "uint32": _UNSIGNED_32, "fixed32": _UNSIGNED_32,
    "uint64": _UNSIGNED_64, "fixed64": _UNSIGNED_64,
}  # fmt: skip
_TRUTH = {b"true": True, b"True": True, b"t": True, b"1": True,
          b"false": False, b"False": False, b"f": False, b"0": False}  # fmt: skip
_LONGEST_NUMBER = 400  # characters; repr of the smallest double has 330 at most


def parse(
    span: Span, kind: type[Message], schema: Schema, limits: Limits, *, complete: bool = False
) -> Message:
    """Return the message that a text says; bytes fields become spans over memory.

    Args:
        span: The text.
        kind: Its message.
        schema: The enums that it may name.
        limits: How much it may say.
        complete: Whether nothing may be skipped, because the message is written again.

    Raises:
        CorruptError: It is no text of this message.
        LimitError: It is too long, too deep, or says too much.
        UnsupportedError: It has a field that we do not know, and shall be complete.
    """
    if span.length > limits.max_text_bytes:
        raise LimitError(
            f"a text protobuf of {span.length} bytes",
            expected=f"at most {limits.max_text_bytes}",
            where=span.name,
        )
    parser = _Parser(span.read(), span.name, schema, limits)
    message = parser.message(kind)
    if complete and parser.skipped is not None:
        raise UnsupportedError(f"a text with the unknown field {parser.skipped}", where=span.name)
    return message


class _Parser:
    """A cursor over the text, and the stack of messages that are open."""

    def __init__(self, text: bytes, where: str, schema: Schema, limits: Limits) -> None:
        self.text = text
        self.where = where
        self.schema = schema
        self.limits = limits
        self.values_left = limits.max_values
        self.tokens_left = limits.max_tokens
        self.at = 0
        self.skipped: str | None = None  # the first unknown field
        self.token, self.sort = b"", ""
        self.advance()

    def message(self, kind: type[Message]) -> Message:
        root = new(kind)
        # Each entry: the open message (None: unknown, skipped), the mark that closes it, and for
        # an entry of a map the map that it belongs to. A closing mark of "]" is a list of messages.
        stack: list[tuple[Message | None, bytes, dict[Any, Any] | None]] = [(root, b"", None)]
        lists: list[tuple[int, Message | None, Field | None]] = []  # depth and field of open lists
        while True:
            current, close, target = stack[-1]
            if lists and lists[-1][0] == len(stack):
                _, owner, field = lists[-1]
                if self.take(b"]"):
                    lists.pop()
                    self.separator()
                else:
                    self.take(b",")
                    stack.append(self.open_message(owner, field))
            elif self.sort == "end" or (self.token == close and self.sort == "mark"):
                if self.sort == "end" and len(stack) > 1:
                    raise self.error("the text ends inside a message")
                if len(stack) == 1:
                    return root
                self.advance()
                if target is not None and current is not None:
                    target[current.key] = current.value
                stack.pop()
                if not (lists and lists[-1][0] == len(stack)):
                    self.separator()
            else:
                field = self.field_name(current)
                colon = self.take(b":")
                if self.sort == "mark" and self.token in b"{<":
                    stack.append(self.open_message(current, field))
                elif not colon:
                    raise self.error("expected ':' or '{'")
                elif self.take(b"["):
                    if self.sort == "mark" and self.token in b"{<":
                        lists.append((len(stack), current, field))
                    else:
                        self.scalars(current, field)
                        self.separator()
                else:
                    self.scalar(current, field)
                    self.separator()
            if len(stack) > self.limits.max_depth:
                raise LimitError(
                    f"messages nest deeper than {self.limits.max_depth}", where=self.where
                )

    def open_message(
        self, owner: Message | None, field: Field | None
    ) -> tuple[Message | None, bytes, dict[Any, Any] | None]:
        """Step into ``{`` or ``<``."""
        if self.sort != "mark" or self.token not in b"{<":
            raise self.error("expected '{'")
        close = b"}" if self.token == b"{" else b">"
        self.advance()
        self.count()
        if owner is None or field is None:
            return None, close, None
        if field.message is None and field.entry is None:
            raise self.error(f"field {field.name!r} is no message")
        values = owner.__dict__
        for rival in field.rivals:
            values.pop(rival, None)
        if field.entry is not None:
            return new(field.entry), close, values.setdefault(field.name, {})
        assert field.message is not None
        if field.is_repeated:
            child = new(field.message)
            values.setdefault(field.name, []).append(child)
        else:
            child = values.setdefault(field.name, new(field.message))
        return child, close, None

    def field_name(self, owner: Message | None) -> Field | None:
        """Read a field's name; None for extensions, Any and names we do not know."""
        if self.take(b"["):
            self.skipped = self.skipped or "[...]"
            while not self.take(b"]"):
                if self.sort not in ("name", "mark", "number") or self.token in b"{}<>":
                    raise self.error("an extension's name is not closed")
                self.advance()
            return None
        if self.sort != "name":
            raise self.error("expected a field's name")
        name = self.token.decode()
        self.advance()
        field = None if owner is None else owner._fields.get(name)
        if field is None and self.skipped is None:
            self.skipped = repr(name)
        return field

    def scalars(self, owner: Message | None, field: Field | None) -> None:
        while not self.take(b"]"):
            self.scalar(owner, field)
            if not self.take(b",") and self.token != b"]":
                raise self.error("expected ',' or ']'")

    def scalar(self, owner: Message | None, field: Field | None) -> None:
        """Read one value and store it."""
        if self.sort == "string":
            parts = []
            while self.sort == "string":
                parts.append(self.unescape(self.token[1:-1]))
                self.advance()
            text = b"".join(parts)
            if owner is not None and field is not None:
                self.store(owner, field, self.as_text(field, text))
            return
        sign = b""
        while self.take(b"-"):
            if sign:
                raise self.error("two signs")
            sign = b"-"
        if self.sort not in ("number", "name") or len(self.token) > _LONGEST_NUMBER:
            raise self.error("expected a value")
        token, sort = self.token, self.sort
        self.advance()
        if owner is not None and field is not None:
            self.store(owner, field, self.as_number(field, sign + token, sort))

    def as_text(self, field: Field, text: bytes) -> object:
        if field.kind == "string":
            return text.decode("utf-8", "backslashreplace")
        if field.kind != "bytes":
            raise self.error(f"field {field.name!r} is no text")
        return Span.whole(Buffer(text, f"{self.where}#{field.name}")) if field.is_lazy else text

    def as_number(self, field: Field, token: bytes, sort: str) -> int | float:
        kind = field.kind.split()[0]
        try:
            if kind == "bool":
                return _TRUTH[token]
            if kind in ("float", "double"):
                return float(token.decode().rstrip("fF") if sort == "number" else token.decode())
            if kind == "enum" and sort == "name":
                return _numbers_of(self.schema, field.kind.split()[1])[token.decode()]
            allowed = _RANGES[kind]
            number = _integer(token)
        except (KeyError, ValueError):
            raise self.error(f"{token[:40]!r} is no value of field {field.name!r}") from None
        if number not in allowed:
            raise self.error(f"{number} is out of range for field {field.name!r}")
        return number

    def store(self, owner: Message, field: Field, value: Any) -> None:
        values = owner.__dict__
        for rival in field.rivals:
            values.pop(rival, None)
        self.count()
        if not field.is_repeated:
            values[field.name] = value
        elif field.is_lazy:
            packed = values.setdefault(field.name, Packed(field.kind))
            packed.append_bytes(Packed.encode(field.kind, value))
        else:
            values.setdefault(field.name, []).append(value)

    def count(self) -> None:
        self.values_left -= 1
        if self.values_left < 0:
            raise LimitError(
                f"more than {self.limits.max_values} protobuf messages and values", where=self.where
            )

    def separator(self) -> None:
        if not self.take(b","):
            self.take(b";")

    def take(self, mark: bytes) -> bool:
        """Step over ``mark`` if it is next."""
        if self.sort != "mark" or self.token != mark:
            return False
        self.advance()
        return True

    def advance(self) -> None:
        found = _TOKEN.match(self.text, self.at)
        if found is None or found.lastindex is None:
            self.at = found.end() if found is not None else self.at
            if self.at < len(self.text):
                raise self.error(f"{self.text[self.at : self.at + 20]!r} is no token")
            self.token, self.sort = b"", "end"
            return
        self.token, self.sort, self.at = found[found.lastindex], found.lastgroup or "", found.end()
        self.tokens_left -= 1
        if self.tokens_left < 0:
            raise LimitError(
                f"a text protobuf of more than {self.limits.max_tokens} tokens", where=self.where
            )

    def unescape(self, text: bytes) -> bytes:
        if b"\\" not in text:
            return text
        if _UNUSUAL.search(text) is None:  # what writers produce, at C speed
            return text.decode("unicode_escape").encode("latin-1")
        return _ESCAPE.sub(self.escape, text)

    def escape(self, found: re.Match[bytes]) -> bytes:
        octal, hexadecimal, short, long, plain = found.groups()
        if octal is not None and int(octal, 8) < 256:
            return bytes([int(octal, 8)])
        if hexadecimal is not None:
            return bytes([int(hexadecimal, 16)])
        if (short or long) is not None:
            code = int(short or long, 16)
            if code < 0x110000:
                return chr(code).encode("utf-8", "surrogatepass")
        if plain in _PLAIN_ESCAPES:
            return _PLAIN_ESCAPES[plain]
        raise self.error(f"unknown escape {found.group()[:10]!r}")

    def error(self, found: str) -> CorruptError:
        line = self.text.count(b"\n", 0, self.at) + 1
        return CorruptError(
            f"is not a valid text protobuf: {found} (line {line})",
            where=self.where,
            offset=self.at,
            hint="The file is probably truncated" if self.at >= len(self.text) else None,
        )


@lru_cache
def _numbers_of(schema: Schema, enum: str) -> dict[str, int]:
    return {name: n for n, name in schema.enums[enum].items()}


def _integer(token: bytes) -> int:
    digits = token.lstrip(b"-")
    if len(digits) > 1 and digits.startswith(b"0") and not digits.lower().startswith(b"0x"):
        return int(token, 8)
    return int(token, 0)
