"""Probe NVIDIA's driver and GPUs: in a child process, completed from /proc and the PCI bus."""

import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from converter.child.process import Allowance, ask
from converter.doctor.host import Gpu, Nvidia
from formats.errors import DependencyError

SCRIPT = Path(__file__).with_name("describe_nvidia.py")
SECONDS = 20.0
VENDOR, DISPLAY = "0x10de", "0x03"  # PCI: NVIDIA; class of display controllers


def probe_nvidia(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> Nvidia:
    """Describe NVIDIA's part of this host. It never raises and never hangs.

    Args:
        proc: Root of procfs.
        sys: Root of sysfs, which lists the PCI bus.
    """
    answer: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="convert-") as folder:
        try:
            answer = ask(SCRIPT, Path(folder), {}, what="NVML", allowance=Allowance(SECONDS))
        except DependencyError as e:
            answer = {"problem": str(e)}
    return assemble(answer, read_kernel_driver(proc), count_pci_gpus(sys))


def assemble(answer: Mapping[str, Any], kernel_driver: str, pci_gpus: int) -> Nvidia:
    """Combine the child's answer with what the kernel reports."""
    driver, via = str(answer.get("driver") or ""), str(answer.get("via") or "")
    if not driver and kernel_driver:
        driver, via = kernel_driver, "/proc"
    cuda = answer.get("cuda")
    return Nvidia(
        driver,
        (int(cuda[0]), int(cuda[1])) if cuda else None,
        tuple(
            Gpu(
                str(gpu["name"]),
                (gpu["capability"][0], gpu["capability"][1]) if gpu["capability"] else None,
                gpu["memory_bytes"],
                bool(gpu["mig"]),
            )
            for gpu in answer.get("gpus", ())
        ),
        via,
        bool(answer.get("libcuda")),
        str(answer.get("problem") or ""),
        pci_gpus,
    )


def read_kernel_driver(proc: Path) -> str:
    """Return the version of the driver's kernel module, or ""."""
    with suppress(OSError, UnicodeDecodeError):
        text = (proc / "driver" / "nvidia" / "version").read_text()
        match = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)", text)
        return match[1] if match else ""
    return ""


def count_pci_gpus(sys: Path) -> int:
    """Count NVIDIA's display devices on the PCI bus."""
    count = 0
    with suppress(OSError):
        for device in (sys / "bus" / "pci" / "devices").iterdir():
            with suppress(OSError, UnicodeDecodeError):
                vendor = (device / "vendor").read_text().strip()
                kind = (device / "class").read_text().strip()
                count += vendor == VENDOR and kind.startswith(DISPLAY)
    return count
