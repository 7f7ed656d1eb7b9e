"""The batch: plan, give jobs to an executor, write down what comes of them."""

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from converter.batch import plan as planning
from converter.batch.ledger import Ledger, Row
from converter.batch.plan import Plan
from converter.batch.request import Request
from converter.destinations.catalog import open_destination
from converter.executors.catalog import open_executor
from converter.executors.engine import Settings
from converter.job import GOOD, Job, Outcome
from converter.registries.catalog import scheme_of

CLAIMED_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan is made."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Finished:
    """One artifact is through.

    Attributes:
        outcome: What came of it.
        counts: Of this run so far, by status.
        total: How many there were to do.
        seconds: Since the first one began.
    """

    outcome: Outcome
    counts: Counter[str]
    total: int
    seconds: float


@dataclass(slots=True)
class Summary:
    """The end of a run.

    Attributes:
        exit_code: The worst of all artifacts, those that failed in earlier runs counted.
        counts: How many of this run ended how.
        done_before: How many were done already.
        failed_before: How many had failed before and were not tried again.
        elsewhere: How many another driver has.
        seconds: How long it all took.
    """

    exit_code: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    done_before: int = 0
    failed_before: int = 0
    elsewhere: int = 0
    seconds: float = 0.0


Event: TypeAlias = "Planned | Finished | Summary"


def run(request: Request, *, dry_run: bool = False) -> Iterator[Event]:
    """Do what is asked, yielding the plan, each outcome, and the summary last.

    Raises:
        UsageError: The request contradicts itself.
        StorageError: Ledger or destination cannot be used.
        EnvironmentFault: The executor cannot work.
    """
    begin = time.monotonic()
    destination = open_destination(request.destination)
    path = request.ledger or default_ledger(request.destination)
    if dry_run:
        known = _known(path)
        yield Planned(planning.make(request, known, destination))
        return
    destination.prepare()
    with Ledger(path) as ledger:
        plan = planning.make(request, list(ledger.rows()), destination)
        yield Planned(plan)
        summary = Summary(done_before=len(plan.done), failed_before=len(plan.failed))
        codes = [row.exit_code for row in plan.failed]
        if plan.todo:
            for event in _jobs(request, ledger, plan.todo, summary):
                codes.append(event.outcome.exit_code)
                yield event
        summary.exit_code = max(codes, default=0)
        summary.seconds = time.monotonic() - begin
        yield summary


def default_ledger(destination: str) -> Path:
    """Return the ledger of a destination: beside a folder, or here for one that is elsewhere."""
    if scheme_of(destination) == "":
        folder = Path(destination).absolute()
        return folder.with_name(f"{folder.name}.ledger.sqlite")
    safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in destination)
    return Path(f"{safe}.ledger.sqlite")


def _known(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with Ledger(path) as ledger:
        return list(ledger.rows())


def _jobs(
    request: Request, ledger: Ledger, todo: list[Job], summary: Summary
) -> Iterator[Finished]:
    begin = time.monotonic()
    run_id = ledger.driver
    scratch = Path(tempfile.mkdtemp(prefix="convert-batch-"))
    by_name = {job.name: job for job in todo}
    settings = Settings(request.jobs, scratch, request.address, request.retries, request.patience)
    try:
        with open_executor(request.engine, settings) as executor:
            for outcome in executor.run(_claimed(ledger, todo, summary)):
                ledger.settle(by_name[outcome.name], outcome, run_id)
                ledger.beat()
                summary.counts[outcome.status] += 1
                yield Finished(outcome, summary.counts, len(todo), time.monotonic() - begin)
                if request.fail_fast and outcome.status not in GOOD:
                    break
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _claimed(ledger: Ledger, todo: list[Job], summary: Summary) -> Iterator[Job]:
    """Yield the jobs that no other driver has, claimed a few at a time."""
    rest = iter(todo)
    while some := list(islice(rest, CLAIMED_AT_ONCE)):
        mine = ledger.claim(some)
        summary.elsewhere += len(some) - len(mine)
        yield from mine
