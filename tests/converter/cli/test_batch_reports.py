"""``convert batch --report``: of every artifact of the registry, however the run ended."""

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET  # what is parsed is our own
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

REPORTS = ("r.jsonl", "r.xml", "r.html")


def command(*arguments):
    given = [option for name in REPORTS for option in ("--report", name)]
    base = [sys.executable, "-m", "converter", "batch", "--engine", "inline", "--verify", "weights"]
    return [*base, *given, *map(str, arguments)]


def run(*arguments, cwd):
    return subprocess.run(command(*arguments), cwd=cwd, capture_output=True, text=True, timeout=100)


def reported(folder):
    """Return the records as JSON lines, once it is sure that all reports agree on them."""
    records = [json.loads(line) for line in (folder / "r.jsonl").read_text().splitlines()]
    tests = [*ET.parse(folder / "r.xml").getroot().iter("testcase")]
    assert sorted(t.get("name") for t in tests) == sorted(r["entry"] for r in records)
    page = (folder / "r.html").read_text()
    assert f'"total":{len(records)},' in page
    return records


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    folder = tmp_path / "registry"
    folder.mkdir()
    for name in "abcd":
        save_file({"w": np.full((3, 4), ord(name), "f4")}, folder / f"{name}.safetensors")
    (folder / "broken.safetensors").write_bytes(b"\x08" + bytes(40))
    return folder


def statuses(records):
    return {Path(r["source"]).stem: r["status"] for r in records}


def test_later_reports_have_what_earlier_runs_did(registry, tmp_path):
    first = run(registry, "-o", "out", "--limit", "2", cwd=tmp_path)
    assert len(reported(tmp_path)) == 2, first.stderr
    save_file({"w": np.zeros((1,), "f4")}, registry / "e.safetensors")
    again = run(registry, "-o", "out", cwd=tmp_path)
    assert again.returncode == 3
    records = reported(tmp_path)
    assert statuses(records) == dict.fromkeys("abcde", "done") | {"broken": "failed"}
    nothing = run(registry, "-o", "out", cwd=tmp_path)
    assert nothing.returncode == 3
    assert reported(tmp_path) == records
    assert [p.name for p in tmp_path.glob(".*")] == []


def test_another_registry_with_the_same_destination_has_its_own(registry, tmp_path):
    run(registry, "-o", "out", cwd=tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    save_file({"w": np.zeros((1,), "f4")}, other / "z.safetensors")
    run(other, "-o", "out", cwd=tmp_path)
    assert statuses(reported(tmp_path)) == {"z": "done"}


def test_what_was_asked_for_otherwise_is_not_what_is_known(registry, tmp_path):
    run(registry, "-o", "out", cwd=tmp_path)
    run(registry, "-o", "out", "--opset", "20", "--dry-run", cwd=tmp_path)
    assert set(statuses(reported(tmp_path)).values()) == {"pending"}
    assert "dry run" in (tmp_path / "r.html").read_text()


def test_a_batch_that_stops_at_the_first_failure_is_reported(registry, tmp_path):
    done = run(registry, "-o", "out", "--fail-fast", cwd=tmp_path)
    assert done.returncode == 3
    found = statuses(reported(tmp_path))
    assert found["broken"] == "failed"
    assert "pending" in found.values()


def test_an_interrupted_batch_is_reported(tmp_path):
    registry = tmp_path / "registry"
    registry.mkdir()
    for i in range(400):
        save_file({"w": np.full((3, 4), i, "f4")}, registry / f"{i:03}.safetensors")
    given = command(registry, "-o", "out")
    with subprocess.Popen(given, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("done "):
                break
        os.kill(process.pid, signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130, rest
    assert "Traceback" not in rest
    found = [*statuses(reported(tmp_path)).values()]
    assert len(found) == 400
    assert {*found} == {"done", "pending"}
    assert '"ended":"interrupted"' in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize("report", ["nowhere/r.html", "registry"])
def test_a_report_that_cannot_stand_is_said_before_anything_is_done(registry, tmp_path, report):
    done = subprocess.run(
        [sys.executable, "-m", "converter", "batch", registry, "-o", "out", "--report", report],
        cwd=tmp_path, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode in (2, 6)
    assert "--report" in done.stderr
    assert not (tmp_path / "out").exists()
