"""Show the progress of a batch: plan, a bar or a line per artifact, summary, reports."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import IO, Any

from converter.batch.driver import Event, Finished, Planned, Summary, Waiting
from converter.batch.plan import BatchPlan
from converter.batch.request import Request
from converter.byte_sizes import readable_size
from converter.cli import batch_reports
from converter.cli.progress import draw, show_progress
from converter.cli.render import document
from converter.cli.spelling import spell_flags
from converter.cli.terminal import is_terminal, overwrite, say, say_step
from converter.jobs.job import GOOD
from formats.core.plurals import count, list_counts
from formats.errors import ConvertError, StorageError

INTERRUPTED = 130
DAMAGED = 10  # damaged outputs that are described
REASONS = 3  # reasons for skipping that are named


def follow(
    happened: Iterator[Event],
    request: Request,
    *,
    reports: Sequence[Path],
    events: Path | None,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Follow a batch to its end, and return its exit code.

    Raises:
        StorageError: The file of events, or a report, cannot be written.
    """
    plan: BatchPlan | None = None
    summary = Summary()
    shown = _Lines(enabled=not quiet and not as_json)
    with _log(events) as log, closing(happened):  # type: ignore[type-var]  # a generator
        try:
            for event in happened:
                match event:
                    case Planned():
                        plan = event.plan
                        _tell(log, {"event": "planned", **_plan(plan)})
                        shown.show_plan(plan)
                        if dry_run and not as_json:
                            _list(plan)
                    case Finished():
                        summary.counts = event.counts
                        _tell(log, {"event": "finished", **event.outcome.record.to_json()})
                        shown.show_finished(event)
                    case Waiting():
                        holders = list(event.holders)
                        about = {"count": event.count, "holders": holders}
                        _tell(log, {"event": "waiting", **about})
                        shown.show_waiting(event)
                    case Summary():
                        summary = event
                        _tell(log, {"event": "ended", **_summary(summary)})
        except KeyboardInterrupt:
            summary.exit_code = INTERRUPTED
            _tell(log, {"event": "interrupted", **_summary(summary)})
        except ConvertError as e:
            if plan is not None:  # what is known of it so far
                batch_reports.write(reports, plan, request, _summary(summary), ended=str(e))
            raise
    if plan is None:  # interrupted before there was one
        return summary.exit_code
    ended = "dry run" if dry_run else "finished"
    ended = "interrupted" if summary.exit_code == INTERRUPTED else ended
    batch_reports.write(reports, plan, request, _summary(summary), ended=ended)
    if dry_run:
        if as_json:
            jobs = [{"source": job.source, "name": job.name} for job in plan.todo]
            document({"plan": _plan(plan) | {"jobs": jobs}})
        return 0
    shown.show_end(summary)
    if as_json:
        document({"plan": _plan(plan), "summary": _summary(summary)})
    else:
        for path in reports:
            say(str(path))
    return summary.exit_code


def _list(plan: BatchPlan) -> None:
    """Print what a batch would do, one artifact a line."""
    for job in plan.todo:
        why = f" ({plan.damaged[job.name]})" if job.name in plan.damaged else ""
        say(f"{job.source} -> {job.name}{why}")


class _Lines:
    """Output on standard error: a bar and the failures on a terminal, else every line."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._bar = enabled and is_terminal(sys.stderr)
        self._shown = 0.0

    def show_plan(self, plan: BatchPlan) -> None:
        if not self._enabled:
            return
        found = count("artifact", plan.formats.total())
        found += f": {list_counts(dict(plan.formats.most_common()))}" if plan.formats else ""
        say_step("found", found)
        named = {one.source for one in plan.unread.values()}
        reasons = Counter(one.reason for one in plan.skipped if one.source not in named)
        if reasons:
            most = dict(reasons.most_common(REASONS))
            text = list_counts(most)
            others = reasons.total() - sum(most.values())
            text += f", {count('other', others)}" if others else ""
            say_step("skipped", text)
        text = f"{len(plan.todo)} to convert, {readable_size(plan.nbytes)}"
        text += f"; {len(plan.done)} done already" if plan.done else ""
        text += f"; {len(plan.failed)} failed before (--retry-failed)" if plan.failed else ""
        say_step("planned", text)
        for override in plan.unused:
            say_step("warning", f"no artifact is named {' or '.join(override.names)}")
        for name, one in islice(sorted(plan.unread.items()), DAMAGED):
            say_step("not read", f"{name}: {one.reason}")
        if len(plan.unread) > DAMAGED:
            say_step("not read", f"and {len(plan.unread) - DAMAGED} more")
        for name, why in islice(plan.damaged.items(), DAMAGED):
            say_step("again", f"{name}: {why}")
        if len(plan.damaged) > DAMAGED:
            say_step("again", f"and {len(plan.damaged) - DAMAGED} more")

    def show_finished(self, event: Finished) -> None:
        if not self._enabled:
            return
        failed = event.outcome.status not in GOOD
        if failed or not self._bar:
            self._clear()
            say_step(event.outcome.status, _describe(event))
        if self._bar:
            self._show(event)

    def show_waiting(self, event: Waiting) -> None:
        if not self._enabled:
            return
        self._clear()
        by = "; ".join(event.holders) or "another driver"
        say_step("waiting", f"for {count('artifact', event.count)} in work elsewhere: {by}")

    def show_end(self, summary: Summary) -> None:
        if not self._enabled:
            return
        self._clear()
        counts = ", ".join(f"{n} {status}" for status, n in summary.counts.most_common())
        text = counts or "nothing to do"
        text += f"; {summary.done_before} done before" if summary.done_before else ""
        text += f"; {summary.failed_before} failed before" if summary.failed_before else ""
        text += f"; {summary.elsewhere} by another driver" if summary.elsewhere else ""
        text += f"; {summary.left} left to do" if summary.left else ""
        text += f"; {summary.unread} of {summary.entries} not read" if summary.unread else ""
        if summary.exit_code == INTERRUPTED:
            say_step("interrupted", f"{text}; run it again to go on")
        else:
            say_step("ended", f"{text}; {summary.seconds:.1f} s")
        if summary.linked is not None:
            size = readable_size(summary.linked.nbytes)
            say_step("linked", f"{count('file', summary.linked.files)}, {size} stored once")
            for problem in summary.linked.problems:
                say_step("not linked", problem)

    def _show(self, event: Finished) -> None:
        now = monotonic()
        if now - self._shown < 0.1:
            return
        self._shown = now
        done = event.through
        rate = done / event.seconds if event.seconds else 0.0
        left = (event.total - done) / rate if rate else 0.0
        failed = sum(n for status, n in event.counts.items() if status not in GOOD)
        bar = f"{draw(done, event.total)} {done}/{event.total}"
        facts = [f"{failed} failed"] if failed else []
        show_progress(bar, [*facts, f"{_time(left)} left", f"{rate:.1f}/s"], event.outcome.name)

    def _clear(self) -> None:
        if self._bar and self._shown:
            overwrite("")
            self._shown = 0.0


def _describe(event: Finished) -> str:
    record = event.outcome.record
    text = event.outcome.name
    if record.error is not None:
        message = spell_flags(record.error.message)
        return f"{text}: exit {event.outcome.exit_code}: {message}"
    if record.moved_from:
        text += f"  from {record.moved_from}"
    if event.outcome.status == "done":
        verified = record.verification.reached
        text += f"  {record.format}, verified: {verified}, {record.seconds} s"
    return text


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


# -- for machines ---------------------------------------------------------------------------------


def _log(path: Path | None) -> Any:
    if path is None:
        return nullcontext()
    if str(path) == "-":
        return nullcontext(sys.stdout)
    try:
        return path.open("a", encoding="utf-8")
    except OSError as e:
        raise StorageError.writing(path, e) from e


def _tell(log: IO[str] | None, event: Mapping[str, Any]) -> None:
    if log is not None:
        log.write(json.dumps(event) + "\n")
        log.flush()


def _plan(plan: BatchPlan) -> dict[str, Any]:
    return {
        "todo": len(plan.todo),
        "done": len(plan.done),
        "failed": len(plan.failed),
        "harmed": plan.damaged,
        "unread": {name: one.reason for name, one in sorted(plan.unread.items())},
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
        "left": summary.left,
        "unread": summary.unread,
        "seconds": round(summary.seconds, 3),
        **({} if summary.linked is None else {"linked": summary.linked._asdict()}),
    }
