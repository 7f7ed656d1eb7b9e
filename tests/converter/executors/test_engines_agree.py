"""Real artifacts through children and in this process: the same records, but for when and where."""

import json
import os

import pytest
from repository import FIXTURES, SUPPORT

from converter.executors.catalog import open_executor
from converter.executors.engine import Settings
from converter.executors.processes import Processes
from converter.jobs.job import Job
from converter.options import Options

SOURCES = [
    "torch/torch1.12-state.pth",
    "torch/torch1.0-py27-script.pt",
    "keras/keras2_multi_gpu.h5",
    "keras/keras1_theano_sequential.h5",
    "torch/describe.py",
    "nothing/here.pt",
]


def records(engine, folder):
    """Return what an engine makes of the sources, without times, places and hosts."""
    scratch, out = folder / f"scratch-{engine}", folder / "out"
    scratch.mkdir()
    out.mkdir()
    options = Options(verify="weights")
    jobs = [Job(str(FIXTURES / s), f"out{n}", str(out), options) for n, s in enumerate(SOURCES)]
    with open_executor(engine, Settings(2, scratch)) as executor:
        found = {o.name: o for o in executor.run(jobs)}
    assert not list(scratch.iterdir())
    written = {
        p.relative_to(out).as_posix(): p.read_bytes()
        for p in out.rglob("*")
        if p.is_file() and p.name != "manifest.json"  # it has the time
    }
    out.rename(folder / f"out-{engine}")
    return [_plain(found[job.name].record.to_json()) for job in jobs], written


def _plain(record):
    gone = {"seconds", "started", "host", "pid"}
    if isinstance(record, dict):
        return {k: _plain(v) for k, v in record.items() if k not in gone}
    if isinstance(record, (list, tuple)):
        return [_plain(v) for v in record]
    return json.loads(json.dumps(record))


def test_engines_agree(tmp_path):
    inline, processes = (records(engine, tmp_path) for engine in ("inline", "processes"))
    assert processes == inline
    statuses = [r["status"] for r in inline[0]]
    assert statuses == ["done"] * 4 + ["failed"] * 2
    assert [r["exit_code"] for r in inline[0]] == [0] * 4 + [3, 3]


@pytest.mark.parametrize("to", ["safetensors", "portable"])
def test_children_import_nothing_of_ours(tmp_path, monkeypatch, to):
    """The server has imported it, once; it has one thread; no framework is anywhere."""
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT), prepend=os.pathsep)
    options = Options(to=to, verify="weights")
    sources = SOURCES[:4] * 3
    jobs = [
        Job(str(FIXTURES / s), f"out{n}", str(tmp_path), options) for n, s in enumerate(sources)
    ]
    with Processes(Settings(1, tmp_path), "planted:watched_work") as executor:
        for outcome in executor.run(jobs):
            assert outcome.status == "done"
            assert outcome.record.published["imported"] == []
            assert outcome.record.published["server_threads"] == 1
            assert outcome.record.published["foreign"] == []
