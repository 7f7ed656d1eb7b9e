"""The queue of a plan's jobs, which drivers claim one by one."""

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
    """The jobs that are left, and their drivers.

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
        self._unreported: list[Outcome] = []
        self._refused: list[tuple[Job, Outcome]] = []
        self._looked = float("-inf")
        self._given: dict[str, Job] = {}

    def jobs(self) -> Iterator[Job]:
        """Claim and yield jobs; those of other drivers are `busy` afterwards.

        They are claimed a few at a time, no more than last about a second, so that another driver
        has something to do until the end.
        """
        rest, self._open, self.busy = iter(self._open), [], []
        while some := list(islice(rest, self._size)):
            self.release_dead()
            exists = self._destination.exists
            claimed = self._ledger.claims.claim(some, exists, since=self._plan.since)
            self._unreported += (self._outcome(row) for row in claimed.settled)
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
        """Record the outcome of a job."""
        job = self._given.pop(outcome.name)
        if outcome.status not in (*GOOD, "failed"):  # it could not tidy up itself
            self._destination.sweep(job.name)
        at = boot() if scheme_of(job.destination) == "" else ""
        self._ledger.settle(job, outcome, exists=self._destination.exists, boot=at)

    def take_finished(self) -> Iterator[Outcome]:
        """Yield outcomes of other drivers that were not yielded yet."""
        outcomes, self._unreported = self._unreported, []
        yield from outcomes

    def refuse_impossible(self) -> Iterator[Outcome]:
        """Yield and record the jobs that are impossible."""
        rest, self._refused = self._refused, []
        for job, outcome in rest:
            self._ledger.settle(job, outcome, exists=self._destination.exists)
            yield outcome

    def holders(self) -> tuple[str, ...]:
        """Return the machines of the drivers that hold the `busy` jobs."""
        return tuple(self._ledger.claims.holders())

    def flush(self) -> None:
        """Wait until all finished outputs are on the disk."""
        flush(self._ledger, self._destination)

    def release_dead(self) -> None:
        """Release and clean up after dead drivers, at most every `DEAD_SECONDS`."""
        if time.monotonic() - self._looked > DEAD_SECONDS:
            clear_up(self._ledger, self._destination)
            self._looked = time.monotonic()

    def _outcome(self, row: Row) -> Outcome:
        status: Status = row.status  # type: ignore[assignment]  # it was one when it was written
        record = self._ledger.record(row.name) or Record(row.source, row.name)
        return Outcome(row.source, row.name, status, row.exit_code, record)


def clear_up(ledger: Ledger, destination: Destination) -> bool:
    """Remove partial outputs of dead drivers; return whether none is left.

    Outputs that they published and never wrote down stay, and are known for ours.
    """
    is_clean = True
    for name in ledger.claims.release_abandoned():
        if destination.sweep(name):
            ledger.claims.forget(name, exists=destination.exists(name))
        else:
            is_clean = False  # its process lives yet, or dies just now
    return is_clean


def flush(ledger: Ledger, destination: Destination) -> None:
    """Flush outputs that are recorded as done, and record that."""
    latest = ledger.latest
    if ledger.is_unflushed(boot()):
        destination.flush()
        ledger.mark_flushed(boot(), latest)


def make_refusal(job: Job) -> Outcome:
    """Return the outcome of a job whose output path holds something that is not ours."""
    where = Path(job.destination) / job.name if scheme_of(job.destination) == "" else job.name
    error = StorageError("exists", where=where, hint="Move it away, or replace it: overwrite=True")
    record = replace(
        new_record(job),
        exit_code=error.exit_code,
        error=RecordedError(type(error).__name__, str(error)),
        started=round(time.time(), 3),
    )
    return Outcome(job.source, job.name, "failed", error.exit_code, record)
