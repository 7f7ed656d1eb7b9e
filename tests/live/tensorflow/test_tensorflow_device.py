"""A SavedModel issued for a GPU: its variables and operations are there, and compute the same."""

import json
import sys

import pytest

from converter.cli.app import run
from converter.verification.runners import PYTHON_VARIABLE

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def model(device, tmp_path):
    tf = pytest.importorskip("tensorflow")
    if device != "cpu" and not tf.config.list_physical_devices("GPU"):
        pytest.skip(f"TensorFlow {tf.__version__} cannot use the GPU")
    layers = tf.keras.layers
    keras = tf.keras.Sequential(
        [
            layers.Input([12, 10, 3]),
            layers.Conv2D(8, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(5),
        ]
    )
    keras.export(tmp_path / "model", verbose=False)
    return tmp_path / "model"


def test_what_is_issued_for_the_device_is_there(model, device, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(PYTHON_VARIABLE, sys.executable)
    name = "cpu" if device == "cpu" else "GPU:0"
    out = tmp_path / "moved"
    command = ["SOURCE", str(model), "--to", "savedmodel", "--device", name, "-o", str(out), "-q"]
    assert run([*command, "--verify", "weights"]) == 0
    asked = ["--require", "cpu"] if device == "cpu" else ["--device", name, "--require", "device"]
    capsys.readouterr()
    code = run(["verify", str(model), str(out), "--json", *asked])
    found = json.loads(capsys.readouterr().out)
    assert code == 0, found["graph"]["reason"]
    if device != "cpu":
        both = found["graph"]["device"]
        for side in (both["source"], both["converted"]):
            assert set(side["placement"]["counts"]["variable"]) == {"GPU:0"}
        assert len(both["pairs"]) == 4
