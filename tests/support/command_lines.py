"""Command lines of `convert` as documents and recipes show them: parsed, and not run."""

from collections.abc import Sequence

import typer

from converter.cli import COMMANDS
from converter.cli.app import app


def check_command(words: Sequence[str], *, is_complete: bool = True) -> None:
    """Raise an AssertionError unless the command line can be parsed.

    Args:
        words: What follows the program's name.
        is_complete: Whether it has all of its arguments.
    """
    if {"--help", "--version"} & {*words}:
        return
    rest = list(words)
    name = rest.pop(0) if rest[0] in COMMANDS else "SOURCE"
    try:
        typer.main.get_command(app).commands[name].make_context(name, rest)  # type: ignore[attr-defined]
    except Exception as e:  # noqa: BLE001 - usage errors are classes of Typer's own
        is_named = not is_complete and "Missing parameter" in str(e)
        assert is_named, f"convert {' '.join(words)}: {e}"
