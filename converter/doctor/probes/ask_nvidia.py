"""Ask NVIDIA's own libraries what there is; run in a child, for a broken driver hangs or crashes.

``answer.json`` is ``{"driver", "cuda", "gpus": [{"name", "capability", "memory_bytes", "mig"}],
"via", "libcuda", "problem"}``. Plain, and nothing of the project: any Python runs it.
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
    """nvmlMemory_t, all in bytes."""

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


def text_of(library: Any, function: str, *arguments: Any) -> str:
    """Call an NVML function that fills a buffer with text."""
    buffer = ctypes.create_string_buffer(96)
    code = getattr(library, function)(*arguments, buffer, ctypes.c_uint(96))
    return buffer.value.decode("utf-8", "replace") if code == 0 else ""


def versions(number: int) -> list[int] | None:
    """Return [12, 4] of 12040, as CUDA counts its versions."""
    return [number // 1000, number % 1000 // 10] if number > 0 else None


def ask_nvml(answer: dict[str, Any]) -> bool:
    """Fill the answer from NVML; whether there was one."""
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
    answer["driver"] = text_of(nvml, "nvmlSystemGetDriverVersion")
    number = ctypes.c_int()
    if nvml.nvmlSystemGetCudaDriverVersion(ctypes.byref(number)) == 0:
        answer["cuda"] = versions(number.value)
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(count.value):
        device = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)):
            continue
        answer["gpus"].append(describe(nvml, device))
    nvml.nvmlShutdown()
    return True


def describe(nvml: Any, device: Any) -> dict[str, Any]:
    """Describe one device of NVML's."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    memory, mode, pending = Memory(), ctypes.c_uint(), ctypes.c_uint()
    code = nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor))
    known = nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0
    mig = nvml.nvmlDeviceGetMigMode(device, ctypes.byref(mode), ctypes.byref(pending)) == 0
    return {
        "name": text_of(nvml, "nvmlDeviceGetName", device),
        "capability": None if code else [major.value, minor.value],
        "memory_bytes": memory.total if known else None,
        "mig": mig and mode.value == 1,
    }


def ask_smi(answer: dict[str, Any]) -> None:
    """Fill the answer from nvidia-smi, where NVML could not be asked."""
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
    """Add one GPU, as nvidia-smi printed it; a field it does not know reads ``[N/A]``."""
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


def ask_libcuda(answer: dict[str, Any]) -> None:
    """Say whether libcuda opens, and which CUDA it can run; cuInit is not called."""
    cuda = open_any(LIBCUDA)
    answer["libcuda"] = cuda is not None
    number = ctypes.c_int()
    if cuda is not None and cuda.cuDriverGetVersion(ctypes.byref(number)) == 0:
        answer["cuda"] = answer["cuda"] or versions(number.value)


def main() -> None:
    """Answer."""
    folder = Path(sys.argv[1])
    answer: dict[str, Any] = {
        "driver": "",
        "cuda": None,
        "gpus": [],
        "via": "",
        "libcuda": False,
        "problem": "",
    }
    if not ask_nvml(answer):
        ask_smi(answer)
    (folder / "answer.json").write_text(json.dumps(answer))  # should libcuda crash, this stays
    ask_libcuda(answer)
    (folder / "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
