"""Children that answer, crash, hang, eat memory or talk nonsense."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from converter.child.process import Allowance, ask
from formats.errors import DependencyError

PATIENT = Allowance(30)


@pytest.fixture
def answer_of(tmp_path):
    def ask_script(text, allowance=PATIENT, **more):
        script = tmp_path / "script.py"
        script.write_text(
            f"import json, os, sys, time, pathlib\nfolder = pathlib.Path(sys.argv[1])\n{text}\n"
        )
        folder = tmp_path / "folder"
        folder.mkdir(exist_ok=True)
        return ask(script, folder, {"x": [1]}, what="a test", allowance=allowance, **more)

    return ask_script


ANSWER = "(folder / 'answer.json').write_text(json.dumps({}))"


def test_a_child_answers(answer_of):
    text = "q = json.loads((folder / 'question.json').read_text())\n" + ANSWER.format(
        "{'y': q['x'] + [2], 'cwd': os.getcwd(), 'gpu': os.environ['CUDA_VISIBLE_DEVICES'],"
        " 'v': os.environ['V']}"
    )
    found = answer_of(text, environment={"V": "7"})
    assert found["y"] == [1, 2]
    assert found["cwd"].endswith("folder")
    assert (found["gpu"], found["v"]) == ("-1", "7")


@pytest.mark.parametrize("ours", ["0,2", None])
def test_gpus_are_hidden_unless_a_child_shall_see_what_we_see(answer_of, monkeypatch, ours):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if ours is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ours)
    text = ANSWER.format("{'seen': os.environ.get('CUDA_VISIBLE_DEVICES')}")
    assert answer_of(text)["seen"] == "-1"
    assert answer_of(text, environment={"CUDA_VISIBLE_DEVICES": None})["seen"] == ours


def test_modules_lying_where_the_user_stands_are_not_imported(answer_of, tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    text = "sys.path.pop(0)\nimport numpy\n" + ANSWER.format("{'file': numpy.__file__}")
    assert "site-packages" in answer_of(text)["file"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("os.kill(os.getpid(), 11)", "died of SIGSEGV"),
        ("os.abort()", "died of SIGABRT"),
        ("sys.exit(3)", "ended with 3"),
        ("raise ValueError('no such thing')", "ended with 1: ValueError: no such thing"),
        ("print('well')", "gave no answer: well"),
        ("(folder / 'answer.json').write_text('{')", "gave no answer"),
        ("(folder / 'answer.json').write_text('[1]')", "answered"),
    ],
)
def test_what_goes_wrong_in_a_child_is_the_environments_fault(answer_of, text, complaint):
    with pytest.raises(DependencyError, match=complaint) as caught:
        answer_of(text)
    assert caught.value.exit_code == 7


def test_a_killed_child_may_have_run_out_of_memory(answer_of):
    with pytest.raises(DependencyError, match="out of memory"):
        answer_of("os.kill(os.getpid(), 9)")


def test_an_old_answer_is_none(answer_of):
    answer_of(ANSWER.format("{}"))
    with pytest.raises(DependencyError, match="gave no answer"):
        answer_of("pass")


def test_a_hanging_child_is_stopped_with_all_it_started(answer_of, tmp_path):
    begin = time.monotonic()
    text = (
        "import subprocess\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "(folder / 'pid').write_text(str(p.pid))\n"
        "time.sleep(600)"
    )
    with pytest.raises(DependencyError, match="longer than 2 s"):
        answer_of(text, Allowance(2))
    assert time.monotonic() - begin < 200  # it sleeps for 600
    grandchild = int((tmp_path / "folder" / "pid").read_text())
    _until(lambda: not _runs(grandchild))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_child_ends_with_a_parent_that_is_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, pathlib, subprocess, sys\n"
        "inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "text = f'{os.getpid()} {inner.pid}'\n"
        "pathlib.Path('pids.part').write_text(text)\n"
        "pathlib.Path('pids.part').rename('pids')\n"
        "while True: pass\n"  # and never looks up
    )
    asking = (
        "import sys, pathlib\nfrom converter.child.process import Allowance, ask\n"
        "here = pathlib.Path(sys.argv[1])\n"
        "ask(here / 'script.py', here, {}, what='a test', allowance=Allowance(60))"
    )
    parent = subprocess.Popen([sys.executable, "-c", asking, str(tmp_path)])
    try:
        _until(lambda: (tmp_path / "pids").exists())
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        assert all(_runs(pid) for pid in pids)
    finally:
        parent.kill()
        parent.wait()
    _until(lambda: not any(_runs(pid) for pid in pids))


def _until(holds):
    for _ in range(400):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen within 20 seconds")


def _runs(pid):
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_a_child_that_eats_memory_is_stopped(answer_of):
    text = "x = bytearray(400 << 20)\nx[::4096] = b'1' * len(x[::4096])\ntime.sleep(60)"
    with pytest.raises(DependencyError, match="of memory and was stopped"):
        answer_of(text, Allowance(30, memory_bytes=200 << 20))


def test_a_python_that_is_not_there(answer_of):
    with pytest.raises(DependencyError, match="cannot be run"):
        answer_of("pass", python="/nowhere/python")


def test_scripts_that_print_much_or_bytes_do_not_block(answer_of):
    text = "sys.stdout.buffer.write(b'\\xff' * 5_000_000)\n" + ANSWER.format("{}")
    assert answer_of(text) == {}
    assert sys.stdout is not None
