"""Options in messages of the library, spelled as flags: ``opset=18`` becomes ``--opset 18``."""

import re
from functools import cache

from converter.cli.batch import REQUEST
from converter.cli.parameters import ROWS

# Options of single commands, which no table has.
OWN = {"run": "--run", "fast": "--fast", "events": "--events", "report": "--report"}


def spell_flags(text: str) -> str:
    """Return a message with the flags of the options that it names."""
    pattern, flags = _flags()
    return pattern.sub(lambda found: _flag(found, flags), text)


def _flag(found: re.Match[str], flags: dict[str, str]) -> str:
    value = found["text"] if found["text"] is not None else found["word"]
    flag = flags[found["name"]]
    return flag if value in (None, "", "True") else f"{flag} {value}"


@cache
def _flags() -> tuple[re.Pattern[str], dict[str, str]]:
    """Return what an option looks like in a message, and its flag by name.

    A field of a nested object may be named alone, unless a field of `Options` has that name.
    """
    flags = dict(OWN)
    for row in sorted((*REQUEST, *ROWS), key=lambda row: "." not in row.field):
        if row.flags:
            flags[row.field.rpartition(".")[2]] = row.flag
    # Of two rows of a field, the first one is that of `convert`.
    flags |= {row.field: row.flag for row in (*REQUEST, *reversed(ROWS)) if row.flags}
    flags["arch"] = flags["arch.factory"]
    flags["out"] = flags["destination"] = "-o"
    names = "|".join(re.escape(name) for name in sorted(flags, key=len, reverse=True))
    # Not inside a word, a path, code or a quotation; the value ends where the word does.
    return re.compile(
        rf"(?<![\w.('\"/-])(?P<name>{names})=(?:'(?P<text>[^']*)'|(?P<word>[\w.:/\[\]*+-]*\w))?"
    ), flags
