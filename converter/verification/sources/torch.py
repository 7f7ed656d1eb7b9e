"""Run a torch source in torch: a program, a pickled module, or a state dict and its factory.

The child runs in this Python, or in the one that ``CONVERT_TORCH_PYTHON`` names. It loads the
artifact with torch's own loader, so that errors of our reader are found. A program that names
another device than the requested one is run from a copy moved there: see `move_to_device`.
"""

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from converter.child import process as child
from converter.child.process import TORCH_PYTHON_VARIABLE, Allowance
from converter.child.trust import ROOT, Trusted, plain
from converter.lower.states import RecordedState
from converter.options import Arch
from converter.verification.placement import CPU, DeviceRequest
from converter.verification.runners import (
    CHILDREN,
    PreparedInputs,
    RunSkipped,
    SourceRun,
    parse_run,
)
from formats.artifact import Artifact
from formats.core.bundle import JSON, Bundle, FixedInput, TensorSpec
from formats.errors import CorruptError, UnsupportedError

RUNNER = CHILDREN / "run_torch.py"
STATE_DICT = "state_dict"  # runs with a factory that the user names


@dataclass(frozen=True, slots=True)
class Torch:
    """A torch source, as its child process loads it.

    Attributes:
        path: The artifact.
        form: ``torchscript``, ``exported_program``, ``torch_modules`` or ``state_dict``.
        dtypes: Dtypes of the inputs of the converted graph, in order.
        trust: Trusted modules with the classes of the source.
        arch: Factory of the module that a state dict belongs to.
        devices: Devices that the code or graph of the program names.
        fixed: Arguments that are constants of the conversion.
        task: What the model of a Hugging Face folder is for.
        states: Attributes that it keeps between runs, with dots; the last inputs are their values.
        part: Which of the parts of that model, one of `generation.PARTS`; empty where it is whole.
    """

    path: Path
    form: str
    dtypes: tuple[str, ...]
    trust: Sequence[Trusted] = ()
    arch: Arch | None = None
    devices: frozenset[str] = field(default_factory=frozenset)
    fixed: Mapping[str, JSON] = field(default_factory=dict)
    task: str | None = None
    states: tuple[str, ...] = ()
    part: str = ""


def fixed_arguments(inputs: Sequence[TensorSpec]) -> dict[str, JSON]:
    """Return the arguments among a user's inputs that are fixed, and their values."""
    return {spec.name: spec.value for spec in inputs if isinstance(spec, FixedInput)}


def state_paths(bundle: Bundle, states: Sequence[RecordedState]) -> tuple[str, ...]:
    """Return the attributes of the source that are states: outputs may name tensors otherwise."""
    origins: dict[str, str] = {}  # of an exported program, members of its archive
    if topology_kind(bundle, None) == "torchscript":
        origins = {n: tensor.origin.replace("/", ".") for n, tensor in bundle.weights.items()}
    return tuple(origins.get(state.tensor) or state.tensor for state in states)


def may_have_torch() -> bool:
    """Return whether torch may be installed, without importing it."""
    return bool(os.environ.get(TORCH_PYTHON_VARIABLE)) or bool(importlib.util.find_spec("torch"))


def topology_kind(bundle: Bundle, arch: Arch | None) -> str:
    """Return the form of a source: ``state_dict`` with a factory, else the kind of its topology."""
    if bundle.topology is None:
        return STATE_DICT if arch is not None else ""
    return bundle.topology.kind


def list_named_devices(bundle: Bundle) -> frozenset[str]:
    """Return the devices that a program's code names; torch can remap only those of its tensors."""
    if bundle.topology is None:
        return frozenset()
    summary = bundle.topology.summary
    if bundle.topology.kind == "torchscript":
        return frozenset(_keys(summary.get("devices_in_code")))
    if bundle.topology.kind != "exported_program":
        return frozenset()
    programs = [program for program in summary.values() if isinstance(program, Mapping)]
    named = [device for program in programs for device in _keys(program.get("devices"))]
    return frozenset((*named, *bundle.metadata.devices))


def _keys(value: object) -> list[str]:
    return [str(key) for key in value] if isinstance(value, Mapping) else []


def move_to_device(asked: Torch, device: str, folder: Path) -> tuple[Torch, tuple[str, ...]]:
    """Return the program to run and notes: a moved copy if the program names other devices.

    Args:
        asked: The source.
        device: Device to run it on, as torch names it.
        folder: Folder of the copy.
    """
    elsewhere = sorted(asked.devices - {device, device.removesuffix(":0")})
    if not elsewhere:
        return asked, ()
    # Imported late: few programs name another device.
    from converter.devices.torch.programs import move_program

    path = folder / f"moved-to-{device.replace(':', '-')}{asked.path.suffix}"
    try:
        if not path.exists():
            move_program(Artifact(asked.path), asked.form, device, path)
    except (UnsupportedError, CorruptError):
        return asked, ()  # torch will report what is wrong with it
    note = f"the source names {', '.join(elsewhere)}: it was run moved to {device}"
    return replace(asked, path=path), (note,)


def run_torch(
    asked: Torch,
    prepared: PreparedInputs,
    allowance: Allowance,
    *,
    layers: Sequence[str] = (),
    on: DeviceRequest = CPU,
    in_float64: bool = False,
) -> SourceRun | RunSkipped:
    """Run a source in torch on every case.

    Args:
        asked: The source.
        prepared: The inputs.
        allowance: Limits of the child process.
        layers: Paths of submodules, or names of a program's nodes, whose outputs are returned too.
        on: Device to run on.
        in_float64: Whether to compute in float64 what the source computes in float32.

    Raises:
        DependencyError: The child died, hung, or took too much memory.
    """
    if on.device is not None and not on.device.torch:
        text = f"torch has no device {on.device}"
        return RunSkipped(text, is_missing=False, lacks_device=True)
    asked, notes = move_to_device(asked, on.device.torch if on.device else "cpu", prepared.folder)
    question: dict[str, Any] = {
        "form": asked.form,
        "source": str(asked.path.absolute()),
        "arch": _plain(asked.arch),
        "task": asked.task,
        "part": asked.part or None,
        "trusted": plain(asked.trust),
        "root": str(ROOT),
        "inputs": prepared.names,
        "dtypes": asked.dtypes,
        "fixed": dict(asked.fixed),
        "cases": prepared.groups,
        "states": asked.states,
        "first": [number for number, case in enumerate(prepared.cases) if case.is_first],
        "layers": list(layers),
        "in_float64": in_float64,
        **on.question(on.device.torch if on.device is not None else ""),
    }
    answer = child.ask(
        RUNNER,
        prepared.folder,
        question,
        what="torch",
        allowance=allowance,
        python=os.environ.get(TORCH_PYTHON_VARIABLE) or sys.executable,
        environment=on.environment(),
    )
    versions = dict(answer.get("versions", {}))
    name = f"torch {versions.get('torch', '')}".strip()
    said = f"{name}: {answer.get('error')}"
    match answer.get("status"):
        case "absent":
            return RunSkipped(said, is_missing=True)
        case "refused":
            text = f"{name}: running it would run code or touch files ({answer.get('error')})"
            return RunSkipped(text, is_missing=False)
        case "no device":
            return RunSkipped(said, is_missing=False, lacks_device=True)
        case "done":
            run = parse_run("torch", versions, answer, prepared)
        case _:
            return RunSkipped(said, is_missing=False)
    if not run.chosen:
        said = f"{name}: {run.refused[0]}"
        return RunSkipped(said, is_missing=False, failure=said)
    return replace(
        run,
        unstable=frozenset(answer["unstable"]),
        random=tuple(answer["random"]),
        notes=(*run.notes, *notes),
    )


@dataclass(frozen=True, slots=True)
class RunInTorch:
    """A program as a model to compare: torch runs it, moved where it names another device."""

    asked: Torch
    allowance: Allowance

    def run(
        self, prepared: PreparedInputs, layers: Sequence[str] = (), on: DeviceRequest = CPU
    ) -> SourceRun | RunSkipped:
        """Run it in torch."""
        return run_torch(self.asked, prepared, self.allowance, layers=layers, on=on)

    def run_in_float64(self, prepared: PreparedInputs) -> SourceRun | RunSkipped:
        """Run it in torch, in float64."""
        return run_torch(self.asked, prepared, self.allowance, in_float64=True)


def _plain(arch: Arch | None) -> Mapping[str, Any] | None:
    if arch is None:
        return None
    return {"factory": arch.factory, "arguments": dict(arch.arguments)}
