"""Print to a terminal safely: names from an artifact can neither control nor break it."""

import sys
from typing import TextIO


def say(text: str, file: TextIO | None = None) -> None:
    """Print one line, and escape everything that is not plain printable text.

    A name from a hostile source may contain line breaks, escape sequences, marks that reverse the
    writing direction, or lone surrogates; and the terminal may not support all characters.
    """
    out = sys.stdout if file is None else file
    line = text if text.isprintable() else "".join(map(_spell, text))
    encoding = out.encoding or "utf-8"
    print(
        line.encode(encoding, "backslashreplace").decode(encoding),
        file=out,
        flush=out is sys.stderr,
    )


def _spell(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
