"""The HTML report: a single page that needs no network, no server and no other file."""

from collections.abc import Iterator
from pathlib import Path
from time import time
from typing import IO

from converter.jobs.record import Record
from converter.reports.catalog import Report
from converter.reports.html_data import BLOCK, COLUMNS, INTERNED, Words, details, row
from converter.reports.page_frame import PageParts, json_script, packed_script, write_page
from converter.reports.totals import Totals
from converter.reports.unsupported import Gaps
from converter.version import VERSION
from formats.core.plurals import count

SCRIPTS = (
    "show.js", "theme.js", "packed.js", "data.js", "state.js", "facets.js", "gaps.js", "plot.js",
    "layer_errors.js", "evidence.js", "artifact.js", "table.js", "page.js",
)  # fmt: skip
PARTS = PageParts(
    "converter.reports:page.html",
    ["converter.reports:page.css"],
    [f"converter.reports:{name}" for name in SCRIPTS],
)


def write(report: Report, path: Path) -> None:
    """Write a report.

    Raises:
        StorageError: It cannot be written.
    """
    write_page(path, PARTS, report.title, lambda file: _data(report, file))


def _data(report: Report, file: IO[str]) -> None:
    """Write the records block by block, rows and details; then the data that they share."""
    words, gaps, totals = Words(), Gaps(), Totals()
    for block in _blocks(report):
        rows = [row(record, words) for record in block]
        file.write(json_script("rows", rows))
        file.write(packed_script("details", [*map(details, block)]))
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
    file.write(json_script("shared", shared))
    whole = count("artifact", totals.artifacts)
    file.write(f"<noscript><p>{totals.converted} of {whole}: converted. ")
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
