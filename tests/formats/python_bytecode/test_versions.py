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
    text: str
    calls: tuple[tuple[tuple[Any, ...], Any], ...]
    parameters: tuple[str, ...] = ("x",)
    flags: int = 0x43
    cells: tuple[str, ...] = ()


CASES = [
    Case(
        "lambda x: x / 2  # Python 2's",
        ((2, 7),),
        "LOAD_FAST x\nLOAD_CONST 2\nBINARY_DIVIDE\nRETURN_VALUE",
        (((7,), 3), ((7.0,), 3.5)),
    ),
    Case(
        "lambda x: (x[:], x[1:], x[:2], x[1:2])",
        ((2, 7),),
        """
        LOAD_FAST x
        SLICE_0
        LOAD_FAST x
        LOAD_CONST 1
        SLICE_1
        LOAD_FAST x
        LOAD_CONST 2
        SLICE_2
        LOAD_FAST x
        LOAD_CONST 1
        LOAD_CONST 2
        SLICE_3
        BUILD_TUPLE 4
        RETURN_VALUE
        """,
        ((("abc",), ("abc", "bc", "ab", "b")),),
    ),
    Case(
        "def f(x): x[:1] = [7, 8]; del x[2:]; return x",
        ((2, 7),),
        """
        LOAD_CONST 7
        LOAD_CONST 8
        BUILD_LIST 2
        LOAD_FAST x
        LOAD_CONST 1
        STORE_SLICE_2
        LOAD_FAST x
        LOAD_CONST 2
        DELETE_SLICE_1
        LOAD_FAST x
        RETURN_VALUE
        """,
        ((([1, 2, 3],), [7, 8]),),
    ),
    Case(
        "def f(x): print x, `x`; return x",
        ((2, 7),),
        """
        LOAD_FAST x
        PRINT_ITEM
        LOAD_FAST x
        UNARY_CONVERT
        PRINT_ITEM
        PRINT_NEWLINE
        LOAD_FAST x
        RETURN_VALUE
        """,
        (((1,), 1),),
    ),
    Case(
        "lambda x: [v for v in x if v]  # in place, in Python 2",
        ((2, 7),),
        """
        BUILD_LIST 0
        LOAD_FAST x
        GET_ITER
        loop: FOR_ITER end
        STORE_FAST v
        LOAD_FAST v
        POP_JUMP_IF_FALSE loop
        LOAD_FAST v
        LIST_APPEND 2
        JUMP_ABSOLUTE loop
        end: RETURN_VALUE
        """,
        ((([1, 0, 2],), [1, 2]),),
    ),
    Case(
        "lambda (a, b): a - b  # a parameter that is taken apart",
        ((2, 7),),
        """
        LOAD_FAST .0
        UNPACK_SEQUENCE 2
        STORE_FAST a
        STORE_FAST b
        LOAD_FAST a
        LOAD_FAST b
        BINARY_SUBTRACT
        RETURN_VALUE
        """,
        ((((5, 3),), 2),),
        parameters=(".0",),
    ),
    Case(
        "lambda x: dict(x, a=1, b=x if x else 2)  # names of keywords between the values",
        OLD,
        """
        LOAD_GLOBAL dict
        LOAD_FAST x
        LOAD_CONST 'a'
        LOAD_CONST 1
        LOAD_CONST 'b'
        LOAD_FAST x
        POP_JUMP_IF_FALSE else
        LOAD_FAST x
        JUMP_FORWARD end
        else: LOAD_CONST 2
        end: CALL_FUNCTION 513
        RETURN_VALUE
        """,
        ((([],), {"a": 1, "b": 2}), (({"c": 3},), {"a": 1, "b": {"c": 3}, "c": 3})),
    ),
    Case(
        "lambda x: {'a': x, 'b': 2}",
        ((2, 7), (3, 4)),
        """
        BUILD_MAP 2
        LOAD_FAST x
        LOAD_CONST 'a'
        STORE_MAP
        LOAD_CONST 2
        LOAD_CONST 'b'
        STORE_MAP
        RETURN_VALUE
        """,
        (((1,), {"a": 1, "b": 2}),),
    ),
    Case(
        "lambda x: {'a': x}",
        ((3, 5), (3, 6), (3, 7), (3, 8), (3, 9)),
        "LOAD_CONST 'a'\nLOAD_FAST x\nBUILD_MAP 1\nRETURN_VALUE",
        (((1,), {"a": 1}),),
    ),
    Case(
        "lambda x, y: dict(x, *y, k=5)",
        ((2, 7), (3, 4)),
        """
        LOAD_GLOBAL dict
        LOAD_FAST x
        LOAD_CONST 'k'
        LOAD_CONST 5
        LOAD_FAST y
        CALL_FUNCTION_VAR 257
        RETURN_VALUE
        """,
        ((({"a": 1}, ()), {"a": 1, "k": 5}),),
        parameters=("x", "y"),
    ),
    Case(
        "lambda x, y: dict(x, *y, k=5)",
        ((3, 5),),
        """
        LOAD_GLOBAL dict
        LOAD_FAST x
        LOAD_FAST y
        LOAD_CONST 'k'
        LOAD_CONST 5
        CALL_FUNCTION_VAR 257
        RETURN_VALUE
        """,
        ((({"a": 1}, ()), {"a": 1, "k": 5}),),
        parameters=("x", "y"),
    ),
    Case(
        "lambda x, y, z: max(1, 2, *y, **z)",
        OLD,
        """
        LOAD_GLOBAL max
        LOAD_CONST 1
        LOAD_CONST 2
        LOAD_FAST y
        LOAD_FAST z
        CALL_FUNCTION_VAR_KW 2
        RETURN_VALUE
        """,
        (((0, (9, 3), {"key": lambda v: -v}), 1),),
        parameters=("x", "y", "z"),
    ),
    Case(
        "lambda x, z: dict(x, a=1, **z)",
        OLD,
        """
        LOAD_GLOBAL dict
        LOAD_FAST x
        LOAD_CONST 'a'
        LOAD_CONST 1
        LOAD_FAST z
        CALL_FUNCTION_KW 257
        RETURN_VALUE
        """,
        ((({"b": 2}, {"c": 3}), {"a": 1, "b": 2, "c": 3}),),
        parameters=("x", "z"),
    ),
    Case(
        "a loop that breaks, before 3.8",
        (*OLD, *WORDS),
        """
        SETUP_LOOP after
        LOAD_FAST x
        GET_ITER
        loop: FOR_ITER end
        STORE_FAST v
        LOAD_FAST v
        LOAD_CONST 3
        COMPARE_OP 4
        POP_JUMP_IF_FALSE loop
        BREAK_LOOP
        JUMP_ABSOLUTE loop
        end: POP_BLOCK
        LOAD_CONST 'none'
        RETURN_VALUE
        after: LOAD_FAST v
        RETURN_VALUE
        """,
        ((([1, 5, 7],), 5), (([1],), "none")),
    ),
    Case(
        "a return out of a loop, before 3.8",
        (*OLD, *WORDS),
        """
        SETUP_LOOP after
        LOAD_FAST x
        GET_ITER
        loop: FOR_ITER end
        STORE_FAST v
        LOAD_FAST v
        POP_JUMP_IF_FALSE loop
        LOAD_FAST v
        RETURN_VALUE
        end: POP_BLOCK
        after: LOAD_CONST None
        RETURN_VALUE
        """,
        ((([0, 5, 7],), 5), (([0],), None)),
    ),
    Case(
        "lambda x: 0 < x < 10",
        (*OLD, *WORDS, (3, 8), (3, 9)),
        """
        LOAD_CONST 0
        LOAD_FAST x
        DUP_TOP
        ROT_THREE
        COMPARE_OP 0
        JUMP_IF_FALSE_OR_POP false
        LOAD_CONST 10
        COMPARE_OP 0
        RETURN_VALUE
        false: ROT_TWO
        POP_TOP
        RETURN_VALUE
        """,
        (((5,), True), ((-5,), False), ((50,), False)),
    ),
    Case(
        "lambda x: dict(x, a=1)",
        (*WORDS, (3, 8), (3, 9), (3, 10)),
        """
        LOAD_GLOBAL dict
        LOAD_FAST x
        LOAD_CONST 1
        LOAD_CONST ('a',)
        CALL_FUNCTION_KW 2
        RETURN_VALUE
        """,
        ((({"b": 2},), {"a": 1, "b": 2}),),
    ),
    Case(
        "lambda x, y, z: max(*x, *y, **z, **{})",
        (*WORDS, (3, 8)),
        """
        LOAD_GLOBAL max
        LOAD_FAST x
        LOAD_FAST y
        BUILD_TUPLE_UNPACK_WITH_CALL 2
        LOAD_FAST z
        BUILD_MAP 0
        BUILD_MAP_UNPACK_WITH_CALL 2
        CALL_FUNCTION_EX 1
        RETURN_VALUE
        """,
        ((([1, 4], (3,), {"key": lambda v: -v}), 1),),
        parameters=("x", "y", "z"),
    ),
    Case(
        "lambda x: x.strip().split('a')",
        ((3, 7), (3, 8), (3, 9), (3, 10)),
        """
        LOAD_FAST x
        LOAD_METHOD strip
        CALL_METHOD 0
        LOAD_METHOD split
        LOAD_CONST 'a'
        CALL_METHOD 1
        RETURN_VALUE
        """,
        (((" bac ",), ["b", "c"]),),
    ),
    Case(
        "lambda x: x in (1, 2) and x is not None  # of 3.9",
        ((3, 9), (3, 10)),
        """
        LOAD_FAST x
        LOAD_CONST (1, 2)
        CONTAINS_OP 0
        JUMP_IF_FALSE_OR_POP end
        LOAD_FAST x
        LOAD_CONST None
        IS_OP 1
        end: RETURN_VALUE
        """,
        (((1,), True), ((3,), False)),
    ),
    Case(
        "lambda x: x in (1, 2) and x is not None  # before",
        (*OLD, *WORDS, (3, 8)),
        """
        LOAD_FAST x
        LOAD_CONST (1, 2)
        COMPARE_OP 6
        JUMP_IF_FALSE_OR_POP end
        LOAD_FAST x
        LOAD_CONST None
        COMPARE_OP 9
        end: RETURN_VALUE
        """,
        (((1,), True), ((3,), False)),
    ),
    Case(
        "lambda x: [*x, 1]  # before 3.9",
        ((3, 5), *WORDS, (3, 8)),
        "LOAD_FAST x\nLOAD_CONST 1\nBUILD_TUPLE 1\nBUILD_LIST_UNPACK 2\nRETURN_VALUE",
        ((("ab",), ["a", "b", 1]),),
    ),
    Case(
        "def f(x): with x as v: y = v  # before 3.5",
        ((2, 7), (3, 4)),
        """
        LOAD_FAST x
        SETUP_WITH cleanup
        STORE_FAST v
        POP_BLOCK
        LOAD_CONST None
        cleanup: WITH_CLEANUP
        END_FINALLY
        LOAD_FAST v
        RETURN_VALUE
        """,
        (((ENTERED,), "entered, left"),),
    ),
    Case(
        "def f(x): with x as v: y = v  # to 3.7",
        ((3, 5), *WORDS),
        """
        LOAD_FAST x
        SETUP_WITH cleanup
        STORE_FAST v
        POP_BLOCK
        LOAD_CONST None
        cleanup: WITH_CLEANUP_START
        WITH_CLEANUP_FINISH
        END_FINALLY
        LOAD_FAST v
        RETURN_VALUE
        """,
        (((ENTERED,), "entered, left"),),
    ),
    Case(
        "def f(x): with x as v: return v  # to 3.7",
        ((3, 5), *WORDS),
        """
        LOAD_FAST x
        SETUP_WITH cleanup
        STORE_FAST v
        LOAD_FAST v
        RETURN_VALUE
        cleanup: WITH_CLEANUP_START
        WITH_CLEANUP_FINISH
        END_FINALLY
        LOAD_CONST None
        RETURN_VALUE
        """,
        (((ENTERED,), "entered, left"),),
    ),
    Case(
        "def f(x): with x as v: return v  # of 3.8",
        ((3, 8),),
        """
        LOAD_FAST x
        SETUP_WITH cleanup
        STORE_FAST v
        LOAD_FAST v
        POP_BLOCK
        ROT_TWO
        BEGIN_FINALLY
        WITH_CLEANUP_START
        WITH_CLEANUP_FINISH
        POP_FINALLY 0
        RETURN_VALUE
        cleanup: WITH_CLEANUP_START
        WITH_CLEANUP_FINISH
        END_FINALLY
        LOAD_CONST None
        RETURN_VALUE
        """,
        (((ENTERED,), "entered, left"),),
    ),
    Case(
        "def f(x): x[:] = [1]; x[1:] = [2, 3, 4]; x[1:2] = [9]; return x",
        ((2, 7),),
        """
        LOAD_CONST 1
        BUILD_LIST 1
        LOAD_FAST x
        STORE_SLICE_0
        LOAD_CONST (2, 3, 4)
        LOAD_FAST x
        LOAD_CONST 1
        STORE_SLICE_1
        LOAD_CONST (9, 8)
        LOAD_FAST x
        LOAD_CONST 1
        LOAD_CONST 2
        STORE_SLICE_3
        LOAD_FAST x
        RETURN_VALUE
        """,
        ((([0, 0],), [1, 9, 8, 3, 4]),),
    ),
    Case(
        "def f(x): del x[1:2]; del x[:2]; y = x + x; del x[:]; return x, y",
        ((2, 7),),
        """
        LOAD_FAST x
        LOAD_CONST 1
        LOAD_CONST 2
        DELETE_SLICE_3
        LOAD_FAST x
        LOAD_CONST 2
        DELETE_SLICE_2
        LOAD_FAST x
        LOAD_FAST x
        BINARY_ADD
        STORE_FAST y
        LOAD_FAST x
        DELETE_SLICE_0
        LOAD_FAST x
        LOAD_FAST y
        BUILD_TUPLE 2
        DELETE_FAST y
        RETURN_VALUE
        """,
        ((([0, 1, 2, 3, 4],), ([], [3, 4, 3, 4])),),
    ),
    Case(
        "operators that change what is on their left",
        (*OLD, *WORDS, (3, 8), (3, 9), (3, 10)),
        "LOAD_FAST x\n"
        + "".join(
            f"LOAD_CONST {number}\nINPLACE_{name}\n"
            for name, number in (
                ("FLOOR_DIVIDE", 3),
                ("MODULO", 4),
                ("POWER", 5),
                ("LSHIFT", 2),
                ("RSHIFT", 1),
                ("AND", 96),
                ("OR", 3),
                ("XOR", 1),
                ("SUBTRACT", 2),
                ("TRUE_DIVIDE", 128),
            )
        )
        + "RETURN_VALUE",
        (((20,), 0.5),),
    ),
    Case(
        "def f(x): x /= 2; return x  # Python 2's",
        ((2, 7),),
        "LOAD_FAST x\nLOAD_CONST 2\nINPLACE_DIVIDE\nRETURN_VALUE",
        (((7,), 3), ((7.0,), 3.5)),
    ),
    Case(
        "def f(x): x @= x; return x",
        ((3, 5), *WORDS, (3, 8), (3, 9), (3, 10)),
        "LOAD_FAST x\nLOAD_FAST x\nINPLACE_MATRIX_MULTIPLY\nRETURN_VALUE",
        (((np.eye(2) * 3,), np.eye(2) * 9),),
    ),
    Case(
        "def f(x): x[0] += 5; return x  # of Python 2",
        ((2, 7),),
        """
        LOAD_FAST x
        LOAD_CONST 0
        DUP_TOPX 2
        BINARY_SUBSCR
        LOAD_CONST 5
        INPLACE_ADD
        ROT_THREE
        STORE_SUBSCR
        LOAD_FAST x
        RETURN_VALUE
        """,
        ((([1, 2],), [6, 2]),),
    ),
    Case(
        "the fourth from the top",
        ((2, 7), (3, 8), (3, 9), (3, 10)),
        """
        LOAD_CONST 1
        LOAD_CONST 2
        LOAD_CONST 3
        LOAD_FAST x
        ROT_FOUR
        BUILD_TUPLE 4
        RETURN_VALUE
        """,
        (((4,), (4, 1, 2, 3)),),
    ),
    Case(
        "lambda x, y: ((*x, *y), {*x, *y}, {**{'a': x}, **{'b': y}})  # before 3.9",
        ((3, 5), *WORDS, (3, 8)),
        """
        LOAD_FAST x
        LOAD_FAST y
        BUILD_TUPLE_UNPACK 2
        LOAD_FAST x
        LOAD_FAST y
        BUILD_SET_UNPACK 2
        LOAD_CONST 'a'
        LOAD_FAST x
        BUILD_MAP 1
        LOAD_CONST 'b'
        LOAD_FAST y
        BUILD_MAP 1
        BUILD_MAP_UNPACK 2
        BUILD_TUPLE 3
        RETURN_VALUE
        """,
        ((("a", "bc"), (("a", "b", "c"), {"a", "b", "c"}, {"a": "a", "b": "bc"})),),
        parameters=("x", "y"),
    ),
    Case(
        "def f(x, y): for v in y: with x: continue; return x  # to 3.7",
        ((2, 7), (3, 4)),
        """
        SETUP_LOOP after
        LOAD_FAST y
        GET_ITER
        loop: FOR_ITER end
        STORE_FAST v
        LOAD_FAST x
        SETUP_WITH cleanup
        POP_TOP
        CONTINUE_LOOP loop
        POP_BLOCK
        LOAD_CONST None
        cleanup: WITH_CLEANUP
        END_FINALLY
        JUMP_ABSOLUTE loop
        end: POP_BLOCK
        after: LOAD_FAST x
        RETURN_VALUE
        """,
        (((ENTERED, (1, 2)), "entered, left"),),
        parameters=("x", "y"),
    ),
    Case(
        "def f(x, y): for v in y: with x: break; return x  # to 3.7",
        ((2, 7), (3, 4)),
        """
        SETUP_LOOP after
        LOAD_FAST y
        GET_ITER
        loop: FOR_ITER end
        STORE_FAST v
        LOAD_FAST x
        SETUP_WITH cleanup
        POP_TOP
        BREAK_LOOP
        POP_BLOCK
        LOAD_CONST None
        cleanup: WITH_CLEANUP
        END_FINALLY
        JUMP_ABSOLUTE loop
        end: POP_BLOCK
        after: LOAD_FAST x
        RETURN_VALUE
        """,
        (((ENTERED, (1, 2)), "entered, left"),),
        parameters=("x", "y"),
    ),
]


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
    source = Source(version, case.text, case.parameters, flags=case.flags, cells=case.cells)
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
    """Here, or in what real compilers wrote (`test_python_code`)."""
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
