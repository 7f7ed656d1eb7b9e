"""THE table of reports: the module that writes each suffix.

A module has ``write(report, path)``, which replaces the file atomically.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

from converter.jobs.record import Record
from converter.reports import file
from formats.errors import UsageError


class Kind(NamedTuple):
    """One row.

    Attributes:
        suffix: Of the file.
        module: Name of the module in `converter.reports`, imported when first needed.
    """

    suffix: str
    module: str


KINDS = (
    Kind(".jsonl", "json_lines"),  # one record a line
    Kind(".html", "html_page"),  # for people, in one file
    Kind(".xml", "junit_xml"),  # for CI
    Kind(".md", "markdown"),  # for summaries of CI jobs
)


@dataclass(frozen=True, slots=True)
class Report:
    """The contents of a report.

    Attributes:
        title: Title of the report: the registries.
        records: Returns the record of each artifact, ordered by name; reads them at each call, so
            that they are never all in memory.
        skipped: Number of skipped non-model files, by reason.
        summary: Facts of the run: ``counts``, ``seconds``, ``exit_code`` and more as in ``--json``;
            ``options`` of the request; ``ended``: ``finished``, or what stopped it.
    """

    title: str
    records: Callable[[], Iterable[Record]]
    skipped: Mapping[str, int]
    summary: Mapping[str, Any]


def check(path: Path) -> None:
    """Refuse a path to which no report can be written.

    Raises:
        UsageError: Its suffix is not supported, or it is a folder.
        StorageError: Its folder is missing or cannot be written.
    """
    suffixes = [kind.suffix for kind in KINDS]
    if path.suffix.lower() not in suffixes:
        expected = f"a file ending in {', '.join(suffixes)}"
        raise UsageError(f"report={str(path)!r}", expected=expected)
    file.check(path)


def write(report: Report, path: Path) -> None:
    """Write a report.

    Raises:
        StorageError: It cannot be written.
    """
    (kind,) = (kind for kind in KINDS if kind.suffix == path.suffix.lower())
    module = import_module(f"converter.reports.{kind.module}")
    cast(Callable[[Report, Path], None], module.write)(report, path)
