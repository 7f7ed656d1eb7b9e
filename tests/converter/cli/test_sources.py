"""What was meant is done: several sources, folders, suffixes, misspelled words."""

import json
import shutil
import subprocess
import sys

import pytest
from repository import FIXTURES

from converter import cli
from converter.cli import app


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(FIXTURES / "demo" / "checkpoint.pt", "c.pt")
    shutil.copy(FIXTURES / "keras" / "keras2_sequential.only_weights.h5", "k.h5")
    (tmp_path / "bad.pt").write_text("no model")
    return tmp_path


@pytest.fixture
def run(capsys, monkeypatch):
    """Return a function that runs the program: exit code, output, errors."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["convert", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # the program sets it: undone at the end
    monkeypatch.setattr(cli.gc, "disable", lambda: None)
    monkeypatch.setattr(cli.gc, "freeze", lambda: None)
    return call


def test_each_source_has_an_output_and_one_that_fails_stops_no_other(run, folder):
    code, out, err = run("k.h5", "bad.pt", "c.pt", "-o", "out/new/")
    assert (code, out) == (3, "out/new/k.portable\nout/new/c.portable\n")
    assert "[2/3] bad.pt\nconvert: error: bad.pt: is not a model that convert reads" in err
    assert sorted(p.name for p in (folder / "out/new").iterdir()) == ["c.portable", "k.portable"]
    code, out, _ = run("c.pt", "bad.pt", "--json", "--to", "safetensors")
    first, second = json.loads(out)["conversions"]
    assert (code, json.loads(out)["exit_code"]) == (3, 3)
    assert (first["output"], second["exit_code"]) == ("c.safetensors", 3)


def test_an_output_is_said_to_be_written_when_it_is_there(folder):
    from converter.api import convert_steps
    from converter.events import Step
    from converter.options import Options

    names = []
    for event in convert_steps("c.pt", "deep/er/x.safetensors", Options()):
        if isinstance(event, Step):
            names.append(event.name)
            assert (folder / "deep/er/x.safetensors").exists() == (event.name == "written")
    assert names[-2:] == ["verified", "written"]


def test_a_failure_leaves_no_folders(run, folder):
    assert run("bad.pt", "-o", "a/b/x.safetensors")[0] == 3
    assert run("c.pt", "-o", "a/b/x.safetensors", "--require", "cpu")[0] == 1
    assert not (folder / "a").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["c.pt", "-o", "x.onnx", "--to", "keras"], 2, "the suffix .onnx contradicts --to keras"),
        (["c.pt", "-o", "x.pt"], 2, "expected: --device with cpu"),
        (["c.pt", "--to", "onx"], 2, "help: Did you mean 'onnx'?"),
        (["inspekt", "c.pt"], 2, "help: Did you mean `convert inspect`?"),
        (["c.pt", "--too", "onnx"], 2, "there is no option --too\n  help: Did you mean"),
        (["-"], 2, "standard input is not read"),
        (["c.pt", "-o", "-"], 2, "never standard output"),
        (["c.pt", "k.h5", "-o", "x.onnx"], 2, "one output for 2 sources"),
        (["inspect"], 2, "help: `convert inspect --help` lists the options"),
        (["completion", "tcsh"], 2, "expected: completion bash, zsh or fish"),
        (["absent.pt"], 3, "absent.pt: no such file or folder"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_with_what_to_do(run, folder, arguments, code, words):
    found, out, err = run(*arguments)
    assert (found, out) == (code, "")
    assert words in err
    assert sorted(p.name for p in folder.iterdir()) == ["bad.pt", "c.pt", "k.h5"]


def test_what_was_meant_is_done(run, folder):
    assert run("c.pt", "--to", "SAFETENSORS", "--output", "x.safetensors", "-q")[:2] == (
        0, "x.safetensors\n",
    )  # fmt: skip
    assert run("c.pt", "-o", "y.pt", "--device", "cpu", "-q")[0] == 0
    assert (folder / "y.pt").is_file()
    assert run("help", "inspect")[1] == run("inspect", "--help")[1]
    assert run("help")[1] == run("--help")[1] == run()[1]


def test_several_are_tables(run):
    code, out, err = run("inspect", "c.pt", "bad.pt", "k.h5")
    assert (code, [line.split()[0] for line in out.splitlines()]) == (3, ["model", "c.pt", "k.h5"])
    assert "cuda:1" in out
    assert "bad.pt" in err
    code, out, _ = run("inspect", "c.pt", "k.h5", "--json")
    assert [one["format"] for one in json.loads(out)] == ["torch", "keras-h5"]
    code, out, _ = run("ls")
    assert (code, len(out.splitlines())) == (0, 4)
    assert "damaged" in out
    code, out, _ = run("ls", ".", "--json")
    assert {one["source"] for one in json.loads(out)} == {"bad.pt", "c.pt", "k.h5"}
    code, out, _ = run("doctor", "--fast", "c.pt", "absent", "k.h5")
    assert code == 7
    assert "convert c.pt --to torch --device cpu" in out


def test_check_is_the_gate(run):
    assert run("c.pt", "k.h5", "-o", "out", "-q")[0] == 0
    code, out, _ = run("check", "out")
    assert (code, out.count("passed")) == (0, 3)
    assert run("verify", "out")[1].count("passed") == 3
    assert run("check", "out", "--require", "cpu")[0] == 1


def test_formats_lists_targets_too(run):
    from converter.write.catalog import TARGETS

    out = run("formats")[1]
    assert all(f"\n  {row.id} " in out and row.writes in out for row in TARGETS)
    assert len(json.loads(run("formats", "--json")[1])["targets"]) == len(TARGETS)


def test_every_option_is_in_a_section_in_any_width(run, monkeypatch):
    for columns in ("40", "80", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        for command in ("c.pt", "batch", "verify"):
            out = run(command, "--help")[1]
            assert max(map(len, out.splitlines())) <= max(min(int(columns), 100), 56)
            for title in ("Output:", "Graph:", "Verification:", "General:"):
                assert f"\n{title}\n" in out or command == "verify"
    assert out.startswith("Usage: convert verify SOURCE CONVERTED [OPTIONS]\n")


def test_colours_are_for_terminals_that_want_them(run, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[31mconvert: error: \x1b[0m" in run("absent.pt")[2]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run("absent.pt")[2]
    monkeypatch.delenv("FORCE_COLOR")
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b" not in run("absent.pt")[2]


def test_the_module_is_the_program(folder):
    done = subprocess.run(
        [sys.executable, "-m", "converter", "--version"], capture_output=True, text=True
    )
    assert done.stdout.startswith("convert ")
    assert app.app is not None
