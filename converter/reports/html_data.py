"""Data of the HTML report for each record: a short row for the table, and details shown on demand.

Rows are arrays of the values that tables, filters and totals show, and are in the page as JSON.
Details of many artifacts are packed in one gzip stream: the browser unpacks a block when one of its
artifacts is opened.
"""

from dataclasses import dataclass, field
from typing import Any

from converter import safety
from converter.jobs.record import Record
from converter.reports.outcomes import (
    failure,
    made_by,
    outcome,
    worst_difference,
)
from formats.core.bundle import SafetyFinding

BLOCK = 128  # artifacts whose details are packed together
LONGEST_WORD = 200  # characters of a format, a version, a device, an unsupported feature
SHOWN_ERROR = 240  # characters of an error in a row
LONGEST = 4000  # characters of a string in the details
MOST = 100  # entries of a list in the details; reports as JSON lines have all of them

# Columns of a row, in order; `page/data.js` maps them back to these names.
COLUMNS = (
    "name", "outcome", "failure", "format", "made", "devices", "verified", "bytes", "seconds",
    "error", "gaps", "message", "weights",
)  # fmt: skip
INTERNED = ("outcome", "failure", "format", "made", "verified", "devices", "gaps")
# Steps that the details show elsewhere.
SHOWN_ELSEWHERE = ("warning", "normalised", "renamed", "left out")


@dataclass(slots=True)
class Words:
    """Strings that many rows share, by the number that represents them in rows."""

    numbers: dict[str, int] = field(default_factory=dict)

    def of(self, text: str) -> int:
        """Return the number of a string; add new strings."""
        return self.numbers.setdefault(_short(text, LONGEST_WORD), len(self.numbers))


def row(record: Record, words: Words) -> list[Any]:
    """Return an artifact's row."""
    message = "" if record.error is None else record.error.message
    return [
        record.name,
        words.of(outcome(record)),
        words.of(failure(record)),
        words.of(record.format or ""),
        words.of(made_by(record)),
        [words.of(device) for device in record.devices],
        words.of(record.verification.reached),
        record.bytes,
        record.seconds,
        worst_difference(record),
        [words.of(one.what) for one in record.unsupported],
        _short(message.removeprefix(f"{record.source}: "), SHOWN_ERROR),
        (record.weights_digest or "")[:16],
    ]


def details(record: Record) -> dict[str, Any]:
    """Return the other facts of an artifact, with long strings and lists truncated."""
    facts = record.to_json()
    kept = {
        key: facts[key]
        for key in (
            "source", "output", "error", "exit_code", "status", "variant", "evidence", "recorded",
            "devices", "distribution", "source_digest", "weights_digest", "tensors", "weight_bytes",
            "normalisations", "left_out", "gaps", "findings", "warnings", "graphs", "attempts",
            "started", "host",
        )
    }  # fmt: skip
    kept["steps"] = [step for step in facts["steps"] if step["name"] not in SHOWN_ELSEWHERE]
    # Findings are also reported as warnings while a conversion runs.
    known = {safety.describe(SafetyFinding(**one)) for one in record.findings}
    kept["warnings"] = [text for text in record.warnings if text not in known]
    found = record.verification
    kept["verification"] = {
        "weights": found.weights,
        "graphs": {name: one for name, one in found.graphs.items() if one is not None},
    }
    return {key: shorten(value) for key, value in kept.items() if value not in (None, [], {})}


def shorten(value: Any) -> Any:
    """Return a JSON value with long strings, lists and objects truncated, which it shows."""
    if isinstance(value, str):
        return _short(value, LONGEST)
    if isinstance(value, list):
        rest = len(value) - MOST
        return [*map(shorten, value[:MOST]), *([{"more": rest}] if rest > 0 else [])]
    if isinstance(value, dict):
        kept = {key: shorten(one) for key, one in [*value.items()][:MOST]}
        return kept | ({"…": f"{len(value) - MOST} more"} if len(value) > MOST else {})
    return value


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
