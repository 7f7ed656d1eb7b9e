"""The ledger: what is written stays, who is dead is known, and no other file is taken for one."""

import contextlib
import json
import multiprocessing
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from repository import SUPPORT

from converter.batch import database, liveness
from converter.batch.ledger import Ledger
from converter.jobs.job import Job, Outcome, new_record
from converter.jobs.record import SCHEMA, RecordedError, Unsupported
from converter.options import Options
from formats.errors import StorageError

PLAN = Job("", "", "", Options()).plan


def job(name, token="t"):
    return Job(f"/r/{name}", name, "/d", Options(), token)


def outcome(one, status="done", exit_code=0, **about):
    record = replace(new_record(one), status=status, exit_code=exit_code, **about)
    return Outcome(one.source, one.name, status, exit_code, record)


def nothing(name):
    return False


def anything(name):
    return True


def claim(ledger, *names, exists=nothing, since=0):
    return ledger.claims.claim([job(n) for n in names], exists, since=since)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "l.sqlite"


def test_rows_come_back_as_they_were(path):
    odd = job("a \u00e9 \U0001f600.portable", token="1-2")
    bytes_in_it = Job("/r/\udcff\ud800", "b", "/d", Options(), "\udc80")
    with Ledger(path) as ledger:
        claim(ledger, odd.name, "b")
        ledger.settle(odd, outcome(odd, source_digest="d1"), exists=anything)
        error = RecordedError("X", "m\udcff" * 400)
        ledger.settle(bytes_in_it, outcome(bytes_in_it, "failed", 3, error=error), exists=nothing)
    with Ledger(path, read_only=True) as ledger:
        first, second = ledger.rows()
        assert (first.name, first.source, first.digest, first.ours) == (
            odd.name, odd.source, "d1", True,
        )  # fmt: skip
        assert (second.source, second.token) == (bytes_in_it.source, bytes_in_it.token)
        assert second.error == error.message[:500]
        assert ledger.record("b").error == error
        assert [row.name for row, record in ledger.rows_with_records()] == [odd.name, "b"]
        assert ledger.record("c") is None
    assert list(path.parent.iterdir()) == [path]  # no log is left beside it


def test_what_is_unchanged_keeps_its_record(path):
    with Ledger(path) as ledger:
        claim(ledger, "a")
        ledger.settle(job("a"), outcome(job("a"), source_digest="d"), exists=anything)
        claim(ledger, "a", since=ledger.latest)
        touched = job("a", token="later")
        ledger.settle(touched, outcome(touched, "unchanged"), exists=anything)
        (row,) = ledger.rows()
        assert (row.status, row.token, row.digest) == ("done", "later", "d")
        assert ledger.record("a").status == "done"


def test_names_are_given_once(path):
    with Ledger(path) as ledger:
        ledger.choose_names(".p", {}, lambda known, others: {"/r/a": "a.p"})
    with Ledger(path) as ledger:
        seen = []
        ledger.choose_names(".q", {}, lambda *names: seen.append(names) or {"/r/a": "a.q"})
        ledger.choose_names(
            ".p", {}, lambda *names: seen.append(names) or {"/r/a": "a.p", "/r/b": "b.p"}
        )
        assert seen == [({}, {"a.p"}), ({"/r/a": "a.p"}, {"a.q"})]
    with Ledger(path, read_only=True) as ledger:
        known = ledger.choose_names(".p", {}, lambda known, others: known)
        assert known == {"/r/a": "a.p", "/r/b": "b.p"}


# -- several drivers ------------------------------------------------------------------------------


def test_a_job_is_one_drivers_at_a_time(path):
    with Ledger(path) as one, Ledger(path) as two:
        assert [j.name for j in claim(one, "a", "b").mine] == ["a", "b"]
        found = claim(two, "a", "b", "c")
        assert [j.name for j in found.busy] == ["a", "b"]
        assert [j.name for j in found.mine] == ["c"]
        assert two.claims.holders() == one.claims.holders() != []
        one.settle(job("a"), outcome(job("a")), exists=anything)
        found = claim(two, "a", "b")
        assert [row.name for row in found.settled] == ["a"]  # done since it planned
        assert [j.name for j in found.busy] == ["b"]
        # What was there when it planned is to be done again: that is what it planned.
        assert [j.name for j in claim(two, "a", since=two.latest, exists=anything).mine] == ["a"]


def test_claims_of_the_dead_are_free(path):
    script = (
        "import os, sys; sys.path[:0] = sys.argv[2:]\n"
        "from pathlib import Path; from test_ledger import *\n"
        "ledger = Ledger(Path(sys.argv[1])); claim(ledger, 'a', 'b', 'c')\n"
        "os.kill(os.getpid(), 9)"
    )
    here = Path(__file__).parent
    assert subprocess.run([sys.executable, "-c", script, path, here, SUPPORT]).returncode == -9
    with Ledger(path) as ledger:
        assert ledger.claims.release_abandoned() == ["a", "b", "c"]
        ledger.claims.forget("a", exists=False)
        ledger.claims.forget("b", exists=True)  # was published, and never written down
        assert ledger.claims.release_abandoned() == ["b", "c"]
        found = claim(ledger, "a", "b", "c", exists={"b", "c"}.__contains__)
        assert [j.options.overwrite for j in found.mine] == [False, True, True]
        # It fails now; what is there is ours still.
        ledger.settle(found.mine[1], outcome(job("b"), "failed", 3), exists=anything)
        assert [row.ours for row in ledger.rows()] == [True]


def test_what_stood_there_before_is_not_ours(path):
    with Ledger(path) as ledger:
        found = claim(ledger, "a", exists=anything)
        assert (found.mine, [j.name for j in found.taken]) == ([], ["a"])
        ledger.settle(job("a"), outcome(job("a"), "crashed", 7), exists=anything)
        assert [row.ours for row in ledger.rows()] == [False]


def test_a_worker_that_died_may_have_published(path):
    with Ledger(path) as ledger:
        for name in "abc":
            claim(ledger, name)
        ledger.settle(job("a"), outcome(job("a"), "crashed", 7), exists=anything)
        ledger.settle(job("b"), outcome(job("b"), "crashed", 7), exists=nothing)
        ledger.settle(job("c"), outcome(job("c"), "failed", 3), exists=anything)
        assert [row.ours for row in ledger.rows()] == [True, False, False]


def test_an_interrupted_driver_keeps_no_claim(path):
    with Ledger(path) as ledger:
        claim(ledger, "a")
    with Ledger(path) as ledger:
        assert [j.name for j in claim(ledger, "a").mine] == ["a"]


def test_many_at_once(path):
    names = [f"{i:03}" for i in range(60)]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    drivers = [context.Process(target=_drive, args=(path, names, results)) for _ in range(3)]
    for driver in drivers:
        driver.start()
    done = [results.get(timeout=60) for _ in drivers]
    for driver in drivers:
        driver.join()
    assert sorted(name for some in done for name in some) == names
    with Ledger(path) as ledger:
        assert [row.name for row in ledger.rows()] == names


def _drive(path, names, results):
    done = []
    with Ledger(path) as ledger:
        for name in names:
            for one in claim(ledger, name).mine:
                ledger.settle(one, outcome(one), exists=anything)
                done.append(name)
    results.put(done)


def test_on_this_machine_life_is_known_exactly():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    one = liveness.Driver(
        "x", liveness.machine(), child.pid, liveness.find_start_time(child.pid), 0.0
    )
    pulse = liveness.Pulse()
    assert pulse.lives(one)  # however old its beat is
    reused = liveness.Driver("x", one.machine, one.pid, one.started - 1, time.time())
    assert not pulse.lives(reused)
    child.kill()
    while liveness.find_start_time(child.pid):  # a zombie is dead
        time.sleep(0.01)
    assert not pulse.lives(one)
    child.wait()
    child.stdin.close()


def test_elsewhere_by_its_beat(monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(liveness.time, "monotonic", lambda: clock[0])
    pulse = liveness.Pulse()
    now = time.time()

    def there(beat):
        return liveness.Driver("x", "other/boot/pid", 1, 1, beat)

    assert pulse.lives(there(now))
    clock[0] += liveness.SILENT_SECONDS - 1
    assert pulse.lives(there(now))
    clock[0] += 2
    assert not pulse.lives(there(now))
    assert pulse.lives(there(now + 5))  # it beats: it was only slow, or its clock is wrong
    assert not liveness.Pulse().lives(there(now - 2 * liveness.STALE_SECONDS))


def test_the_heart_beats_while_the_driver_is_busy(path, monkeypatch):
    monkeypatch.setattr("converter.batch.heartbeat.BEAT_SECONDS", 0.02)

    def beat():
        with contextlib.closing(sqlite3.connect(path)) as db:
            return db.execute("SELECT beat FROM drivers").fetchone()

    with Ledger(path):
        first = beat()
        until = time.monotonic() + 60  # nothing is done here
        while beat() == first and time.monotonic() < until:
            time.sleep(0.01)
        assert beat() > first
    assert beat() is None


# -- the file -------------------------------------------------------------------------------------


def test_a_damaged_ledger_says_what_to_do(path):
    with Ledger(path) as ledger:
        for i in range(50):
            claim(ledger, str(i))
            ledger.settle(job(str(i)), outcome(job(str(i))), exists=anything)
    whole = path.read_bytes()
    for damaged in (
        b"no database at all" * 100,
        whole[: len(whole) // 2 + 7],
        whole[:100] + bytes(len(whole) - 100),
    ):
        path.write_bytes(damaged)
        with pytest.raises(StorageError, match=r"damaged.*move it away") as e, Ledger(path) as one:
            list(one.rows_with_records())
        assert str(path) in str(e.value)
        assert e.value.exit_code == 6


def test_a_record_that_is_no_json(path):
    with Ledger(path) as ledger:
        claim(ledger, "a")
        ledger.settle(job("a"), outcome(job("a")), exists=anything)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE records SET record = '{'")
    with Ledger(path) as ledger, pytest.raises(StorageError, match="a record cannot be read"):
        ledger.record("a")


def test_a_ledger_of_the_former_version_is_read_as_it_is(path):
    """Its records have no schema, its tables are the same; written again, they have one."""
    with Ledger(path) as ledger:
        claim(ledger, "a")
        error = RecordedError("SourceError", "damaged")
        found = (Unsupported("TensorFlow op Svd", 2),)
        ledger.settle(job("a"), outcome(job("a"), error=error, unsupported=found), exists=anything)
        (expected,) = ledger.rows_with_records()
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        ((text,),) = db.execute("SELECT record FROM records")
        former = json.loads(text)
        assert former.pop("schema") == SCHEMA
        assert former["gaps"] == [{"what": "TensorFlow op Svd", "count": 2}]
        db.execute("UPDATE records SET record = ?", (json.dumps(former),))
    with Ledger(path) as ledger:
        assert [*ledger.rows_with_records()] == [expected]
        moved = replace(job("a"), source="/elsewhere/a", token="later")
        claim(ledger, "a", since=ledger.latest)
        ledger.settle(moved, outcome(moved, "unchanged"), exists=anything)
    with contextlib.closing(sqlite3.connect(path)) as db:
        ((text,),) = db.execute("SELECT record FROM records")
    assert (json.loads(text)["schema"], json.loads(text)["source"]) == (SCHEMA, "/elsewhere/a")


@pytest.mark.parametrize("text", [f'{{"schema": {SCHEMA + 1}}}', "[]", '{"steps": 7}', "null"])
def test_a_record_of_a_newer_version_or_of_another_shape_is_refused(path, text):
    with Ledger(path) as ledger:
        claim(ledger, "a")
        ledger.settle(job("a"), outcome(job("a")), exists=anything)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE records SET record = ?", (text,))
    with Ledger(path) as ledger, pytest.raises(StorageError, match="a record cannot be") as e:
        ledger.record("a")
    assert e.value.exit_code == 6
    assert ("Use the newer convert" in str(e.value)) == text.startswith('{"schema"')


def test_another_programs_database(path):
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE users(name)")
    before = path.read_bytes()
    with pytest.raises(StorageError, match="another program"):
        Ledger(path)
    assert path.read_bytes() == before


def test_a_newer_ledger(path):
    Ledger(path).__exit__(None, None, None)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StorageError, match=r"schema 99.*newer convert"):
        Ledger(path)


def test_a_place_where_nothing_can_be(tmp_path):
    with pytest.raises(StorageError, match="ledger="):
        Ledger(tmp_path / "absent" / "l.sqlite")
    with pytest.raises(StorageError, match="ledger="):
        Ledger(tmp_path)


def test_a_busy_ledger_is_waited_for(path):
    Ledger(path).__exit__(None, None, None)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.5, lambda: other.execute("COMMIT"))
    timer.start()
    with Ledger(path) as ledger:
        assert claim(ledger, "a").mine
    timer.join()
    other.close()


def test_one_that_is_locked_for_good(path, monkeypatch):
    monkeypatch.setattr(database, "PATIENCE_SECONDS", 0.1)
    Ledger(path).__exit__(None, None, None)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StorageError, match="another program has it locked"):
            Ledger(path)


def test_on_a_network_file_system_there_is_no_shared_memory(path, monkeypatch):
    def mode():
        with contextlib.closing(sqlite3.connect(path)) as db:
            return db.execute("PRAGMA journal_mode").fetchone()[0]

    Ledger(path).__exit__(None, None, None)
    assert mode() == "wal"
    monkeypatch.setattr(database, "_is_local", lambda path: False)
    with Ledger(path) as ledger:
        claim(ledger, "a")
        ledger.settle(job("a"), outcome(job("a")), exists=anything)
        assert {p.name for p in path.parent.iterdir()} == {path.name}
    assert mode() == "delete"
    monkeypatch.undo()
    Ledger(path).__exit__(None, None, None)
    assert mode() == "delete"  # another machine may have it open yet


def test_what_is_local(monkeypatch, tmp_path):
    assert database._is_local(tmp_path / "x")
    table = (
        b"25 1 254:0 / / rw - ext4 /dev/vda rw\n"
        b"30 25 0:50 / /net\\040share rw - nfs4 server:/x rw\n"
        b"31 30 0:51 / /net\\040share/fast rw - tmpfs tmpfs rw\n"
        b"32 25 0:52 / /mnt/s3 rw - fuse.s3fs s3fs rw\n"
    )
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda p: table if p.name == "mountinfo" else real(p))
    found = {
        place: database._is_local(Path(place) / "l.sqlite")
        for place in ("/", "/net share/a", "/net share/fast", "/mnt/s3", "/mnt/s3x")
    }
    assert found == {
        "/": True, "/net share/a": False, "/net share/fast": True,
        "/mnt/s3": False, "/mnt/s3x": True,
    }  # fmt: skip


def test_reading_leaves_no_trace(path):
    with Ledger(path) as ledger:
        claim(ledger, "a")
        ledger.settle(job("a"), outcome(job("a")), exists=anything)
    before = [(p.name, p.stat().st_mtime_ns) for p in path.parent.iterdir()]
    with Ledger(path, read_only=True) as ledger:
        assert len(list(ledger.rows())) == 1
    assert [(p.name, p.stat().st_mtime_ns) for p in path.parent.iterdir()] == before


def test_reading_while_another_writes(path):
    with Ledger(path) as writer:
        claim(writer, "a")
        writer.settle(job("a"), outcome(job("a")), exists=anything)
        with Ledger(path, read_only=True) as reader:
            assert len(list(reader.rows())) == 1


def test_an_interrupt_between_two_statements_undoes_both(path):
    with Ledger(path) as ledger:
        with pytest.raises(KeyboardInterrupt), ledger._db.transaction():  # noqa: PT012
            ledger._name("a", "/r/a", ".p")
            raise KeyboardInterrupt
        assert ledger.choose_names(".p", {}, lambda known, others: known) == {}
