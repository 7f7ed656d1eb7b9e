"""What was done, in SQLite: one row an output, and who is at it.

Several drivers may have it open at once. Each outcome is committed as it comes, so that whatever
is killed, no more is forgotten than what was still running. Where a driver died, what it had
claimed is free again: a claim holds as long as its driver's heart beats.

Spec: https://www.sqlite.org/wal.html
"""

import json
import os
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from converter.job import Job, Outcome
from formats.errors import StorageError

SCHEMA = """
CREATE TABLE IF NOT EXISTS outputs(
    name TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    plan TEXT NOT NULL,
    token TEXT NOT NULL,
    digest TEXT NOT NULL,
    status TEXT NOT NULL,
    exit_code INTEGER NOT NULL,
    record TEXT NOT NULL,
    run TEXT NOT NULL,
    at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS claims(
    name TEXT PRIMARY KEY,
    driver TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS drivers(
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    beat REAL NOT NULL
) WITHOUT ROWID;
"""
BEAT_SECONDS = 5.0
DEAD_SECONDS = 60.0  # without a beat; of a driver on another host nothing else is known


@dataclass(frozen=True, slots=True)
class Row:
    """One output, as the ledger has it.

    Attributes:
        name: In the destination.
        source: What it was made of.
        plan: By which options and version.
        token: The registry's word for the state of the source then.
        digest: Of the source, or "".
        status: How it ended.
        exit_code: Likewise.
        record: All else.
    """

    name: str
    source: str
    plan: str
    token: str
    digest: str
    status: str
    exit_code: int
    record: Mapping[str, Any]


class Ledger:
    """A ledger that is open. A context manager: its end gives back all claims."""

    def __init__(self, path: Path) -> None:
        """Open a ledger, or begin one.

        Raises:
            StorageError: It cannot be opened, or is none.
        """
        self.path = path
        self.driver = os.urandom(8).hex()
        try:
            self._db = sqlite3.connect(path, timeout=60, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(SCHEMA)
        except sqlite3.Error as e:
            raise StorageError(f"the ledger cannot be used: {e}", where=path) from e
        self._beaten = 0.0
        self.beat()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._write("DELETE FROM claims WHERE driver = ?", (self.driver,))
        self._write("DELETE FROM drivers WHERE id = ?", (self.driver,))
        self._db.close()

    def rows(self) -> Iterator[Row]:
        """Yield what the ledger has, by name."""
        for row in self._db.execute(
            "SELECT name, source, plan, token, digest, status, exit_code, record"
            " FROM outputs ORDER BY name"
        ):
            name, source, plan, token, digest, status, exit_code, record = row
            yield Row(name, source, plan, token, digest, status, exit_code, json.loads(record))

    def beat(self) -> None:
        """Say that this driver lives, where that has not been said for a while."""
        now = time.time()
        if now - self._beaten > BEAT_SECONDS:
            self._beaten = now
            self._write(
                "INSERT OR REPLACE INTO drivers VALUES(?, ?, ?, ?)",
                (self.driver, socket.gethostname(), os.getpid(), now),
            )

    def claim(self, jobs: Iterable[Job]) -> list[Job]:
        """Return those of the jobs that are this driver's now, because no living one has them."""
        self._forget_the_dead()
        mine = []
        self._write("BEGIN IMMEDIATE", ())
        for job in jobs:
            cursor = self._db.execute(
                "INSERT OR IGNORE INTO claims VALUES(?, ?)", (job.name, self.driver)
            )
            if cursor.rowcount:
                mine.append(job)
        self._write("COMMIT", ())
        return mine

    def settle(self, job: Job, outcome: Outcome, run: str) -> None:
        """Record an outcome, and give back the claim."""
        digest = outcome.record.get("source_digest") or ""
        self._write("BEGIN IMMEDIATE", ())
        if outcome.status == "unchanged":
            self._db.execute(
                "UPDATE outputs SET token = ?, at = ? WHERE name = ?",
                (job.token, time.time(), job.name),
            )
        else:
            self._db.execute(
                "INSERT OR REPLACE INTO outputs VALUES(?,?,?,?,?,?,?,?,?,?)",
                (
                    job.name, job.source, job.plan, job.token, digest, outcome.status,
                    outcome.exit_code, json.dumps(outcome.record), run, time.time(),
                ),
            )  # fmt: skip
        self._db.execute("DELETE FROM claims WHERE name = ?", (job.name,))
        self._write("COMMIT", ())

    def _forget_the_dead(self) -> None:
        now, host = time.time(), socket.gethostname()
        for driver, where, pid, beat in self._db.execute("SELECT * FROM drivers").fetchall():
            gone = where == host and not _lives(pid)
            if driver != self.driver and (gone or now - beat > DEAD_SECONDS):
                self._write("DELETE FROM claims WHERE driver = ?", (driver,))
                self._write("DELETE FROM drivers WHERE id = ?", (driver,))

    def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        try:
            self._db.execute(statement, values)
        except sqlite3.Error as e:
            raise StorageError(f"the ledger cannot be written: {e}", where=self.path) from e


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
