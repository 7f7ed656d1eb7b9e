"""Commands that convert an artifact which does not load here."""

import shlex
from dataclasses import dataclass
from pathlib import PurePath

from converter.doctor.host import Host
from converter.doctor.loaders.tensorflow import count_gpus
from converter.doctor.loaders.torch import find_torch
from converter.doctor.source import Source


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, and why to run it."""

    command: str
    why: str


@dataclass(frozen=True, slots=True)
class Advice:
    """What `convert` makes of an artifact.

    Attributes:
        device: The device of this host to convert for, as the framework names it; "" for none.
        why: Why this device.
        commands: The best one first.
    """

    device: str
    why: str
    commands: tuple[Command, ...]


def advise(source: Source, host: Host) -> Advice:
    """Return what to do. No command needs the framework or the device to be present."""
    path = quote_path(source.path)
    device, why = choose_torch_device(host)
    portable = Command(
        f"convert {path} --to portable",
        "exact weights (safetensors), and the graph as ONNX where the source has one; needs no "
        "framework, no CUDA and no driver",
    )
    match source.format:
        case "torch" | "torch-members" | "torch-sharded" | "torch-dcp" | "torch-package":
            first = Command(
                f"convert {path} --to torch --device {device}",
                f"every storage tagged {device}: torch.load opens it here as it is, weights_only",
            )
            return Advice(device, why, (first, portable))
        case "torchscript" | "torch-export":
            target = "torchscript" if source.format == "torchscript" else "pt2"
            first = Command(
                f"convert {path} --to {target} --device {device}",
                f"the same program, its storages, constants and code moved to {device}",
            )
            return Advice(device, why, (first, portable))
        case "keras-h5" | "keras":
            first = _advise_keras(source, path)
            return Advice("", "a Keras file is for no device", (first, portable))
        case "savedmodel" | "graphdef" | "tf-checkpoint":
            return _advise_tensorflow(source, host, path, portable)
        case "safetensors":
            tagged = Command(
                f"convert {path} --to torch --device {device}", f"a torch state dict on {device}"
            )
            return Advice(device, why, (portable, tagged))
    inspect = Command(f"convert inspect {path}", "what it holds")
    return Advice("", "it is for no device", (inspect,))


def _advise_keras(source: Source, path: str) -> Command:
    if source.keras is not None and source.keras.config is None:
        return Command(f"convert {path} --to safetensors", "its weights, exact, by name")
    if any(finding.kind == "lambda-bytecode" for finding in source.findings):
        return Command(
            f"convert {path} --to onnx",
            "the graph as ONNX; the bytecode of Lambda layers is read, not run",
        )
    return Command(f"convert {path} --to keras", "a .keras file that today's Keras loads")


def _advise_tensorflow(source: Source, host: Host, path: str, portable: Command) -> Advice:
    gpus = count_gpus(host)
    device = "GPU:0" if gpus else "cpu"
    why = f"TensorFlow sees {gpus} GPU(s) here" if gpus else _explain_cpu(host, "TensorFlow")
    if source.format != "savedmodel":
        return Advice(device, why, (portable,))
    free = Command(
        f"convert {path} --to savedmodel --device none",
        "the same SavedModel, one replica, with no placement: the runtime decides",
    )
    out = quote_path(f"{PurePath(source.path).name}.savedmodel")
    placed = Command(
        f"convert {path} --to savedmodel --device {device} -o {out}",
        f"variables and operations placed on {device}, explicitly",
    )
    proof = Command(
        f"convert verify {path} {out} --device GPU:0 --require device",
        "proves where variables are stored and operations run; exit 1 if that is the CPU",
    )
    return Advice(device, why, (free, placed, portable, *([proof] if gpus else [])))


def choose_torch_device(host: Host) -> tuple[str, str]:
    """Return the device of this host that torch can use, and why."""
    torch = find_torch(host)
    if torch.cuda_devices:
        return "cuda", f"torch sees {torch.cuda_devices} CUDA device(s) here"
    if torch.mps:
        return "mps", "torch sees Apple's GPU here"
    if torch.xpu:
        return "xpu", "torch sees an Intel GPU here"
    return "cpu", _explain_cpu(host, "torch")


def _explain_cpu(host: Host, framework: str) -> str:
    """Return in one clause why the CPU is used."""
    nvidia = host.nvidia
    if not nvidia.gpus and not nvidia.pci_gpus and not nvidia.driver:
        reason = "this host has no NVIDIA GPU and no driver"
    elif not nvidia.driver:
        reason = "there is a GPU and no driver for it"
    elif not nvidia.gpus:
        reason = "the driver shows no GPU"
    elif not host.visible_gpus:
        reason = "CUDA_VISIBLE_DEVICES hides every GPU"
    else:
        reason = f"{framework} cannot use the GPU of this host (see the findings)"
    return f"{reason}, so the CPU is used"


def quote_path(path: str) -> str:
    """Return a path quoted for a shell, and not mistaken for an option of ours."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)
