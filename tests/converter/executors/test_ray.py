"""What of the Ray executor needs no Ray: what is asked for, what is said, what runs on a node."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from repository import SUPPORT

from converter.executors import catalog, ray_driver, ray_node, ray_window
from converter.executors.engine import Settings
from converter.executors.ray import Ray
from converter.executors.ray_protocol import Charter
from converter.jobs.job import Job, Needs
from converter.options import Options
from formats.errors import DependencyError, UnsupportedError, UsageError

JOB = Job("fine a", "out", "/nowhere", Options())


def on(to, device, level, option="require"):
    return Options(to=to, device=device, **{option: level})


# fmt: off
ASKED = [
    # needs                            options                                     asked of Ray
    (Needs(),                          Options(),                                  {"CPU": 1}),
    (Needs(cpus=2, memory_bytes=1000), Options(),                   {"CPU": 2, "memory": 1000}),
    (Needs(gpus=0.25),                 Options(),                     {"CPU": 1, "GPU": 0.25}),
    (Needs(),                        on("torch", "cuda", "device", "verify"), {"CPU": 1, "GPU": 1}),
    (Needs(),                          on("savedmodel", "GPU:0", "device"), {"CPU": 1, "GPU": 1}),
    (Needs(),                          on("torch", "cuda:1", "device"),     {"CPU": 1, "GPU": 2}),
    (Needs(gpus=0.5),                  on("torch", "cuda", "device"),     {"CPU": 1, "GPU": 0.5}),
    (Needs(),                          on("torch", "cuda", "cpu"),                 {"CPU": 1}),
    (Needs(),                          on("torch", "mps", "device"),               {"CPU": 1}),
]
# fmt: on


@pytest.mark.parametrize(("needs", "options", "asked"), ASKED)
def test_what_a_job_takes_of_a_node(needs, options, asked):
    assert ray_window.list_resources(replace(JOB, needs=needs, options=options)) == asked


def test_resources_for_a_person():
    assert ray_window.readable({"CPU": 2.0, "GPU": 0.25}) == "CPU 2, GPU 0.25"
    assert "of memory" in ray_window.readable({"CPU": 1.0, "memory": 3e9, "node:1.2.3.4": 1.0})
    assert ray_window.readable({}) == "nothing"


class Exceptions:
    """As many of Ray's as a version may have."""

    class OutOfMemoryError(Exception): ...

    class WorkerCrashedError(Exception): ...


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (Exceptions.OutOfMemoryError("x"), "memory", "the node ran out of memory"),
        (Exceptions.WorkerCrashedError("x"), "lost", "the process that ran it went away"),
        (ValueError("Traceback:\n  here\nValueError: odd"), "failed", "run it: ValueError: odd"),
        (ValueError(""), "failed", "run it: ValueError"),
    ],
)
def test_what_a_task_ended_with(error, status, said):
    found, message = ray_window.what_happened(error, Exceptions)
    assert found == status
    assert said in message


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr("converter.executors.ray.find_spec", lambda _: object())
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


# fmt: off
ADDRESSES = [
    ("local",           UsageError,       "convert starts no cluster"),
    ("nonsense",        UsageError,       "HOST:PORT"),
    (":6379",           UsageError,       "HOST:PORT"),
    ("ray://head:10001", UnsupportedError, "not supported: .*Ray Client.*ray job submit"),
]
# fmt: on


@pytest.mark.parametrize(("address", "error", "said"), ADDRESSES)
def test_addresses_of_no_cluster(installed, monkeypatch, tmp_path, address, error, said):
    with pytest.raises(error, match=said):
        catalog.open_executor("ray", Settings(None, tmp_path, address))
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(error, match=said):
        catalog.open_executor("ray", Settings(None, tmp_path))


def test_without_ray_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr("converter.executors.ray.find_spec", lambda _: None)
    with pytest.raises(DependencyError, match=r"pip install .*ray"):
        catalog.open_executor("ray", Settings(None, tmp_path, "auto"))


def test_parts_of_several_gpus_are_none(installed, tmp_path):
    with Ray(Settings(None, tmp_path, "auto")) as executor:
        jobs = [replace(JOB, needs=Needs(gpus=1.5))]
        with pytest.raises(UsageError, match="a part of one GPU, or whole ones"):
            next(executor.run(jobs))
        assert list(executor.run([])) == []


def test_says_how_its_process_ended(installed, tmp_path, monkeypatch):
    """Here there is no Ray, or a cluster that nobody answers for: an error, and nothing left."""
    (tmp_path / "ray.py").write_text("import os\nprint('no more of this')\nos._exit(9)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with (
        Ray(Settings(None, scratch, "auto")) as executor,
        pytest.raises(DependencyError, match=r"ended with 9: no more of this"),
    ):
        next(executor.run([replace(JOB, destination=str(tmp_path))]))
    assert not list(scratch.iterdir())


def test_nothing_answers_at_an_address():
    with pytest.raises(DependencyError, match=r"^127\.0\.0\.1:1: no Ray cluster answers there"):
        ray_driver._check_answers("127.0.0.1:1")
    with pytest.raises(DependencyError, match="no Ray cluster answers there"):
        ray_driver._check_answers("127.0.0.1:99999")


# -- on a node -------------------------------------------------------------------------------------


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A process of Ray's, as far as a task sees: its temporary files, its fork server."""
    folder = tmp_path / "node"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT), prepend=os.pathsep)
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    station = ray_node.Station()
    monkeypatch.setattr(ray_node, "STATION", station)
    yield folder
    station._close()
    assert not list(folder.iterdir())


def convert(job, *, has_gpu=False):
    charter = Charter(Settings(None, Path("/nowhere")), job, "planted:task")
    return list(ray_node.convert(job, charter, has_gpu=has_gpu))


def test_a_node_keeps_its_fork_server_from_job_to_job(node):
    begun, outcome = convert(JOB)
    assert begun.host
    assert not begun.sees_source
    assert (outcome.status, outcome.record.published["found"]) == ("done", "a")
    assert not list(node.iterdir())
    server = ray_node.STATION._executor._server
    assert convert(replace(JOB, source="segv"))[1].status == "crashed"
    assert convert(replace(JOB, source="fine b"))[1].record.published["found"] == "b"
    assert ray_node.STATION._executor._server is server


def test_a_node_hides_gpus_from_jobs_that_have_none(node, monkeypatch):
    job = replace(JOB, source="variable CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert convert(job)[1].record.published["found"] == "-1"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    assert convert(job, has_gpu=True)[1].record.published["found"] == "3"


def test_a_sweep_removes_what_the_dead_left_and_nothing_else(node):
    base = f"convert-ray-{os.getuid()}-"
    for n in (0, 7, ray_node.PLACES - 1):
        (node / f"{base}{n}" / "job").mkdir(parents=True)
    place, lock = ray_node.STATION._folder()
    (node / "convert-ray-other").mkdir()
    ray_node.sweep()
    assert sorted(p.name for p in node.iterdir()) == sorted([place.name, "convert-ray-other"])
    (node / "convert-ray-other").rmdir()
    place.rmdir()
    os.close(lock)


def test_a_node_looks_at_its_own_program_and_files(tmp_path, monkeypatch):
    (tmp_path / "converter").mkdir()
    (tmp_path / "converter" / "__init__.py").write_text("raise ImportError('no such thing')")
    here, gone = str(tmp_path), str(tmp_path / "gone")
    from converter.version import VERSION

    assert ray_driver._look([here, gone]) == (VERSION, "", [gone])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    version, said, _ = ray_driver._look([])
    assert (version, said) == ("", "ImportError: no such thing")


def test_the_executor_alone_does_not_import_ray():
    code = (
        "import sys, converter.executors.ray, converter.executors.ray_node\n"
        "import converter.executors.ray_driver\n"
        "assert 'ray' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
