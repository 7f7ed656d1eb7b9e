"""``convert batch`` as it is typed: what it prints where, and its exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file


def run(*arguments, cwd):
    command = [sys.executable, "-m", "converter", "batch", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=100)


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    folder = tmp_path / "registry"
    rng = np.random.default_rng(3)
    for name in ("a", "b/c", "b/d"):
        path = folder / f"{name}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file({"w": rng.standard_normal((3, 4)).astype("f4")}, path)
    (folder / "broken.safetensors").write_bytes(b"\x08" + bytes(40))
    (folder / "README.md").write_text("no model\n")
    return folder


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["registry"], "no destination\n  expected: -o"),
        (["registry", "-o", "out", "--shard", "4/3"], "I/N"),
        (["registry", "-o", "out", "--shard", "0/3"], "I/N"),
        (["registry", "-o", "out", "--shard", "x"], "I/N"),
        (["registry", "-o", "out", "--engine", "threads"], "processes"),
        (["registry", "-o", "out", "--report", "r.pdf"], ".html"),
        (["registry", "-o", "out", "--to", "torch"], "--device"),
        (["registry", "-o", "out", "--jobs", "0"], "--jobs"),
        (["registry", "-o", "out", "--memory", "-1"], "--memory"),
        (["registry", "-o", "out", "--timeout", "0"], "--timeout"),
    ],
)
def test_wrong_usage_is_exit_2_and_leaves_nothing(registry, tmp_path, arguments, said):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["registry"]


def test_a_line_for_each_artifact_and_the_worst_exit_code(registry, tmp_path):
    done = run("registry", "-o", "out", cwd=tmp_path)
    assert done.returncode == 3
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[:2] == [
        "found       4 artifacts: safetensors (3), unknown (1)",
        "skipped     no model (1)",
    ]
    assert lines[2].startswith("planned     4 to convert")
    good = {line.split()[1] for line in lines if line.startswith("done ")}
    assert good == {"a.portable", "b/c.portable", "b/d.portable"}
    (bad,) = (line for line in lines if line.startswith("failed "))
    assert "broken.portable: exit 3:" in bad
    assert lines[-1].startswith("ended       3 done, 1 failed;")
    assert (tmp_path / "out/b/c.portable/manifest.json").is_file()


def test_a_second_run_has_nothing_to_do_and_the_same_exit_code(registry, tmp_path):
    run("registry", "-o", "out", cwd=tmp_path)
    before = (tmp_path / "out/a.portable/manifest.json").stat()
    again = run("registry", "-o", "out", cwd=tmp_path)
    assert again.returncode == 3
    assert "0 to convert" in again.stderr
    assert "3 done already" in again.stderr
    assert "1 failed before (--retry-failed)" in again.stderr
    after = (tmp_path / "out/a.portable/manifest.json").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert "1 to convert" in run("registry", "-o", "out", "--retry-failed", cwd=tmp_path).stderr


def test_a_dry_run_lists_and_writes_nothing(registry, tmp_path):
    done = run("registry", "-o", "out", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0
    assert {line.split(" -> ")[1] for line in done.stdout.splitlines()} == {
        "a.portable", "b/c.portable", "b/d.portable", "broken.portable",
    }  # fmt: skip
    assert [p.name for p in tmp_path.iterdir()] == ["registry"]
    shown = json.loads(run("registry", "-o", "out", "--dry-run", "--json", cwd=tmp_path).stdout)
    assert shown["plan"]["todo"] == len(shown["plan"]["jobs"]) == 4


def test_json_is_one_document_and_events_a_line_each(registry, tmp_path):
    done = run("registry", "-o", "out", "--json", "--events", "events", cwd=tmp_path)
    shown = json.loads(done.stdout)
    assert done.stderr == ""
    assert shown["summary"]["exit_code"] == done.returncode == 3
    assert shown["summary"]["counts"] == {"done": 3, "failed": 1}
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert [e["event"] for e in events] == ["planned", *4 * ["finished"], "ended"]
    assert {e["name"] for e in events[1:-1]} == {
        "a.portable", "b/c.portable", "b/d.portable", "broken.portable",
    }  # fmt: skip


def test_the_paths_of_reports_are_what_it_prints(registry, tmp_path):
    done = run("registry", "-o", "out", "--report", "a.html", "--report", "b.jsonl", cwd=tmp_path)
    assert done.stdout.splitlines() == ["a.html", "b.jsonl"]
    assert len((tmp_path / "b.jsonl").read_text().splitlines()) == 4


def test_quiet_says_nothing(registry, tmp_path):
    done = run("registry", "-o", "out", "-q", "--exclude", "broken*", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_options_reach_the_conversions(registry, tmp_path):
    done = run(
        "registry", "-o", "out", "--to", "torch", "--device", "cuda:1", "--include", "b/*",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0
    made = sorted(
        p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*.pt")
    )
    assert made == ["b/c.cuda-1.pt", "b/d.cuda-1.pt"]


def test_defaults_come_from_a_file(registry, tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.convert]\nto = "safetensors"\nout = "x"\n'
        '[tool.convert.batch]\nexclude = ["broken*"]\n'
    )
    done = run("registry", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (tmp_path / "out").rglob("*.safetensors")) == [
        "a.safetensors", "c.safetensors", "d.safetensors",
    ]  # fmt: skip
    (tmp_path / "pyproject.toml").write_text("[tool.convert.batch]\ntypo = 1\n")
    assert run("registry", "-o", "out", cwd=tmp_path).returncode == 2


def test_nothing_there_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    for reference, code in (("absent", 3), ("empty", 3)):
        done = run(reference, "-o", "out", cwd=tmp_path)
        assert done.returncode == code, done.stderr
        assert reference in done.stderr


def test_no_standard_output_and_no_current_folder(registry, tmp_path):
    whole = f"{sys.executable} -m converter batch registry -o out --engine inline"
    done = subprocess.run(
        f"{whole} --verify weights --json >&-", shell=True, cwd=tmp_path, capture_output=True
    )
    assert (done.returncode, b"Traceback" in done.stderr) == (3, False)
    gone = f"mkdir gone; cd gone; rmdir ../gone; {whole}"
    done = subprocess.run(gone, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "convert: error: the current folder is gone\n  help: cd somewhere else\n"
    )
    assert (tmp_path / "out/a.portable").is_dir()


def test_what_was_harmed_is_told(registry, tmp_path):
    arguments = ("registry", "-o", "out", "--verify", "weights", "--engine", "inline")
    run(*arguments, cwd=tmp_path)
    for name in ("a", "b/c"):
        (tmp_path / f"out/{name}.portable/model.safetensors").write_bytes(b"")
    planned = run(*arguments, "--dry-run", cwd=tmp_path)
    assert "a.portable (model.safetensors has 0 bytes; " in planned.stdout
    again = [line for line in planned.stderr.splitlines() if line.startswith("again ")]
    assert [line.split()[1] for line in again] == ["a.portable:", "b/c.portable:"]
    assert "2 to convert" in planned.stderr
    assert "1 done already" in planned.stderr
