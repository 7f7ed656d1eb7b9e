"""Encode messages in the wire format.

Spec: https://protobuf.dev/programming-guides/encoding/
Fields are written in the order of their numbers and numbers packed, as protobuf's own writers do.
"""

from collections.abc import Iterator
from typing import Any

from formats.containers.protobuf.messages import Field, Message
from formats.containers.protobuf.packed import FIXED, Packed
from formats.containers.protobuf.rewriting import Pieces, field
from formats.containers.protobuf.wire import I32, I64, VARINT
from formats.core.storage import Span


def encode(message: Message) -> bytes:
    """Return the bytes of a message, all of its parts decoded on the way."""
    numbers = {name: tag >> 3 for tag, (_, name, _, _) in reversed(message._tags.items())}
    present = message.present()
    return b"".join(
        b"".join(_field(numbers[name], message._fields[name], value))
        for name, value in sorted(present.items(), key=lambda item: numbers[item[0]])
    )


def _field(number: int, kind: Field, value: Any) -> Iterator[bytes]:
    if kind.entry is not None:
        key = Field("key", kind.key_kind or "string")
        item = Field("value", kind.kind)
        item.message = kind.message
        for name, content in value.items():
            yield _with_length(number, b"".join((*_field(1, key, name), *_field(2, item, content))))
    elif kind.message is not None:
        for child in value if kind.is_repeated else (value,):
            yield _with_length(number, encode(child))
    elif kind.kind in ("string", "bytes"):
        for text in value if kind.is_repeated else (value,):
            yield _with_length(number, _text(text))
    elif kind.is_repeated:
        if value:
            yield _with_length(number, b"".join(_scalar(kind.kind, v) for v in value))
    else:
        scalar = kind.kind.split()[0]
        width = FIXED[scalar].size if scalar in FIXED else 0
        wire = {0: VARINT, 4: I32, 8: I64}[width]
        yield bytes(_varint(number << 3 | wire)) + _scalar(kind.kind, value)


def _text(value: str | bytes | Span) -> bytes:
    if isinstance(value, Span):
        return value.read()
    return value.encode() if isinstance(value, str) else value


def _scalar(kind: str, value: float) -> bytes:
    return Packed.encode(kind.split()[0], value)


def _with_length(number: int, value: bytes) -> bytes:
    pieces: Pieces = field(number, [value])
    return b"".join(p for p in pieces if isinstance(p, bytes))


def _varint(value: int) -> bytes:
    return Packed.encode("uint64", value)
