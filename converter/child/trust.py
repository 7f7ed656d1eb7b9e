"""Modules that the user trusts: their code may run, in child processes only.

A module is trusted only by ``--trust MODULE[=PATH]``, never by the contents of an artifact. It may
register lowerings (see `converter.lower.keras.api`) and define Keras classes and functions; all of
these are used.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]  # where the project's packages are


@dataclass(frozen=True, slots=True)
class Trusted:
    """A trusted module, and a cache of its answers: each question is asked once.

    Attributes:
        module: Its name.
        path: Its file, or the folder of a package; None for an installed module.
        answers: Answers of children that ran it, by question, shared by lowering and
            verification.
    """

    module: str
    path: Path | None = None
    answers: dict[str, dict[str, Any]] = field(default_factory=dict, compare=False, repr=False)


def parse_trust(given: Iterable[str]) -> tuple[Trusted, ...]:
    """Parse arguments of the form ``MODULE[=PATH]``.

    Raises:
        UsageError: An argument has another form, names a module twice, or its file is missing.
    """
    from formats.errors import UsageError

    found: dict[str, Trusted] = {}
    for text in given:
        module, equals, name = text.partition("=")
        if not all(part.isidentifier() for part in module.split(".")) or (equals and not name):
            raise UsageError(text, expected="MODULE or MODULE=PATH, MODULE a name of Python's")
        path = Path(name).absolute() if equals else None
        if path is not None and not _file_of(path).is_file():
            raise UsageError(text, expected="a .py file, or a folder with __init__.py")
        if module in found:
            raise UsageError(f"{text}: {module} is given twice", expected="each module once")
        found[module] = Trusted(module, path)
    return tuple(found.values())


def plain(trusted: Sequence[Trusted]) -> list[list[str | None]]:
    """Return modules as JSON for a question to a child."""
    return [[t.module, None if t.path is None else str(t.path)] for t in trusted]


def load(module: str, path: str | None) -> ModuleType:
    """Import a trusted module; called only in a child.

    A module from a file may import modules from the file's folder.

    Raises:
        Exception: Whatever its code raises.
    """
    if path is None:
        return importlib.import_module(module)
    file = _file_of(Path(path))
    beside = Path(path).parent
    if str(beside) not in sys.path:
        sys.path.append(str(beside))
    spec = importlib.util.spec_from_file_location(module, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python")
    made = importlib.util.module_from_spec(spec)
    sys.modules[module] = made
    spec.loader.exec_module(made)
    return made


def digest(file: Path) -> str:
    """Return the SHA-256 of a module's file; for a package, of all names and files in it."""
    import hashlib  # which few conversions need

    if file.name != "__init__.py":
        return hashlib.sha256(file.read_bytes()).hexdigest()
    whole = hashlib.sha256()
    for part in sorted(file.parent.rglob("*.py")):
        name = part.relative_to(file.parent).as_posix().encode()
        data = part.read_bytes()
        whole.update(b"%d:%s%d:%s" % (len(name), name, len(data), data))
    return whole.hexdigest()


def _file_of(path: Path) -> Path:
    return path / "__init__.py" if path.is_dir() else path


def public(module: ModuleType) -> dict[str, Any]:
    """Return the names and values of a module's namespace, without dunder names."""
    return {name: value for name, value in vars(module).items() if not name.startswith("__")}
