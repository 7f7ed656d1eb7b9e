"""Byte-code of several Pythons says what the functions do that it was compiled from."""

import base64
import json
import sys
import types
from typing import Any

import pytest
from python_machine import Cell, Function
from repository import ROOT

from formats.python_bytecode import decoder as python_code

FIXTURES = ROOT / "fixtures" / "python_code"
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.15")


def _module(name: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__dict__["__name__"] = name
    sys.modules.setdefault(name, module)
    exec(compile((FIXTURES / f"{name}.py").read_text(), f"{name}.py", "exec"), module.__dict__)
    return module


CASES = _module("cases").CASES
function = _module("make").function


def outcome(called: Any, args: tuple[Any, ...]) -> str:
    """Return what a call gives or raises; functions and addresses do not tell them apart."""
    try:
        return repr(called(*args))
    except Exception as e:  # noqa: BLE001 - whatever it is, both have to raise it
        return repr(e)


def machine(native: Any, code: python_code.Code) -> Function:
    closure = tuple(Cell(cell.cell_contents) for cell in native.__closure__ or ())
    return Function(code, {}, native.__defaults__ or (), native.__kwdefaults__, closure)


@pytest.mark.parametrize("version", VERSIONS)
def test_steps_do_what_the_function_does(version: str) -> None:
    stored = json.loads((FIXTURES / f"code_{version}.json").read_text())
    assert tuple(stored["version"]) == tuple(map(int, version.split(".")))
    assert len(stored["codes"]) == len(CASES)
    for text, (source, calls) in zip(stored["codes"], CASES, strict=True):
        code = python_code.read(base64.b64decode(text))
        assert code.version <= tuple(stored["version"])
        native = function(source)
        for args in calls:
            assert outcome(machine(native, code), args) == outcome(native, args), source
