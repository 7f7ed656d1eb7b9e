"""List what ``torch.load`` meets in a pickle, in order: globals, devices of storages, opcodes.

The first of them that it refuses decides its message, so the order matters. The pickle is scanned
opcode by opcode with the standard library's table; no object is built and nothing is called.
Spec: https://github.com/pytorch/pytorch/blob/cf30153c4c131c8164ee7798e5022d810682e2cb/torch/_weights_only_unpickler.py
"""

import pickletools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Literal

from formats.core.storage import Span

MAX_BYTES = 32 << 20  # of one pickle; that of a state dict has about 100 bytes per tensor
MAGIC = 0x1950A86A20F9469CFC6C

# Names of Python 2, which pickles of protocol 2 use, as `_compat_pickle` maps them.
MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg", "cPickle": "pickle"}
NAMES = {("__builtin__", "unicode"): "builtins.str", ("__builtin__", "xrange"): "builtins.range"}
# Opcodes of torch's unpickler; it refuses the others of protocols 0, 1, 3, 4 and 5.
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
    """Something that the loader may refuse.

    Attributes:
        kind: ``global``, ``storage`` or ``opcode``.
        value: The dotted name of the global, the device of the storage, the number of the opcode.
    """

    kind: Literal["global", "storage", "opcode"]
    value: str


@dataclass(frozen=True, slots=True)
class PickleScan:
    """The events of one pickle.

    Attributes:
        events: In order, without repetitions.
        end: Offset of the first byte after the pickle.
        value: The pickled object if it is an integer, else None.
        complete: Whether the pickle was scanned to its end.
    """

    events: tuple[Event, ...]
    end: int
    value: int | None
    complete: bool


def scan_pickle(data: bytes) -> PickleScan:
    """Scan the pickle at the start of ``data``."""
    events: dict[Event, None] = {}
    stream = BytesIO(data)
    stack: list[object] = []
    memo: dict[object, object] = {}
    result: int | None = None
    complete = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in damaged strings
            for opcode, argument, _ in pickletools.genops(stream):
                if opcode.name == "STOP":
                    top = stack[-1] if stack else None
                    result = top if isinstance(top, int) else None
                    complete = True
                    break
                events.update((e, None) for e in _apply_opcode(opcode, argument, stack, memo))
    except (ValueError, IndexError, KeyError):
        pass  # damaged, or not a pickle: the loader meets the same events before it fails
    return PickleScan(tuple(events), stream.tell(), result, complete)


def _apply_opcode(
    opcode: pickletools.OpcodeInfo,
    argument: object,
    stack: list[object],
    memo: dict[object, object],
) -> Iterator[Event]:
    """Apply one opcode to the stack and the memo, and yield what a loader may refuse."""
    if opcode.name not in KNOWN:
        yield Event("opcode", str(ord(opcode.code)))
    match opcode.name:
        case "GLOBAL":
            yield Event("global", map_name(*str(argument).split(" ", 1)))
        case "STACK_GLOBAL":
            yield Event("global", map_name(str(stack[-2]), str(stack[-1])))
        case "BINPERSID":
            yield from _read_storage(stack[-1])
        case "PERSID":
            yield from _read_storage(argument)
        case "PUT" | "BINPUT" | "LONG_BINPUT":
            memo[argument] = stack[-1]
            return
        case "MEMOIZE":
            memo[len(memo)] = stack[-1]
            return
        case "GET" | "BINGET" | "LONG_BINGET":
            stack.append(memo.get(argument))
            return
    _update_stack(opcode, argument, stack)


def _update_stack(opcode: pickletools.OpcodeInfo, argument: object, stack: list[object]) -> None:
    """Change the stack as the opcode's table entry says; only tuples keep their items."""
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


def _read_storage(pid: object) -> Iterator[Event]:
    """Yield the device of a persistent id ``("storage", class, key, location, count, …)``."""
    if isinstance(pid, tuple) and len(pid) >= 4:
        location = pid[3]
        text = location.decode("ascii", "replace") if isinstance(location, bytes) else location
        if isinstance(text, str):
            yield Event("storage", text)


def map_name(module: str, name: str) -> str:
    """Return the dotted name of a global in Python 3."""
    return NAMES.get((module, name)) or f"{MODULES.get(module, module)}.{name}"


def scan_stream(span: Span) -> tuple[Event, ...]:
    """Scan a file of ``torch.save`` before 1.6: magic number, protocol, system, object, keys.

    Returns:
        The events of the object, or of the first pickle if that is not the magic number.
    """
    data = span.read(0, min(span.length, MAX_BYTES))
    first = scan_pickle(data)
    if first.value != MAGIC:
        return (*first.events, Event("opcode", "no-magic")) if first.complete else first.events
    at = first.end
    events: dict[Event, None] = {}
    for _ in range(4):  # protocol, system, the object, its storages' keys
        part = scan_pickle(data[at:])
        events.update((e, None) for e in part.events)
        at += part.end
        if not part.complete:
            break
    return tuple(events)
