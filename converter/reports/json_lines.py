"""Records as JSON lines: one artifact per line, with every key of `converter.jobs.record.Record`.

Keys are in the same order in every line. NaN and infinities, which JSON cannot represent, are null.
"""

import json
from pathlib import Path
from typing import Any

from converter.reports.catalog import Report
from converter.reports.file import replacing


def write(report: Report, path: Path) -> None:
    """Write a report.

    Raises:
        StorageError: It cannot be written.
    """
    with replacing(path) as file:
        for record in report.records():
            file.write(strict(record.to_json()) + "\n")


def strict(value: Any) -> str:
    """Return a value as JSON, in ASCII, on one line."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return None
    return value
