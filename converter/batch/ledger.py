"""The ledger in SQLite: one row an output, its permanent name, and the driver that makes it.

Several drivers may have it open at once. Each outcome is committed as it comes, so that whatever
is killed, no more is forgotten than what was still running.
"""

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from converter.batch import schema
from converter.batch.database import Database
from converter.batch.heartbeat import Heart
from converter.batch.leases import FREE, UNRECORDED, Claims, Row, row_of
from converter.batch.schema import COLUMNS, decode_text, encode_text
from converter.destinations.protocol import Recalled
from converter.jobs.job import GOOD, Job, Outcome
from converter.jobs.record import NewerRecordError, Record
from converter.version import VERSION
from formats.errors import StorageError

LONGEST_ERROR = 500  # characters of it in a row; the record has all
DEATHS = frozenset({"crashed", "timeout", "memory", "lost"})  # at any moment, after publication too
NEXT = "(SELECT coalesce(max(seq), 0) + 1 FROM outputs)"


class Ledger:
    """An open ledger. A context manager: its exit releases all claims."""

    def __init__(self, path: Path | None, *, read_only: bool = False) -> None:
        """Open a ledger, or begin one.

        Args:
            path: Its file; None for an empty one that is only thought of.
            read_only: Leave the file, and its folder, as they are.

        Raises:
            StorageError: It cannot be opened, is damaged, none, or of a newer version.
        """
        self.path = path
        self.driver = os.urandom(8).hex()
        self._heart: Heart | None = None
        self._db = Database(path, read_only=read_only)
        self.claims = Claims(self._db, self.driver)
        try:
            schema.begin(self._db, read_only=read_only)
            if path is not None and not read_only:
                self._heart = Heart(path, self.driver)
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._heart is not None:
                self._heart.stop()
                with self._db.transaction():
                    self.claims.release_driver(self.driver)
        except StorageError:
            if error is None:  # else that one says more
                raise
        finally:
            self._db.close()

    # -- what is known ----------------------------------------------------------------------------

    @property
    def latest(self) -> int:
        """Number of the newest row; later rows have higher ones."""
        (number,) = self._db.execute("SELECT coalesce(max(seq), 0) FROM outputs").fetchone()
        return int(number)

    def rows(self, kind: str | None = None) -> Iterator[Row]:
        """Yield what the ledger has, by name; of one kind of output, or of all."""
        where = "" if kind is None else " JOIN names USING(name) WHERE names.kind = ?"
        for row in self._db.select(
            f"SELECT {COLUMNS} FROM outputs{where} ORDER BY outputs.name",  # noqa: S608 - constants
            () if kind is None else (kind,),
        ):
            yield row_of(row)

    def rows_with_records(self) -> Iterator[tuple[Row, Record]]:
        """Yield each row with its record, by name, one by one."""
        for *row, text in self._db.select(
            f"SELECT {COLUMNS}, record FROM outputs JOIN records USING(name) ORDER BY outputs.name"  # noqa: S608 - constants
        ):
            yield row_of(row), self._decode(text)

    def record(self, name: str) -> Record | None:
        """Return the record of an output; None if unknown."""
        statement = "SELECT record FROM records WHERE name = ?"
        for (text,) in self._db.select(statement, (encode_text(name),)):
            return self._decode(text)
        return None

    def _decode(self, text: str) -> Record:
        try:
            return Record.from_json(json.loads(text))
        except NewerRecordError as e:
            raise StorageError(
                f"a record cannot be read: {e}", where=self.path, hint=schema.NEWER
            ) from e
        except ValueError as e:
            raise self._db.make_damage_error(f"a record cannot be read: {e}") from e

    # -- what is no artifact ----------------------------------------------------------------------

    def no_artifacts(self) -> dict[str, tuple[str, str]]:
        """Return token and reason of each file that this version found to be no artifact."""
        if not self._writes:
            return {}
        statement = "SELECT source, token, reason FROM no_artifacts WHERE tool = ?"
        return {
            decode_text(source): (token, reason)
            for source, token, reason in self._db.select(statement, (VERSION,))
        }

    def remember_no_artifacts(self, found: Mapping[str, tuple[str, str]]) -> None:
        """Replace the remembered files that are not artifacts."""
        if not self._writes:
            return
        with self._db.transaction():
            self._db.execute("DELETE FROM no_artifacts")
            for source, (token, reason) in found.items():
                self._db.execute(
                    "INSERT OR REPLACE INTO no_artifacts VALUES(?, ?, ?, ?)",
                    (encode_text(source), token, reason, VERSION),
                )

    @property
    def _writes(self) -> bool:
        return self._heart is not None

    # -- names ------------------------------------------------------------------------------------

    def choose_names(
        self,
        kind: str,
        recalled: Mapping[str, str],
        choose: Callable[[Mapping[str, str], Collection[str]], Mapping[str, str]],
    ) -> Mapping[str, str]:
        """Choose permanent names for outputs of one kind, different from all existing ones.

        Args:
            kind: What an output of these is called at its end, which tells targets apart.
            recalled: Names by source that the destination knows besides.
            choose: Takes the names of this kind by source, and the names of all others; returns
                names by source.
        """
        if self._heart is None:
            known, others = self._names(kind)
            return choose({**recalled, **known}, others)
        with self._db.transaction():  # two drivers choose one after the other
            known, others = self._names(kind)
            chosen = choose(known, others)
            for source, name in chosen.items():
                if source not in known:  # it may be another's that is gone, whose heir this is
                    self._name(name, source, kind, anew=True)
        return chosen

    def _name(self, name: str, source: str, kind: str, *, anew: bool = False) -> None:
        verb = "REPLACE" if anew else "IGNORE"
        self._db.execute(
            f"INSERT OR {verb} INTO names VALUES(?, ?, ?)",
            (encode_text(name), encode_text(source), kind),
        )

    def _names(self, kind: str) -> tuple[dict[str, str], set[str]]:
        known, others = {}, set()
        for name, source, its in self._db.select("SELECT name, source, kind FROM names"):
            if its == kind:
                known[decode_text(source)] = decode_text(name)
            else:
                others.add(decode_text(name))
        return known, others

    def adopt(self, recalled: Iterable[Recalled], kind: str) -> dict[str, Row]:
        """Adopt outputs of one kind that a destination knows and this ledger does not.

        Args:
            recalled: As `Destination.recall` has them.
            kind: As in `named`.

        Returns:
            Rows by source.
        """
        found = {}
        for one in recalled:
            if one.name.endswith(kind):
                row = found[one.source] = Row(
                    one.name, one.source, one.plan, one.token,
                    one.record.source_digest or "", "done", 0, "", ours=True,
                )  # fmt: skip
                if self._heart is not None:
                    with self._db.transaction():
                        self._name(one.name, one.source, kind)
                        self._write(row, one.record)
        return found

    # -- what came of it --------------------------------------------------------------------------

    def settle(
        self, job: Job, outcome: Outcome, *, exists: Callable[[str], bool], boot: str = ""
    ) -> None:
        """Record an outcome and release its claim.

        Args:
            job: Which.
            outcome: Of it.
            exists: Tells whether anything is in an output's place.
            boot: As rows have it.
        """
        key = encode_text(job.name)
        with self._db.transaction():
            if outcome.status == "unchanged":
                self._db.execute(
                    "UPDATE outputs SET source = ?, token = ?, at = ?,"  # noqa: S608 - constants
                    f" seq = {NEXT} WHERE name = ?",
                    (encode_text(job.source), encode_text(job.token), time.time(), key),
                )
                record = self.record(job.name)
                if record is not None and record.source != job.source:  # it is elsewhere now
                    moved = replace(record, source=job.source, entry=job.entry)
                    self._write_record(job.name, moved)
            elif outcome.status == "moved":
                self._move(job, outcome.record, boot)
            else:
                error = outcome.record.error
                row = Row(
                    job.name, job.source, outcome.record.plan, job.token,
                    outcome.record.source_digest or "", outcome.status, outcome.exit_code,
                    "" if error is None else error.message[:LONGEST_ERROR],
                    ours=self._is_ours(job, outcome, exists), boot=boot,
                )  # fmt: skip
                self._write(row, outcome.record)
            self.claims.drop(job.name)

    def _move(self, job: Job, found: Record, boot: str) -> None:
        """Record a renamed output: its former record under the new name."""
        old = found.moved_from or job.name
        record = replace(
            self.record(old) or found,
            source=found.source,
            name=found.name,
            entry=found.entry,
            output=found.output,
            published=found.published,
            moved_from=found.moved_from,
            status="done",
        )
        if old != job.name:
            for table in ("outputs", "records"):
                self._db.execute(f"DELETE FROM {table} WHERE name = ?", (encode_text(old),))  # noqa: S608
        row = Row(
            job.name, job.source, found.plan, job.token, found.source_digest or "",
            "done", 0, "", ours=True, boot=boot,
        )  # fmt: skip
        self._write(row, record)

    def _write(self, row: Row, record: Record) -> None:
        self._db.execute(
            f"INSERT OR REPLACE INTO outputs VALUES(?,?,?,?,?,?,?,?,?,?,?,{NEXT},?)",
            (
                encode_text(row.name), encode_text(row.source), row.plan, encode_text(row.token),
                row.digest, row.status, row.exit_code, encode_text(row.error), row.ours, row.boot,
                self.driver, time.time(),
            ),
        )  # fmt: skip
        self._write_record(row.name, record)

    def _write_record(self, name: str, record: Record) -> None:
        values = (encode_text(name), json.dumps(record.to_json()))
        self._db.execute("INSERT OR REPLACE INTO records VALUES(?, ?)", values)

    def is_unflushed(self, boot: str) -> bool:
        """Return whether a machine may have published outputs that are not flushed to disk."""
        statement = "SELECT EXISTS(SELECT 1 FROM outputs WHERE boot = ?)"
        return bool(self._db.execute(statement, (boot,)).fetchone()[0])

    def mark_flushed(self, boot: str, until: int) -> None:
        """Record that a machine's published outputs are on the disk.

        Args:
            boot: Which machine, as rows have it.
            until: `latest`, before it was flushed.
        """
        with self._db.transaction():
            self._db.execute(
                "UPDATE outputs SET boot = '' WHERE boot = ? AND seq <= ?", (boot, until)
            )

    def _is_ours(self, job: Job, outcome: Outcome, exists: Callable[[str], bool]) -> bool:
        """Return whether an output's path is free or holds our own output."""
        if outcome.status in GOOD:
            return True
        key = encode_text(job.name)
        (*rows,) = self._db.select("SELECT ours FROM outputs WHERE name = ?", (key,))
        before = self.claims.before(job.name)
        if (1,) in rows or before == UNRECORDED:
            return True
        return outcome.status in DEATHS and before == FREE and exists(job.name)
