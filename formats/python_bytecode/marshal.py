"""A reader of Python's marshal format, as far as code objects use it.

What a code object consists of changed over the years, and the bytes do not tell which Python wrote
them: a `Layout` is tried. Nothing is run; a code object becomes a `CodeRecord`.

Spec: https://github.com/python/cpython/blob/v3.14.0/Python/marshal.c
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from formats.errors import CorruptError, LimitError

LARGEST = 1 << 20  # bytes
_DEEPEST = 60  # tuples and functions inside each other
_MOST_VALUES = 200_000  # what is referred to counts again: its reader may walk over it again
_LARGEST_SET = 2_000  # numbers of equal hashes take the square of it
_LONGEST_INTEGER = 1 << 10  # bytes
_REFERENCE = 0x80  # set in a type: the value is referred to later

_LOCAL, _CELL, _FREE = 0x20, 0x40, 0x80  # kinds of a variable from 3.11 on


@dataclass(frozen=True, slots=True)
class Layout:
    """What a code object consists of.

    Attributes:
        fields: In their order; those of `_NUMBERS` are numbers of 32 bits, the others values.
        bytes_are_text: As before Python 3.
    """

    fields: tuple[str, ...]
    bytes_are_text: bool = False


_NUMBERS = ("argcount", "positional_only", "keyword_only", "nlocals", "stacksize", "flags", "line")
# fmt: off
_OLD = (
    "nlocals", "stacksize", "flags", "code", "constants", "names", "locals", "free", "cells",
    "file", "name", "line", "lines")
PYTHON_2 = Layout(("argcount", *_OLD), bytes_are_text=True)
PYTHON_3 = Layout(("argcount", "keyword_only", *_OLD))                        # to 3.7
PYTHON_3_8 = Layout(("argcount", "positional_only", "keyword_only", *_OLD))   # to 3.10
PYTHON_3_11 = Layout((
    "argcount", "positional_only", "keyword_only", "stacksize", "flags", "code", "constants",
    "names", "variables", "kinds", "file", "name", "qualified", "line", "lines", "handlers"))
# fmt: on


@dataclass(frozen=True, slots=True, eq=False)
class CodeRecord:
    """A code object as it was written.

    Attributes:
        argcount: Positional parameters, the `positional_only` ones among them.
        code: The instructions.
        locals: Names of all local variables, parameters first.
        cells: Names of those that nested functions use; before 3.11 they may be no locals.
        variables: From 3.11 on what instructions count in: locals, cells and free ones together.
        file: That it was compiled from.
        line: The first one in it.
        lines: Line of each instruction, packed.
        handlers: From 3.11 on what to do on exceptions, packed.
    """

    argcount: int
    positional_only: int
    keyword_only: int
    stacksize: int
    flags: int
    code: bytes
    constants: tuple[Any, ...]
    names: tuple[str, ...]
    locals: tuple[str, ...]
    cells: tuple[str, ...]
    free: tuple[str, ...]
    variables: tuple[str, ...]
    file: str
    name: str
    line: int
    lines: bytes
    handlers: bytes


def load(data: bytes, layout: Layout) -> Any:
    """Return the value that bytes hold, and nothing but it.

    Text is `str`, a set is a frozenset, and a code object a `CodeRecord`.

    Raises:
        CorruptError: They are cut short, damaged, or laid out in another way.
        LimitError: They hold more than any function does.
    """
    if len(data) > LARGEST:
        raise LimitError(f"a function's code of {len(data)} bytes", expected=f"at most {LARGEST}")
    reader = _Reader(data, layout)
    value = reader.value(0)
    if reader.at != len(data):
        raise CorruptError("a function's code ends before its bytes do", offset=reader.at)
    return value


_UNFINISHED = object()
_SINGLE = {b"N": None, b"F": False, b"T": True, b".": ...}


class _Reader:
    def __init__(self, data: bytes, layout: Layout) -> None:
        self.data = data
        self.layout = layout
        self.at = 0
        self.values = 0
        self.references: list[tuple[Any, int]] = []  # with the number of values inside
        self.interned: list[Any] = []  # of Python 2

    def corrupt(self, what: str) -> CorruptError:
        return CorruptError(f"a function's code {what}", offset=self.at)

    def take(self, count: int) -> bytes:
        taken = self.data[self.at : self.at + count]
        if count < 0 or len(taken) != count:
            raise self.corrupt("is cut short")
        self.at += count
        return taken

    def number(self, form: str = "<i") -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def count(self) -> int:
        """Return how many values follow, each of a byte at least."""
        count = int(self.number())
        if not 0 <= count <= len(self.data) - self.at:
            raise self.corrupt("is cut short")
        return count

    def charge(self, values: int) -> None:
        self.values += values
        if self.values > _MOST_VALUES:
            raise LimitError(f"a function's code of more than {_MOST_VALUES} values")

    def value(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise LimitError(f"a function's code with values nested over {_DEEPEST} deep")
        self.charge(1)
        before = self.values
        start = self.at
        mark = self.take(1)[0]
        kind = bytes([mark & ~_REFERENCE])
        slot = None
        if mark & _REFERENCE:
            if self.layout.bytes_are_text:
                raise self.corrupt("has a reference, which Python 2 does not write")
            slot = len(self.references)
            self.references.append((_UNFINISHED, 0))
        if kind in _SINGLE:
            value = _SINGLE[kind]
        elif kind in _LEAVES:
            value = _LEAVES[kind](self)
        elif kind in _NESTED:
            value = _NESTED[kind](self, depth + 1)
        else:
            self.at = start
            raise self.corrupt(f"holds {kind!r}, which is no type of a constant")
        if slot is not None:
            self.references[slot] = (value, self.values - before)
        return value

    def text(self, data: bytes) -> Any:
        """Return a string of Python 2: text where it can be nothing else."""
        return data.decode("ascii") if data.isascii() else data

    def plain(self, data: bytes) -> Any:
        return self.text(data) if self.layout.bytes_are_text else data

    def ascii(self, data: bytes) -> str:
        if not data.isascii():
            raise self.corrupt("holds text that is not the ASCII it is said to be")
        return data.decode("ascii")

    def unicode(self, data: bytes) -> str:
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as e:
            raise self.corrupt("holds text that is not UTF-8") from e

    def name(self, data: bytes) -> Any:
        """Return an interned string: of Python 2 it is referred to by a count of its own."""
        if not self.layout.bytes_are_text:
            return self.unicode(data)
        self.interned.append(self.text(data))
        return self.interned[-1]

    def referred(self) -> Any:
        at = int(self.number())
        if self.layout.bytes_are_text or not 0 <= at < len(self.references):
            raise self.corrupt("refers to a value that is not there")
        value, inside = self.references[at]
        if value is _UNFINISHED:
            raise self.corrupt("refers to a value that it is inside of")
        self.charge(inside)
        return value

    def referred_name(self) -> Any:
        at = int(self.number())
        if not 0 <= at < len(self.interned):
            raise self.corrupt("refers to a name that is not there")
        return self.interned[at]

    def integer(self) -> int:
        """Return a long integer: digits of 15 bits, the sign that of their number."""
        digits = int(self.number())
        if abs(digits) * 2 > _LONGEST_INTEGER:
            raise LimitError(f"a function's code with an integer of {abs(digits)} digits")
        value = 0
        for shift in range(abs(digits)):
            digit = int(self.number("<H"))
            if digit >> 15:
                raise self.corrupt("holds an integer with a digit that is too large")
            value |= digit << (15 * shift)
        return -value if digits < 0 else value

    def decimal(self) -> float:
        written = self.take(self.take(1)[0])
        try:
            return float(written)
        except ValueError as e:
            raise self.corrupt("holds a number that is none") from e

    def sequence(self, count: int, depth: int) -> tuple[Any, ...]:
        return tuple([self.value(depth) for _ in range(count)])

    def collection(self, depth: int) -> frozenset[Any]:
        count = self.count()
        if count > _LARGEST_SET:
            raise LimitError(f"a function's code with a set of {count} values")
        try:
            return frozenset(self.sequence(count, depth))
        except TypeError as e:
            raise self.corrupt("holds a set of what cannot be in one") from e

    def code(self, depth: int) -> CodeRecord:
        fields: dict[str, Any] = {}
        for field in self.layout.fields:
            fields[field] = self.number() if field in _NUMBERS else self.value(depth)
        for field in ("code", "lines", "kinds", "handlers"):
            fields[field] = self._pack(fields.get(field, b""))
        for field in ("file", "name"):
            if not isinstance(fields[field], str):
                fields[field] = "" if field == "file" else self._bad("name")
        if "variables" in fields:
            self._sorted_variables(fields)
        for field in ("names", "locals", "cells", "free"):
            self._names(fields[field])
        constants = fields["constants"]
        if not isinstance(constants, tuple) or any(map(_hides_code, constants)):
            self._bad("constants")
        if fields.get("nlocals", len(fields["locals"])) != len(fields["locals"]):
            self._bad("local variables")
        kept = {name: fields[name] for name in CodeRecord.__slots__ if name in fields}
        return CodeRecord(**{"positional_only": 0, "keyword_only": 0, "variables": (), **kept})

    def _bad(self, what: str) -> Any:
        raise self.corrupt(f"has no {what} where they belong")

    def _pack(self, value: Any) -> bytes:
        if isinstance(value, str) and self.layout.bytes_are_text:
            return value.encode("ascii")
        return value if isinstance(value, bytes) else bytes(self._bad("instructions"))

    def _names(self, value: Any) -> None:
        if not isinstance(value, tuple) or not all(isinstance(name, str) for name in value):
            self._bad("names")

    def _sorted_variables(self, fields: dict[str, Any]) -> None:
        names, kinds = fields["variables"], fields["kinds"]
        self._names(names)
        if len(names) != len(kinds):
            self._bad("kinds of variables")
        for field, bit in (("locals", _LOCAL), ("cells", _CELL), ("free", _FREE)):
            marked = zip(names, kinds, strict=True)
            fields[field] = tuple(name for name, kind in marked if kind & bit)


def _hides_code(value: Any) -> bool:
    """Return whether a value contains a function, so that it is no plain constant."""
    if isinstance(value, slice):
        value = (value.start, value.stop, value.step)
    return isinstance(value, (tuple, frozenset)) and any(
        isinstance(part, CodeRecord) or _hides_code(part) for part in value
    )


def _slice(reader: _Reader, depth: int) -> slice:
    start, stop, step = reader.sequence(3, depth)
    return slice(start, stop, step)


def _complex(reader: _Reader, parts: Sequence[float]) -> complex:
    del reader
    return complex(*parts)


# Type: what reads it.
# fmt: off
_LEAVES = {
    b"i": lambda r: r.number(),
    b"I": lambda r: r.number("<q"),
    b"l": _Reader.integer,
    b"f": _Reader.decimal,
    b"g": lambda r: r.number("<d"),
    b"x": lambda r: _complex(r, (r.decimal(), r.decimal())),
    b"y": lambda r: _complex(r, (r.number("<d"), r.number("<d"))),
    b"s": lambda r: r.plain(r.take(r.count())),
    b"t": lambda r: r.name(r.take(r.count())),
    b"u": lambda r: r.unicode(r.take(r.count())),
    b"a": lambda r: r.ascii(r.take(r.count())),
    b"A": lambda r: r.ascii(r.take(r.count())),
    b"z": lambda r: r.ascii(r.take(r.take(1)[0])),
    b"Z": lambda r: r.ascii(r.take(r.take(1)[0])),
    b"r": _Reader.referred,
    b"R": _Reader.referred_name,
}
_NESTED = {
    b"(": lambda r, depth: r.sequence(r.count(), depth),
    b")": lambda r, depth: r.sequence(r.take(1)[0], depth),
    b"<": _Reader.collection,
    b">": _Reader.collection,
    b":": _slice,
    b"c": _Reader.code,
}
# fmt: on
