"""Values of a decoded pickle that are no plain Python types: globals, calls, persistent ids.

None of them hashes or compares what an attacker nested: dict keys that could are `Odd`.
"""

from collections.abc import Mapping
from types import MappingProxyType

NOTHING: Mapping[object, object] = MappingProxyType({})
MAX_STATES = 64  # times that one object is given a state; once is usual


class Node:
    """A value that later opcodes may still fill."""

    __slots__ = ()

    def build(self, state: object) -> None:
        """Take the state that BUILD hands over."""

    def extend(self, items: list[object]) -> None:
        """Take what APPEND, APPENDS or ADDITEMS hand over."""

    def update(self, pairs: list[tuple[object, object]]) -> None:
        """Take what SETITEM or SETITEMS hand over."""


class Global(Node):
    """A function, class or constant that the pickle names."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Record(Node):
    """What some callable would have made, had anybody called it.

    Attributes:
        cls: Dotted name of the class or function.
        args: Positional arguments.
        state: What BUILD handed over; nearly always nothing or one value.
        items: Elements appended to it.
        pairs: Entries set on it, and keyword arguments.
    """

    __slots__ = ("args", "cls", "items", "pairs", "state")

    def __init__(self, cls: str, args: tuple[object, ...] = ()) -> None:
        self.cls = cls
        self.args = args
        self.state: tuple[object, ...] = ()
        self.items: list[object] | tuple[()] = ()
        self.pairs: Mapping[object, object] = NOTHING

    def build(self, state: object) -> None:
        """Keep the state."""
        self.state = (*self.state, state) if len(self.state) < MAX_STATES else self.state

    def extend(self, items: list[object]) -> None:
        """Keep the elements."""
        if isinstance(self.items, tuple):
            self.items = []
        self.items += items

    def update(self, pairs: list[tuple[object, object]]) -> None:
        """Keep the entries."""
        if not isinstance(self.pairs, dict):
            self.pairs = {}
        set_pairs(self.pairs, pairs)


class Map(dict[object, object]):
    """An instance of a dict class that carries attributes: OrderedDict, defaultdict, Counter."""

    __slots__ = ("cls", "state")

    def __init__(self, cls: str) -> None:
        super().__init__()
        self.cls = cls
        self.state: object = None


class SetOf(Node):
    """A set or frozenset; its members are not hashed."""

    __slots__ = ("items",)

    def __init__(self, items: list[object]) -> None:
        self.items = items

    def extend(self, items: list[object]) -> None:
        """Add members; a member twice is kept twice."""
        self.items += items


class Odd:
    """A dict key that is neither text nor a small number; equal to nothing but itself."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


def set_pairs(target: dict[object, object], pairs: list[tuple[object, object]]) -> None:
    """Set entries on a dict, keys made safe to hash."""
    for key, value in pairs:
        target[key if type(key) is str else as_key(key)] = value


def as_key(key: object) -> object:
    """Return ``key`` where hashing it is cheap and cannot be made to collide, else an `Odd`."""
    if isinstance(key, int):  # hash(n) is n mod 2**61 - 1: larger ones collide at will
        return key if -(1 << 61) < key < 1 << 61 else Odd(key)
    return key if key is None or isinstance(key, (str, bytes, float)) else Odd(key)


def text_of(data: bytes) -> str | bytes:
    """Return a Python 2 ``str``: as text where it is ASCII, so that it can be turned back."""
    return data.decode("ascii") if data.isascii() else data
