"""What the parts of the interpreter share: its interface, and what it keeps of a program."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from converter.lower.torch.context import Context
from converter.lower.torch.mutable_tensors import Reference, Storage
from converter.lower.torch.program_values import Number, ProgramValue
from converter.lower.torch.script.source import Function
from converter.lower.torch.script.values import Callee, Items
from converter.lower.unsupported import Finding
from converter.lower.values import Value
from formats.torch.script_objects import Instance


@dataclass(slots=True)
class Activation:
    """A function being interpreted."""

    function: Function
    names: dict[str, ProgramValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """The value that a function returned."""

    value: ProgramValue


class KnownNumbers:
    """Tensors without axes whose numbers are known: a trace records sizes as such tensors."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Storage, int, ProgramValue]] = {}

    def remember(self, x: Reference, number: ProgramValue) -> None:
        """Say what a tensor is."""
        self._known[id(x.storage)] = (x.storage, x.storage.version, number)

    def get(self, x: Reference) -> ProgramValue:
        """Return the number that a tensor is, or None."""
        found = self._known.get(id(x.storage))
        if found is None or x.base is not None or found[1] != x.storage.version:
            return None
        return found[2]


@dataclass(slots=True)
class Undo:
    """What a branch or a loop changes that is undone after its body is built.

    Attributes:
        storages: Storages from before it -> their values before it.
        fields: Attributes that it sets -> their values before it.
    """

    storages: dict[Storage, Value]
    fields: dict[tuple[Instance, str], ProgramValue] = field(default_factory=dict)


@dataclass(slots=True)
class LoopIteration:
    """A loop of the graph's being built: what its body appends to lists from before it."""

    depth: int
    appended: dict[int, tuple[Items, list[ProgramValue]]] = field(default_factory=dict)
    read: dict[int, Items] = field(default_factory=dict)  # lists of before that its body reads


class Interpreter(Protocol):
    """The interface of the interpreter that branches, loops, objects and ops use.

    Attributes:
        op: The builder.
        version: Version of the ops, as the archive records it.
        findings: Unsupported operations in the code interpreted so far.
        notes: Assumptions that were made.
        numbers: Tensors that are known numbers.
        depth: Branches and loops of the graph's around the current statement.
        activations: Functions being interpreted, the innermost last.
        iterations: Loops of the graph's being built, the innermost last.
        counters: Sizes that number a loop's iterations.
        doubts: Storages and their versions; not supported if written to later.
        restored: Objects whose ``__setstate__`` has been interpreted.
        fields: Attributes of objects that have been read or set -> their values.
        undos: Branches and loops being built, the innermost last.
    """

    op: Context
    version: int
    findings: list[Finding]
    notes: dict[str, None]
    numbers: KnownNumbers
    depth: int
    activations: list[Activation]
    iterations: list[LoopIteration]
    counters: list[str]
    doubts: list[tuple[Storage, int]]
    restored: set[Instance]
    fields: dict[tuple[Instance, str], ProgramValue]
    undos: list[Undo]

    def block(self, statements: Sequence[ast.stmt]) -> Result | None:
        """Interpret statements; return what they return, if they do."""

    def value(self, node: ast.expr) -> ProgramValue:
        """Return what an expression yields."""

    def condition(self, node: ast.expr) -> bool | Number:
        """Return what decides a branch or a loop."""

    def call(
        self, callee: Callee, args: Sequence[ProgramValue], kwargs: Mapping[str, ProgramValue]
    ) -> ProgramValue:
        """Return what a function of the program's own yields."""

    def method(self, owner: Instance, name: str) -> Function | None:
        """Return a method of an object's class, or of the file that an old module is."""

    def stored(self, value: object) -> ProgramValue:
        """Return what an archive holds as a value of the program."""

    def tensor_op(
        self, name: str, args: list[ProgramValue], kwargs: dict[str, ProgramValue]
    ) -> ProgramValue:
        """Return what an op of tensors yields."""

    def tensors(self) -> Iterator[Reference]:
        """Yield all tensors that the program may still read."""

    def appended(self, items: Items, item: ProgramValue) -> bool:
        """Return whether a loop of the graph's takes what is appended to a list from before it."""

    def seen(self, value: ProgramValue) -> None:
        """Note that what is in a list matters."""

    def read(self, count: int) -> None:
        """Count arguments that are read."""

    def found(self, op: str, reason: str) -> None:
        """Record something that is not supported."""
