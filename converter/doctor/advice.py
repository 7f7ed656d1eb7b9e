"""What `convert` does about an artifact that does not load here: commands that can be run."""

import shlex
from dataclasses import dataclass
from pathlib import PurePath

from converter.doctor.host import Host
from converter.doctor.loaders import tensorflow as tensorflow_rules
from converter.doctor.loaders import torch as torch_rules
from converter.doctor.source import Source


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, and what comes of it."""

    command: str
    why: str


@dataclass(frozen=True, slots=True)
class Advice:
    """What `convert` makes of an artifact.

    Attributes:
        device: What of this host it can be issued for, in torch's or TensorFlow's words.
        why: Why that one.
        commands: The best first.
    """

    device: str
    why: str
    commands: tuple[Command, ...]


TORCH = ("torch", "torch-members", "torch-sharded", "torch-dcp", "torch-package")
TENSORFLOW = ("savedmodel", "graphdef", "tf-checkpoint")


def advise(source: Source, host: Host) -> Advice:
    """Return what to do. No command needs the framework or the device to be here."""
    path = _quoted(source.path)
    device, why = torch_device(host)
    portable = Command(
        f"convert {path} --to portable",
        "exact weights (safetensors), and the graph as ONNX where the source has one; needs no "
        "framework, no CUDA and no driver",
    )
    if source.format in TORCH:
        first = Command(
            f"convert {path} --to torch --device {device}",
            f"every storage tagged {device}: torch.load opens it here as it is, weights_only",
        )
        return Advice(device, why, (first, portable))
    if source.format in ("torchscript", "torch-export"):
        target = "torchscript" if source.format == "torchscript" else "pt2"
        first = Command(
            f"convert {path} --to {target} --device {device}",
            f"the same program, its storages, constants and code moved to {device}",
        )
        return Advice(device, why, (first, portable))
    if source.format in ("keras-h5", "keras"):
        if source.keras is not None and source.keras.config is None:
            weights = Command(f"convert {path} --to safetensors", "its weights, exact, by name")
            return Advice("", "a Keras file is for no device", (weights, portable))
        if any(found.kind == "lambda-bytecode" for found in source.findings):
            read = "the graph as ONNX; the byte-code of Lambda layers is read, not run"
            graph = Command(f"convert {path} --to onnx", read)
            return Advice("", "a Keras file is for no device", (graph, portable))
        again = Command(f"convert {path} --to keras", "a .keras file that today's Keras loads")
        return Advice("", "a Keras file is for no device", (again, portable))
    if source.format in TENSORFLOW:
        return _tensorflow(source, host, path, portable)
    if source.format == "safetensors":
        tagged = Command(
            f"convert {path} --to torch --device {device}", f"a state dict of torch, on {device}"
        )
        return Advice(device, why, (portable, tagged))
    inspect = Command(f"convert inspect {path}", "what it holds")
    return Advice("", "it is for no device", (inspect,))


def _tensorflow(source: Source, host: Host, path: str, portable: Command) -> Advice:
    gpus = tensorflow_rules.gpus(host)
    device = "GPU:0" if gpus else "cpu"
    why = f"TensorFlow sees {gpus} GPU(s) here" if gpus else _no_gpu(host, "TensorFlow")
    if source.format != "savedmodel":
        return Advice(device, why, (portable,))
    free = Command(
        f"convert {path} --to savedmodel --device none",
        "the same SavedModel, one replica, with no placement: the runtime decides",
    )
    out = _quoted(f"{PurePath(source.path).name}.savedmodel")
    placed = Command(
        f"convert {path} --to savedmodel --device {device} -o {out}",
        f"variables and operations placed on {device}, explicitly",
    )
    commands = [free, placed, portable]
    if gpus:
        commands.append(
            Command(
                f"convert verify {path} {out} --device GPU:0 --require device",
                "proves where the variables sit and the operations run; exit 1 on a silent CPU",
            )
        )
    return Advice(device, why, tuple(commands))


def torch_device(host: Host) -> tuple[str, str]:
    """Return the device of this host that torch can use, and why that one."""
    here = torch_rules.view(host)
    if here.cuda_devices:
        return "cuda", f"torch sees {here.cuda_devices} CUDA device(s) here"
    if here.mps:
        return "mps", "torch sees Apple's GPU here"
    if here.xpu:
        return "xpu", "torch sees an Intel GPU here"
    return "cpu", _no_gpu(host, "torch")


def _no_gpu(host: Host, name: str) -> str:
    """Say in one clause why the CPU is what is left."""
    nvidia = host.nvidia
    if not nvidia.gpus and not nvidia.pci_gpus and not nvidia.driver:
        return "this host has no NVIDIA GPU and no driver: the CPU it is"
    if not nvidia.driver:
        return "there is a GPU and no driver for it: the CPU it is"
    if not nvidia.gpus:
        return "the driver shows no GPU: the CPU it is"
    if not host.visible_gpus:
        return "CUDA_VISIBLE_DEVICES hides every GPU: the CPU it is"
    return f"{name} cannot use the GPU that is here (see the findings): the CPU it is"


def _quoted(path: str) -> str:
    """Return a path as a shell takes it, and as no option of ours."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)
