"""A pickle decoder that runs nothing: every protocol, into plain data and inert records.

A stored pickle is a program for a stack machine. This is that machine without its dangerous half:
a global is only ever a name, and calling one either goes through a closed table of constructors
written here and in the readers, or leaves a `Record` of what would have been called. Nothing is
imported. What the values become: ``None``, numbers, text, bytes, lists, tuples, dicts (keys that
could make hashing recurse or collide are wrapped in `Odd`), and the classes of `pickle_values`.

Opcodes: https://github.com/python/cpython/blob/v3.13.0/Lib/pickletools.py
"""

import re
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from formats.containers.pickle.globals import CORE_NAMES, is_suspicious
from formats.containers.pickle.values import Global, Map, Node, Record, SetOf, set_pairs, text_of
from formats.core.storage import Buffer, Span
from formats.errors import CorruptError, LimitError, UnsupportedError
from formats.limits import Limits

FIRST_WINDOW = 1 << 16  # bytes read at first; most pickles are smaller
WINDOW = 1 << 20  # bytes read at once after that
BLOB = 1 << 16  # longer byte strings stay in their file, as a Span
MAX_NAME = 1000  # characters of a global's dotted name
MAX_GLOBALS = 50_000  # different names in one pickle
MAX_LINE = 1 << 25  # bytes of one line of a text opcode
MAX_TEXT = 1 << 25  # bytes of one text that is not all of latin-1
WIDE = re.compile(rb"[\xc4-\xff]")  # UTF-8 of characters past latin-1 begins so
MAX_CALLS = 1000  # different callables reported
# What real unpicklers look up on an instance: set by one BUILD, a later opcode would call it.
LOOKED_UP = ("__setstate__", "append", "extend", "add")


@dataclass(slots=True)
class Budget:
    """Opcodes that one artifact may still spend, over all its pickles."""

    opcodes: int


@dataclass(frozen=True, slots=True)
class Call:
    """A callable outside the table that the pickle calls, and where."""

    name: str
    where: str


Constructor: TypeAlias = Callable[["Unpickler", tuple[object, ...]], object]
Persistent: TypeAlias = Callable[["Unpickler", object], object]


class Unpickler:
    """One run of the machine over one pickle."""

    def __init__(
        self,
        source: Span | bytes,
        limits: Limits,
        budget: Budget,
        *,
        constructors: Mapping[str, Constructor],
        persistent: Persistent | None = None,
        where: str = "",
    ) -> None:
        """Prepare to read ``source`` from its start.

        Args:
            source: Where the pickle begins; it may end before ``source`` does.
            limits: Bounds on bytes, integers and opcodes.
            budget: Opcodes left for the whole artifact.
            constructors: Dotted name → what makes the value in place of the real callable.
            persistent: What a persistent id stands for.
            where: What messages call this pickle.
        """
        self.source = Span.whole(Buffer(source, where)) if isinstance(source, bytes) else source
        self.limits = limits
        self.budget = budget
        self.constructors = constructors
        self.persistent = persistent
        self.where = where or self.source.name
        self.calls: dict[str, Call] = {}
        self.judged: set[tuple[str, bool]] = set()
        self.base = 0  # where in source the window begins
        self.fetched = 0  # bytes read, blobs excluded
        self.data = b""
        self.pos = 0
        self.end = 0  # of data
        self.stack: list[object] = []
        self.marks: list[list[object]] = []
        self.memo: dict[int, object] = {}
        self.globals: dict[str, Global] = {}
        self.refill(min(2, self.source.length))

    @property
    def position(self) -> int:
        """Bytes of the source read so far."""
        return self.base + self.pos

    def load(self) -> object:
        """Return the value of the pickle.

        Raises:
            CorruptError: It is no pickle, ends early, or uses what it never made.
            LimitError: It asks for more than the limits grant.
            UnsupportedError: It needs objects that live outside it.
        """
        count, handlers = 0, HANDLERS
        try:
            while True:
                if self.pos >= self.end:
                    self.refill(1)
                op = self.data[self.pos]
                self.pos += 1
                count += 1
                if op == 0x2E:  # STOP
                    return self.stack.pop()
                handlers[op](self)
                if not count & 0xFF and count > self.budget.opcodes:
                    self.charge(count)
        except IndexError:
            raise self.corrupt("takes more from its stack than it put there") from None
        finally:
            self.budget.opcodes -= count

    def charge(self, opcodes: int) -> None:
        """Take work that is not one opcode's worth, such as copying a list, off the budget.

        Raises:
            LimitError: Nothing is left.
        """
        self.budget.opcodes -= opcodes
        if self.budget.opcodes < 0:
            raise LimitError(
                f"pickles of more than {self.limits.max_pickle_opcodes} opcodes", where=self.where
            )

    def corrupt(self, found: str) -> CorruptError:
        """Return the error that says what is wrong here."""
        return CorruptError(f"pickle {found}", where=self.where, offset=self.position)

    def refill(self, wanted: int) -> None:
        """Move the window so that ``wanted`` bytes lie in it.

        Raises:
            CorruptError: There are not as many.
            LimitError: The pickle is too long.
        """
        self.base += self.pos
        if wanted > self.source.length - self.base:
            raise CorruptError(
                "pickle ends early",
                where=self.where,
                offset=self.base,
                hint="The file is probably truncated",
            )
        rest = self.data[self.pos :]
        start = self.base + len(rest)
        size = max(wanted - len(rest), WINDOW if self.fetched else FIRST_WINDOW)
        size = min(size, self.source.length - start)
        self._fetch(size)
        self.data = rest + self.source.read(start, size)
        self.pos, self.end = 0, len(self.data)

    def take(self, n: int) -> bytes:
        """Return the next ``n`` bytes."""
        start = self.pos
        end = start + n
        if end > self.end:
            if n > WINDOW:
                return self._take_long(n)
            self.refill(n)
            start, end = 0, n
        self.pos = end
        return self.data[start:end]

    def _take_long(self, n: int) -> bytes:
        """Return very many bytes without a second copy of them in the window."""
        run = self.source.sub(self.position, n)
        self._fetch(n)
        self._skip_window(n)
        return run.read()

    def _skip_window(self, n: int) -> None:
        """Go ``n`` bytes on, to where the window does not reach."""
        self.base, self.data, self.pos, self.end = self.position + n, b"", 0, 0

    def _fetch(self, n: int) -> None:
        self.fetched += n
        if self.fetched > self.limits.max_pickle_bytes + WINDOW:
            raise LimitError(
                f"pickle of more than {self.limits.max_pickle_bytes} bytes", where=self.where
            )

    def byte(self) -> int:
        """Return the next byte."""
        if self.pos >= self.end:
            self.refill(1)
        start = self.pos
        self.pos = start + 1
        return self.data[start]

    def number(self, n: int) -> int:
        """Return the next ``n`` bytes as an unsigned number."""
        return int.from_bytes(self.take(n), "little")

    def blob(self, n: int) -> bytes | Span:
        """Return the next ``n`` bytes; long ones are not read."""
        if n <= BLOB:
            return self.take(n)
        run = self.source.sub(self.position, n)
        if self.pos + n <= self.end:
            self.pos += n
        else:
            self._skip_window(n)
        return run

    def line(self) -> bytes:
        """Return the bytes up to the next newline, which is skipped."""
        end = self.data.find(b"\n", self.pos)
        while end < 0:
            length = len(self.data) - self.pos
            if length > MAX_LINE:
                raise LimitError(f"pickle with a line of {length} bytes", where=self.where)
            left = self.source.length - self.position - length
            self.refill(length + max(1, min(length, left)))
            end = self.data.find(b"\n", self.pos + length)
        start, self.pos = self.pos, end + 1
        return self.data[start:end]

    def since_mark(self) -> list[object]:
        """Return what was pushed since the last MARK, and forget the mark."""
        items = self.stack
        if not self.marks:
            raise self.corrupt("has no mark to go back to")
        self.stack = self.marks.pop()
        return items

    def find_global(self, module: str, name: str) -> Global:
        """Return the global of that name, under Python 3's name for its module."""
        dotted = f"{CORE_NAMES.get(module, module)}.{name}"
        if len(dotted) > MAX_NAME:
            raise self.corrupt(f"names a global with {len(dotted)} characters")
        known = self.globals.get(dotted)
        if known is None:
            if len(self.globals) >= MAX_GLOBALS:
                raise LimitError(f"pickle that names {MAX_GLOBALS} globals", where=self.where)
            known = self.globals[dotted] = Global(dotted)
        return known

    def call(self, function: object, args: object, *, new: bool = False) -> object:
        """Return what calling ``function`` leaves here: a value from the table, or a record."""
        if not isinstance(args, tuple):
            raise self.corrupt("calls something with arguments that are no tuple")
        if isinstance(function, Global):
            make = self.constructors.get(function.name)
            if make is not None:
                return make(self, args)
            self.charge(2)
            if (function.name, new) not in self.judged:
                self.judged.add((function.name, new))
                if is_suspicious(function.name, new=new):
                    self.suspect(function.name)
            return Record(function.name, args)
        base = function.cls if isinstance(function, Record) else type(function).__name__
        name = base if base.endswith("()") else base + "()"
        self.suspect(name)
        return Record(name, args)

    def suspect(self, name: str) -> None:
        """Note that real unpicklers would call something that may do anything."""
        if len(self.calls) < MAX_CALLS:
            self.calls.setdefault(name, Call(name, self.where))

    def decimal(self, text: bytes) -> int:
        """Return a number written in decimal digits."""
        if len(text) > 2 * self.limits.max_integer_bytes:
            raise LimitError(f"integer of {len(text)} digits", where=self.where)
        try:
            return int(text)
        except ValueError:
            raise self.corrupt(f"has {text[:20]!r} for a number") from None


Handler: TypeAlias = Callable[[Unpickler], None]

# Escapes of Python 2's repr of a str.
# Spec: https://docs.python.org/2.7/reference/lexical_analysis.html#string-literals
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|.)", re.DOTALL)
_BROKEN_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*\\(?:\Z|x(?![0-9a-fA-F]{2}))")
# fmt: off
_ESCAPES = {
    b"\n": b"", b"\\": b"\\", b"'": b"'", b'"': b'"', b"a": b"\a", b"b": b"\b", b"f": b"\f",
    b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
}
# fmt: on


def _unknown(vm: Unpickler) -> None:
    vm.pos -= 1
    raise vm.corrupt(f"has an unknown opcode {vm.data[vm.pos]:#04x}")


def _proto(vm: Unpickler) -> None:
    if (version := vm.number(1)) > 5:
        raise UnsupportedError(f"pickle of protocol {version}", expected="0 to 5", where=vm.where)


def _frame(vm: Unpickler) -> None:
    vm.take(8)


def _constant(value: object) -> Handler:
    def push(vm: Unpickler) -> None:
        vm.stack.append(value)

    return push


def _unpack(layout: str) -> Handler:
    unpack, size = struct.Struct(layout).unpack, struct.calcsize(layout)

    def push(vm: Unpickler) -> None:
        vm.stack.append(unpack(vm.take(size))[0])

    return push


def _binint1(vm: Unpickler) -> None:
    if vm.pos >= vm.end:
        vm.refill(1)
    start = vm.pos
    vm.pos = start + 1
    vm.stack.append(vm.data[start])


def _int(vm: Unpickler) -> None:
    text = vm.line()
    values: dict[bytes, object] = {b"00": False, b"01": True}
    vm.stack.append(values[text] if text in values else vm.decimal(text))


def _long(vm: Unpickler) -> None:
    vm.stack.append(vm.decimal(vm.line().removesuffix(b"L")))


def _long_of(width: int) -> Handler:
    def push(vm: Unpickler) -> None:
        size = vm.number(width)
        if size > vm.limits.max_integer_bytes:
            raise LimitError(f"integer of {size} bytes", where=vm.where)
        vm.stack.append(int.from_bytes(vm.take(size), "little", signed=True))

    return push


def _float(vm: Unpickler) -> None:
    text = vm.line()
    try:
        vm.stack.append(float(text))
    except ValueError:
        raise vm.corrupt(f"has {text[:20]!r} for a number") from None


def _string(vm: Unpickler) -> None:
    text = vm.line().strip()
    if len(text) < 2 or text[:1] != text[-1:] or text[:1] not in b"'\"":
        raise vm.corrupt("has a string without quotes")
    if _BROKEN_ESCAPE.search(text[1:-1]):
        raise vm.corrupt("has a string with a broken escape")
    vm.stack.append(text_of(_ESCAPE.sub(_unescape, text[1:-1])))


def _unescape(found: re.Match[bytes]) -> bytes:
    """Return the character of an escape in a Python 2 string; an unknown escape is kept."""
    code = found[1]
    if code[:1] == b"x":
        return bytes([int(code[1:], 16)])
    if code[:1] in b"01234567":
        return bytes([int(code, 8) & 0xFF])
    return _ESCAPES.get(code, found[0])


def _binstring(width: int) -> Handler:
    def push(vm: Unpickler) -> None:
        data = vm.blob(vm.number(width))
        vm.stack.append(text_of(data) if isinstance(data, bytes) else data)

    return push


def _unicode(vm: Unpickler) -> None:
    try:
        vm.stack.append(vm.line().decode("raw-unicode-escape"))
    except UnicodeDecodeError:
        raise vm.corrupt("has text with a broken escape") from None


def _binunicode(width: int) -> Handler:
    def push(vm: Unpickler) -> None:
        size = vm.number(width)
        data = vm.take(size)
        # Very long text is numpy's bytes in latin-1. Other text may take four bytes a character.
        if size > MAX_TEXT and not data.isascii() and WIDE.search(data):
            raise LimitError(f"pickle with a text of {size} bytes", where=vm.where)
        try:
            text = data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise vm.corrupt("has text that is not UTF-8") from None
        if size > 63:
            vm.charge(sys.getsizeof(text) >> 7)  # up to four bytes a character
        vm.stack.append(text)

    return push


def _binbytes(width: int) -> Handler:
    def push(vm: Unpickler) -> None:
        vm.stack.append(vm.blob(vm.number(width)))

    return push


def _mark(vm: Unpickler) -> None:
    vm.marks.append(vm.stack)
    vm.stack = []


def _pop(vm: Unpickler) -> None:
    if vm.stack:
        vm.stack.pop()
    else:
        vm.since_mark()


def _pop_mark(vm: Unpickler) -> None:
    vm.since_mark()


def _dup(vm: Unpickler) -> None:
    vm.stack.append(vm.stack[-1])


def _empty_list(vm: Unpickler) -> None:
    vm.stack.append([])


def _empty_dict(vm: Unpickler) -> None:
    vm.stack.append({})


def _empty_set(vm: Unpickler) -> None:
    vm.stack.append(SetOf([]))


def _list(vm: Unpickler) -> None:
    items = vm.since_mark()
    vm.stack.append(items)


def _tuple(vm: Unpickler) -> None:
    items = vm.since_mark()
    vm.stack.append(tuple(items))


def _tuple1(vm: Unpickler) -> None:
    vm.stack[-1] = (vm.stack[-1],)


def _tuple2(vm: Unpickler) -> None:
    last = vm.stack.pop()
    vm.stack[-1] = (vm.stack[-1], last)


def _tuple3(vm: Unpickler) -> None:
    last, middle = vm.stack.pop(), vm.stack.pop()
    vm.stack[-1] = (vm.stack[-1], middle, last)


def _dict(vm: Unpickler) -> None:
    result: dict[object, object] = {}
    set_pairs(result, _pair_items(vm, vm.since_mark()))
    vm.stack.append(result)


def _frozenset(vm: Unpickler) -> None:
    items = vm.since_mark()
    vm.stack.append(SetOf(items))


def _extend(vm: Unpickler, items: list[object]) -> None:
    target = vm.stack[-1]
    if isinstance(target, list):
        target += items
    elif isinstance(target, Node):
        target.extend(items)
    else:
        raise vm.corrupt(f"appends to a {type(target).__name__}")


def _append(vm: Unpickler) -> None:
    item = vm.stack.pop()
    _extend(vm, [item])


def _appends(vm: Unpickler) -> None:
    _extend(vm, vm.since_mark())


def _pair_items(vm: Unpickler, items: list[object]) -> list[tuple[object, object]]:
    if len(items) % 2:
        raise vm.corrupt("has a key without a value")
    return list(zip(items[::2], items[1::2], strict=True))


def _update(vm: Unpickler, pairs: list[tuple[object, object]]) -> None:
    target = vm.stack[-1]
    if isinstance(target, dict):
        set_pairs(target, pairs)
    elif isinstance(target, Node):
        target.update(pairs)
    else:
        raise vm.corrupt(f"sets an entry of a {type(target).__name__}")


def _setitem(vm: Unpickler) -> None:
    value, key = vm.stack.pop(), vm.stack.pop()
    _update(vm, [(key, value)])


def _setitems(vm: Unpickler) -> None:
    _update(vm, _pair_items(vm, vm.since_mark()))


def _get(vm: Unpickler) -> None:
    _recall(vm, vm.decimal(vm.line()))


_UINT32 = struct.Struct("<I").unpack_from


def _binget(vm: Unpickler) -> None:
    index = vm.byte()
    try:
        vm.stack.append(vm.memo[index])
    except KeyError:
        _recall(vm, index)


def _long_binget(vm: Unpickler) -> None:
    _recall(vm, vm.number(4))


def _recall(vm: Unpickler, index: int) -> None:
    try:
        vm.stack.append(vm.memo[index])
    except KeyError:
        raise vm.corrupt(f"recalls {index}, which it never stored") from None


def _put(vm: Unpickler) -> None:
    vm.memo[vm.decimal(vm.line())] = vm.stack[-1]


def _binput(vm: Unpickler) -> None:
    vm.memo[vm.byte()] = vm.stack[-1]


def _long_binput(vm: Unpickler) -> None:
    start = vm.pos
    if start + 4 > vm.end:
        vm.memo[vm.number(4)] = vm.stack[-1]
        return
    vm.pos = start + 4  # one opcode in four is this one
    vm.memo[_UINT32(vm.data, start)[0]] = vm.stack[-1]


def _memoize(vm: Unpickler) -> None:
    vm.memo[len(vm.memo)] = vm.stack[-1]


def _global(vm: Unpickler) -> None:
    module = vm.line().decode("utf-8", "backslashreplace")
    vm.stack.append(vm.find_global(module, vm.line().decode("utf-8", "backslashreplace")))


def _stack_global(vm: Unpickler) -> None:
    name, module = vm.stack.pop(), vm.stack.pop()
    if not isinstance(name, str) or not isinstance(module, str):
        raise vm.corrupt("names a global by something that is no text")
    vm.stack.append(vm.find_global(module, name))


def _reduce(vm: Unpickler) -> None:
    args = vm.stack.pop()
    vm.stack[-1] = vm.call(vm.stack[-1], args)


def _newobj(vm: Unpickler) -> None:
    args = vm.stack.pop()
    vm.stack[-1] = vm.call(vm.stack[-1], args, new=True)


def _newobj_ex(vm: Unpickler) -> None:
    keywords, args = vm.stack.pop(), vm.stack.pop()
    vm.stack[-1] = with_keywords(vm, vm.call(vm.stack[-1], args, new=True), keywords)


def with_keywords(vm: Unpickler, value: object, keywords: object) -> object:
    """Return a new object with its keyword arguments noted on it."""
    if isinstance(value, Record) and isinstance(keywords, dict) and keywords:
        vm.charge(len(keywords))
        value.update(list(keywords.items()))
    return value


def _inst(vm: Unpickler) -> None:
    _global(vm)
    function = vm.stack.pop()
    args = vm.since_mark()
    vm.stack.append(vm.call(function, tuple(args)))


def _obj(vm: Unpickler) -> None:
    function, *args = vm.since_mark() or [None]
    vm.stack.append(vm.call(function, tuple(args)))


def _build(vm: Unpickler) -> None:
    state = vm.stack.pop()
    target = vm.stack[-1]
    if isinstance(target, Global):  # real unpicklers would set attributes of a module or class
        vm.suspect(target.name)
    elif isinstance(target, Record) and target.cls == "joblib.numpy_pickle.NumpyArrayWrapper":
        raise UnsupportedError(
            "pickle of joblib, whose arrays stand between the opcodes",
            where=vm.where,
            hint="Load it with joblib and save its arrays",
        )
    elif isinstance(target, Node):
        target.build(state)
    elif isinstance(target, Map):
        target.state = state
    for part in state if isinstance(state, tuple) else (state,):
        for name in LOOKED_UP if isinstance(part, dict) else ():
            hook = part.get(name)
            if isinstance(hook, Global):
                vm.suspect(hook.name)


def _persistent_id(vm: Unpickler) -> None:
    vm.stack.append(_resolve(vm, text_of(vm.line())))


def _binary_persistent_id(vm: Unpickler) -> None:
    vm.stack.append(_resolve(vm, vm.stack.pop()))


def _resolve(vm: Unpickler, pid: object) -> object:
    if vm.persistent is None:
        return Record("persistent id", (pid,))
    return vm.persistent(vm, pid)


def _refuse(what: str) -> Handler:
    def refuse(vm: Unpickler) -> None:
        raise UnsupportedError(
            f"pickle needs {what}, which lives outside it", where=vm.where, offset=vm.position - 1
        )

    return refuse


def _ignored(vm: Unpickler) -> None:
    del vm  # READONLY_BUFFER changes nothing that is only read


# fmt: off
OPCODES: dict[bytes, Handler] = {
    b"\x80": _proto,                b"\x95": _frame,
    b"N": _constant(None),
    b"\x88": _constant(value=True),  b"\x89": _constant(value=False),
    b"I": _int,                     b"L": _long,                     b"F": _float,
    b"J": _unpack("<i"),          b"M": _unpack("<H"),           b"K": _binint1,
    b"\x8a": _long_of(1),           b"\x8b": _long_of(4),            b"G": _unpack(">d"),
    b"S": _string,                  b"T": _binstring(4),             b"U": _binstring(1),
    b"V": _unicode,                 b"X": _binunicode(4),
    b"\x8c": _binunicode(1),        b"\x8d": _binunicode(8),
    b"B": _binbytes(4),             b"C": _binbytes(1),
    b"\x8e": _binbytes(8),          b"\x96": _binbytes(8),
    b"(": _mark,                    b"0": _pop,                      b"1": _pop_mark,
    b"]": _empty_list,              b"}": _empty_dict,               b")": _constant(()),
    b"l": _list,                    b"d": _dict,                     b"t": _tuple,
    b"\x8f": _empty_set,            b"\x91": _frozenset,             b"2": _dup,
    b"\x85": _tuple1,               b"\x86": _tuple2,                b"\x87": _tuple3,
    b"a": _append,                  b"e": _appends,                  b"\x90": _appends,
    b"s": _setitem,                 b"u": _setitems,
    b"g": _get,                     b"h": _binget,                   b"j": _long_binget,
    b"p": _put,                     b"q": _binput,                   b"r": _long_binput,
    b"\x94": _memoize,              b"c": _global,                   b"\x93": _stack_global,
    b"R": _reduce,                  b"\x81": _newobj,                b"\x92": _newobj_ex,
    b"i": _inst,                    b"o": _obj,                      b"b": _build,
    b"P": _persistent_id,           b"Q": _binary_persistent_id,
    b"\x82": _refuse("a copyreg extension"),
    b"\x83": _refuse("a copyreg extension"),
    b"\x84": _refuse("a copyreg extension"),
    b"\x97": _refuse("an out-of-band buffer"),
    b"\x98": _ignored,
}
# fmt: on
HANDLERS: list[Handler] = [OPCODES.get(bytes([op]), _unknown) for op in range(256)]
