"""Tests that run a framework or a server: each has the mark that its folder is called after.

Tests of a device run on the CPU always, and on a GPU where there is one: a test of ``cuda:0`` has
the mark ``gpu`` too; without a GPU it is skipped, and says what is missing.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from converter.verification.children import cuda_driver
from converter.verification.runners import ONNX_PYTHON_VARIABLE

HERE = Path(__file__).parent
GPU = "cuda:0"


def pytest_itemcollected(item):
    """Mark a test with the name of its folder."""
    item.add_marker(item.path.relative_to(HERE).parts[0])


@pytest.fixture(params=["cpu", pytest.param(GPU, marks=pytest.mark.gpu)])
def device(request):
    """Return the name of a device that is here."""
    if request.param == GPU and (lacks := cuda_driver.lacks(0)):
        pytest.skip(lacks)
    return request.param


@pytest.fixture
def torch(device):
    """Return torch, if it can use the device."""
    found = pytest.importorskip("torch")
    if device == GPU and not found.cuda.is_available():
        pytest.skip(f"torch {found.__version__} cannot use the GPU")
    return found


@pytest.fixture
def onnxruntime(device):
    """Skip unless the onnxruntime that verification runs is built for the device."""
    python = os.environ.get(ONNX_PYTHON_VARIABLE) or sys.executable
    if python == sys.executable and importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("onnxruntime is not installed")
    command = "import onnxruntime; print(onnxruntime.get_available_providers())"
    said = subprocess.run([python, "-c", command], capture_output=True, text=True, check=True)
    if device == GPU and "CUDAExecutionProvider" not in said.stdout:
        pytest.skip(f"this onnxruntime is built for {said.stdout.strip()}")
