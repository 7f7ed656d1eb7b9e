"""The multi-GPU set in TensorFlow: what fails officially, and that our outputs load and agree.

There is no GPU: what was on GPUs cannot be placed here, as on every machine with fewer of them.
Sessions (and servers) place nothing softly by default; `tf.saved_model.load` does.
"""

import json
import subprocess
import sys

import pytest
from repository import SUPPORT
from savedmodel_sources import NAMES, unpack

import converter
from converter.options import Options
from formats.errors import VerificationError

pytestmark = pytest.mark.timeout(400)

DEVICES = ("none", "cpu", "CPU:1", "GPU:1")
CHILD = SUPPORT / "run_savedmodels.py"
# What the official loader says of each, without soft placement: in a session, and when the first
# signature is called that needs it. "" is: it works.
NO_PLACE = "Cannot assign a device for operation"
OFFICIAL = {
    "keras3_default": ("", ""),
    "tf_keras_default": ("", ""),
    "loop_default": ("", NO_PLACE),  # a session leaves out the devices where it joins the ops
    "keras3_devices": (NO_PLACE, ""),  # tf.saved_model.load does not look at devices of variables
    "tf_keras_devices": (NO_PLACE, ""),
    "loop_devices": (NO_PLACE, NO_PLACE),
    "keras3_expanded": (NO_PLACE, ""),
    "tf_keras_expanded": (NO_PLACE, NO_PLACE),
    "loop_expanded": (NO_PLACE, NO_PLACE),
    "sharded": (NO_PLACE, ""),
    "explicit": (NO_PLACE, NO_PLACE),
    "collective": (NO_PLACE, NO_PLACE),
    "ancient": (NO_PLACE, NO_PLACE),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Run everything in one process: starting TensorFlow takes seconds."""
    pytest.importorskip("tensorflow")
    folder = tmp_path_factory.mktemp("live")
    unpack(folder, *NAMES)
    rows = []

    def ask(label, path, name, how, *, soft, **more):
        data = str(folder / f"{name}.npz")
        key = [label, name, how, soft]
        rows.append({"key": key, "path": str(path), "data": data, "how": how, "soft": soft, **more})

    for name in NAMES:
        for how in ("session", "eager"):
            for soft in (False, True):
                # Collectives wait for one another, for ever.
                some = {"signatures": ["nccl"]} if name == "collective" and soft else {}
                ask("official", folder / name, name, how, soft=soft, **some)
        for device in DEVICES:
            out = folder / f"{name}-{device.replace(':', '')}"
            options = Options(device=device, verify="weights")
            converter.convert(folder / name, to="savedmodel", out=out, options=options)
            if name.startswith("tf_keras"):
                ask(device, out, name, "keras", soft=False)
            for how in ("session", "eager"):
                ask(device, out, name, how, soft=False)
                if device == "GPU:1":
                    ask(device, out, name, how, soft=True)
            if device == "CPU:1":
                ask("variables on CPU:1", out, name, "eager", soft=True, with_devices=True)
    question = folder / "question.json"
    question.write_text(json.dumps(rows))
    done = subprocess.run(
        [sys.executable, str(CHILD), str(question)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    return {tuple(row["key"]): answer for row, answer in zip(rows, found, strict=True)}


def agrees(answer):
    return "error" not in answer and answer["wrong"] and not any(answer["wrong"].values())


@pytest.mark.parametrize("name", NAMES)
def test_what_fails_officially(answers, name):
    for how, expected in zip(("session", "eager"), OFFICIAL[name], strict=True):
        answer = answers["official", name, how, False]
        if expected:
            assert expected in answer["error"], (how, answer)
            assert "was explicitly assigned to" in answer["error"]
            assert "but available devices are" in answer["error"]
        else:
            assert agrees(answer), (how, answer)


def test_what_soft_placement_does_not_help(answers):
    """Copies that nobody restores, sums counted twice, servers and kernels that are not there."""
    for name in ("loop_expanded", "tf_keras_expanded"):
        error = answers["official", name, "session", True]["error"]
        assert "Could not find variable" in error
        assert "replica_1" in error
    wrong = answers["official", "loop_expanded", "eager", True]["wrong"]
    assert {s for s, text in wrong.items() if text} == {"serve", "after"}
    assert NO_PLACE in answers["official", "sharded", "session", True]["error"]
    for how in ("session", "eager"):
        error = answers["official", "collective", how, True]["error"]
        assert "No OpKernel was registered to support Op 'Nccl" in error
    assert "/job:ps" in answers["official", "sharded", "session", True]["error"]


@pytest.mark.parametrize("device", ["none", "cpu", "CPU:1"])
@pytest.mark.parametrize("name", NAMES)
def test_our_output_loads_and_agrees_without_soft_placement(answers, name, device):
    for how in ("session", "eager"):
        answer = answers[device, name, how, False]
        assert agrees(answer), (how, answer)


@pytest.mark.parametrize("device", ["none", "cpu", "CPU:1"])
@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("tf_keras")])
def test_tf_keras_loads_its_own_model_again(answers, name, device):
    assert agrees(answers[device, name, "keras", False])


@pytest.mark.parametrize("name", NAMES)
def test_ops_and_variables_are_where_they_were_placed(answers, name):
    heavy = {"_MklMatMul", "_MklNativeFusedMatMul", "MatMul", "_FusedMatMul", "Tanh", "Elu", "Relu"}
    for device, expected in (("none", "CPU:0"), ("cpu", "CPU:0"), ("CPU:1", "CPU:1")):
        ran = answers[device, name, "session", False]["ran"]
        assert ran
        for ops in ran.values():
            assert heavy & set(ops)
            for op in (heavy | {"VarHandleOp", "VariableV2", "ReadVariableOp"}) & set(ops):
                assert ops[op] == [expected], (device, op)
        ran = answers[device, name, "eager", False]["ran"]
        for ops in ran.values():
            assert all(ops[op] == [expected] for op in heavy & set(ops)), (device, ops)
    variables = answers["variables on CPU:1", name, "eager", True]["variables"]
    if name != "ancient":  # which has no objects
        assert variables
        assert set(variables.values()) == {"CPU:1"}


@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_that_is_not_here_is_asked_for(answers, name):
    for how in ("session", "eager"):
        assert "/device:GPU:1" in answers["GPU:1", name, how, False]["error"]
        assert agrees(answers["GPU:1", name, how, True])


def test_a_conversion_runs_both_itself(tmp_path):
    pytest.importorskip("tensorflow")
    unpack(tmp_path, "sharded", "loop_expanded")
    options = Options(device="GPU:1", require="cpu")
    out = tmp_path / "out"
    result = converter.convert(tmp_path / "sharded", to="savedmodel", out=out, options=options)
    assert result.verification.graph.status == "passed"
    assert (
        result.verification.graph.source.name
        == result.verification.graph.converted.name
        == "tensorflow"
    )
    assert json.loads((out / "convert.json").read_text())["verified"] == "cpu"
    with pytest.raises(VerificationError, match="counts or updates once for each replica"):
        converter.convert(
            tmp_path / "loop_expanded", to="savedmodel", out=tmp_path / "no", options=options
        )
    assert not (tmp_path / "no").exists()
