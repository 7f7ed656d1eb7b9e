"""A pickle decoder that runs nothing: every protocol, into plain data and inert records.

A stored pickle is a program for a stack machine. This is that machine without its dangerous half:
`unpickler` holds its state, and calls and imports nothing; here is what each opcode does to it.
Values become ``None``, numbers, strings, bytes, lists, tuples, dicts (keys that could make hashing
recurse or collide are wrapped in `Odd`), and the classes of `values`.

Opcodes: https://github.com/python/cpython/blob/v3.13.0/Lib/pickletools.py
"""

import re
import struct
import sys
from collections.abc import Callable
from typing import TypeAlias

from formats.containers.pickle.unpickler import Unpickler
from formats.containers.pickle.values import Global, Map, Node, Record, SetOf, set_pairs, text_of
from formats.errors import LimitError, UnsupportedError

MAX_TEXT = 1 << 25  # bytes of one text that is not all of latin-1
WIDE = re.compile(rb"[\xc4-\xff]")  # UTF-8 of characters past latin-1 begins so
# What real unpicklers look up on an instance: set by one BUILD, a later opcode would call it.
LOOKED_UP = ("__setstate__", "append", "extend", "add")

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
            "pickle of joblib, whose arrays are between the opcodes",
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


def load(vm: Unpickler) -> object:
    """Return the value of the pickle.

    Raises:
        CorruptError: It is no pickle, ends early, or uses what it never made.
        LimitError: It asks for more than the limits grant.
        UnsupportedError: It needs objects that live outside it.
    """
    count, handlers = 0, HANDLERS
    try:
        while True:
            if vm.pos >= vm.end:
                vm.refill(1)
            op = vm.data[vm.pos]
            vm.pos += 1
            count += 1
            if op == 0x2E:  # STOP
                return vm.stack.pop()
            handlers[op](vm)
            if not count & 0xFF and count > vm.budget.opcodes:
                vm.charge(count)
    except IndexError:
        raise vm.corrupt("takes more from its stack than it put there") from None
    finally:
        vm.budget.opcodes -= count
