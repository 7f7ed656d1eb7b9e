"""Run TensorFlow graphs in TensorFlow, and find the signature that a file was converted from.

The fed and fetched tensors are the signature's own, found in the source by its keys, so that
errors of the lowering are found. A graph without a signature does not declare its outputs: only in
this case they are taken from the lowered graph.
"""

import base64
import importlib.util
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from converter.child import process as child
from converter.child.process import PYTHON_VARIABLE, Allowance
from converter.lower.encoded import Encoded, roots
from converter.lower.graph import Graph
from converter.verification.inputs.encoding import encode
from converter.verification.onnx_values import OnnxInterface
from converter.verification.placement import CPU, DeviceRequest
from converter.verification.report import GraphReport
from converter.verification.runners import (
    CHILDREN,
    PreparedInputs,
    RunSkipped,
    SourceRun,
    parse_run,
)
from formats.core.bundle import Bundle, Signature
from formats.core.storage import File, Span
from formats.core.weights import Strided
from formats.errors import UsageError
from formats.tensorflow.graphdef import kind_of

RUNNER = CHILDREN / "run_tensorflow.py"
SAVED_MODEL = "savedmodel"  # row id of the format
DEFAULT_SIGNATURE = "serving_default"
SHARD = re.compile(r"\.data-\d{5}-of-\d{5}$")
FED = "fed"  # prefix of the files of inputs that are encoded for the source
BINARY, TEXT = "saved_model.pb", "saved_model.pbtxt"


@dataclass(frozen=True, slots=True)
class Binding:
    """Mapping of a file's inputs and outputs to those of its source.

    Attributes:
        signature: Name of the signature, or empty.
        feeds: For each input of the file, a key of the signature, or a tensor of the graph.
        fetches: The same for each output.
        notes: Remarks for the report.
        given: Name of each of the source's inputs in the lowered graph; if none is encoded, the
            file's inputs in order.
        encoded: The source's inputs that are encoded bytes, with their parts in the file.
        states: Variables that are the file's last inputs and outputs, by their shared names.
    """

    signature: str
    feeds: tuple[str, ...]
    fetches: tuple[str, ...]
    notes: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    encoded: tuple[Encoded, ...] = ()
    states: tuple[str, ...] = ()


def may_have_tensorflow() -> bool:
    """Return whether TensorFlow may be installed, without importing it."""
    return bool(os.environ.get(PYTHON_VARIABLE)) or bool(importlib.util.find_spec("tensorflow"))


# -- the signature -------------------------------------------------------------------------------


def signatures_of(bundle: Bundle, file: OnnxInterface, wanted: str | None) -> list[str]:
    """Return the signatures that a file may come from, the most likely first.

    Raises:
        UsageError: The requested signature does not exist.
    """
    known = [s for s in bundle.signatures if s.outputs]  # a GraphDef declares inputs at most
    known.sort(key=lambda s: s.name != DEFAULT_SIGNATURE)
    if wanted:
        if wanted not in {s.name for s in known}:
            raise UsageError(
                f"there is no signature {wanted!r}", expected=", ".join(s.name for s in known)
            )
        return [wanted]
    inputs, outputs = _names(file)
    alike = [s for s in known if set(output_names(s)) == set(outputs)]
    fitting = [s.name for s in alike if {i.name for i in s.inputs} == set(inputs)]
    # What bytes decode to has other names than they have.
    encoded = [s.name for s in alike if any(i.dtype == "string" for i in s.inputs)]
    return fitting or encoded or [s.name for s in known[:1]]


def output_names(signature: Signature) -> list[str]:
    """Return the names of a graph's outputs: the signature's keys, renamed if an input has one."""
    taken = {spec.name for spec in signature.inputs}
    names: list[str] = []
    for spec in signature.outputs:
        first = spec.name if spec.name not in taken else f"{spec.name}_out"
        name, number = first, 1
        while name in taken:
            name, number = f"{first}_{number}", number + 1
        taken.add(name)
        names.append(name)
    return names


def bind_signature(
    bundle: Bundle, file: OnnxInterface, graph: Graph | None, name: str
) -> Binding | GraphReport:
    """Map a file's inputs and outputs to the source; or return why nothing can be compared."""
    inputs, outputs = _names(file)
    own = () if graph is None else graph.inputs[: len(graph.inputs) - len(graph.states)]
    is_encoded = graph is not None and bool(graph.encoded) and set(own) == set(inputs)
    if not name:
        return _by_tensor(inputs, outputs, graph, is_encoded=is_encoded)
    (signature,) = (s for s in bundle.signatures if s.name == name)
    keys = [spec.name for spec in signature.inputs]
    if is_encoded:
        inputs = keys
    others = dict(zip(output_names(signature), (s.name for s in signature.outputs), strict=True))
    for what, mine, theirs in (("inputs", inputs, keys), ("outputs", outputs, [*others])):
        if len(mine) != len(theirs):
            text = f"the graph has {len(mine)} {what}, signature {name!r} {len(theirs)}"
            return GraphReport("failed", text)
    notes = []
    if set(inputs) != set(keys):
        notes.append(f"inputs go by their order, for they are not called {', '.join(keys)}")
        inputs = keys
    if set(outputs) != set(others):
        notes.append(f"outputs go by their order, for they are not called {', '.join(others)}")
        outputs = [*others]
    notes.append(f"signature {name!r}")
    binding = Binding(name, tuple(inputs), tuple(others[n] for n in outputs), tuple(notes))
    return with_encoded(binding, graph, keys) if is_encoded and graph is not None else binding


def with_encoded(binding: Binding, graph: Graph, given: Sequence[str]) -> Binding:
    """Return a binding in which some feeds are encoded bytes.

    Args:
        binding: Binding of all the source's inputs.
        graph: The lowered graph, which describes what they decode to.
        given: Names of the source's inputs in the graph, in order.
    """
    notes = [f"{one.input!r} is fed as {one.kind}" for one in roots(graph.encoded)]
    return replace(
        binding, given=tuple(given), encoded=tuple(graph.encoded), notes=(*binding.notes, *notes)
    )


def _by_tensor(
    inputs: list[str], outputs: list[str], graph: Graph | None, *, is_encoded: bool
) -> Binding | GraphReport:
    tensors: Mapping[str, str] = {} if graph is None else graph.sources
    if graph is not None and is_encoded:
        whole = [one.input for one in roots(graph.encoded)]
        parts = {part.name for one in graph.encoded for part in one.parts}
        given = [*whole, *(name for name in inputs if name not in parts)]
        found = _by_tensor(given, outputs, replace(graph, encoded=[]), is_encoded=False)
        return found if isinstance(found, GraphReport) else with_encoded(found, graph, given)
    unknown = [name for name in (*inputs, *outputs) if name not in tensors]
    if unknown:
        text = "the source declares no signature, and is not converted by us as it is: "
        return GraphReport("not run", f"{text}what {unknown[0]!r} is in it, nothing says")
    return Binding("", tuple(tensors[n] for n in inputs), tuple(tensors[n] for n in outputs))


def _names(file: OnnxInterface) -> tuple[list[str], list[str]]:
    return [spec.name for spec in file.inputs], [spec.name for spec in file.outputs]


# -- the child -----------------------------------------------------------------------------------


def run_tensorflow(
    source: Path,
    bundle: Bundle,
    binding: Binding,
    prepared: PreparedInputs,
    allowance: Allowance,
    *,
    layers: Sequence[str] = (),
    on: DeviceRequest = CPU,
    as_placed: bool = False,
) -> SourceRun | RunSkipped:
    """Run a graph in TensorFlow on every case.

    Args:
        source: The artifact.
        bundle: The bundle read from it.
        binding: The tensors to feed and to fetch.
        prepared: The inputs.
        allowance: Limits of the child process.
        layers: Nodes whose outputs are returned too.
        on: Device to run on.
        as_placed: Whether to keep the placements of its own nodes, and place no others.

    Raises:
        DependencyError: The child died, hung, or took too much memory.
    """
    if on.device is not None and not on.device.tensorflow:
        text = f"TensorFlow has no device {on.device}"
        return RunSkipped(text, is_missing=False, lacks_device=True)
    question = {
        **_place(source, bundle, prepared.folder),
        **_encode(binding, prepared),
        "signature": binding.signature,
        "feeds": binding.feeds,
        "fetches": binding.fetches,
        "cases": prepared.groups,
        "states": binding.states,
        "own": len(prepared.names) - len(binding.states),
        "first": [number for number, case in enumerate(prepared.cases) if case.is_first],
        "layers": list(layers),
        "as_placed": as_placed,
        **on.question(on.device.tensorflow if on.device is not None else ""),
    }
    answer = child.ask(
        RUNNER,
        prepared.folder,
        question,
        what="TensorFlow",
        allowance=allowance,
        python=os.environ.get(PYTHON_VARIABLE) or sys.executable,
        environment={"TF_USE_LEGACY_KERAS": "0", **on.environment()},
    )
    versions = dict(answer.get("versions", {}))
    name = f"tensorflow {versions.get('tensorflow', '')}".strip()
    match answer.get("status"):
        case "absent":
            return RunSkipped(f"{name}: {answer.get('error')}", is_missing=True)
        case "refused":
            text = f"{name}: running it would touch files or run code ({answer.get('error')})"
            return RunSkipped(text, is_missing=False)
        case "no device":
            return RunSkipped(f"{name}: {answer.get('error')}", is_missing=False, lacks_device=True)
        case "done":
            pass
        case _:
            return RunSkipped(f"{name}: {answer.get('error')}", is_missing=False)
    answer["inputs"] = _declared(binding, prepared, answer["inputs"])
    run = parse_run("tensorflow", versions, answer, prepared)
    if not run.chosen:
        said = f"{name}: {run.refused[0]}"
        return RunSkipped(said, is_missing=False, failure=said)
    return replace(run, unstable=frozenset(answer["unstable"]), random=tuple(answer["random"]))


def _encode(binding: Binding, prepared: PreparedInputs) -> dict[str, Any]:
    """Write the source's feeds if some are encoded bytes; return entries of the question.

    Raises:
        UsageError: No bytes decode to the given arrays.
    """
    if not binding.encoded:
        return {"inputs": prepared.names[: len(prepared.names) - len(binding.states)]}
    made: list[int] = []
    for number, case in enumerate(prepared.cases):
        arrays = dict(zip(prepared.names, case.arrays, strict=True))
        texts = encode(binding.encoded, arrays)
        for i, name in enumerate(binding.given):
            array = arrays.get(name)
            if name in texts:
                plain = [base64.b64encode(text).decode() for text in texts[name].reshape(-1)]
                array = np.array(plain, "U").reshape(texts[name].shape)
                made += [i] * (not number)
            assert array is not None
            np.save(prepared.folder / f"{FED}-{number}-{i}.npy", array)
    return {"inputs": binding.given, "prefix": FED, "base64": made}


def _declared(binding: Binding, prepared: PreparedInputs, said: Sequence[Any]) -> list[Any]:
    """Return name, dtype and shape of the file's inputs, as far as the source declares them."""
    # The source reports its own names; they are replaced by those of the file's inputs.
    own = len(prepared.names) - len(binding.states)
    given = (*(binding.given or prepared.names[:own]), *prepared.names[own:])
    found = {name: (dtype, shape) for name, (_, dtype, shape) in zip(given, said, strict=True)}
    parts = {p.name: (p.dtype, None) for one in binding.encoded for p in one.parts}
    return [(name, *(parts.get(name) or found[name])) for name in prepared.names]


def _place(source: Path, bundle: Bundle, folder: Path) -> dict[str, Any]:
    """Return the path, form and options with which the child loads the source."""
    source = source.absolute()
    if bundle.metadata.format == SAVED_MODEL:
        return {"form": "SavedModel", "source": str(_folder(source, folder)), "is_text": False}
    span = _graph(bundle)
    form, is_text = kind_of(span) or ("GraphDef", False)
    file = _path(span) or source
    checkpoint = _checkpoint(bundle, file)
    return {"form": form, "source": str(file), "is_text": is_text, "checkpoint": checkpoint}


def _graph(bundle: Bundle) -> Span:
    """Return the bytes of a GraphDef or MetaGraphDef."""
    content = bundle.topology.content if bundle.topology is not None else None
    spans = content if isinstance(content, Mapping) else {}
    return next(s for name, s in spans.items() if name != "object_graph" and isinstance(s, Span))


def _path(span: Span) -> Path | None:
    return span.storage.path.absolute() if isinstance(span.storage, File) else None


def _checkpoint(bundle: Bundle, graph: Path) -> str | None:
    """Return the prefix of the checkpoint with a graph's variables, if any."""
    for tensor in bundle.weights.values():
        path = _path(tensor.data.span) if isinstance(tensor.data, Strided) else None
        if path is not None and path != graph:
            return SHARD.sub("", str(path))
    prefix = graph.with_suffix("")  # model.ckpt-7.meta
    return str(prefix) if prefix.with_name(f"{prefix.name}.index").is_file() else None


def _folder(source: Path, scratch: Path) -> Path:
    """Return a folder that TensorFlow loads; a file with another name is linked into a new one."""
    if source.is_dir():
        return source
    if source.name == BINARY:
        return source.parent
    kind = kind_of(Span.whole(File(source)))
    made = scratch / "source"
    if not made.exists():
        made.mkdir()
        (made / (TEXT if kind is not None and kind[1] else BINARY)).symlink_to(source)
        for name in ("variables", "assets", "assets.extra"):
            if (source.parent / name).is_dir():
                (made / name).symlink_to(source.parent / name)
    return made
