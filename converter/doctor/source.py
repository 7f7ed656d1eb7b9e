"""What an artifact records, and does not; and what of it decides how official loaders end."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from converter.doctor.loaders.keras_loaders import KerasFacts
from converter.doctor.loaders.tensorflow import TensorFlowFacts
from converter.doctor.loaders.torch import TorchFacts
from converter.doctor.loaders.torch_stream import MAX_BYTES, Event, walk, walk_stream
from formats import catalog
from formats.artifact import Artifact
from formats.core.bundle import JSON, Bundle, Finding
from formats.core.storage import Span
from formats.limits import DEFAULT, Limits

_NO_TORCH = (
    "the versions of torch, CUDA, cuDNN and the driver it was saved with: no torch file does"
)
_NO_KERAS = "device, CUDA, cuDNN, driver and TensorFlow build: no Keras file does"
_NO_FLOW = "the versions of CUDA, cuDNN and the driver: no SavedModel, graph or checkpoint does"
_NO_NUMBERS = "who wrote it, on what device, with which versions: the format has no place for it"
# Format -> what it never records, in words. Source: FACTS of the formats, read from their bytes.
NOT_RECORDED: Mapping[str, str] = {
    **dict.fromkeys(
        ("torch", "torchscript", "torch-members", "torch-sharded", "torch-dcp", "torch-package"),
        _NO_TORCH,
    ),
    "torch-export": "the versions of CUDA, cuDNN and the driver: no .pt2 archive does",
    **dict.fromkeys(("keras-h5", "keras"), _NO_KERAS),
    **dict.fromkeys(("savedmodel", "tf-checkpoint", "graphdef"), _NO_FLOW),
    **dict.fromkeys(("safetensors", "onnx"), _NO_NUMBERS),
}


@dataclass(frozen=True, slots=True)
class Source:
    """An artifact, as the doctor needs it.

    Attributes:
        path: As the user gave it.
        format: Row of `formats.catalog`.
        variant: Which of the format's ages or shapes.
        evidence: Why it is taken for that.
        framework: Who wrote it, where that can be told.
        recorded: Versions and the like, as recorded.
        devices: Recorded device → number of tensors, or nodes.
        distribution: Strategy and replicas.
        tensors: How many weights.
        parameters: How many numbers in them.
        not_recorded: What could be asked for, and is not in the file, in words.
        findings: What would run code, were it loaded naively.
        torch: Facts for torch's loaders, where they open such a thing.
        keras: Likewise for Keras'.
        tensorflow: Likewise for TensorFlow's.
    """

    path: str
    format: str
    variant: str
    evidence: str
    framework: str | None
    recorded: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    distribution: Mapping[str, JSON] = field(default_factory=dict)
    tensors: int = 0
    parameters: int = 0
    not_recorded: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    torch: TorchFacts | None = None
    keras: KerasFacts | None = None
    tensorflow: TensorFlowFacts | None = None


def look(path: str, *, from_format: str | None = None, limits: Limits = DEFAULT) -> Source:
    """Read an artifact with our own readers, which run nothing of it; no weight is touched.

    Raises:
        SourceError: It is unknown, damaged or over a limit.
        UnsupportedError: It is valid, and we cannot read it.
    """
    artifact = Artifact(path, limits)
    match = catalog.detect(artifact, from_format)
    bundle = match.format.read(artifact)
    catalog.check_expansion(bundle, artifact)
    about = bundle.metadata
    return Source(
        path, match.format.id, about.variant, match.evidence, about.framework,
        dict(about.recorded), dict(about.devices), dict(about.distribution),
        len(bundle.weights),
        sum(t.size for t in {t.identity: t for t in bundle.weights.values()}.values()),
        _not_recorded(match.format.id, bundle), about.findings,
        _torch(artifact, match.format.id, bundle),
        _keras(artifact, match.format.id, bundle),
        _tensorflow(artifact, match.format.id, bundle),
    )  # fmt: skip


def _not_recorded(format_id: str, bundle: Bundle) -> tuple[str, ...]:
    found = [NOT_RECORDED[format_id]] if format_id in NOT_RECORDED else []
    about = bundle.metadata
    if not about.devices and format_id not in ("keras-h5", "keras", "safetensors", "onnx"):
        found.append("a device: no tensor and no node names one")
    if format_id in ("keras-h5", "keras") and "keras_version" not in about.recorded:
        found.append("the version of Keras: this file does not say it")
    return tuple(found)


# A device in the JSON of an exported graph.
_DEVICE = re.compile(rb'"type":\s*"(cuda|cpu|mps|xpu|hpu|meta)",\s*"index":\s*(\d+|null)')


# -- torch ----------------------------------------------------------------------------------------


def _torch(artifact: Artifact, format_id: str, bundle: Bundle) -> TorchFacts | None:
    if format_id == "torch":
        return _torch_file(artifact)
    if format_id == "torchscript":
        return _script(artifact, bundle)
    if format_id == "torch-export":
        return _exported(bundle)
    return None


def _exported(bundle: Bundle) -> TorchFacts:
    """Return the facts of a .pt2 archive: where its tensors are, and what its nodes name."""
    about, topology = bundle.metadata, bundle.topology
    content = topology.content if topology and isinstance(topology.content, dict) else {}
    devices: dict[str, int] = {}
    for name, span in content.items():
        if isinstance(span, Span) and name.endswith(".json") and "_config" not in name:
            for kind, index in _DEVICE.findall(span.read(0, min(span.length, MAX_BYTES))):
                device = kind.decode() + (f":{index.decode()}" if index != b"null" else "")
                devices[device] = devices.get(device, 0) + 1
    return TorchFacts(
        "exported-old" if about.variant.endswith("2.6") else "exported",
        tuple(Event("storage", device) for device in about.devices),
        devices,
        schema=about.recorded.get("schema_version", ""),
    )


def _torch_file(artifact: Artifact) -> TorchFacts:
    from formats.torch.containers import find_prefix, is_legacy_tar

    if artifact.zip is not None:
        prefix = find_prefix(artifact.zip)
        if prefix is None:
            return TorchFacts("other")
        return TorchFacts("zip", walk(artifact.zip[f"{prefix}data.pkl"].read(MAX_BYTES)).events)
    if is_legacy_tar(artifact.head):
        return TorchFacts("tar", _tar_devices(artifact))
    return TorchFacts("stream", walk_stream(artifact.span))


def _tar_devices(artifact: Artifact) -> tuple[Event, ...]:
    """Return the devices of a tar archive's storages: ``("storage", …)`` once per device."""
    bundle = catalog.read(artifact, "torch")
    return tuple(Event("storage", device) for device in bundle.metadata.devices)


def _script(artifact: Artifact, bundle: Bundle) -> TorchFacts:
    from formats.torch.containers import find_prefix

    archive, topology = artifact.zip, bundle.topology
    summary = topology.summary if topology else {}
    code = summary.get("devices_in_code")
    devices = {str(k): int(str(v)) for k, v in code.items()} if isinstance(code, dict) else {}
    content = topology.content if topology and isinstance(topology.content, dict) else {}
    sets_state = any(
        b"__setstate__" in span.read(0, min(span.length, MAX_BYTES))
        for name, span in content.items()
        if name.endswith(".py") and isinstance(span, Span)
    )  # fmt: skip
    prefix = find_prefix(archive) if archive is not None else None
    if archive is None or prefix is None:
        return TorchFacts("script-json", (), devices, sets_state)
    events: dict[Event, None] = {}
    for member in ("data.pkl", "constants.pkl"):
        if f"{prefix}{member}" in archive:
            walked = walk(archive[f"{prefix}{member}"].read(MAX_BYTES))
            events.update((e, None) for e in walked.events if e.kind == "storage")
    return TorchFacts("script", tuple(events), devices, sets_state)


# -- Keras ----------------------------------------------------------------------------------------


def _keras(artifact: Artifact, format_id: str, bundle: Bundle) -> KerasFacts | None:
    suffix = artifact.path.suffix.lower()
    version = bundle.metadata.recorded.get("keras_version", "")
    topology = bundle.topology
    config = topology.content if topology and topology.kind == "keras_config" else None
    if format_id == "keras-h5":
        return KerasFacts("hdf5", suffix, config, version)
    if format_id == "keras":
        container = "zip" if artifact.zip is not None else "folder"
        packed = artifact.zip is not None and "config.json" not in artifact.zip
        return KerasFacts(container, suffix, config, version, in_folder=packed)
    if format_id == "savedmodel":
        graph = bundle.metadata.variant.startswith("TF 2")
        return KerasFacts("savedmodel", suffix, None, version, object_graph=graph)
    return None


# -- TensorFlow -----------------------------------------------------------------------------------

_KINDS = {"savedmodel": "savedmodel", "graphdef": "graphdef", "tf-checkpoint": "checkpoint"}


def _tensorflow(artifact: Artifact, format_id: str, bundle: Bundle) -> TensorFlowFacts | None:
    kind = _KINDS.get(format_id)
    if kind is None:
        return None
    ops = _ops(bundle)
    facts = TensorFlowFacts(kind, ops, dict(bundle.metadata.devices))
    if kind != "checkpoint" and facts.unknown_ops:
        functions = _own_functions(artifact, format_id)
        facts = TensorFlowFacts(kind, ops, facts.devices, functions)
    return facts


def _ops(bundle: Bundle) -> dict[str, int]:
    """Return op → count, over all meta graphs."""
    summary = bundle.topology.summary if bundle.topology else {}
    graphs = summary.get("meta_graphs")
    parts = list(graphs.values()) if isinstance(graphs, dict) else [summary]
    found: dict[str, int] = {}
    for part in parts:
        ops = part.get("ops") if isinstance(part, Mapping) else None
        for op, count in ops.items() if isinstance(ops, dict) else ():
            found[op] = found.get(op, 0) + (count if isinstance(count, int) else 0)
    return found


def _own_functions(artifact: Artifact, format_id: str) -> frozenset[str]:
    """Return the names of a graph's own functions, which nodes may call like ops."""
    from formats.tensorflow.graphdef import SAVED_MODEL, kind_of, open_graph, parse

    if format_id == "graphdef":
        graphs = [open_graph(artifact).graph]
    else:
        name = next(
            n for n in ("saved_model.pb", "saved_model.pbtxt", "") if n in artifact.names or not n
        )
        file = artifact.member(name) if name else artifact.file
        span = Span.whole(file)
        kind = kind_of(span)
        is_text = kind[1] if kind else PurePath(file.path).suffix == ".pbtxt"
        message = parse(span, SAVED_MODEL, artifact.limits, is_text=is_text)
        graphs = [m.graph_def for m in message.meta_graphs]
    return frozenset(
        str(function.signature.name) for g in graphs for function in g.library.each("function")
    )
