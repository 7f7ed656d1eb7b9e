"""What onnxruntime shows of where its nodes were: sessions that are real, and really fall back.

Every build lists providers that take no node: AzureExecutionProvider of the one for CPUs, and
CUDAExecutionProvider of the one for GPUs where there is none. The latter is looked at where
CONVERT_ONNXRUNTIME_PYTHON names a Python that has it.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx_run import write_onnx

from converter.child.process import Allowance
from converter.devices.names import parse_device
from converter.lower.builder import Builder
from converter.lower.graph import Graph
from converter.verification.children import run_onnxruntime
from converter.verification.inputs.draw import Case
from converter.verification.placement import DeviceRequest, parse_placement
from converter.verification.runners import ONNX_PYTHON_VARIABLE, run_onnx, write_inputs
from formats.core.bundle import TensorSpec

onnxruntime = pytest.importorskip("onnxruntime")

AZURE = "AzureExecutionProvider"
SPEC = TensorSpec("x", "float32", (2, 3))


@pytest.fixture
def model(tmp_path):
    op = Builder(Graph("g", 18), {})
    x = op.input("x", "float32", (2, 3))
    op.output(op.unary("Tanh", op.add(x, x)), "y")
    return write_onnx(tmp_path / "m.onnx", op.graph, {})


@pytest.fixture
def prepared(tmp_path):
    folder = tmp_path / "asked"
    folder.mkdir()
    arrays = (np.arange(6, dtype="f4").reshape(2, 3),)
    return write_inputs(folder, [SPEC], [[Case("2x3", arrays)]])


def answer_here(prepared, model, device):
    """Have the runner answer here, in this process."""
    question = {
        "model": str(model), "extras": [None], "outputs": [["y"]], "inputs": ["x"], "cases": [0],
        "prefix": "onnx", "device": device, "options": {}, "allow_tf32": False,
    }  # fmt: skip
    (prepared.folder / "question.json").write_text(json.dumps(question))
    run_onnxruntime.main(prepared.folder)
    return json.loads((prepared.folder / "answer.json").read_text())


needs_azure = pytest.mark.skipif(
    AZURE not in onnxruntime.get_available_providers(), reason=f"no {AZURE} in this build"
)


@needs_azure
@pytest.mark.parametrize("proof", ["assignment of nodes", "profile of the run"])
def test_a_provider_that_takes_no_node_has_fallen_back(prepared, model, monkeypatch, proof):
    if proof == "profile of the run":  # as before 1.24
        for kind in onnxruntime.InferenceSession.__mro__:
            if run_onnxruntime.ASSIGNED in vars(kind):
                monkeypatch.delattr(kind, run_onnxruntime.ASSIGNED)
    elif not hasattr(onnxruntime.InferenceSession, run_onnxruntime.ASSIGNED):
        pytest.skip("onnxruntime tells this from 1.24 on")
    answer = answer_here(prepared, model, AZURE)
    assert (prepared.folder / "onnx-0-0.npy").exists()  # it computes, and says nothing
    found = parse_placement(answer)
    assert found.how == proof
    assert found.counts == {"node": {"CPUExecutionProvider": 2}}
    assert found.switches["deterministic"] is True
    problem = found.problem(100)
    assert problem.startswith("nothing ran on AzureExecutionProvider: ")
    assert "(Tanh)" in problem
    assert "(Add)" in problem


def test_the_cpus_provider_is_where_it_is_asked_to_be(prepared, model):
    found = parse_placement(answer_here(prepared, model, "CPUExecutionProvider"))
    assert (found.problem(0), found.elsewhere) == ("", ())


def test_a_provider_that_is_not_in_the_build_is_not_run(prepared, model):
    answer = answer_here(prepared, model, "AbacusExecutionProvider")
    assert answer["status"] == "no device"
    assert "this build of onnxruntime has no AbacusExecutionProvider, but" in answer["error"]
    assert not list(prepared.folder.glob("onnx-*.npy"))


def test_what_we_add_to_look_at_bfloat16_is_no_node_of_the_models(tmp_path):
    op = Builder(Graph("g", 18), {})
    x = op.input("x", "float32", (2, 3))
    op.output(op.cast(op.unary("Tanh", x), "bfloat16"), "y")
    path = write_onnx(tmp_path / "half.onnx", op.graph, {})
    folder = tmp_path / "asked"
    folder.mkdir()
    prepared = write_inputs(folder, [SPEC], [[Case("2x3", (np.ones((2, 3), "f4"),))]])
    on = DeviceRequest(parse_device("cpu"))
    run = run_onnx(path, prepared, [0], {"y": "bfloat16"}, Allowance(60), on=on)
    assert not run.refused
    places = json.loads((folder / "answer.json").read_text())["placement"]["places"]
    assert [name for _, name, _ in places] == ["Tanh (Tanh)", "Cast (Cast)", "output/y (Identity)"]


# -- the build for GPUs, where there is none ------------------------------------------------------

STUB = """
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return number ? 101 : 0; }
int cuDeviceGetName(char *name, int length, int device) {
  name[0] = 'S'; name[1] = 't'; name[2] = 'u'; name[3] = 'b'; name[4] = 0; return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? 9 : 0; return 0;
}
"""


@pytest.fixture
def gpu_build():
    """Skip where no build for GPUs is named, or where it has a GPU: tests/gpu looks at that."""
    python = os.environ.get(ONNX_PYTHON_VARIABLE)
    if not python:
        pytest.skip(f"{ONNX_PYTHON_VARIABLE} names no Python with onnxruntime-gpu")
    command = "import onnxruntime; print(onnxruntime.get_available_providers())"
    said = subprocess.run([python, "-c", command], capture_output=True, text=True, check=False)
    if "CUDAExecutionProvider" not in said.stdout:
        pytest.skip("that onnxruntime is built for CPUs")
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("there is an NVIDIA driver")


def test_the_build_for_gpus_without_a_driver_is_not_run_though_it_computes(
    prepared, model, gpu_build
):
    run = run_onnx(
        model,
        prepared,
        [0],
        {"y": "float32"},
        Allowance(60),
        on=DeviceRequest(parse_device("cuda")),
    )
    assert "there is no NVIDIA driver (libcuda.so.1" in run.no_device
    assert run.placement.counts == {"node": {"CPUExecutionProvider": 2}}
    assert run.placement.problem(9).startswith("nothing ran on CUDAExecutionProvider:0 (there is")


def test_the_build_for_gpus_that_lacks_libraries_falls_back_and_fails(
    prepared, model, gpu_build, tmp_path, monkeypatch
):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no compiler to make a driver with")
    (tmp_path / "stub.c").write_text(STUB)
    library = tmp_path / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "stub.c"], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    on = DeviceRequest(parse_device("GPU:0"))
    run = run_onnx(model, prepared, [0], {"y": "float32"}, Allowance(60), on=on)
    assert run.no_device == ""
    assert not run.errors
    problem = run.placement.problem(9)
    assert problem.startswith("nothing ran on CUDAExecutionProvider:0 (libcu")  # libcublasLt, …
    assert "(Tanh)" in problem
    assert run.placement.facts["name"] == "Stub"
    assert run.placement.facts["compute_capability"] == "9.0"
    assert run.placement.switches["use_tf32"] == "0"
    on = DeviceRequest(parse_device("GPU:1"))
    run = run_onnx(model, prepared, [0], {"y": "float32"}, Allowance(60), on=on)
    assert run.no_device.startswith("the NVIDIA driver shows 1 device; libcu")
