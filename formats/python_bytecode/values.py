"""Meanings of the instructions that compute, pack and unpack values.

Spec: Python/ceval.c of each version, and from 3.12 on Python/bytecodes.c
https://github.com/python/cpython/blob/v3.14.0/Python/bytecodes.c
"""

from functools import partial

from formats.errors import UnsupportedError
from formats.python_bytecode.instructions import MisfitError
from formats.python_bytecode.stack import VALUE, Stack, means

# fmt: off
_UNARY = {"POSITIVE": "+", "NEGATIVE": "-", "INVERT": "~", "NOT": "not"}
_BINARY = {
    "ADD": "+", "SUBTRACT": "-", "MULTIPLY": "*", "TRUE_DIVIDE": "/", "FLOOR_DIVIDE": "//",
    "MODULO": "%", "POWER": "**", "MATRIX_MULTIPLY": "@", "LSHIFT": "<<", "RSHIFT": ">>",
    "AND": "&", "XOR": "^", "OR": "|", "SUBSCR": "[]", "DIVIDE": "div",
}
_COMPARE = ("<", "<=", "==", "!=", ">", ">=", "in", "not in", "is", "is not")
_BINARY_OP = ("+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^")  # from 3.11 on
# fmt: on
_IN_PLACE = len(_BINARY_OP)
_SUBSCRIPT = 26  # BINARY_OP's in 3.14
_KINDS = ("tuple", "list", "set", "map", "string")
_CONVERSIONS = ("", "s", "r", "a")


# Items


@means("STORE_SUBSCR")
def store_item(stack: Stack, number: int) -> None:
    """Set an item: the key on top, the container below, the value below it."""
    del number
    stack.values(3)
    stack.emit("store item")


@means("DELETE_SUBSCR")
def delete_item(stack: Stack, number: int) -> None:
    """Delete an item: the key on top, the container below."""
    del number
    stack.values(2)
    stack.emit("delete item")


def _bounds(stack: Stack, form: int) -> None:
    """Turn the bounds on the stack into a slice; Python 2 leaves those out that are not given."""
    stack.values(form.bit_count())
    if form == 0:
        stack.emit("constant")
        stack.emit("constant")
    elif form == 1:  # the lower one
        stack.emit("constant")
    elif form == 2:
        stack.emit("constant")
        stack.emit("swap", 2)
    stack.emit("build", ("slice", 2))
    stack.push()


def _slice(stack: Stack, number: int, *, form: int, what: str) -> None:
    del number
    _bounds(stack, form)
    if what == "STORE":
        store_item(stack, 0)
    elif what == "DELETE":
        delete_item(stack, 0)
    else:
        _operator(stack, 0, op="binary", sign="[]", operands=2)


for _form in range(4):
    means(f"SLICE_{_form}")(partial(_slice, form=_form, what="LOAD"))
    means(f"STORE_SLICE_{_form}")(partial(_slice, form=_form, what="STORE"))
    means(f"DELETE_SLICE_{_form}")(partial(_slice, form=_form, what="DELETE"))
means("BINARY_SLICE")(partial(_slice, form=3, what="LOAD"))
means("STORE_SLICE")(partial(_slice, form=3, what="STORE"))


# Operators


def _operator(stack: Stack, number: int, *, op: str, sign: str, operands: int) -> None:
    del number
    stack.values(operands)
    stack.emit(op, sign)
    stack.push()


for _name, _sign in _UNARY.items():
    means(f"UNARY_{_name}")(partial(_operator, op="unary", sign=_sign, operands=1))
for _name, _sign in _BINARY.items():
    means(f"BINARY_{_name}")(partial(_operator, op="binary", sign=_sign, operands=2))
    if _name != "SUBSCR":
        means(f"INPLACE_{_name}")(partial(_operator, op="in place", sign=_sign, operands=2))


@means("BINARY_OP")
def operate(stack: Stack, number: int) -> None:
    """Apply the operator that the argument stands for."""
    if number == _SUBSCRIPT and stack.version >= (3, 14):
        _operator(stack, 0, op="binary", sign="[]", operands=2)
        return
    op = "in place" if number >= _IN_PLACE else "binary"
    sign = stack.operand(_BINARY_OP, number - _IN_PLACE if op == "in place" else number)
    _operator(stack, 0, op=op, sign=sign, operands=2)


@means("COMPARE_OP")
def compare(stack: Stack, number: int) -> None:
    """Compare; from 3.12 on the lower bits are notes, one of which wants a truth value."""
    if stack.version >= (3, 13):
        if number & 16:
            _wants_truth(stack)
        number >>= 5
    elif stack.version >= (3, 12):
        number >>= 4
    _compare(stack, number, among=10 if stack.version < (3, 9) else 6)


@means("CONTAINS_OP")
def contains(stack: Stack, number: int) -> None:
    """Return whether the one below is in the top, or is not."""
    _compare(stack, 6 + stack.operand((0, 1), number), among=10)


@means("IS_OP")
def identical(stack: Stack, number: int) -> None:
    """Return whether two values are one, or are not."""
    _compare(stack, 8 + stack.operand((0, 1), number), among=10)


def _compare(stack: Stack, number: int, *, among: int) -> None:
    sign = stack.operand(_COMPARE[:among], number)
    _operator(stack, 0, op="compare", sign=sign, operands=2)


@means("TO_BOOL")
def truth(stack: Stack, number: int) -> None:
    """Replace the top by its truth, which a jump that follows asks for anyway."""
    del number
    _wants_truth(stack)
    stack.values(1)
    stack.push()


def _wants_truth(stack: Stack) -> None:
    if not stack.next_name().startswith(("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "UNARY_NOT")):
        raise MisfitError("makes a truth value that no jump asks for")


@means("UNARY_CONVERT")
def represent(stack: Stack, number: int) -> None:
    """Replace the top by its representation: Python 2's backquotes."""
    del number
    stack.values(1)
    stack.emit("global", "repr")
    stack.emit("swap", 2)
    stack.emit("call", (1, ()))
    stack.push()


@means("PRINT_ITEM")
def print_item(stack: Stack, number: int) -> None:
    """Pop and print: Python 2's statement."""
    del number
    stack.values(1)
    stack.emit("global", "print")
    stack.emit("swap", 2)
    stack.emit("call", (1, ()))
    stack.emit("pop")


# Values of several parts


def _build(stack: Stack, number: int, *, kind: str) -> None:
    if kind == "map":
        _build_map(stack, number)
        return
    stack.values(number)
    stack.emit("build", (kind, number))
    stack.push()


def _build_map(stack: Stack, number: int) -> None:
    if stack.version < (3, 5):
        number = 0  # how large it is going to be
    stack.values(2 * number)
    stack.emit("build", ("map", number))
    stack.push()


for _kind in _KINDS:
    means(f"BUILD_{_kind.upper()}")(partial(_build, kind=_kind))


@means("BUILD_SLICE")
def build_slice(stack: Stack, number: int) -> None:
    """Make a slice of two or three bounds."""
    if number not in (2, 3):
        raise MisfitError("makes a slice of other than two or three bounds")
    _build(stack, number, kind="slice")


@means("BUILD_CONST_KEY_MAP")
def build_map_of_names(stack: Stack, number: int) -> None:
    """Make a mapping of values and the constant tuple of its keys."""
    keys = stack.constant(stack.pop())
    if not isinstance(keys, tuple) or len(keys) != number:
        raise MisfitError("makes a mapping of other keys than values")
    stack.values(number)
    stack.emit("build map", keys)
    stack.push()


def _join(stack: Stack, number: int, *, kind: str) -> None:
    if kind == "map" and stack.version == (3, 5):
        number &= 0xFF  # above it is where the function lies that is going to be called
    stack.values(number)
    stack.emit("join", (kind, number))
    stack.push()


for _name, _kind in (
    ("TUPLE_UNPACK", "tuple"),
    ("TUPLE_UNPACK_WITH_CALL", "tuple"),
    ("LIST_UNPACK", "list"),
    ("SET_UNPACK", "set"),
    ("MAP_UNPACK", "map"),
    ("MAP_UNPACK_WITH_CALL", "map"),
):
    means(f"BUILD_{_name}")(partial(_join, kind=_kind))


@means("LIST_TO_TUPLE")
def list_to_tuple(stack: Stack, number: int) -> None:
    """Replace a list by a tuple."""
    del number
    _join(stack, 1, kind="tuple")


@means("CALL_INTRINSIC_1")
def intrinsic(stack: Stack, number: int) -> None:
    """Do what has become too rare for an instruction of its own."""
    if number == 5:
        _operator(stack, 0, op="unary", sign="+", operands=1)
    elif number == 6:
        _join(stack, 1, kind="tuple")
    else:
        raise UnsupportedError(f"not supported: Python's intrinsic {number} in a function")


def _extend(stack: Stack, number: int, *, kind: str) -> None:
    stack.values(1)
    stack.emit("extend", (kind, stack.logical(number)))


def _append(stack: Stack, number: int, *, kind: str) -> None:
    if kind == "map":
        stack.values(2)
        if stack.version < (3, 8):  # the key on top
            stack.emit("swap", 2)
    else:
        stack.values(1)
    stack.emit("append", (kind, stack.logical(number)))


means("LIST_EXTEND")(partial(_extend, kind="list"))
means("SET_UPDATE")(partial(_extend, kind="set"))
means("DICT_UPDATE", "DICT_MERGE")(partial(_extend, kind="map"))
means("LIST_APPEND")(partial(_append, kind="list"))
means("SET_ADD")(partial(_append, kind="set"))
means("MAP_ADD")(partial(_append, kind="map"))


@means("STORE_MAP")
def store_map(stack: Stack, number: int) -> None:
    """Add a pair to the mapping below it, the key on top."""
    del number
    _append(stack, 1, kind="map")


@means("FORMAT_VALUE")
def format_value(stack: Stack, number: int) -> None:
    """Format a part of an f-string."""
    if number >> 3:
        raise MisfitError("formats in a way that is none")
    special = bool(number & 4)
    stack.values(1 + special)
    stack.emit("format", (_CONVERSIONS[number & 3], special))
    stack.push()


@means("CONVERT_VALUE")
def convert_value(stack: Stack, number: int) -> None:
    """Convert a part of an f-string to text before it is formatted."""
    _format(stack, stack.operand(_CONVERSIONS, number), special=False)


@means("FORMAT_SIMPLE")
def format_simple(stack: Stack, number: int) -> None:
    """Format a part of an f-string."""
    del number
    _format(stack, "", special=False)


@means("FORMAT_WITH_SPEC")
def format_with_specification(stack: Stack, number: int) -> None:
    """Format a part of an f-string as the top says."""
    del number
    _format(stack, "", special=True)


def _format(stack: Stack, conversion: str, *, special: bool) -> None:
    stack.values(1 + special)
    stack.emit("format", (conversion, special))
    stack.push()


@means("UNPACK_SEQUENCE")
def unpack(stack: Stack, number: int) -> None:
    """Replace a sequence by its elements."""
    stack.values(1)
    stack.emit("unpack", number)
    _push_all(stack, number)


@means("UNPACK_EX")
def unpack_rest(stack: Stack, number: int) -> None:
    """Replace a sequence by its first elements, a list of others, and its last ones."""
    stack.values(1)
    stack.emit("unpack rest", (number & 0xFF, number >> 8))
    _push_all(stack, (number & 0xFF) + 1 + (number >> 8))


def _push_all(stack: Stack, number: int) -> None:
    stack.work.charge(min(number, 1 << 20))
    if number > stack.record.stacksize:
        raise MisfitError("unpacks more than fits on its stack")
    stack.slots.extend([VALUE] * number)
