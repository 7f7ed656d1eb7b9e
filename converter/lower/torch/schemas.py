"""Schemas of ATen's ops: for sources that give arguments by position and name no overload.

`schemas.txt` is made by fixtures/torch_programs/make_schemas.py; a line of it is read when its op
is looked for.
Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/README.md
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PATH = Path(__file__).with_name("schemas.txt")
ARGUMENT = re.compile(r"(?P<kind>\S+) (?P<name>\w+)(?:=(?P<default>.+))?$")
COMMA = re.compile(r", (?![^\[]*\])")  # one that is not inside a list


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument.

    Attributes:
        name: Its name.
        kind: Its type, as torch writes it: ``Tensor?``, ``SymInt[2]``, ``Scalar``.
        default: Default as written; None for a required argument.
        is_named: Whether it is given by name alone, in today's programs.
    """

    name: str
    kind: str
    default: str | None
    is_named: bool


@dataclass(frozen=True, slots=True)
class Schema:
    """One overload of an op; ``overload`` is empty where it is the default one."""

    name: str
    overload: str
    arguments: tuple[Argument, ...]

    @property
    def full(self) -> str:
        """Its name, as the table of ops has it."""
        return f"{self.name}.{self.overload}" if self.overload else self.name


@cache
def _lines() -> dict[str, list[str]]:
    """Return the lines of the file, by op."""
    found: dict[str, list[str]] = {}
    for line in PATH.read_text("ascii").splitlines():
        name = line[: line.index("(")].partition(".")[0]
        found.setdefault(name, []).append(line)
    return found


@cache
def schemas(name: str) -> tuple[Schema, ...]:
    """Return the overloads of an op; none where torch has no such op."""
    return tuple(parse_schema(line) for line in _lines().get(name, ()))


def parse_schema(line: str) -> Schema:
    """Return the schema in a line of `schemas.txt`."""
    full, _, rest = line.partition("(")
    name, _, overload = full.partition(".")
    arguments: list[Argument] = []
    is_named = False
    for text in COMMA.split(rest.removesuffix(")")) if rest != ")" else ():
        if text == "*":
            is_named = True
            continue
        found = ARGUMENT.match(text)
        if found is not None:  # all but the dots of `format`
            arguments.append(Argument(found["name"], found["kind"], found["default"], is_named))
    return Schema(name, overload, tuple(arguments))
