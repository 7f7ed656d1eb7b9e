"""Recognise a command that is misspelled: its name is taken for a source."""

from difflib import get_close_matches
from pathlib import Path

from formats.errors import UsageError


def check_command(word: str) -> None:
    """Raise if a first source does not exist and resembles a command.

    Raises:
        UsageError: It does.
    """
    from converter.cli import COMMANDS

    if not word.isalpha() or Path(word).exists():
        return
    near = get_close_matches(word.lower(), COMMANDS, n=1, cutoff=0.7)
    if near:
        raise UsageError(
            "is no command, and there is no such file or folder",
            where=word,
            hint=f"Did you mean `convert {near[0]}`?",
        )
