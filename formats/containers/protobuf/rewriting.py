"""Replace fields of a protobuf message; every other byte stays.

Spec: https://protobuf.dev/programming-guides/encoding/

Changes are addressed by field numbers, level by level; all other fields, known or
unknown, are copied without being decoded. The result is a list of pieces, bytes and runs of the
source's file, so that a graph of a gigabyte is not held in memory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from formats.containers.protobuf.packed import varint
from formats.containers.protobuf.wire import I32, I64, LEN, LONGEST_HEADER, VARINT
from formats.core.storage import Span
from formats.errors import CorruptError

HELD = 1 << 20  # bytes; a message up to this long is held in memory while it is rewritten
WINDOW = 1 << 16  # bytes read at once of a longer one

Body: TypeAlias = bytes | Span
Pieces: TypeAlias = list[bytes | Span]


class Dropped:
    """What an edit answers for a field that shall be gone."""


DROP = Dropped()

# What an edit answers: None leaves the field as it is.
Answer: TypeAlias = Pieces | Dropped | None
Edit: TypeAlias = Callable[[Body], Answer]


class Part(NamedTuple):
    """One field of a message: its number, and where header, value and end of it are."""

    number: int
    wire: int
    start: int
    value: int
    end: int


def parts(body: Body) -> Iterator[tuple[Part, Body]]:
    """Yield the fields of one level, each with its value (of a number: its bytes).

    Raises:
        CorruptError: The bytes are no message.
    """
    size = body.length if isinstance(body, Span) else len(body)
    base, data = (0, b"") if isinstance(body, Span) else (0, body)
    at = 0
    while at < size:
        if isinstance(body, Span) and at + LONGEST_HEADER > base + len(data) < size:
            base, data = at, body.read(at, min(WINDOW, size - at))
        number, wire, value, end = _header(data, at - base, base, size, body)
        if isinstance(body, Span):
            if end <= base + len(data):
                yield Part(number, wire, at, value, end), data[value - base : end - base]
            elif end - value <= HELD:
                yield Part(number, wire, at, value, end), body.read(value, end - value)
            else:
                yield Part(number, wire, at, value, end), body.sub(value, end - value)
        else:
            yield Part(number, wire, at, value, end), data[value:end]
        at = end


def _header(data: bytes, at: int, base: int, size: int, body: Body) -> tuple[int, int, int, int]:
    """Return number, wire type, and where value and end of the field at ``at`` are."""
    reason = "a field is longer than its message"
    try:
        tag, value = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == LEN:
            length, value = varint(data, value)
            end = value + length
        elif wire == VARINT:
            _, end = varint(data, value)
        elif wire in (I32, I64):
            end = value + (4 if wire == I32 else 8)
        else:  # groups: TensorFlow's messages never had any
            number, end, reason = 0, value, f"wire type {wire}"
    except (IndexError, ValueError) as e:
        number, wire, value, end, reason = 0, 0, at, at, str(e)
    if not number or base + end > size:
        where = body.name if isinstance(body, Span) else None
        raise CorruptError(f"is not a valid message: {reason}", where=where, offset=base + at)
    return number, wire, base + value, base + end


def rewrite_message(
    body: Body, edits: Mapping[int, Edit], added: Sequence[tuple[int, Pieces]] = ()
) -> Pieces | None:
    """Return a message with the edits applied; None where nothing changed.

    Args:
        body: The message.
        edits: Field number → what to make of each field of that number that has a length.
        added: Numbers and values of fields to write behind all others.

    Raises:
        CorruptError: The bytes are no message.
    """
    pieces: Pieces = []
    kept = 0  # where the unchanged run begins that is not in pieces yet
    last = 0
    for part, value in parts(body):
        last = part.end
        edit = edits.get(part.number)
        if edit is None or part.wire != LEN:
            continue
        answer = edit(value)
        if answer is None:
            continue
        _keep(pieces, body, kept, part.start)
        kept = part.end
        if not isinstance(answer, Dropped):
            pieces += field(part.number, answer)
    if not pieces and kept == 0 and not added:
        return None
    _keep(pieces, body, kept, last)
    for number, content in added:
        pieces += field(number, content)
    return pieces if isinstance(body, Span) else [b"".join(_bytes(p) for p in pieces)]


def field(number: int, value: Pieces) -> Pieces:
    """Return a field with a length."""
    head = _number(number << 3 | LEN) + _number(sum(map(_length, value)))
    if len(value) == 1 and isinstance(value[0], bytes):
        return [head + value[0]]
    return [head, *value]


def text(number: int, value: str) -> bytes:
    """Return a string field; nothing for an empty string, which is the default."""
    return b"".join(map(_bytes, field(number, [value.encode()]))) if value else b""


def _keep(pieces: Pieces, body: Body, start: int, end: int) -> None:
    if start < end:
        pieces.append(body.sub(start, end - start) if isinstance(body, Span) else body[start:end])


def _length(piece: bytes | Span) -> int:
    return piece.length if isinstance(piece, Span) else len(piece)


def _bytes(piece: bytes | Span) -> bytes:
    return piece.read() if isinstance(piece, Span) else piece


def _number(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
