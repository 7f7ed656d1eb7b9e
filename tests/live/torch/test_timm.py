"""Folders that timm saves become graphs that compute what the library computes."""

import importlib.util
import json
import os
import sys

import numpy as np
import pytest
from repository import ROOT

import converter
from converter.child.process import TORCH_PYTHON_VARIABLE
from formats.errors import UnsupportedError

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")
from tensorflow_server import stand_in  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed"),
]
STUB = str(ROOT / "tests/support/torchvision_stub")
# Architecture, arguments, and sizes of images that the graph takes.
MODELS = {
    "convnext_atto": (
        {"depths": (1, 1, 2, 1), "dims": (8, 16, 24, 32)}, [(64, 96), (224, 224), (65, 70)],
    ),
    "vit_tiny_patch16_224": (
        {"depth": 2, "embed_dim": 48, "num_heads": 3, "img_size": 32, "patch_size": 8}, [(32, 32)],
    ),
    "resnet10t": ({"channels": (8, 16, 24, 32)}, [(176, 176)]),
}  # fmt: skip


@pytest.fixture(scope="module")
def timm(tmp_path_factory):
    """Return the library, beside what stands in for torchvision where there is none."""
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("torchvision") is None:
            known = [STUB, *filter(None, [os.environ.get("PYTHONPATH")])]
            patch.setenv("PYTHONPATH", os.pathsep.join(known))
            patch.syspath_prepend(STUB)
        before = {*sys.modules}
        library = importlib.import_module("timm")
        with stand_in(sys.executable, tmp_path_factory.mktemp("s"), "exporter") as path:
            patch.setenv(TORCH_PYTHON_VARIABLE, str(path))
            yield library
        for name in [n for n in sys.modules if n.startswith("torchvision") and n not in before]:
            del sys.modules[name]  # transformers would take it for torchvision


def save(timm, name, folder, **arguments):
    """Save a small model with weights that keep signals alive, as timm uploads it."""
    torch.manual_seed(0)
    model = timm.create_model(name, **arguments).eval()
    for parameter in model.parameters():
        if parameter.ndim < 2:
            torch.nn.init.normal_(parameter, 0.5, 0.2)
    timm.models.save_for_hf(model, folder, model_args=arguments, safe_serialization="both")
    return model


def compare(path, model, output, sizes):
    session = onnxruntime.InferenceSession(path)
    assert [i.name for i in session.get_inputs()] == ["pixel_values"]
    assert [o.name for o in session.get_outputs()] == [output]
    for batch, (height, width) in zip((2, 1, 3), sizes, strict=False):
        image = torch.randn(batch, 3, height, width)
        with torch.no_grad():
            expected = model(image).numpy()
        (found,) = session.run(None, {"pixel_values": image.numpy()})
        np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", [*MODELS])
def test_the_graph_of_a_folder_computes_what_its_model_does(name, timm, tmp_path):
    arguments, sizes = MODELS[name]
    model = save(timm, name, tmp_path / "model", num_classes=5, **arguments)
    out = tmp_path / "model.onnx"
    made = converter.convert(tmp_path / "model", to="onnx", out=out, verify="weights")
    compare(out, model, "logits", sizes)
    fixed = [step.text for step in made.steps if "are fixed" in step.text]
    assert bool(fixed) == (name == "resnet10t")


def test_a_model_without_classes_returns_features_and_is_verified(timm, tmp_path, monkeypatch):
    monkeypatch.setenv(TORCH_PYTHON_VARIABLE, sys.executable)  # the child that verifies is another
    name = "vit_tiny_patch16_224"
    model = save(timm, name, tmp_path / "model", num_classes=0, **MODELS[name][0])
    made = converter.convert(tmp_path / "model", to="portable", out=tmp_path / "out")
    assert made.verification.level == "cpu"
    compare(tmp_path / "out/model.onnx", model, "features", [(32, 32)])


def test_what_timm_does_not_load_is_named(timm, tmp_path):
    folder = tmp_path / "model"
    save(timm, "vit_tiny_patch16_224", folder, **MODELS["vit_tiny_patch16_224"][0])
    config = json.loads((folder / "config.json").read_text())
    config["model_args"]["depth"] = 3
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedError, match=r"Missing key.*blocks\.2"):
        converter.convert(folder, to="onnx", out=tmp_path / "x.onnx")
    (folder / "config.json").write_text(json.dumps({**config, "architecture": "nothing"}))
    with pytest.raises(UnsupportedError, match="Unknown model"):
        converter.convert(folder, to="onnx", out=tmp_path / "x.onnx")
