"""Classes and functions of trusted modules compute what their Keras computes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_run
import pytest
from keras_bundles import bundle, entry
from keras_python import NEEDS_KERAS
from repository import SUPPORT

import converter
from converter.child.process import PYTHON_VARIABLE
from converter.child.trust import Trusted
from converter.cli.app import run
from converter.lower.keras.lowering import lower
from converter.reading import read
from formats.errors import UnsupportedError

pytestmark = [*NEEDS_KERAS, pytest.mark.timeout(900)]

FOLDER = SUPPORT / "trust"
RANDOM = np.random.default_rng(0)
RIGHT = {
    "inside": ("functions", "wrapped", "cells", "whole", "pairs", "encoder", "held"),
    "legacy": ("attended", "block", "looked", "shared"),
}
GAPS = {
    "undecided": "cannot be traced",
    "by_chance": "computes with weights or random numbers what Keras does not record",
    "started": "cell Started: starts with states that are not zero",
    "counted": "cannot be traced: changes its variables",
}
MODULE = {name: module for module, names in RIGHT.items() for name in names}
MODULE |= {name: "legacy" if name == "counted" else "inside" for name in GAPS}
FORMS = [(name, "h5" if name in ("wrapped", *RIGHT["legacy"]) else "keras") for name in MODULE]
FORMS = [(name, form) for name, form in FORMS if name not in GAPS] + [("encoder", "h5")]


@pytest.fixture(scope="module")
def models(tmp_path_factory, warm_tensorflow):
    """Write the models, with weights that are none of the initial ones, and what Keras makes."""
    folder = tmp_path_factory.mktemp("models")
    python = os.environ.get(PYTHON_VARIABLE) or sys.executable
    for module in RIGHT:
        names = [name for name, of in MODULE.items() if of == module]
        command = [python, str(FOLDER / f"make_{module}.py"), str(folder), *names]
        which = {"TF_USE_LEGACY_KERAS": "1"} if module == "legacy" else {}
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | which)
        assert done.returncode == 0, done.stderr[-2000:]
    return folder


def trusted(name):
    return (Trusted(MODULE[name], FOLDER / f"{MODULE[name]}.py"),)


NOT_RECORDED = "computes with weights or random numbers what Keras does not record"
ODD = {
    "gives_nothing": "returns NoneType, no tensor of its inputs",
    "gives_a_number": "outputs must be tensors",
    "gives_an_array": "outputs must be tensors",
    "raises": "no such luck",
    "leaves": "SystemExit: 0",
    "counts": NOT_RECORDED,
    "by_chance": NOT_RECORDED,
    "decides": "as a Python `bool` is not allowed",
    "loops": "KerasTensor",
    "init": "no such luck",
    "build": "no such luck",
    "call": "no such luck",
    "argument": "Unrecognized keyword arguments passed to Fails: {'beside': 1}",
    "chance": NOT_RECORDED,
}
DONE = {
    "by_chance_in_tensorflow": ["InputLayer", "Relu", "RandomUniform", "Mul"],  # a gap in lowering
    "calls_a_function": ["InputLayer", "Square", "AddV2"],
    "table": ["InputLayer", "Add"],
    "training": ["InputLayer", "Dropout"],
}


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_what_a_module_has_is_what_keras_makes_of_it(models, name, form):
    out = models / f"{name}.{form}.onnx"
    options = converter.Options(trust=trusted(name), verify="none")
    converter.convert(models / f"{name}.{form}", to="onnx", out=out, options=options)
    onnx_run.check_stored(out, np.load(models / f"{name}.npz"), 1e-5)


def test_an_old_file_of_an_authors_model_has_no_shapes(models):
    with pytest.raises(UnsupportedError, match="Whole without the shapes of its inputs"):
        lower(read(models / "whole.h5"), trust=trusted("whole"))


@pytest.mark.parametrize("module", ["standalone", "updated"])
def test_code_for_the_keras_that_was_no_part_of_tensorflow(module):
    x = RANDOM.normal(size=(2, 5, 3)).astype("float32")
    weight = RANDOM.normal(size=(3, 1)).astype("float32")
    model = entry("Weighted", "w", power=3)
    source = bundle(model, shape=(None, 5, 3), weights={"w/W": weight}, version="2.2.4")
    graph = lower(source, trust=(Trusted(module, FOLDER / f"{module}.py"),))
    (y,) = onnx_run.run(graph, x, weights=source.weights)
    share = np.exp((x @ weight)[..., 0])
    share /= share.sum(-1, keepdims=True)
    np.testing.assert_allclose(y, (x**3 * share[..., None]).sum(1), rtol=1e-4, atol=1e-5)


def test_code_that_does_what_it_should_not_is_a_gap():
    python = os.environ.get(PYTHON_VARIABLE) or sys.executable
    command = [python, str(FOLDER / "odd.py"), str(Path(converter.__file__).parents[1])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.keys() == ODD.keys() | DONE.keys()
    for name, complaint in ODD.items():
        status, gap, _ = found[name]
        assert status == "gap"
        assert complaint in gap
        assert gap.isprintable()
    for name, ops in DONE.items():
        assert found[name] == ["done", "", ops]


def test_a_model_of_an_authors_class_is_compared_in_keras(models, tmp_path, capsys):
    trust = ["--trust", f"inside={FOLDER / 'inside.py'}"]
    command = ["SOURCE", str(models / "pairs.keras"), "--to", "onnx", *trust]
    assert run([*command, "-o", str(tmp_path / "m.onnx"), "--require", "cpu"]) == 0
    assert "2 outputs" in capsys.readouterr().err


@pytest.mark.parametrize("name", GAPS)
def test_what_cannot_be_traced_is_a_gap(models, name):
    form = "h5" if name == "counted" else "keras"
    with pytest.raises(UnsupportedError, match=GAPS[name]):
        lower(read(models / f"{name}.{form}"), trust=trusted(name))
