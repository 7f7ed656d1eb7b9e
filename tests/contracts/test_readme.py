"""README is the contract: its session, table, snippets and links are run or compared."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib

import pytest
from repository import ROOT

from formats.catalog import FORMATS

README = (ROOT / "README.md").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def blocks(language):
    return re.findall(rf"^```{re.escape(language)}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def run(arguments, cwd):
    command = [sys.executable, "-m", "converter", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60)


def without_times(text):
    return re.sub(r"\(\d+\.\d\d s\)", "(T s)", text)


def test_the_session_is_what_convert_prints(tmp_path):
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    session = blocks("console")[0]
    commands = re.findall(r"^\$ convert (.*)\n((?:(?!\$ ).*\n)*)", session, re.MULTILINE)
    assert commands
    for arguments, shown in commands:
        done = run(arguments.split(), tmp_path)
        assert done.returncode == 0, done.stderr
        assert without_times(done.stderr + done.stdout).strip() == without_times(shown).strip()


def test_the_other_commands_run(tmp_path):
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    commands = re.findall(r"^\$ convert (inspect fixtures.*?)(?:  .*)?$", README, re.MULTILINE)
    assert commands
    for arguments in commands:
        assert run(arguments.split(), tmp_path).returncode == 0


def test_the_table_of_formats_is_the_catalog():
    rows = [f"| `{row.id}` | {row.reads} |" for row in FORMATS]
    shown = re.findall(
        r"^\| `[\w-]+` \| .* \|$", README.split("## Sources")[1].split("\n## ")[0], re.MULTILINE
    )
    assert shown == rows


def test_set_up_is_two_commands():
    first, second = blocks("sh set-up")
    assert re.fullmatch(
        r"pip install \"\.\[cpu\]\" && convert (fixtures/\S+) --to portable\n", first
    )
    assert (ROOT / first.split("convert ")[1].split()[0]).exists()
    assert '".[test]"' in second
    assert second.endswith('-m "not slow and not thorough"\n')


def test_each_set_of_tests_has_a_command():
    (shown,) = blocks("sh tests")
    commands = [line.partition("  #")[0].rstrip() for line in shown.splitlines()]
    assert commands[-1] == "bash .ci/run"
    marks = {m.partition(":")[0] for m in PYPROJECT["tool"]["pytest"]["ini_options"]["markers"]}
    for command in commands[:-1]:
        words = shlex.split(command)
        assert words[:6] == ["python", "-m", "pytest", "-q", "-n", "auto"]
        assert all((ROOT / word).is_dir() for word in words[6:] if word.startswith("tests/"))
        if "-m" in words[6:]:
            named = re.findall(r"\w+", words[-1])
            assert {*named} - {"not", "and"} <= marks


def test_the_default_set_is_the_quick_one_and_what_is_thorough():
    """`.ci/run` runs the second after the first: together they are README's default set."""
    script = (ROOT / ".ci/run").read_text()
    assert 'tests test default -m "thorough and not slow or browser"' in script


def test_the_python_snippet_runs(tmp_path):
    shutil.copy(ROOT / "fixtures/demo/checkpoint.pt", tmp_path / "model.pt")
    (tmp_path / "models").mkdir()
    shutil.copy(ROOT / "fixtures/demo/checkpoint.pt", tmp_path / "models/a.pt")
    pytest.importorskip("h5py")
    import h5py
    import numpy as np

    with h5py.File(tmp_path / "model.h5", "w") as f:
        f.attrs["layer_names"] = [b"dense_1"]
        f.attrs["keras_version"], f.attrs["backend"] = b"2.2.4", b"tensorflow"
        f.create_group("dense_1").attrs["weight_names"] = [b"dense_1/kernel:0"]
        f["dense_1/dense_1/kernel:0"] = np.arange(6, dtype="f4").reshape(2, 3)
    (code,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", code + "\nprint(bundle.metadata.recorded)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "'keras_version': '2.2.4'" in done.stdout
    assert "'backend': 'tensorflow'" in done.stdout
    assert "a.safetensors done" in done.stdout


def test_every_command_has_the_options_that_it_is_shown_with():
    """Parsed and not run: they name buckets, servers and files of nobody's."""
    import typer

    from converter.cli import COMMANDS
    from converter.cli.app import app

    program = typer.main.get_command(app)
    shown = re.findall(r"^\$ convert ((?:.*\\\n)*.*)$", "\n".join(blocks("console")), re.MULTILINE)
    assert len(shown) > 25
    for line in shown:
        words = shlex.split(line.replace("\\\n", " "), comments=True)
        name = words.pop(0) if words[0] in COMMANDS else "SOURCE"
        program.commands[name].make_context(name, words)


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    for name in re.findall(
        r"`((?:formats|converter|tests|fixtures|benchmarks|tools)/[\w./]+\.(?:py|json|pt))`", README
    ):
        assert (ROOT / name).exists(), name
