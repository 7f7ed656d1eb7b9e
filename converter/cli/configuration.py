"""Read defaults of options from ``--config FILE``, or ``[tool.convert]`` in ./pyproject.toml."""

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from converter.cli.parameters import ROWS
from formats.errors import UsageError

# The author of the file may not be the user: options that run code are excluded.
REFUSED = frozenset(row.name for row in ROWS if not row.in_files)
KEYS = {row.flag.lstrip("-").replace("-", "_"): row.name for row in ROWS}  # spelled like the flags
NOT_SHARED = {"include", "out"}  # they differ in a batch: globs and DEST


def defaults(
    arguments: list[str], convert: Callable[..., None], batch: Callable[..., None]
) -> dict[str, Any] | None:
    """Return the defaults of options by command name.

    Args:
        arguments: The command line, which may name a file.
        convert: The command ``SOURCE``.
        batch: The command ``batch``: its own table is ``batch``, and it shares the other keys.

    Raises:
        UsageError: The file cannot be read, or sets an unknown option.
    """
    path, chosen = _file(arguments)
    if not chosen and not path.is_file():
        return None
    import tomllib

    try:
        values: Any = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        if not chosen:
            return None  # another tool will report a broken pyproject.toml
        raise UsageError(f"cannot be read: {e}", where=path) from e
    if not chosen:
        values = values.get("tool", {}).get("convert", {})
    own = values.pop("batch", {})
    if not isinstance(own, dict):
        raise UsageError("batch is not a table", where=path)
    shared = _known(values, convert, path)
    both = {name: shared[name] for name in shared.keys() & _names(batch) - NOT_SHARED}
    return {"SOURCE": shared, "batch": both | _known(own, batch, path)}


def _file(arguments: list[str]) -> tuple[Path, bool]:
    """Return the file, and whether the command line names it."""
    path, chosen = Path("pyproject.toml"), False
    for i, argument in enumerate(arguments):
        if argument == "--":
            break
        if argument == "--config" and i + 1 < len(arguments):
            path, chosen = Path(arguments[i + 1]), True
        elif argument.startswith("--config="):
            path, chosen = Path(argument.removeprefix("--config=")), True
    return path, chosen


def _known(values: Mapping[str, Any], command: Callable[..., None], path: Path) -> dict[str, Any]:
    """Return the defaults of a command by the names of its parameters."""
    given = {name.replace("-", "_"): value for name, value in values.items()}
    named = {KEYS.get(name, name): value for name, value in given.items()}
    if unknown := sorted(named.keys() - (_names(command) - REFUSED)):
        raise UsageError(f"sets the unknown option {unknown[0]!r}", where=path)
    for name, value in named.items():
        if isinstance(value, list) and _is_text(command, name):
            named[name] = ",".join(map(str, value))
    return named


def _names(command: Callable[..., None]) -> set[str]:
    return set(signature(command).parameters)


def _is_text(command: Callable[..., None], name: str) -> bool:
    """Return whether the option is a single string, with commas."""
    return getattr(signature(command).parameters[name].annotation, "__origin__", None) is str
