"""What other systems run: the GitHub Action, pre-commit's hooks, the Dockerfile.

Each is held against what its system demands of it, and its own shell is run as that system would.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import yaml
from action_runner import ACTION, Runner
from repository import ROOT

import converter
from converter.options import Options

pytestmark = pytest.mark.thorough

HOOKS = ROOT / ".pre-commit-hooks.yaml"
DOCKERFILE = ROOT / ".docker/Dockerfile"
GRAPH = ROOT / "fixtures/keras/keras315_functional.keras"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    out = tmp_path_factory.mktemp("made") / "m.portable"
    converter.convert(GRAPH, out=out, options=Options(verify="weights"))
    return out


# -- the action -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def action():
    return yaml.safe_load(ACTION.read_text())


def test_the_action_is_what_github_demands(action):
    """Keys of composite actions.

    Spec: https://docs.github.com/en/actions/reference/workflows-and-actions/metadata-syntax
    """
    assert {"name", "description", "runs"} <= set(action)
    assert set(action) <= {"name", "author", "description", "inputs", "outputs", "runs", "branding"}
    for name, declared in action["inputs"].items():
        assert re.fullmatch(r"[A-Za-z_][\w-]*", name)
        assert set(declared) <= {"description", "required", "default", "deprecationMessage"}
        assert declared["description"]
        assert declared.get("required") or isinstance(declared["default"], str)
    for declared in action["outputs"].values():
        assert set(declared) == {"description", "value"}
    assert action["runs"]["using"] == "composite"
    ids = {step["id"] for step in action["runs"]["steps"] if "id" in step}
    for step in action["runs"]["steps"]:
        assert set(step) <= {"name", "id", "if", "run", "shell", "env", "working-directory"}
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an input in a script is run as one"
    named = re.findall(r"steps\.(\w+)\.outputs", ACTION.read_text())
    assert named
    assert set(named) <= ids


def test_every_input_reaches_a_step(action):
    used = set(re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", ACTION.read_text()))
    assert used == set(action["inputs"])


@pytest.fixture
def runner(action, tmp_path):
    runner = Runner(action, tmp_path, ROOT)
    runner.install_here()
    return runner


def test_the_action_converts_and_says_what_came_of_it(runner):
    shutil.copy(ROOT / "fixtures/demo/checkpoint.pt", runner.workspace / "a b.pt")
    header = b'{"w": nothing that JSON is}'
    (runner.workspace / "bad.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    done = runner.run(
        1,
        source="a b.pt\n\n  \n",
        out="out",
        require="weights",
        report="r.jsonl\nr x.xml\ns.md",
        args="--jobs 1 --engine inline --exclude 'b ad*'",
    )
    assert done.returncode == 0, done.stderr
    assert (runner.workspace / "out/a b.portable/manifest.json").exists()
    reports = [runner.workspace / name for name in ("r.jsonl", "r x.xml", "s.md")]
    assert runner.summary.read_text() == (runner.workspace / "s.md").read_text()
    assert runner.outputs == {"exit-code": "0", "report": "\n".join(map(str, reports))}
    done = runner.run(1, source="a b.pt\nbad.safetensors", out="out2", args="--engine inline")
    assert done.returncode == 3
    assert "::error::convert batch: exit 3" in done.stdout
    assert runner.outputs == {"exit-code": "3", "report": ""}


def test_the_action_is_a_gate(runner, bundle):
    shutil.copytree(bundle, runner.workspace / "models/m.portable")
    done = runner.run(1, command="verify", source="models")
    assert (done.returncode, runner.outputs["exit-code"]) == (0, "0"), done.stderr
    done = runner.run(1, command="verify", source="models", require="cpu", report="r.xml")
    assert (done.returncode, runner.outputs["exit-code"]) == (1, "1")
    assert runner.outputs["report"] == str(runner.workspace / "r.xml")
    done = runner.run(1, command="verify", source="models\nothers")
    assert done.returncode == 2
    assert "one folder" in done.stdout
    assert runner.run(1, command="rm", source="models").returncode == 2


def test_what_stands_in_an_input_is_never_run(runner):
    hostile = "$(touch ran)`touch ran`; touch ran #\"'"
    for given in (
        {"source": hostile, "out": "out"},
        {"source": "x", "out": hostile, "to": hostile, "require": hostile, "report": hostile},
        {"source": "x", "out": "out", "args": "$(touch ran) `touch ran`; touch ran"},
        {"source": "-x\n--trust=os", "out": "out"},
    ):
        assert runner.run(1, **given).returncode != 0
        assert not list(runner.workspace.rglob("ran"))
    done = runner.run(1, source="x", out="out", args="'not closed")
    assert done.returncode != 0
    assert runner.outputs == {}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_action_installs_from_its_own_checkout(action, tmp_path):
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in (".github", "converter", "formats"):
        ignored = shutil.ignore_patterns("__pycache__", ".mypy_cache")
        shutil.copytree(ROOT / name, checkout / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, checkout)
    runner = Runner(action, tmp_path, checkout)
    done = runner.run(0, extras="", python=sys.executable)
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"convert {converter.__version__}")
    shutil.copy(ROOT / "fixtures/demo/checkpoint.pt", runner.workspace / "a.pt")
    done = runner.run(1, source="a.pt", out="out")
    assert done.returncode == 0, done.stderr
    assert runner.run(1, command="verify", source="out", require="weights").returncode == 0


# -- pre-commit -----------------------------------------------------------------------------------


def hooks():
    return {hook["id"]: hook for hook in yaml.safe_load(HOOKS.read_text())}


def test_hooks_are_what_pre_commit_demands():
    """Spec: https://pre-commit.com/#creating-new-hooks ."""
    for hook in hooks().values():
        assert {"id", "name", "entry", "language"} <= set(hook)
        assert set(hook) <= {"id", "name", "entry", "language", "description", "files", "types"}
        assert hook["language"] == "python"
        assert hook["types"] == ["file"]
    assert set(hooks()) == {"convert-verify", "convert-safety"}


def run_hook(id, *arguments, cwd):
    """Run a hook as pre-commit does: with the names of files that its pattern finds."""
    hook = hooks()[id]
    options = [a for a in arguments if str(a).startswith("--")]
    files = [a for a in arguments if a not in options]
    files = [f for f in files if re.search(hook.get("files", ""), str(f))]
    words = shlex.split(hook["entry"])
    assert words[0] == "python"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *words[1:], *map(str, options), *map(str, files)],
        cwd=cwd, env=env, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_the_hook_checks_bundles_that_a_commit_touches(bundle, tmp_path):
    shutil.copytree(bundle, tmp_path / "models/good")
    shutil.copytree(bundle, tmp_path / "models/bad")
    with (tmp_path / "models/bad/model.onnx").open("ab") as f:
        f.write(b"x")
    (tmp_path / "notes.txt").touch()
    good = run_hook("convert-verify", "models/good/model.onnx", "notes.txt", cwd=tmp_path)
    assert good.returncode == 0, good.stderr
    assert good.stdout.startswith("passed      good")
    assert run_hook("convert-verify", "notes.txt", cwd=tmp_path).returncode == 0
    both = ["models/bad/manifest.json", "models/bad/model.onnx", "models/good/manifest.json"]
    bad = run_hook("convert-verify", *both, cwd=tmp_path)
    assert bad.returncode == 1
    assert bad.stdout.count("FAILED") == 1
    assert bad.stdout.count("passed      good") == 1
    required = run_hook("convert-verify", "--require=cpu", both[-1], cwd=tmp_path)
    assert required.returncode == 1
    assert "required: cpu" in required.stdout


class Runs:
    def __reduce__(self):
        return os.system, ("touch ran",)


def test_the_hook_refuses_what_names_code(bundle, tmp_path):
    import pickle

    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(Runs()))
    (tmp_path / "text.pkl").write_bytes(pickle.dumps(Runs(), 0))
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps({"w": [1, 2]}))
    (tmp_path / "-o.pt").write_bytes((ROOT / "fixtures/demo/checkpoint.pt").read_bytes())
    (tmp_path / "unknown.bin").write_bytes(b"neither model nor pickle")
    shutil.copytree(bundle, tmp_path / "m.portable")
    good = ["plain.pkl", "-o.pt", "unknown.bin", "m.portable/model.onnx", "notes.txt"]
    done = run_hook("convert-safety", *good, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run_hook("convert-safety", *good, "evil.pkl", cwd=tmp_path)
    assert done.returncode == 5
    assert "posix.system" in done.stdout
    assert run_hook("convert-safety", "text.pkl", cwd=tmp_path).returncode == 3
    assert not (tmp_path / "ran").exists()


def test_the_pattern_of_the_safety_hook_finds_every_format():
    from converter.cli.hooks import PICKLES
    from formats.catalog import FORMATS

    pattern = hooks()["convert-safety"]["files"]
    suffixes = {s for row in FORMATS for s in row.suffixes} | set(PICKLES)
    suffixes -= {".portable", ".index"}  # a folder; an index of data files
    assert [s for s in suffixes if not re.search(pattern, f"folder/a{s}")] == []
    assert re.search(pattern, "A.PT")


# -- Docker ---------------------------------------------------------------------------------------


def instructions():
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    text = re.sub(r"\\\n\s*", "", text)
    return [line.split(None, 1) for line in text.splitlines() if line]


def test_the_dockerfile_is_well_formed():
    known = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT", "CMD"}
    lines = instructions()
    assert {word for word, _ in lines} <= known
    stages = set()
    for word, rest in lines:
        if word == "FROM":
            base, how, name = rest.split()
            assert how == "AS"
            assert base in stages or base.startswith("python:")
            stages.add(name)
        elif word == "COPY" and rest.startswith("--from="):
            assert rest.split()[0].removeprefix("--from=") in stages
        elif word in ("ENTRYPOINT", "CMD"):
            assert json.loads(rest)
    assert {"cpu", "cuda"} <= stages
    assert [rest for word, rest in lines if word == "FROM"][-1] == "base AS cpu"
    assert ["USER", "1000"] in lines
    assert ["ENTRYPOINT", '["convert"]'] in lines


def test_what_the_dockerfile_copies_is_all_that_the_package_is_built_of(tmp_path):
    copied = []
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from="):
            *sources, target = rest.split()
            for source in sources:
                assert (ROOT / source).exists(), source
                copied.append(source)
                assert target in ("./", source)
    assert {"pyproject.toml", "README.md", "formats", "converter"} <= set(copied)


def test_extras_of_the_dockerfile_are_there():
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = re.findall(r"EXTRAS=([\w,]+)", DOCKERFILE.read_text())
    assert {"gpu", "cpu"} <= set(named)
    for name in ",".join(named).split(","):
        assert name in extras
    constraint = dict(instructions())["ARG"]
    assert constraint
    pythons = re.findall(r"ARG PYTHON=(3\.\d+)", DOCKERFILE.read_text())
    assert pythons == ["3.12"]
