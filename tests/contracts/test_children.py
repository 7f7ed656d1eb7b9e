"""What runs in another Python, which has a framework and not this project, imports none of it."""

import ast

import pytest
from repository import ROOT

SAYS = "nothing of the project"
FILES = [
    path
    for path in sorted((ROOT / "converter").rglob("*.py"))
    if SAYS in (ast.get_docstring(ast.parse(path.read_text())) or "").replace("\n", " ")
]


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_there_are_such_files():
    assert len(FILES) > 20


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_imports_nothing_of_the_project(path):
    found = [name for name in imported(path) if name.partition(".")[0] in ("converter", "formats")]
    assert not found
