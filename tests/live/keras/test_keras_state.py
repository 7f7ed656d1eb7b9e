"""States of stateful layers as inputs and outputs, verified by Keras."""

from pathlib import Path

import pytest
from keras_python import NEEDS_KERAS
from repository import FIXTURES

import converter
from converter.cli.app import run
from converter.options import Options

onnx = pytest.importorskip("onnx")

pytestmark = NEEDS_KERAS

FOLDER = FIXTURES / "keras_state"


@pytest.mark.parametrize(
    "name", ["cells.keras", "directions.keras", "directions_2.h5", "images.keras", "nested.keras"]
)
def test_keras_agrees_from_any_state_and_from_the_first(name: str, tmp_path: Path) -> None:
    options = Options(to="onnx", state="io", require="cpu")
    conversion = converter.convert(FOLDER / name, out=tmp_path / "out.onnx", options=options)
    (report,) = conversion.verification.reports
    assert any(output.startswith("present.") for output in report.outputs)
    names = [case.name for case in report.cases]
    assert any("first run" in name for name in names)
    assert not all("first run" in name for name in names)


def test_a_state_after_the_run_that_is_wrong_is_found(tmp_path: Path) -> None:
    source, out = FOLDER / "layers.keras", tmp_path / "out.onnx"
    converter.convert(source, out=out, options=Options(to="onnx", state="io", verify="none"))
    model = onnx.load(out)
    (node,) = [n for n in model.graph.node if "present.lstm.c" in n.output]
    node.op_type = "Identity"
    node.input[:] = ["past.lstm.c"]
    del node.attribute[:]
    onnx.save(model, out)
    assert run(["verify", str(source), str(out)]) == 1
