"""Have torch export a program, in a child process.

torch writes an ONNX file, which is read like any other. Its tensors are then matched with the
source's own, so that a bundle holds each weight once and under the source's name.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from converter.capture import examples
from converter.capture.examples import Example
from converter.capture.generation import WITH_PAST
from converter.capture.matching import TemporaryFolder, match_weights
from converter.capture.pretrained import TASKS
from converter.child import process as child
from converter.child.process import TORCH_PYTHON_VARIABLE, Allowance
from converter.child.trust import ROOT, Trusted, digest, plain
from converter.extras import describe_install
from converter.lower import dims
from converter.lower import lower as lower_bundle
from converter.lower.graph import Attribute, Graph, Node, Shape
from converter.lower.onnx.lowering import lower
from converter.options import Arch
from converter.passes import simplify
from formats import components, hugging_face
from formats.artifact import Artifact
from formats.core.bundle import Bundle, FixedInput, TensorSpec
from formats.core.weights import Tensor
from formats.errors import (
    CorruptError,
    DependencyError,
    InternalError,
    SafetyError,
    UnsupportedError,
    UsageError,
)
from formats.limits import DEFAULT, Limits
from formats.onnx import files as onnx_files
from formats.torch import export as torch_export

SCRIPT = Path(__file__).with_name("torch_exporter.py")
UNNAMED = "model"  # stem of the file of a program without a name
PRETRAINED, SENTENCES = hugging_face.KIND, components.SENTENCES
# Form of a folder -> the extra with the library that loads it.
FOLDERS = {
    PRETRAINED: "transformers", hugging_face.TIMM: "timm", hugging_face.DIFFUSERS: "diffusers",
    SENTENCES: "sentence-transformers",
}  # fmt: skip
OF_IMAGES = (hugging_face.TIMM, hugging_face.DIFFUSERS)  # forms whose images may be of any size
FORMS = ("torchscript", "exported_program", "torch_modules", *FOLDERS)
STATE_DICT = "state_dict"
TRUSTING = ("torch_modules", STATE_DICT, PRETRAINED, SENTENCES)  # forms that may run trusted code
EXPORTERS = ("export", "torchscript")
# No class of a library may fetch code or weights while a source is opened.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """How a program is exported.

    Attributes:
        opset: ONNX opset version.
        exporter: ``export`` or ``torchscript``; any other value tries both, in this order.
        arch: Factory of the module that a state dict belongs to.
        task: What the model of a Hugging Face folder is for.
        inputs: Inputs of a program that does not record them.
        hinted: Inputs that a registry declares, used where there are no example inputs.
        fixes_images: Whether height and width of images are the model's own, and not free.
        trust: The user's modules whose code may run in the child.
        allowance: Time and memory of the child.
        limits: For reading the file that the child writes.
    """

    opset: int = 18
    exporter: str = "auto"
    arch: Arch | None = None
    task: str | None = None
    inputs: tuple[TensorSpec, ...] = ()
    hinted: tuple[TensorSpec, ...] = ()
    fixes_images: bool = False
    trust: tuple[Trusted, ...] = ()
    allowance: Allowance = field(default_factory=Allowance)
    limits: Limits = DEFAULT


@dataclass(frozen=True, slots=True)
class Captured:
    """Graphs and the bundle whose weights they name: the source's, and those the exporter made."""

    bundle: Bundle
    graphs: tuple[Graph, ...]


def capture_graphs(source: Path, bundle: Bundle, request: CaptureRequest) -> Captured:
    """Return the graphs that torch exports from a source: one, or one for each part of its model.

    Where height and width of images cannot be free, they are the model's own.

    Args:
        source: The artifact.
        bundle: As read from it.
        request: How it is exported.

    Raises:
        ConvertError: As `_capture`.
    """
    try:
        return _capture(source, bundle, request)
    except UnsupportedError as e:
        if request.inputs or _form(bundle, request) not in OF_IMAGES:
            raise
        with suppress(UnsupportedError):
            captured = _capture(source, bundle, replace(request, fixes_images=True))
            note = f"height and width of images are fixed: {e.found}"
            captured.graphs[0].notes.insert(0, note)
            return captured
        raise


def _capture(source: Path, bundle: Bundle, request: CaptureRequest) -> Captured:
    """Return the graphs that torch exports from a source.

    Args:
        source: The artifact.
        bundle: As read from it.
        request: How it is exported.

    Raises:
        UnsupportedError: The source is not a program, its inputs are unknown, or torch cannot load
            or export it.
        CorruptError: A folder lacks tensors of its model.
        UsageError: The inputs or the factory do not fit the program.
        SafetyError: It needs code that is not trusted.
        DependencyError: torch is not installed, or its child died.
    """
    form = _form(bundle, request)
    if form in FOLDERS:
        _check_folder(source, bundle, request, form)
    # The exported file is read again when weights are written: its folder lives as long as they do.
    folder = TemporaryFolder()
    here = folder.path
    if form == "exported_program" and request.inputs:
        raise UsageError(
            "an exported program records its inputs", where=source.name, hint="Leave inputs= away"
        )
    if any(isinstance(spec, FixedInput) for spec in request.inputs):
        raise UnsupportedError(
            "fixed arguments with torch's exporters", where=source.name,
            hint="They are fixed by convert itself (exporter=native), in TorchScript programs",
        )  # fmt: skip
    records = form == "exported_program"
    known = [] if request.inputs or records else examples.find_examples(source)
    specs = request.inputs or [e.spec for e in known] or ([] if records else request.hinted)
    question = {
        "form": form,
        "source": str(_on_cpu(source, form, bundle, here, request.limits).absolute()),
        "arch": _arch_json(request.arch),
        "task": request.task,
        "trusted": plain(request.trust),
        "root": str(ROOT),
        "inputs": [_spec_json(s) for s in specs],
        "fixed": request.fixes_images,
        "values": _save_examples(known, here),
        "exporters": _exporters(form, request),
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
        _refuse(source, answer, request, form)
    trusted = request.trust if form in TRUSTING else ()
    graphs = []
    for entry in answer["graphs"]:
        graph, weights = _read_graph(here, entry, request)
        graph.signature = entry["name"]
        _describe(graph, answer, trusted)
        _name_axes(graph, entry["axes"])
        bundle = match_weights(graph, weights, bundle, folder)
        graphs.append(graph)
    graphs[0].notes[:0] = [str(note) for note in answer["notes"]]
    return Captured(bundle, tuple(graphs))


def _read_graph(
    folder: Path, entry: Mapping[str, Any], request: CaptureRequest
) -> tuple[Graph, Mapping[str, Tensor]]:
    """Return a graph that the child exported, and the tensors that it names."""
    path = folder / f"{entry['name'] or UNNAMED}.onnx"
    program = path.with_suffix(".pt2")
    if not program.exists():
        exported = onnx_files.read(Artifact(path, request.limits))
        return lower(exported, limits=request.limits), exported.weights
    exported = torch_export.read(Artifact(program, request.limits))
    graph = lower_bundle(exported, request.opset)
    _name_inputs(graph, entry["inputs"])
    _name_outputs(graph, entry["outputs"])
    simplify(graph)
    return graph, exported.weights


def _form(bundle: Bundle, request: CaptureRequest) -> str:
    """Return the form in which the child loads the source."""
    kind = bundle.topology.kind if bundle.topology else ""
    if kind in FORMS and not (kind == "torch_modules" and request.arch is not None):
        return kind
    if request.arch is None:
        raise UnsupportedError(
            "holds weights, and no program",
            hint="Name what builds their module: arch='package.module:factory'",
        )
    return STATE_DICT


def _check_folder(source: Path, bundle: Bundle, request: CaptureRequest, form: str) -> None:
    """Raise, without starting a child, where it would find no model or no library."""
    summary = bundle.topology.summary if bundle.topology else {}
    if form == PRETRAINED and not {"model_type", "architectures"} & {*summary}:
        raise UnsupportedError(
            "graphs of folders whose config.json names no model of transformers", where=source.name,
            hint="Name what builds their module: arch='package.module:factory'",
        )  # fmt: skip
    # The folder's own: the bundle may have been dequantised, but the library reads the folder.
    for config in (source / hugging_face.CONFIG, *source.glob(f"*/{hugging_face.CONFIG}")):
        values = json.loads(config.read_bytes()) if config.is_file() else None
        if settings := hugging_face.find_quantization(values):
            raise UnsupportedError(
                f"graphs of folders whose weights are quantised ({settings['quant_method']})",
                where=source.name,
                hint="to='onnx' keeps them in its graph, dequantize=True makes floats of them",
            )  # fmt: skip
    if request.task is not None and request.task.removesuffix(WITH_PAST) not in TASKS:
        raise UsageError(f"task {request.task!r} is not known", expected=", ".join(TASKS))
    library = FOLDERS[form].replace("-", "_")
    if TORCH_PYTHON_VARIABLE in os.environ or importlib.util.find_spec(library):
        return
    raise DependencyError(
        f"converting its graph needs {FOLDERS[form]}, which is not installed", where=source.name,
        hint=describe_install(FOLDERS[form]),
    )  # fmt: skip


def _exporters(form: str, request: CaptureRequest) -> list[str]:
    """Return the exporters to try, in order: of a folder's model the program alone is asked for."""
    if request.exporter in EXPORTERS:
        return [request.exporter]
    return ["program"] if form in FOLDERS else [*EXPORTERS]


def _on_cpu(source: Path, form: str, bundle: Bundle, folder: Path, limits: Limits) -> Path:
    """Return the source, or a copy of it moved to the CPU where it names another device."""
    if form not in ("torchscript", "exported_program") or bundle.topology is None:
        return source
    devices = {*bundle.metadata.devices}
    for key in ("devices_in_code", "devices"):  # of TorchScript, and of an exported program
        counts = bundle.topology.summary.get(key)
        devices.update(counts if isinstance(counts, Mapping) else ())
    if devices <= {"cpu"}:
        return source
    # Imported late: few programs name another device.
    from converter.devices.torch.programs import move_program

    move_program(Artifact(source, limits), form, "cpu", folder / source.name)
    return folder / source.name


def _arch_json(arch: Arch | None) -> dict[str, Any] | None:
    return None if arch is None else {"factory": arch.factory, "arguments": dict(arch.arguments)}


def _spec_json(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape or ())}


def _save_examples(known: Sequence[Example], folder: Path) -> dict[str, str]:
    """Write example inputs to files for the child; return their names by input."""
    import numpy as np

    names = {}
    for i, example in enumerate(known):
        names[example.spec.name] = f"example-{i}.npy"
        np.save(folder / names[example.spec.name], example.array)
    return names


def _refuse(
    source: Path, answer: Mapping[str, Any], request: CaptureRequest, form: str
) -> NoReturn:
    """Raise the error that an answer without a graph stands for."""
    versions = answer.get("versions", {})
    torch = f"torch {versions.get('torch', '')}".strip()
    error = str(answer.get("error", ""))
    match answer.get("status"):
        case "absent":
            lacking, verb = (
                " and ".join(answer["lacking"]),
                "are" if answer["lacking"][1:] else "is",
            )
            raise DependencyError(
                f"converting its graph needs {lacking}, which {verb} not installed",
                where=source.name,
                hint=describe_install(FOLDERS.get(form, "torch")),
            )  # fmt: skip
        case "refused":
            raise SafetyError(error, where=source.name)
        case "mismatch" if request.arch is None:
            raise CorruptError(error, where=source.name)
        case "mismatch":
            factory = request.arch.factory if request.arch else ""
            raise UsageError(
                f"arch={factory!r} does not fit this state dict: {error}", where=source.name,
                hint="Give the factory its arguments: arch.arguments=",
            )  # fmt: skip
        case "unserved":
            raise UnsupportedError(f"a graph of it: {error}", where=source.name)
        case "inputs":
            kind = UsageError if request.inputs else UnsupportedError
            raise kind(error, where=source.name, hint=f"Say them: {_input_options(answer)}")
        case "failed":
            raise UnsupportedError(
                f"{torch} cannot export a graph of it: {error}", where=source.name
            )
    raise InternalError(f"the exporter answered {answer.get('status')!r:.60}")


def _input_options(answer: Mapping[str, Any]) -> str:
    """Return the option that declares a program's inputs, as an example."""
    dtype, shape = answer["guess"]
    sizes = ",".join(map(str, shape))
    names = answer["parameters"] or ["input"]
    return f"inputs={[f'{name}:{dtype}:{sizes}' for name in names]}"


def _describe(graph: Graph, answer: Mapping[str, Any], trust: Sequence[Trusted]) -> None:
    """Record which exporter made a graph, and whose code it ran."""
    versions = answer["versions"]
    library = f"{answer['library']}, " if "library" in answer else ""
    graph.exporter = f"{library}{answer['exporter']} {versions['torch']}"
    graph.notes = []
    graph.metadata = {}
    graph.name = "main_graph"
    for trusted in trust:
        path = trusted.path or _module_path(trusted.module)
        if path is not None:
            graph.trusted[trusted.module] = digest(path / "__init__.py" if path.is_dir() else path)


def _name_axes(graph: Graph, asked: Mapping[str, Mapping[str, str]]) -> None:
    """Rename the dynamic axes of a graph as requested.

    Raises:
        UnsupportedError: The exporter fixed one of them.
    """
    renamed: dict[str, str] = {}
    for name, axes in asked.items():
        shape: Shape = graph.specs[name].shape if name in graph.specs else ()
        for axis, wanted in axes.items():
            symbol = shape[int(axis)] if int(axis) < len(shape) else None
            if not isinstance(symbol, str):
                raise UnsupportedError(
                    f"torch's exporter fixed axis {axis} of {name!r} at {symbol}",
                    hint=f"Give it that size in inputs=, in place of {wanted!r}",
                )
            factor = dims.find_factor(symbol)
            renamed.setdefault(symbol, wanted if factor == 1 else f"{factor}*{wanted}")
    _rename_axes(graph, renamed)


def _module_path(module: str) -> Path | None:
    spec = importlib.util.find_spec(module)
    return Path(spec.origin) if spec and spec.origin else None


def _name_inputs(graph: Graph, names: Mapping[str, str]) -> None:
    """Give inputs of a graph other names: those that are no parameter of a function in Python."""
    for i, old in enumerate(graph.inputs):
        new = names.get(old, old)
        if new != old:
            graph.nodes.insert(0, Node("Identity", [new], [old], {}, old))
            graph.specs[new] = graph.specs[old]
            graph.inputs[i] = new


def _name_outputs(graph: Graph, names: Sequence[str]) -> None:
    """Give the outputs of a graph other names; a name that a value has gets an underscore."""
    for old, name in zip(graph.outputs, names, strict=True):
        new = name
        while new in graph.specs:
            new += "_"
        graph.nodes.append(Node("Identity", [old], [new], {}, new))
        graph.specs[new] = graph.specs[old]
        graph.outputs[graph.outputs.index(old)] = new


def _rename_axes(graph: Graph, names: Mapping[str, str]) -> None:
    """Rename the dynamic axes of a graph and of its subgraphs."""
    for name, spec in graph.specs.items():
        shape = tuple(names.get(n, n) if isinstance(n, str) else n for n in spec.shape)
        graph.specs[name] = replace(spec, shape=shape)
    for node in graph.nodes:
        values: Sequence[Attribute] = tuple(node.attributes.values())
        for value in values:
            if isinstance(value, Graph):
                _rename_axes(value, names)
