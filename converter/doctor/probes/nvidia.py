"""NVIDIA's driver and GPUs: asked in a child, completed from /proc and the PCI bus."""

import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from converter.child.process import Allowance, ask
from converter.doctor.host import Gpu, Nvidia
from formats.errors import EnvironmentFault

SCRIPT = Path(__file__).with_name("ask_nvidia.py")
SECONDS = 20.0
VENDOR, DISPLAY = "0x10de", "0x03"  # PCI: NVIDIA; class of display controllers


def look(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> Nvidia:
    """Describe NVIDIA's part of this host. Never raises, never hangs.

    Args:
        proc: Where the kernel's own words are.
        sys: Where the PCI bus is.
    """
    answer: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="convert-") as folder:
        try:
            answer = ask(SCRIPT, Path(folder), {}, what="NVML", allowance=Allowance(SECONDS))
        except EnvironmentFault as e:
            answer = {"problem": str(e)}
    return assemble(answer, _kernel_module(proc), _pci(sys))


def assemble(answer: Mapping[str, Any], module: str, pci_gpus: int) -> Nvidia:
    """Return what a child answered, with what the kernel says."""
    driver, via = str(answer.get("driver") or ""), str(answer.get("via") or "")
    if not driver and module:
        driver, via = module, "/proc"
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


def _kernel_module(proc: Path) -> str:
    """Return the version of the driver's kernel module, or ""."""
    with suppress(OSError, UnicodeDecodeError):
        text = (proc / "driver" / "nvidia" / "version").read_text()
        match = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)", text)
        return match[1] if match else ""
    return ""


def _pci(sys: Path) -> int:
    """Count NVIDIA's display devices on the bus."""
    count = 0
    with suppress(OSError):
        for device in (sys / "bus" / "pci" / "devices").iterdir():
            with suppress(OSError, UnicodeDecodeError):
                vendor = (device / "vendor").read_text().strip()
                kind = (device / "class").read_text().strip()
                count += vendor == VENDOR and kind.startswith(DISPLAY)
    return count
