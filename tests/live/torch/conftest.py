"""Fixtures of the tests that have torch export models."""

import sys

import pytest
from tensorflow_server import stand_in

from converter.child.process import TORCH_PYTHON_VARIABLE


@pytest.fixture(scope="module")
def export_server(tmp_path_factory):
    """Have one process, which has imported torch, export all models of a file of tests."""
    with (
        stand_in(sys.executable, tmp_path_factory.mktemp("s"), "exporter") as path,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv(TORCH_PYTHON_VARIABLE, str(path))
        yield
