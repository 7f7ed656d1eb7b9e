"""Query NVIDIA's driver about a device, through ctypes; plain, for the runners next to it.

Versions as the driver itself counts them: 13000 is CUDA 13.0.
Spec: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__DEVICE.html
"""

import ctypes
import re
from pathlib import Path
from typing import Any

LIBRARIES = ("libcuda.so.1", "nvcuda.dll")
RELEASE = Path("/proc/driver/nvidia/version")  # of the kernel's module
MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


def driver() -> tuple[Any, str]:
    """Return the driver's library, ready to be asked, or why there is none."""
    said = []
    for name in LIBRARIES:
        try:
            library = ctypes.CDLL(name)
        except OSError as e:
            said.append(str(e))
            continue
        code = library.cuInit(0)
        return (library, "") if not code else (None, f"the driver fails with code {code}")
    return None, f"there is no NVIDIA driver ({said[0]})"


def lacks(index: int) -> str:
    """Return why there is no such device, or nothing."""
    library, why = driver()
    if library is None:
        return why
    count = ctypes.c_int()
    code = library.cuDeviceGetCount(ctypes.byref(count))
    if code or count.value <= index:
        return f"the NVIDIA driver shows {count.value} device{'s' if count.value != 1 else ''}"
    return ""


def facts(index: int) -> dict[str, Any]:
    """Return name, compute capability and driver of a device, as far as they are said."""
    library, _ = driver()
    if library is None or lacks(index):
        return {}
    found: dict[str, Any] = {}
    handle, version = ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(256)
    if not library.cuDriverGetVersion(ctypes.byref(version)):
        found["cuda_driver"] = f"{version.value // 1000}.{version.value % 1000 // 10}"
    if not library.cuDeviceGet(ctypes.byref(handle), index):
        if not library.cuDeviceGetName(name, len(name), handle):
            found["name"] = name.value.decode("utf-8", "replace")
        numbers = []
        for attribute in (MAJOR, MINOR):
            number = ctypes.c_int()
            library.cuDeviceGetAttribute(ctypes.byref(number), attribute, handle)
            numbers.append(number.value)
        found["compute_capability"] = ".".join(map(str, numbers))
    return found | release()


def release() -> dict[str, str]:
    """Return the driver's release, where the system says it."""
    try:
        said = re.search(r"Kernel Module\D*([\d.]+)", RELEASE.read_text())
    except OSError:
        return {}
    return {"driver": said[1]} if said else {}


def find_missing(library: Path) -> str:
    """Return what the system says when it is to load a library: what that lacks, or nothing."""
    try:
        ctypes.CDLL(str(library))
    except OSError as e:
        return str(e)
    return ""
