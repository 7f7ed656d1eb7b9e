"""Graphs that only their own framework can make: torch programs, exported by torch in a child.

What torch writes is an ONNX file, which is read as any other; its tensors are then looked for
among the source's own, so that a bundle holds each weight once and under the source's name.
"""

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from converter.capture import examples
from converter.capture.examples import Example
from converter.capture.matching import Kept, matched
from converter.child import process as child
from converter.child.process import TORCH_PYTHON_VARIABLE, Allowance
from converter.child.trust import ROOT, Trusted, digest, plain
from converter.lower.graph import Attribute, Graph, Shape
from converter.lower.onnx.lowering import lower
from converter.options import Arch
from formats.artifact import Artifact
from formats.core.bundle import Bundle, TensorSpec
from formats.errors import (
    EnvironmentFault,
    InternalError,
    SafetyError,
    UnsupportedError,
    UsageError,
)
from formats.limits import DEFAULT, Limits
from formats.onnx import files as onnx_files

SCRIPT = Path(__file__).with_name("exporter_torch.py")
TORCH_EXTRA = 'pip install "model-convert[torch]"'
FORMS = ("torchscript", "exported_program", "torch_modules")
STATE_DICT = "state_dict"
EXPORTERS = ("export", "torchscript")
# No class of a library may fetch code or weights while a source is opened.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


@dataclass(frozen=True, slots=True)
class Request:
    """What a graph shall be like, and what may be done for it.

    Attributes:
        opset: Version of ONNX's operators.
        exporter: ``export`` or ``torchscript``; anything else tries both, in this order.
        arch: Who makes the module that a state dict is of.
        inputs: Of a program that does not record them.
        hinted: The same as a registry declares them, where no example of them is there.
        trust: Modules of the user's whose code may run, in the child.
        allowance: What the child may use.
        limits: What the file that it writes may ask of us.
    """

    opset: int = 18
    exporter: str = "auto"
    arch: Arch | None = None
    inputs: tuple[TensorSpec, ...] = ()
    hinted: tuple[TensorSpec, ...] = ()
    trust: tuple[Trusted, ...] = ()
    allowance: Allowance = field(default_factory=Allowance)
    limits: Limits = DEFAULT


@dataclass(frozen=True, slots=True)
class Captured:
    """A graph, and the bundle whose weights it names: the source's, and what the exporter made."""

    bundle: Bundle
    graph: Graph


def capture(source: Path, bundle: Bundle, request: Request) -> Captured:
    """Return the graph that torch makes of a source.

    Args:
        source: The artifact.
        bundle: As read from it.
        request: What is wanted.

    Raises:
        UnsupportedError: It is no program, inputs must be given, or torch cannot load or export it.
        UsageError: The inputs or the factory are not this program's.
        SafetyError: It takes code that nobody trusts.
        EnvironmentFault: torch is not here, or its child died.
    """
    form = _form(bundle, request)
    # What is left of the exported file is read when weights are written: it goes with them.
    folder = Kept()
    here = folder.path
    if form == "exported_program" and request.inputs:
        raise UsageError(
            "an exported program records its inputs", where=source.name, hint="Leave --input away"
        )
    records = form == "exported_program"
    known = [] if request.inputs or records else examples.beside(source)
    specs = request.inputs or [e.spec for e in known] or ([] if records else request.hinted)
    question = {
        "form": form,
        "source": str(_on_cpu(source, form, bundle, here, request.limits).absolute()),
        "arch": _plain(request.arch),
        "trusted": plain(request.trust),
        "root": str(ROOT),
        "inputs": [_spec(s) for s in specs],
        "values": _saved(known, here),
        "exporters": [request.exporter] if request.exporter in EXPORTERS else [*EXPORTERS],
        "opset": request.opset,
    }
    answer = child.ask(
        SCRIPT,
        here,
        question,
        what="torch's exporter",
        allowance=request.allowance,
        python=os.environ.get(TORCH_PYTHON_VARIABLE) or sys.executable,
        environment=OFFLINE,
    )
    if answer.get("status") != "done":
        _refuse(source, answer, request)
    exported = onnx_files.read(Artifact(here / "model.onnx", request.limits))
    graph = lower(exported, limits=request.limits)
    _tell(graph, answer, request.trust if form in ("torch_modules", STATE_DICT) else ())
    made = matched(graph, exported.weights, bundle, folder)
    return Captured(made, graph)


def _form(bundle: Bundle, request: Request) -> str:
    """Return what the child loads the source as."""
    kind = bundle.topology.kind if bundle.topology else ""
    if kind in FORMS and not (kind == "torch_modules" and request.arch is not None):
        return kind
    if request.arch is None:
        raise UnsupportedError(
            "holds weights and no program",
            hint="--arch package.module:factory says who makes the module that they are of",
        )
    return STATE_DICT


def _on_cpu(source: Path, form: str, bundle: Bundle, folder: Path, limits: Limits) -> Path:
    """Return the source, or a copy of it that names no other device than the CPU."""
    if form not in ("torchscript", "exported_program") or bundle.topology is None:
        return source
    named = {*bundle.metadata.devices}
    for key in ("devices_in_code", "devices"):  # of TorchScript, and of an exported program
        said = bundle.topology.summary.get(key)
        named.update(said if isinstance(said, Mapping) else ())
    if named <= {"cpu"}:
        return source
    # Imported late: few programs name another device.
    from converter.devices.torch.programs import move_program

    move_program(Artifact(source, limits), form, "cpu", folder / source.name)
    return folder / source.name


def _plain(arch: Arch | None) -> dict[str, Any] | None:
    return None if arch is None else {"factory": arch.factory, "arguments": dict(arch.arguments)}


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape or ())}


def _saved(known: Sequence[Example], folder: Path) -> dict[str, str]:
    """Write examples down for the child."""
    import numpy as np

    names = {}
    for i, example in enumerate(known):
        names[example.spec.name] = f"example-{i}.npy"
        np.save(folder / names[example.spec.name], example.array)
    return names


def _refuse(source: Path, answer: Mapping[str, Any], request: Request) -> NoReturn:
    """Raise what an answer without a graph means."""
    versions = answer.get("versions", {})
    torch = f"torch {versions.get('torch', '')}".strip()
    error = str(answer.get("error", ""))
    match answer.get("status"):
        case "absent":
            lacking = " and ".join(answer["lacking"])
            raise EnvironmentFault(
                f"a graph of it takes {lacking}, which is not installed", where=source.name,
                hint=TORCH_EXTRA,
            )  # fmt: skip
        case "refused":
            raise SafetyError(error, where=source.name)
        case "mismatch":
            factory = request.arch.factory if request.arch else ""
            raise UsageError(
                f"--arch {factory} is not this state dict's: {error}", where=source.name,
                hint="--arch-args gives the factory its arguments, as JSON",
            )  # fmt: skip
        case "inputs":
            kind = UsageError if request.inputs else UnsupportedError
            raise kind(error, where=source.name, hint=f"Say them: {_command(answer)}")
        case "failed":
            raise UnsupportedError(f"{torch} makes no graph of it: {error}", where=source.name)
    raise InternalError(f"the exporter answered {answer.get('status')!r:.60}")


def _command(answer: Mapping[str, Any]) -> str:
    """Return an example of options that name a program's inputs."""
    dtype, shape = answer["guess"]
    sizes = ",".join(map(str, shape))
    names = answer["parameters"] or ["input"]
    return " ".join(f"--input {name}:{dtype}:{sizes}" for name in names)


def _tell(graph: Graph, answer: Mapping[str, Any], trust: Sequence[Trusted]) -> None:
    """Say who made a graph, and call its axes what they were called."""
    versions = answer["versions"]
    graph.exporter = f"{answer['exporter']} {versions['torch']}"
    graph.notes = [str(note) for note in answer["notes"]]
    graph.metadata = {}
    graph.name = "main_graph"
    for trusted in trust:
        file = trusted.path or _origin(trusted.module)
        if file is not None:
            graph.trusted[trusted.module] = digest(file / "__init__.py" if file.is_dir() else file)
    symbols: dict[str, str] = {}
    for name, axes in answer["axes"].items():
        shape: Shape = graph.specs[name].shape if name in graph.specs else ()
        for axis, called in axes.items():
            found = shape[int(axis)] if int(axis) < len(shape) else None
            if not isinstance(found, str):
                raise UnsupportedError(
                    f"torch's exporter fixed axis {axis} of {name!r} at {found}",
                    hint=f"Give it that size in --input, in place of {called!r}",
                )
            symbols.setdefault(found, called)
    _rename_axes(graph, symbols)


def _origin(module: str) -> Path | None:
    spec = importlib.util.find_spec(module)
    return Path(spec.origin) if spec and spec.origin else None


def _rename_axes(graph: Graph, symbols: Mapping[str, str]) -> None:
    """Call axes of a graph, and of those inside it, by other names."""
    for name, spec in graph.specs.items():
        shape = tuple(symbols.get(n, n) if isinstance(n, str) else n for n in spec.shape)
        graph.specs[name] = replace(spec, shape=shape)
    for node in graph.nodes:
        values: Sequence[Attribute] = tuple(node.attributes.values())
        for value in values:
            if isinstance(value, Graph):
                _rename_axes(value, symbols)
