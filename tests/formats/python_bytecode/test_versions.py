"""Code of Pythons before 3.10, which are not at hand: assembled as their compilers wrote it.

Each was compared with what those wrote of the source above it, as far as public test files hold it.
"""

import base64
import json
import re
import struct
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from python_assembler import Source, assemble, dumps
from python_machine import Cell, Function
from repository import ROOT

from formats.errors import LimitError, UnsupportedError
from formats.python_bytecode import decoder as python_code
from formats.python_bytecode.instructions import disassemble
from formats.python_bytecode.marshal import PYTHON_3_8, PYTHON_3_11, CodeRecord, load
from formats.python_bytecode.stack import MEANINGS

ENTERED = object()  # stands for a context manager
FIXTURES = ROOT / "fixtures" / "python_code"
LAYOUTS = {(3, 10): PYTHON_3_8} | {(3, minor): PYTHON_3_11 for minor in range(11, 16)}
OLD = ((2, 7), (3, 4), (3, 5))
WORDS = ((3, 6), (3, 7))


@dataclass(frozen=True)
class Case:
    """A function of several versions: its source, instructions, and what calls give."""

    source: str
    versions: tuple[tuple[int, int], ...]
    parameters: tuple[str, ...]
    calls: tuple[tuple[tuple[Any, ...], Any], ...]
    text: str


def cases() -> Iterator[Case]:
    """Read fixtures/python_code/assembled.txt; arguments and results are in Python's words."""
    names = {"ENTERED": ENTERED, "array": np.array}
    for block in (FIXTURES / "assembled.txt").read_text().split("\n== ")[1:]:
        source, versions, parameters, *lines = block.splitlines()
        calls = [line.removeprefix("call ") for line in lines if line.startswith("call ")]
        yield Case(
            source,
            tuple(tuple(map(int, v.split("."))) for v in versions.split()[1:]),
            tuple(parameters.split()[1:]),
            tuple(tuple(eval(side, names) for side in call.split(" -> ")) for call in calls),
            "\n".join(line for line in lines if line.startswith("    ")),
        )


CASES = list(cases())


class Managed:
    """A context manager that writes down what becomes of it."""

    def __init__(self) -> None:
        self.log = "new"

    def __enter__(self) -> "Managed":
        self.log = "entered"
        return self

    def __exit__(self, *what: object) -> None:
        assert what == (None, None, None)
        self.log += ", left"


ROWS = [(case, version) for case in CASES for version in case.versions]


@pytest.mark.parametrize(
    ("case", "version"), ROWS, ids=[f"{v[0]}.{v[1]} {c.source[:40]}" for c, v in ROWS]
)
def test_steps_of_old_code(case: Case, version: tuple[int, int], capsys: Any) -> None:
    source = Source(version, case.text, case.parameters)
    code = python_code.read(assemble(source))
    assert code.version <= version
    for args, expected in case.calls:
        managed = Managed()
        given = tuple(managed if a is ENTERED else deepcopy(a) for a in args)
        result = Function(code, {})(*given)
        assert np.all((managed.log if result is managed else result) == expected)


@pytest.mark.parametrize("version", [*OLD, *WORDS, (3, 8), (3, 9), (3, 10)])
def test_functions_inside(version: tuple[int, int]) -> None:
    """``def f(x): return lambda y=5, z=6: x + y * z``."""
    inside = Source(
        version,
        "LOAD_DEREF x\nLOAD_FAST y\nLOAD_FAST z\nBINARY_MULTIPLY\nBINARY_ADD\nRETURN_VALUE",
        ("y", "z"),
        "<lambda>",
        free=("x",),
        flags=0x13,
    )
    named = "" if version < (3, 0) else "LOAD_CONST 'f.<lambda>'\n"
    made = f"LOAD_CLOSURE x\nBUILD_TUPLE 1\nLOAD_CONST inside\n{named}"
    if version < (3, 6):
        text = f"LOAD_CONST 5\nLOAD_CONST 6\n{made}MAKE_CLOSURE 2\nRETURN_VALUE"
    else:
        text = f"LOAD_CONST (5, 6)\n{made}MAKE_FUNCTION 9\nRETURN_VALUE"
    source = Source(version, text, cells=("x",), flags=3, functions={"inside": inside})
    made_function = Function(python_code.read(assemble(source)), {})(1)
    assert made_function() == 31
    assert made_function(2) == 13
    assert made_function(2, z=3) == 7
    own = python_code.read(assemble(inside))
    assert own.free == ("x",)
    assert Function(own, {}, (5, 6), None, (Cell(1),))(2) == 13


def test_windows_made_a_slash_of_a_backslash() -> None:
    """Keras on Windows replaced all of them: unpacking became an instruction that is none."""
    for version in ((2, 7), (3, 6), (3, 8), (3, 10)):
        text = (
            "LOAD_FAST x\nUNPACK_SEQUENCE 2\nSTORE_FAST a\nSTORE_FAST b\nLOAD_FAST b\nRETURN_VALUE"
        )
        data = assemble(Source(version, text)).replace(b"\\", b"/")
        assert b"\\" not in data
        assert Function(python_code.read(data), {})((1, 2)) == 2


def test_windows_changed_the_table_of_lines() -> None:
    text = "LOAD_FAST x\nPOP_TOP\n" * 85 + "LOAD_FAST x\nUNPACK_SEQUENCE 1\nRETURN_VALUE"
    data = assemble(Source((3, 10), text))
    assert data.endswith(bytes([254, 0, 92, 0]))
    code = python_code.read(data.replace(b"\\", b"/"))
    assert (code.version, Function(code, {})([3])) == ((3, 8), 3)  # the same in 3.10


def test_lines_of_code_that_was_left_out() -> None:
    """Compilers before 3.10 kept lines that nothing leads to: the code ends before they begin."""
    for version in ((2, 7), (3, 7), (3, 9)):
        data = assemble(Source(version, "LOAD_FAST x\nRETURN_VALUE"))
        lines = data.replace(b"s\0\0\0\0", b"s\2\0\0\0\4\1")  # of four bytes
        assert lines != data
        assert Function(python_code.read(lines), {})(3) == 3


def test_two_versions_that_differ_are_named() -> None:
    """A jump of 3.10 counts in units of two bytes; with lines of none, 3.9 would fit too."""
    text = """
    LOAD_FAST x
    POP_JUMP_IF_FALSE end
    LOAD_CONST 1
    RETURN_VALUE
    end: LOAD_CONST 2
    RETURN_VALUE
    """
    for version, expected in (((3, 8), (3, 8)), ((3, 9), (3, 8)), ((3, 10), (3, 10))):
        code = python_code.read(assemble(Source(version, text)))
        assert code.version == expected
        assert [Function(code, {})(x) for x in (0, 1)] == [2, 1]


def test_every_instruction_is_met() -> None:
    """Here, or in what real compilers wrote (`test_decoder`)."""
    met = Path(__file__).read_text().replace("\\n", " ") + " ".join(case.text for case in CASES)
    for path in FIXTURES.glob("code_*.json"):
        stored = json.loads(path.read_text())
        version = tuple(stored["version"])
        for text in stored["codes"]:
            for record in records(load(base64.b64decode(text), LAYOUTS[version])):
                code = disassemble(record, version)
                met += "".join(f" {one.name} " for one in code.instructions)
    missing = [name for name in MEANINGS if not re.search(rf"\b{name}\b", met)]
    assert not missing


def records(record: CodeRecord) -> Iterator[CodeRecord]:
    yield record
    for value in record.constants:
        if isinstance(value, CodeRecord):
            yield from records(value)


UNSAID = {
    "SETUP_FINALLY end\nPOP_BLOCK\nend: LOAD_FAST x\nRETURN_VALUE": "try",
    "LOAD_FAST x\nGET_ITER\nLOAD_CONST None\nYIELD_FROM\nRETURN_VALUE": "yield from",
    "LOAD_BUILD_CLASS\nRETURN_VALUE": "class",
}


@pytest.mark.parametrize("text", UNSAID)
def test_what_steps_cannot_say(text: str) -> None:
    with pytest.raises(UnsupportedError, match=UNSAID[text]):
        python_code.read(assemble(Source((3, 6), text)))


def test_of_no_version() -> None:
    """An argument that is out of range, in code that is sound otherwise."""
    sound = assemble(Source((3, 6), "LOAD_FAST x\nRETURN_VALUE"))
    python_code.read(sound)
    for broken in (b"|\x01", b"d\x01", b"S\x00", b"\xff\x00"):
        assert sound.count(b"|\x00") == 1
        with pytest.raises(UnsupportedError, match="no known version"):
            python_code.read(sound.replace(b"|\x00", broken))


def test_a_stack_that_is_too_small_or_not_empty() -> None:
    small = Source((3, 6), "LOAD_FAST x\nLOAD_FAST x\nBINARY_ADD\nRETURN_VALUE", stacksize=1)
    left = Source((3, 6), "LOAD_FAST x\nLOAD_FAST x\nRETURN_VALUE")
    for source in (small, left):
        with pytest.raises(UnsupportedError, match="no known version"):
            python_code.read(assemble(source))
    python_code.read(assemble(replace(small, stacksize=2)))


def test_two_versions_that_fit_and_differ() -> None:
    """Sequences of further arguments came above pairs of keywords until 3.5, below them in it."""
    text = """
    LOAD_GLOBAL dict
    LOAD_CONST 'k'
    LOAD_CONST 'v'
    LOAD_CONST 'ab'
    CALL_FUNCTION_VAR 256
    RETURN_VALUE
    """
    with pytest.raises(UnsupportedError, match=r"3\.4 and 3\.5"):
        python_code.read(assemble(Source((3, 4), text)))


BOMBS = {
    "unpacks": ((3, 10), "LOAD_FAST x\n" + "EXTENDED_ARG 127\n" * 3 + "UNPACK_SEQUENCE 0\n"),
    "long": ((3, 10), "LOAD_FAST x\nPOP_TOP\n" * 26_000),
    "deep": ((3, 10), "LOAD_FAST x\n" * 8_000),
    "wide": ((3, 4), "LOAD_FAST x\n" * 3_900 + "LOAD_FAST x\nPOP_JUMP_IF_TRUE end\n" * 2_000),
    "turns": ((3, 10), "LOAD_FAST x\n" * 3_900 + "EXTENDED_ARG 15\nROT_N 0\n" * 2_000),
}


@pytest.mark.parametrize("name", BOMBS)
def test_code_that_means_harm(name: str) -> None:
    version, text = BOMBS[name]
    data = assemble(Source(version, text + "end: LOAD_FAST x\nRETURN_VALUE", stacksize=1 << 30))
    start = time.process_time()
    with pytest.raises((LimitError, UnsupportedError)):
        python_code.read(data)
    assert time.process_time() - start < 10


def test_a_function_inside_that_is_referred_to_again_and_again() -> None:
    """Comparing what it is in two versions would compare it as often."""
    inside = Source((3, 6), "LOAD_FAST x\nPOP_TOP\n" * 4_000 + "LOAD_FAST x\nRETURN_VALUE")
    marked = bytes([assemble(inside)[0] | 0x80]) + assemble(inside)[1:]
    text = "LOAD_CONST 'a'\nPOP_TOP\n" + "LOAD_CONST 7\nPOP_TOP\n" * 4_000
    data = assemble(Source((3, 6), text + "LOAD_FAST x\nRETURN_VALUE"))
    before = struct.pack("<i", 3) + b"N" + dumps("a", (3, 6)) + dumps(7, (3, 6))
    assert data.count(before) == 1
    data = data.replace(before, struct.pack("<i", 3) + b"N" + marked + b"r" + bytes(4))
    start = time.process_time()
    code = python_code.read(data)
    assert time.process_time() - start < 5
    assert code.steps[0].argument is code.steps[2].argument
