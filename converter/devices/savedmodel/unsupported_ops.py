"""Find the ops that no single device can run, and those that no CPU can run.

An op that waits for partners on other devices (collectives, NCCL, sends and receives) hangs or
fails alone, and TPU ops run nowhere else. A signature that needs one is unsupported. Functions of
training that need one are kept as they are, with a warning.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from converter.devices.savedmodel.kernels import has_cpu_kernel
from converter.devices.savedmodel.scopes import Graph, Node, Scope, source_name
from formats.containers.protobuf.messages import Message

# Channels first, these have no CPU kernel at all: tensorflow/core/kernels/maxpooling_op.cc,
# spacetodepth_op.cc, depthtospace_op.cc.
_NEVER_FIRST = frozenset(("MaxPoolV2", "SpaceToDepth", "DepthToSpace"))
# And these one only where TensorFlow was built with oneDNN and it is on, as it is on x86: measured.
_RARELY_FIRST = frozenset((
    "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "Conv3D", "Conv3DBackpropInputV2",
    "DepthwiseConv2dNative", "MaxPool", "MaxPool3D", "AvgPool", "AvgPool3D",
))  # fmt: skip
_FIRST = ("NCHW", "NCDHW")


def needs_gpu(node: Node) -> bool:
    """Return whether a node cannot run on a CPU."""
    if not has_cpu_kernel(node.op):
        return True
    return node.op in _NEVER_FIRST and node.data_format in _FIRST


def may_need_gpu(node: Node) -> bool:
    """Return whether a node runs on some CPUs only."""
    return node.op in _RARELY_FIRST and node.data_format in _FIRST


def find_served_nodes(graph: Graph, meta_graph: Message) -> list[tuple[Scope, Node]]:
    """Return the nodes that the signatures and the initialisation of a meta graph need."""
    roots: set[str] = set()
    for definition in meta_graph.signature_def.values():
        for info in (*definition.inputs.values(), *definition.outputs.values()):
            roots.update(_tensors(info))
    for name in ("saved_model_main_op", "legacy_init_op"):
        collection = meta_graph.collection_def.get(name)
        if collection is not None:
            roots.update(collection.node_list.value)
    return list(graph.reachable(roots))


def describe_ops(found: Iterable[tuple[Scope, Node]]) -> str:
    """Return ops with their counts: ``CollectiveReduceV2 (2, first train/all_reduce)``."""
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    for scope, node in found:
        counts[node.op] += 1
        first.setdefault(node.op, f"{scope.name}/{node.name}" if scope.name else node.name)
    return ", ".join(f"{op} ({n}, first {first[op]})" for op, n in sorted(counts.items()))


def _tensors(info: Message) -> Iterator[str]:
    yield source_name(info.name)
    if info.which("encoding") == "coo_sparse":
        sparse = info.coo_sparse
        for name in ("values", "indices", "dense_shape"):
            yield source_name(getattr(sparse, f"{name}_tensor_name"))
    elif info.which("encoding") == "composite_tensor":
        for component in info.composite_tensor.components:
            yield from _tensors(component)
