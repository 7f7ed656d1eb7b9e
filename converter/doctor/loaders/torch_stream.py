"""What ``torch.load`` meets in a pickle, in its order: globals, storages' devices, opcodes.

The first of them that it refuses decides its message, so the order matters. The pickle is walked
opcode by opcode with the standard library's table; nothing is built and nothing is called.
Spec: https://github.com/pytorch/pytorch/blob/cf30153c4c131c8164ee7798e5022d810682e2cb/torch/_weights_only_unpickler.py
"""

import pickletools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Literal

from formats.core.storage import Span

MAX_BYTES = 32 << 20  # of one pickle: those of state dicts have a hundred bytes a tensor
MAGIC = 0x1950A86A20F9469CFC6C

# Python 2's names, which pickles of protocol 2 use, as `_compat_pickle` maps them.
MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg", "cPickle": "pickle"}
NAMES = {("__builtin__", "unicode"): "builtins.str", ("__builtin__", "xrange"): "builtins.range"}
# Opcodes that torch's own unpickler knows; the others are of protocols 0, 1, 3, 4 and 5.
KNOWN = frozenset(
    """
    GLOBAL NEWOBJ REDUCE BUILD APPEND APPENDS SETITEM SETITEMS MARK TUPLE TUPLE1 TUPLE2 TUPLE3
    NONE NEWFALSE NEWTRUE EMPTY_TUPLE EMPTY_LIST EMPTY_DICT EMPTY_SET BININT BININT1 BININT2
    BINFLOAT BINUNICODE SHORT_BINSTRING BINPERSID BINGET LONG_BINGET BINPUT LONG_BINPUT LONG1
    PROTO STOP
    """.split()  # noqa: SIM905 - as pickletools spells them, to be compared
)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that the loader may refuse.

    Attributes:
        kind: ``global`` (a dotted name), ``storage`` (a device), ``opcode`` (its number).
        value: The name, the device, the number.
    """

    kind: Literal["global", "storage", "opcode"]
    value: str


@dataclass(frozen=True, slots=True)
class Walked:
    """One pickle.

    Attributes:
        events: In order, each one once.
        end: Offset of what follows it.
        value: Of a pickle that is one number; else None.
        whole: Whether it was walked to its end.
    """

    events: tuple[Event, ...]
    end: int
    value: int | None
    whole: bool


def walk(data: bytes) -> Walked:
    """Walk one pickle at the start of ``data``."""
    events: dict[Event, None] = {}
    stream = BytesIO(data)
    stack: list[object] = []
    memo: dict[object, object] = {}
    result: int | None = None
    whole = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in damaged texts
            for opcode, argument, _ in pickletools.genops(stream):
                if opcode.name == "STOP":
                    top = stack[-1] if stack else None
                    result = top if isinstance(top, int) else None
                    whole = True
                    break
                events.update((e, None) for e in _step(opcode, argument, stack, memo))
    except (ValueError, IndexError, KeyError):
        pass  # damaged, or not a pickle: what was seen so far is what the loader sees, too
    return Walked(tuple(events), stream.tell(), result, whole)


def _step(
    opcode: pickletools.OpcodeInfo,
    argument: object,
    stack: list[object],
    memo: dict[object, object],
) -> Iterator[Event]:
    """Take one opcode: yield what a loader may refuse, and keep the strings of a tuple."""
    if opcode.name not in KNOWN:
        yield Event("opcode", str(ord(opcode.code)))
    match opcode.name:
        case "GLOBAL":
            yield Event("global", dotted(*str(argument).split(" ", 1)))
        case "STACK_GLOBAL":
            yield Event("global", dotted(str(stack[-2]), str(stack[-1])))
        case "BINPERSID":
            yield from _storage(stack[-1])
        case "PERSID":
            yield from _storage(argument)
        case "PUT" | "BINPUT" | "LONG_BINPUT":
            memo[argument] = stack[-1]
            return
        case "MEMOIZE":
            memo[len(memo)] = stack[-1]
            return
        case "GET" | "BINGET" | "LONG_BINGET":
            stack.append(memo.get(argument))
            return
    _move(opcode, argument, stack)


def _move(opcode: pickletools.OpcodeInfo, argument: object, stack: list[object]) -> None:
    """Change the stack as the opcode's table entry says; tuples keep what they hold."""
    before = opcode.stack_before
    taken: list[object] = []
    if pickletools.markobject in before or (opcode.name == "POP" and stack and stack[-1] is _MARK):
        while stack and stack[-1] is not _MARK:
            taken.append(stack.pop())
        if stack:
            stack.pop()
        below = before.index(pickletools.markobject) if pickletools.markobject in before else 0
        del stack[len(stack) - below :]
    elif before:
        taken = [stack.pop() for _ in before if stack]
    for kind in opcode.stack_after:
        if kind is pickletools.markobject:
            stack.append(_MARK)
        elif opcode.name.startswith("TUPLE"):
            stack.append(tuple(reversed(taken)))
        elif opcode.name == "DUP":
            stack += [*taken, *taken][:2]
            return
        else:
            stack.append(argument if isinstance(argument, str | bytes | int) else None)


_MARK = object()


def _storage(pid: object) -> Iterator[Event]:
    """Yield the device of a persistent id: ``("storage", class, key, location, count, …)``."""
    if isinstance(pid, tuple) and len(pid) >= 4:
        location = pid[3]
        text = location.decode("ascii", "replace") if isinstance(location, bytes) else location
        if isinstance(text, str):
            yield Event("storage", text)


def dotted(module: str, name: str) -> str:
    """Return a global's name as today's Python has it."""
    return NAMES.get((module, name)) or f"{MODULES.get(module, module)}.{name}"


def walk_stream(span: Span) -> tuple[Event, ...]:
    """Walk what ``torch.save`` wrote before 1.6: magic, protocol, system, object, keys.

    Args:
        span: The file.

    Returns:
        The events of the object, or of the first pickle where that is not torch's magic number.
    """
    data = span.read(0, min(span.length, MAX_BYTES))
    first = walk(data)
    if first.value != MAGIC:
        return (*first.events, Event("opcode", "no-magic")) if first.whole else first.events
    at = first.end
    events: dict[Event, None] = {}
    for _ in range(4):  # protocol, system, the object, its storages' keys
        part = walk(data[at:])
        events.update((e, None) for e in part.events)
        at += part.end
        if not part.whole:
            break
    return tuple(events)
