"""Completion: its candidates, and its scripts in the shells themselves."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import pytest
import typer

from converter.cli.app import app
from converter.cli.completion import SHELLS, candidates
from converter.write.catalog import TARGETS

PROGRAM = typer.main.get_command(app)
# `.ci/run default` installs both.
needs_zsh = pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
needs_fish = pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")


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


@pytest.mark.thorough
@needs_fish
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


@pytest.mark.thorough
@needs_zsh
def test_zsh(tmp_path, path):
    done = subprocess.run(
        ["zsh", "-f", "-c", ZSH], cwd=tmp_path, env=path, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [
        "defined", "onnx:self-contained ONNX files, one for each signature", "FILES",
    ]  # fmt: skip


CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\x07")


def press_tab(shell, set_up, folder, env):
    """Type each of `LINES` and a tab in an interactive shell, and wait for what it makes of it."""
    child, terminal = pty.fork()
    if not child:
        os.chdir(folder)
        os.execvpe(shell[0], shell, {**env, "TERM": "xterm", "HOME": str(folder), "PS1": "% "})

    def send(text, expected):
        os.write(terminal, text.encode())
        seen, end = "", time.monotonic() + 60
        while expected not in CONTROL.sub("", seen):
            assert time.monotonic() < end, f"{expected!r} is not in {seen!r}"
            if select.select([terminal], [], [], 0.2)[0]:
                seen += os.read(terminal, 1 << 16).decode(errors="replace")

    send(f"{set_up}; echo rea''dy\n", "ready")
    for line, expected in LINES:
        send(f"{line}\t", expected)
        os.write(terminal, b"\x15")  # erases the line
    os.write(terminal, b"exit\n")
    os.waitpid(child, 0)
    os.close(terminal)


LINES = [
    ("convert insp", "inspect"),
    ("convert m.h5 --to on", "onnx"),
    ("convert m.h5 --verif", "--verify"),
    ("convert m.h5 --output a", "model.h5"),
]


@pytest.mark.thorough
@needs_zsh
def test_a_tab_in_zsh(tmp_path, path):
    set_up = "autoload -Uz compinit && compinit -u && source <(convert completion zsh)"
    press_tab(["zsh", "-f", "-i"], set_up, tmp_path, path)


@pytest.mark.thorough
@needs_fish
def test_a_tab_in_fish(tmp_path, path):
    set_up = "convert completion fish | source"
    press_tab(["fish", "--no-config", "-i"], set_up, tmp_path, path)


@pytest.mark.thorough
def test_a_tab_in_bash(tmp_path, path):
    set_up = 'eval "$(convert completion bash)"'
    press_tab(["bash", "--norc", "--noprofile", "-i"], set_up, tmp_path, path)
