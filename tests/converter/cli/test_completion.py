"""Completion: its candidates, and its scripts in the shells themselves."""

import os
import shutil
import subprocess
import sys

import pytest
import typer

from converter.cli.app import app
from converter.cli.completion import SHELLS, candidates
from converter.write.catalog import TARGETS

PROGRAM = typer.main.get_command(app)


def complete(*words):
    return [value for value, _ in candidates(PROGRAM, words)]


def test_candidates():
    assert {"inspect", "ls", "doctor"} <= {*complete("")}
    assert "SOURCE" not in complete("")
    assert complete("insp") == ["inspect"]
    assert complete("m.h5", "--to", "") == [row.id for row in TARGETS]
    assert complete("m.h5", "--to", "on") == ["onnx"]
    assert "keras-h5" in complete("inspect", "m.h5", "--from", "")
    assert complete("m.h5", "--verify", "s") == ["smoke"]
    assert complete("m.h5", "--output", "") == []  # a file: the shell's
    assert complete("m.h5", "") == []
    assert complete("m.h5", "--fo") == ["--force"]
    assert complete("--dequ") == ["--dequantize"]
    assert complete("ops", "k") == ["keras"]
    assert complete("completion", "") == [*SHELLS]
    assert "doctor" in complete("help", "")


@pytest.fixture
def path(tmp_path):
    """A PATH with the program, and a folder with files."""
    program = tmp_path / "bin" / "convert"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m converter "$@"\n')
    program.chmod(0o755)
    (tmp_path / "a model.h5").touch()
    (tmp_path / "inspection").mkdir()
    return {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "TERM": "dumb"}


BASH = """
eval "$(convert completion bash)"
try() {
    COMP_WORDS=(convert "$@"); COMP_CWORD=$#
    _convert_completion convert "${!#}" 2>/dev/null
    printf '%s|' "${COMPREPLY[@]}"; echo
}
try insp; try a; try m.h5 --to on; try m.h5 --force a; try m.h5 --verif
"""


def test_bash(tmp_path, path):
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH], cwd=tmp_path, env=path, capture_output=True, text=True
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "inspect|inspection|", "a model.h5|", "onnx|", "a model.h5|", "--verify|",
    ]  # fmt: skip


FISH = """
convert completion fish | source
for line in "convert insp" "convert m.h5 --to on" "convert m.h5 --verif"
    complete -C $line | string replace -r '\\t.*' '' | string join '|'
end
"""


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish(tmp_path, path):
    done = subprocess.run(
        ["fish", "--no-config", "-c", FISH], cwd=tmp_path, env=path, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["inspect|inspection/", "onnx", "--verify"]


ZSH = """
compdef() { [[ "$*" == "_convert_completion convert" ]] && echo defined }
_describe() { print -l -- ${(P)${@[-1]}} }
_files() { echo FILES }
source <(convert completion zsh)
words=(convert m.h5 --to on) CURRENT=4; _convert_completion
words=(convert m.h5 --output '') CURRENT=4; _convert_completion
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh(tmp_path, path):
    done = subprocess.run(
        ["zsh", "-f", "-c", ZSH], cwd=tmp_path, env=path, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [
        "defined", "onnx:self-contained ONNX files, one for each signature", "FILES",
    ]  # fmt: skip
