"""Variables that a signature assigns as inputs and outputs, verified by TensorFlow."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from repository import FIXTURES
from state_runs import (
    check_kept_state_is_found,
    check_states_are_compared,
    convert_unverified,
)
from tensorflow_server import stand_in

from converter.cli.app import run
from converter.lower.states import PROPERTY
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
    check_states_are_compared(FOLDER / name, tmp_path / "out.onnx")


def test_a_first_value_that_is_not_the_sources_is_found(tmp_path: Path) -> None:
    source, out = FOLDER / "steps", tmp_path / "out.onnx"
    convert_unverified(source, out)
    model = onnx.load(out)
    (entry,) = [p for p in model.metadata_props if p.key == PROPERTY]
    entry.value = entry.value.replace('"initial": 7', '"initial": 8')
    onnx.save(model, out)
    assert run(["verify", str(source), str(out)]) == 1


def test_a_state_after_the_run_that_is_wrong_is_found(tmp_path: Path) -> None:
    check_kept_state_is_found(FOLDER / "average", tmp_path / "out.onnx", "mean")
