"""Read driver and GPUs through NVIDIA's libraries; run in a child: broken drivers crash or hang.

``answer.json`` is ``{"driver", "cuda", "gpus": [{"name", "capability", "memory_bytes", "mig"}],
"via", "libcuda", "problem"}``. It imports nothing of the project, so that any Python runs it.
Spec: https://docs.nvidia.com/deploy/nvml-api/index.html
"""

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

NVML = ("libnvidia-ml.so.1", "nvml.dll", "/usr/lib/wsl/lib/libnvidia-ml.so.1")
LIBCUDA = ("libcuda.so.1", "nvcuda.dll", "/usr/lib/wsl/lib/libcuda.so.1")
SMI = ("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", "/usr/bin/nvidia-smi")
SMI_FIELDS = "name,compute_cap,memory.total,driver_version,mig.mode.current"
SMI_SECONDS = 10


class Memory(ctypes.Structure):
    """nvmlMemory_t, in bytes."""

    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


def open_any(names: tuple[str, ...]) -> Any:
    """Return the first library of these that opens, or None."""
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def read_string(library: Any, function: str, *arguments: Any) -> str:
    """Call an NVML function that fills a buffer with a string."""
    buffer = ctypes.create_string_buffer(96)
    code = getattr(library, function)(*arguments, buffer, ctypes.c_uint(96))
    return buffer.value.decode("utf-8", "replace") if code == 0 else ""


def split_version(number: int) -> list[int] | None:
    """Return [12, 4] for 12040, which is how CUDA encodes its versions."""
    return [number // 1000, number % 1000 // 10] if number > 0 else None


def query_nvml(answer: dict[str, Any]) -> bool:
    """Fill the answer from NVML, and return whether NVML answers."""
    nvml = open_any(NVML)
    if nvml is None:
        return False
    nvml.nvmlErrorString.restype = ctypes.c_char_p
    code = nvml.nvmlInit_v2()
    if code:
        reason = (nvml.nvmlErrorString(code) or b"").decode("utf-8", "replace")
        answer["problem"] = f"NVML does not start: {reason or 'error'} ({code})"
        return False
    answer["via"] = "nvml"
    answer["driver"] = read_string(nvml, "nvmlSystemGetDriverVersion")
    number = ctypes.c_int()
    if nvml.nvmlSystemGetCudaDriverVersion(ctypes.byref(number)) == 0:
        answer["cuda"] = split_version(number.value)
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(count.value):
        device = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)):
            continue
        answer["gpus"].append(describe_gpu(nvml, device))
    nvml.nvmlShutdown()
    return True


def describe_gpu(nvml: Any, device: Any) -> dict[str, Any]:
    """Describe one GPU."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    memory, mode, pending = Memory(), ctypes.c_uint(), ctypes.c_uint()
    code = nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor))
    known = nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0
    mig = nvml.nvmlDeviceGetMigMode(device, ctypes.byref(mode), ctypes.byref(pending)) == 0
    return {
        "name": read_string(nvml, "nvmlDeviceGetName", device),
        "capability": None if code else [major.value, minor.value],
        "memory_bytes": memory.total if known else None,
        "mig": mig and mode.value == 1,
    }


def query_smi(answer: dict[str, Any]) -> None:
    """Fill the answer from nvidia-smi, where NVML does not answer."""
    for program in SMI:
        command = [program, f"--query-gpu={SMI_FIELDS}", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(  # noqa: S603 - a fixed command
                command, capture_output=True, text=True, timeout=SMI_SECONDS, check=False
            )
        except FileNotFoundError:
            continue
        except (OSError, subprocess.TimeoutExpired) as e:
            answer["problem"] = answer["problem"] or f"nvidia-smi: {type(e).__name__}"
            return
        if done.returncode:
            first = (done.stdout + done.stderr).strip().splitlines()
            answer["problem"] = answer["problem"] or f"nvidia-smi: {first[0] if first else 'fails'}"
            return
        answer["via"] = "nvidia-smi"
        for line in done.stdout.splitlines():
            add_smi_line(answer, [word.strip() for word in line.split(",")])
        return


def add_smi_line(answer: dict[str, Any], words: list[str]) -> None:
    """Add the GPU of one line of nvidia-smi; an unknown field is ``[N/A]``."""
    if len(words) < 5:
        return
    name, capability, memory, driver, mig = words[:5]
    parts = capability.split(".")
    answer["driver"] = driver
    answer["gpus"].append(
        {
            "name": name,
            "capability": [int(p) for p in parts] if all(p.isdecimal() for p in parts) else None,
            "memory_bytes": int(memory) << 20 if memory.isdecimal() else None,
            "mig": mig == "Enabled",
        }
    )


def query_libcuda(answer: dict[str, Any]) -> None:
    """Add whether libcuda opens and which CUDA it supports; cuInit is not called."""
    cuda = open_any(LIBCUDA)
    answer["libcuda"] = cuda is not None
    number = ctypes.c_int()
    if cuda is not None and cuda.cuDriverGetVersion(ctypes.byref(number)) == 0:
        answer["cuda"] = answer["cuda"] or split_version(number.value)


def main() -> None:
    """Write the answer."""
    folder = Path(sys.argv[1])
    answer: dict[str, Any] = {
        "driver": "", "cuda": None, "gpus": [], "via": "", "libcuda": False, "problem": "",
    }  # fmt: skip
    if not query_nvml(answer):
        query_smi(answer)
    (folder / "answer.json").write_text(json.dumps(answer))  # kept if libcuda crashes
    query_libcuda(answer)
    (folder / "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
