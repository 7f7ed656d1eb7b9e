"""The batch: plan, give jobs to an executor, write down what comes of them."""

import os
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from converter.batch import links
from converter.batch import plan as planning
from converter.batch.ledger import Ledger
from converter.batch.links import Linked
from converter.batch.plan import BatchPlan
from converter.batch.queue import Worklist, clear_up, flush
from converter.batch.request import Request
from converter.batch.signals import Stop, stopping
from converter.batch.tempdir import scratch
from converter.destinations.catalog import open_destination
from converter.destinations.protocol import Destination
from converter.executors.catalog import check as check_engine
from converter.executors.catalog import open_executor
from converter.executors.engine import Settings
from converter.jobs.job import GOOD, Job, Outcome
from converter.registries.catalog import scheme_of
from converter.write.catalog import check_options
from formats.errors import StorageError, UnsupportedError, UsageError

INTERRUPTED = 130
POLL_SECONDS = 0.1, 1.0  # between two looks at what others do: at first, and at most
FLUSH_SECONDS = 60.0  # how much work a power cut may cost
DYING_SECONDS = 2.0  # that processes of a killed driver may take to be gone


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan is made."""

    plan: BatchPlan


@dataclass(frozen=True, slots=True)
class Finished:
    """One artifact is through.

    Attributes:
        outcome: What came of it.
        counts: Of this run so far, by status.
        through: How many are, those of other drivers counted.
        total: How many there were to do.
        seconds: Since the first one began.
        is_elsewhere: Whether another driver did it, since this one has planned.
    """

    outcome: Outcome
    counts: Counter[str]
    through: int
    total: int
    seconds: float
    is_elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """All remaining jobs belong to other drivers; this one takes over if one of them dies.

    An event is yielded when it begins, and when it changes.

    Attributes:
        count: How many artifacts.
        holders: Where those drivers are.
    """

    count: int
    holders: tuple[str, ...]


@dataclass(slots=True)
class Summary:
    """The end of a run.

    Attributes:
        exit_code: The worst of all artifacts, those that failed in earlier runs counted; or 130,
            where the user has stopped it: the next run goes on.
        counts: How many of this run ended how.
        done_before: How many were done already.
        failed_before: How many had failed before and were not tried again.
        elsewhere: How many another driver did meanwhile.
        left: How many of the plan nobody has done: it was stopped, or they are for a later run.
        unread: How many entries of registries are not read.
        entries: How many entries there are, these included.
        seconds: How long it all took.
        linked: What was stored once; None where that was not asked for.
    """

    exit_code: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    done_before: int = 0
    failed_before: int = 0
    elsewhere: int = 0
    left: int = 0
    unread: int = 0
    entries: int = 0
    seconds: float = 0.0
    linked: Linked | None = None


Event: TypeAlias = "Planned | Finished | Waiting | Summary"


def check_request(request: Request) -> None:
    """Raise UsageError for a wrong value or contradicting options.

    Raises:
        UsageError: It is.
        UnsupportedError: No writer has the opset.
    """
    if not request.destination:
        raise UsageError("no destination", expected="out= with a folder, s3://…, …")
    check_engine(request.engine)
    memory, seconds = request.needs.memory_bytes, request.needs.seconds
    for option, value in (("memory_bytes", memory), ("seconds", seconds)):
        if value is not None and not value > 0:
            raise UsageError(f"needs.{option}=", expected="more than zero")
    part, parts = request.shard
    if not 1 <= part <= parts:
        raise UsageError(f"shard={part}/{parts}", expected="I/N with I from 1 to N")
    check_options(request.options)
    links.check(
        request.link, is_local=scheme_of(request.destination) == "", target=request.options.to
    )


def run(request: Request, *, dry_run: bool = False) -> Iterator[Event]:
    """Run a batch, yielding the plan, each outcome, and the summary last.

    A dry run yields the plan, and writes nothing anywhere. Where the user stops it, by Ctrl-C or
    SIGTERM, that is the summary's exit code.

    Raises:
        UsageError: The request contradicts itself.
        StorageError: Ledger or destination cannot be used.
        DependencyError: The executor cannot work.
    """
    begin = time.monotonic()
    check_request(request)
    try:
        Path.cwd()  # which all relative paths are taken from
    except FileNotFoundError as e:
        raise UsageError("the current folder is gone", hint="cd somewhere else") from e
    request = _anywhere(request)
    path = request.ledger or default_ledger(request.destination)
    destination = open_destination(request.destination)
    if dry_run:
        with Ledger(path if path.exists() else None, read_only=True) as ledger:
            yield Planned(planning.make(request, ledger, destination))
        return
    summary = Summary()
    with stopping() as stop:
        try:
            yield from _run(request, path, destination, summary, stop)
        except KeyboardInterrupt:
            summary.exit_code = INTERRUPTED
    summary.seconds = time.monotonic() - begin
    yield summary


def default_ledger(destination: str) -> Path:
    """Return the ledger's path: beside a local destination, else in the working directory.

    Raises:
        UsageError: There is nothing beside it.
    """
    if scheme_of(destination) == "":
        folder = Path(os.path.abspath(destination))  # noqa: PTH100 - "..", too, has a name
        if not folder.name:
            raise UsageError(f"out={destination!r}", expected="a folder of its own")
        return folder.with_name(f"{folder.name}.ledger.sqlite")
    safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in destination)
    return Path(f"{safe}.ledger.sqlite")


def _anywhere(request: Request) -> Request:
    """Return the request with absolute references."""
    if scheme_of(request.destination) != "":
        return request
    return replace(request, destination=os.path.abspath(request.destination))  # noqa: PTH100


def _run(
    request: Request, path: Path, destination: Destination, summary: Summary, stop: Stop
) -> Iterator[Event]:
    with stop.listening():
        destination.prepare()
    with Ledger(path) as ledger:
        try:
            with stop.listening():
                clear_up(ledger, destination)
                plan = planning.make(request, ledger, destination)
            summary.done_before, summary.failed_before = len(plan.done), len(plan.failed)
            summary.left = len(plan.todo) + plan.later
            summary.exit_code = max((row.exit_code for row in plan.failed), default=0)
            if plan.is_refused or (request.fail_on_skipped and plan.unread):
                summary.exit_code = max(summary.exit_code, UnsupportedError.exit_code)
            summary.unread = len(plan.unread)
            summary.entries = sum(plan.formats.values()) + len(plan.unread)
            yield Planned(plan)
            with scratch() as folder, links.opened(request, path) as linked:
                if linked is not None:
                    linked.catch_up(row.name for row in plan.done)
                work = Worklist(ledger, destination, plan)
                try:
                    yield from _Work(request, work, plan, summary, stop, linked).events(folder)
                finally:
                    summary.linked = None if linked is None else linked.found()
                    stop.announce_end()
            flush(ledger, destination)  # not when it is stopped: the next run does
        finally:
            with suppress(StorageError):  # if that fails, so did what this ends
                _give_back(ledger, destination)


def _give_back(ledger: Ledger, destination: Destination) -> None:
    """Release claims, and wait until files of dying processes can be removed."""
    ledger.claims.release()
    until = time.monotonic() + DYING_SECONDS
    while not clear_up(ledger, destination) and time.monotonic() < until:
        time.sleep(0.05)


class _Work:
    """Runs the jobs that no other driver runs, until none is left."""

    def __init__(
        self,
        request: Request,
        work: Worklist,
        plan: BatchPlan,
        summary: Summary,
        stop: Stop,
        linked: links.Links | None,
    ) -> None:
        self._request = request
        self._work = work
        self._total = len(plan.todo)
        self._summary = summary
        self._stop = stop
        self._linked = linked
        self._through = 0
        self._failed = False
        self._begin = self._flushed = time.monotonic()

    def events(self, folder: Path) -> Iterator[Finished | Waiting]:
        """Yield what happens.

        Args:
            folder: For temporary files.
        """
        asked = self._request
        settings = Settings(asked.jobs, folder, asked.address, asked.retries, asked.patience)
        reported: Waiting | None = None
        pause = POLL_SECONDS[0]
        while True:
            before = self._through
            with closing(self._round(settings)) as finished:
                for event in finished:
                    yield event
                    if self._failed and asked.fail_fast:
                        return
                    self._flush()
            if not self._work.busy:
                return
            waiting = Waiting(len(self._work.busy), self._work.holders())
            if waiting != reported:
                reported = waiting
                yield waiting
            is_idle = self._through == before
            pause = min(1.5 * pause, POLL_SECONDS[1]) if is_idle else POLL_SECONDS[0]
            with self._stop.listening():
                time.sleep(pause)

    def _round(self, settings: Settings) -> Generator[Finished, None, None]:
        """Run the jobs that can be claimed, and yield what other drivers have finished."""
        with closing(_outcomes(self._request.engine, settings, self._work.jobs(), self._stop)) as e:
            for outcome in e:
                if outcome is not None:
                    self._work.settle(outcome)
                    if self._linked is not None and outcome.status == "done":
                        self._linked.look(outcome.name)
                    yield self._finish(outcome)
                for one in self._work.refuse_impossible():
                    yield self._finish(one)
                for one in self._work.take_finished():
                    yield self._finish(one, is_elsewhere=True)

    def _finish(self, outcome: Outcome, *, is_elsewhere: bool = False) -> Finished:
        summary = self._summary
        self._through += 1
        self._failed = self._failed or outcome.status not in GOOD
        summary.left -= 1
        summary.exit_code = max(summary.exit_code, outcome.exit_code)
        if is_elsewhere:
            summary.elsewhere += 1
        else:
            summary.counts[outcome.status] += 1
        return Finished(
            outcome, summary.counts, self._through, self._total,
            time.monotonic() - self._begin, is_elsewhere,
        )  # fmt: skip

    def _flush(self) -> None:
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self._work.flush()
            self._flushed = time.monotonic()


def _outcomes(
    engine: str, settings: Settings, jobs: Iterator[Job], stop: Stop
) -> Generator[Outcome | None, None, None]:
    """Yield outcomes as they come, and None when other drivers may have finished jobs.

    There is an executor only where there is something for it.
    """
    with stop.listening():
        first = next(jobs, None)
    if first is not None:
        with open_executor(engine, settings) as executor:
            outcomes = executor.run(chain([first], jobs))
            while True:
                with stop.listening():
                    outcome = next(outcomes, None)
                if outcome is None:
                    break
                yield outcome
    yield None
