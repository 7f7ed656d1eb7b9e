"""The protobuf wire format: decode one level of a message by its type's table.

Spec: https://protobuf.dev/programming-guides/encoding/
Parts of `formats.containers.protobuf.messages`, which is what readers use. A file of up to `WHOLE`
bytes is decoded from one buffer. A larger one is walked through small windows that jump over what
is left where it is, so that looking through a graph does not read its weights.
"""

import re
import struct
from functools import lru_cache
from typing import Any, ClassVar, Protocol

from formats.containers.protobuf.packed import FIXED, Packed, to_signed, varint
from formats.core.storage import Span, Storage
from formats.errors import CorruptError, LimitError
from formats.limits import Limits

VARINT, I64, LEN, GROUP, END_GROUP, I32 = range(6)

# What to do with a field; those below NUMBERS have a length.
(
    MESSAGE, MESSAGES, MAP, STRING, STRINGS, BYTES, MANY_BYTES, BLOB, PACKED, PACKED_LAZY,
    NUMBERS, ONE_VARINT, ONE_FIXED, VARINTS, FIXEDS, VARINT_LAZY, FIXED_LAZY,
) = range(17)  # fmt: skip

Row = tuple[int, str, Any, tuple[str, ...]]  # what to do, field, message type or kind, rivals

WHOLE = 1 << 24  # bytes
SMALL = 1 << 12  # a message up to this many bytes is kept in memory while its parts are undecoded
LARGEST_WINDOW = 1 << 16
FIRST_WINDOW = 1 << 9
LONGEST_HEADER = 20  # bytes of a tag and a length, or of a tag and a number
RUN = 4096  # unpacked numbers of a fixed width, or bytes of others, taken together
_DEEPEST_GROUP = 100
_DEEPEST_MERGE = 50  # merging recurses
_MESSAGE = 4  # values that a message counts as beside itself, as looking into it costs time


class Context:
    """What one call to `decode` may still cost."""

    __slots__ = ("bytes_left", "limits", "numbers_left", "unknown", "values_left")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.values_left = limits.max_values
        self.numbers_left = 4 * limits.max_values  # left where they are: they cost time only
        self.bytes_left = limits.max_text_bytes
        self.unknown = 0

    def count(self, values: int, where: str) -> None:
        """Take note of values in memory."""
        self.values_left -= values
        if self.values_left < 0:
            raise LimitError(
                f"more than {self.limits.max_values} protobuf messages and values", where=where
            )

    def pass_by(self, numbers: int, where: str) -> None:
        """Take note of unpacked numbers that are not decoded yet."""
        self.numbers_left -= numbers
        if self.numbers_left < 0:
            raise LimitError(f"more than {4 * self.limits.max_values} numbers", where=where)

    def hold(self, nbytes: int, where: str) -> None:
        """Take note of bytes in memory."""
        self.bytes_left -= nbytes
        if self.bytes_left < 0:
            raise LimitError(
                f"more than {self.limits.max_text_bytes} bytes of protobuf text", where=where
            )


class Window:
    """Bytes in memory (``data``, which begins at ``base``), or all of a storage."""

    __slots__ = ("base", "context", "data", "storage")

    def __init__(
        self, storage: Storage, context: Context, data: bytes | None = None, base: int = 0
    ) -> None:
        self.storage = storage
        self.context = context
        self.data = data
        self.base = base


class Message(Protocol):
    """What a level is decoded into, field by field: see `messages.Message`."""

    _name: ClassVar[str]
    _tags: ClassVar[dict[int, Row]]
    _window: "Window | None"
    _start: int
    _end: int
    _depth: int


def decode_level(message: Message, window: Window, start: int, end: int, depth: int) -> None:
    """Decode one level of ``message`` from ``window[start:end]``, over what is in it already.

    Raises:
        CorruptError: The bytes are no such message.
        LimitError: It is too deep, or too much.
    """
    context, storage = window.context, window.storage
    if depth > context.limits.max_depth:
        raise LimitError(
            f"messages nest deeper than {context.limits.max_depth}", where=storage.name
        )
    if window.data is None and end - start <= SMALL:
        context.hold(end - start, storage.name)
        window = Window(storage, context, storage.read(start, end - start), start)
        start, end = 0, end - start
    cursor = _Cursor(window, start, depth)
    try:
        cursor.walk(message, end if window.data is not None else end - start)
    except (IndexError, ValueError, struct.error) as e:
        reason = "it ends early" if isinstance(e, (IndexError, struct.error)) else str(e)
        raise CorruptError(
            f"is not a valid {message._name} message: {reason}",
            where=storage.name,
            offset=cursor.base + cursor.position,
            hint="The file is probably truncated",
        ) from e


class _Cursor:
    """A walk over one level.

    Positions count from ``data[0]``, which lies at byte ``base`` of the storage; ``shift`` leads
    from there to the coordinates of ``window``, which are those of undecoded parts.
    """

    __slots__ = ("base", "context", "data", "depth", "position", "shift", "storage", "window")

    def __init__(self, window: Window, start: int, depth: int) -> None:
        self.window = window
        self.storage = window.storage
        self.context = window.context
        self.depth = depth
        if window.data is None:
            self.data, self.base, self.shift, self.position = b"", start, start, 0
        else:
            self.data, self.base, self.shift, self.position = window.data, window.base, 0, start

    def walk(self, message: Message, end: int) -> None:
        """Decode the fields up to ``end``.

        Raises:
            IndexError: The data ends early; so does struct.error.
            ValueError: It makes no sense.
        """
        values, tags = message.__dict__, message._tags
        data, position = self.data, self.position
        is_streaming = self.window.data is None
        safe = -1 if is_streaming else end  # up to here, a field's header is in the data
        step = FIRST_WINDOW
        while position < end:
            if position > safe:
                # Past the data by more than a header: a large field was skipped, so look again at
                # little, and do not read weights on the way.
                step = FIRST_WINDOW if position > len(data) else min(4 * step, LARGEST_WINDOW)
                self.base += position
                end -= position
                self.shift, position = self.base, 0
                data = self.data = self.storage.read(self.base, min(end, step))
                safe = end if len(data) == end else len(data) - LONGEST_HEADER
            self.position = position
            tag = data[position]
            position += 1
            if tag > 127:
                tag, position = varint(data, position - 1)
            row = tags.get(tag)
            if row is None:
                position = self._skip(tag, position, end)
                continue
            action, name, extra, rivals = row
            if (rivals and values) or (name in values and action < VARINT_LAZY):
                self.context.count(1, self.storage.name)  # again: bounded, as time is
                for rival in rivals:
                    values.pop(rival, None)
            if action < NUMBERS:
                length = data[position]
                position += 1
                if length > 127:
                    length, position = varint(data, position - 1)
                stop = position + length
                if stop > end:
                    raise ValueError("a field is longer than its message")
                if action == STRING:
                    values[name] = self._bytes(position, stop).decode("utf-8", "backslashreplace")
                elif action == MAP:
                    self._map_entry(values, name, extra, position, stop)
                else:
                    self._store(values, action, name, extra, position, stop)
                position = stop
            elif action == ONE_VARINT:
                number = data[position]
                position += 1
                if number > 127:
                    number, position = varint(data, position - 1)
                values[name] = to_signed(number, extra)
            else:
                position = self._number(values, action, name, extra, position, end)
        if position != end:
            raise ValueError("a field is longer than its message")

    def _bytes(self, position: int, stop: int) -> bytes:
        if self.window.data is None:
            self.context.hold(stop - position, self.storage.name)
        if stop <= len(self.data):
            return self.data[position:stop]
        return self.storage.read(self.base + position, stop - position)

    def _defer(self, kind: type[Message], position: int, stop: int, levels: int = 1) -> Message:
        self.context.count(_MESSAGE, self.storage.name)
        child = kind.__new__(kind)
        child._window = self.window
        child._start = position + self.shift
        child._end = stop + self.shift
        child._depth = self.depth + levels
        return child

    def _store(
        self,
        values: dict[str, Any],
        action: int,
        name: str,
        extra: Any,
        position: int,
        stop: int,
    ) -> None:
        """Store a field that has a length."""
        where = self.storage.name
        known = values.get(name)
        if known is None:
            self.context.count(1, where)
        item: Any
        if action == BLOB:
            values[name] = Span(self.storage, self.base + position, stop - position)
            return
        if action == BYTES:
            values[name] = self._bytes(position, stop)
            return
        if action == MESSAGE:
            if known is None:
                values[name] = self._defer(extra, position, stop)
            else:  # parts of a singular message are merged
                if self.depth > _DEEPEST_MERGE:
                    raise LimitError(f"merged deeper than {_DEEPEST_MERGE} messages", where=where)
                known._fill()
                shift = self.shift
                decode_level(known, self.window, position + shift, stop + shift, self.depth + 1)
            return
        if action in (PACKED, PACKED_LAZY):
            packed = known if action == PACKED_LAZY and known is not None else Packed(extra)
            packed.append_span(Span(self.storage, self.base + position, stop - position))
            if action == PACKED_LAZY:
                values[name] = packed
                return
            if self.window.data is None:
                self.context.hold(stop - position, where)
            self.context.count(len(packed), where)
            values.setdefault(name, []).extend(packed)
            return
        if action == MESSAGES:
            item = self._defer(extra, position, stop)
        else:
            item = self._bytes(position, stop)
            if action == STRINGS:
                item = item.decode("utf-8", "backslashreplace")
        if known is None:
            values[name] = [item]
        else:
            known.append(item)

    def _map_entry(
        self, values: dict[str, Any], name: str, extra: Any, position: int, stop: int
    ) -> None:
        entry_type, usual = extra
        target = values.get(name)
        if target is None:
            self.context.count(1, self.storage.name)
            target = values[name] = {}
        data = self.data
        if usual is not None and stop <= len(data) and stop - position > 3:
            # The usual entry, a short key and a message, is taken apart here: half of the messages
            # of a graph are such entries.
            middle = position + 2 + data[position + 1]
            if data[position] == 10 and middle + 1 < stop and data[middle] == 18:
                length, at = varint(data, middle + 1)
                if data[position + 1] < 128 and at + length == stop:
                    key = data[position + 2 : middle].decode("utf-8", "backslashreplace")
                    target[key] = self._defer(usual, at, stop, levels=2)
                    return
        entry = entry_type.__new__(entry_type)
        entry._window = None
        shift = self.shift
        decode_level(entry, self.window, position + shift, stop + shift, self.depth + 1)
        target[entry.key] = entry.value

    def _number(
        self,
        values: dict[str, Any],
        action: int,
        name: str,
        extra: Any,
        position: int,
        end: int,
    ) -> int:
        """Store a number of fixed width, or one of several; return where it ends."""
        known = values.get(name)
        if known is None:
            self.context.count(1, self.storage.name)
        data = self.data
        if action >= VARINT_LAZY:
            packed = values.setdefault(name, Packed(extra)) if known is None else known
            return self._left(packed, action, position, end)
        if action == VARINTS:
            number, position = varint(data, position)
            value: Any = to_signed(number, extra)
        else:
            codec = FIXED[extra]
            value = codec.unpack_from(data, position)[0]
            position += codec.size
        if action == ONE_FIXED:
            values[name] = value
        elif known is None:
            values[name] = [value]
        else:
            known.append(value)
        return position

    def _left(self, packed: Packed, action: int, position: int, end: int) -> int:
        """Put an unpacked number aside; return where it ends.

        They come in runs, each behind the same tag, which are taken together: a decision tree has
        millions of them.
        """
        data, tag_at = self.data, self.position
        if action == VARINT_LAZY:
            several, one = _varint_patterns(data[tag_at:position])
            run = several.match(data, tag_at, min(end, tag_at + RUN))
            if run is None:  # it is longer than it may be, or is cut
                _, stop = varint(data, position)
                packed.append_bytes(data[position:stop])
                self.context.pass_by(1, self.storage.name)
                return stop
            values = one.findall(data, tag_at, run.end())
            packed.append_bytes(b"".join(values))
            self.context.pass_by(len(values), self.storage.name)
            return run.end()
        header = position - tag_at
        stride = header + packed.width
        end = min(end, len(data), tag_at + RUN * stride)
        count = (end - tag_at) // stride
        if not count:
            raise IndexError
        if header > 1:
            count = 1
        else:
            tags = data[tag_at:end:stride]
            count = min(count, len(tags) - len(tags.lstrip(tags[:1])))
        numbers = bytearray(data[tag_at : tag_at + count * stride])
        for left in range(header):
            del numbers[:: stride - left]
        packed.append_bytes(numbers)
        return tag_at + count * stride

    def _skip(self, tag: int, position: int, end: int) -> int:
        """Return where a field that the type does not know ends."""
        self.context.unknown += 1
        self.context.count(1, self.storage.name)
        wire = tag & 7
        if not tag >> 3 or tag >> 32:
            raise ValueError("tag of no field")
        if wire == VARINT:
            _, position = varint(self.data, position)
        elif wire == LEN:
            length, position = varint(self.data, position)
            position += length
        elif wire == I32:
            position += 4
        elif wire == I64:
            position += 8
        elif wire == GROUP:
            base = self.base
            position = _group_end(self.storage, base + position, base + end, tag >> 3) - base
        else:
            raise ValueError(f"wire type {wire}")
        if position > end:
            raise ValueError("a field is longer than its message")
        return position


@lru_cache(256)  # a tag may be written in several ways
def _varint_patterns(tag: bytes) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return patterns of a run of numbers, each after ``tag``, and of one of them."""
    number = b"[\x80-\xff]{0,9}[\x00-\x7f]"
    tag = re.escape(tag)
    return re.compile(b"(?:%b%b)+" % (tag, number)), re.compile(b"%b(%b)" % (tag, number))


def outline(data: bytes, most: int) -> list[tuple[int, int, int, int]]:
    """Return number, wire type, start and end of the first fields of a message, for sniffing.

    Stops without a word at the first byte that makes no sense; the last end may lie past ``data``.
    The start of a number is its tag's.
    """
    fields: list[tuple[int, int, int, int]] = []
    at = 0
    while at < len(data) and len(fields) < most:
        try:
            tag, start = varint(data, at)
            wire = tag & 7
            if not tag >> 3 or tag >> 32:
                break
            if wire == VARINT:
                end = varint(data, start)[1]
                start = at
            elif wire == LEN:
                length, start = varint(data, start)
                end = start + length
            elif wire in (I32, I64):
                start, end = at, start + (4 if wire == I32 else 8)
            else:
                break
        except (IndexError, ValueError):
            break
        fields.append((tag >> 3, wire, start, end))
        at = end
    return fields


def _group_end(storage: Storage, at: int, end: int, number: int) -> int:
    """Return where the group that began before ``at`` ends.

    Raises:
        ValueError: It does not end, or groups nest deeper than protobuf allows.
    """
    open_groups = [number]
    base, data = at, storage.read(at, min(end - at, LARGEST_WINDOW))
    position = 0
    while open_groups:
        if position > len(data) - LONGEST_HEADER and base + len(data) < end:
            base += position
            if base > end:
                break
            data, position = storage.read(base, min(end - base, LARGEST_WINDOW)), 0
        tag, position = varint(data, position)
        wire = tag & 7
        if wire == VARINT:
            _, position = varint(data, position)
        elif wire == LEN:
            length, position = varint(data, position)
            position += length
        elif wire in (I32, I64):
            position += 4 if wire == I32 else 8
        elif wire == GROUP and len(open_groups) < _DEEPEST_GROUP:
            open_groups.append(tag >> 3)
        elif wire != END_GROUP or open_groups.pop() != tag >> 3:
            raise ValueError("groups are not nested properly")
    return base + position
