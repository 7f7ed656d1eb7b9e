"""What reaches a real terminal, byte by byte: narrow and wide, dumb, and interrupted."""

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import sys
import termios
import time
import unicodedata

import pytest
from repository import FIXTURES, ROOT

pytestmark = pytest.mark.thorough

CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
PATIENT = """
import os, sys, time
from converter.cli import follow, main, progress
from converter import pipeline
progress.PATIENCE = 0
real = pipeline.steps
def slow(*args, **kwargs):
    from converter.events import Progress, Started
    for i in range(3):
        yield Progress("written", i, 3, "encoder/layer 7/a very long name of a tensor/kernel")
        time.sleep(0.15)
    yield Started("comparing", "model.onnx in onnxruntime with a model in its own framework")
    time.sleep(float(os.environ["SECONDS_TO_WAIT"]))
    yield from real(*args, **kwargs)
pipeline.steps = slow
import converter.api
converter.api.steps = slow
sys.exit(main())
"""


class Ran:
    """A command in a terminal of so many columns, and all that it printed there."""

    def __init__(self, *command, columns, cwd, stop=None, **environment):
        self.columns = columns
        child, terminal = pty.fork()
        if not child:
            os.chdir(cwd)
            given = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
            given |= {"PYTHONPATH": str(ROOT), "TERM": "xterm", **environment}
            os.execvpe(sys.executable, [sys.executable, *map(str, command)], given)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        content, end = b"", time.monotonic() + 120
        while time.monotonic() < end:
            if not select.select([terminal], [], [], 1)[0]:
                continue
            try:
                content += os.read(terminal, 1 << 16)
            except OSError:  # the other end is closed
                break
            if stop is not None and stop in content:
                os.write(terminal, b"\x03")
                stop = None
        self.code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.close(terminal)
        self.text = content.decode()

    @property
    def passing(self):
        """Lines that were overwritten later."""
        plain = self.text.replace("\r\n", "\n")
        found = re.findall(r"\r([^\r\n]*)\x1b\[K", plain)
        return [CONTROL.sub("", line) for line in found if line]

    @property
    def screen(self):
        """The lines that stay."""
        lines = []
        for line in self.text.replace("\r\n", "\n").split("\n"):
            shown = ""
            for part in line.split("\r"):
                erases = "\x1b[K" in part
                part = CONTROL.sub("", part)
                shown = part if erases else part + shown[len(part) :]
            lines.append(shown)
        return lines


def width(text):
    return sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for i, name in enumerate(("short", "模型" * 12, "a-long-name-of-a-model-" * 3)):
        path = folder / "models" / f"team {i}" / f"{name}.pt"
        path.parent.mkdir(parents=True)
        shutil.copy(FIXTURES / "demo/checkpoint.pt", path)
    (folder / "models" / "bad.safetensors").write_bytes(b"12345678{")
    return folder


def batch(registry, out, **given):
    words = ("-m", "converter", "batch", "models", "-o", out, "--engine", "inline")
    return Ran(*words, cwd=registry, **given)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_bar_of_a_batch_fits_and_names_its_item(registry, tmp_path, columns):
    ran = batch(registry, tmp_path / "out", columns=columns)
    assert ran.code == 3
    bars = [line for line in ran.passing if "/4" in line]
    assert bars
    assert max(map(width, bars)) < columns
    assert any(re.search(r"  …?\S*\.portable$", line) for line in bars), bars
    assert not any("/4" in line for line in ran.screen)
    assert ran.screen[-1] == ""
    assert re.fullmatch(r"ended       3 done, 1 failed; [\d.]+ s", ran.screen[-2])
    texts = [line for line in ran.screen if "/" not in line and "`" not in line]
    assert max(map(width, texts)) <= columns


def test_a_dumb_terminal_gets_lines(registry, tmp_path):
    ran = batch(registry, tmp_path / "out", columns=80, TERM="dumb")
    assert "\x1b" not in ran.text
    assert "\r" not in ran.text.replace("\r\n", "\n")
    assert sum(line.startswith("done ") for line in ran.screen) == 3


def convert(tmp_path, seconds="0", **given):
    (tmp_path / "slow.py").write_text(PATIENT)
    source = FIXTURES / "demo/checkpoint.pt"
    words = (source, "-o", tmp_path / "out.safetensors", "--force")
    given["SECONDS_TO_WAIT"] = seconds
    return Ran(tmp_path / "slow.py", *words, cwd=tmp_path, **given)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_bar_and_spinner_of_a_conversion_fit_and_go(tmp_path, columns):
    ran = convert(tmp_path, "0.5", columns=columns)
    assert ran.code == 0, ran.text
    assert max(map(width, ran.passing)) < columns
    assert any(line.startswith("written ") and line.endswith("kernel") for line in ran.passing)
    assert any(re.match(r"comparing   [|/\\-]   0 s  model", line) for line in ran.passing)
    assert [line.split()[0] for line in ran.screen if line[:1].isalpha()][:2] == [
        "detected", "read",
    ]  # fmt: skip


@pytest.mark.parametrize("stop", [b"written  ", b"comparing  "])
def test_an_interrupted_line_is_erased(tmp_path, stop):
    ran = convert(tmp_path, "20", columns=60, stop=stop)
    assert ran.code == 130
    assert [line.replace("^C", "") for line in ran.screen if line.strip()] == [
        "convert: error: interrupted: no output is half written"
    ]
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize(
    ("environment", "is_painted"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True),
    ],
)
def test_colour(tmp_path, environment, is_painted):
    source = FIXTURES / "demo/checkpoint.pt"
    words = ("-m", "converter", source, "-o", tmp_path / "out.safetensors")
    ran = Ran(*words, cwd=tmp_path, columns=80, **environment)
    assert ran.code == 0
    assert bool(re.search(r"\x1b\[\d+m", ran.text)) == is_painted


def test_an_interrupted_batch_says_what_is_left(tmp_path):
    (tmp_path / "models").mkdir()
    for i in range(100):
        shutil.copy(FIXTURES / "demo/checkpoint.pt", tmp_path / f"models/{i}.pt")
    ran = batch(tmp_path, tmp_path / "out", columns=60, stop=b" 1/100")
    assert ran.code == 130
    assert not any("/100" in line for line in ran.screen)
    text = " ".join(line.strip() for line in ran.screen if line.strip())
    assert re.search(r"interrupted \d+ done; \d+ left to do; run it again to go on$", text)
