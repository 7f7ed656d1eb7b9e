"""Keras on a device, shown with TensorFlow's logical CPUs: variables, operations and outputs."""

import json
import sys

import pytest
from repository import ROOT

from converter.cli.app import run
from converter.verification.runners import PYTHON_VARIABLE

pytestmark = pytest.mark.timeout(600)
pytest.importorskip("tensorflow")
pytest.importorskip("tf_keras")

SOURCE = ROOT / "fixtures" / "verify" / "pairs.h5"


def test_both_kerases_go_to_the_device_and_show_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(PYTHON_VARIABLE, sys.executable)
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    out = tmp_path / "m.keras"
    command = ["SOURCE", str(SOURCE), "--to", "keras", "-o", str(out), "--verify", "weights", "-q"]
    assert run(command) == 0
    capsys.readouterr()
    asked = ["--device", "CPU:1", "--require", "device", "--json"]
    assert run(["verify", str(SOURCE), str(out), *asked]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verified"] == "device"
    device = found["graph"]["device"]
    for side in ("source", "converted"):
        assert device[side]["runtime"]["name"] in ("keras", "tf_keras")
        counts = device[side]["placement"]["counts"]
        assert counts["variable"] == {"CPU:1": 6}
        assert counts["output"] == {"CPU:1": 2}
        assert set(counts["node"]) == {"CPU:1"}
        assert device[side]["placement"]["elsewhere"] == []
    assert len(device["pairs"]) == 4
