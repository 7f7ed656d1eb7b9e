"""Code of Pythons that are not at hand, from a text of instructions, laid out as marshal does.

The text has an instruction a line, maybe with a label before it (``end: RETURN_VALUE``). What an
argument is follows from the instruction: a constant in Python's words, a name, a label, a number.
"""

import ast
import struct
from dataclasses import dataclass, field
from typing import Any

from formats.python_bytecode.opcodes import NAMES

NAMED = ("_GLOBAL", "_ATTR", "LOAD_METHOD", "IMPORT_NAME", "IMPORT_FROM")
FORWARD = ("FOR_ITER", "SETUP_", "JUMP_FORWARD")
JUMPS = (*FORWARD, "JUMP_", "POP_JUMP_", "CONTINUE_LOOP")


@dataclass
class Source:
    """A function to assemble."""

    version: tuple[int, int]
    text: str
    parameters: tuple[str, ...] = ("x",)
    name: str = "f"
    free: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    flags: int = 0x43
    stacksize: int = 12
    functions: dict[str, "Source"] = field(default_factory=dict)  # constants, by a name


def dumps(value: Any, version: tuple[int, int]) -> bytes:
    """Marshal a constant."""
    if value is None or value is ... or isinstance(value, bool):
        return {None: b"N", ...: b".", True: b"T", False: b"F"}[value]
    if isinstance(value, int):
        return b"i" + struct.pack("<i", value)
    if isinstance(value, float):
        return b"g" + struct.pack("<d", value)
    if isinstance(value, str):
        data = value.encode()
        return (b"t" if version < (3, 0) else b"u") + struct.pack("<i", len(data)) + data
    if isinstance(value, bytes):
        return b"s" + struct.pack("<i", len(value)) + value
    if isinstance(value, tuple):
        head = b"(" + struct.pack("<i", len(value))
        return head + b"".join(dumps(part, version) for part in value)
    assert isinstance(value, Source)
    return assemble(value)


class _Tables:
    """What arguments count in, filled on the way."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.constants: list[Any] = [None]
        self.names: list[str] = []
        self.locals = list(source.parameters)

    def argument(self, name: str, text: str) -> int | str:
        if not text:
            return 0
        if name.startswith(JUMPS):
            return text
        if name == "LOAD_CONST":
            found = self.source.functions.get(text)
            return self.place(self.constants, found or ast.literal_eval(text))
        if name.endswith("_FAST"):
            return self.place(self.locals, text)
        if name.endswith(("_DEREF", "_CLOSURE")) and name != "MAKE_CLOSURE":
            return (*self.source.cells, *self.source.free).index(text)
        if name.endswith(NAMED):
            return self.place(self.names, text)
        return int(text)

    def place(self, table: list[Any], value: Any) -> int:
        for at, known in enumerate(table):
            if type(known) is type(value) and known == value:
                return at
        table.append(value)
        return len(table) - 1


def assemble(source: Source) -> bytes:
    """Return the marshalled code of a function."""
    version = source.version
    numbers = {name: number for number, name in NAMES[version].items()}
    tables = _Tables(source)
    labels: dict[str, int] = {}
    found: list[tuple[int, int, str, int | str]] = []  # start, size, name, argument
    at = 0
    for line in filter(None, map(str.strip, source.text.splitlines())):
        before, colon, rest = line.partition(": ")
        if colon and before.islower():
            labels[before] = at
            line = rest.strip()
        name, _, text = line.partition(" ")
        size = 2 if version >= (3, 6) else 3 if numbers[name] >= 90 else 1
        found.append((at, size, name, tables.argument(name, text.strip())))
        at += size
    code = bytearray()
    for start, size, name, argument in found:
        if isinstance(argument, str):
            argument = labels[argument] - (start + size if name.startswith(FORWARD) else 0)
            argument //= 2 if version >= (3, 10) else 1
        code += bytes([numbers[name]]) + argument.to_bytes(size - 1, "little")
    whole, rest = divmod(len(code), 254)
    lines = bytes([254, 0] * whole + [rest, 0]) if version >= (3, 10) else b""
    counts = [len(source.parameters) - bool(source.flags & 4) - bool(source.flags & 8)]
    counts += [] if version < (3, 0) else [0] if version < (3, 8) else [0, 0]
    values = (
        tuple(tables.constants), tuple(tables.names), tuple(tables.locals), source.free,
        source.cells, "file.py", source.name,
    )  # fmt: skip
    return (
        b"c"
        + struct.pack(f"<{len(counts)}i", *counts)
        + struct.pack("<3i", len(tables.locals), source.stacksize, source.flags)
        + dumps(bytes(code), version)
        + b"".join(dumps(value, version) for value in values)
        + struct.pack("<i", 1)
        + dumps(lines, version)
    )
