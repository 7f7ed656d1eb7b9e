"""THE table of reports: the module that writes each suffix.

A module has ``write(report, path)``, which replaces the file atomically.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from converter.jobs.record import Record
from converter.reports import file
from formats.errors import UsageError

MODULES = {".jsonl": "json_lines", ".html": "html_page", ".xml": "junit_xml"}


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
    if path.suffix.lower() not in MODULES:
        raise UsageError(f"report={str(path)!r}", expected=f"a file ending in {', '.join(MODULES)}")
    file.check(path)


def write(report: Report, path: Path) -> None:
    """Write a report.

    Raises:
        StorageError: It cannot be written.
    """
    module = import_module(f"converter.reports.{MODULES[path.suffix.lower()]}")
    cast(Callable[[Report, Path], None], module.write)(report, path)
