"""Device names: the kinds of devices, what each runtime calls them, and the three spellings.

One table holds every kind, because each runtime names it differently: ``cuda:0`` is ``GPU:0`` in
TensorFlow and CUDAExecutionProvider with device_id 0 in onnxruntime. Three parsers read it:

- `parse_device`: the device on which something runs, in torch's or TensorFlow's spelling;
- `parse_torch_device`: the device that a torch file is written for, in torch's spelling only;
- `parse_tensorflow_device`: the device that the nodes of a SavedModel name, or none.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from formats.core.plurals import list_counts
from formats.errors import UsageError

PROVIDER_SUFFIX = "ExecutionProvider"


@dataclass(frozen=True, slots=True)
class Kind:
    """The name of a kind of device in each runtime; empty where the runtime does not have it.

    Attributes:
        provider: The onnxruntime provider, without ``ExecutionProvider``.
        torch: The type of a torch.device.
        tensorflow: The type of a TensorFlow device.
    """

    provider: str
    torch: str
    tensorflow: str


# Providers: https://onnxruntime.ai/docs/execution-providers/. torch built for ROCm calls its
# devices cuda; TensorFlow calls these, and Metal's, GPU.
# fmt: off
KINDS: Mapping[str, Kind] = {
    #                 onnxruntime  torch   TensorFlow
    "cpu":      Kind("CPU",        "cpu",  "CPU"),
    "cuda":     Kind("CUDA",       "cuda", "GPU"),
    "tensorrt": Kind("Tensorrt",   "cuda", "GPU"),
    "rocm":     Kind("ROCM",       "cuda", "GPU"),
    "migraphx": Kind("MIGraphX",   "cuda", "GPU"),
    "mps":      Kind("CoreML",     "mps",  "GPU"),
    "coreml":   Kind("CoreML",     "mps",  "GPU"),
    "dml":      Kind("Dml",        "",     "DML"),
    "openvino": Kind("OpenVINO",   "xpu",  "XPU"),
    "xpu":      Kind("OpenVINO",   "xpu",  "XPU"),
    "npu":      Kind("CANN",       "npu",  "NPU"),
    "hpu":      Kind("",           "hpu",  "HPU"),
    "xla":      Kind("",           "xla",  "TPU"),
    "tpu":      Kind("",           "xla",  "TPU"),
    "mtia":     Kind("",           "mtia", ""),
    "maia":     Kind("",           "maia", ""),
    "privateuseone": Kind("", "privateuseone", ""),
}
# fmt: on
ALIASES: Mapping[str, str] = {"gpu": "cuda", "directml": "dml"}
WITHOUT_INDEX = frozenset(("CoreML",))  # onnxruntime providers of a single device


# -- a device on which something runs -------------------------------------------------------------

_NAME = re.compile(r"/?(?:device:)?(?P<kind>[A-Za-z]+)(?::(?P<index>\d{1,3}))?")
_FULL = re.compile(r"/job:[^/]+/replica:\d+/task:\d+/device:(?P<kind>[A-Za-z]+):(?P<index>\d{1,3})")


@dataclass(frozen=True, slots=True)
class Device:
    """A device: a row of `KINDS` and an index."""

    kind: str
    index: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"

    @property
    def is_host(self) -> bool:
        """Whether it is the CPU on which everything runs by default."""
        return (self.kind, self.index) == ("cpu", 0)

    @property
    def torch(self) -> str:
        """Its name in torch; empty where torch has no such device."""
        kind = KINDS[self.kind].torch
        if kind == "cpu":
            return "cpu" if not self.index else ""
        return f"{kind}:{self.index}" if kind else ""

    @property
    def tensorflow(self) -> str:
        """Its name in TensorFlow, or empty; a CPU with an index is a logical one."""
        kind = KINDS[self.kind].tensorflow
        return f"{kind}:{self.index}" if kind else ""

    @property
    def provider(self) -> str:
        """The name of its onnxruntime provider; empty where onnxruntime has no such device."""
        name = KINDS[self.kind].provider
        return name + PROVIDER_SUFFIX if name and (name != "CPU" or not self.index) else ""

    def provider_options(self, *, allow_tf32: bool) -> dict[str, str]:
        """Return the provider's options: the device, and computing as the source does.

        Spec: https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html
        """
        name = KINDS[self.kind].provider
        if name in WITHOUT_INDEX or name == "CPU":
            return {}
        if name == "OpenVINO":
            return {"device_type": f"GPU.{self.index}" if self.index else "GPU"}
        options = {"device_id": str(self.index)}
        if name == "CUDA":
            options |= {"use_tf32": str(int(allow_tf32)), "cudnn_conv_algo_search": "DEFAULT"}
        return options


def parse_device(text: str) -> Device:
    """Return the device of a name, in torch's or TensorFlow's spelling.

    Raises:
        UsageError: It is not the name of a device.
    """
    match = _FULL.fullmatch(text) or _NAME.fullmatch(text)
    kind = match["kind"].lower() if match else ""
    kind = ALIASES.get(kind, kind)
    if match is None or kind not in KINDS:
        known = ", ".join(kind for kind in KINDS if kind != "cpu")
        raise UsageError(f"device={text!r}", expected=f"cuda:0, GPU:0, or another of: {known}")
    return Device(kind, int(match["index"] or 0))


# -- a device that a torch file is written for ----------------------------------------------------
#
# torch spells a device in two ways: as ``torch.device`` prints it, in code and graphs, and as a
# location on the storages of ``torch.save``. The two differ only for the CPU and Metal, which have
# no index in locations. ``xla``, ``mtia`` and ``maia`` have no storages that could be saved: torch
# writes the tensor as a CPU tensor, together with the name of its device.
#
# Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/c10/core/Device.cpp (names),
# https://github.com/pytorch/pytorch/blob/v2.13.0/torch/serialization.py (locations)

TORCH_KINDS = tuple(dict.fromkeys(kind.torch for kind in KINDS.values() if kind.torch))
MAX_TORCH_INDEX = 127  # c10::DeviceIndex is an int8; torch.device wraps what is larger
SINGLE = frozenset({"cpu", "mps"})  # a host has one of them, and their locations have no index
WITHOUT_STORAGE = frozenset({"xla", "mtia", "maia"})
# Names that torch does not know, and what they mean there.
TORCH_ALIASES: Mapping[str, str] = {
    **{name: kind.torch for name, kind in KINDS.items() if kind.torch and name not in TORCH_KINDS},
    "gpu": "cuda", "hip": "cuda", "metal": "mps", "none": "cpu", "gaudi": "hpu", "ascend": "npu",
}  # fmt: skip
_TORCH_NAME = re.compile(r"(?P<kind>[a-zA-Z_]+)(?::(?P<index>0|[1-9][0-9]*))?")


@dataclass(frozen=True, slots=True)
class TorchDevice:
    """A device that a torch file is written for.

    Attributes:
        kind: ``cpu``, ``cuda``, ….
        index: Its index; None for the device that is current where the file is loaded.
    """

    kind: str
    index: int | None = None

    def __str__(self) -> str:
        """Return it as ``torch.device`` prints it, which is how code and graphs spell it."""
        return self.kind if self.index is None else f"{self.kind}:{self.index}"

    @property
    def location(self) -> str:
        """The location that ``torch.save`` gives a storage on it."""
        return "cpu" if self.kind in WITHOUT_STORAGE else str(self)

    @property
    def has_storages(self) -> bool:
        """Whether its tensors are saved as storages of the device, not as CPU tensors."""
        return self.kind not in WITHOUT_STORAGE


def parse_torch_device(text: str | None) -> TorchDevice:
    """Return the device of a name in torch's spelling, the CPU for None.

    ``cpu:0`` and ``mps:0`` become ``cpu`` and ``mps``: `torch.load` does not know ``cpu:0`` as a
    location.

    Raises:
        UsageError: torch has no such device, or cannot keep tensors there.
    """
    if text is None:
        return TorchDevice("cpu")
    match = _TORCH_NAME.fullmatch(text)
    kind = match["kind"] if match else text.partition(":")[0]
    if match is None or kind not in TORCH_KINDS:
        known = TORCH_ALIASES.get(kind.lower())
        near = [known] if known else difflib.get_close_matches(kind.lower(), TORCH_KINDS, 1)
        expected = (
            f"one of {', '.join(TORCH_KINDS)}, with an index where there are several (cuda:1)"
        )
        rest = match["index"] or "" if match else ""
        meant = f"{near[0]}:{rest}" if near and rest else "".join(near)
        hint = f"Did you mean {meant!r}?" if near and near[0] != kind else None
        if kind == "meta":
            hint = "Tensors of the meta device have no elements"
        raise UsageError(f"device={text!r}", expected=expected, hint=hint)
    if match["index"] is None:
        return TorchDevice(kind)
    index = int(match["index"]) if len(match["index"]) < 4 else MAX_TORCH_INDEX + 1
    max_index = 0 if kind in SINGLE else MAX_TORCH_INDEX
    if index > max_index:
        expected = f"an index up to {max_index}" if max_index else kind
        raise UsageError(f"device={text!r}", expected=expected)
    return TorchDevice(kind, None if kind in SINGLE else index)


# -- a device that the nodes of a SavedModel name -------------------------------------------------
#
# Spec: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/util/device_name_utils.h

_SHORT = re.compile(r"/?(?:device:)?(?P<kind>cpu|gpu)(?::(?P<index>\d{1,4}))?", re.IGNORECASE)
_TASK = re.compile(
    r"/job:[A-Za-z][A-Za-z0-9_]*/replica:\d{1,6}/task:\d{1,6}/device:(?P<kind>CPU|GPU):\d{1,4}"
)
_KIND = re.compile(r"/(?:device:)?(?P<kind>[A-Za-z_]+):[\d*]+$")


def parse_tensorflow_device(text: str | None) -> str:
    """Return the name that nodes get: a device, or ``""`` for None and ``none``.

    ``gpu`` becomes ``/device:GPU:0``: without job and task, so that it holds under any server's
    name. A full name is kept as it is.

    Raises:
        UsageError: It is not the name of a device.
    """
    if text is None or text == "none":
        return ""
    if _TASK.fullmatch(text):
        return text
    short = _SHORT.fullmatch(text)
    if short is None:
        raise UsageError(
            f"device={text!r}",
            expected="none, cpu, gpu, GPU:1 or /job:localhost/replica:0/task:0/device:GPU:1",
        )
    return f"/device:{short['kind'].upper()}:{int(short['index'] or 0)}"


def tensorflow_kind(device: str) -> str:
    """Return ``CPU``, ``GPU``, ``TPU``, … of a node's device; ``""`` where the name has none."""
    match = _KIND.search(device)
    return match["kind"].upper() if match else ""


def describe_moves(counts: Mapping[str, int], device: object) -> str:
    """Return where something was, and where it is now: ``from cuda:0 (2), cuda:1 (3) to cpu``."""
    before = list_counts(counts) if len(counts) > 1 else next(iter(counts))
    return f"from {before} to {device}"
