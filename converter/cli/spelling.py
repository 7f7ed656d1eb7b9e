"""Spell options in messages of the library as flags: ``opset=18`` becomes ``--opset 18``."""

import re
from functools import cache

from converter.cli.batch_parameters import REQUEST
from converter.cli.parameters import ROWS

# Options of single commands, which are in no table.
OWN = {"fast": "--fast", "html": "--html", "report": "--report", "out": "-o"}


def spell_flags(text: str) -> str:
    """Return a message with its options spelled as flags."""
    pattern, flags = _flags()
    return pattern.sub(lambda found: _flag(found, flags), text)


def _flag(found: re.Match[str], flags: dict[str, str]) -> str:
    flag = flags[found["name"]]
    if found["list"] is not None:
        return " ".join(f"{flag} {one}" for one in _QUOTED.findall(found["list"]))
    value = found["text"] if found["text"] is not None else found["word"]
    return flag if value in (None, "", "True") else f"{flag} {value}"


_QUOTED = re.compile(r"'([^']*)'")


@cache
def _flags() -> tuple[re.Pattern[str], dict[str, str]]:
    """Return a pattern of options in messages, and the flags by name.

    A field of a nested object may be named alone, unless a field of `Options` has that name.
    """
    flags = dict(OWN)
    rows = [row for row in (*ROWS, *REQUEST) if row.flags]
    for row in sorted(rows, key=lambda row: "." in row.field):
        flags.setdefault(row.field, row.flag)
        flags.setdefault(row.field.rpartition(".")[2], row.flag)
    flags["arch"] = flags["arch.factory"]
    names = "|".join(re.escape(name) for name in sorted(flags, key=len, reverse=True))
    # Not inside a word, a path or quotes; a value ends at the end of the word.
    value = r"'(?P<text>[^']*)'|\[(?P<list>'[^\]]*')\]|(?P<word>[\w.:/*+-]*\w)"
    return re.compile(rf"(?<![\w.('\"/-])(?P<name>{names})=(?:{value})?"), flags
