"""The HTML report: a single page that needs no network, no server and no other file.

`page/` has its parts: the frame, the style, and the scripts in the order in which they run. Values
from records are data, never markup: the page holds them as JSON without any ``<``, and the scripts
insert them as text. The page's content security policy forbids it to load or send anything, and to
run any other script.
"""

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from time import time
from typing import IO

from converter.jobs.record import Record
from converter.reports.catalog import Report
from converter.reports.file import replacing
from converter.reports.html_data import BLOCK, COLUMNS, INTERNED, Words, details, pack_details, row
from converter.reports.json_lines import strict
from converter.reports.totals import Totals
from converter.reports.unsupported import Gaps
from converter.version import VERSION

SCRIPTS = (
    "data.js", "show.js", "state.js", "facets.js", "gaps.js", "plot.js", "artifact.js", "table.js",
    "page.js",
)  # fmt: skip
# These escapes have the same meaning in JSON, and no meaning to an HTML parser.
HARMLESS = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def write(report: Report, path: Path) -> None:
    """Write a report.

    Raises:
        StorageError: It cannot be written.
    """
    style, script = _part("page.css"), "\n".join(map(_part, SCRIPTS))
    begin, _, rest = _part("page.html").partition("<!-- data -->")
    frame = {
        "title": escape(_plain(report.title)),
        "style": style,
        "script": script,
        "style_hash": _hash(style),
        "script_hash": _hash(script),
    }
    with replacing(path) as file:
        file.write(Template(begin).substitute(frame))
        _data(report, file)
        file.write(Template(rest).substitute(frame))


def _data(report: Report, file: IO[str]) -> None:
    """Write the records block by block, rows and details; then the data that they share."""
    words, gaps, totals = Words(), Gaps(), Totals()
    for block in _blocks(report):
        rows = [row(record, words) for record in block]
        file.write(_json_script("rows", rows))
        file.write(
            f'<script type="text/plain" class="details">{pack_details([*map(details, block)])}'
        )
        file.write("</script>\n")
        for record in block:
            gaps.add(record.unsupported)
            totals.add(record)
    shared = {
        "title": report.title,
        "written": round(time()),
        "tool": VERSION,
        "summary": report.summary,
        "skipped": report.skipped,
        "columns": COLUMNS,
        "interned": INTERNED,
        "block": BLOCK,
        "total": totals.artifacts,
        "converted": totals.converted,
        "equal": totals.equal,
        "compared": totals.compared,
        "bytes": totals.bytes,
        "seconds": totals.seconds,
        "words": [*words.numbers],
        "blocked": gaps.blocked,
        "gaps": [
            [words.of(gap.what), gap.models, gap.count, gap.unblocked]
            for gap in gaps.rank_features()
        ],
        "copies": totals.copies(),
    }
    file.write(_json_script("shared", shared))
    file.write(f"<noscript><p>{totals.converted} of {totals.artifacts} artifacts are converted. ")
    file.write("The rest of this page needs JavaScript.</p></noscript>\n")


def _blocks(report: Report) -> Iterator[list[Record]]:
    block: list[Record] = []
    for record in report.records():
        block.append(record)
        if len(block) == BLOCK:
            yield block
            block = []
    if block:
        yield block


def _json_script(name: str, value: object) -> str:
    text = strict(value).translate(HARMLESS)
    return f'<script type="application/json" class="{name}">{text}</script>\n'


def _plain(text: str) -> str:
    """Return a string with lone surrogates escaped, so that it can be encoded as UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def _part(name: str) -> str:
    return files("converter.reports").joinpath("page", name).read_text("utf-8")


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()
