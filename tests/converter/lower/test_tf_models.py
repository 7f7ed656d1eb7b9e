"""Whole SavedModels, single and of several devices, give in onnxruntime what TensorFlow gave."""

import zipfile

import numpy as np
import pytest
from onnx_run import agree, run_named
from repository import FIXTURES

import converter
from converter import passes
from converter.graphs import lower_signature as lower
from converter.options import Options

MODELS = FIXTURES / "tf_models" / "models.zip"
MULTI_GPU = FIXTURES / "tensorflow" / "multi_gpu.zip"
CLOSE = 2e-5  # of the largest output


def names(path):
    with zipfile.ZipFile(path) as archive:
        return sorted(n.removesuffix(".npz") for n in archive.namelist() if n.endswith(".npz"))


def unpacked(path, name, folder):
    """Return a SavedModel of an archive in a folder, and what is stored with it."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member.startswith((f"{name}/", f"{name}.npz")):
                archive.extract(member, folder)
    with np.load(folder / f"{name}.npz") as stored:
        return folder / name, dict(stored)


@pytest.mark.parametrize("folded", [False, True], ids=["as lowered", "after passes"])
@pytest.mark.parametrize("name", names(MODELS))
def test_a_model_computes_what_it_does_in_tensorflow(tmp_path, name, folded):
    source, stored = unpacked(MODELS, name, tmp_path)
    bundle = converter.read(source)
    graph = lower(bundle, signature="serving_default")
    if folded:
        graph = passes.run(graph, bundle.weights)
    given, wanted = parts(stored, "in."), parts(stored, "out.")
    assert given
    found = run_named(graph, given, bundle.weights)
    assert found.keys() == wanted.keys()
    for key, expected in wanted.items():
        agree(found[key], expected, CLOSE, key)


# A step of training, and what is computed after it: a graph keeps no state.
UNTESTED = {("loop_expanded", "after"), ("loop_expanded", "train")}
TEXTS = {"explicit": 20}  # the opset that joins texts


@pytest.mark.parametrize("name", names(MULTI_GPU))
def test_a_model_of_several_devices_names_none_and_computes_the_same(tmp_path, name):
    source, stored = unpacked(MULTI_GPU, name, tmp_path)
    signatures = {key.split("|")[0] for key in stored}
    compared = 0
    for signature in sorted(signatures):
        if (name, signature) in UNTESTED:
            continue
        path = tmp_path / f"{signature}.onnx"
        opset = TEXTS.get(name, 18)
        options = Options(verify="weights", signatures=(signature,), opset=opset)
        converter.convert(source, to="onnx", out=path, options=options)
        given = parts(stored, f"{signature}|in|")
        wanted = parts(stored, f"{signature}|out|")
        found = run_named(path, given)
        assert found.keys() == wanted.keys()
        for key, expected in wanted.items():
            agree(found[key], expected, CLOSE, key)
            compared += 1
    assert compared


def parts(stored, start):
    found = {k.removeprefix(start): v for k, v in stored.items() if k.startswith(start)}
    return {
        k: v.astype(str).astype(object) if v.dtype.kind in "US" else v for k, v in found.items()
    }
