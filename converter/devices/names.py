"""Names of devices: what ``--device`` may say, and what each runtime calls that device.

One table, for every runtime names them otherwise: ``cuda:0`` is ``GPU:0`` to TensorFlow and
CUDAExecutionProvider with device_id 0 to onnxruntime.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from formats.errors import UsageError

_NAME = re.compile(r"/?(?:device:)?(?P<kind>[A-Za-z]+)(?::(?P<index>\d{1,3}))?")
_FULL = re.compile(r"/job:[^/]+/replica:\d+/task:\d+/device:(?P<kind>[A-Za-z]+):(?P<index>\d{1,3})")
PROVIDER_SUFFIX = "ExecutionProvider"


@dataclass(frozen=True, slots=True)
class Kind:
    """What runtimes call devices of a kind; empty where a runtime has none of it.

    Attributes:
        provider: Of onnxruntime, without ``ExecutionProvider``.
        torch: The type of a torch.device.
        tensorflow: The type of a TensorFlow device.
    """

    provider: str
    torch: str
    tensorflow: str


# Providers: https://onnxruntime.ai/docs/execution-providers/. torch built for ROCm calls its
# devices cuda; TensorFlow has them, and Metal's, as GPU.
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
WITHOUT_INDEX = frozenset(("CoreML",))


@dataclass(frozen=True, slots=True)
class Device:
    """A device: a row of `KINDS`, and which of them."""

    kind: str
    index: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"

    @property
    def is_host(self) -> bool:
        """Whether it is the CPU, where everything runs anyway."""
        return (self.kind, self.index) == ("cpu", 0)

    @property
    def torch(self) -> str:
        """What torch calls it; empty where torch has no such device."""
        kind = KINDS[self.kind].torch
        if kind == "cpu":
            return "cpu" if not self.index else ""
        return f"{kind}:{self.index}" if kind else ""

    @property
    def tensorflow(self) -> str:
        """What TensorFlow calls it, or nothing; a CPU with a number is a logical one."""
        kind = KINDS[self.kind].tensorflow
        return f"{kind}:{self.index}" if kind else ""

    @property
    def provider(self) -> str:
        """Onnxruntime's name of the provider; empty where it has no such device."""
        name = KINDS[self.kind].provider
        return name + PROVIDER_SUFFIX if name and (name != "CPU" or not self.index) else ""

    def provider_options(self, *, allow_tf32: bool) -> dict[str, str]:
        """Return what the provider is told: which device, and to compute as the source does.

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
        UsageError: It names none.
    """
    found = _FULL.fullmatch(text) or _NAME.fullmatch(text)
    kind = found["kind"].lower() if found else ""
    kind = ALIASES.get(kind, kind)
    if found is None or kind not in KINDS:
        known = ", ".join(kind for kind in KINDS if kind != "cpu")
        raise UsageError(f"--device {text}", expected=f"cuda:0, GPU:0, or another of: {known}")
    return Device(kind, int(found["index"] or 0))
