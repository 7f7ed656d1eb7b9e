"""What the page holds of each record: a short row for its table, and the rest for when it opens.

Rows are arrays of what tables, filters and totals show, and are in the page as they are. Details
are packed, many artifacts in one gzip stream: a browser unpacks a block when one of them is opened.
"""

import gzip
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from converter.reports.json_lines import strict
from converter.reports.outcomes import failure, made_by, outcome

BLOCK = 128  # artifacts whose details are packed together
LONGEST_WORD = 200  # characters of a format, a version, a device, a gap
SHOWN_ERROR = 240  # characters of an error in a row
LONGEST = 4000  # characters of a text in the details
MOST = 100  # entries of a list in the details; reports as JSON lines have all of them

REDUCED = ("in fp16", "in bf16")  # ends of the names that comparisons with full precision have

# What a row holds, in this order; `page/data.js` gives them these names again.
COLUMNS = (
    "name", "outcome", "failure", "format", "made", "devices", "verified", "bytes", "seconds",
    "error", "gaps", "message", "weights",
)  # fmt: skip
INTERNED = ("outcome", "failure", "format", "made", "verified", "devices", "gaps")
# Steps that the details show elsewhere.
TOLD = ("warning", "normalised", "left out")


@dataclass(slots=True)
class Words:
    """Texts that many rows share, each by the number that stands for it in rows."""

    numbers: dict[str, int] = field(default_factory=dict)

    def of(self, text: str) -> int:
        """Return the number of a text."""
        return self.numbers.setdefault(_short(text, LONGEST_WORD), len(self.numbers))


def row(record: Mapping[str, Any], words: Words) -> list[Any]:
    """Return an artifact's row."""
    error = record["error"] or {"message": ""}
    message = error["message"].removeprefix(f"{record['source']}: ")
    return [
        record["name"],
        words.of(outcome(record)),
        words.of(failure(record)),
        words.of(record["format"] or ""),
        words.of(made_by(record)),
        [words.of(device) for device in record["devices"]],
        words.of(record["verification"]["reached"]),
        record["bytes"],
        record["seconds"],
        _worst(record["verification"]["graphs"]),
        [words.of(gap["what"]) for gap in record["gaps"]],
        _short(message, SHOWN_ERROR),
        (record["weights_digest"] or "")[:16],
    ]


def details(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rest of what is known of an artifact, cut where it is very long."""
    kept = {
        key: record[key]
        for key in (
            "source", "output", "error", "exit_code", "status", "variant", "evidence", "recorded",
            "devices", "distribution", "source_digest", "weights_digest", "tensors", "weight_bytes",
            "normalisations", "left_out", "gaps", "findings", "warnings", "graphs", "attempts",
            "started", "host",
        )
    }  # fmt: skip
    kept["steps"] = [step for step in record["steps"] if step["name"] not in TOLD]
    # Findings are said as warnings, too, while a conversion runs.
    told = {f"{one['kind']}: {one['subject']} in {one['where']}" for one in record["findings"]}
    kept["warnings"] = [text for text in record["warnings"] if text not in told]
    found = record["verification"]
    kept["verification"] = {
        "weights": found["weights"],
        "graphs": {name: one for name, one in found["graphs"].items() if one is not None},
    }
    return {key: _cut(value) for key, value in kept.items() if value not in (None, [], {})}


def packed(block: list[dict[str, Any]]) -> str:
    """Return details of several artifacts, packed, in letters that a page can hold."""
    return b64encode(gzip.compress(strict(block).encode(), 6, mtime=0)).decode()


def _worst(graphs: Mapping[str, Any]) -> float | None:
    """Return the largest difference of all outputs, in parts of their scales.

    What a lower precision costs is not among them: it is no difference from the source.
    """
    found = [
        measure["max_rel"]
        for signature, report in graphs.items()
        if report and not signature.endswith(REDUCED)
        for measure in report["outputs"]
        if measure["max_rel"] is not None
    ]
    return max(found, default=None)


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return _short(value, LONGEST)
    if isinstance(value, list):
        rest = len(value) - MOST
        return [*map(_cut, value[:MOST]), *([{"more": rest}] if rest > 0 else [])]
    if isinstance(value, dict):
        kept = {key: _cut(one) for key, one in [*value.items()][:MOST]}
        return kept | ({"…": f"{len(value) - MOST} more"} if len(value) > MOST else {})
    return value


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
