"""The records of a batch, one for each artifact of its plan."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from converter.batch.leases import Row
from converter.batch.ledger import Ledger
from converter.batch.plan import BatchPlan
from converter.jobs.job import Job, new_record
from converter.jobs.record import Record, RecordedError
from converter.registries.entry import Skipped

SKIPPED = "skipped"  # an entry of a registry that is not read
PENDING = "pending"  # no driver has begun it, or no driver recorded its end


def records(plan: BatchPlan, ledger: Path) -> Iterator[Record]:
    """Yield the record of each artifact, by name: from the ledger, or of a pending job.

    A record in the ledger counts for a job that was to be done only if it has the same source,
    options and state of the source. Rows of the ledger outside the plan are not yielded.

    Args:
        plan: As it was made before the run.
        ledger: File of the ledger; it may not exist.

    Raises:
        StorageError: The ledger cannot be read.
    """
    settled = {row.name for row in (*plan.done, *plan.failed)}
    todo = {job.name: job for job in plan.todo}
    waiting = iter(sorted(todo))  # SQLite orders text by code points
    name = next(waiting, None)
    for row, record in _rows(ledger):
        while name is not None and name < row.name:
            yield make_pending_record(todo[name])
            name = next(waiting, None)
        if name == row.name:
            job = todo[row.name]
            yield record if _is_of(row, job) else make_pending_record(job)
            name = next(waiting, None)
        elif row.name in settled:
            yield record
    while name is not None:
        yield make_pending_record(todo[name])
        name = next(waiting, None)
    for name, skipped in sorted(plan.unread.items()):
        yield unread(name, skipped)


def make_pending_record(job: Job) -> Record:
    """Return the record of a job that has not begun."""
    return replace(new_record(job), status=PENDING, exit_code=None)


def unread(name: str, skipped: Skipped) -> Record:
    """Return the record of a registry entry that is not read."""
    error = RecordedError("UnsupportedError", skipped.reason)
    return Record(skipped.source, name, name, status=SKIPPED, exit_code=None, error=error)


def _is_of(row: Row, job: Job) -> bool:
    return (row.source, row.plan, row.token) == (job.source, job.plan, job.token)


def _rows(path: Path) -> Iterator[tuple[Row, Record]]:
    if path.exists():
        with Ledger(path, read_only=True) as ledger:
            yield from ledger.rows_with_records()
