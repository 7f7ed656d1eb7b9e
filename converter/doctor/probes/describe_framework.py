"""Import one framework and list what it sees; run in a child: it may crash, hang or print.

``question.json`` is ``{"framework", "environment"}``: the user's variables, null for an unset one.
``answer.json`` is ``{"version", "devices", "facts", "problem"}``. It imports nothing of the
project, so that any Python runs it.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# An ONNX model of one 1x1 MatMul, to try a session on a device; fixtures/doctor/make_probe_model.py
# prints it.
MODEL = bytes.fromhex(
    "08073a440a110a01780a017812017922064d61744d756c120570726f62655a130a0178120e0a0c080112080a"
    "0208010a02080162130a0179120e0a0c080112080a0208010a02080142040a00100d"
)
Description = tuple[list[str], dict[str, Any]]  # devices, facts
ACCELERATED = (
    "TensorrtExecutionProvider",
    "CUDAExecutionProvider",
    "ROCMExecutionProvider",
    "MIGraphXExecutionProvider",
    "CoreMLExecutionProvider",
    "DmlExecutionProvider",
)


def describe_torch(module: Any) -> Description:
    """Describe torch."""
    cuda = module.cuda
    available = cuda.is_available()
    count = cuda.device_count() if available else 0
    devices = []
    for index in range(count):
        major, minor = cuda.get_device_capability(index)
        devices.append(f"cuda:{index} {cuda.get_device_name(index)} (sm_{major}{minor})")
    facts = {
        "cuda": module.version.cuda,
        "hip": module.version.hip,
        "cuda_available": available,
        "cuda_devices": count,
        "architectures": cuda.get_arch_list(),
        "cudnn": module.backends.cudnn.version() if module.backends.cudnn.is_available() else None,
    }
    for name in ("mps", "xpu"):
        part = getattr(module.backends, name, None) or getattr(module, name, None)
        facts[f"{name}_available"] = bool(part is not None and part.is_available())
        devices += [name] if facts[f"{name}_available"] else []
    if available:  # a build without a kernel for this GPU fails only when one runs
        try:
            (module.ones(8, device="cuda") * 2).sum().item()
            facts["kernel_ran"] = True
        except Exception as e:  # noqa: BLE001 - the exception is the answer
            facts["kernel_problem"] = f"{type(e).__name__}: {e}"[:500]
    return [*devices, "cpu"], facts


def describe_tensorflow(module: Any) -> Description:
    """Describe TensorFlow."""
    build = dict(module.sysconfig.get_build_info())
    physical = module.config.list_physical_devices()
    devices = []
    for device in physical:
        details = {}
        if device.device_type == "GPU":
            details = module.config.experimental.get_device_details(device)
        name = details.get("device_name", "")
        devices.append(f"{device.device_type}:{device.name.rpartition(':')[2]} {name}".strip())
    facts = {
        "cuda": build.get("cuda_version") if build.get("is_cuda_build") else None,
        "cudnn": build.get("cudnn_version") if build.get("is_cuda_build") else None,
        "gpus": sum(d.device_type == "GPU" for d in physical),
    }
    return devices, facts


def describe_keras(module: Any) -> Description:
    """Describe Keras."""
    return [], {"backend": module.backend.backend() if hasattr(module, "backend") else None}


def describe_jax(module: Any) -> Description:
    """Describe JAX."""
    devices = [f"{d.platform}:{d.id} {d.device_kind}" for d in module.devices()]
    return devices, {"backend": module.default_backend()}


def describe_onnxruntime(module: Any) -> Description:
    """Describe onnxruntime by the providers that a session gets, not those of the build."""
    module.set_default_logger_severity(4)
    offered = module.get_available_providers()
    devices = []
    for provider in offered:
        if provider in ACCELERATED:
            session = module.InferenceSession(MODEL, providers=[provider])
            devices += [provider] if session.get_providers()[0] == provider else []
    return [*devices, "CPUExecutionProvider"], {"offered": offered}


def describe_plain(module: Any) -> Description:
    """Describe a package without devices."""
    del module
    return [], {}


DESCRIBE: dict[str, Callable[[Any], Description]] = {
    "torch": describe_torch, "tensorflow": describe_tensorflow, "keras": describe_keras,
    "jax": describe_jax, "onnxruntime": describe_onnxruntime,
}  # fmt: skip


def main() -> None:
    """Answer the question."""
    folder = Path(sys.argv[1])
    question = json.loads((folder / "question.json").read_text())
    for name, value in question["environment"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    answer = {"version": "", "devices": [], "facts": {}, "problem": ""}
    try:
        module = importlib.import_module(question["framework"])
        answer["version"] = str(getattr(module, "__version__", ""))
        describe = DESCRIBE.get(question["framework"], describe_plain)
        answer["devices"], answer["facts"] = describe(module)
    except BaseException as e:  # noqa: BLE001 - the exception is the answer
        answer["problem"] = f"{type(e).__name__}: {e}"[:1000]
    (folder / "answer.json").write_text(json.dumps(answer, default=str))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # shutting a framework down takes half a second


if __name__ == "__main__":
    main()
