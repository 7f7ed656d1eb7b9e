"""What is said where torch is not, of programs that only torch can export."""

import importlib.util

import pytest
from repository import FIXTURES

import converter
from converter.capture.capture_graph import CaptureRequest, capture_graphs
from converter.extras import describe_install
from converter.options import Options
from formats.core.bundle import TensorSpec
from formats.errors import DependencyError, UnsupportedError

TRACED = FIXTURES / "torch_moved" / "traced-cuda0.pt"
X = TensorSpec("x", "float32", ("n", 3))

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is not None, reason="torch is here"
)


@pytest.mark.parametrize("exporter", ["auto", "export", "torchscript"])
def test_the_extra_is_named(exporter):
    with pytest.raises(DependencyError) as caught:
        capture_graphs(
            TRACED, converter.read(TRACED), CaptureRequest(exporter=exporter, inputs=(X,))
        )
    assert "needs torch" in caught.value.found
    assert caught.value.hint == describe_install("torch")


def test_a_target_that_is_a_graph(tmp_path):
    options = Options(exporter="export", inputs=(X,))
    with pytest.raises(DependencyError):
        converter.convert(TRACED, to="onnx", out=tmp_path / "o.onnx", options=options)
    assert not (tmp_path / "o.onnx").exists()


def test_weights_alone_are_no_program():
    source = FIXTURES / "torch" / "torch1.0-checkpoint.pth"
    with pytest.raises(UnsupportedError) as caught:
        capture_graphs(source, converter.read(source), CaptureRequest())
    assert caught.value.found == "holds weights, and no program"
    assert "arch=" in caught.value.hint
