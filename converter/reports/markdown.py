"""A summary in Markdown, as GitHub and GitLab show it: counts, failures, unsupported features.

It fits into GitHub's limit of 1 MiB for the summary of a step, so that long lists are truncated.
Spec: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands#adding-a-job-summary
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from converter.byte_sizes import readable_size
from converter.jobs.record import Record
from converter.reports.catalog import Report
from converter.reports.file import replacing
from converter.reports.outcomes import failure, is_converted
from converter.reports.totals import Totals
from converter.reports.unsupported import Gaps
from converter.version import VERSION
from formats.core.plurals import count

MOST = 50  # rows of a table
LONGEST = 300  # characters of a cell


@dataclass(slots=True)
class _Facts:
    """What the summary shows of the records, added one by one."""

    totals: Totals = field(default_factory=Totals)
    unsupported: Gaps = field(default_factory=Gaps)
    levels: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[str, str, str]] = field(default_factory=list)
    others: list[tuple[str, str]] = field(default_factory=list)

    def add(self, record: Record) -> None:
        self.totals.add(record)
        self.unsupported.add(record.unsupported)
        self.statuses["converted" if is_converted(record) else record.status] += 1
        if is_converted(record):
            self.levels[record.verification.reached] += 1
        elif record.exit_code is None:
            self.others.append((_name(record), _message(record) or record.status))
        else:
            why = failure(record) or record.status
            self.failed.append((_name(record), why, _message(record)))


def write(report: Report, path: Path) -> None:
    """Write a report.

    Raises:
        StorageError: It cannot be written.
    """
    facts = _Facts()
    for record in report.records():
        facts.add(record)
    with replacing(path) as file:
        file.writelines(f"{line}\n" for line in _lines(report, facts))


def _lines(report: Report, facts: _Facts) -> Iterator[str]:
    totals = facts.totals
    yield f"## {totals.converted} of {count('artifact', totals.artifacts)} converted"
    yield ""
    options = report.summary.get("options", {})
    about = [f"`{_code(report.title)}`", *(f"{k} {_cell(v)}" for k, v in options.items())]
    yield " · ".join([*about, f"{readable_size(totals.bytes)}", f"convert {VERSION}"])
    if (ended := report.summary.get("ended")) not in ("finished", None):
        yield ""
        yield f"**The run ended early: {_cell(ended)}**"
    yield from _table(
        "", ("outcome", "artifacts"), ((_cell(s), str(n)) for s, n in facts.statuses.most_common())
    )
    yield from _table(
        "Verified", ("level", "artifacts"),
        ((_cell(level), str(n)) for level, n in facts.levels.most_common()),
    )  # fmt: skip
    yield from _table("Failed", ("artifact", "why", "message"), facts.failed)
    yield from _table(
        "Not supported", ("what", "artifacts", "of which free once it and those above are"),
        ((_cell(one.what), str(one.models), str(one.unblocked))
         for one in facts.unsupported.rank_features()),
    )  # fmt: skip
    yield from _table("Not read or not begun", ("artifact", "reason"), facts.others)


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, or nothing if it has no rows."""
    found = list(rows)
    if not found:
        return
    yield ""
    if title:
        yield f"### {title}"
        yield ""
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in found[:MOST]:
        yield f"| {' | '.join(row)} |"
    if len(found) > MOST:
        yield ""
        yield f"… and {len(found) - MOST} more"


def _name(record: Record) -> str:
    return f"`{_code(record.entry or record.name)}`"


def _message(record: Record) -> str:
    message = "" if record.error is None else record.error.message
    return _cell(message.removeprefix(f"{record.source}: ").partition("\n")[0])


def _code(text: str) -> str:
    """Return text for a code span in a table: without backquotes, bars and line breaks."""
    return _cut(re.sub(r"[`|\s]+", " ", text))


def _cell(value: object) -> str:
    """Return text of which Markdown and HTML interpret nothing."""
    text = _cut(" ".join(str(value).split()))
    return re.sub(r"([\\`*_{}\[\]<>#|~@])", r"\\\1", text)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
