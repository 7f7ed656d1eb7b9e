"""One child answers several questions; what kills it costs one question, and it ends with us."""

import os
import sys
import time

import pytest

from converter.child import process
from converter.child.process import Allowance
from formats.errors import DependencyError

SCRIPT = """
import json, os, sys, time
from pathlib import Path

def main(folder):
    question = json.loads((folder / "question.json").read_text())
    print("asked", question)
    exec(question.get("code", ""))
    (folder / "answer.json").write_text(json.dumps({"pid": os.getpid(), "cwd": os.getcwd()}))

if __name__ == "__main__":
    main(Path(sys.argv[1]))
"""


@pytest.fixture
def ask(tmp_path):
    """Ask a script that is started once for all questions."""
    script = tmp_path / "run_keras.py"
    script.write_text(SCRIPT)
    numbers = iter(range(100))

    def question(code="", seconds=20.0, **environment):
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return folder, process.ask(
            script, folder, {"code": code},
            what="a script", allowance=Allowance(seconds), python=sys.executable,
            environment=environment,
        )  # fmt: skip

    return question


def test_a_process_is_started_once(ask):
    with process.reuse_children():
        (_, first), (folder, second) = ask(), ask()
        assert first["pid"] == second["pid"]
        assert second["cwd"] == str(folder)
        with process.reuse_children():  # the outermost block holds it
            assert ask()[1]["pid"] == first["pid"]
        assert ask(OTHER="1")[1]["pid"] != first["pid"]
    assert ask()[1]["pid"] != first["pid"]
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(first["pid"], 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the child outlives the block")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise ValueError('broken')", "ended with 1: ValueError: broken"),
        ("os.abort()", "died of SIGABRT"),
        ("time.sleep(60)", "took longer than 2 s"),
    ],
)
def test_a_question_that_ends_it_costs_that_question(ask, code, said):
    with process.reuse_children():
        first = ask()[1]["pid"]
        with pytest.raises(DependencyError, match=said):
            ask(code, seconds=2.0)
        assert ask()[1]["pid"] != first


def test_what_it_prints_is_in_the_folder_of_the_question(ask):
    with process.reuse_children():
        ask()
        folder, _ = ask("print('here'); sys.stdout.flush()")
        assert "here" in (folder / process.LOG).read_text()
