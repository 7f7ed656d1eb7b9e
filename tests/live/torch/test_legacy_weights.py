"""Folders of Flax and TensorFlow weights become graphs that compute what the models did."""

import sys

import numpy as np
import pytest
from pretrained_folders import STORED, unpack_folders

import converter
from converter.child.process import TORCH_PYTHON_VARIABLE
from converter.options import Options
from converter.verification.verify import verify

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return unpack_folders(tmp_path_factory.mktemp("folders"))


def test_statistics_of_flax_are_those_of_torch(folders, tmp_path):
    stored = np.load(STORED / "logits.npz")
    options = Options(verify="weights")
    converter.convert(folders / "flax-resnet", to="hf", out=tmp_path / "hf", options=options)
    model = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "hf").eval()
    with torch.no_grad():
        found = model(torch.from_numpy(stored["flax-resnet-inputs"])).logits.numpy()
    np.testing.assert_allclose(found, stored["flax-resnet"], atol=1e-5)


@pytest.mark.parametrize("name", ["tensorflow-t5", "tensorflow-wav2vec2"])
def test_a_folder_of_another_framework_becomes_a_graph(name, folders, tmp_path, monkeypatch):
    monkeypatch.setenv(TORCH_PYTHON_VARIABLE, sys.executable)
    out = tmp_path / "out.onnx"
    made = converter.convert(folders / name, to="onnx", out=out)
    assert made.verification.level == "cpu"
    assert verify(folders / name, out).level == "cpu"
