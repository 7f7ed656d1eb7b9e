"""Models of KerasHub, which its classes build: as `.keras` files, and as the folders of presets."""

import os
import subprocess
import sys

import numpy as np
import onnx_run
import pytest
from keras_python import NEEDS_KERAS
from repository import SUPPORT

import converter
from converter.child.process import PYTHON_VARIABLE
from converter.child.trust import Trusted
from converter.options import Options

PYTHON = os.environ.get(PYTHON_VARIABLE) or sys.executable
FOUND = subprocess.run([PYTHON, "-c", "import keras_hub"], capture_output=True).returncode == 0
pytestmark = [
    *NEEDS_KERAS,
    pytest.mark.skipif(not FOUND, reason="no KerasHub in the Python that has Keras"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory, warm_tensorflow):
    """Write the models, with weights that are none of the initial ones, and what Keras makes."""
    folder = tmp_path_factory.mktemp("models")
    command = [PYTHON, str(SUPPORT / "trust/make_keras_hub.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.mark.parametrize("source", ["preset", "causal.keras", "images.keras"])
def test_a_model_computes_what_keras_computes(models, tmp_path, source):
    out = tmp_path / "m.onnx"
    options = Options(trust=(Trusted("keras_hub", None),), require="cpu")
    converter.convert(models / source, to="onnx", out=out, options=options)
    stored = np.load(models / f"{source.partition('.')[0]}.npz")
    running = onnx_run.session(out)
    names = [one.name for one in running.get_inputs()]
    given = {name: stored[name if name in stored else "input"] for name in names}
    found = dict(
        zip((o.name for o in running.get_outputs()), running.run(None, given), strict=True)
    )
    assert found
    for name, array in found.items():
        wanted = stored[name if name in stored else "output"]
        np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
