"""A summary of a GraphDef: ops, devices, signatures; its computation is not interpreted.

One walk over all nodes, those of its functions included, gives the histogram of ops, the devices,
the constants, and the ops that would touch files, the network or Python if the graph were run.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from formats.containers.protobuf.messages import Message
from formats.core.bundle import JSON, SafetyFinding, Signature, TensorSpec
from formats.core.collector import Collector
from formats.core.strings import Strings
from formats.core.weights import Tensor
from formats.errors import LimitError
from formats.limits import Limits
from formats.tensorflow import tensor_proto
from formats.tensorflow.schemas import ENUMS

CONSTANTS = frozenset(("Const", "HostConst"))
VARIABLES = frozenset(("Variable", "VariableV2", "VarHandleOp", "AutoReloadVariable"))
_MOST_FINDINGS = 1000

# fmt: off
# What each op does is in tensorflow/core/ops/{io,dataset,summary,script,debug}_ops.cc. SaveV2 and
# RestoreV2 are in every SavedModel and are given their path by the loader: no finding.
RISKY: Mapping[str, str] = {
    **dict.fromkeys((
        "PyFunc", "PyFuncStateless", "EagerPyFunc",
    ), "py-func"),
    **dict.fromkeys((
        "ReadFile", "WriteFile", "MatchingFiles", "LoadAndRemapMatrix",
        "WholeFileReader", "WholeFileReaderV2", "TextLineReader", "TextLineReaderV2",
        "TFRecordReader", "TFRecordReaderV2", "FixedLengthRecordReader",
        "FixedLengthRecordReaderV2", "LMDBReader", "LMDBDataset", "TextLineDataset",
        "TextLineDatasetV2", "TFRecordDataset",
        "TFRecordDatasetV2", "FixedLengthRecordDataset", "FixedLengthRecordDatasetV2",
        "ExperimentalCSVDataset", "CSVDataset", "CSVDatasetV2", "SqlDataset",
        "ExperimentalSqlDataset",
        "SaveDataset", "SaveDatasetV2", "LoadDataset", "SnapshotDataset", "SnapshotDatasetV2",
        "DatasetToTFRecord", "ExperimentalDatasetToTFRecord", "MatchingFilesDataset",
        "CreateSummaryFileWriter", "CreateSummaryDbWriter", "FileSystemSetConfiguration",
        "DebugIdentity", "DebugIdentityV2", "DebugIdentityV3",
    ), "file-op"),
    **dict.fromkeys((
        "Rpc", "TryRpc", "DataServiceDataset", "DataServiceDatasetV2", "DataServiceDatasetV3",
        "BigQueryReader", "GenerateBigQueryReaderPartitions",
    ), "network-op"),
}
# fmt: on


@dataclass(frozen=True, slots=True)
class Constant:
    """A node that holds a tensor: ``conv/weights``, or ``function/node``."""

    name: str
    proto: Message


@dataclass(slots=True)
class Survey:
    """What was counted."""

    nodes: int = 0
    functions: int = 0
    ops: Counter[str] = field(default_factory=Counter)
    devices: Counter[str] = field(default_factory=Counter)
    constants: list[Constant] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)
    hollow: list[str] = field(default_factory=list)  # constants without a value
    placeholders: list[Message] = field(default_factory=list)
    findings: list[SafetyFinding] = field(default_factory=list)

    def summary(self) -> dict[str, JSON]:
        """Return the counts for a manifest."""
        ops: dict[str, JSON] = dict(sorted(self.ops.items()))
        return {"nodes": self.nodes, "functions": self.functions, "ops": ops}


def survey(graph: Message, limits: Limits, where: str, into: Survey | None = None) -> Survey:
    """Walk all nodes of a GraphDef.

    Raises:
        CorruptError: A node is damaged.
        LimitError: There are too many nodes.
    """
    result = into or Survey()
    for function, node in _nodes(graph):
        result.nodes += 1
        if result.nodes > limits.max_nodes:
            raise LimitError(f"a graph of more than {limits.max_nodes} nodes", where=where)
        if len(result.constants) > limits.max_objects:
            raise LimitError(f"more than {limits.max_objects} constants", where=where)
        op = node.op
        name = f"{function}/{node.name}" if function else node.name
        result.ops[op] += 1
        if node.device:
            result.devices[node.device] += 1
        if op in CONSTANTS:
            value = node.attr.get("value")
            if value is not None and value.has("tensor"):
                result.constants.append(Constant(name, value.tensor))
            else:  # graphs trimmed for other programs, OpenCV's for one
                result.hollow.append(name)
        elif op in VARIABLES:
            result.variables.append(name)
        elif op == "Placeholder" and not function:
            result.placeholders.append(node)
        elif _is_risky(op, node) and len(result.findings) < _MOST_FINDINGS:
            result.findings.append(SafetyFinding(RISKY.get(op, "file-op"), op, name))
    result.functions += len(graph.library.function)
    return result


def _nodes(graph: Message) -> Iterator[tuple[str, Message]]:
    for node in graph.each("node"):
        yield "", node
    for function in graph.library.each("function"):
        name = function.signature.name
        for node in function.each("node_def"):
            yield name, node


def _is_risky(op: str, node: Message) -> bool:
    if op == "PrintV2":
        stream = node.attr.get("output_stream")
        return stream is not None and bool(stream.s.startswith(b"file://"))
    return op in RISKY


def add_constant(constant: Constant, collector: Collector, candidates: list[str]) -> None:
    """Give a constant's tensor to ``collector``, or name what kind of handle it is instead.

    Raises:
        CorruptError: Its shape and content contradict each other.
    """
    kind = tensor_proto.base_type(constant.proto.dtype)
    if kind != tensor_proto.STRING and not tensor_proto.is_numeric(kind):
        what = tensor_proto.type_name(kind)
        collector.leave_out(candidates[0], f"a {what} has no value outside of TensorFlow")
        return
    note: dict[str, JSON] = {}
    if tensor_proto.is_quantised(kind):
        note["dtype"] = tensor_proto.type_name(kind)
    collector.add(candidates, value_of(constant), None, note)


def value_of(constant: Constant) -> Tensor | Strings:
    """Return a constant's tensor."""
    return tensor_proto.from_proto(constant.proto, constant.name)


def element_count(constant: Constant) -> int:
    """Return how many elements a constant says that it has; not checked."""
    count = 1
    for dim in constant.proto.tensor_shape.dim:
        count *= max(dim.size, 0)
        if count >= 1 << 63:
            break
    return count


class Axes:
    """Names for axes of unknown size, numbered over one artifact."""

    def __init__(self) -> None:
        self._next = 0

    def shape(self, proto: Message) -> tuple[int | str, ...] | None:
        """Return the sizes of a TensorShapeProto; an unknown one is called ``unk__N``."""
        if proto.unknown_rank:
            return None
        return tuple(d.size if d.size >= 0 else d.name or self._fresh() for d in proto.dim)

    def _fresh(self) -> str:
        self._next += 1
        return f"unk__{self._next - 1}"


def signatures(meta_graph: Message, axes: Axes, suffix: str = "") -> Iterator[Signature]:
    """Yield what a MetaGraphDef declares; TensorFlow's own initialisers are none of it."""
    for name, definition in meta_graph.signature_def.items():
        if name.startswith("__saved_model_"):
            continue
        yield Signature(
            f"{name}{suffix}", _specs(definition.inputs, axes), _specs(definition.outputs, axes)
        )


def _specs(tensors: Mapping[str, Message], axes: Axes) -> tuple[TensorSpec, ...]:
    specs = []
    for name, info in sorted(tensors.items()):
        dtype = tensor_proto.type_name(info.dtype)
        encoding = info.which("encoding")
        if encoding in ("coo_sparse", "composite_tensor"):
            dtype = f"{dtype} ({encoding})"
        shape = axes.shape(info.tensor_shape) if info.has("tensor_shape") else None
        specs.append(TensorSpec(name, dtype, shape))
    return tuple(specs)


def placeholders(nodes: list[Message], axes: Axes) -> tuple[TensorSpec, ...]:
    """Return the inputs of a graph that declares no signature."""
    specs = []
    for node in nodes:
        dtype, shape = node.attr.get("dtype"), node.attr.get("shape")
        specs.append(
            TensorSpec(
                node.name,
                tensor_proto.type_name(dtype.type) if dtype is not None else "unknown",
                axes.shape(shape.shape) if shape is not None else None,
            )
        )
    return tuple(specs)


def read_recorded_versions(meta_graph: Message) -> dict[str, str]:
    """Return what a MetaGraphDef records about its writer."""
    info = meta_graph.meta_info_def
    found = {
        "tensorflow_version": info.tensorflow_version,
        "tensorflow_git_version": info.tensorflow_git_version,
        "meta_graph_version": info.meta_graph_version,
        **graph_versions(meta_graph.graph_def),
    }
    saver = meta_graph.saver_def
    if meta_graph.has("saver_def"):
        version = ENUMS["SaverDef.CheckpointFormatVersion"].get(saver.version, str(saver.version))
        found["saver_version"] = version
    return {name: value for name, value in found.items() if value}


def graph_versions(graph: Message) -> dict[str, str]:
    """Return a GraphDef's version numbers; zero is "not recorded"."""
    versions = graph.versions
    found = {
        "graph_producer": versions.producer or graph.version,
        "graph_min_consumer": versions.min_consumer,
    }
    return {name: str(value) for name, value in found.items() if value}
