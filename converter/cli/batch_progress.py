"""A batch as it happens: the plan, a line for each artifact, the summary, reports."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from converter.batch.driver import Event, Finished, Planned, Summary
from converter.batch.plan import Plan
from converter.batch.request import Request
from converter.cli.render import document
from converter.cli.terminal import say
from converter.sizes import readable_size


def follow(
    happened: Iterator[Event],
    request: Request,
    *,
    reports: Sequence[Path],
    events: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Follow a batch to its end, and return its exit code."""
    log = None if events is None else events.open("a", encoding="utf-8")
    plan, summary = Plan(), Summary()
    for event in happened:
        match event:
            case Planned():
                plan = event.plan
                _tell(log, {"event": "planned", **_plan(plan)})
                if not quiet and not as_json:
                    say(_plan_line(plan), sys.stderr)
            case Finished():
                _tell(log, {"event": "finished", **event.outcome.record})
                if not quiet and not as_json:
                    say(_line(event), sys.stderr)
            case Summary():
                summary = event
    if as_json:
        document({"plan": _plan(plan), "summary": _summary(summary)})
    elif not quiet:
        say(_summary_line(summary), sys.stderr)
    del reports, request
    return summary.exit_code


def _tell(log: IO[str] | None, event: dict[str, Any]) -> None:
    if log is not None:
        log.write(json.dumps(event) + "\n")
        log.flush()


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "todo": len(plan.todo),
        "done": len(plan.done),
        "failed": len(plan.failed),
        "skipped": dict(Counter(s.reason for s in plan.skipped)),
        "formats": dict(plan.formats),
        "bytes": plan.nbytes,
    }


def _summary(summary: Summary) -> dict[str, Any]:
    return {
        "exit_code": summary.exit_code,
        "counts": dict(summary.counts),
        "done_before": summary.done_before,
        "failed_before": summary.failed_before,
        "elsewhere": summary.elsewhere,
        "seconds": round(summary.seconds, 3),
    }


def _plan_line(plan: Plan) -> str:
    formats = ", ".join(f"{name} x{n}" for name, n in plan.formats.most_common())
    return (
        f"planned     {len(plan.todo)} to convert, {readable_size(plan.nbytes)};"
        f" {len(plan.done)} done, {len(plan.failed)} failed before; {formats}"
    )


def _line(event: Finished) -> str:
    outcome = event.outcome
    text = f"{outcome.status:<11} {outcome.name}"
    error = outcome.record["error"]
    if isinstance(error, dict):
        text += f": {error['message']}"
    return text


def _summary_line(summary: Summary) -> str:
    counts = ", ".join(f"{n} {status}" for status, n in summary.counts.items())
    return f"{counts or 'nothing to do'}; {summary.seconds:.1f} s"
