"""Keras loads layers of trusted modules from the `.keras` file that we write."""

import json
import os
import subprocess
import sys
import zipfile

import pytest
from keras_python import NEEDS_KERAS
from repository import SUPPORT

from converter.child.process import PYTHON_VARIABLE
from converter.cli.app import run

TRUST = SUPPORT / "trust"
pytestmark = [*NEEDS_KERAS, pytest.mark.timeout(600)]


@pytest.mark.parametrize("name", ["scaled.keras", "scaled.h5", "lazy.keras"])
def test_keras_loads_them_with_the_module(tmp_path, capsys, name):
    python = os.environ.get(PYTHON_VARIABLE) or sys.executable
    kind = name.partition(".")[0]
    command = [python, str(TRUST / "make_models.py"), str(tmp_path), kind]
    assert subprocess.run(command, capture_output=True).returncode == 0
    source, out = tmp_path / name, tmp_path / "out.keras"
    assert run(["SOURCE", str(source), "--to", "keras", "-o", str(out)]) == 4
    assert not out.exists()
    trust = ["--trust", f"layers={TRUST / 'layers.py'}"]
    arguments = ["SOURCE", str(source), "--to", "keras", "-o", str(out), "--require", "cpu", *trust]
    assert run(arguments) == 0
    assert "the file needs the module layers" in capsys.readouterr().err
    config = json.loads(zipfile.ZipFile(out).read("config.json"))
    (layer,) = [e for e in config["config"]["layers"] if e["class_name"] == kind.capitalize()]
    assert layer["module"] == "layers"
    if kind == "scaled":
        assert layer["registered_name"] == "mine>Scaled"
