"""A batch in this process: what is done, what is not done again, and what is never touched."""

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from batch_runs import batch, make_request, rows, run, statuses, write
from repository import ROOT, SUPPORT

from converter.batch import driver, liveness, queue
from converter.batch.driver import Finished, Waiting
from converter.batch.ledger import Ledger
from converter.destinations.folder import Folder
from converter.destinations.protocol import Recalled
from converter.filesystem import atomic_output
from converter.options import Options
from converter.registries.filters import Filters
from converter.verification import bundle_check
from formats.errors import SourceError, StorageError, UsageError


@pytest.fixture
def registry(tmp_path):
    folder = tmp_path / "registry"
    for i, name in enumerate(("a", "b/c", "b/d")):
        write(folder / f"{name}.safetensors", i)
    return folder


# -- what is done, and what is done again ---------------------------------------------------------


def test_all_is_done_once(registry, tmp_path):
    plan, outcomes, summary = batch(tmp_path)
    names = {"a.portable", "b/c.portable", "b/d.portable"}
    assert statuses(outcomes) == dict.fromkeys(names, "done")
    assert {job.name for job in plan.todo} == names
    assert plan.nbytes == sum(p.stat().st_size for p in registry.rglob("*.safetensors"))
    assert (summary.exit_code, summary.left, summary.counts) == (0, 0, Counter(done=3))
    plan, outcomes, summary = batch(tmp_path)
    assert (plan.todo, outcomes) == ([], {})
    assert {row.name for row in plan.done} == names
    assert (summary.exit_code, summary.done_before) == (0, 3)


def test_what_has_come_or_gone_or_changed(registry, tmp_path):
    batch(tmp_path)
    inode = (tmp_path / "out/a.portable").stat().st_ino
    write(registry / "new.safetensors", 7)
    write(registry / "b/c.safetensors", 8)  # other contents
    (registry / "b/d.safetensors").unlink()
    plan, outcomes, summary = batch(tmp_path)
    assert statuses(outcomes) == {"b/c.portable": "done", "new.portable": "done"}
    assert [row.name for row in plan.done] == ["a.portable"]
    assert (tmp_path / "out/a.portable").stat().st_ino == inode
    assert (tmp_path / "out/b/d.portable").is_dir()  # it is the user's to remove
    assert summary.exit_code == 0


def test_a_source_that_was_only_touched(registry, tmp_path):
    batch(tmp_path)
    inode = (tmp_path / "out/a.portable").stat().st_ino
    os.utime(registry / "a.safetensors", (1, 1))
    outcomes = batch(tmp_path)[1]
    assert statuses(outcomes) == {"a.portable": "unchanged"}
    assert (tmp_path / "out/a.portable").stat().st_ino == inode
    assert batch(tmp_path)[1] == {}  # and that is known now
    assert rows(tmp_path)["a.portable"].status == "done"


def test_other_options_and_another_version(registry, tmp_path, monkeypatch):
    batch(tmp_path)
    other = Options(seed := "portable", max_shard_size=1 << 20)
    assert seed == "portable"
    assert len(batch(tmp_path, options=other)[1]) == 3
    assert batch(tmp_path, options=other)[1] == {}
    assert batch(tmp_path, options=replace(other, overwrite=True, sync=True))[1] == {}
    monkeypatch.setattr("converter.jobs.job.VERSION", "99.0")
    assert len(batch(tmp_path, options=other)[1]) == 3


def test_other_targets_stand_beside(registry, tmp_path):
    batch(tmp_path)
    outcomes = batch(tmp_path, options=Options(to="safetensors"))[1]
    assert sorted(outcomes) == ["a.safetensors", "b/c.safetensors", "b/d.safetensors"]
    assert batch(tmp_path)[1] == {}
    assert batch(tmp_path, options=Options(to="safetensors"))[1] == {}


HARMS = {
    "all": ("", "is gone"),
    "emptied": ("", "manifest.json is gone"),
    "manifest": ("manifest.json", "manifest.json is gone"),
    "weights": ("model.safetensors", "model.safetensors is gone"),
    "cut": ("model.safetensors", "model.safetensors has 20 bytes; 128 were written"),
    "blank": ("model.safetensors", "model.safetensors has 0 bytes; 128 were written"),
    "link": ("model.safetensors", "model.safetensors is gone"),
}


@pytest.mark.parametrize("damage", HARMS)
def test_an_output_that_is_not_as_it_was_left_is_made_again(registry, tmp_path, damage):
    batch(tmp_path)
    name, why = HARMS[damage]
    output = tmp_path / "out/a.portable"
    if damage in ("all", "emptied"):
        shutil.rmtree(output)
        output.mkdir() if damage == "emptied" else None
    elif damage in ("cut", "blank"):
        os.truncate(output / name, 0 if damage == "blank" else 20)
    else:
        (output / name).unlink()
        (output / name).symlink_to("nowhere") if damage == "link" else None
    plan, outcomes, _ = batch(tmp_path)
    assert plan.damaged == {"a.portable": why}
    assert statuses(outcomes) == {"a.portable": "done"}
    assert (len(plan.done), batch(tmp_path)[1]) == (2, {})
    assert bundle_check.check_output(bundle_check.Candidate(output, "bundle"), None).problems == ()


@pytest.mark.parametrize("to", ["safetensors", "savedmodel"])
def test_files_and_deep_folders_are_watched_as_bundles_are(tmp_path, to):
    fixtures = ROOT / "fixtures"
    if to == "savedmodel":
        shutil.copytree(fixtures / "tensorflow/simple_save", tmp_path / "registry/m")
    else:
        write(tmp_path / "registry/m.safetensors")
    options = Options(to=to)
    _, outcomes, _ = batch(tmp_path, options=options)
    (outcome,) = outcomes.values()
    assert outcome.status == "done", outcome.record.error
    inside = max(outcome.record.published, key=len)
    assert inside.count("/") == (1 if to == "savedmodel" else 0)
    os.truncate(tmp_path / "out" / outcome.name / inside, 1)
    plan, outcomes, _ = batch(tmp_path, options=options)
    assert list(plan.damaged) == [outcome.name]
    assert list(statuses(outcomes).values()) == ["done"]
    assert batch(tmp_path, options=options)[1] == {}


def test_a_ledger_that_kept_no_sizes_is_believed(registry, tmp_path):
    """As older versions wrote it: an output counts as long as its manifest is there."""
    batch(tmp_path)
    with closing(sqlite3.connect(tmp_path / "out.ledger.sqlite")) as db, db:
        db.execute("UPDATE records SET record = json_set(record, '$.published', json('{}'))")
    os.truncate(tmp_path / "out/b/c.portable/model.safetensors", 0)
    (tmp_path / "out/a.portable/manifest.json").unlink()
    plan, outcomes, _ = batch(tmp_path)
    assert plan.damaged == {"a.portable": "is gone"}
    assert statuses(outcomes) == {"a.portable": "done"}


def test_failures_are_tried_again_when_asked_or_when_the_source_changes(registry, tmp_path):
    broken = registry / "a.safetensors"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:-3])
    outcomes, summary = batch(tmp_path)[1:]
    assert outcomes["a.portable"].status == "failed"
    assert summary.exit_code == 3
    plan, outcomes, summary = batch(tmp_path)
    assert (outcomes, summary.failed_before, summary.exit_code) == ({}, 1, 3)
    assert plan.failed[0].error.startswith(str(broken))
    assert statuses(batch(tmp_path, retry_failed=True)[1]) == {"a.portable": "failed"}
    broken.write_bytes(whole)
    outcomes, summary = batch(tmp_path)[1:]
    assert statuses(outcomes) == {"a.portable": "done"}
    assert summary.exit_code == 0


def test_storage_that_fails_is_tried_again_unasked(registry, tmp_path, monkeypatch):
    def full(*about, **more):
        raise StorageError.writing(tmp_path, OSError(errno.ENOSPC, "No space left on device"))

    with monkeypatch.context() as patch:
        patch.setattr("converter.pipeline.publish", full)
        outcomes, summary = batch(tmp_path)[1:]
    assert summary.exit_code == 6
    assert "Free some space" in outcomes["a.portable"].record.error.message
    assert [p.name for p in (tmp_path / "out").rglob("*") if p.is_file()] == []
    assert statuses(batch(tmp_path)[1]) == dict.fromkeys(outcomes, "done")


# -- what is asked for ----------------------------------------------------------------------------


def test_shards_are_everything_exactly_once(registry, tmp_path):
    for i in range(20):
        write(registry / f"many/{i}.safetensors", i)
    seen = Counter()
    for part in range(1, 4):
        plan, outcomes, summary = batch(tmp_path, shard=(part, 3))
        assert len(plan.todo) == len(outcomes)
        assert not plan.done
        assert summary.left == 0
        seen.update(list(outcomes))
    assert seen == Counter(rows(tmp_path).keys())
    assert set(seen.values()) == {1}
    assert len(seen) == 23
    assert batch(tmp_path)[1] == {}  # one ledger for all of them


def test_a_limit_is_of_what_there_is_to_do(registry, tmp_path):
    found = []
    for left in (2, 1, 0, 0):
        plan, outcomes, summary = batch(tmp_path, limit=1)
        assert (summary.left, plan.later) == (left, left)
        found += outcomes
        assert len(plan.done) == len(found) - len(outcomes)
    assert sorted(found) == ["a.portable", "b/c.portable", "b/d.portable"]


def test_fail_fast(registry, tmp_path):
    for name in ("a", "b/c", "b/d"):
        (registry / f"{name}.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0nothing!")
    outcomes, summary = batch(tmp_path, fail_fast=True)[1:]
    assert len(outcomes) == 1
    assert (summary.exit_code, summary.left) == (3, 2)
    assert len(batch(tmp_path)[1]) == 2


def test_filters_and_several_registries(registry, tmp_path):
    write(tmp_path / "other/a.safetensors", 5)
    outcomes = batch(tmp_path, registry, tmp_path / "other", registry / "b")[1]
    assert sorted(outcomes) == [
        "other/a.portable", "registry/a.portable", "registry/b/c.portable",
        "registry/b/d.portable",
    ]  # fmt: skip
    outcomes = batch(tmp_path, registry, filters=Filters(exclude=("b/*",)))[1]
    assert outcomes == {}  # the name that it has is for good


def test_an_engine_that_there_is_not(registry, tmp_path):
    with pytest.raises(UsageError, match="engine='pigeons'"):
        batch(tmp_path, engine="pigeons")
    assert not (tmp_path / "out").exists()


# -- a dry run ------------------------------------------------------------------------------------


def everything(folder):
    return {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in folder.rglob("*")}


def test_a_dry_run_tells_the_same_and_writes_nothing(registry, tmp_path):
    def dry():
        before = everything(tmp_path)
        (event,) = driver.run(make_request(tmp_path), dry_run=True)
        assert everything(tmp_path) == before
        return event.plan

    for _ in range(2):
        write(registry / "more.h5.safetensors", 9)
        planned = dry()
        plan = batch(tmp_path)[0]
        assert (planned.todo, planned.done, planned.formats) == (plan.todo, plan.done, plan.formats)
        (registry / "broken.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0nothing!")
    batch(tmp_path)
    assert [row.name for row in dry().failed] == ["broken.portable"]


def test_a_dry_run_beside_a_driver(registry, tmp_path):
    events = driver.run(make_request(tmp_path))
    next(events), next(events)
    (event,) = driver.run(make_request(tmp_path), dry_run=True)
    assert len(event.plan.todo) == 2
    assert len(list(events)) == 3


# -- what is the user's ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_stood_there_before_stays(registry, tmp_path, kind):
    theirs = tmp_path / "out/a.portable"
    theirs.parent.mkdir()
    if kind == "file":
        theirs.write_text("thesis")
    elif kind == "folder":
        theirs.mkdir()
        (theirs / "manifest.json").write_text("thesis")
    else:
        theirs.symlink_to("nowhere")
    before = everything(tmp_path / "out") if kind != "link" else theirs.readlink()
    for _ in range(2):  # it is looked at each time: it may be gone
        outcomes, summary = batch(tmp_path)[1:]
        assert summary.exit_code == 6
        message = outcomes["a.portable"].record.error.message
        assert message.endswith("replace it: overwrite=True")
    if kind == "link":
        assert theirs.readlink() == before
    else:
        assert before.items() <= everything(tmp_path / "out").items() | {
            (theirs.parent, before.get(theirs.parent))
        }
    (theirs / "manifest.json").unlink(missing_ok=True) if kind == "folder" else theirs.unlink()
    outcomes, summary = batch(tmp_path, options=Options(overwrite=kind == "folder"))[1:]
    assert (statuses(outcomes), summary.exit_code) == ({"a.portable": "done"}, 0)


def test_force_replaces_what_stands_there(registry, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a.portable").write_text("old")
    assert batch(tmp_path, options=Options(overwrite=True))[2].exit_code == 0
    assert (tmp_path / "out/a.portable/manifest.json").is_file()


def test_the_destination_inside_the_registry(registry, tmp_path):
    request = replace(make_request(tmp_path), destination=str(registry / "converted"))
    assert len(run(request)[1]) == 3
    plan, outcomes, _ = run(request)
    assert (outcomes, len(plan.done)) == ({}, 3)
    assert {one.reason for one in plan.skipped if "converted" in one.source} == {
        "in the destination"
    }
    (tmp_path / "way").symlink_to(registry)
    request = replace(request, registries=(str(tmp_path / "way"),))
    assert not [job for job in run(request)[0].todo if "converted" in job.source]


def test_the_destination_below_a_glob(registry, tmp_path):
    request = replace(
        make_request(tmp_path, registry / "**"), destination=str(registry / "b/converted")
    )
    assert len(run(request)[1]) == 3
    (tmp_path / "registry/b/converted.ledger.sqlite").unlink()
    (event,) = driver.run(request, dry_run=True)
    assert not [job for job in event.plan.todo if "converted" in job.source]


def test_the_registry_inside_the_destination(registry, tmp_path):
    request = replace(
        make_request(tmp_path), destination=str(tmp_path), ledger=tmp_path / "l.sqlite"
    )
    assert len(run(request)[1]) == 3
    request = replace(request, registries=(str(tmp_path / "a.portable"), str(registry)))
    plan = run(request)[0]
    assert [Path(one.source).name for one in plan.skipped][:1] == ["a.portable"]
    assert plan.todo == []


def test_the_destination_that_is_the_registry(registry, tmp_path):
    with pytest.raises(UsageError, match="the registry itself"):
        run(replace(make_request(tmp_path), destination=str(registry)))
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="no artifact"):
        batch(tmp_path, tmp_path / "empty")
    with pytest.raises(UsageError, match="a folder of its own"):
        run(replace(make_request(tmp_path), destination="/"))


def test_a_ledger_inside_the_destination(registry, tmp_path):
    ledger = tmp_path / "out/ledger.sqlite"
    (tmp_path / "out").mkdir()
    for done in (3, 0):
        assert len(run(replace(make_request(tmp_path), ledger=ledger))[1]) == done
    assert ledger.exists()


# -- names ----------------------------------------------------------------------------------------


def test_odd_names(tmp_path):
    registry = tmp_path / "registry"
    sources = [
        "-rf", "two\nlines", "\u00e9", "e\u0301", "A", "a", "\u6a21\u578b", "x" * 240,
        "x" * 239, os.fsdecode(b"\xff\xfe"), "sp ace", "'quoted\"", "*[a]?", "a.portable/in",
        "\U0001f600" * 58,
    ]  # fmt: skip
    for i, name in enumerate(sources):
        write(registry / f"{name}.safetensors", i)
    plan, outcomes, summary = batch(tmp_path)
    assert Counter(statuses(outcomes).values()) == Counter(done=len(sources)), plan.skipped
    assert len({name.casefold() for name in outcomes}) == len(sources)
    assert summary.exit_code == 0
    assert batch(tmp_path)[1] == {}


def test_names_stay_as_files_come_and_go(registry, tmp_path):
    batch(tmp_path)
    (registry / "a.safetensors").rename(registry / "a.st")  # known by its contents
    assert sorted(batch(tmp_path)[1]) == ["a.st.portable"]  # the other one may come back
    write(registry / "a.safetensors", 0)
    plan, outcomes, _ = batch(tmp_path)
    assert {row.name for row in plan.done} | set(outcomes) == {
        "a.portable", "a.st.portable", "b/c.portable", "b/d.portable",
    }  # fmt: skip


# -- sources that change --------------------------------------------------------------------------


def test_a_source_that_vanishes_after_the_plan(registry, tmp_path):
    events = driver.run(make_request(tmp_path))
    next(events)
    (registry / "b/d.safetensors").unlink()
    *rest, summary = events
    assert summary.exit_code == 3
    assert {e.outcome.name: e.outcome.exit_code for e in rest}["b/d.portable"] == 3
    plan, outcomes, summary = batch(tmp_path)
    assert (outcomes, summary.exit_code, len(plan.done)) == ({}, 0, 2)  # it is no artifact now


def test_a_source_that_changes_while_it_is_read(registry, tmp_path, monkeypatch):
    def while_it_writes(*about, **more):
        monkeypatch.undo()
        write(registry / "a.safetensors", 77, size=9)
        return atomic_output.staging(*about, **more)

    monkeypatch.setattr("converter.pipeline.staging", while_it_writes)
    outcomes, summary = batch(tmp_path)[1:]
    failed = [o for o in outcomes.values() if o.status == "failed"]
    assert len(failed) == 1
    assert failed[0].name == "a.portable"
    assert "changed" in failed[0].record.error.message
    assert summary.exit_code == 3
    assert not (tmp_path / "out/a.portable").exists()
    assert statuses(batch(tmp_path)[1]) == {"a.portable": "done"}


def test_a_source_that_changes_between_plan_and_work(registry, tmp_path):
    events = driver.run(make_request(tmp_path))
    next(events)
    write(registry / "b/d.safetensors", 78, size=10)
    assert [*events][-1].exit_code == 0
    # The token is the older one's: the next run looks again, and finds what it has.
    assert statuses(batch(tmp_path)[1]) == {"b/d.portable": "unchanged"}


# -- destinations and ledgers that cannot be used -------------------------------------------------


def test_a_destination_that_is_a_file(registry, tmp_path):
    (tmp_path / "out").write_text("theirs")
    with pytest.raises(StorageError, match="out"):
        batch(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "registry"]


def test_a_folder_in_the_way(registry, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/b").write_text("theirs")
    outcomes, summary = batch(tmp_path)[1:]
    assert statuses(outcomes) == {
        "a.portable": "done", "b/c.portable": "failed", "b/d.portable": "failed",
    }  # fmt: skip
    assert summary.exit_code == 6


def test_a_ledger_that_fails_in_the_middle(registry, tmp_path):
    events = driver.run(make_request(tmp_path))
    next(events), next(events)
    with closing(sqlite3.connect(tmp_path / "out.ledger.sqlite")) as db:
        db.execute("DROP TABLE records")
    with pytest.raises(StorageError, match=r"out\.ledger\.sqlite: the ledger cannot be used"):
        list(events)
    assert not list((tmp_path / "out").rglob(".*"))


# -- drivers that died, and drivers beside ---------------------------------------------------------


DIES = """
import os, sys
sys.path[:0] = [sys.argv[2]]
from pathlib import Path
from converter.batch import driver
from converter.batch.ledger import Ledger
from batch_runs import make_request
Ledger.settle = lambda *about, **more: os.kill(os.getpid(), 9)
list(driver.run(make_request(Path(sys.argv[1]))))
"""


def test_killed_between_an_output_and_its_row(registry, tmp_path):
    """What was published and never written down is known for ours, and replaced."""
    died = subprocess.run([sys.executable, "-c", DIES, tmp_path, SUPPORT])
    assert died.returncode == -9
    (published,) = (tmp_path / "out").rglob("*.portable")
    assert rows(tmp_path) == {}
    outcomes, summary = batch(tmp_path)[1:]
    assert statuses(outcomes)[published.relative_to(tmp_path / "out").as_posix()] == "done"
    assert (len(outcomes), summary.exit_code) == (3, 0)


def test_killed_and_its_source_gone(registry, tmp_path):
    """Its output stays, and is still ours when the source comes back."""
    subprocess.run([sys.executable, "-c", DIES, tmp_path, SUPPORT])
    (published,) = (tmp_path / "out").rglob("*.portable")
    name = published.relative_to(tmp_path / "out").with_suffix(".safetensors")
    (registry / name).rename(tmp_path / "aside")
    assert len(batch(tmp_path)[1]) == 2
    (tmp_path / "aside").rename(registry / name)
    assert list(statuses(batch(tmp_path)[1]).values()) == ["done"]


def test_what_the_dead_left_is_swept_though_there_is_nothing_to_do(registry, tmp_path):
    dies = DIES.replace("Ledger.settle =", "from converter import pipeline; pipeline.publish =")
    assert subprocess.run([sys.executable, "-c", dies, tmp_path, SUPPORT]).returncode == -9
    (left,) = (tmp_path / "out").rglob(".*.convert-0")
    name = left.name[1:].removesuffix(".portable.convert-0")
    for path in registry.rglob(f"{name}.safetensors"):
        path.unlink()
    batch(tmp_path)
    assert not left.exists()


def test_two_drivers_share_the_work(registry, tmp_path):
    for i in range(12):
        write(registry / f"more{i}.safetensors", i)
    one, two = driver.run(make_request(tmp_path)), driver.run(make_request(tmp_path))
    next(one), next(two)
    mine, theirs = [next(one)], [next(two)]
    # The one is at its next ones, and does not go on: the other does all that is free, and waits.
    for event in two:
        if isinstance(event, Waiting):
            break
        theirs.append(event)
    assert event.count >= 1
    assert event.holders
    mine += one
    theirs += (event for event in two if not isinstance(event, Waiting))
    ends = [mine.pop(), theirs.pop()]
    assert [end.exit_code for end in ends] == [0, 0]
    for events in (mine, theirs):
        assert len({event.outcome.name for event in events}) == 15
        assert events[-1].through == events[-1].total == 15
    done = [e.outcome.name for e in mine + theirs if not e.is_elsewhere]
    assert Counter(done) == Counter(rows(tmp_path).keys())
    assert ends[0].elsewhere + ends[1].elsewhere == 15
    assert ends[0].left == ends[1].left == 0


def test_what_a_driver_leaves_undone_another_takes_over(registry, tmp_path, monkeypatch):
    monkeypatch.setattr(queue, "DEAD_SECONDS", 0.05)
    script = DIES.replace(
        "Ledger.settle = lambda *about, **more: os.kill(os.getpid(), 9)",
        "import time; from converter.executors import inline\n"
        "inline.work = lambda *a: (print('has', flush=True), time.sleep(100))",
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path, SUPPORT], stdout=subprocess.PIPE
    )
    assert child.stdout.readline() == b"has\n"
    threading.Timer(1.0, child.kill).start()
    waited, outcomes = 0, []
    for event in driver.run(make_request(tmp_path)):
        waited += isinstance(event, Waiting)
        outcomes += [event.outcome.status] if isinstance(event, Finished) else []
    child.wait()
    child.stdout.close()
    assert waited
    assert outcomes == ["done"] * 3
    assert (event.exit_code, event.elsewhere) == (0, 0)


def test_failures_of_another_driver_count(registry, tmp_path):
    (registry / "a.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0nothing!")
    one, two = driver.run(make_request(tmp_path)), driver.run(make_request(tmp_path))
    next(one), next(two)
    *_, end = one
    *events, other = two
    assert (end.exit_code, other.exit_code) == (3, 3)
    assert (other.elsewhere, other.counts) == (3, Counter())
    assert all(event.is_elsewhere for event in events)


def test_a_driver_that_is_closed_gives_its_claims_back(registry, tmp_path):
    events = driver.run(make_request(tmp_path))
    next(events), next(events)
    events.close()
    begin = time.monotonic()
    assert len(batch(tmp_path)[1]) == 2
    assert time.monotonic() - begin < 30


def test_scratch_folders_of_the_dead_are_removed(registry, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp/convert-batch-0123/deep").mkdir(parents=True)
    (tmp_path / "tmp/others").mkdir()
    (tmp_path / "tmp/convert-batch-file").touch()
    batch(tmp_path)
    assert sorted(p.name for p in (tmp_path / "tmp").iterdir()) == ["convert-batch-file", "others"]


# -- what a destination knows ---------------------------------------------------------------------


def test_what_a_place_tells_is_not_done_again(registry, tmp_path, monkeypatch):
    """As object stores do, which another machine may have filled."""
    batch(tmp_path)
    with Ledger(tmp_path / "out.ledger.sqlite", read_only=True) as ledger:
        notes = [
            Recalled(row.name, row.source, row.plan, row.token, record)
            for row, record in ledger.rows_with_records()
        ]
    (tmp_path / "out.ledger.sqlite").unlink()
    monkeypatch.setattr(
        Folder, "recall", lambda self, known: [n for n in notes if n.name not in known]
    )
    (event,) = driver.run(make_request(tmp_path), dry_run=True)
    assert (event.plan.todo, len(event.plan.done)) == ([], 3)
    assert not (tmp_path / "out.ledger.sqlite").exists()
    plan, outcomes, _ = batch(tmp_path)
    assert (outcomes, len(plan.done)) == ({}, 3)
    assert set(rows(tmp_path)) == {note.name for note in notes}


# -- power cuts -----------------------------------------------------------------------------------


def test_what_was_only_in_memory_is_not_believed_after_a_restart(registry, tmp_path, monkeypatch):
    with monkeypatch.context() as cut:
        cut.setattr(Folder, "flush", lambda self: 1 / 0)  # the power goes before that
        with pytest.raises(ZeroDivisionError):
            batch(tmp_path)
    assert {row.boot for row in rows(tmp_path).values()} == {liveness.boot()}
    assert batch(tmp_path)[1] == {}  # the machine never went down; and now it is flushed
    assert {row.boot for row in rows(tmp_path).values()} == {""}
    with monkeypatch.context() as cut:
        cut.setattr(Folder, "flush", lambda self: 1 / 0)
        write(registry / "new.safetensors", 4)
        with pytest.raises(ZeroDivisionError):
            batch(tmp_path)
    here = liveness.boot()
    monkeypatch.setattr(liveness, "boot", lambda: here[:-1])
    assert statuses(batch(tmp_path)[1]) == {"new.portable": "done"}
    monkeypatch.setattr(liveness, "boot", lambda: "another/machine")
    assert batch(tmp_path)[1] == {}


def test_a_long_run_is_flushed_on_its_way(registry, tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "FLUSH_SECONDS", 0)
    flushed = []
    real = Folder.flush
    monkeypatch.setattr(Folder, "flush", lambda self: (flushed.append(1), real(self)))
    events = driver.run(make_request(tmp_path))
    for _ in range(3):
        next(events)
    assert len(flushed) == 1
    assert sorted(bool(row.boot) for row in rows(tmp_path).values()) == [False, True]
    events.close()
