"""Simulate the stack along every path through a function's instructions.

CPython's stack holds more than values: empty places beside methods and before functions to call,
names of keywords, variables set aside while a comprehension runs in place. Steps know none of
them, so what an instruction means by "the third from the top" may be the second: `Stack.logical`.

Each instruction's meaning is a function with `means` above it, in
`formats.python_bytecode.variables`, `formats.python_bytecode.values`,
`formats.python_bytecode.calls` or `formats.python_bytecode.flow`. All are run twice: until what
lies on the stack is known wherever two ways meet, and once more to write the steps down.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from formats.errors import LimitError, UnsupportedError
from formats.python_bytecode.instructions import Disassembled, MisfitError
from formats.python_bytecode.marshal import CodeRecord
from formats.python_bytecode.opcodes import Version
from formats.python_bytecode.steps import Code, Step

# What lies on the stack: VALUE, EMPTY, the number of the instruction that pushed a constant, or
# the name of a variable set aside. All but EMPTY are values to a step.
Slot: TypeAlias = int | str
VALUE, EMPTY = -1, -2

# What a user knows instructions as that no step says.
_UNSAID = {
    "SETUP_EXCEPT": "try",
    "SETUP_FINALLY": "try",
    "YIELD_FROM": "yield from",
    "GET_YIELD_FROM_ITER": "yield from",
    "LOAD_BUILD_CLASS": "class",
    "BUILD_CLASS": "class",
    "LOAD_NAME": "the body of a class",
    "LOAD_SUPER_ATTR": "super()",
    "MATCH_CLASS": "match",
    "MATCH_MAPPING": "match",
    "MATCH_SEQUENCE": "match",
    "GET_LEN": "match",
    "IMPORT_STAR": "import *",
    "EXEC_STMT": "exec",
}

_LARGEST_WORK = 200_000  # instructions followed, and places of stacks kept, of one function
_DEEPEST = 4_000


@dataclass(frozen=True, slots=True)
class Block:
    """A loop or a ``with`` that is open, as Python before 3.11 keeps account of them.

    Attributes:
        kind: ``loop`` or ``with``.
        after: The instruction that follows it.
        depth: Of the stack, outside it.
    """

    kind: str
    after: int
    depth: int


@dataclass(slots=True)
class Work:
    """What may still be done for one function, those inside it included."""

    left: int = _LARGEST_WORK

    def charge(self, amount: int) -> None:
        """Take note of work done."""
        self.left -= amount
        if self.left < 0:
            raise LimitError("a function whose code is larger than that of any function")


@dataclass(slots=True)
class _Place:
    """What is known where ways meet."""

    stack: tuple[Slot, ...]
    blocks: tuple[Block, ...]


@dataclass(slots=True)
class Stack:
    """The stack at one instruction, and what may be asked and done there.

    Attributes:
        record: The function's code.
        version: Of Python, that is tried.
        nested: Makes the `Code` of a function inside this one.
        slots: What lies on the stack, the top last.
        blocks: Loops and ``with`` that are open, the inmost last.
        keywords: Names that the next call gives to its last arguments (3.11 and 3.12).
        at: Which instruction this is.
        falls: Whether the next one follows.
    """

    record: CodeRecord
    version: Version
    code: Disassembled
    nested: Callable[[CodeRecord], Code]
    work: Work
    slots: list[Slot] = field(default_factory=list)
    blocks: tuple[Block, ...] = ()
    keywords: tuple[str, ...] = ()
    at: int = 0
    falls: bool = True
    silent: set[int] = field(default_factory=set)  # constants that are names of keywords
    asides: int = 0  # how many variables are set aside on the stack
    _places: dict[int, _Place] = field(default_factory=dict)
    _waiting: list[int] = field(default_factory=list)
    _steps: list[Step] | None = None

    def push(self, slot: Slot = VALUE) -> None:
        """Push."""
        self.slots.append(slot)

    def pop(self) -> Slot:
        """Pop whatever is on top."""
        if not self.slots:
            raise MisfitError("takes from an empty stack")
        return self.slots.pop()

    def values(self, count: int) -> None:
        """Pop values."""
        for _ in range(count):
            if self.is_empty(self.pop()):
                raise MisfitError("takes an empty place for a value")

    def is_empty(self, slot: Slot) -> bool:
        """Raise MisfitError for an operand that is no value."""
        return slot == EMPTY or slot in self.silent

    def logical(self, number: int) -> int:
        """Return which value from the top a step means by the place that is so far from it."""
        if not 0 < number <= len(self.slots) or self.is_empty(self.slots[-number]):
            raise MisfitError("reaches for what is not on the stack")
        self.work.charge(number >> 4)
        return sum(not self.is_empty(slot) for slot in self.slots[-number:])

    def constant(self, slot: Slot) -> Any:
        """Return the constant that was pushed as names of keywords, which is no value any more."""
        value = self.peek(slot)
        if isinstance(slot, int):
            self.silent.add(slot)
        return value

    def peek(self, slot: Slot) -> Any:
        """Return the constant that was pushed there."""
        if not isinstance(slot, int) or slot < 0:
            raise MisfitError("has names that are no constant")
        return self.operand(self.record.constants, self.code.instructions[slot].argument)

    def operand(self, among: tuple[Any, ...], number: int) -> Any:
        """Return what an argument stands for."""
        if number >= len(among):
            raise MisfitError("has an argument that is out of range")
        return among[number]

    def set_aside(self, name: str) -> int:
        """Return how many comprehensions around this one have a variable of that name."""
        if not self.asides:
            return 0
        self.work.charge(len(self.slots) >> 4)
        return sum(slot == name for slot in self.slots if isinstance(slot, str))

    def emit(self, op: str, argument: Any = None, target: int | None = None) -> None:
        """Write a step down, and go where it may jump to with the stack as it is now."""
        if target is not None:
            self._meet(target)
        if self._steps is not None:
            line = self.code.instructions[self.at].line
            self._steps.append(Step(op, argument, target, line))

    def target(self) -> int:
        """Return which instruction this one jumps to."""
        target = self.code.instructions[self.at].target
        if target is None:
            raise MisfitError("jumps to nowhere")
        return target

    def following(self, name: str) -> list[int]:
        """Return the arguments of the instructions of a name that follow this one, up to six."""
        found = []
        for one in self.code.instructions[self.at + 1 : self.at + 7]:
            if one.name != name:
                break
            found.append(one.argument)
        return found

    def next_name(self) -> str:
        """Return the name of the instruction that follows."""
        after = self.at + 1
        return self.code.instructions[after].name if after < len(self.code.instructions) else ""

    def _meet(self, target: int) -> None:
        """Take note of what is on the stack where a jump goes to."""
        self.work.charge(1 + (len(self.slots) >> 4))
        new = tuple(self.slots)
        place = self._places.get(target)
        if place is None:
            self.work.charge(len(new))
            self._places[target] = _Place(new, self.blocks)
            self._waiting.append(target)
            return
        if len(new) != len(place.stack) or self.blocks != place.blocks:
            raise MisfitError("has stacks of two depths at one place")
        if new == place.stack:
            return
        self.work.charge(1 + len(new))
        merged = tuple(map(_either, new, place.stack))
        if merged != place.stack:
            place.stack = merged
            self._waiting.append(target)

    def steps(self) -> tuple[Step, ...]:
        """Return what the function does.

        Raises:
            MisfitError: It is no code of this version.
            UnsupportedError: It does what steps cannot say.
            LimitError: It is too large.
        """
        start = tuple(self.slots)
        self._places[0] = _Place(start, ())
        self._waiting.append(0)
        targets = {one.target for one in self.code.instructions if one.target is not None}
        while self._waiting:
            at = self._waiting.pop()
            self._load(self._places[at])
            while True:
                self._run(at)
                at += 1
                if not self.falls:
                    break
                if at in targets or at in self._places:
                    self._meet(at)
                    break
        return self._written()

    def _written(self) -> tuple[Step, ...]:
        """Return the steps, now that it is known what is on the stack everywhere."""
        self._steps = []
        first: dict[int, int] = {}  # step of each instruction
        self.falls = False
        for at in range(len(self.code.instructions)):
            place = self._places.get(at)
            if place is not None:
                self._load(place)
            elif not self.falls:
                continue  # no way leads here
            first[at] = len(self._steps)
            self._run(at)
        steps = self._steps
        self._steps = None
        return tuple(
            one if one.target is None else Step(one.op, one.argument, first[one.target], one.line)
            for one in steps
        )

    def _load(self, place: _Place) -> None:
        self.work.charge(len(place.stack))
        self.slots = list(place.stack)
        self.asides = sum(isinstance(slot, str) for slot in self.slots)
        self.blocks = place.blocks
        self.keywords = ()

    def _run(self, at: int) -> None:
        self.work.charge(1)
        if at >= len(self.code.instructions):
            raise MisfitError("does not end in a return")
        self.at = at
        self.falls = True
        one = self.code.instructions[at]
        meaning = MEANINGS.get(one.name)
        if meaning is None:
            what = _UNSAID.get(one.name, one.name)
            raise UnsupportedError(
                f"not supported: {what} in a Python function ({self.record.name})",
                gaps=((f"Python's {what}", 1),),
            )
        meaning(self, one.argument)
        if len(self.slots) > min(self.record.stacksize, _DEEPEST):
            if self.record.stacksize > _DEEPEST:
                raise LimitError(f"a function that needs a stack of over {_DEEPEST} values")
            raise MisfitError("needs a larger stack than it has")


def _either(new: Slot, old: Slot) -> Slot:
    """Return what a place of the stack is when two ways lead to it."""
    if new == old:
        return old
    if not isinstance(new, int) or not isinstance(old, int) or EMPTY in (new, old):
        raise MisfitError("has different things on the stack at one place")
    return VALUE


Meaning: TypeAlias = Callable[[Stack, int], None]

MEANINGS: dict[str, Meaning] = {}


def means(*names: str) -> Callable[[Meaning], Meaning]:
    """Say what instructions of these names do: a function of the stack and their argument."""

    def register(meaning: Meaning) -> Meaning:
        for name in names:
            if name in MEANINGS:
                raise ValueError(f"two meanings of {name}")
            MEANINGS[name] = meaning
        return meaning

    return register
