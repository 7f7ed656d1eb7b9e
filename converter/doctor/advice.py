"""Commands that convert an artifact which does not load here."""

import shlex
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

from converter.doctor.host import Host
from converter.doctor.loaders.tensorflow import count_gpus
from converter.doctor.loaders.torch import find_torch
from converter.doctor.source import Source
from converter.options import Options
from converter.pipeline import steps
from formats.errors import ConvertError
from formats.limits import Limits


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, and why to run it.

    Attributes:
        command: The line, quoted for a shell.
        why: What it makes, and what that is good for.
        options: Of the conversion that it runs; None if it is another command.
    """

    command: str
    why: str
    options: Options | None = field(default=None, repr=False)


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

    def plain(self) -> dict[str, Any]:
        """Return it as JSON types."""
        commands = [{"command": c.command, "why": c.why} for c in self.commands]
        return {"device": self.device, "why": self.why, "commands": commands}


def advise(source: Source, host: Host) -> Advice:
    """Return what to do. No command needs the framework or the device to be present."""
    device, why = choose_torch_device(host)
    portable = _convert(
        source, "portable",
        "exact weights (safetensors), and the graph as ONNX where the source has one; needs no "
        "framework, no CUDA and no driver",
    )  # fmt: skip
    match source.format:
        case (
            "torch"
            | "torch-members"
            | "torch-sharded"
            | "torch-dcp"
            | "torch-deepspeed"
            | "torch-megatron"
            | "torch-zarr"
            | "torch-ranks"
            | "torch-package"
        ):
            tagged = f"every storage tagged {device}: torch.load opens it here, weights_only"
            return Advice(device, why, (_convert(source, "torch", tagged, device), portable))
        case "torchscript" | "torch-export":
            target = "torchscript" if source.format == "torchscript" else "pt2"
            moved = f"the same program, its storages, constants and code moved to {device}"
            return Advice(device, why, (_convert(source, target, moved, device), portable))
        case "keras-h5" | "keras":
            why = "a Keras file is for no device"
            return Advice("", why, (*_advise_keras(source), portable))
        case "savedmodel" | "graphdef" | "tf-checkpoint":
            return _advise_tensorflow(source, host, portable)
        case "safetensors":
            tagged = f"a torch state dict on {device}"
            return Advice(device, why, (portable, _convert(source, "torch", tagged, device)))
    inspect = Command(f"convert inspect {quote_path(source.path)}", "what it holds")
    return Advice("", "it is for no device", (inspect,))


def try_commands(advice: Advice, source: Source, limits: Limits) -> Advice:
    """Return the advice without the conversions that are not supported for this source.

    Each is planned as ``--dry-run`` does it: all but writing.
    """

    def works(command: Command) -> bool:
        if command.options is None:
            return True
        options = replace(command.options, format=source.format, limits=limits)
        try:
            for _ in steps(source.file, None, options, dry_run=True):
                pass
        except ConvertError:
            return False
        return True

    return replace(advice, commands=tuple(filter(works, advice.commands)))


def _convert(
    source: Source, target: str, why: str, device: str | None = None, out: str = ""
) -> Command:
    """Return the command that converts a source to a target."""
    words = f"convert {quote_path(source.path)} --to {target}"
    words += f" --device {device}" if device else ""
    words += f" -o {out}" if out else ""
    return Command(words, why, Options(to=target, device=device))


def _advise_keras(source: Source) -> tuple[Command, ...]:
    if source.keras is not None and source.keras.config is None:
        return (_convert(source, "safetensors", "its weights, exact, by name"),)
    return (
        _convert(source, "keras", "a .keras file that the current Keras loads"),
        _convert(source, "onnx", "the graph as ONNX; bytecode of Lambda layers is read, not run"),
    )


def _advise_tensorflow(source: Source, host: Host, portable: Command) -> Advice:
    gpus = count_gpus(host)
    device = "GPU:0" if gpus else "cpu"
    why = f"TensorFlow sees {gpus} GPU(s) here" if gpus else _explain_cpu(host, "TensorFlow")
    if source.format != "savedmodel":
        return Advice(device, why, (portable,))
    replica = "the same SavedModel, one replica, with no placement: the runtime decides"
    free = _convert(source, "savedmodel", replica, "none")
    out = quote_path(f"{PurePath(source.path).name}.savedmodel")
    explicit = f"variables and operations placed on {device}, explicitly"
    placed = _convert(source, "savedmodel", explicit, device, out)
    proof = Command(
        f"convert verify {quote_path(source.path)} {out} --device GPU:0 --require device",
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
