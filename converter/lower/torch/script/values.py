"""What a TorchScript program computes with beside tensors: lists, functions, what is not known."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from converter.lower.torch.mutable_tensors import Reference
from converter.lower.torch.program_values import Number, ProgramValue, Size
from converter.lower.torch.script.source import Function
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value
from formats.core.plurals import count
from formats.errors import LimitError
from formats.torch.script_objects import DeviceName, Instance, Opaque

MOST_ITEMS = 100_000  # of a list, or letters of a string, that a program makes


class Items(list[Any]):
    """A list of the program's.

    Attributes:
        depth: Branches and loops around where it was made.
        grown: The elements that a loop of an unknown number of iterations appended, stacked along a
            first axis.
    """

    __slots__ = ("depth", "grown")

    def __init__(self, items: Sequence[Any] = (), depth: int = 0) -> None:
        super().__init__(items)
        if len(self) > MOST_ITEMS:
            raise Unsupported(f"a list of {count('element', len(self))}")
        self.depth = depth
        self.grown: Value | None = None


class Fields(tuple[Any, ...]):  # noqa: SLOT001 - a tuple can have none
    """A tuple whose elements have names."""

    names: tuple[str, ...]

    def __new__(cls, items: Sequence[Any], names: tuple[str, ...]) -> "Fields":
        """Return a tuple with a name for each element."""
        made = super().__new__(cls, items)
        made.names = names
        return made


class Unknown:
    """The result of something unsupported; what reads it is unknown too."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = Unknown()


@dataclass(frozen=True, slots=True)
class Missing:
    """A value that cannot be computed, and the reason, which is raised where it is used."""

    reason: str


@dataclass(frozen=True, slots=True)
class Callee:
    """A function of the archive's text, with the object that it is a method of."""

    function: Function
    owner: Instance | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """A dotted name that is no function of the archive's: an op, a class."""

    name: str


class Stop(Exception):  # noqa: N818 - it ends the interpretation; findings so far are reported
    """The program continues in a way that depends on unknown values."""


class Raised(Exception):  # noqa: N818 - the program's own exception
    """The program raises, whatever its inputs are."""


def is_number(value: ProgramValue) -> bool:
    """Return whether a value is a number, known or not."""
    return isinstance(value, int | float | complex | Size | Number)


def is_text(value: ProgramValue) -> bool:
    """Return whether a value is a string of the program."""
    return isinstance(value, str) and not isinstance(value, Size)


def elements(container: ProgramValue) -> list[ProgramValue]:
    """Return the elements of a list or tuple, or the values of a dict."""
    return list(container.values() if isinstance(container, dict) else container)


def rebuild(container: ProgramValue, items: Sequence[ProgramValue], depth: int) -> ProgramValue:
    """Return a list, tuple or dict of the same structure with other elements.

    Args:
        container: The one whose structure it has.
        items: New elements, in order.
        depth: Branches and loops around where it is made, if it is a list.
    """
    if isinstance(container, Fields):
        return Fields(items, container.names)
    if isinstance(container, tuple):
        return tuple(items)
    if isinstance(container, dict):
        return dict(zip(container, items, strict=True))
    return Items(items, depth)


def leaves(value: ProgramValue) -> list[ProgramValue]:
    """Return what is inside of lists, tuples and dicts, or the value itself.

    Raises:
        LimitError: That is too much, or a list is in itself.
    """
    if not isinstance(value, list | tuple | dict):
        return [value]
    found: list[ProgramValue] = []
    left: list[ProgramValue] = [value]
    for _ in range(MOST_ITEMS):
        if not left:
            return found
        one = left.pop()
        if isinstance(one, dict):
            left += reversed(one.values())
        elif isinstance(one, list | tuple):
            left += reversed(one)
        else:
            found.append(one)
    raise LimitError(f"lists of more than {MOST_ITEMS} elements in each other", where="forward")


def has_tensors(value: ProgramValue) -> bool:
    """Return whether a tensor is in a value."""
    return any(isinstance(one, Reference) for one in leaves(value))


def words(value: ProgramValue) -> str:
    """Return a value as a message may name it."""
    if isinstance(value, Reference):
        return "a tensor"
    if isinstance(value, Instance):
        return f"an object of class {value.cls}"
    if isinstance(value, Size | Number):
        return "a number that depends on the inputs"
    if isinstance(value, DeviceName):
        return f"device {value.name}"
    if isinstance(value, Opaque):
        return value.what
    if isinstance(value, Named):
        return f"{value.name}, which is not there"
    if isinstance(value, Unsupported):
        return f"not made: {value}"
    if isinstance(value, list | tuple | dict):
        return f"{count('value', len(value))} together"
    return f"{type(value).__name__} {value!r:.40}"
