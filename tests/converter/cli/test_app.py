"""The command line as a user meets it: a child process, its two streams and its exit code."""

import json
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

RNG = np.random.default_rng(31)


def run(*arguments, cwd=None):
    command = [sys.executable, "-m", "converter", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file(
        {f"module.layer{i}.w": RNG.standard_normal((4, i + 1)).astype("f4") for i in range(70)},
        path,
        metadata={"format": "pt"},
    )
    return path


def test_the_main_job_needs_no_command(source, tmp_path):
    done = run(source.name, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "model.portable\n")
    words = [line.split()[0] for line in done.stderr.splitlines()]
    assert words == ["detected", "read", "verified", "written"]
    assert (tmp_path / "model.portable" / "manifest.json").exists()


def test_options_may_come_first_and_quiet_is_quiet(source, tmp_path):
    done = run("--to", "safetensors", "-q", "-o", "x.safetensors", source, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "x.safetensors\n", "")


def test_a_file_named_like_a_command(source, tmp_path):
    for name in ("inspect", "SOURCE"):
        source.with_name(name).write_bytes(source.read_bytes())
    assert run("--", "inspect", cwd=tmp_path).returncode == 0
    assert run("./inspect", "-o", "y", cwd=tmp_path).returncode == 0
    assert run("SOURCE", cwd=tmp_path).returncode == 0
    assert run("inspect", cwd=tmp_path).returncode == 2


def test_json_is_the_only_thing_on_stdout(source, tmp_path):
    done = run(source, "--json", cwd=tmp_path)
    assert done.stderr == ""
    assert json.loads(done.stdout)["verified"]["tensors"] == 70
    for command in (["inspect", source], ["diff", source, source], ["formats"]):
        assert json.loads(run(*command, "--json").stdout)


def test_inspect_shows_and_cuts(source):
    done = run("inspect", source)
    assert done.returncode == 0
    for word in ("safetensors", "70 tensors", "9,940 parameters", "float32", "module", "layer0"):
        assert word in done.stdout
    assert "10 more: --weights" in done.stdout
    assert "layer69" in run("inspect", source, "--weights").stdout


def test_diff_tells_and_exits_one(source, tmp_path):
    assert run("diff", source, source).returncode == 0
    other = tmp_path / "other.safetensors"
    save_file({"module.layer0.w": np.ones((4, 1), "f4")}, other)
    done = run("diff", source, other)
    assert done.returncode == 1
    assert "changed" in done.stdout
    assert "69 only in A" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["absent.h5"], 3),
        (["--to", "portable"], 2),
        (["model.safetensors", "--bogus"], 2),
        (["model.safetensors", "--to", "gguf"], 2),
        (["model.safetensors", "--max-shard-size", "much"], 2),
        (["model.safetensors", "--verify", "device"], 2),
        (["model.safetensors", "--require", "cpu", "-q"], 1),
        (["model.safetensors", "-o", "pyproject.toml/x"], 6),
        (["inspect", "pyproject.toml"], 3),
        (["diff", "model.safetensors"], 2),
        (["model.safetensors", "--config", "absent.toml"], 2),
        (["model.safetensors", "--config", "bad.toml"], 2),
    ],
    ids=str,
)
def test_exit_codes_and_short_messages(source, tmp_path, arguments, code):
    (tmp_path / "bad.toml").write_text("colour = 1")
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("convert: error: ")
    assert len(done.stderr.splitlines()) <= 3


def test_verbose_adds_the_traceback():
    assert "Traceback" in run("absent.h5", "-v").stderr


def test_defaults_come_from_a_file_and_give_way_to_options(source, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.convert]\nto = "safetensors"\nout = "a.st"\n')
    assert run(source, cwd=tmp_path).stdout == "a.st\n"
    assert run(source, "--out", "b.st", cwd=tmp_path).stdout == "b.st\n"
    (tmp_path / "c.toml").write_text('strip-prefix = "module."\ninclude = ["optimizer"]\n')
    done = run(source, "--config", "c.toml", "-o", "c", cwd=tmp_path)
    assert "70 tensors: removed `module.`" in done.stderr
    (tmp_path / "d.toml").write_text('atol = ["a:1e-3", "0.5"]\nrtol = ["much"]\n')
    done = run(source, "--config", "d.toml", "-o", "d", cwd=tmp_path)
    assert (done.returncode, "--rtol much" in done.stderr) == (2, True)  # each is an option


def test_a_closed_pipe_is_no_bug(source):
    command = f"{sys.executable} -m converter inspect {source} --weights | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
        (b"<!DOCTYPE html><html>404", "HTML page"),
        (b"\x1f\x8b\x08" + b"0" * 50, "gzip"),
        (b"7z\xbc\xaf\x27\x1c" + b"0" * 50, "7z"),
        (b"", "empty file"),
        (b"\0" * 5000, "zero bytes"),
        (b"PK\x03\x04" + b"x" * 100, "damaged zip"),
        (b"hello world, this is text", "text file"),
        (b'{"a": 1}', "JSON"),
        (b"\x93NUMPY\x01\x00v\x00", "NumPy"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
@pytest.mark.parametrize("suffix", ["h5", "pt", "bin"])
def test_what_is_no_model_is_told_apart(tmp_path, content, words, suffix):
    path = tmp_path / f"model.{suffix}"
    path.write_bytes(content)
    done = run("inspect", path)
    assert done.returncode == 3
    assert words in done.stderr
