"""Variables that a signature assigns as inputs and outputs, verified by TensorFlow."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from repository import FIXTURES
from tensorflow_server import stand_in

import converter
from converter.cli.app import run
from converter.lower.states import PROPERTY
from converter.options import Options
from converter.verification.runners import PYTHON_VARIABLE

onnx = pytest.importorskip("onnx")

PYTHON = os.environ.get(PYTHON_VARIABLE)
HAS_TENSORFLOW = PYTHON is not None or importlib.util.find_spec("tensorflow") is not None
FOLDER = FIXTURES / "tf_state"

pytestmark = pytest.mark.skipif(
    not HAS_TENSORFLOW, reason=f"no TensorFlow here, nor by {PYTHON_VARIABLE}"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with stand_in(PYTHON or sys.executable, tmp_path_factory.mktemp("tf")) as path:
        yield path


@pytest.fixture(autouse=True)
def warm(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PYTHON_VARIABLE, str(server))


@pytest.mark.parametrize("name", ["average", "counted", "named_twice", "steps"])
def test_tensorflow_agrees_from_any_state_and_from_the_first(name: str, tmp_path: Path) -> None:
    options = Options(to="onnx", state="io", require="cpu")
    conversion = converter.convert(FOLDER / name, out=tmp_path / "out.onnx", options=options)
    (report,) = conversion.verification.reports
    assert any(output.startswith("present.") for output in report.outputs)
    names = [case.name for case in report.cases]
    assert any("first run" in name for name in names)
    assert not all("first run" in name for name in names)


def test_a_first_value_that_is_not_the_sources_is_found(tmp_path: Path) -> None:
    source, out = FOLDER / "steps", tmp_path / "out.onnx"
    converter.convert(source, out=out, options=Options(to="onnx", state="io", verify="none"))
    model = onnx.load(out)
    (entry,) = [p for p in model.metadata_props if p.key == PROPERTY]
    entry.value = entry.value.replace('"initial": 7', '"initial": 8')
    onnx.save(model, out)
    assert run(["verify", str(source), str(out)]) == 1


def test_a_state_after_the_run_that_is_wrong_is_found(tmp_path: Path) -> None:
    source, out = FOLDER / "average", tmp_path / "out.onnx"
    converter.convert(source, out=out, options=Options(to="onnx", state="io", verify="none"))
    model = onnx.load(out)
    for node in model.graph.node:
        if "present.mean" in node.output:
            node.op_type = "Identity"
            node.input[:] = ["past.mean"]
            del node.attribute[:]
    onnx.save(model, out)
    assert run(["verify", str(source), str(out)]) == 1
