"""Names of torch's devices: what ``--device`` may say, and what a file of torch is told.

torch spells a device in two ways: in code and graphs as ``torch.device`` prints it, and
on the storages of ``torch.save`` as a location, which `torch.load` hands to whoever registered for
it. The two differ only for the CPU and Metal, which have no numbers there. ``xla``, ``mtia`` and
``maia`` have no storages that could be saved: torch writes the tensor as one of the CPU and,
beside it, where it shall go.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/c10/core/Device.cpp (names),
https://github.com/pytorch/pytorch/blob/v2.13.0/torch/serialization.py (locations)
"""

import difflib
import re
from dataclasses import dataclass

from formats.errors import UsageError

MAX_INDEX = 127  # c10::DeviceIndex is an int8; torch.device takes more and means another device

# fmt: off
KINDS = {
    "cpu":           "the processor",
    "cuda":          "NVIDIA, and AMD under ROCm",
    "mps":           "Apple's Metal",
    "xpu":           "Intel",
    "hpu":           "Intel Gaudi",
    "mtia":          "Meta's accelerator",
    "maia":          "Microsoft's accelerator",
    "xla":           "TPU, through torch_xla",
    "npu":           "Ascend, through torch_npu",
    "privateuseone": "a backend of one's own",
}
# fmt: on
# What people call them who come from elsewhere.
OTHERWISE = {
    "gpu": "cuda",
    "rocm": "cuda",
    "hip": "cuda",
    "tpu": "xla",
    "metal": "mps",
    "none": "cpu",
    "gaudi": "hpu",
    "ascend": "npu",
}  # fmt: skip
ALONE = frozenset({"cpu", "mps"})  # of which a host has one, and whose locations have no number
WITHOUT_STORAGE = frozenset({"xla", "mtia", "maia"})
_NAME = re.compile(r"(?P<kind>[a-zA-Z_]+)(?::(?P<index>0|[1-9][0-9]*))?")


@dataclass(frozen=True, slots=True)
class Device:
    """A device that a file is written for.

    Attributes:
        kind: ``cpu``, ``cuda``, ….
        index: Which of them; None for the one that is current where the file is loaded.
    """

    kind: str
    index: int | None = None

    def __str__(self) -> str:
        """Return it as ``torch.device`` prints it, which is what code and graphs say."""
        return self.kind if self.index is None else f"{self.kind}:{self.index}"

    @property
    def location(self) -> str:
        """What ``torch.save`` would tag a storage with."""
        return "cpu" if self.kind in WITHOUT_STORAGE else str(self)

    @property
    def has_storages(self) -> bool:
        """Whether tensors are saved as storages of the device, not as tensors of the CPU."""
        return self.kind not in WITHOUT_STORAGE


def parse_device(text: str | None) -> Device:
    """Return the device that ``--device`` names, the CPU where nothing was said.

    ``cpu:0`` and ``mps:0`` are ``cpu`` and ``mps``: with a number, `torch.load` would not know
    the first as a location.

    Raises:
        UsageError: torch knows no such device, or can keep no tensors there.
    """
    if text is None:
        return Device("cpu")
    named = _NAME.fullmatch(text)
    kind = named["kind"] if named else text.partition(":")[0]
    if named is None or kind not in KINDS:
        known = OTHERWISE.get(kind.lower())
        near = [known] if known else difflib.get_close_matches(kind.lower(), KINDS, 1)
        expected = f"one of {', '.join(KINDS)}, with a number where there are several (cuda:1)"
        hint = f"Perhaps {near[0]}" if near and near[0] != kind else None
        if kind == "meta":
            hint = "Tensors of the meta device have no elements"
        raise UsageError(f"--device {text}", expected=expected, hint=hint)
    if named["index"] is None:
        return Device(kind)
    index = int(named["index"]) if len(named["index"]) < 4 else MAX_INDEX + 1
    most = 0 if kind in ALONE else MAX_INDEX
    if index > most:
        expected = kind if not most else f"a number up to {most}"
        raise UsageError(f"--device {text}", expected=expected)
    return Device(kind, None if kind in ALONE else index)
