"""Print to a terminal safely: names from an artifact can neither control nor break it."""

import sys
from shutil import get_terminal_size
from typing import TextIO


def say(text: str, file: TextIO | None = None) -> None:
    """Print one line, and escape everything that is not plain printable text.

    A name from a hostile source may contain line breaks, escape sequences, marks that reverse the
    writing direction, or lone surrogates; and the terminal may not support all characters.
    """
    out = sys.stdout if file is None else file
    print(escape(text, out), file=out, flush=out is sys.stderr)


def overwrite(text: str) -> None:
    """Replace the last line of standard error, which must be a terminal; "" erases it."""
    width = get_terminal_size().columns - 1
    print(f"\r{escape(text)[:width]}\x1b[K", end="", file=sys.stderr, flush=True)


def escape(text: str, file: TextIO | None = None) -> str:
    """Return a line as a terminal, by default that of standard error, can show it."""
    encoding = (sys.stderr if file is None else file).encoding or "utf-8"
    line = text if text.isprintable() else "".join(map(_spell, text))
    return line.encode(encoding, "backslashreplace").decode(encoding)


def _spell(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
