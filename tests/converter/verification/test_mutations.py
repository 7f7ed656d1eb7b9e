"""Faults planted in a graph are caught, as far as they are larger than rounding; sound graphs pass.

The reference is the sound graph, so that no framework is needed; `benchmarks/mutations.py` runs
models of Keras, TensorFlow and torch, and all faults.
"""

import pytest
from mutations import FAULTS, plant_fault
from repository import ROOT

import converter
from converter.verification.graphs import verify_graph

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.thorough

MODELS = {
    "image.keras": (
        "weight x (1 + 2^-13)", "one weight x 1.01", "weights in float16", "channels swapped",
        "bias dropped", "Relu -> LeakyRelu(1e-4)", "Relu -> Relu6", "pads shifted",
    ),
    "sequence.keras": ("weight x (1 + 2^-13)", "gates swapped", "kernel reversed"),
    "pairs.keras": ("outputs swapped", "bias x 1.001"),
}  # fmt: skip


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Return the graph of a fixture."""
    folder = tmp_path_factory.mktemp("sound")
    for name in MODELS:
        out = folder / f"{name}.onnx"
        converter.convert(ROOT / "fixtures/verify" / name, to="onnx", out=out, verify="none")
    return lambda name: folder / f"{name}.onnx"


@pytest.mark.parametrize("name", MODELS)
def test_a_sound_graph_passes(sound, name):
    report = verify_graph(sound(name), converter.read(sound(name)), sound(name))
    assert report.status == "passed", report.reason
    assert {measure.verdict for measure in report.outputs.values()} == {"equal"}


@pytest.mark.parametrize(
    ("name", "fault"), [(name, fault) for name, faults in MODELS.items() for fault in faults]
)
def test_a_planted_fault_is_caught(sound, tmp_path, name, fault):
    path = tmp_path / "faulty.onnx"
    if not plant_fault(sound(name), FAULTS[fault], path):
        pytest.fail(f"{fault} does not apply to {name}")
    report = verify_graph(sound(name), converter.read(sound(name)), path)
    assert report.status == "failed", report.outputs
