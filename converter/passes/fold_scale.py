"""Fold factors and offsets of channels into the convolution before them.

Keras 3, and TensorFlow 1 without fusion, write a batch normalization as plain arithmetic:
`x * (gamma / sqrt(variance + epsilon)) + (beta - mean * ...)`. A scalar constant, or one with an
element per channel, is folded into the kernel (a factor) or the bias (an offset).
"""

from collections.abc import Callable, Mapping

import numpy as np

from converter.lower.graph import Folded, Graph, Node, Shape, Spec, consumers
from converter.passes.fold_batchnorm import CHANNEL_AXIS, takes_factors
from converter.passes.fold_constants import constant_of
from formats.core.weights import Tensor

DTYPES = ("float32", "float64")  # folding in fewer bits would round more than the source does


def fold_scale(graph: Graph, weights: Mapping[str, Tensor]) -> None:
    """Fold each Mul, Div, Add and Sub by a constant that is the only reader of a convolution."""
    producers = {name: node for node in graph.nodes for name in node.outputs}
    readers = consumers(graph)
    gone: set[int] = set()
    for node in graph.nodes:
        if node.op_type not in FOLDS or len(node.inputs) != 2:
            continue
        for x, other in ((0, 1), (1, 0)):
            if other == 0 and node.op_type in ("Sub", "Div"):
                continue  # the constant is the minuend or the dividend
            conv = producers.get(node.inputs[x])
            if conv is None or id(conv) in gone or conv.op_type not in CHANNEL_AXIS:
                continue
            if not _fits(graph, conv, node.inputs[other], node):
                continue
            if len(readers[node.inputs[x]]) != 1 or node.inputs[x] in graph.outputs:
                continue
            FOLDS[node.op_type](graph, weights, conv, node.inputs[other], node)
            conv.outputs[0] = node.outputs[0]
            producers[node.outputs[0]] = conv
            gone.add(id(node))
            break
    graph.nodes[:] = [node for node in graph.nodes if id(node) not in gone]


def _fits(graph: Graph, conv: Node, constant: str, node: Node) -> bool:
    """Return whether a constant has one element, or one per channel and no other axes."""
    if constant not in graph.initializers or not takes_factors(conv):
        return False
    if any(name not in graph.initializers for name in conv.inputs[1:]):
        return False
    kernel, spec = graph.specs[conv.inputs[1]], graph.specs[constant]
    if spec.dtype not in DTYPES or kernel.dtype != spec.dtype:
        return False
    rank = len(kernel.shape)
    if len(graph.specs[node.outputs[0]].shape) != rank or len(spec.shape) > rank:
        return False
    wide = (1,) * (rank - len(spec.shape)) + spec.shape
    channels = kernel.shape[CHANNEL_AXIS[conv.op_type]]
    return wide[1] in (1, channels) and all(n == 1 for i, n in enumerate(wide) if i != 1)


def _flat(graph: Graph, weights: Mapping[str, Tensor], name: str) -> Callable[[], np.ndarray]:
    make = constant_of(graph, weights, name)
    return lambda: make().reshape(-1)


def _multiply(
    graph: Graph, weights: Mapping[str, Tensor], conv: Node, constant: str, node: Node
) -> None:
    axis = CHANNEL_AXIS[conv.op_type]
    factor = _flat(graph, weights, constant)
    kernel = graph.specs[conv.inputs[1]]
    rank = len(kernel.shape)

    def shaped() -> np.ndarray:
        return factor().reshape([-1 if i == axis else 1 for i in range(rank)])

    inverse = node.op_type == "Div"
    make = constant_of(graph, weights, conv.inputs[1])
    conv.inputs[1] = _initialize(
        graph, f"{node.outputs[0]}/kernel", kernel.dtype, kernel.shape,
        lambda: make() / shaped() if inverse else make() * shaped(),
    )  # fmt: skip
    if len(conv.inputs) > 2:
        bias = graph.specs[conv.inputs[2]]
        before = constant_of(graph, weights, conv.inputs[2])
        conv.inputs[2] = _initialize(
            graph, f"{node.outputs[0]}/bias", bias.dtype, bias.shape,
            lambda: before() / factor() if inverse else before() * factor(),
        )  # fmt: skip


def _fold_add(
    graph: Graph, weights: Mapping[str, Tensor], conv: Node, constant: str, node: Node
) -> None:
    kernel = graph.specs[conv.inputs[1]]
    channels = kernel.shape[CHANNEL_AXIS[conv.op_type]]
    offset = _flat(graph, weights, constant)
    sign = -1 if node.op_type == "Sub" else 1
    before = constant_of(graph, weights, conv.inputs[2]) if len(conv.inputs) > 2 else None

    def made() -> np.ndarray:
        moved = sign * offset()
        return np.broadcast_to(moved if before is None else before() + moved, (int(str(channels)),))

    name = _initialize(graph, f"{node.outputs[0]}/bias", kernel.dtype, (channels,), made)
    conv.inputs[2:] = [name]


def _initialize(
    graph: Graph, name: str, dtype: str, shape: Shape, make: Callable[[], np.ndarray]
) -> str:
    sizes = tuple(int(str(n)) for n in shape)
    graph.initializers[name] = Folded(dtype, sizes, lambda: make().astype(dtype, copy=False))
    graph.specs[name] = Spec(dtype, sizes)
    return name


FOLDS = {"Mul": _multiply, "Div": _multiply, "Add": _fold_add, "Sub": _fold_add}
