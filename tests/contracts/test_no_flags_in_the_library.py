"""Messages of the library name options as Python spells them; only the command line has flags."""

import ast
import re
from pathlib import Path

import pytest

import converter
import formats

ROOT = Path(converter.__file__).parent
FLAG = re.compile(r"(?<![\w-])--[a-z]")
# Folders and files whose strings are command lines, and of which program.
COMMANDS = {
    "cli": "our own",
    "doctor": "what a user pastes: convert, pip, docker, nvidia-smi",
    "verification/runners.py": "the child that runs a source",
    "verification/children/run_keras.py": "itself",
    "executors/ray_driver.py": "ray start --head",
}
# Text of manifests, which stays as it is from version to version.
STABLE = {"--verify none", " state; --include "}


def library_files() -> list[Path]:
    own = [p for p in ROOT.rglob("*.py") if not _is_command(p.relative_to(ROOT).as_posix())]
    return [*own, *Path(formats.__file__).parent.rglob("*.py")]


def _is_command(name: str) -> bool:
    return any(name == command or name.startswith(f"{command}/") for command in COMMANDS)


def docstrings(tree: ast.Module) -> set[int]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body[0] for node in ast.walk(tree) if isinstance(node, kinds) and node.body]
    return {id(b.value) for b in bodies if isinstance(b, ast.Expr)}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_exception_is_needed(command: str) -> None:
    path = ROOT / command
    files = [path] if path.is_file() else [*path.rglob("*.py")]
    assert any(FLAG.search(file.read_text()) for file in files)


def test_no_string_names_a_flag() -> None:
    found = []
    for path in library_files():
        tree = ast.parse(path.read_text())
        skipped = docstrings(tree)
        found += [
            f"{path.relative_to(ROOT.parent)}:{node.lineno}: {node.value!r}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in skipped
            and FLAG.search(node.value)
            and node.value not in STABLE
        ]
    assert not found, "\n".join(found)
