"""States of stateful layers as inputs and outputs, verified by Keras."""

from pathlib import Path

import pytest
from keras_python import NEEDS_KERAS
from repository import FIXTURES
from state_runs import check_kept_state_is_found, check_states_are_compared

pytest.importorskip("onnx")

pytestmark = NEEDS_KERAS

FOLDER = FIXTURES / "keras_state"


@pytest.mark.parametrize(
    "name", ["cells.keras", "directions.keras", "directions_2.h5", "images.keras", "nested.keras"]
)
def test_keras_agrees_from_any_state_and_from_the_first(name: str, tmp_path: Path) -> None:
    check_states_are_compared(FOLDER / name, tmp_path / "out.onnx")


def test_a_state_after_the_run_that_is_wrong_is_found(tmp_path: Path) -> None:
    check_kept_state_is_found(FOLDER / "layers.keras", tmp_path / "out.onnx", "lstm.c")
