"""A real Ray cluster of two nodes: its workers killed on purpose, its nodes taken away."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
import ray_cluster
from planted import HANG
from repository import FIXTURES, SUPPORT

from converter.executors.engine import Settings
from converter.executors.ray import Ray
from converter.executors.ray_node import PLACES
from converter.jobs.job import Job, Needs
from converter.options import Options
from formats.errors import DependencyError

pytest.importorskip("ray")
TASK = "planted:task"
MIB = 1 << 20


class Cluster:
    """What tests want of `ray_cluster`."""

    def __init__(self, folder):
        self.folder = folder
        self.nodes = folder / "nodes"  # where nodes have their temporary files
        self.nodes.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, SUPPORT / "ray_cluster.py", folder], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(SUPPORT), "TMPDIR": str(self.nodes)},
            start_new_session=True,
        )  # fmt: skip
        self.address = self.process.stdout.readline().strip()
        assert self.address.startswith("127.0.0.1:"), "no cluster came up"

    def tell(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        while (line := self.process.stdout.readline().strip()) != "done":
            assert line, "the cluster is gone"

    def stop(self):
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(30)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            for pid in processes(str(self.folder)):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def cluster():
    # Not one of pytest's: paths of sockets have to be short.
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    cluster = Cluster(folder)
    try:
        yield cluster
    finally:
        cluster.stop()
        left = processes(str(folder))
        shutil.rmtree(folder, ignore_errors=True)
    assert not left


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name, value in ray_cluster.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))


@pytest.fixture
def scratch(tmp_path, cluster):
    folder = tmp_path / "scratch"
    folder.mkdir()
    yield folder
    assert not list(folder.iterdir()), "something was left among temporary files"
    assert not left_on(cluster)
    assert not processes(str(folder))


def left_on(cluster):
    """Return what there is on nodes among temporary files."""
    return [path for path in cluster.nodes.iterdir() if path.name.startswith("convert")]


def processes(text):
    """Return the processes that have a text in their command lines."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal() and int(path.name) != os.getpid():
            try:
                if text.encode() in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
            except OSError:
                pass
    return found


def is_alive(pid):
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_until(condition, seconds=60.0):  # a busy machine is no bug
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


def pid_in(path):
    wait_until(lambda: path.exists() and path.read_text().strip())
    return int(path.read_text())


def jobs_of(scratch, *sources, **needs):
    out = scratch.parent / "out"
    out.mkdir(exist_ok=True)
    return [
        Job(source, f"out{n}", str(out), Options(to="safetensors"), needs=Needs(**needs))
        for n, source in enumerate(sources)
    ]


def run(cluster, scratch, jobs, meanwhile=lambda: None, **settings):
    """Return outcomes in the order of the jobs."""
    settings = {"patience": 60.0, **settings}
    thread = Thread(target=meanwhile)
    with Ray(Settings(None, scratch, cluster.address, **settings), TASK) as executor:
        thread.start()
        found = {o.name: o for o in executor.run(jobs)}
    thread.join()
    assert len(found) == len(jobs)
    return [found[j.name] for j in jobs]


# -- the same as without a cluster ----------------------------------------------------------------


def convert(*arguments, env=None, cwd=None):
    # Engines are held against each other here, and not models against the frameworks that are here.
    return subprocess.run(
        [sys.executable, "-m", "converter", "batch", "--verify", "weights", *map(str, arguments)],
        capture_output=True, text=True, env={**os.environ, **(env or {})}, cwd=cwd, timeout=100,
    )  # fmt: skip


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    """A few artifacts of several formats, one of them damaged."""
    folder = tmp_path_factory.mktemp("registry")
    some = [*sorted(FIXTURES.glob("torch/*.pth"))[:4], *sorted(FIXTURES.glob("keras/*.h5"))[:3]]
    for path in some:
        shutil.copy(path, folder / path.name)
    data = some[0].read_bytes()
    (folder / "damaged.pth").write_bytes(data[: len(data) // 2])
    assert len(some) == 7
    return folder


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


PASSING = ("seconds", "started", "host", "output")  # of a record: true of one run alone


def lasting(value):
    if isinstance(value, dict):
        return {k: lasting(v) for k, v in value.items() if k not in PASSING}
    return [lasting(v) for v in value] if isinstance(value, list) else value


def records(path):
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return {r["name"]: lasting(r) for r in found if r.get("event") == "finished"}


def test_gives_what_the_inline_engine_gives(cluster, registry, tmp_path):
    made = {}
    for engine in ("inline", "ray"):
        out, events = tmp_path / engine, tmp_path / f"{engine}.jsonl"
        ran = convert(
            registry, "-o", out, "--engine", engine, "--address", cluster.address,
            "--events", events,
        )  # fmt: skip
        assert ran.returncode == 3, ran.stderr
        assert "ray" not in ran.stderr.replace(str(out), "").lower(), "Ray's own noise"
        made[engine] = tree(out), records(events)
    assert made["ray"][0] == made["inline"][0]
    assert made["ray"][1] == made["inline"][1]
    assert len(made["ray"][1]) == 8


# -- jobs that go wrong ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(cluster, tmp_path_factory):
    """Jobs of all kinds in one run; workers of some are killed meanwhile. Outcomes by name."""
    tmp_path = tmp_path_factory.mktemp("mixed")
    once, always = tmp_path / "once", tmp_path / "always"
    variable = "variable CUDA_VISIBLE_DEVICES"
    sources = {
        "segv": ("segv", {}),
        "exit": ("exit 3", {}),
        "raises": ("raises it", {}),
        "kill": ("kill", {}),
        "hang": ("hang", {"seconds": 1.0}),
        "eat": (f"eat {800 * MIB}", {"memory_bytes": 200 * MIB}),
        "once": (f"hang_once {once}", {}),
        "always": (f"hang_once {always}", {}),
        "gpu": (variable, {"gpus": 0.25}),
        "no gpu": (variable, {}),
        "two gpus": (variable, {}),
        "unseen": ("/proc/self/cwd/model.h5", {}),
        "fine": ("fine a", {}),
    }
    (tmp_path / "model.h5").touch()
    on_device = Options(to="torch", device="cuda:1", require="device")
    jobs = [
        Job(
            source, name, str(tmp_path),
            on_device if name == "two gpus" else Options(to="safetensors"), needs=Needs(**needs),
        )
        for name, (source, needs) in sources.items()
    ]  # fmt: skip

    def kill():
        for pid_file in (always, once, always, always):
            child = pid_in(pid_file)
            if pid_file == always:
                pid_file.unlink()
            server = parent_of(child)
            worker = parent_of(server)
            assert b"ray::" in Path(f"/proc/{worker}/cmdline").read_bytes()
            os.kill(worker, signal.SIGKILL)
            wait_until(lambda child=child, server=server: not is_alive(child) | is_alive(server))

    (cluster.nodes / f"convert-ray-{os.getuid()}-{PLACES - 1}" / "abandoned").mkdir(parents=True)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setenv("PYTHONPATH", str(SUPPORT))
        for name, value in ray_cluster.ENVIRONMENT.items():
            patch.setenv(name, value)
        found = run(cluster, scratch, jobs, kill)
    assert not list(scratch.iterdir())
    assert not left_on(cluster)
    return {outcome.name: outcome for outcome in found}


# fmt: off
ENDS = [
    # job      status     exit  attempts  what is said of it
    ("segv",   "crashed", 7,    1,        "died of SIGSEGV"),
    ("exit",   "crashed", 7,    1,        "ended with code 3"),
    ("raises", "failed",  70,   1,        "ValueError: it"),
    ("kill",   "crashed", 7,    3,        "was killed (SIGKILL)"),
    ("hang",   "timeout", 7,    1,        "took longer than 1 s and was stopped"),
    ("eat",    "memory",  7,    1,        "of memory and was stopped"),
    ("once",   "done",    0,    2,        ""),
    ("always", "lost",    7,    3,        "the process that ran it went away"),
    ("fine",   "done",    0,    1,        ""),
    ("unseen", "failed",  7,    1,        "model.h5: is on this machine, and not on the node"),
]
# fmt: on


@pytest.mark.parametrize(("name", "status", "code", "attempts", "said"), ENDS)
def test_names_how_a_job_ended(mixed, name, status, code, attempts, said):
    outcome = mixed[name]
    record = outcome.record
    assert (outcome.status, outcome.exit_code) == (status, code), record.error
    assert (record.status, record.exit_code, record.attempts) == (status, code, attempts)
    if said:
        assert said in record.error.message
    else:
        assert record.error is None


def test_gives_parts_of_gpus_and_hides_them_from_others(mixed):
    found = {name: outcome.record.published.get("found") for name, outcome in mixed.items()}
    assert found["gpu"] in {"0", "1", "2", "3"}
    assert found["no gpu"] == "-1"
    assert len(found["two gpus"].split(",")) == 2


def test_goes_on_without_a_node_that_is_taken_away(cluster, scratch, tmp_path):
    pid_files = [tmp_path / "pid0", tmp_path / "pid1"]

    def remove():
        pids = [pid_in(path) for path in pid_files]
        cluster.tell("remove")
        wait_until(lambda: not all(map(is_alive, pids)))
        for pid in filter(is_alive, pids):
            os.kill(pid, signal.SIGKILL)

    try:
        # Each takes a node of its own; in the end both have been on the one that stays.
        jobs = jobs_of(scratch, *(f"hang_once {path}" for path in pid_files), cpus=2.0)
        found = run(cluster, scratch, jobs, remove)
    finally:
        cluster.tell("add")
    assert [(o.status, o.record.attempts) for o in found] == [("done", 2), ("done", 2)]


# -- what a cluster cannot do ----------------------------------------------------------------------


def test_gives_up_where_no_node_can_take_a_job(cluster, scratch):
    """But not while there is one that runs, however long."""
    lasting, endless = jobs_of(scratch, "sleep 3", "fine a")
    endless = replace(endless, needs=Needs(gpus=64.0))
    settings = Settings(None, scratch, cluster.address, patience=1.0)
    with Ray(settings, TASK) as executor:
        outcomes = executor.run([lasting, endless])
        assert next(outcomes).status == "done"
        with pytest.raises(DependencyError) as e:
            next(outcomes)
    assert "taken no job for 1 s: each asks for CPU 1, GPU 64" in str(e.value)
    assert "1 x (CPU 2, GPU 4, " in str(e.value)


def test_says_which_node_has_another_version(cluster, scratch, tmp_path):
    fake = tmp_path / "fake" / "converter"
    fake.mkdir(parents=True)
    (fake / "__init__.py").touch()
    (fake / "version.py").write_text("VERSION = '0.0.1'")
    cluster.tell(f"add {fake.parent}")
    try:
        with pytest.raises(DependencyError, match=r"has version 0\.0\.1 of it.*Install the same"):
            run(cluster, scratch, jobs_of(scratch, "fine a"))
    finally:
        cluster.tell("remove")


def test_says_that_a_node_does_not_see_a_local_folder(cluster, registry, tmp_path):
    # A path that is another folder to each process, as a local one is to each machine.
    (tmp_path / "out").mkdir()
    ran = convert(
        registry, "-o", "/proc/self/cwd/out", "--engine", "ray", "--address", cluster.address,
        "--ledger", tmp_path / "ledger", cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 7
    assert "/proc/self/cwd/out: is on this machine, and not on the node" in ran.stderr
    assert not list((tmp_path / "out").iterdir())


# -- drivers that stop ----------------------------------------------------------------------------


def test_its_end_is_the_end_of_all_tasks(cluster, scratch, tmp_path):
    pid_file = tmp_path / "pid"
    settings = Settings(None, scratch, cluster.address)
    with Ray(settings, TASK) as executor:
        outcomes = executor.run(
            jobs_of(scratch, "fine a", f"hang {pid_file}", "hang", "hang", "hang")
        )
        assert next(outcomes).status == "done"
        child = pid_in(pid_file)
        begin = time.monotonic()
    assert time.monotonic() - begin < HANG / 20
    wait_until(lambda: not is_alive(child))


DRIVER = """
import sys
from pathlib import Path
from converter.executors.engine import Settings
from converter.executors.ray import Ray
from converter.jobs.job import Job
from converter.options import Options
address, scratch, out, *sources = sys.argv[1:]
jobs = [Job(s, f"out{n}", out, Options()) for n, s in enumerate(sources)]
with Ray(Settings(None, Path(scratch), address), "planted:task") as executor:
    for outcome in executor.run(jobs):
        print(outcome.status, flush=True)
"""


def test_a_killed_driver_takes_its_tasks_along(cluster, scratch, tmp_path):
    pid_file, out = tmp_path / "pid", tmp_path / "out"
    out.mkdir()
    command = [sys.executable, "-c", DRIVER, cluster.address, scratch, out, f"hang_once {pid_file}"]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    child = pid_in(pid_file)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    wait_until(lambda: not is_alive(child))
    wait_until(lambda: not processes("converter.executors.ray_driver"))
    driver.stdout.close()
    again = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60)
    assert again.stdout == "done\n"


def test_says_that_the_cluster_has_died(cluster, tmp_path):
    """The last one: there is no cluster any more."""
    pid_file, scratch = tmp_path / "pid", tmp_path / "scratch"
    scratch.mkdir()

    def die():
        pid_in(pid_file)
        cluster.tell("die")

    with pytest.raises(DependencyError, match="the Ray cluster went away"):
        run(cluster, scratch, jobs_of(scratch, f"hang {pid_file}", "hang"), die)
    assert not list(scratch.iterdir())
    wait_until(lambda: not processes("converter.executors.ray_driver"))  # others may run, too
