"""Meanings of the instructions that load and store variables, attributes and constants.

Spec: Python/ceval.c of each version, and from 3.12 on Python/bytecodes.c
https://github.com/python/cpython/blob/v3.14.0/Python/bytecodes.c
"""

from formats.python_bytecode.instructions import MisfitError
from formats.python_bytecode.marshal import CodeRecord
from formats.python_bytecode.stack import EMPTY, Stack, means

_COMMON = ("AssertionError", "NotImplementedError", "tuple", "all", "any", "list", "set")
_COMMON_VALUES = (None, "", True, False, -1)  # after those (3.15)


# Constants and variables


@means("LOAD_CONST")
def load_constant(stack: Stack, number: int) -> None:
    """Push a constant; it may turn out to be the names of a call's keywords."""
    value = stack.operand(stack.record.constants, number)
    if stack.at not in stack.silent:
        stack.emit("constant", stack.nested(value) if isinstance(value, CodeRecord) else value)
    stack.push(stack.at)


@means("LOAD_SMALL_INT")
def load_small_integer(stack: Stack, number: int) -> None:
    """Push the argument itself."""
    stack.emit("constant", number)
    stack.push()


@means("LOAD_COMMON_CONSTANT")
def load_common_constant(stack: Stack, number: int) -> None:
    """Push what Python has under a name, which no module can replace, or a small constant."""
    if number < len(_COMMON):
        stack.emit("global", _COMMON[number])
    else:
        stack.emit("constant", stack.operand(_COMMON_VALUES, number - len(_COMMON)))
    stack.push()


@means("LOAD_ASSERTION_ERROR")
def load_assertion_error(stack: Stack, number: int) -> None:
    """Push AssertionError."""
    del number
    stack.emit("global", "AssertionError")
    stack.push()


def _local(stack: Stack, number: int) -> str:
    """Return a local variable's name: a comprehension that runs in place has its own."""
    among = stack.record.variables or stack.record.locals
    name: str = stack.operand(among, number)
    return _own(stack, name)


def _own(stack: Stack, name: str) -> str:
    around = stack.set_aside(name)
    return name + "#" * around


@means("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW")
def load_local(stack: Stack, number: int) -> None:
    """Push a local variable; from 3.13 on this pushes the cell of one that has a cell."""
    name = _local(stack, number)
    shared = stack.record.cells + stack.record.free if stack.record.variables else ()
    stack.emit("cell" if name.rstrip("#") in shared else "local", name)
    stack.push()


@means("STORE_FAST")
def store_local(stack: Stack, number: int) -> None:
    """Pop into a local variable, or put one back that a comprehension had set aside."""
    slot = stack.pop()
    if isinstance(slot, str):
        if slot != stack.operand(stack.record.variables, number):
            raise MisfitError("puts a variable back as another one")
        stack.asides -= 1
        stack.emit("pop")
        return
    stack.push(slot)
    stack.values(1)
    stack.emit("store", _local(stack, number))


@means("LOAD_FAST_AND_CLEAR")
def set_local_aside(stack: Stack, number: int) -> None:
    """Push a local variable, which a comprehension is going to use as its own."""
    stack.emit("constant", None)
    stack.push(stack.operand(stack.record.variables, number))
    stack.asides += 1


@means("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW")
def load_two(stack: Stack, number: int) -> None:
    """Push two local variables."""
    load_local(stack, number >> 4)
    load_local(stack, number & 15)


@means("STORE_FAST_STORE_FAST")
def store_two(stack: Stack, number: int) -> None:
    """Pop into two local variables."""
    store_local(stack, number >> 4)
    store_local(stack, number & 15)


@means("STORE_FAST_LOAD_FAST")
def store_and_load(stack: Stack, number: int) -> None:
    """Pop into a local variable and push another."""
    store_local(stack, number >> 4)
    load_local(stack, number & 15)


@means("DELETE_FAST")
def delete_local(stack: Stack, number: int) -> None:
    """Forget a local variable."""
    stack.emit("delete", _local(stack, number))


def _shared(stack: Stack, number: int) -> tuple[str, str, str]:
    """Return how a variable is loaded and stored that several functions share, and its name."""
    record = stack.record
    name: str = stack.operand(record.variables or record.cells + record.free, number)
    if name in record.free and not stack.set_aside(name):
        return "free", "store free", name
    return "local", "store", _own(stack, name)


@means("LOAD_DEREF")
def load_shared(stack: Stack, number: int) -> None:
    """Push a variable that several functions share."""
    load, _, name = _shared(stack, number)
    stack.emit(load, name)
    stack.push()


@means("STORE_DEREF")
def store_shared(stack: Stack, number: int) -> None:
    """Pop into a variable that several functions share."""
    _, store, name = _shared(stack, number)
    stack.values(1)
    stack.emit(store, name)


@means("LOAD_CLOSURE")
def load_cell(stack: Stack, number: int) -> None:
    """Push a variable itself."""
    _, _, name = _shared(stack, number)
    stack.emit("cell", name)
    stack.push()


@means("LOAD_GLOBAL")
def load_global(stack: Stack, number: int) -> None:
    """Push a global; from 3.11 on maybe with the empty place that calls want."""
    modern = stack.version >= (3, 11)
    empty = modern and number & 1
    name = stack.operand(stack.record.names, number >> 1 if modern else number)
    if empty and stack.version < (3, 13):
        stack.push(EMPTY)
    stack.emit("global", name)
    stack.push()
    if empty and stack.version >= (3, 13):
        stack.push(EMPTY)


@means("STORE_GLOBAL")
def store_global(stack: Stack, number: int) -> None:
    """Pop into a global."""
    stack.values(1)
    stack.emit("store global", stack.operand(stack.record.names, number))


@means("IMPORT_NAME")
def import_module(stack: Stack, number: int) -> None:
    """Import a module; from 3.15 on the lower bits say when, which in functions is at once."""
    stack.values(2)
    stack.emit(
        "import", stack.operand(stack.record.names, number >> (2 * (stack.version > (3, 14))))
    )
    stack.push()


@means("IMPORT_FROM")
def import_from(stack: Stack, number: int) -> None:
    """Push an attribute of the module on top."""
    stack.logical(1)
    stack.emit("import from", stack.operand(stack.record.names, number))
    stack.push()


# Attributes


@means("LOAD_ATTR")
def load_attribute(stack: Stack, number: int) -> None:
    """Replace the top by its attribute; from 3.12 on maybe as a method that is to be called."""
    modern = stack.version >= (3, 12)
    _attribute(stack, number >> 1 if modern else number)
    if modern and number & 1:
        stack.push(EMPTY)


@means("LOAD_METHOD")
def load_method(stack: Stack, number: int) -> None:
    """Replace the top by its method, and leave the place of its first argument empty."""
    _attribute(stack, number)
    stack.push(EMPTY)


def _attribute(stack: Stack, number: int) -> None:
    stack.values(1)
    stack.emit("attribute", stack.operand(stack.record.names, number))
    stack.push()


@means("STORE_ATTR")
def store_attribute(stack: Stack, number: int) -> None:
    """Set an attribute of the object on top."""
    stack.values(2)
    stack.emit("store attribute", stack.operand(stack.record.names, number))


@means("DELETE_ATTR")
def delete_attribute(stack: Stack, number: int) -> None:
    """Delete an attribute of the object on top."""
    stack.values(1)
    stack.emit("delete attribute", stack.operand(stack.record.names, number))
