"""A spinner is shown late, cut to the width of the terminal, and erased."""

import time

import pytest

from converter.cli import progress
from converter.cli.progress import Bar, Spinner
from converter.events import Progress


@pytest.fixture
def terminal(monkeypatch, capsys):
    """Return a function that returns what has been printed since the last call."""
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    monkeypatch.setenv("COLUMNS", "40")
    return lambda: capsys.readouterr().err


def wait_for(read, text):
    seen = ""
    end = time.monotonic() + 30
    while text not in seen and time.monotonic() < end:
        time.sleep(0.02)
        seen += read()
    return seen


def test_a_spinner_says_what_is_awaited_and_erases_itself(terminal):
    with Spinner(enabled=True) as spinner:
        spinner.start("comparing", "model.onnx with m\x1b.h5, which is a long name indeed")
        seen = wait_for(terminal, "model.onnx")
    assert seen.startswith("\rcomparing   |   0 s  model.onnx with m\\\x1b[K")
    assert max(len(line) for line in seen.replace("\x1b[K", "").split("\r")) <= 39
    assert terminal().endswith("\r\x1b[K")


def test_what_ends_soon_shows_nothing(terminal, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 60)
    with Spinner(enabled=True) as spinner:
        spinner.start("comparing", "x")
        spinner.start("comparing", "y")
    assert terminal() == ""


@pytest.mark.parametrize("line", [Spinner, Bar])
def test_nothing_where_it_is_disabled(terminal, line, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0)
    shown = line(enabled=False)
    if line is Spinner:
        with shown:
            shown.start("comparing", "x")
            time.sleep(0.1)
    else:
        shown.show(Progress("written", 1, 2))
        shown.clear()
    assert terminal() == ""
