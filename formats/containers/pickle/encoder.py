"""A pickle encoder of protocol 2, for plain data and calls by name: what `torch.save` writes.

It knows no classes: whatever Python would reduce to a call is a `Call` here, a class or function a
`Name`, and what is outside the pickle an `Outside`. Opcodes, batches and memo follow Python's
own pickler, so that equal data gives equal bytes. Texts are equal by what they say, and all else is
the same where it is the same object: what was one object is one again. Of the opcodes, only those
are written that torch's restricted unpickler has.

Opcodes: https://github.com/python/cpython/blob/v3.13.0/Lib/pickletools.py
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice

from formats.errors import InternalError

BATCH = 1000  # entries set or appended at once
MAX_INTEGER = 255  # bytes; torch's unpickler has no opcode for longer ones
_FLOAT = struct.Struct(">d")
_INT = struct.Struct("<i")
_LENGTH = struct.Struct("<I")


class Name:
    """A class, function or constant by its dotted name; Python 2's for what is built in."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name


class Call:
    """What calling something by name gives, filled with entries, and with a state.

    Attributes:
        function: What is called.
        args: With what.
        pairs: Entries set on it.
        state: What is handed to it in the end; None for nothing.
    """

    __slots__ = ("args", "function", "pairs", "state")

    def __init__(
        self,
        function: Name,
        args: Sequence[object] = (),
        pairs: Mapping[object, object] | None = None,
        state: object = None,
    ) -> None:
        self.function = function
        self.args = args
        self.pairs = pairs
        self.state = state


class Key:
    """A key of a dict that is itself made by a call; used where the dict has no hash of it."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


class Outside:
    """Something outside the pickle, by its persistent id, which is asked for as it is written."""

    __slots__ = ("id",)

    def __init__(self, id_: Callable[[], tuple[object, ...]]) -> None:
        self.id = id_


ENCODE = Name("_codecs", "encode")
COMPLEX = Name("__builtin__", "complex")


def dumps(value: object) -> bytes:
    """Return the pickle of a value.

    Args:
        value: None, numbers, text, bytes, lists, tuples and dicts of such, and this module's own
            classes. A tuple must not hold itself.
    """
    writer = _Writer()
    writer.out += b"\x80\x02"
    writer.save(value)
    writer.out += b"."
    return bytes(writer.out)


class _Writer:
    """One pickle being written."""

    def __init__(self) -> None:
        self.out = bytearray()
        self._memo: dict[int, int] = {}  # id of an object → its number
        self._texts: dict[str, int] = {}
        self._names: dict[tuple[str, str], int] = {}
        self._count = 0
        self._alive: list[object] = []  # so that no id is used twice

    def save(self, value: object) -> None:
        """Write a value; its depth is the depth of our own stack."""
        out, kind = self.out, type(value)
        if kind is str:
            self._text(str(value))
        elif kind is Name:
            self._name(value)  # type: ignore[arg-type]
        elif value is None or kind is bool or kind is int or kind is float:
            self._scalar(value)  # type: ignore[arg-type]
        elif kind is tuple and not value:
            out += b")"
        elif (known := self._memo.get(id(value))) is not None:
            self._recall(known)
        elif isinstance(value, tuple):
            few = len(value) < 4
            out += b"" if few else b"("
            for item in value:
                self.save(item)
            out += (b"\x85", b"\x86", b"\x87")[len(value) - 1] if few else b"t"
            self._memoize(value)
        elif isinstance(value, list):
            out += b"]"
            self._memoize(value)
            self._batches(((item,) for item in value), len(value), b"a", b"e")
        elif isinstance(value, dict):
            out += b"}"
            self._memoize(value)
            self._pairs(value)
        elif isinstance(value, Call):
            self._name(value.function)
            self.save(tuple(value.args))
            out += b"R"
            self._memoize(value)
            if value.pairs is not None:
                self._pairs(value.pairs)
            if value.state is not None:
                self.save(value.state)
                out += b"b"
        elif isinstance(value, Outside):
            self.save(value.id())
            out += b"Q"
        elif isinstance(value, bytes):
            self._name(ENCODE)
            self.save((value.decode("latin-1"), "latin1"))
            out += b"R"
            self._memoize(value)
        elif isinstance(value, complex):
            self.save(Call(COMPLEX, (value.real, value.imag)))
        else:
            raise InternalError(f"a {kind.__name__} cannot be pickled")

    def _pairs(self, pairs: Mapping[object, object]) -> None:
        items = ((k.value if isinstance(k, Key) else k, v) for k, v in pairs.items())
        self._batches(items, len(pairs), b"s", b"u")

    def _batches(
        self, entries: Iterable[tuple[object, ...]], count: int, one: bytes, many: bytes
    ) -> None:
        """Write entries: one alone, or a thousand behind a mark."""
        entries = iter(entries)
        while count:
            some = min(count, BATCH)
            if some > 1:
                self.out += b"("
            for value in chain.from_iterable(islice(entries, some)):
                self.save(value)
            self.out += many if some > 1 else one
            count -= some

    def _scalar(self, value: bool | int | float | None) -> None:
        if value is None:
            self.out += b"N"
        elif isinstance(value, bool):
            self.out += b"\x88" if value else b"\x89"
        elif isinstance(value, float):
            self.out += b"G" + _FLOAT.pack(value)
        elif 0 <= value < 1 << 8:
            self.out += b"K%c" % value
        elif 0 <= value < 1 << 16:
            self.out += b"M" + value.to_bytes(2, "little")
        elif -(1 << 31) <= value < 1 << 31:
            self.out += b"J" + _INT.pack(value)
        else:
            size = integer_bytes(value)
            if size > MAX_INTEGER:
                raise InternalError(f"an integer of {size} bytes cannot be pickled")
            self.out += b"\x8a%c" % size + value.to_bytes(size, "little", signed=True)

    def _text(self, value: str) -> None:
        known = self._texts.get(value)
        if known is not None:
            self._recall(known)
            return
        data = value.encode("utf-8", "surrogatepass")
        self.out += b"X" + _LENGTH.pack(len(data)) + data
        self._texts[value] = self._number()

    def _name(self, value: Name) -> None:
        known = self._names.get((value.module, value.name))
        if known is not None:
            self._recall(known)
            return
        self.out += f"c{value.module}\n{value.name}\n".encode()
        self._names[value.module, value.name] = self._number()

    def _memoize(self, value: object) -> None:
        self._alive.append(value)
        self._memo[id(value)] = self._number()

    def _number(self) -> int:
        n = self._count
        self._count += 1
        self.out += b"q%c" % n if n < 256 else b"r" + _LENGTH.pack(n)
        return n

    def _recall(self, n: int) -> None:
        self.out += b"h%c" % n if n < 256 else b"j" + _LENGTH.pack(n)


def integer_bytes(value: int) -> int:
    """Return how many bytes a whole number takes, its sign included."""
    size = (value.bit_length() >> 3) + 1
    # Python's own does without the last byte where that only repeats the sign.
    return size - 1 if size > 1 and value == -(1 << (8 * size - 9)) else size
