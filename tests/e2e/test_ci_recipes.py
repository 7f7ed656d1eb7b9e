"""The recipes of docs/ci.md are what each system demands, and their commands run as they stand.

They are installed as the recipe says in no test: the repository has no address here.
"""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pages
import pytest
import yaml
from action_runner import ACTION, Runner
from command_lines import check_command
from packaging.requirements import Requirement
from repository import FIXTURES, ROOT

pytestmark = pytest.mark.thorough

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RECIPES = {block.title: block.text for block in pages.Page(ROOT / "docs/ci.md").blocks}
WORKFLOW = yaml.safe_load(RECIPES[".github/workflows/models.yml"])
GITLAB = yaml.safe_load(RECIPES[".gitlab-ci.yml"])["convert"]


# -- Groovy, as far as a declarative Jenkinsfile has it -------------------------------------------

TOKEN = re.compile(
    r"(?P<skipped>[ \t]+|//[^\n]*|/\*.*?\*/)|(?P<end>[;\n])|(?P<brace>[{}])"
    r"|(?P<text>'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|[^\s;{}'\"]+)",
    re.DOTALL,
)
SECTIONS = {  # https://www.jenkins.io/doc/book/pipeline/syntax/ → what may be in each
    "pipeline": {"agent", "stages", "post", "environment", "options", "parameters", "triggers"},
    "stages": {"stage"},
    "stage": {"steps", "agent", "post", "when", "environment", "options"},
    "steps": {"sh", "checkout", "junit", "archiveArtifacts"},
    "post": {"always", "success", "failure", "unstable", "changed", "cleanup"},
    "always": {"sh", "junit", "archiveArtifacts"},
    "agent": {"docker", "any", "none", "label"},
    "docker": {"image", "args"},
}


def parse_groovy(text):
    """Return statements as (name, arguments, statements of its block or None)."""
    stack, words = [[]], []

    def close(block):
        if words:
            name, _, rest = words[0].partition("(")
            given = [word.strip("()") for word in (rest, *words[1:])]
            texts = [word[1:-1] for word in given if word.startswith(("'", '"'))]
            stack[-1].append((name, texts, block))
            words.clear()

    position = 0
    for token in TOKEN.finditer(text):
        assert token.start() == position, text[position : token.end()]
        position = token.end()
        if token["text"]:
            words.append(token["text"])
        elif token["end"]:
            close(None)
        elif token["brace"] == "{":
            block = []
            close(block)
            stack.append(block)
        elif token["brace"] == "}":
            close(None)
            stack.pop()
            assert stack, "a brace closes nothing"
    close(None)
    assert position == len(text), text[position:]
    assert len(stack) == 1, "a brace is not closed"
    return stack[0]


def find(statements, name):
    for called, arguments, block in statements:
        if called == name:
            yield arguments, block
        yield from find(block or (), name)


def check_sections(name, block):
    for inner, _, content in block:
        assert inner in SECTIONS[name], f"{inner} in {name}"
        if inner in SECTIONS:
            assert content is not None, f"{inner} has no block"
            check_sections(inner, content)


JENKINS = parse_groovy(RECIPES["Jenkinsfile"])


def test_the_workflow_is_what_github_demands():
    """Spec: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax ."""
    assert set(WORKFLOW) == {"name", True, "jobs"}  # `on` is true in YAML 1.1
    action = yaml.safe_load(ACTION.read_text())
    folder = ACTION.parent.relative_to(ROOT).as_posix()
    (job,) = WORKFLOW["jobs"].values()
    assert set(job) == {"runs-on", "steps"}
    (step,) = (s for s in job["steps"] if s["uses"] == f"OWNER/REPO/{folder}@REF")
    assert set(step["with"]) <= set(action["inputs"])
    required = {name for name, one in action["inputs"].items() if one.get("required")}
    assert required <= set(step["with"])
    for one in job["steps"]:
        assert set(one) <= {"uses", "with", "if", "name", "run"}
        assert re.fullmatch(r"[\w./-]+@\w+", one["uses"])
    assert job["steps"].index(step) == 2  # after the checkout and the interpreter
    assert job["steps"][-1]["with"]["path"] in step["with"]["report"].split()


def test_the_job_is_what_gitlab_demands():
    """Spec: https://docs.gitlab.com/ci/yaml/ ."""
    assert set(GITLAB) <= {"image", "script", "artifacts", "stage", "rules", "cache"}
    assert set(GITLAB["artifacts"]) <= {"when", "reports", "paths", "expire_in"}
    assert GITLAB["artifacts"]["when"] in ("on_success", "on_failure", "always")
    assert all(isinstance(line, str) for line in GITLAB["script"])


def test_the_pipeline_is_what_jenkins_demands():
    ((name, arguments, block),) = JENKINS
    assert (name, arguments) == ("pipeline", [])
    check_sections("pipeline", block)
    assert {"agent", "stages"} <= {inner for inner, _, _ in block}
    for arguments, stage in find(JENKINS, "stage"):
        assert len(arguments) == 1
        assert [*find(stage, "sh")]


@pytest.mark.parametrize("text", ["a {", "a }", "a { sh 'b }", "pipeline { steps { sh 'x' } } }"])
def test_a_pipeline_that_is_not_closed_is_noticed(text):
    with pytest.raises(AssertionError):
        parse_groovy(text)


def jenkins_files(step):
    return [argument for arguments, _ in find(JENKINS, step) for argument in arguments]


SCRIPTS = {
    "gitlab": GITLAB["script"],
    "jenkins": [arguments[0] for arguments, _ in find(JENKINS, "sh")],
}
OUTPUTS = {
    "gitlab": [GITLAB["artifacts"]["reports"]["junit"], *GITLAB["artifacts"]["paths"]],
    "jenkins": jenkins_files("junit") + jenkins_files("archiveArtifacts"),
}


@pytest.mark.parametrize("system", SCRIPTS)
def test_the_commands_of_a_recipe_run_as_they_stand(system, tmp_path):
    (tmp_path / "models").mkdir()
    shutil.copy(FIXTURES / "demo/checkpoint.pt", tmp_path / "models")
    programs = tmp_path / "programs"
    ran = []
    for line in SCRIPTS[system]:
        words = shlex.split(line)
        program, rest = Path(words[0]), words[1:]
        if program.name == "pip":
            (requirement,) = (Requirement(word) for word in rest if word != "install")
            assert requirement.name == PROJECT["name"]
            assert requirement.extras <= set(PROJECT["optional-dependencies"])
            assert requirement.url == "git+https://github.com/OWNER/REPO@REF"
            programs = tmp_path / (program.parent if program.parts[1:] else "programs")
            programs.mkdir(parents=True, exist_ok=True)
            stand_in = programs / "convert"
            stand_in.write_text(f'#!/bin/sh\nexec {sys.executable} -m converter "$@"\n')
            stand_in.chmod(0o755)
        elif program.name == "convert":
            check_command(rest)
            env = {"PATH": f"{programs}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", line],
                cwd=tmp_path, env=env, capture_output=True, text=True,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            ran.append(rest[0])
        else:
            assert line == "python -m venv .venv"
    assert ran == ["batch", "check"]
    for name in OUTPUTS[system]:
        assert (tmp_path / name).exists(), name
    assert 'failures="0"' in (tmp_path / "junit.xml").read_text()


def test_the_workflow_converts_with_the_action(tmp_path):
    runner = Runner(yaml.safe_load(ACTION.read_text()), tmp_path, ROOT)
    runner.install_here()
    (runner.workspace / "models").mkdir()
    shutil.copy(FIXTURES / "demo/checkpoint.pt", runner.workspace / "models")
    (job,) = WORKFLOW["jobs"].values()
    done = runner.run(1, **job["steps"][2]["with"])
    assert done.returncode == 0, done.stderr
    assert runner.outputs["exit-code"] == "0"
    assert (runner.workspace / job["steps"][-1]["with"]["path"]).exists()
    assert runner.summary.read_text().startswith("## 1 of 1 ")
