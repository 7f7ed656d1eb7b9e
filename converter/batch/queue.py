"""The jobs of a plan, given out one by one as this driver claims them from all others."""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from converter.batch.leases import Row
from converter.batch.ledger import Ledger
from converter.batch.liveness import boot
from converter.batch.plan import BatchPlan
from converter.destinations.protocol import Destination
from converter.jobs.job import GOOD, Job, Outcome, Status, new_record
from converter.jobs.record import Record, RecordedError
from converter.registries.catalog import scheme_of
from formats.errors import StorageError

MOST_AT_ONCE = 64
SHORT_SECONDS, LONG_SECONDS = 0.25, 1.0  # that jobs which are claimed together shall last
DEAD_SECONDS = 1.0  # how often the dead are looked for


class Worklist:
    """What is still to be done, and by whom.

    Attributes:
        busy: Jobs that another driver is at, as far as was seen.
    """

    def __init__(self, ledger: Ledger, destination: Destination, plan: BatchPlan) -> None:
        self.busy: list[Job] = []
        self._ledger = ledger
        self._destination = destination
        self._plan = plan
        self._open = plan.todo
        self._size = 4
        self._told: list[Outcome] = []
        self._refused: list[tuple[Job, Outcome]] = []
        self._looked = float("-inf")
        self._given: dict[str, Job] = {}

    def jobs(self) -> Iterator[Job]:
        """Yield jobs that are this driver's now; those of others are `busy` afterwards.

        They are claimed a few at a time, no more than last about a second, so that another driver
        has something to do until the end.
        """
        rest, self._open, self.busy = iter(self._open), [], []
        while some := list(islice(rest, self._size)):
            self.bury()
            stands = self._destination.stands
            claimed = self._ledger.claims.claim(
                some, stands, since=self._plan.since, plan=self._plan.digest
            )
            self._told += (self._outcome(row) for row in claimed.settled)
            self._refused += ((job, make_refusal(job)) for job in claimed.taken)
            self.busy += claimed.busy
            begin = time.monotonic()
            for job in claimed.mine:
                self._given[job.name] = job
                yield job
            if len(claimed.mine) == self._size:
                lasted = time.monotonic() - begin
                if lasted < SHORT_SECONDS:
                    self._size = min(2 * self._size, MOST_AT_ONCE)
                elif lasted > LONG_SECONDS:
                    self._size = max(self._size // 2, 1)
        self._open = self.busy

    def settle(self, outcome: Outcome) -> None:
        """Write down what came of a job that was given out."""
        job = self._given.pop(outcome.name)
        if outcome.status not in (*GOOD, "failed"):  # it could not tidy up itself
            self._destination.sweep(job.name)
        at = boot() if scheme_of(job.destination) == "" else ""
        self._ledger.settle(job, outcome, stands=self._destination.stands, boot=at)

    def told(self) -> Iterator[Outcome]:
        """Yield what other drivers have done of the plan, as far as was seen and not yet told."""
        told, self._told = self._told, []
        yield from told

    def refuse_impossible(self) -> Iterator[Outcome]:
        """Yield what cannot be done, and write that down."""
        rest, self._refused = self._refused, []
        for job, outcome in rest:
            self._ledger.settle(job, outcome, stands=self._destination.stands)
            yield outcome

    def holders(self) -> tuple[str, ...]:
        """Return where the drivers are that have what is `busy`."""
        return tuple(self._ledger.claims.holders())

    def flush(self) -> None:
        """Wait until all that is done is on the disk."""
        flush(self._ledger, self._destination)

    def bury(self) -> None:
        """Look for drivers that died, and clear up behind them; not more often than is of use."""
        if time.monotonic() - self._looked > DEAD_SECONDS:
            clear_up(self._ledger, self._destination)
            self._looked = time.monotonic()

    def _outcome(self, row: Row) -> Outcome:
        status: Status = row.status  # type: ignore[assignment]  # it was one when it was written
        record = self._ledger.record(row.name) or Record(row.source, row.name)
        return Outcome(row.source, row.name, status, row.exit_code, record)


def clear_up(ledger: Ledger, destination: Destination) -> bool:
    """Remove what dead drivers and their workers left half-made; return whether that is all gone.

    Outputs that they published and never wrote down stay, and are known for ours.
    """
    is_clean = True
    for name in ledger.claims.release_abandoned():
        if destination.sweep(name):
            ledger.claims.forget(name, stands=destination.stands(name))
        else:
            is_clean = False  # its process lives yet, or dies just now
    return is_clean


def flush(ledger: Ledger, destination: Destination) -> None:
    """Wait until all that is written down as done is on the disk, and write that down."""
    latest = ledger.latest
    if ledger.is_unflushed(boot()):
        destination.flush()
        ledger.mark_flushed(boot(), latest)


def make_refusal(job: Job) -> Outcome:
    """Return the outcome of a job in whose place something stands that is not ours."""
    where = Path(job.destination) / job.name if scheme_of(job.destination) == "" else job.name
    error = StorageError("exists", where=where, hint="Move it away, or replace it: overwrite=True")
    record = replace(
        new_record(job),
        exit_code=error.exit_code,
        error=RecordedError(type(error).__name__, str(error)),
        started=round(time.time(), 3),
    )
    return Outcome(job.source, job.name, "failed", error.exit_code, record)
