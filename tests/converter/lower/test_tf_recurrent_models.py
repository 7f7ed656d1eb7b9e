"""SavedModels of recurrent layers give what TensorFlow gave, by the operators that they are."""

import io
import zipfile

import numpy as np
import pytest
from onnx_run import run_named
from repository import ROOT

import converter
from converter import passes
from converter.graphs import lower_signature as lower

ARCHIVE = zipfile.ZipFile(ROOT / "fixtures/tf_recurrent/models.zip")
NAMES = [name.removesuffix(".npz") for name in ARCHIVE.namelist() if name.endswith(".npz")]
RECURRENT = {"LSTM", "GRU", "RNN", "Loop", "Scan", "If"}


@pytest.mark.parametrize("name", NAMES)
def test_a_model_gives_what_tensorflow_gave(tmp_path, name):
    for member in ARCHIVE.namelist():
        if member.startswith(f"{name}/"):
            ARCHIVE.extract(member, tmp_path)
    bundle = converter.read(tmp_path / name)
    graph = passes.run(lower(bundle), bundle.weights)
    stored = np.load(io.BytesIO(ARCHIVE.read(f"{name}.npz")))
    found = {node.op_type for node in graph.nodes} & RECURRENT
    assert found == set(stored["operators"].tolist())
    ours = run_named(graph, {"x": stored["x"]}, bundle.weights)["y"]
    assert ours.shape == stored["y"].shape
    assert np.abs(ours - stored["y"]).max() <= 2e-6
    assert np.ptp(stored["y"]) > 0.01
