"""DESIGN.md's third question: why is TensorFlow loading weights on the CPU?

Because nothing in a SavedModel says otherwise: saving clears the devices of variables, and what
is loaded sits where the runtime puts it, without a word. A second logical CPU stands for the GPU:
TensorFlow places things on it as on any other device.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tensorflow_server import stand_in

from converter.cli.app import run
from converter.verification.runners import PYTHON_VARIABLE

pytestmark = pytest.mark.timeout(600)
pytest.importorskip("tensorflow")

SCRIPT = """
import json, sys
import tensorflow as tf
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

class Model(tf.Module):
    def __init__(self, device):
        initial = tf.random.stateless_uniform([4, 3], (1, 2))
        with tf.device(device):
            self.kernel = tf.Variable(initial, name="kernel")
            self.bias = tf.Variable(tf.ones([3]), name="bias")

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, "x")])
    def serve(self, x):
        return {"y": tf.nn.relu(tf.matmul(x, self.kernel) + self.bias)}

def save(path, device, policy):
    model = Model(device)
    options = tf.saved_model.SaveOptions(experimental_variable_policy=policy)
    tf.saved_model.save(model, path, signatures=model.serve, options=options)
    return [v.handle.device[-5:] for v in (model.bias, model.kernel)]

def load(path, policy):
    options = tf.saved_model.LoadOptions(experimental_variable_policy=policy)
    loaded = tf.saved_model.load(path, options=options)
    return [v.handle.device[-5:] for v in (loaded.bias, loaded.kernel)]

print(json.dumps([globals()[what](*given) for what, *given in json.loads(sys.argv[1])]))
"""


def tensorflow(*actions):
    """Return where variables were, of each action, in a process with two logical CPUs."""
    command = [sys.executable, "-W", "error", "-c", SCRIPT, json.dumps(actions)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not ran.returncode, ran.stderr[-2000:]
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a folder with two models, and where their variables were.

    One was trained on the second device and saved as one saves models, the other with its
    variables pinned to the CPU.
    """
    folder = tmp_path_factory.mktemp("models")
    trained, pinned = str(folder / "trained"), str(folder / "pinned")
    said = tensorflow(
        ("save", trained, "CPU:1", None),
        ("save", pinned, "CPU:0", "save_variable_devices"),
        ("load", trained, None),
    )
    return folder, said


@pytest.fixture
def trained(models):
    return models[0] / "trained"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with stand_in(sys.executable, tmp_path_factory.mktemp("server")) as python:
        yield python


@pytest.fixture(autouse=True)
def python(monkeypatch, server):
    monkeypatch.setenv(PYTHON_VARIABLE, str(server))


def verify(capsys, *arguments):
    code = run(["verify", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_the_official_loader_puts_them_on_the_cpu_and_says_nothing(models):
    made, _, loaded = models[1]
    assert made == ["CPU:1", "CPU:1"]
    assert loaded == ["CPU:0", "CPU:0"]


def test_verify_names_the_variables_that_are_on_the_cpu(trained, capsys):
    code, found = verify(capsys, trained, trained, "--device", "CPU:1")
    assert (code, found["verified"]) == (1, None)
    assert "variable 'bias' on CPU:0, variable 'kernel' on CPU:0" in found["graph"]["reason"]
    side = found["graph"]["device"]["converted"]
    assert side["placement"]["counts"]["variable"] == {"CPU:0": 2}
    assert side["placement"]["how"] == "partition graphs of a Session"
    assert found["graph"]["outputs"][0]["passed"] is True  # its numbers are good, and no excuse
    assert verify(capsys, trained, trained, "--device", "CPU:1", "--allow-cpu-nodes", "99")[0] == 1


def test_a_variable_that_is_pinned_to_the_cpu_is_caught(models, trained, tmp_path, capsys):
    pinned = models[0] / "pinned"
    code, found = verify(capsys, trained, pinned, "--device", "CPU:1")
    assert code == 1
    assert "variable 'kernel' on CPU:0" in found["graph"]["reason"]
    out = tmp_path / "moved"
    command = ["SOURCE", str(pinned), "--to", "savedmodel", "--device", "CPU:1", "-o", str(out)]
    assert run([*command, "--verify", "weights", "-q"]) == 0
    capsys.readouterr()
    code, found = verify(capsys, pinned, out, "--device", "CPU:1", "--require", "device")
    assert (code, found["verified"]) == (0, "device")


def test_issued_for_the_device_they_are_on_it_and_that_is_proven(trained, tmp_path, capsys):
    out = tmp_path / "moved"
    command = ["SOURCE", str(trained), "--to", "savedmodel", "--device", "CPU:1", "-o", str(out)]
    assert run([*command, "--require", "device"]) == 0
    capsys.readouterr()
    asked = ("--device", "CPU:1", "--require", "device")
    code, found = verify(capsys, trained, out, *asked)
    assert (code, found["verified"]) == (0, "device")
    device = found["graph"]["device"]
    for side in ("source", "converted"):
        counts = device[side]["placement"]["counts"]
        assert counts["variable"] == {"CPU:1": 2}
        assert set(counts["node"]) == {"CPU:1"}
        assert device[side]["placement"]["switches"] == {"tf32": False, "deterministic": True}
    assert len(device["pairs"]) == 4
    assert all(m["passed"] and m["elements"] for pair in device["pairs"].values() for m in pair)
    (loaded,) = tensorflow(("load", str(out), "save_variable_devices"))
    assert loaded == ["CPU:1", "CPU:1"]


def test_without_the_device_it_is_not_run_and_never_passed(trained, tmp_path, capsys):
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("there is a GPU")
    out = tmp_path / "moved"
    command = ["SOURCE", str(trained), "--to", "savedmodel", "--device", "GPU:0", "-o", str(out)]
    assert run([*command, "-q"]) == 0  # writing for a device never needs it
    capsys.readouterr()
    code, found = verify(capsys, trained, out, "--device", "GPU:0")
    assert (code, found["verified"]) == (0, "cpu")
    assert found["graph"]["device"]["status"] == "not run"
    assert "TensorFlow sees no GPU:0, but CPU:0" in found["graph"]["device"]["reason"]
    assert verify(capsys, trained, out, "--device", "GPU:0", "--require", "device")[0] == 7
