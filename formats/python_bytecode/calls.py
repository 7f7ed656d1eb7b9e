"""Meanings of the instructions that call and make functions.

Before 3.6 the names of keywords are between their values, and defaults are on the stack;
from 3.11 on each call has a place for a method's first argument, which most leave empty.

Spec: Python/ceval.c of each version, and from 3.12 on Python/bytecodes.c
https://github.com/python/cpython/blob/v3.14.0/Python/bytecodes.c
"""

from functools import partial

from formats.errors import UnsupportedError
from formats.python_bytecode.instructions import MisfitError
from formats.python_bytecode.stack import EMPTY, Stack, means

_PARTS = {1: "defaults", 2: "keyword defaults", 4: "annotations", 8: "closure", 16: "annotations"}


@means("NOP", "RESUME", "PRECALL", "MAKE_CELL", "NOT_TAKEN", "PRINT_NEWLINE")
def nothing(stack: Stack, number: int) -> None:
    """Do nothing that a step could say: here a variable has its cell all along."""
    del stack, number


@means("COPY_FREE_VARS")
def copy_free(stack: Stack, number: int) -> None:
    """Take the variables of functions around, all of them."""
    if number != len(stack.record.free):
        raise MisfitError("takes other variables from around it than it has")


@means("PUSH_NULL")
def push_empty(stack: Stack, number: int) -> None:
    """Push the empty place that a call wants."""
    del number
    stack.push(EMPTY)


def _names(value: object, count: int) -> tuple[str, ...]:
    """Return the names of a call's keywords."""
    if not isinstance(value, tuple) or not all(isinstance(name, str) for name in value):
        raise MisfitError("has names of keywords that are no names")
    if len(value) > count:
        raise MisfitError("has more names of keywords than arguments")
    return value


def _call(stack: Stack, count: int, names: tuple[str, ...]) -> None:
    """Call with values on the stack, the last of them by name."""
    stack.values(count + 1)
    stack.emit("call", (count - len(names), names))
    stack.push()


def _call_beside(stack: Stack, count: int, names: tuple[str, ...]) -> None:
    """Call what lies in one of two places; the other is empty, or it is the first argument."""
    stack.values(count)
    two = (stack.pop(), stack.pop())
    empty = sum(map(stack.is_empty, two))
    if empty == 2:
        raise MisfitError("calls nothing")
    stack.emit("call", (count - len(names) + 1 - empty, names))
    stack.push()


@means("CALL_FUNCTION")
def call_function(stack: Stack, number: int) -> None:
    """Call with positional arguments, or before 3.6 with pairs of a name and a value too."""
    if stack.version >= (3, 6):
        _call(stack, number, ())
        return
    names = []
    keywords = number >> 8
    for place in range(keywords):
        # The pairs stay where they are: their names just are no values any more.
        at = 2 * (keywords - place)
        if at > len(stack.slots):
            raise MisfitError("takes from an empty stack")
        names.append(stack.constant(stack.slots[-at]))
    for _ in range(keywords):
        stack.values(1)
        stack.pop()
    stack.values((number & 0xFF) + 1)
    stack.emit("call", (number & 0xFF, _names(tuple(names), keywords)))
    stack.push()


@means("CALL_METHOD")
def call_method(stack: Stack, number: int) -> None:
    """Call a method with positional arguments."""
    stack.values(number)
    if not stack.is_empty(stack.pop()):
        raise MisfitError("calls a method that is none")
    stack.values(1)
    stack.emit("call", (number, ()))
    stack.push()


@means("CALL")
def call(stack: Stack, number: int) -> None:
    """Call; before 3.13 the names of keywords were said just before."""
    names, stack.keywords = _names(stack.keywords, number), ()
    _call_beside(stack, number, names)


@means("KW_NAMES")
def keyword_names(stack: Stack, number: int) -> None:
    """Say the names of the next call's keywords."""
    stack.keywords = stack.operand(stack.record.constants, number)


@means("CALL_KW")
def call_with_keywords(stack: Stack, number: int) -> None:
    """Call with the names of keywords on top (from 3.13 on)."""
    names = _names(stack.constant(stack.pop()), number)
    _call_beside(stack, number, names)


@means("CALL_FUNCTION_KW")
def call_function_with_keywords(stack: Stack, number: int) -> None:
    """Call with the names of keywords on top; before 3.6, with a mapping of them there."""
    if stack.version < (3, 6):
        _expand(stack, number, rest=False, keywords=True)
        return
    names = _names(stack.constant(stack.pop()), number)
    _call(stack, number, names)


@means("CALL_FUNCTION_EX")
def call_expanded(stack: Stack, number: int) -> None:
    """Call with a sequence of arguments and maybe a mapping of others."""
    if stack.version >= (3, 14):
        keywords = not stack.is_empty(stack.pop())
        stack.values(1)
    else:
        keywords = bool(number & 1)
        stack.values(1 + keywords)
    if stack.version >= (3, 11):
        two = (stack.pop(), stack.pop())
        if sum(map(stack.is_empty, two)) != 1:
            raise MisfitError("calls nothing, or two things")
    else:
        stack.values(1)
    stack.emit("call expanded", keywords)
    stack.push()


def _expand(stack: Stack, number: int, *, rest: bool, keywords: bool) -> None:
    """Call as before 3.6, with single arguments and pairs beside a sequence and a mapping.

    The stack has arguments, pairs, sequence, mapping; in 3.5 the sequence comes before the pairs.
    """
    single, pairs = number & 0xFF, number >> 8
    above = int(keywords) + (int(rest) if stack.version < (3, 5) else 0)
    _check_pairs(stack, pairs, above)
    stack.values(single + 2 * pairs + rest + keywords + 1)
    mapped = bool(pairs or keywords)
    if pairs:
        for _ in range(above):
            stack.emit("rotate", 2 * pairs + above)
        stack.emit("build", ("map", pairs))
        if keywords:
            stack.emit("join", ("map", 2))
    if mapped:  # below everything
        stack.emit("rotate", single + rest + 1)
    if rest and single:
        stack.emit("rotate", single + 1)
        stack.emit("build", ("tuple", single))
        stack.emit("swap", 2)
        stack.emit("join", ("tuple", 2))
    elif not rest:
        stack.emit("build", ("tuple", single))
    if mapped:
        stack.emit("swap", 2)
    stack.emit("call expanded", mapped)
    stack.push()


def _check_pairs(stack: Stack, pairs: int, above: int) -> None:
    """Raise an error where the stack has no pairs of a name and a value below what is above."""
    for pair in range(pairs):
        at = above + 2 * pair + 2
        name = stack.peek(stack.slots[-at]) if at <= len(stack.slots) else None
        if not isinstance(name, str):
            raise MisfitError("has names of keywords that are no names")


means("CALL_FUNCTION_VAR")(partial(_expand, rest=True, keywords=False))
means("CALL_FUNCTION_VAR_KW")(partial(_expand, rest=True, keywords=True))


@means("MAKE_FUNCTION")
def make_function(stack: Stack, number: int) -> None:
    """Make a function of the code on top."""
    if stack.version < (3, 6):
        _make_of_single(stack, number, closure=False)
        return
    if stack.version < (3, 11):
        stack.constant(stack.pop())  # its qualified name
    if stack.version >= (3, 13):
        parts = [_PARTS[flag] for flag in reversed(stack.following("SET_FUNCTION_ATTRIBUTE"))]
    else:
        if number >> 4:
            raise MisfitError("makes a function of what is no part of one")
        parts = [_PARTS[flag] for flag in (1, 2, 4, 8) if number & flag]
    stack.values(1 + len(parts))
    stack.emit("function", tuple(parts))
    stack.push()


@means("SET_FUNCTION_ATTRIBUTE")
def set_part(stack: Stack, number: int) -> None:
    """Give a function one of its parts: MAKE_FUNCTION before it has said so."""
    if number not in _PARTS:
        raise MisfitError("makes a function of what is no part of one")
    before = stack.code.instructions[stack.at - 1].name
    if before not in ("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"):
        raise MisfitError("gives a part of a function to something else")


@means("MAKE_CLOSURE")
def make_closure(stack: Stack, number: int) -> None:
    """Make a function of the code on top, and the cells below it."""
    _make_of_single(stack, number, closure=True)


def _make_of_single(stack: Stack, number: int, *, closure: bool) -> None:
    """Make a function as before 3.6: each default lies alone below the code, or a pair with it."""
    defaults, pairs = number & 0xFF, number >> 8
    if stack.version >= (3, 0):
        stack.constant(stack.pop())  # its qualified name
    if number >> 16 or (pairs and defaults):
        raise UnsupportedError(
            "not supported: a nested Python function with annotations, or with defaults of both"
            " kinds, of before Python 3.6"
        )
    count = defaults or 2 * pairs
    stack.values(1 + closure + count)
    parts = ("closure",) if closure else ()
    if count:
        for _ in range(1 + closure):  # below the defaults
            stack.emit("rotate", count + 1 + closure)
        stack.emit("build", ("tuple", defaults) if defaults else ("map", pairs))
        stack.emit("rotate", 2 + closure)
        parts = ("defaults" if defaults else "keyword defaults", *parts)
    stack.emit("function", parts)
    stack.push()
