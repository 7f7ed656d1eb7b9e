"""Print to a terminal safely: names from an artifact can neither control nor break it.

Colour is for terminals only. NO_COLOR (https://no-color.org) turns it off, FORCE_COLOR on.
"""

import os
import sys
from shutil import get_terminal_size
from textwrap import wrap
from typing import TextIO

LABEL = 12  # columns of a step's name
STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def say(text: str, file: TextIO | None = None, *, label: str = "", style: str = "") -> None:
    """Print one line, and escape everything that is not plain printable text.

    A name from a hostile source may contain line breaks, escape sequences, marks that reverse the
    writing direction, or lone surrogates; and the terminal may not support all characters.

    Args:
        text: The line.
        file: Where to; default: standard output.
        label: Printed before the line, and painted.
        style: How: a key of `STYLES`.
    """
    out = sys.stdout if file is None else file
    head = paint(escape(label, out), style, out) if style else label
    print(head + escape(text, out), file=out, flush=out is sys.stderr)


def say_step(label: str, text: str, *, style: str = "") -> None:
    """Print a step on standard error: its name, and a text that is wrapped beside it."""
    for i, line in enumerate(fit(text, sys.stderr, LABEL)):
        say(line, sys.stderr, label=f"{'' if i else label:<{LABEL}}", style=style)


def paint(text: str, style: str, file: TextIO | None = None) -> str:
    """Return text in a style, if the file is a terminal with colours."""
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if text.strip() and has_colour(file) else text


def has_colour(file: TextIO | None = None) -> bool:
    """Return whether a file, by default standard output, shows colours."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(sys.stdout if file is None else file)


def is_terminal(file: TextIO) -> bool:
    """Return whether a file is a terminal that moves its cursor and paints."""
    return file.isatty() and os.environ.get("TERM") != "dumb"


def overwrite(text: str) -> None:
    """Replace the last line of standard error, which must be a terminal; "" erases it."""
    line = shorten(escape(text), get_terminal_size().columns - 1)
    print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)


def shorten(text: str, columns: int) -> str:
    """Return the beginning of a text that fits; wide characters take two columns."""
    if len(text) <= columns and text.isascii():
        return text
    from unicodedata import east_asian_width

    used = 0
    for i, character in enumerate(text):
        used += 1 + (east_asian_width(character) in "WF")
        if used > columns:
            return text[:i]
    return text


def keep_end(text: str, columns: int) -> str:
    """Return the end of a text that fits, which of a path says the most."""
    if shorten(text, columns) == text:
        return text
    return "…" + shorten(text[::-1], columns - 1)[::-1]


def fit(text: str, file: TextIO, indent: int) -> list[str]:
    """Return a text as lines that fit a terminal beside an indent; elsewhere it is one line."""
    if not file.isatty():
        return [text]
    width = max(get_terminal_size().columns - indent, 20)
    return wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def escape(text: str, file: TextIO | None = None) -> str:
    """Return a line as a terminal, by default that of standard error, can show it."""
    encoding = (sys.stderr if file is None else file).encoding or "utf-8"
    line = text if text.isprintable() else "".join(map(_spell, text))
    return line.encode(encoding, "backslashreplace").decode(encoding)


def _spell(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
