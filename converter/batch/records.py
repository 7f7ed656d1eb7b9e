"""The records of a batch: of every artifact of its plan, as far as anything is known of it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from converter.batch.leases import Row
from converter.batch.ledger import Ledger
from converter.batch.plan import Plan
from converter.jobs.job import Job, blank_record

PENDING = "pending"  # no driver has begun it, or its end was not seen


def records(plan: Plan, ledger: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the record of each artifact, by name: of this run, of earlier ones, or a blank one.

    What the ledger has of a job that is still to be done counts only where it was done of the same
    source, by the same options. Rows of the ledger that are no part of the plan are not yielded.

    Args:
        plan: As it was made before the run.
        ledger: Where the run wrote down what came of it; it may not be there.

    Raises:
        StorageError: The ledger cannot be read.
    """
    settled = {row.name for row in (*plan.done, *plan.failed)}
    todo = {job.name: job for job in plan.todo}
    waiting = iter(sorted(todo))  # in SQLite's order of texts, which is that of code points
    name = next(waiting, None)
    for row, record in _rows(ledger):
        while name is not None and name < row.name:
            yield pending(todo[name])
            name = next(waiting, None)
        if name == row.name:
            job = todo[row.name]
            yield record if _is_of(row, job) else pending(job)
            name = next(waiting, None)
        elif row.name in settled:
            yield record
    while name is not None:
        yield pending(todo[name])
        name = next(waiting, None)


def pending(job: Job) -> dict[str, Any]:
    """Return the record of a job that nobody has begun."""
    return blank_record(job) | {"status": PENDING, "exit_code": None}


def _is_of(row: Row, job: Job) -> bool:
    return (row.source, row.plan, row.token) == (job.source, job.plan, job.token)


def _rows(path: Path) -> Iterator[tuple[Row, Mapping[str, Any]]]:
    if path.exists():
        with Ledger(path, read_only=True) as ledger:
            yield from ledger.rows_with_records()
