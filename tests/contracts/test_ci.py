"""CI runs the stages of .ci/run, all of them, on every Python that the package is for."""

import itertools
import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from repository import ROOT

WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SCRIPT = ROOT / ".ci/run"


def stages_of(job):
    """Return the stages that a job's steps name, its matrix filled in."""
    matrix = job.get("strategy", {}).get("matrix", {})
    for values in itertools.product(*matrix.values()):
        filled = dict(zip(matrix, values, strict=True))
        for step in job["steps"]:
            line = re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda m: filled[m[1]], step.get("run", ""))  # noqa: B023
            if found := re.fullmatch(r"bash \.ci/run (.+)", line):
                yield from found[1].split()


def listed():
    done = subprocess.run(["bash", SCRIPT, "--list"], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_every_stage_is_a_job_and_every_job_a_stage():
    named = [name for job in WORKFLOW["jobs"].values() for name in stages_of(job)]
    assert set(named) == set(listed())


def test_a_stage_is_a_function_that_the_head_of_the_script_explains():
    text = SCRIPT.read_text()
    head = text[: text.index("set -euo")]
    for name in listed():
        assert f"\n{name}() {{" in text
        assert re.search(rf"^#   ([\w-]+ )*{name}\b", head, re.MULTILINE), name


def test_a_stage_that_is_none_is_refused():
    done = subprocess.run(["bash", SCRIPT, "quik"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "no stage quik: see --list\n")


def test_every_python_of_the_package_is_tried():
    tried = WORKFLOW["jobs"]["stage"]["strategy"]["matrix"]["python"]
    assert PYPROJECT["project"]["requires-python"] == f">={tried[0]}"
    assert f"Python {tried[0]} to {tried[-1]}" in (ROOT / "README.md").read_text()


def test_every_folder_of_live_tests_has_a_mark_and_a_stage():
    marks = {
        mark.partition(":")[0] for mark in PYPROJECT["tool"]["pytest"]["ini_options"]["markers"]
    }
    text = SCRIPT.read_text()
    for folder in (ROOT / "tests/live").iterdir():
        if folder.is_dir() and folder.name != "__pycache__":
            assert folder.name in marks
            assert f"tests/live/{folder.name}" in text


JUNIT = """<testsuites><testsuite>
<testcase classname="tests.a" name="test_ran"/>
<testcase classname="tests.a" name="test_elsewhere"><skipped message="no torch"/></testcase>
<testcase classname="" name="tests.b"><skipped message="collection skipped"
  >('b.py', 3, "Skipped: could not import 'ray'")</skipped></testcase>
<testcase classname="tests.c" name="test_c[1]"><skipped message="there is a GPU"
  >/c.py:3: there is a GPU</skipped></testcase>
</testsuite></testsuites>"""
OTHER = '<testsuites><testcase classname="tests.a" name="test_elsewhere"/>{}</testsuites>'


@pytest.mark.parametrize(
    ("other", "code", "last"),
    [
        ("", 1, "2 tests ran, 2 ran in no stage"),
        ('<testcase classname="tests.b" name="test_b"/>', 0, "3 tests ran, 1 ran in no stage"),
    ],
)
def test_skips_are_merged_over_stages_and_only_good_reasons_pass(tmp_path, other, code, last):
    (tmp_path / "one.xml").write_text(JUNIT)
    (tmp_path / "two.xml").write_text(OTHER.format(other))
    command = [sys.executable, ROOT / ".ci/skips.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines()[-1] == last
    assert "1 tests: there is a GPU: tests.c (1)" in done.stdout
    assert ("MISSING 1 tests: could not import 'ray'" in done.stdout) == bool(code)
