"""Records as JUnit XML, for the test reports of Jenkins, GitLab and GitHub Actions.

A suite is a format, a test an artifact, by its name in the registry. A failure is the artifact's
fault, an error the machine's or ours; artifacts that were not begun, and entries that are not read,
are skipped. The evidence is each test's output.

Spec: https://github.com/jenkinsci/xunit-plugin (src/main/resources/org/jenkinsci/plugins/xunit/
types/model/xsd/junit-10.xsd), whose order of elements is kept.
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO
from xml.sax.saxutils import escape, quoteattr

from converter.jobs.record import Record, RecordedError
from converter.reports.catalog import Report
from converter.reports.file import real, replacing
from converter.reports.outcomes import ARTIFACTS, failure, is_converted, made_by
from converter.version import VERSION

LONGEST = 100_000  # characters of one element; CI systems load the whole file
# Characters that XML 1.0 forbids, escaped or not.
NO_CHARACTER = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(slots=True)
class _Suite:
    """The tests of one format. Their XML is spooled to a file, because the counts precede it."""

    text: IO[str]
    counts: dict[str, int] = field(
        default_factory=lambda: {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    )
    seconds: float = 0.0
    started: float | None = None


def write(report: Report, path: Path) -> None:
    """Write a report.

    Raises:
        StorageError: It cannot be written.
    """
    with replacing(path) as file, ExitStack() as spooled:
        suites: dict[str, _Suite] = {}
        for record in report.records():
            name = str(record.format or "unknown")
            if name not in suites:
                text = spooled.enter_context(
                    TemporaryFile("w+", encoding="utf-8", dir=real(path).parent)
                )
                suites[name] = _Suite(text)
            _add(suites[name], record, name)
        file.write('<?xml version="1.0" encoding="UTF-8"?>\n')
        totals: dict[str, object] = {
            key: sum(suite.counts[key] for suite in suites.values())
            for key in ("tests", "failures", "errors")
        }
        seconds = sum(suite.seconds for suite in suites.values())
        about = {"name": report.title, **totals, "time": f"{seconds:.3f}"}
        file.write(_tag("testsuites", about))
        for name, suite in suites.items():
            file.write(_tag("testsuite", {"name": f"convert {name}", **_about(suite)}))
            file.writelines(_properties(report))
            suite.text.seek(0)
            shutil.copyfileobj(suite.text, file)
            file.write("</testsuite>\n")
        file.write("</testsuites>\n")


def _about(suite: _Suite) -> dict[str, object]:
    found: dict[str, object] = {**suite.counts, "time": f"{suite.seconds:.3f}"}
    if suite.started is not None:
        begun = datetime.fromtimestamp(suite.started, UTC)
        found["timestamp"] = begun.strftime("%Y-%m-%dT%H:%M:%S")
    return found


def _properties(report: Report) -> Iterator[str]:
    yield "<properties>\n"
    yield _tag("property", {"name": "convert", "value": VERSION}, empty=True)
    for key, value in report.summary.get("options", {}).items():
        yield _tag("property", {"name": key, "value": value}, empty=True)
    yield "</properties>\n"


def _add(suite: _Suite, record: Record, name: str) -> None:
    suite.counts["tests"] += 1
    suite.seconds += record.seconds
    begun = [t for t in (suite.started, record.started) if t is not None]
    suite.started = min(begun, default=None)
    kind = _kind(record)
    text = suite.text
    about = {
        "classname": f"convert.{name}",
        "name": record.entry or record.name,
        "time": f"{record.seconds:.3f}",
    }
    text.write(_tag("testcase", about))
    if kind is not None:
        suite.counts[{"failure": "failures", "error": "errors"}.get(kind, kind)] += 1
        text.writelines(_fault(kind, record))
    shown = _text("\n".join(evidence(record)))
    text.write(f"<system-out>{shown}</system-out>\n</testcase>\n")


def _kind(record: Record) -> str | None:
    if is_converted(record):
        return None
    if record.exit_code is None:
        return "skipped"
    return "failure" if record.exit_code in ARTIFACTS else "error"


def _fault(kind: str, record: Record) -> Iterator[str]:
    if kind == "skipped":
        message = "not begun" if record.error is None else record.error.message
        yield _tag("skipped", {"message": message[:1000]}, empty=True)
        return
    error = record.error or RecordedError("", record.status)
    first = error.message.partition("\n")[0]
    message = f"exit {record.exit_code}, {failure(record)}: {first}"
    about = {"message": message[:1000], "type": error.type or record.status}
    yield _tag(kind, about).rstrip("\n")
    yield f"{_text(error.message)}</{kind}>\n"


def evidence(record: Record) -> Iterator[str]:
    """Yield the facts about an artifact and its conversion, line by line."""
    yield f"source      {record.source}"
    if record.output:
        yield f"output      {record.output}"
    if made_by(record):
        yield f"made by     {made_by(record)}"
    for step in record.steps:
        time = "" if step.seconds is None else f"  ({step.seconds} s)"
        yield f"{step.name:<11} {step.text}{time}"
    for one in record.unsupported:
        yield f"unsupported {one.what}, {one.count} times"
    for signature, found in record.verification.graphs.items():
        for measure in found["outputs"]:
            verdict = "agrees" if measure["passed"] else "differs"
            of = f"{signature}: " if signature else ""
            yield (
                f"{verdict:<11} {of}{measure['name']}: max abs {measure['max_abs']},"
                f" max rel {measure['max_rel']}, allowed {measure['atol']} + {measure['rtol']} rel"
            )
    yield f"verified    {record.verification.reached}"


def _tag(element: str, attributes: Mapping[str, object], *, empty: bool = False) -> str:
    named = "".join(f" {key}={quoteattr(_clean(str(v)))}" for key, v in attributes.items())
    return f"<{element}{named}{'/' if empty else ''}>\n"


def _text(text: str) -> str:
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}… and {len(text) - LONGEST} characters more"
    return escape(_clean(text))


def _clean(text: str) -> str:
    """Replace characters that XML forbids by Python escapes."""
    return NO_CHARACTER.sub(lambda found: ascii(found[0])[1:-1], text)
