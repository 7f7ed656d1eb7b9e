"""Describe system, processor, memory and variables, from the standard library and /proc."""

import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from converter.doctor.host import Cpu

# Instruction sets that wheels of frameworks are built for, as /proc/cpuinfo spells them.
FEATURES = ("sse4_2", "avx", "avx2", "fma", "avx512f", "avx512_vnni", "amx_tile", "asimd", "sve")
LAUNCHER_BYTES = 4096  # of a console script that says which module it runs
# Variables that hide devices, choose backends, or put other libraries first.
VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_PATH",
    "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HSA_OVERRIDE_GFX_VERSION", "JAX_PLATFORMS",
    "KERAS_BACKEND", "KERAS_HOME", "TF_USE_LEGACY_KERAS", "TF_FORCE_GPU_ALLOW_GROWTH", "XLA_FLAGS",
    "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD",
    "PYTORCH_ENABLE_MPS_FALLBACK", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH",
    "PYTHONNOUSERSITE", "VIRTUAL_ENV", "CONDA_PREFIX", "CONVERT_TENSORFLOW_PYTHON",
    "CONVERT_TORCH_PYTHON",
)  # fmt: skip


def select_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that matter for loading a model."""
    return {name: environment[name] for name in VARIABLES if name in environment}


def describe_system() -> str:
    """Return the name and version of the operating system."""
    with suppress(OSError):
        release = platform.freedesktop_os_release()
        return f"Linux ({release.get('PRETTY_NAME', 'unknown')}), kernel {platform.release()}"
    return f"{platform.system()} {platform.release()}"


def describe_cpu(proc: Path = Path("/proc")) -> Cpu:
    """Describe the processor; facts that the system does not report stay empty."""
    model, flags = "", ""
    with suppress(OSError, UnicodeDecodeError):
        for line in (proc / "cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            match key.strip():
                case "model name" if not model:
                    model = value.strip()
                case "flags" | "Features" if not flags:
                    flags = value
    present = set(flags.split())
    return Cpu(
        model or platform.processor() or platform.machine(),
        os.cpu_count() or 0,
        tuple(f for f in FEATURES if f in present),
        _read_memory(proc),
    )


def _read_memory(proc: Path) -> int:
    """Return the memory of the host in bytes; 0 if unknown."""
    with suppress(OSError, ValueError, IndexError, UnicodeDecodeError):
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    return 0


def detect_rocm(dev: Path = Path("/dev"), opt: Path = Path("/opt")) -> str:
    """Return the version of AMD's ROCm, ``driver only``, or "" if there is neither."""
    with suppress(OSError, UnicodeDecodeError):
        return (opt / "rocm" / ".info" / "version").read_text().strip()
    return "driver only" if (dev / "kfd").exists() else ""


def find_other_convert(command: str | None) -> str:
    """Return the path of a ``convert`` that is not a launcher of this package; "" if it is one."""
    if command is None:
        return ""
    try:
        with Path(command).open("rb") as file:
            is_ours = b"converter.cli" in file.read(LAUNCHER_BYTES)
    except OSError:
        return ""
    return "" if is_ours else command


def read_keras_backend(environment: Mapping[str, str], home: Path) -> str:
    """Return the backend named in the settings file of Keras, or ""."""
    folder = Path(environment["KERAS_HOME"]) if environment.get("KERAS_HOME") else home / ".keras"
    try:
        settings = json.loads((folder / "keras.json").read_text())
    except (OSError, ValueError):
        return ""
    backend = settings.get("backend") if isinstance(settings, dict) else None
    return backend if isinstance(backend, str) else ""
