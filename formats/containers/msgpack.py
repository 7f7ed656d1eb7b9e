"""MessagePack: a tree of plain values, in which binary data and extensions stay in the file.

Spec: https://github.com/msgpack/msgpack/blob/master/spec.md
"""

import struct
from typing import NamedTuple, TypeAlias, cast

from formats.core.storage import Span
from formats.errors import CorruptError, LimitError
from formats.limits import Limits

WINDOW = 1 << 14  # bytes read at once; binary data is skipped


class Extension(NamedTuple):
    """A value of a type of the application's, and its data."""

    code: int
    data: Span


Value: TypeAlias = (
    "bool | int | float | str | Span | Extension | list[Value] | dict[str, Value] | None"
)

# First byte -> layout of a number.
NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
# First byte -> kind, and layout of its length.
SIZED = {
    0xC4: ("binary", ">B"), 0xC5: ("binary", ">H"), 0xC6: ("binary", ">I"),
    0xC7: ("extension", ">B"), 0xC8: ("extension", ">H"), 0xC9: ("extension", ">I"),
    0xD9: ("string", ">B"), 0xDA: ("string", ">H"), 0xDB: ("string", ">I"),
    0xDC: ("list", ">H"), 0xDD: ("list", ">I"), 0xDE: ("map", ">H"), 0xDF: ("map", ">I"),
}  # fmt: skip
CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
FIXED_EXTENSIONS = range(0xD4, 0xD9)  # of 1, 2, 4, 8 and 16 bytes


def parse(span: Span, limits: Limits) -> Value:
    """Parse one value, which takes all bytes of a span.

    Raises:
        CorruptError: It is no MessagePack, is cut off, or has a key twice or of another type than
            a string.
        LimitError: It is too deep, or has too many values or too long a string.
    """
    reader = _Reader(span, limits)
    value = reader.value(0)
    if reader.position != span.length:
        raise reader.wrong(f"{span.length - reader.position} bytes follow the value")
    return value


class _Reader:
    """A position in a span, and the bytes around it."""

    def __init__(self, span: Span, limits: Limits) -> None:
        self.span, self.limits = span, limits
        self.position = self.count = 0
        self._start, self._window = 0, b""

    def wrong(self, found: str) -> CorruptError:
        """Return an error at the position."""
        offset = self.span.offset + self.position
        return CorruptError(f"is damaged MessagePack: {found}", where=self.span.name, offset=offset)

    def take(self, length: int) -> bytes:
        """Return the next bytes."""
        if length > self.span.length - self.position:
            raise self.wrong("it ends too early")
        at = self.position - self._start
        if not 0 <= at <= len(self._window) - length:
            size = min(max(WINDOW, length), self.span.length - self.position)
            self._start, self._window, at = self.position, self.span.read(self.position, size), 0
        self.position += length
        return self._window[at : at + length]

    def skip(self, length: int) -> Span:
        """Return the next bytes as a span, unread."""
        if length > self.span.length - self.position:
            raise self.wrong("it ends too early")
        found = self.span.sub(self.position, length)
        self.position += length
        return found

    def number(self, layout: str) -> int | float:
        """Return the next number."""
        (found,) = struct.unpack(layout, self.take(struct.calcsize(layout)))
        return cast("int | float", found)

    def value(self, depth: int) -> Value:
        """Return the next value."""
        self.count += 1
        if self.count > self.limits.max_values:
            raise LimitError(f"more than {self.limits.max_values} values", where=self.span.name)
        if depth > self.limits.max_depth:
            raise LimitError(f"nested deeper than {self.limits.max_depth}", where=self.span.name)
        (head,) = self.take(1)
        if head < 0x80:
            return head
        if head >= 0xE0:
            return head - 0x100
        if head < 0xC0:
            kind = "map" if head < 0x90 else "list" if head < 0xA0 else "string"
            return self._sized(kind, head & (0x0F if head < 0xA0 else 0x1F), depth)
        if head in CONSTANTS:
            return CONSTANTS[head]
        if head in NUMBERS:
            return self.number(NUMBERS[head])
        if head in FIXED_EXTENSIONS:
            return self._sized("extension", 1 << head - FIXED_EXTENSIONS.start, depth)
        if head not in SIZED:
            raise self.wrong("the byte 0xc1, which stands for no type")
        kind, length = SIZED[head]
        return self._sized(kind, int(self.number(length)), depth)

    def _sized(self, kind: str, size: int, depth: int) -> Value:
        """Return a value whose length is known."""
        match kind:
            case "binary":
                return self.skip(size)
            case "extension":
                code = int(self.number(">b"))
                return Extension(code, self.skip(size))
            case "string":
                return self._string(size)
            case "list":
                return [self.value(depth + 1) for _ in range(size)]
        found: dict[str, Value] = {}
        for _ in range(size):
            key = self.value(depth + 1)
            if not isinstance(key, str):
                raise self.wrong(f"a key is a {type(key).__name__}, no string")
            if key in found:
                raise self.wrong(f"the key {key!r:.80} occurs twice")
            found[key] = self.value(depth + 1)
        return found

    def _string(self, size: int) -> str:
        if size > self.limits.max_header_bytes:
            raise LimitError(f"a string of {size} bytes", where=self.span.name)
        try:
            return self.take(size).decode()
        except UnicodeDecodeError as e:
            raise self.wrong("a string is no UTF-8") from e
