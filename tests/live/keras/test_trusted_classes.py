"""Layers whose Keras class a trusted module has: traced in a child, and compared with Keras.

The Python that has Keras is this one, or the one that CONVERT_TENSORFLOW_PYTHON names.
"""

import os
import subprocess
import sys

import numpy as np
import onnx_run
import pytest
from comparing import comparing
from keras_python import NEEDS_KERAS
from repository import SUPPORT

from converter.child.process import PYTHON_VARIABLE
from converter.child.trust import Trusted
from converter.lower.keras.lowering import lower
from converter.reading import read
from converter.verification.graphs import verify_graph
from formats.errors import UnsupportedError

pytestmark = [*NEEDS_KERAS, pytest.mark.timeout(600)]

FOLDER = SUPPORT / "trust"
TRUST = (Trusted("layers", FOLDER / "layers.py"),)
MODELS = FOLDER / "make_models.py"
RIGHT = ("scaled", "block", "nested", "lazy", "masked", "pair", "raw", "beside")
GAPS = {
    "noise": "computes with weights or random numbers what Keras does not record",
    "depends": "cannot be traced",
}


@pytest.fixture(scope="module")
def models(tmp_path_factory, warm_tensorflow):
    """Write the models, with weights that are none of the initial ones, and what Keras makes."""
    folder = tmp_path_factory.mktemp("models")
    python = os.environ.get(PYTHON_VARIABLE) or sys.executable
    command = [python, str(MODELS), str(folder), *RIGHT, *GAPS]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.mark.parametrize("form", ["keras", "h5"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_class_is_what_keras_makes_of_it(models, name, form):
    import converter

    out = models / f"{name}.{form}.onnx"
    options = converter.Options(trust=TRUST, verify="none")
    converter.convert(models / f"{name}.{form}", to="onnx", out=out, options=options)
    onnx_run.check_stored(out, np.load(models / f"{name}.npz"), 1e-5)


@pytest.mark.parametrize("name", GAPS)
def test_what_keras_does_not_record_is_a_gap(models, name):
    with pytest.raises(UnsupportedError, match=GAPS[name]) as caught:
        lower(read(models / f"{name}.keras"), trust=TRUST)
    assert f"{name.capitalize()}: " in str(caught.value)
    assert f", at {name}" in str(caught.value)


def test_verification_gives_the_classes_to_keras(models, tmp_path):
    import converter

    source = models / "scaled.keras"
    options = converter.Options(trust=TRUST, verify="none")
    out = converter.convert(source, to="onnx", out=tmp_path / "m.onnx", options=options).path
    report = verify_graph(source, read(source), out, options=comparing(trust=TRUST))
    assert (report.status, report.reason) == ("passed", "")
    assert verify_graph(source, read(source), out).status == "not run"
