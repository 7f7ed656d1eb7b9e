"""Children that crash, hang, swell and lie; and that none of it reaches the next one."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
from repository import SUPPORT

from converter.executors.engine import Settings
from converter.executors.process_monitor import is_alive
from converter.executors.processes import Processes, Try
from converter.jobs.job import Job, Needs
from converter.options import Options
from formats.errors import DependencyError, StorageError

TASK = "planted:task"
MIB = 1 << 20


@pytest.fixture(autouse=True)
def planted(monkeypatch):
    """Servers find the tasks; nothing else of this folder is on anybody's path."""
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT), prepend=os.pathsep)


@pytest.fixture
def scratch(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    yield folder
    assert not list(folder.iterdir()), "something was left among temporary files"


def job(source, n=0, destination="/nowhere", **needs):
    options = Options(to="safetensors")
    return Job(source, f"out{n}", str(destination), options, needs=Needs(**needs))


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def run(scratch, *jobs, retries=2, at_once=2):
    """Return outcomes in the order of the jobs."""
    jobs = [replace(j, name=f"out{n}") for n, j in enumerate(jobs)]
    with Processes(Settings(at_once, scratch, retries=retries), TASK, preloads=False) as executor:
        found = {o.name: o for o in executor.run(jobs)}
        assert not executor._sent
    assert len(found) == len(jobs)
    return [found[j.name] for j in jobs]


def message(outcome):
    assert outcome.record.status == outcome.status
    assert outcome.record.exit_code == outcome.exit_code
    return outcome.record.error.message


def wait_until(condition, seconds=120.0):
    """Wait for an event; the bound is far beyond what a busy machine needs."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.01)


NO_ANSWER = r"ended with code {} and no answer"
KILLED = r"was killed \(SIGKILL\)\. Perhaps it was out of memory \(3 times\)$"
# fmt: off
BAD = [
    # what the job does  status    exit  what is said of it
    ("segv",            "crashed",  7,   r"SIGSEGV, in .*string_at.*: the last thing it said$"),
    ("abort",           "crashed",  7,   r"died of SIGABRT, in _abort \(.*planted.py:\d+\)$"),
    ("exit 3",          "crashed",  7,   NO_ANSWER.format(3) + "$"),
    ("exit 0",          "crashed",  7,   NO_ANSWER.format(0) + "$"),
    ("sys_exit 5",      "crashed",  7,   NO_ANSWER.format(5) + "; its last words: SystemExit: 5$"),
    ("group",           "crashed",  7,   KILLED),
    ("kill",            "crashed",  7,   KILLED),
    ("memory_error",    "memory",   7,   r"^MemoryError: planted$"),
    ("raises because",  "failed",  70,   r"^ValueError: because$"),
    ("unpicklable",     "failed",  70,   r"^UnpicklableError: <function"),
    ("unsayable",       "crashed",  7,   NO_ANSWER.format(1) + ".*object is not JSON"),
    ("flood_and_die",   "crashed",  7,   NO_ANSWER.format(4) + ".*words: the end is near$"),
    ("close_all",       "crashed",  7,   NO_ANSWER.format(1) + "$"),
]
# fmt: on


def test_many_with_bad_ones_among_them(scratch):
    """Every good job is done, every bad one is named, and no job is another one's."""
    jobs = [job(f"fine {n}") for n in range(200)]
    places = {7 + 14 * k: bad for k, bad in enumerate(BAD)}
    for place, (source, *_) in places.items():
        jobs[place] = job(source)
    outcomes = run(scratch, *jobs, at_once=4)
    for n, outcome in enumerate(outcomes):
        if n not in places:
            assert (outcome.status, outcome.record.published["found"]) == ("done", str(n))
            continue
        source, status, code, said = places[n]
        assert (outcome.source, outcome.status, outcome.exit_code) == (source, status, code)
        assert re.search(said, message(outcome)), (source, message(outcome))
        tries = (3,) if source in ("kill", "group") else (1, 2) if status == "crashed" else (1,)
        assert outcome.record.attempts in tries  # a crash behind other jobs is looked at alone


def test_timeouts(scratch):
    """Whatever a job does not listen to: it is stopped, and said where it was."""
    sources = ["hang", "deaf", "stopped", "close_all_and_hang"]
    begin = time.monotonic()
    *bad, good = run(scratch, *(job(s, seconds=0.5) for s in sources), job("fine x"), at_once=5)
    assert time.monotonic() - begin < 300  # each of them hangs for 600
    assert good.status == "done"
    for source, outcome in zip(sources, bad, strict=True):
        assert (outcome.status, outcome.exit_code) == ("timeout", 7)
        said = message(outcome)
        assert "took longer than 0.5 s and was stopped" in said
        assert outcome.record.seconds >= 0.5
        if source in ("hang", "deaf"):
            assert f", in _{source} (" in said


@pytest.mark.slow
def test_families_end_with_their_job(scratch, tmp_path):
    """Children in sessions of their own, without a leash, of jobs that end in whatever way."""
    ends = {"hang": "timeout", "crash": "crashed", "end": "done"}
    jobs = [job(f"family {tmp_path / how} {how}", n, seconds=4) for n, how in enumerate(ends)]
    with Processes(Settings(3, scratch), TASK, preloads=False) as executor:
        for outcome in executor.run(jobs):
            _, pid_file, how = outcome.source.split()
            assert outcome.status == ends[how]
            pids = [int(pid) for pid in Path(pid_file).read_text().split()]
            assert not any(map(is_alive, pids)), how


def test_memory(scratch):
    """One request that is too large is a MemoryError; growth is stopped; a family counts as one."""
    limit = 300 * MIB
    found = run(
        scratch,
        job(f"eat_at_once {40 * limit}", memory_bytes=limit),
        job(f"eat {8 * limit}", memory_bytes=limit),
        job(f"child_eats {2 * limit}", memory_bytes=limit),
        job(f"eat_at_once {limit // 4}", memory_bytes=limit),
        job("fine x"),
    )
    assert [o.status for o in found] == ["memory", "memory", "memory", "done", "done"]
    assert message(found[0]).startswith("MemoryError")
    for outcome in found[1:3]:
        assert re.match(r"took \d+\.\d MiB of memory and was stopped", message(outcome))
        assert "expected at most 300.0 MiB" in message(outcome)


def test_nothing_passes_from_job_to_job(scratch):
    with Processes(Settings(1, scratch), TASK, preloads=False) as executor:
        before, _, after = executor.run([job("state", 0), job("vandal", 1), job("state", 2)])
    assert before.record.published["found"] == after.record.published["found"]
    found = before.record.published["found"]
    assert found["planted"] is found["vandal"] is found["blas"] is None
    assert found["threads"] == 1
    assert found["fds"][:3] == [0, 1, 2]
    assert len(found["fds"]) == 7  # and pipes for orders and answers, the lifeline, what lists them
    assert found["stdin"] == ""
    assert not found["children"]


def test_small_jobs_share_a_child_that_is_as_it_was(scratch):
    """A job that changes its process, opens files or takes long is the last one in it."""
    sources = [*(f"pid {n}" for n in range(5)), "open_file", "pid 5", "long 0.6", "pid 6", "pid 7"]
    with Processes(Settings(1, scratch), TASK, preloads=False) as executor:
        found = [o.record.published["found"] for o in executor.run(map(job, sources))]
    before, between, after = set(found[:6]), set(found[6:8]), set(found[8:])
    assert not (before & between | between & after | before & after)
    assert len(before) < 6  # where the machine is busy, a small job takes long now and then


def test_a_crash_behind_other_jobs_is_looked_at_alone(scratch):
    with Processes(Settings(1, scratch), TASK, preloads=False) as executor:
        good, bad, spoilt = sorted(
            executor.run(map(job, ["pid 0", "segv", "crash_behind_others"])),
            key=lambda o: ["pid 0", "segv", "crash_behind_others"].index(o.source),
        )
    assert (good.status, bad.status, spoilt.status) == ("done", "crashed", "done")
    assert bad.record.attempts == 2
    assert "SIGSEGV" in message(bad)
    with Processes(Settings(1, scratch), TASK, preloads=False) as executor:
        *_, last = executor.run(map(job, ["pid 0", "crash_behind_others"]))
    assert (last.status, last.record.attempts) == ("done", 2)


def test_what_a_job_printed_is_not_the_next_ones_last_words(scratch):
    jobs = [*(job(f"chatter {n}") for n in range(20)), job("hang", seconds=0.3)]
    with Processes(Settings(1, scratch), TASK, preloads=False) as executor:
        *before, last = executor.run(jobs)
    assert len({o.record.published["found"] for o in before}) < len(before)
    assert last.status == "timeout"
    assert "chatter" not in message(last)


def test_what_they_print_is_nobodys(scratch, capfd):
    outcomes = run(scratch, job("flood"), job("segv"), job("fine x"))
    assert [o.status for o in outcomes] == ["done", "crashed", "done"]
    assert capfd.readouterr() == ("", "")


def test_large_answers(scratch):
    first, *others = run(scratch, job(f"large {20 * MIB}"), *(job(f"fine {n}") for n in range(20)))
    assert len(first.record.published["found"]) == 20 * MIB
    assert all(o.status == "done" for o in others)


# -- killed by others ---------------------------------------------------------------------------


def test_killed_once_is_tried_again(scratch, tmp_path):
    found = run(scratch, job(f"kill_once {tmp_path / 'mark'}"), job("fine x"))
    assert [o.status for o in found] == ["done", "done"]
    assert [o.record.attempts for o in found] == [2, 1]


def test_killed_and_not_tried_again_is_lost(scratch):
    (outcome,) = run(scratch, job("kill"), retries=0)
    assert (outcome.status, outcome.exit_code) == ("lost", 7)


def test_a_server_that_dies_costs_only_who_kills_it(scratch):
    jobs = [job("sleep 0.1") for _ in range(6)] + [job("kill_server")] + [job("sleep 0.1")] * 6
    found = run(scratch, *jobs, at_once=4)
    assert [o.status for o in found] == ["done"] * 6 + ["lost"] + ["done"] * 6
    assert found[6].record.attempts == 3
    # Where the driver had not heard yet which jobs had ended, one may be started beside it twice.
    assert max(o.record.attempts for o in found if o.status == "done") in (2, 3)


def test_a_server_killed_from_outside(scratch, tmp_path):
    """Its children go with it; what it had is done by another one."""
    marks = [tmp_path / f"mark{n}" for n in range(2)]
    jobs = [job(f"hang_once {m}", n) for n, m in enumerate(marks)]
    ended = []
    with Processes(Settings(2, scratch, retries=1), TASK, preloads=False) as executor:

        def kill():
            wait_until(lambda: all(m.exists() and m.read_text() for m in marks))
            # A child may hang before the driver has heard that it began, and counts the attempt.
            wait_until(lambda: sum(bool(t.pid) for t in list(executor._sent.values())) == 2)
            pids = [int(m.read_text()) for m in marks]
            os.kill(executor._server.pid, signal.SIGKILL)
            wait_until(lambda: not any(map(is_alive, pids)))
            ended.extend(pids)

        killer = Thread(target=kill)
        killer.start()
        found = {
            o.name: o for o in executor.run([*jobs, *(job(f"fine {n}", n) for n in range(2, 9))])
        }
        killer.join()
    assert len(ended) == 2
    assert {o.status for o in found.values()} == {"done"}
    assert [found[f"out{n}"].record.attempts for n in range(9)] == [2, 2] + [1] * 7


DRIVER = """
import sys
from pathlib import Path
from converter.executors.engine import Settings
from converter.executors.processes import Processes
from converter.executors.process_monitor import is_alive
from converter.jobs.job import Job
from converter.options import Options
scratch, *sources = sys.argv[1:]
options = Options(to="safetensors")
there = str(Path(scratch).parent)
jobs = [Job(s, f"out{n}", there, options) for n, s in enumerate(sources)]
with Processes(Settings(len(jobs), Path(scratch)), "planted:task", preloads=False) as executor:
    for outcome in executor.run(jobs):
        print(outcome)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_driver_that_is_killed(scratch, tmp_path, number):
    """Whatever ends a driver, a second later nothing of it runs, and nothing half done is left."""
    marks = [tmp_path / name for name in ("hang", "family", "out2")]
    sources = [f"hang {marks[0]}", f"family {marks[1]} hang", f"staging {marks[2]}"]
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, scratch, *sources], stderr=subprocess.PIPE, text=True
    ) as driver:
        begun = Path(f"{marks[2]}.begun")
        wait_until(lambda: begun.exists() and marks[0].exists() and marks[1].exists())
        wait_until(lambda: len(marks[1].read_text().split()) == 2)
        pids = [int(p) for m in marks[:2] for p in m.read_text().split()]
        driver.send_signal(number)
        _, said = driver.communicate(timeout=120)
    wait_until(lambda: not any(map(is_alive, pids)))
    wait_until(lambda: not list(scratch.iterdir()))
    wait_until(lambda: names(tmp_path) == ["family", "hang", "out2.begun", "scratch"])
    if number == signal.SIGINT:
        assert said.count("Traceback") == said.count("KeyboardInterrupt") == 1  # the driver's own


def test_a_driver_that_is_done_ends_everything(scratch, tmp_path):
    """Leaving in the middle, as Ctrl-C does, ends children and removes what they had begun."""
    target = tmp_path / "dest" / "out1"
    target.parent.mkdir()
    one = job(f"staging {target}", 1, target.parent)
    with Processes(Settings(2, scratch), TASK, preloads=False) as executor:
        outcomes = executor.run([job("fine x"), one])
        assert next(outcomes).status == "done"
        wait_until(lambda: Path(f"{target}.begun").exists())
        pid = executor._server.pid
        assert len(names(target.parent)) == 2
    assert not is_alive(pid)
    assert names(target.parent) == ["out1.begun"]


def test_fewer_files_than_it_takes(scratch):
    """Where a process can have no more files, fewer jobs run at a time; or it is said."""
    few, none = (
        subprocess.run(
            ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", sys.executable, "-c", DRIVER,
             scratch, *["sleep 0.05"] * 30],
            capture_output=True, text=True, timeout=300,
        )
        for files in (24, 9)
    )  # fmt: skip
    assert few.returncode == 0, few.stderr
    assert few.stdout.count("status='done', exit_code=0, record=") == 30
    assert none.returncode
    assert "DependencyError" in none.stderr
    assert "cannot be run: Too many open files" in none.stderr


def test_a_server_that_cannot_begin(scratch):
    with (
        Processes(Settings(1, scratch), "nowhere:task", preloads=False) as executor,
        pytest.raises(DependencyError, match="ModuleNotFoundError: No module named 'nowhere'"),
    ):
        list(executor.run([job("fine x")]))
    missing = scratch / "nowhere"
    with Processes(Settings(1, missing), TASK) as executor, pytest.raises(StorageError):
        list(executor.run([job("fine x")]))


def test_a_job_that_may_have_published_is_tried_again_with_overwrite(scratch):
    """A child may publish before the news of its beginning is heard, and the server die then."""
    executor = Processes(Settings(2, scratch), TASK, preloads=False)
    begun, waiting = Try(job("fine")), Try(job("fine"))
    executor._sent = dict(enumerate([begun, Try(job("fine")), waiting]))
    assert not list(executor._lost("the server is gone"))
    assert [one.job.options.overwrite for one in executor._suspects] == [True, True]
    assert [one.job.options.overwrite for one in executor._again] == [False]
