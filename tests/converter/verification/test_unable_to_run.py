"""Sources that cannot be run here, and frameworks that misbehave: said, and never taken for good.

A stand-in for the other Python answers as the runner would, so that no framework is needed.
"""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from comparing import comparing
from repository import ROOT

import converter
from converter import cli
from converter.cli.app import run
from converter.extras import describe_install
from converter.options import Options
from converter.verification import runners
from converter.verification.graphs import verify_graph
from converter.verification.onnx_values import read_interface
from converter.verification.result import Verification, Weights
from converter.verification.verify import exit_code
from formats.core.bundle import SafetyFinding
from formats.errors import DependencyError, UsageError

pytest.importorskip("onnxruntime")

SUPPORT = ROOT / "tests" / "support"
SOURCE = ROOT / "fixtures" / "verify" / "pairs.keras"


@pytest.fixture
def bundle():
    return converter.read(SOURCE)


@pytest.fixture
def model(tmp_path):
    return converter.convert(SOURCE, to="onnx", out=tmp_path / "m.onnx").path


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Make the other Python one that has these packages and does this with a question."""

    def install(packages, text="pass"):
        path = tmp_path / "python"
        path.write_text(
            f"#!{sys.executable}\n"
            "import json, os, pathlib, sys, time\n"
            f"sys.path[:0] = [{str(SUPPORT)!r}]\n"
            "from stand_in_server import serve\n"
            "serve()\n"
            "if sys.argv[-1] == '--probe':\n"
            f"    print({json.dumps(json.dumps(packages))})\n"
            "    sys.exit()\n"
            "folder = pathlib.Path(sys.argv[-1])\n"
            "question = json.loads((folder / 'question.json').read_text())\n"
            "def answer(**facts):\n"
            "    facts = {'python': '3', 'versions': {question['framework']: '9.9'}} | facts\n"
            "    (folder / 'answer.json').write_text(json.dumps(facts))\n"
            f"{text}\n"
        )
        path.chmod(0o755)
        monkeypatch.setenv(runners.PYTHON_VARIABLE, str(path))
        monkeypatch.delenv("KERAS_BACKEND", raising=False)

    return install


def test_no_framework_says_what_to_install(bundle, model, stand_in):
    stand_in([])
    report = verify_graph(SOURCE, bundle, model)
    assert report.status == "not run"
    assert report.lacking == describe_install("tensorflow")


def test_a_broken_framework_is_none(bundle, model, stand_in):
    stand_in(["keras", "tensorflow"], "answer(status='absent', error='ImportError: no libcuda')")
    report = verify_graph(SOURCE, bundle, model)
    assert report.lacking is not None
    assert "no libcuda" in report.reason


def test_no_onnxruntime_says_what_to_install(bundle, model, monkeypatch):
    monkeypatch.setattr("converter.verification.obstacles.has_onnxruntime", lambda: False)
    report = verify_graph(SOURCE, bundle, model)
    assert (report.status, report.lacking) == ("not run", describe_install("cpu"))


def test_a_source_that_no_keras_loads_is_verified_on_weights_only(bundle, model, stand_in):
    stand_in(
        ["keras", "tf_keras", "tensorflow", "jax"],
        "answer(status='cannot load', error='ValueError: of ' + os.environ['KERAS_BACKEND'])",
    )
    report = verify_graph(SOURCE, bundle, model)
    assert (report.status, report.lacking) == ("not run", None)
    assert report.reason == (
        "no Keras here runs the source: verified on weights only "
        "(keras 9.9: ValueError: of tensorflow; keras 9.9: ValueError: of jax; "
        "tf_keras 9.9: ValueError: of tensorflow)"
    )


REFUSES = """
case = {'chosen': None, 'dtypes': [], 'refused': {'0': 'ValueError: only NHWC on the CPU'}}
answer(status='done', cases=[case] * len(question['cases']), device='', inputs=[], layers=[])
"""


def test_a_source_that_fails_on_every_drawn_input_is_no_success(bundle, model, stand_in):
    stand_in(["keras", "tensorflow"], REFUSES)
    report = verify_graph(SOURCE, bundle, model)
    assert (report.status, report.is_failing, report.smoke) == ("not run", True, None)
    assert report.reason.startswith("the source itself fails on every input that was drawn: ")
    assert report.reason.endswith("ValueError: only NHWC on the CPU")
    found = Verification(Weights(1), {"model.onnx": report})
    assert exit_code(found, None) == 7
    with pytest.raises(DependencyError, match="only NHWC on the CPU"):
        found.check(Options(to="onnx", verify="cpu"))


def test_given_inputs_on_which_the_source_fails_are_wrong_usage(bundle, model, stand_in, tmp_path):
    stand_in(["keras", "tensorflow"], REFUSES)
    path = tmp_path / "inputs.npz"
    interface = read_interface(model, Options().limits)
    np.savez(path, **{s.name: np.ones([n if isinstance(n, int) else 2 for n in s.shape], s.dtype)
                      for s in interface.inputs})  # fmt: skip
    with pytest.raises(UsageError, match=r"fails on every input given: .*only NHWC on the CPU"):
        verify_graph(SOURCE, bundle, model, options=comparing(inputs=path))


def test_the_framework_of_the_sources_age_comes_first():
    packages = {"keras", "tf_keras", "tensorflow", "torch"}
    today = [("keras", "tensorflow"), ("keras", "torch")]
    before = [("tf_keras", "tensorflow")]
    assert runners._rank_frameworks(packages, "3.15.1") == today + before
    assert runners._rank_frameworks(packages, "") == today + before
    assert runners._rank_frameworks(packages, "2.4.0-tf") == before + today
    assert runners._rank_frameworks(packages, "1.2.2") == before + today
    assert runners._rank_frameworks({"keras"}, "3") == []
    assert runners._rank_frameworks({"tf_keras", "tensorflow"}, "3") == before


def test_the_users_back_end_comes_first(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    found = runners._rank_frameworks({"keras", "tensorflow", "torch"}, "3")
    assert found == [("keras", "torch"), ("keras", "tensorflow")]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("os.kill(os.getpid(), 11)", "running keras died of SIGSEGV"),
        ("time.sleep(60)", "running keras took longer than 3 s"),
        ("sys.exit('no space')", "ended with 1: no space"),
    ],
)
def test_a_framework_that_dies_or_hangs_is_the_environments_fault(
    bundle, model, stand_in, text, complaint
):
    stand_in(["keras", "tensorflow"], text)
    with pytest.raises(DependencyError, match=complaint):
        verify_graph(SOURCE, bundle, model, options=comparing(timeout=3))


def test_a_python_that_is_none(bundle, model, monkeypatch):
    monkeypatch.setenv(runners.PYTHON_VARIABLE, "/nowhere/python")
    with pytest.raises(DependencyError, match="/nowhere/python: cannot be run"):
        verify_graph(SOURCE, bundle, model)
    monkeypatch.setenv(runners.PYTHON_VARIABLE, "/bin/true")
    with pytest.raises(DependencyError, match="does not behave like Python"):
        verify_graph(SOURCE, bundle, model)


def test_a_source_with_code_of_its_own_is_not_run(bundle, model, stand_in):
    stand_in(["keras", "tensorflow"], "sys.exit('it was run')")
    finding = SafetyFinding("lambda-bytecode", "layer 'l'", "config.json")
    armed = replace(bundle, metadata=replace(bundle.metadata, findings=(finding,)))
    report = verify_graph(SOURCE, armed, model)
    assert report.status == "not run"
    assert "code of its own (lambda-bytecode: layer 'l')" in report.reason


def test_weights_alone_are_not_run(bundle, model):
    report = verify_graph(SOURCE, replace(bundle, topology=None), model)
    assert report.reason == "the source holds no graph"


def test_a_bound_for_an_output_that_is_not_there(bundle, model, stand_in):
    stand_in(["keras", "tensorflow"], "sys.exit('it was run')")
    with pytest.raises(UsageError, match="names the output 'fra'; expected far, near"):
        verify_graph(SOURCE, bundle, model, options=comparing(atol={"fra": 1.0}))


# -- the command ---------------------------------------------------------------------------------


def test_verify_is_a_command():
    assert "verify" in cli.COMMANDS


def test_the_command_without_a_framework(tmp_path, model, stand_in, capsys):
    stand_in([])
    assert run(["verify", str(SOURCE), str(model), "--require", "cpu"]) == 1
    shown = capsys.readouterr().out
    assert f"try {describe_install('tensorflow')}" in shown
    assert "verified    weights" in shown
    converter.convert(SOURCE, to="portable", out=tmp_path / "m.portable")
    assert run(["verify", str(SOURCE), str(tmp_path / "m.portable")]) == 0
    assert "verified    weights" in capsys.readouterr().out
    require = ["--require", "weights"]
    assert run(["verify", str(SOURCE), str(tmp_path / "m.portable"), *require]) == 0
    require = ["--require", "cpu"]
    assert run(["verify", str(SOURCE), str(tmp_path / "m.portable"), *require]) == 1
    assert "(required: cpu)" in capsys.readouterr().out


def test_the_command_says_it_in_json(tmp_path, stand_in, capsys):
    stand_in([])
    out = tmp_path / "m.portable"
    converter.convert(SOURCE, to="portable", out=out)
    assert run(["verify", str(SOURCE), str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verified"] == "weights"
    assert found["weights"] == {"equal": 6, "different": []}
    assert found["graph"]["status"] == "not run"


def test_a_changed_weight_is_a_failure(tmp_path, stand_in, capsys):
    stand_in([])
    out = tmp_path / "m.safetensors"
    converter.convert(SOURCE, to="safetensors", out=out)
    assert run(["verify", str(SOURCE), str(out)]) == 0
    data = bytearray(out.read_bytes())
    data[-1] ^= 0x80
    out.write_bytes(data)
    assert run(["verify", str(SOURCE), str(out)]) == 1
    assert "(changed)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--require", "gpu"], 2),
        (["--atol", "many"], 2),
        (["--atol", "-1"], 2),
        (["--rtol", "near:nan"], 2),
        (["--atol", "nowhere:1"], 2),
        (["--samples", "0"], 2),
        (["--inputs", "missing.npz"], 2),
    ],
)
def test_wrong_usage(model, stand_in, arguments, code):
    stand_in([])
    assert run(["verify", str(SOURCE), str(model), *arguments]) == code


def test_a_dead_child_is_exit_7(model, stand_in, capsys):
    stand_in(["keras", "tensorflow"], "os.abort()")
    assert run(["verify", str(SOURCE), str(model)]) == 7
    assert "died of SIGABRT" in capsys.readouterr().err
