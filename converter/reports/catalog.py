"""THE table of reports: which module writes which suffix.

A module has ``write(report, path)``, and replaces the file whole.
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
    """What there is to report.

    Attributes:
        title: Of the whole: the registries.
        records: Of each artifact, in the order of names; read again at each call, so that
            they are never all in memory.
        skipped: Number of files that are no model, by reason.
        summary: Of the run: ``counts``, ``seconds``, ``exit_code`` and more as ``--json`` has them;
            ``options`` of the request; ``ended``: ``finished``, or what stopped it.
    """

    title: str
    records: Callable[[], Iterable[Record]]
    skipped: Mapping[str, int]
    summary: Mapping[str, Any]


def check(path: Path) -> None:
    """Refuse a file that no report is written to.

    Raises:
        UsageError: Its suffix is none of ours, or it is a folder.
        StorageError: It cannot stand there.
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
