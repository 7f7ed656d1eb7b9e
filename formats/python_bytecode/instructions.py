"""Disassemble the code bytes of one Python version into instructions.

The version is not recorded. What cannot be code of the version that is tried raises `MisfitError`:
unknown numbers, jumps into the middle of an instruction, notes that are not zero, and tables of
lines or of exceptions that do not end where the code does.

Spec: Lib/dis.py of each version; the tables of lines
https://github.com/python/cpython/blob/v3.9.0/Objects/lnotab_notes.txt (to 3.9),
https://github.com/python/cpython/blob/v3.10.0/Objects/lnotab_notes.txt (3.10) and
https://github.com/python/cpython/blob/v3.14.0/InternalDocs/code_objects.md (from 3.11 on).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from formats.python_bytecode.marshal import CodeRecord
from formats.python_bytecode.opcodes import CACHES, NAMES, Version

_HAS_ARGUMENT = 90  # instructions from here on have one, where not all have
_JUMPS = ("JUMP_", "POP_JUMP_", "FOR_ITER", "SETUP_", "SEND", "CALL_FINALLY", "CONTINUE_LOOP")
_NO_JUMPS = ("SETUP_ANNOTATIONS",)
_FORWARD = ("JUMP_FORWARD", "FOR_ITER", "SETUP_", "CALL_FINALLY")  # counted from there before 3.11

# Keras on Windows wrote code with every backslash of its bytes made a slash, for the file's name in
# it. Up to 3.12, the one stands for UNPACK_SEQUENCE and the other for nothing.
# Source: `func_dump` in keras/src/utils/python_utils.py
_SLASH, _BACKSLASH = ord("/"), ord("\\")


class MisfitError(Exception):
    """The code is not bytecode of the version that is tried."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        name: As CPython calls it.
        argument: Its number, 0 where it has none.
        target: Of a jump, which instruction it goes to.
        line: In the source, where it is known.
    """

    name: str
    argument: int
    target: int | None
    line: int | None


@dataclass(frozen=True, slots=True)
class Disassembled:
    """A function's instructions, and those at which its exceptions are handled."""

    instructions: tuple[Instruction, ...]
    handlers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Raw:
    start: int
    end: int
    name: str
    argument: int


def disassemble(record: CodeRecord, version: Version, *, strictly: bool = True) -> Disassembled:
    """Return the instructions of a code object.

    Args:
        record: The code object.
        version: Of Python, that is tried.
        strictly: Its table of lines has to fit, too. Of a few it does not: compilers before 3.10
            kept lines there of which they left the code out, and Keras on Windows changed bytes.

    Raises:
        MisfitError: It is not code of this version.
    """
    raw = list(_unpack(record.code, version))
    index = {one.start: number for number, one in enumerate(raw)}
    try:
        lines = dict(_lines(record, version))
    except MisfitError:
        if strictly:
            raise
        lines = {}
    instructions = []
    line: int | None = record.line
    for one in raw:
        line = lines.get(one.start, line)
        target = None
        if one.name.startswith(_JUMPS) and one.name not in _NO_JUMPS:
            target = index.get(_target(one, version))
            if target is None:
                raise MisfitError(f"{one.name} goes to where no instruction is")
            if one.name == "FOR_ITER" and version >= (3, 12):
                target = _behind_loop(raw, target, version)
        instructions.append(Instruction(one.name, one.argument, target, line))
    handlers = []
    for place in _handlers(record.handlers, len(record.code)):
        if place not in index:
            raise MisfitError("an exception is handled where no instruction is")
        handlers.append(index[place])
    return Disassembled(tuple(instructions), tuple(handlers))


def _behind_loop(raw: list[_Raw], target: int, version: Version) -> int:
    """Return where a loop goes on at its end, behind instructions that clean up after it."""
    cleaning = {(3, 12): ["END_FOR"], (3, 13): ["END_FOR", "POP_TOP"]}
    expected = cleaning.get(version, ["END_FOR", "POP_ITER"])
    behind = target + len(expected)
    if [one.name for one in raw[target:behind]] != expected or behind >= len(raw):
        raise MisfitError("has a loop that does not end")
    return behind


def _unpack(code: bytes, version: Version) -> Iterator[_Raw]:
    names, caches = NAMES[version], CACHES.get(version, {})
    words = version >= (3, 6)  # two bytes each, with or without an argument
    at = extension = 0
    start = 0
    while at < len(code):
        number = code[at]
        if number == _SLASH and number not in names:
            number = _BACKSLASH
        name = names.get(number)
        if name is None:
            raise MisfitError(f"no instruction has the number {number}")
        argument = extension
        if words:
            size = 2
            argument |= code[at + 1] if at + 1 < len(code) else 0
        else:
            size = 3 if number >= _HAS_ARGUMENT else 1
            argument |= int.from_bytes(code[at + 1 : at + size], "little")
        at += size
        if name == "EXTENDED_ARG":
            extension = argument << (8 if words else 16)
            if extension >> 32:
                raise MisfitError("an argument of over 32 bits")
            continue
        extension = 0
        notes = code[at : at + 2 * caches.get(name, 0)]
        at += 2 * caches.get(name, 0)
        if any(notes) or at > len(code):
            raise MisfitError(f"{name} has notes that are none")
        yield _Raw(start, at, name, argument)
        start = at
    if start != len(code):
        raise MisfitError("ends in the middle of an instruction")


def _target(one: _Raw, version: Version) -> int:
    """Return the offset that a jump goes to, in bytes."""
    distance = one.argument * (2 if version >= (3, 10) else 1)
    if version >= (3, 11):
        return one.end + (-distance if "BACKWARD" in one.name else distance)
    return one.end + distance if one.name.startswith(_FORWARD) else distance


def _lines(record: CodeRecord, version: Version) -> Iterator[tuple[int, int | None]]:
    size = len(record.code)
    if version >= (3, 11):
        return _locations(record.lines, record.line, size)
    if len(record.lines) % 2:
        raise MisfitError("its table of lines ends in the middle of a pair")
    if version >= (3, 10):
        return _line_ranges(record.lines, record.line, size)
    return _line_steps(record.lines, record.line, size, signed=version >= (3, 6))


def _line_steps(
    table: bytes, line: int, size: int, *, signed: bool
) -> Iterator[tuple[int, int | None]]:
    """Pairs of how many bytes and how many lines further; the last line starts in the code."""
    at = 0
    for forward, down in zip(table[::2], table[1::2], strict=True):
        at += forward
        line += down - 256 if signed and down > 127 else down
        yield at, line
    if at >= size:
        raise MisfitError("its table of lines is longer than the code")


def _line_ranges(table: bytes, line: int, size: int) -> Iterator[tuple[int, int | None]]:
    """Pairs of how many bytes, and by how many lines the next ones are further down."""
    at = 0
    for length, down in zip(table[::2], table[1::2], strict=True):
        if down == 128:  # of no line
            yield at, None
        else:
            line += down - 256 if down > 127 else down
            yield at, line
        at += length
    if at != size:
        raise MisfitError("its table of lines is not as long as the code")


def _locations(table: bytes, line: int, size: int) -> Iterator[tuple[int, int | None]]:
    """Entries of a length and a form; what they say of columns is left."""
    place = at = 0
    while place < len(table):
        first = table[place]
        form = first >> 3 & 15
        if not first & 128:
            raise MisfitError("its table of lines has an entry that does not begin")
        place += 1
        if form >= 13 and form != 15:
            number, place = _number(table, place)
            line += -(number >> 1) if number & 1 else number >> 1
            for _ in range(3 if form == 14 else 0):
                _, place = _number(table, place)
        elif form >= 10 and form != 15:
            line += form - 10
            place += 2
        elif form != 15:
            place += 1
        yield at, None if form == 15 else line
        at += 2 * ((first & 7) + 1)
    if place != len(table) or at != size:
        raise MisfitError("its table of lines is not as long as the code")


def _number(table: bytes, place: int) -> tuple[int, int]:
    """Return a number of six bits a byte, the lowest first, and where it ends."""
    value = shift = 0
    while place < len(table) and shift < 36:
        byte = table[place]
        place += 1
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            return value, place
    raise MisfitError("its table of lines has a number that does not end")


def _handlers(table: bytes, size: int) -> Iterator[int]:
    """Return where exceptions are handled: entries of a start, a length, a target and a depth."""
    place = 0
    while place < len(table):
        if not table[place] & 128:
            raise MisfitError("its table of exceptions has an entry that does not begin")
        numbers = []
        for _ in range(4):
            value = 0
            while True:
                if place == len(table) or value >> 30:
                    raise MisfitError("its table of exceptions is cut short")
                byte = table[place]
                place += 1
                value = value << 6 | byte & 63  # the highest first
                if not byte & 64:
                    break
            numbers.append(value)
        start, length, target, _ = numbers
        if 2 * (start + length) > size:
            raise MisfitError("its table of exceptions is longer than the code")
        yield 2 * target
