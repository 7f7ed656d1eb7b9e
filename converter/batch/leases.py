"""Leases: each output is made by one driver at a time, even if that driver dies.

Before a job runs, its driver claims the output, and writes down whether anything was in its
place: if the driver dies between an output's publication and its row, the next one knows that
output for ours. A claim holds as long as its driver lives.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from converter.batch.database import Database
from converter.batch.liveness import Driver, Pulse
from converter.batch.schema import COLUMNS, decode_text, encode_text
from converter.jobs.job import Job

NOBODY = ""  # has the claims of the dead
# What was in an output's place when it was claimed: nothing, an output of ours that no row tells
# of, or anything else.
FREE, UNRECORDED, TAKEN = "free", "unrecorded", "taken"


@dataclass(frozen=True, slots=True)
class Row:
    """One output, as the ledger has it; its record is read when asked for.

    Attributes:
        name: In the destination.
        source: What it was made of.
        plan: By which options and version.
        token: The registry's word for the state of the source then.
        digest: Of the source, or "".
        status: How it ended.
        exit_code: Likewise.
        error: What went wrong, its beginning; or "".
        ours: Whether what is in its place was put there by us.
        boot: Of the machine in whose memory it may only be, as `liveness.boot` says; "" where it
            is on the disk, or elsewhere.
    """

    name: str
    source: str
    plan: str
    token: str
    digest: str
    status: str
    exit_code: int
    error: str
    ours: bool
    boot: str = ""


@dataclass(slots=True)
class Claimed:
    """The result of claiming jobs.

    Attributes:
        mine: To be done by it now.
        busy: In work at another living driver.
        taken: Impossible: something is in their places that is not ours.
        settled: Done by another one since this one has planned.
    """

    mine: list[Job] = field(default_factory=list)
    busy: list[Job] = field(default_factory=list)
    taken: list[Job] = field(default_factory=list)
    settled: list[Row] = field(default_factory=list)


class Claims:
    """The claims of a ledger, as one driver sees them."""

    def __init__(self, database: Database, driver: str) -> None:
        self._db = database
        self._driver = driver
        self._pulse = Pulse()

    def release_abandoned(self) -> list[str]:
        """Release the claims of dead drivers and return their outputs."""
        dead = [driver.id for driver in self._drivers() if not self._pulse.lives(driver)]
        if dead:
            with self._db.transaction():
                for driver in dead:
                    self.release_driver(driver)
        statement = "SELECT name FROM claims WHERE driver = ?"
        return [decode_text(name) for (name,) in self._db.select(statement, (NOBODY,))]

    def release(self) -> None:
        """Release all claims of this driver."""
        with self._db.transaction():
            statement = "UPDATE claims SET driver = ? WHERE driver = ?"
            self._db.execute(statement, (NOBODY, self._driver))

    def forget(self, name: str, *, exists: bool) -> None:
        """Drop a released claim, unless it is the only record of an output.

        Args:
            name: Of the output, of which nothing half-made is left.
            exists: Whether anything is in its place.
        """
        with self._db.transaction():
            self._db.execute(
                "DELETE FROM claims WHERE name = ? AND driver = ? AND (before = ? OR NOT ?)",
                (encode_text(name), NOBODY, TAKEN, exists),
            )

    def holders(self) -> list[str]:
        """Return the machines of other drivers that hold claims."""
        (*busy,) = self._db.select("SELECT DISTINCT driver FROM claims")
        return [d.place for d in self._drivers() if (d.id,) in busy]

    def claim(self, jobs: Sequence[Job], exists: Callable[[str], bool], *, since: int) -> Claimed:
        """Claim jobs that no other driver holds or has finished.

        Jobs that replace an earlier output overwrite it.

        Args:
            jobs: Which.
            exists: Tells whether anything is in an output's place.
            since: `Ledger.latest`, when they were planned.
        """
        claimed = Claimed()
        # On the disk before any of their outputs is: of those, a power cut leaves none untold.
        with self._db.transaction(durable=True):
            for job in jobs:
                row = self._row(job.name, since)
                if row is not None and row.plan == job.plan and row.token == job.token:
                    claimed.settled.append(row)
                else:
                    self._claim(job, exists, claimed)
        return claimed

    def _claim(self, job: Job, exists: Callable[[str], bool], claimed: Claimed) -> None:
        key = encode_text(job.name)
        statement = "SELECT driver, before FROM claims WHERE name = ?"
        driver, before = self._db.execute(statement, (key,)).fetchone() or (NOBODY, "")
        if driver not in (NOBODY, self._driver):
            claimed.busy.append(job)
            return
        found = exists(job.name)
        if not found:
            before = FREE
        elif before in (FREE, UNRECORDED):
            before = UNRECORDED
        else:
            before = TAKEN
        values = (key, self._driver, before)
        self._db.execute("INSERT OR REPLACE INTO claims VALUES(?, ?, ?)", values)
        known = self._db.execute("SELECT ours FROM outputs WHERE name = ?", (key,)).fetchone()
        if (known is not None and known[0]) or before == UNRECORDED:
            job = replace(job, options=replace(job.options, overwrite=True))
        elif before == TAKEN and not job.options.overwrite:
            claimed.taken.append(job)
            return
        claimed.mine.append(job)

    def _row(self, name: str, since: int) -> Row | None:
        found = self._db.execute(
            f"SELECT {COLUMNS} FROM outputs WHERE name = ? AND seq > ?",  # noqa: S608 - constants
            (encode_text(name), since),
        ).fetchone()
        return None if found is None else row_of(found)

    def before(self, name: str) -> str:
        """Return what existed at an output's path when it was claimed; "" for an unclaimed one."""
        statement = "SELECT before FROM claims WHERE name = ?"
        (found,) = self._db.execute(statement, (encode_text(name),)).fetchone() or ("",)
        return str(found)

    def drop(self, name: str) -> None:
        """Release one claim, in the caller's transaction."""
        self._db.execute("DELETE FROM claims WHERE name = ?", (encode_text(name),))

    def _drivers(self) -> list[Driver]:
        """Return the other drivers, dead or alive."""
        found = self._db.select("SELECT id, machine, pid, started, beat FROM drivers")
        return [driver for driver in (Driver(*row) for row in found) if driver.id != self._driver]

    def release_driver(self, driver: str) -> None:
        """Release a driver's claims, in the caller's transaction."""
        self._db.execute("UPDATE claims SET driver = ? WHERE driver = ?", (NOBODY, driver))
        self._db.execute("DELETE FROM drivers WHERE id = ?", (driver,))


def row_of(values: Sequence[Any]) -> Row:
    """Return a row from its `COLUMNS`."""
    name, source, plan, token, digest, status, exit_code, error, ours, boot = values
    return Row(
        decode_text(name), decode_text(source), plan, decode_text(token), digest, status,
        exit_code, decode_text(error), bool(ours), boot,
    )  # fmt: skip
