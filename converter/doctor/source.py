"""What an artifact records, and what of it decides how official loaders end."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import PurePath
from typing import Any

from converter.doctor.loaders.keras_loader import KerasFacts
from converter.doctor.loaders.pickle_events import MAX_BYTES, Event, scan_pickle, scan_stream
from converter.doctor.loaders.tensorflow import TensorFlowFacts
from converter.doctor.loaders.torch import TorchFacts
from formats import catalog
from formats.artifact import Artifact
from formats.core.bundle import JSON, Bundle, SafetyFinding
from formats.core.storage import Span
from formats.errors import ConvertError
from formats.limits import DEFAULT, Limits

# Format → what it never records. Source: the layouts of the formats themselves.
NOT_RECORDED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "torch",
            "torchscript",
            "torch-members",
            "torch-sharded",
            "torch-dcp",
            "torch-deepspeed",
            "torch-megatron",
            "torch-zarr",
            "torch-ranks",
            "torch-package",
        ),
        "the versions of torch, CUDA, cuDNN and the driver it was saved with: no torch file does",
    ),
    "torch-export": "the versions of CUDA, cuDNN and the driver: no .pt2 archive does",
    **dict.fromkeys(
        ("keras-h5", "keras"),
        "device, CUDA, cuDNN, driver and TensorFlow build: no Keras file does",
    ),
    **dict.fromkeys(
        ("savedmodel", "tf-checkpoint", "graphdef"),
        "the versions of CUDA, cuDNN and the driver: no SavedModel, graph or checkpoint does",
    ),
    **dict.fromkeys(
        ("safetensors", "onnx"),
        "who wrote it, on what device, with which versions: the format has no place for it",
    ),
}
# A device in the JSON of an exported graph.
_DEVICE = re.compile(rb'"type":\s*"(cuda|cpu|mps|xpu|hpu|meta)",\s*"index":\s*(\d+|null)')
# An operator that a node of an exported graph calls, and one that TorchScript code calls.
_TARGET = re.compile(rb'"target":\s*"torch\.ops\.(\w+)\.(\w+)')
_CALL = re.compile(rb"(?<![\w.])(?:torch|ops\.(\w+))\.(\w+)\(")
_PLAIN = ("path", "format", "variant", "evidence", "framework", "tensors", "parameters", "recorded",
          "devices", "distribution")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Source:
    """An artifact, described for the doctor.

    Attributes:
        path: What the user calls it.
        file: Where it is read from.
        format: Row id of `formats.catalog`.
        variant: Version or layout of the format.
        evidence: Why it was detected as that format.
        framework: Framework that wrote it, if known.
        recorded: Versions, backends and byte orders as recorded.
        devices: Recorded device → number of tensors or nodes.
        distribution: Recorded strategy and replicas.
        tensors: Number of weights.
        parameters: Number of their elements; shared storage counts once.
        not_recorded: Facts that the file does not hold, as sentences.
        findings: What would run code if it were loaded naively.
        torch: What decides how torch's loaders end, where they open this format.
        keras: The same for Keras' loaders.
        tensorflow: The same for TensorFlow's loaders.
    """

    path: str
    file: str
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
    findings: tuple[SafetyFinding, ...] = ()
    torch: TorchFacts | None = field(default=None, repr=False)
    keras: KerasFacts | None = field(default=None, repr=False)
    tensorflow: TensorFlowFacts | None = field(default=None, repr=False)

    @property
    def named_devices(self) -> tuple[str, ...]:
        """Every device that its tensors, nodes or code name, once."""
        code = self.torch.code_devices if self.torch else ()
        return tuple(dict.fromkeys([*self.devices, *code]))

    def plain(self) -> dict[str, Any]:
        """Return what a diagnosis says of it, as a JSON-like dict."""
        return {name: getattr(self, name) for name in _PLAIN} | {
            "not_recorded": list(self.not_recorded),
            "findings": [asdict(f) for f in self.findings],
        }


def read_source(
    path: str, *, format: str | None = None, name: str = "", limits: Limits = DEFAULT
) -> Source:
    """Describe an artifact with our own readers: nothing of it is run and no weight is read.

    Args:
        path: File, folder or checkpoint prefix.
        format: Row id of `formats.catalog`; by default detected from the content.
        name: What the user calls it; by default its path.
        limits: Limits of reading.

    Raises:
        SourceError: It is unknown, damaged or over a limit.
        UnsupportedError: It is valid and not supported yet.
    """
    artifact = Artifact(path, limits)
    match = catalog.detect(artifact, format)
    bundle = match.format.read(artifact)
    catalog.check_expansion(bundle, artifact)
    about = bundle.metadata
    distinct = {t.identity: t for t in bundle.weights.values()}.values()
    return Source(
        path=name or path,
        file=path,
        format=match.format.id,
        variant=about.variant,
        evidence=match.evidence,
        framework=about.framework,
        recorded=dict(about.recorded),
        devices=dict(about.devices),
        distribution=dict(about.distribution),
        tensors=len(bundle.weights),
        parameters=sum(t.size for t in distinct),
        not_recorded=_list_not_recorded(match.format.id, bundle),
        findings=about.findings,
        torch=_describe_torch(artifact, match.format.id, bundle),
        keras=_describe_keras(artifact, match.format.id, bundle),
        tensorflow=_describe_tensorflow(artifact, match.format.id, bundle),
    )


def _list_not_recorded(format_id: str, bundle: Bundle) -> tuple[str, ...]:
    about = bundle.metadata
    missing = [NOT_RECORDED[format_id]] if format_id in NOT_RECORDED else []
    if not about.devices and format_id not in ("keras-h5", "keras", "safetensors", "onnx"):
        missing.append("a device: no tensor and no node names one")
    if format_id in ("keras-h5", "keras") and "keras_version" not in about.recorded:
        missing.append("the version of Keras: this file does not say it")
    return tuple(missing)


# -- torch ----------------------------------------------------------------------------------------


def _describe_torch(artifact: Artifact, format_id: str, bundle: Bundle) -> TorchFacts | None:
    if format_id == "torch":
        return _describe_torch_file(artifact, bundle)
    if format_id == "torchscript":
        return _describe_script(artifact, bundle)
    if format_id == "torch-export":
        return _describe_exported(bundle)
    return None


def _describe_exported(bundle: Bundle) -> TorchFacts:
    """Return the devices of a .pt2 archive's tensors, and those that its nodes name."""
    about, topology = bundle.metadata, bundle.topology
    content = topology.content if topology and isinstance(topology.content, dict) else {}
    devices: dict[str, int] = {}
    ops: set[str] = set()
    for name, span in content.items():
        if isinstance(span, Span) and name.endswith(".json") and "_config" not in name:
            text = span.read(0, min(span.length, MAX_BYTES))
            ops |= {f"{space.decode()}::{op.decode()}" for space, op in _TARGET.findall(text)}
            for kind, index in _DEVICE.findall(text):
                device = kind.decode() + (f":{index.decode()}" if index != b"null" else "")
                devices[device] = devices.get(device, 0) + 1
    return TorchFacts(
        "exported-old" if about.variant.endswith("2.6") else "exported",
        _list_storage_events(bundle),
        devices,
        schema=about.recorded.get("schema_version", ""),
        ops=frozenset(op for op in ops if not op.startswith("higher_order::")),
    )


def _describe_torch_file(artifact: Artifact, bundle: Bundle) -> TorchFacts:
    from formats.torch.containers import is_legacy_tar
    from formats.torch.zip_storages import find_prefix

    if artifact.zip is not None:
        prefix = find_prefix(artifact.zip)
        if prefix is None:
            return TorchFacts("other")
        return TorchFacts(
            "zip", scan_pickle(artifact.zip[f"{prefix}data.pkl"].read(MAX_BYTES)).events
        )
    if is_legacy_tar(artifact.head):
        return TorchFacts("tar", _list_storage_events(bundle))
    return TorchFacts("stream", scan_stream(artifact.span))


def _list_storage_events(bundle: Bundle) -> tuple[Event, ...]:
    """Return one event for each recorded device."""
    return tuple(Event("storage", device) for device in bundle.metadata.devices)


def _describe_script(artifact: Artifact, bundle: Bundle) -> TorchFacts:
    from formats.torch.zip_storages import find_prefix

    archive, topology = artifact.zip, bundle.topology
    summary = topology.summary if topology else {}
    code = summary.get("devices_in_code")
    devices = {str(k): int(str(v)) for k, v in code.items()} if isinstance(code, dict) else {}
    content = topology.content if topology and isinstance(topology.content, dict) else {}
    sets_state, ops = False, set()
    for name, span in content.items():
        if name.endswith(".py") and isinstance(span, Span):
            text = span.read(0, min(span.length, MAX_BYTES))
            sets_state |= b"__setstate__" in text
            ops |= {
                f"{(space or b'aten').decode()}::{op.decode()}" for space, op in _CALL.findall(text)
            }
    prefix = find_prefix(archive) if archive is not None else None
    if archive is None or prefix is None:
        return TorchFacts("script-json", (), devices, sets_state)
    events: dict[Event, None] = {}
    for member in ("data.pkl", "constants.pkl"):
        if f"{prefix}{member}" in archive:
            scan = scan_pickle(archive[f"{prefix}{member}"].read(MAX_BYTES))
            events.update((e, None) for e in scan.events if e.kind == "storage")
    return TorchFacts("script", tuple(events), devices, sets_state, ops=frozenset(ops))


# -- Keras ----------------------------------------------------------------------------------------


def _describe_keras(artifact: Artifact, format_id: str, bundle: Bundle) -> KerasFacts | None:
    suffix = artifact.path.suffix.lower()
    version = bundle.metadata.recorded.get("keras_version", "")
    topology = bundle.topology
    config = topology.content if topology and topology.kind == "keras_config" else None
    training = bundle.metadata.user.get("training_config")
    if format_id == "keras-h5":
        return KerasFacts("hdf5", suffix, config, version, training=training)
    if format_id == "keras":
        container = "zip" if artifact.zip is not None else "folder"
        packed = artifact.zip is not None and "config.json" not in artifact.zip
        return KerasFacts(container, suffix, config, version, in_folder=packed, training=training)
    if format_id == "savedmodel":
        graph = bundle.metadata.variant.startswith("TF 2")
        training = _read_training(artifact, bundle)
        return KerasFacts(
            "savedmodel", suffix, None, version, object_graph=graph, training=training
        )
    return None


def _read_training(artifact: Artifact, bundle: Bundle) -> JSON:
    """Return the training configuration of the model that a SavedModel of Keras holds."""
    from formats.tensorflow.savedmodel import KERAS, read_keras_objects

    content = bundle.topology.content if bundle.topology else None
    span = content.get(KERAS) if isinstance(content, dict) else None
    if not isinstance(span, Span):
        return None
    with suppress(ConvertError):  # what reads it says so
        for path, _, described in read_keras_objects(span, artifact.limits):
            if path == "root" and isinstance(described, dict):
                return described.get("training_config")
    return None


# -- TensorFlow -----------------------------------------------------------------------------------

_KINDS = {"savedmodel": "savedmodel", "graphdef": "graphdef", "tf-checkpoint": "checkpoint"}


def _describe_tensorflow(
    artifact: Artifact, format_id: str, bundle: Bundle
) -> TensorFlowFacts | None:
    kind = _KINDS.get(format_id)
    if kind is None:
        return None
    ops = _count_ops(bundle)
    facts = TensorFlowFacts(kind, ops, dict(bundle.metadata.devices))
    if kind != "checkpoint" and facts.unknown_ops:
        facts = replace(facts, own_functions=_read_functions(artifact, format_id))
    return facts


def _count_ops(bundle: Bundle) -> dict[str, int]:
    """Return op → number of nodes, over all meta graphs."""
    summary = bundle.topology.summary if bundle.topology else {}
    graphs = summary.get("meta_graphs")
    parts = list(graphs.values()) if isinstance(graphs, dict) else [summary]
    counts: dict[str, int] = {}
    for part in parts:
        ops = part.get("ops") if isinstance(part, Mapping) else None
        for op, count in ops.items() if isinstance(ops, dict) else ():
            counts[op] = counts.get(op, 0) + (count if isinstance(count, int) else 0)
    return counts


def _read_functions(artifact: Artifact, format_id: str) -> frozenset[str]:
    """Return the names of a graph's functions, which nodes may call like ops."""
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
