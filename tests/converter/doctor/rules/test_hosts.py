"""Findings about hosts: an invented host for each rule, and one without findings."""

from dataclasses import replace

import pytest
from hosts import (
    BLACKWELL,
    CUDA_12,
    H100,
    KERAS,
    PASCAL,
    TENSORFLOW,
    TF_KERAS,
    TORCH,
    TORCH_CUDA,
    host,
    nvidia,
    package,
    torch_seen,
)

from converter.doctor.diagnosis import check_host
from converter.doctor.host import ImportResult, Library, Package
from converter.doctor.rules.cuda import (
    MINIMUM_DRIVER,
    find_minimum_driver,
    find_newest_cuda,
    runs_on,
)
from converter.doctor.rules.nvidia import RULES as NVIDIA_RULES
from converter.doctor.rules.packages import RULES as PACKAGE_RULES

ONNXRUNTIME = package("onnxruntime", "1.31.1", module_of="onnxruntime", cuda=None)
ONNXRUNTIME_GPU = package("onnxruntime-gpu", "1.31.1", module_of="onnxruntime-gpu", cuda="13.0")
# tf-keras needs tensorflow, protobuf and h5py as tensorflow's own record says
HEALTHY = host(
    TORCH_CUDA, TENSORFLOW, KERAS, TF_KERAS, ONNXRUNTIME_GPU, package("numpy", "2.4.6"),
    package("h5py", "3.14.0", ["numpy>=1.19.3"]),
    gpus=nvidia(H100),
    libraries=(*CUDA_12, Library("cudart", "13.0", "system", "/usr/local/cuda/lib64"),),
    seen=torch_seen(1),
)  # fmt: skip

# Code, subject, severity, a word of its text, the host.
ROWS = [
    (
        "driver-too-old",
        "torch",
        "error",
        "580.65.06",
        host(TORCH_CUDA, gpus=nvidia(H100, driver="525.60.13", cuda=(12, 0))),
    ),
    (
        "driver-too-old",
        "tensorflow",
        "error",
        "525.60.13",
        host(TENSORFLOW, gpus=nvidia(H100, driver="470.82.01", cuda=None), libraries=CUDA_12),
    ),
    (
        "driver-missing",
        "driver",
        "error",
        "2 NVIDIA GPU",
        host(
            TORCH_CUDA,
            gpus=replace(nvidia(), driver="", cuda=None, via="", libcuda=False, pci_gpus=2),
        ),
    ),
    (
        "driver-mismatch",
        "driver",
        "error",
        "mismatch",
        host(
            gpus=nvidia(
                driver="550.54.14",
                problem="NVML does not start: Driver/library version mismatch (18)",
                libcuda=True,
            )
        ),
    ),
    (
        "driver-broken",
        "driver",
        "error",
        "GPU is lost",
        host(gpus=nvidia(H100, problem="NVML does not start: GPU is lost (15)")),
    ),
    ("libcuda-missing", "driver", "error", "libcuda.so.1", host(gpus=nvidia(H100, libcuda=False))),
    (
        "no-kernel-image",
        "torch",
        "error",
        "sm_120",
        host(TORCH_CUDA, gpus=nvidia(BLACKWELL), seen=torch_seen(1, ("sm_80", "sm_90"))),
    ),
    (
        "no-kernel-image",
        "torch",
        "error",
        "sm_60",
        host(TORCH_CUDA, gpus=nvidia(PASCAL), seen=torch_seen(1, ("sm_75", "sm_90", "compute_90"))),
    ),
    (
        "no-kernel-image",
        "tensorflow",
        "error",
        "sm_52",
        host(TENSORFLOW, gpus=nvidia(replace(PASCAL, capability=(5, 2))), libraries=CUDA_12),
    ),
    (
        "devices-hidden",
        "CUDA_VISIBLE_DEVICES",
        "error",
        "0 of 1",
        host(TORCH_CUDA, gpus=nvidia(H100), variables={"CUDA_VISIBLE_DEVICES": "-1"}),
    ),
    (
        "devices-hidden",
        "CUDA_VISIBLE_DEVICES",
        "error",
        "0 of 1",
        host(TORCH_CUDA, gpus=nvidia(H100), variables={"CUDA_VISIBLE_DEVICES": ""}),
    ),
    (
        "devices-hidden",
        "CUDA_VISIBLE_DEVICES",
        "warning",
        "1 of 2",
        host(TORCH_CUDA, gpus=nvidia(H100, H100), variables={"CUDA_VISIBLE_DEVICES": "1"}),
    ),
    (
        "devices-hidden",
        "NVIDIA_VISIBLE_DEVICES",
        "warning",
        "void",
        host(variables={"NVIDIA_VISIBLE_DEVICES": "void"}),
    ),
    (
        "devices-hidden",
        "JAX_PLATFORMS",
        "warning",
        "JAX",
        host(package("jax", "0.7.0"), gpus=nvidia(H100), variables={"JAX_PLATFORMS": "cpu"}),
    ),
    ("cpu-build", "torch", "warning", "without CUDA", host(TORCH, gpus=nvidia(H100))),
    (
        "cpu-build",
        "tensorflow-cpu",
        "warning",
        "without CUDA",
        host(package("tensorflow-cpu", "2.21.0", cuda=None, hip=False), gpus=nvidia(H100)),
    ),
    ("cpu-build", "onnxruntime", "note", "CPU build", host(ONNXRUNTIME, gpus=nvidia(H100))),
    (
        "libraries-missing",
        "tensorflow",
        "error",
        "libcudnn.so.9",
        host(TENSORFLOW, gpus=nvidia(H100)),
    ),
    (
        "libraries-missing",
        "tensorflow",
        "error",
        "libcudart.so.12",
        host(
            TENSORFLOW,
            gpus=nvidia(H100),
            libraries=(Library("cudart", "13.0", "system", "/x"), CUDA_12[1]),
        ),
    ),
    (
        "libraries-missing",
        "onnxruntime-gpu",
        "error",
        "libcudart.so.13",
        host(ONNXRUNTIME_GPU, gpus=nvidia(H100), libraries=CUDA_12),
    ),
    (
        "cudnn-majors",
        "cudnn",
        "warning",
        "2 major versions",
        host(libraries=(CUDA_12[1], Library("cudnn", "8", "system", "/usr/lib/libcudnn.so.8"))),
    ),
    (
        "cuda-wheels-mixed",
        "torch",
        "warning",
        "nvidia-cudnn-cu12",
        host(TORCH_CUDA, package("nvidia-cudnn-cu12", "9.3.0.75")),
    ),
    (
        "library-shadowed",
        "LD_LIBRARY_PATH",
        "warning",
        "/old/libcudnn.so.8",
        host(
            libraries=(Library("cudnn", "8", "LD_LIBRARY_PATH", "/old/libcudnn.so.8"), CUDA_12[1])
        ),
    ),
    (
        "device-unseen",
        "torch",
        "error",
        "sees no GPU",
        host(TORCH_CUDA, gpus=nvidia(H100), seen=torch_seen(0)),
    ),
    (
        "device-unseen",
        "tensorflow",
        "error",
        "sees no GPU",
        host(
            TENSORFLOW,
            gpus=nvidia(H100),
            libraries=CUDA_12,
            seen={"tensorflow": ImportResult("2.21.0", facts={"gpus": 0})},
        ),
    ),
    (
        "kernel-failed",
        "torch",
        "error",
        "no kernel image",
        host(
            TORCH_CUDA,
            gpus=nvidia(H100),
            seen=torch_seen(1, kernel_problem="RuntimeError: CUDA error: no kernel image"),
        ),
    ),
    (
        "import-fails",
        "h5py",
        "error",
        "numpy.dtype size changed",
        host(
            package("h5py", "3.8.0"),
            seen={"h5py": ImportResult(problem="ValueError: numpy.dtype size changed")},
        ),
    ),
    (
        "two-versions",
        "numpy",
        "warning",
        "1.26.4 in /b",
        host({"numpy": (Package("numpy", "2.0.0", "/a"), Package("numpy", "1.26.4", "/b"))}),
    ),
    (
        "onnxruntime-twice",
        "onnxruntime",
        "warning",
        "now those of onnxruntime",
        host(ONNXRUNTIME, package("onnxruntime-gpu", "1.31.1", module_of="onnxruntime")),
    ),
    (
        "onnxruntime-twice",
        "onnxruntime",
        "error",
        "now those of onnxruntime",
        host(
            ONNXRUNTIME,
            package("onnxruntime-gpu", "1.31.1", module_of="onnxruntime"),
            gpus=nvidia(H100),
        ),
    ),
    (
        "tensorflow-twice",
        "tensorflow",
        "warning",
        "tensorflow-cpu 2.21.0",
        host(TENSORFLOW, package("tensorflow-cpu", "2.21.0")),
    ),
    (
        "numpy-abi",
        "torch",
        "error",
        "NumPy 1",
        host(package("torch", "2.2.2"), package("numpy", "2.1.0")),
    ),
    (
        "numpy-abi",
        "tensorflow",
        "error",
        "NumPy 1",
        host(package("tensorflow", "2.17.0"), package("numpy", "2.1.0")),
    ),
    (
        "requirement-unmet",
        "tensorflow",
        "warning",
        "protobuf<8.0.0,>=6.31.1",
        host(
            package("tensorflow", "2.21.0", ["protobuf<8.0.0,>=6.31.1"]),
            package("protobuf", "3.20.3"),
        ),
    ),
    (
        "requirement-unmet",
        "tensorflow",
        "warning",
        "3.16.0 is installed",
        host(package("tensorflow", "2.21.0", ["h5py<3.15.0,>=3.11.0"]), package("h5py", "3.16.0")),
    ),
    (
        "keras-3-old-tensorflow",
        "keras",
        "error",
        "expects Keras 2",
        host(KERAS, package("tensorflow", "2.15.1")),
    ),
    (
        "keras-2-new-tensorflow",
        "keras",
        "error",
        "expects Keras 3",
        host(package("keras", "2.15.0"), TENSORFLOW),
    ),
    (
        "legacy-keras-missing",
        "TF_USE_LEGACY_KERAS",
        "error",
        "tf_keras is not installed",
        host(KERAS, TENSORFLOW, variables={"TF_USE_LEGACY_KERAS": "1"}),
    ),
    (
        "legacy-keras-ignored",
        "TF_USE_LEGACY_KERAS",
        "warning",
        "'yes'",
        host(KERAS, TENSORFLOW, TF_KERAS, variables={"TF_USE_LEGACY_KERAS": "yes"}),
    ),
    (
        "tf-keras-too-new",
        "tf-keras",
        "warning",
        "2.21.0",
        host(package("tensorflow", "2.18.0"), KERAS, TF_KERAS),
    ),
    (
        "backend-missing",
        "keras",
        "error",
        "jax is not installed",
        host(KERAS, TORCH, variables={"KERAS_BACKEND": "jax"}),
    ),
    ("backend-missing", "keras", "error", "tensorflow is not installed", host(KERAS, TORCH)),
    (
        "other-convert",
        "convert",
        "note",
        "/usr/bin/convert",
        host(other_convert="/usr/bin/convert"),
    ),
    ("backend-unknown", "keras", "error", "theano", host(KERAS, keras_backend="theano")),
    (
        "other-python",
        "python",
        "note",
        "/tf/bin/python",
        host(variables={"CONVERT_TENSORFLOW_PYTHON": "/tf/bin/python"}),
    ),
    ("other-environment", "python", "note", "/other", host(variables={"VIRTUAL_ENV": "/other"})),
]


@pytest.mark.parametrize(
    ("code", "subject", "severity", "word", "made"),
    ROWS,
    ids=[f"{r[0]}-{r[1]}-{i}" for i, r in enumerate(ROWS)],
)
def test_each_rule_finds_its_problem(code, subject, severity, word, made):
    found = [f for f in check_host(made) if (f.code, f.subject) == (code, subject)]
    assert len(found) == 1, check_host(made)
    assert found[0].severity == severity
    assert word in found[0].what
    assert found[0].why
    assert found[0].fix or code == "kernel-failed"


def test_a_healthy_host_has_no_findings():
    assert check_host(HEALTHY) == ()


def test_a_host_with_nothing_has_no_findings():
    assert check_host(host()) == ()


def test_what_a_framework_reports_outweighs_the_tables():
    """With compatibility packages and unusual paths, a GPU works that tables rule out."""
    old = nvidia(BLACKWELL, driver="525.60.13", cuda=(12, 0))
    seen = torch_seen(1, ("sm_90",), kernel_ran=True) | {
        "tensorflow": ImportResult("2.21.0", ("GPU:0",), {"gpus": 1}),
        "onnxruntime": ImportResult("1.31.1", ("CUDAExecutionProvider",)),
    }
    made = host(TORCH_CUDA, TENSORFLOW, KERAS, ONNXRUNTIME_GPU, gpus=old, seen=seen)
    assert [f.code for f in check_host(made)] == []


def test_every_rule_has_a_row():
    rules = {rule: rule for rule in (*NVIDIA_RULES, *PACKAGE_RULES)}
    for row in ROWS:
        for rule in list(rules):
            if any((f.code, f.subject) == row[:2] for f in rule(row[4])):
                del rules[rule]
    assert not rules


def test_the_most_severe_comes_first():
    made = host(ONNXRUNTIME, TORCH_CUDA, gpus=nvidia(H100, driver="525.60.13", cuda=(12, 0)))
    order = [f.severity for f in check_host(made)]
    assert order == sorted(order, key=["error", "warning", "note"].index)
    assert order[0] == "error"
    assert order[-1] == "note"


@pytest.mark.parametrize(
    ("chosen", "left"),
    [(None, 2), ("0,1", 2), ("1", 1), ("", 0), ("-1", 0), ("0,-1", 1), ("5", 0), ("NoDevFiles", 0),
     ("GPU-8932f937", 1)],
)  # fmt: skip
def test_cuda_visible_devices_is_read_as_cuda_reads_it(chosen, left):
    variables = {} if chosen is None else {"CUDA_VISIBLE_DEVICES": chosen}
    assert len(host(gpus=nvidia(H100, H100), variables=variables).visible_gpus) == left


@pytest.mark.parametrize(
    ("capability", "architectures", "runs"),
    [
        ((9, 0), ["sm_90"], True),
        ((8, 6), ["sm_80"], True),  # minor versions go upwards
        ((8, 0), ["sm_86"], False),
        ((12, 0), ["sm_90"], False),
        ((12, 0), ["sm_90", "compute_90"], True),  # compiled by the driver
        ((12, 0), ["sm_90a"], False),
        ((9, 0), ["sm_90a"], True),
        ((10, 3), ["sm_100f"], True),
        ((12, 1), ["sm_120"], True),
        ((7, 0), ["sm_75", "compute_75"], False),
        ((9, 0), [], False),
        ((9, 0), ["gfx942"], False),
    ],
)
def test_what_runs_on_a_gpu(capability, architectures, runs):
    assert runs_on(capability, architectures) is runs


@pytest.mark.parametrize(
    ("cuda", "driver"),
    [("13.0", "580.65.06"), ("13.2", "580.65.06"), ("12.8", "525.60.13"), ("11.8", "450.80.02"),
     ("11.0", "450.36.06"), ("10.2", "440.33"), ("12", "525.60.13"), ("7.5", ""), ("", "")],
)  # fmt: skip
def test_the_oldest_driver_for_a_cuda(cuda, driver):
    assert find_minimum_driver(cuda) == driver


def test_the_tables_of_drivers_agree():
    for cuda, driver in MINIMUM_DRIVER:
        released = find_newest_cuda(driver)
        assert released is not None
        assert released[0] == cuda[0]  # within one major version, older drivers run newer CUDAs
