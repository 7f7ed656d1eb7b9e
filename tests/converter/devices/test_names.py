"""What ``--device`` may say, what each runtime calls it, and what is wrong with a placement."""

import pytest

from converter.devices.names import KINDS, Device, parse_device
from converter.verification.device import request_device
from converter.verification.placement import CPU, DeviceRequest, parse_placement
from formats.errors import UsageError


@pytest.mark.parametrize(
    ("text", "torch", "tensorflow", "provider"),
    [
        ("cuda:0", "cuda:0", "GPU:0", "CUDAExecutionProvider"),
        ("cuda", "cuda:0", "GPU:0", "CUDAExecutionProvider"),
        ("GPU:1", "cuda:1", "GPU:1", "CUDAExecutionProvider"),
        ("/device:GPU:1", "cuda:1", "GPU:1", "CUDAExecutionProvider"),
        ("/job:w/replica:0/task:3/device:GPU:2", "cuda:2", "GPU:2", "CUDAExecutionProvider"),
        ("tensorrt", "cuda:0", "GPU:0", "TensorrtExecutionProvider"),
        ("rocm:1", "cuda:1", "GPU:1", "ROCMExecutionProvider"),
        ("mps", "mps:0", "GPU:0", "CoreMLExecutionProvider"),
        ("coreml", "mps:0", "GPU:0", "CoreMLExecutionProvider"),
        ("dml:1", "", "DML:1", "DmlExecutionProvider"),
        ("openvino", "xpu:0", "XPU:0", "OpenVINOExecutionProvider"),
        ("CPU:1", "", "CPU:1", ""),
        ("cpu", "cpu", "CPU:0", "CPUExecutionProvider"),
        ("hpu", "hpu:0", "HPU:0", ""),
        ("mtia:0", "mtia:0", "", ""),
    ],
)
def test_names(text, torch, tensorflow, provider):
    found = parse_device(text)
    assert (found.torch, found.tensorflow, found.provider) == (torch, tensorflow, provider)


@pytest.mark.parametrize("text", ["", "cuda:", "cuda:-1", "abacus", "GPU:0:1", "cuda:1000", "メ:0"])
def test_what_names_none(text):
    with pytest.raises(UsageError, match="expected cuda:0, GPU:0, or another of"):
        parse_device(text)


def test_the_cpu_alone_is_no_place_to_go_to():
    for text in (None, "none", "cpu", "CPU:0", "/device:CPU:0"):
        assert request_device(text, allow_tf32=False) is None
    assert request_device("CPU:1", allow_tf32=True) == DeviceRequest(
        Device("cpu", 1), allow_tf32=True
    )


def test_every_kind_has_a_runtime_and_is_parsed():
    for kind, names in KINDS.items():
        assert parse_device(f"{kind}:3") == Device(kind, 3)
        assert names.provider or names.torch or names.tensorflow


def test_tf32_is_off_for_all_unless_it_is_allowed():
    cuda = parse_device("cuda:1")
    assert cuda.provider_options(allow_tf32=False)["use_tf32"] == "0"
    assert cuda.provider_options(allow_tf32=True)["use_tf32"] == "1"
    assert cuda.provider_options(allow_tf32=True)["device_id"] == "1"
    assert DeviceRequest(cuda).environment()["NVIDIA_TF32_OVERRIDE"] == "0"
    assert DeviceRequest(cuda, allow_tf32=True).environment()["NVIDIA_TF32_OVERRIDE"] is None
    assert (
        DeviceRequest(cuda).environment()["CUDA_VISIBLE_DEVICES"] is None
    )  # as we have it ourselves
    assert CPU.environment() == {}
    assert CPU.question("cuda:1") == {}


def placement(*places, **more):
    return parse_placement(
        {"placement": {"device": "GPU:0", "how": "seen", "places": places, **more}}
    )


def test_nothing_that_is_not_shown_is_believed():
    assert parse_placement({}) is None
    assert placement().problem(9) == "nothing shows that anything ran on GPU:0"


def test_variables_are_named_before_nodes_and_all_are_counted():
    nodes = [("node", f"n{i}", "CPU:0") for i in range(10)]
    found = placement(("node", "first", "GPU:0"), *nodes, ("variable", "v", "CPU:0"))
    assert found.counts == {"node": {"GPU:0": 1, "CPU:0": 10}, "variable": {"CPU:0": 1}}
    assert found.mostly == "CPU:0"
    problem = found.problem(10)
    assert problem.startswith(
        "11 parts were on the CPU (allow_cpu_nodes=11 would pass): variable 'v' on CPU:0, node"
    )
    assert problem.endswith("and 6 more")
    assert found.problem(11) == ""
    assert len(found.plain()["elsewhere"]) == 11


def test_why_a_runtime_fell_back_is_said():
    found = placement(("node", "a", "CPU:0"), reason="libcublas.so: not found")
    assert found.problem(9) == "nothing ran on GPU:0 (libcublas.so: not found): node 'a' on CPU:0"


def test_another_device_is_never_allowed():
    found = placement(("node", "a", "GPU:0"), ("node", "b", "GPU:1"), ("node", "c", ""))
    assert found.problem(99) == (
        "was on another device than GPU:0: node 'b' on GPU:1, node 'c' on no device"
    )
