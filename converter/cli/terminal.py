"""The way out to a terminal: what an artifact calls its parts can neither steer nor break it."""

import sys
from typing import TextIO


def say(text: str, file: TextIO | None = None) -> None:
    """Print one line, with everything in it that is no plain printable text spelled out.

    A name from a hostile source may hold line breaks, escape sequences, marks that reverse the
    direction of writing, or lone surrogates; and the terminal may not know all characters.
    """
    out = sys.stdout if file is None else file
    line = text if text.isprintable() else "".join(map(_spelled, text))
    encoding = out.encoding or "utf-8"
    print(
        line.encode(encoding, "backslashreplace").decode(encoding),
        file=out,
        flush=out is sys.stderr,
    )


def _spelled(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
