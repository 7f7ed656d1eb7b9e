"""A written `.keras` file beside its source: what is right passes, what is planted is found."""

import importlib.util
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import converter
from converter.verify.keras_files import verify_keras
from converter.verify.runners import PYTHON_VARIABLE
from converter.write_keras import archive
from formats.weights import Tensor

FIXTURES = Path(__file__).parents[3] / "fixtures" / "verify"
HAS_KERAS = PYTHON_VARIABLE in os.environ or importlib.util.find_spec("keras") is not None

pytestmark = [
    pytest.mark.keras,
    pytest.mark.skipif(not HAS_KERAS, reason=f"no Keras here, nor by {PYTHON_VARIABLE}"),
]


def written(name, folder, edit=None):
    """Convert a fixture, plant a fault in it, and return what `verify_keras` takes."""
    source = FIXTURES / name
    bundle = converter.read(source)
    file = archive.plan(bundle)
    if edit is not None:
        file = edit(file)
    for _ in archive.write(file, folder, verify=True, sync=False):
        pass
    return source, bundle, folder / archive.NAME


@pytest.mark.parametrize("name", ["image.h5", "pairs.keras", "sequence.h5", "half.h5"])
def test_a_faithful_file_passes(tmp_path, name):
    report = verify_keras(*written(name, tmp_path))
    assert report.status == "passed", report.reason
    assert report.converted.name == "keras"
    assert report.source.name == ("keras" if name.endswith(".keras") else "tf_keras")


def test_a_kernel_of_another_sign_is_found(tmp_path):
    def flipped(file):
        path = next(p for p, t in file.variables.items() if len(t.shape) == 4)
        kernel = file.variables[path]
        data = np.negative(kernel.numpy()).tobytes()
        wrong = Tensor.inline(kernel.dtype, kernel.shape, data)
        return replace(file, variables={**file.variables, path: wrong})

    report = verify_keras(*written("image.h5", tmp_path, flipped))
    assert report.status == "failed"
    assert "differ" in report.reason


def test_a_file_that_keras_does_not_load_is_no_success(tmp_path):
    def without(file):
        rest = dict(file.variables)
        del rest[next(iter(rest))]
        return replace(file, variables=rest)

    report = verify_keras(*written("image.h5", tmp_path, without))
    assert report.status == "failed"
    assert "Keras does not run the file" in report.reason
