"""Values on the stack of a Lambda's function, and Python's operations on those that are no tensors.

Plain values are Python's own: numbers, text, lists, numpy's arrays. Everything else is one of the
classes here, or a `converter.lower.values.Value`, a tensor of the graph. All that hostile code
could make grow is bounded before it is made.
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from converter.lower.unsupported import Unsupported
from converter.lower.values import Value
from formats.python_bytecode import Code

MOST_BITS = 4096  # of an integer
MOST_ELEMENTS = 50_000  # of a list or string, and of what nested lists hold together
DEEPEST = 32  # lists inside one another
MOST_NUMBERS = 1_000_000  # of an array that is computed here
PLAIN = (int, float, complex, str, bytes, type(None), type(...))
FAULTS = (
    TypeError, ValueError, IndexError, KeyError, ZeroDivisionError, OverflowError, AttributeError,
    MemoryError,
)  # fmt: skip


@dataclass(slots=True)
class Budget:
    """Resources used to interpret the code of all Lambdas of a model.

    Attributes:
        steps: Steps that were interpreted.
        counted: Elements of lists that they were given.
        nodes: Nodes that were added to the graph.
        bytes: Bytes of the constants that they made.
        known: Number of the graph's constants that they made.
        seen: Code with what it saw around it, and its inputs → the layer that was it.
    """

    steps: int = 0
    counted: int = 0
    nodes: int = 0
    bytes: int = 0
    known: int = 0
    seen: dict[object, str] = field(default_factory=dict)


class Sizes(tuple[Any, ...]):
    """The shape of a tensor as code sees it before anything runs: numbers, None where not known."""

    __slots__ = ()


class Dtype(str):
    """The name of a dtype."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Named:
    """Something that is known by its dotted name alone: ``tensorflow.nn.relu``."""

    path: str


@dataclass(slots=True)
class Cell:
    """A variable that several functions see; empty until it is set."""

    content: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    """A function of the artifact's."""

    code: Code
    defaults: tuple[Any, ...] = ()
    keyword_defaults: Mapping[str, Any] = field(default_factory=dict)
    cells: tuple[Cell, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """A method of a value, not called yet."""

    of: Any
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A layer that the code has made, not called yet.

    Attributes:
        class_name: Keras's.
        config: Arguments of its constructor.
    """

    class_name: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scope:
    """A context manager without effect on values: a name scope or a device."""


def describe(value: Any) -> str:
    """Return a value for a message."""
    if isinstance(value, Value):
        return "a tensor"
    if isinstance(value, Named):
        return value.path
    if isinstance(value, Closure):
        return f"function {value.code.name}"
    if isinstance(value, Method):
        return f"method {value.name} of {describe(value.of)}"
    if isinstance(value, bool | int | float | str | None):
        return f"{value!r:.40}"
    return f"a {type(value).__name__}"


def fault(what: str, error: Exception) -> Unsupported:
    """Return the error for an operation that Python refuses."""
    return Unsupported(f"{what}: {type(error).__name__} ({error!s:.80})")


# -- bounds ----------------------------------------------------------------------------------------


def count(value: Any, most: int = MOST_ELEMENTS) -> int:
    """Return how many elements nested lists hold, each as often as it is reached.

    Raises:
        Unsupported: They are more than ``most``.
    """
    found = 0
    todo = [(value, 0)]
    while todo:
        part, depth = todo.pop()
        found += 1
        if isinstance(part, Mapping):
            part = [*part.values()]
        if isinstance(part, list | tuple | set | frozenset):
            todo.extend((inner, depth + 1) for inner in part)
            if depth > DEEPEST:
                raise Unsupported("lists that are nested very deeply")
        elif isinstance(part, range):
            found += len(part)
        elif isinstance(part, np.ndarray):
            found += part.size // 8  # it stays one array
        if found + len(todo) > most:
            raise Unsupported(f"lists of more than {most} elements")
    return found


def list_elements(value: Any) -> list[Any]:
    """Return the elements of what can be looked through.

    Raises:
        Unsupported: It is a tensor, or too long, or nothing of the kind.
    """
    if isinstance(value, Value):
        size = value.shape[0] if value.shape else None
        if not isinstance(size, int) or size > 256:
            raise Unsupported("going over a tensor's axis of unknown size")
        raise Unsupported("going over a tensor")
    if isinstance(value, Iterator):
        found = []
        for part in value:
            found.append(part)
            if len(found) > MOST_ELEMENTS:
                raise Unsupported(f"more than {MOST_ELEMENTS} elements")
        return found
    if isinstance(
        value, range | str | bytes | list | tuple | set | frozenset | Mapping | np.ndarray
    ):
        if len(value) > MOST_ELEMENTS:
            raise Unsupported(f"more than {MOST_ELEMENTS} elements")
        return list(value)
    raise Unsupported(f"going over {describe(value)}")


def truth(value: Any) -> bool:
    """Return whether a value counts as true.

    Raises:
        Unsupported: It is a tensor's, which only running it tells.
    """
    if isinstance(value, Value):
        raise Unsupported("a branch on a tensor")
    if isinstance(value, np.ndarray) and value.size != 1:
        raise Unsupported("a branch on an array")
    return bool(value)


def python(value: Any) -> Any:
    """Return a number of numpy's as Python's; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


# -- operators -------------------------------------------------------------------------------------

Operator = Callable[[Any, Any], Any]
# fmt: off
BINARY: dict[str, Operator] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow, "@": operator.matmul,
    "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_, "^": operator.xor,
    "|": operator.or_,
}
COMPARE: dict[str, Operator] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
    ">": operator.gt, ">=": operator.ge,
}
UNARY: dict[str, Callable[[Any], Any]] = {
    "-": operator.neg, "+": operator.pos, "~": operator.invert,
}
# fmt: on


def binary(sign: str, a: Any, b: Any) -> Any:
    """Return what Python makes of two plain values.

    Raises:
        Unsupported: It refuses, or the result is too large.
    """
    for value in (a, b):
        if not isinstance(value, (*PLAIN, list, tuple, set, frozenset, np.ndarray)):
            raise Unsupported(f"{describe(a)} {sign} {describe(b)}")
    sequences = isinstance(a, list | tuple) and isinstance(b, list | tuple)
    if sign == "+" and sequences and Sizes in (type(a), type(b)):
        a, b = Sizes(a), Sizes(b)  # TensorFlow's shapes take both
    _check_bounds(sign, a, b)
    try:
        result = BINARY[sign](a, b)
    except FAULTS as e:
        none = a is None or b is None
        raise (
            Unsupported("arithmetic with a size that is not known")
            if none
            else fault(f"{describe(a)} {sign} {describe(b)}", e)
        ) from e
    if isinstance(result, int) and result.bit_length() > MOST_BITS:
        raise Unsupported(f"an integer of {result.bit_length()} bits")
    return Sizes(result) if isinstance(a, Sizes) and isinstance(result, tuple) else python(result)


def _check_bounds(sign: str, a: Any, b: Any) -> None:
    """Raise where a result would be larger than what code has any use for."""
    if sign in ("**", "<<") and isinstance(a, int) and isinstance(b, int):
        grown = a.bit_length() * max(b, 0) if sign == "**" else a.bit_length() + max(b, 0)
        if grown > MOST_BITS:
            raise Unsupported(f"an integer of {grown} bits")
    for one, other in ((a, b), (b, a)):
        if isinstance(one, list | tuple | str | bytes):
            more = len(other) if isinstance(other, list | tuple | str | bytes) else 0
            times = other if sign == "*" and isinstance(other, int) else 1
            if len(one) * times + more > MOST_ELEMENTS:
                raise Unsupported(f"more than {MOST_ELEMENTS} elements")
        if isinstance(one, np.ndarray):
            check_arrays(a, b)
    if sign == "%" and isinstance(a, str | bytes):
        text = a if isinstance(a, str) else a.decode("latin-1")
        if re.search(r"\*|\d{4}", text):
            raise Unsupported("a string of a width that is computed")
        count(b)


def check_arrays(*arrays: Any) -> None:
    """Raise where an operation on arrays would make too large a one."""
    size = 1
    for array in arrays:
        size *= max(np.size(array) if isinstance(array, np.ndarray) else count(array), 1)
    if size > MOST_NUMBERS:
        raise Unsupported(f"an array of more than {MOST_NUMBERS} numbers")


def unary(sign: str, value: Any) -> Any:
    """Return what Python makes of one plain value.

    Raises:
        Unsupported: It refuses.
    """
    if not isinstance(value, int | float | complex | np.ndarray):
        raise Unsupported(f"{sign}{describe(value)}")
    return UNARY[sign](value)


def compare(sign: str, a: Any, b: Any) -> Any:
    """Return how two plain values compare, or whether one holds the other.

    Raises:
        Unsupported: Python refuses.
    """
    if sign in ("is", "is not"):
        return _same(a, b) == (sign == "is")
    count([a, b])
    try:
        if sign in ("in", "not in"):
            if any(isinstance(v, Value) for v in (a, *(b if isinstance(b, list | tuple) else ()))):
                raise Unsupported("looking for a tensor")
            if not isinstance(b, str | bytes | list | tuple | set | frozenset | Mapping | range):
                raise Unsupported(f"{sign} {describe(b)}")
            return (a in b) == (sign == "in")
        result = COMPARE[sign](a, b)
    except FAULTS as e:
        raise fault(f"{describe(a)} {sign} {describe(b)}", e) from e
    return python(result)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Named) or isinstance(b, Named):
        return bool(a == b)
    if isinstance(a, PLAIN) and isinstance(b, PLAIN):
        return type(a) is type(b) and a == b  # of equal constants Python mostly has one
    return a is b
