"""A SQLite file that several drivers write at once: opened so that none can damage it.

On a local disk it keeps a write-ahead log, so that readers and writers do not wait for each other.
That log needs memory that all processes share, which no two machines do: on a network file
system, and for good where it was once so opened, SQLite's older journal is used.

Spec: https://www.sqlite.org/wal.html, https://www.sqlite.org/howtocorrupt.html
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any
from urllib.parse import quote_from_bytes

from formats.errors import StorageError

PATIENCE_SECONDS = 60.0  # for another program that has it locked
# Local file systems. Any other one may be shared between machines.
# fmt: off
LOCAL = frozenset((
    "aufs", "bcachefs", "btrfs", "ecryptfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs",
    "jfs", "ntfs", "ntfs3", "overlay", "ramfs", "reiserfs", "tmpfs", "vfat", "xfs", "zfs",
))
# fmt: on
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
CLOSED = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)


class Database:
    """An open database. Its errors are `StorageError`s that name the file."""

    def __init__(self, path: Path | None, *, read_only: bool = False) -> None:
        """Open or create a database.

        Args:
            path: Its file; None for one in memory.
            read_only: Write nothing, not even beside it.

        Raises:
            StorageError: It cannot be opened.
        """
        self.path = path
        self._lock = RLock()
        try:
            self._connection = _connect(path, read_only=read_only)
        except sqlite3.Error as e:
            raise self._fault(e) from e

    def journal(self) -> None:
        """Choose the journal mode of a new or moved database.

        Raises:
            StorageError: It is in use in a way that network file systems do not bear.
        """
        (mode,) = self.execute("PRAGMA journal_mode").fetchone()
        if self.path is None:
            return
        if not _is_local(self.path):
            wanted = "delete"
        else:
            is_new = not self.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            wanted = "wal" if is_new else mode
        if mode != wanted:
            (mode,) = self.execute(f"PRAGMA journal_mode={wanted}").fetchone()
        if mode == "wal" and wanted == "delete":
            raise StorageError(
                "is in use on another machine, in a way that network file systems do not bear",
                where=self.path,
            )

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Execute one statement; wait where another program has the database locked.

        Raises:
            StorageError: That lasts too long, or fails.
        """
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                with self._lock:
                    return self._connection.execute(statement, values)
            except sqlite3.Error as e:
                if _primary(e) not in BUSY or time.monotonic() > until:
                    raise self._fault(e) from e
                time.sleep(0.01)  # SQLite has waited already; here a Ctrl-C comes through

    def select(self, statement: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield rows as they are read.

        Raises:
            StorageError: They cannot be.
        """
        cursor = self.execute(statement, values)
        try:
            yield from cursor
        except sqlite3.Error as e:
            raise self._fault(e) from e

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[None]:
        """Commit the block, or roll back where it fails or is interrupted.

        Args:
            durable: Wait until it is on the disk, with all that was written before.
        """
        with self._lock:
            if durable:
                self.execute("PRAGMA synchronous=FULL")
            self.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.rollback()
                if durable:
                    self.execute("PRAGMA synchronous=NORMAL")

    def close(self) -> None:
        """Close it; uncommitted changes are lost."""
        self._connection.close()

    def make_damage_error(self, what: str) -> StorageError:
        """Return the error for impossible contents."""
        return StorageError(
            f"the ledger is damaged: {what}",
            where=self.path,
            hint="Restore it from a copy; or move it away and run once with overwrite=True, which"
            " converts all again",
        )

    def _fault(self, e: sqlite3.Error) -> StorageError:
        code = _primary(e)
        if code in DAMAGED:
            return self.make_damage_error(str(e))
        if code in BUSY:
            found, hint = f"another program has it locked for {PATIENCE_SECONDS:.0f} s", None
        elif code in CLOSED:
            found, hint = str(e), "ledger=FILE puts it elsewhere"
        elif code == sqlite3.SQLITE_FULL:
            found, hint = str(e), "Free some space, and run it again to go on"
        else:
            found, hint = str(e), None
        return StorageError(f"the ledger cannot be used: {found}", where=self.path, hint=hint)


def _primary(e: sqlite3.Error) -> int:
    """Return the primary result code of an error."""
    return int(getattr(e, "sqlite_errorcode", 0)) & 0xFF


def _connect(path: Path | None, *, read_only: bool) -> sqlite3.Connection:
    if path is None:
        name = ":memory:"
    elif read_only:
        # Without a log file next to it there is no writer, and reading it leaves no files.
        log = path.with_name(f"{path.name}-wal")
        mode = "mode=ro" if log.exists() else "mode=ro&immutable=1"
        name = f"file:{quote_from_bytes(bytes(path.absolute()))}?{mode}"
    else:
        name = str(path.absolute())
    connection = sqlite3.connect(
        name, timeout=1, isolation_level=None, uri=read_only, check_same_thread=False
    )
    if not read_only:
        try:
            connection.execute("PRAGMA synchronous=NORMAL")
        except sqlite3.Error:
            connection.close()
            raise
    return connection


def _is_local(path: Path) -> bool:
    """Return whether a file is on a local disk, as far as the system says."""
    try:
        table = Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return True
    where = bytes(path.absolute().parent.resolve())
    best, kind = b"", ""
    for line in table.splitlines():
        # Spec: proc_pid_mountinfo(5): … mount point (5th), …, "-", type of the file system
        fields, _, rest = line.partition(b" - ")
        point = fields.split(b" ")[4]
        for octal, character in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\134", b"\\")):
            point = point.replace(octal, character)
        inside = where == point or where.startswith(point.rstrip(b"/") + b"/")
        if inside and len(point) >= len(best):
            best, kind = point, rest.split(b" ")[0].decode()
    return kind in LOCAL
