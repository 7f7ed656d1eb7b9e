"""The heartbeat of a driver, by which others see that it is alive, on other machines too."""

import os
import time
from pathlib import Path
from threading import Event, Thread

from converter.batch.database import Database
from converter.batch.liveness import BEAT_SECONDS, find_start_time, machine
from formats.errors import StorageError


class Heart(Thread):
    """Writes this driver's heartbeat, on a thread and a connection of its own."""

    def __init__(self, path: Path, driver: str) -> None:
        super().__init__(name="ledger-heart", daemon=True)
        self._path = path
        self._driver = driver
        self._ends = Event()
        database = Database(path)
        try:
            self._beat(database)
        finally:
            database.close()
        self.start()

    def run(self) -> None:
        """Beat until it is stopped."""
        database: Database | None = None
        while not self._ends.wait(BEAT_SECONDS):
            try:
                database = database or Database(self._path)
                self._beat(database)
            except StorageError:
                continue  # the driver's own writing meets the same, and says so
        if database is not None:
            database.close()

    def stop(self) -> None:
        """Stop the heartbeat."""
        self._ends.set()
        self.join()

    def _beat(self, database: Database) -> None:
        pid = os.getpid()
        database.execute(
            "INSERT OR REPLACE INTO drivers VALUES(?, ?, ?, ?, ?)",
            (self._driver, machine(), pid, find_start_time(pid), time.time()),
        )
