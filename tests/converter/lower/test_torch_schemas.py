"""Rows of torch's table against the schemas of several versions of torch.

Programs give arguments by the names that their version had: a row takes all of them, and needs no
other. fixtures/torch_programs/schema_versions.txt has the schemas that are not today's.
"""

from keyword import iskeyword
from pathlib import Path

import pytest

from converter.lower.torch.schemas import PATH, parse_schema
from converter.lower.torch.table import OPS

ROOT = Path(__file__).resolve().parents[3]
VERSIONS = ROOT / "fixtures" / "torch_programs" / "schema_versions.txt"


def find_misfits(line: str) -> tuple[list[str], list[str]]:
    """Return the arguments that a row does not know, and those that it needs and does not get."""
    schema = parse_schema(line)
    row = OPS[schema.full]
    names = [f"{a.name}_" if iskeyword(a.name) else a.name for a in schema.arguments]
    return row.unknown(names), [n for n in row.parameters[: row.required] if n not in names]


def test_rows_take_the_arguments_of_todays_schemas():
    lines = [line for line in PATH.read_text("ascii").splitlines() if line.partition("(")[0] in OPS]
    assert len(lines) > 900
    assert {line: found for line in lines if any(found := find_misfits(line))} == {}


@pytest.mark.parametrize("line", VERSIONS.read_text("ascii").splitlines())
def test_rows_take_the_arguments_of_other_versions(line):
    _, _, schema = line.partition(" ")
    assert find_misfits(schema) == ([], [])


def test_an_unknown_argument_is_found():
    assert find_misfits("relu(Tensor self, bool quickly=False)") == (["quickly"], [])
    assert find_misfits("mm(Tensor self)") == ([], ["mat2"])
