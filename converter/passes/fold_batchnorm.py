"""Fold a batch normalization into the convolution before it.

`conv(x, W) * f + (beta - mean * f) = conv(x, W * f) + b`, `f = gamma / sqrt(variance + epsilon)`.
The convolution is the producer of the input, anywhere in the node list.
"""

from collections.abc import Callable, Mapping

import numpy as np

from converter.lower.graph import Folded, Graph, Node, Spec, consumers
from converter.passes.fold_constants import constant_of
from formats.core.weights import Tensor

CHANNEL_AXIS = {"Conv": 0, "ConvTranspose": 1}  # axis of the output channels in the kernel


def fold_batchnorm(graph: Graph, weights: Mapping[str, Tensor]) -> None:
    """Fold every BatchNormalization that is the only reader of a convolution's output."""
    producers = {name: node for node in graph.nodes for name in node.outputs}
    readers = consumers(graph)
    gone: set[int] = set()
    for node in graph.nodes:
        if node.op_type != "BatchNormalization":
            continue
        source = producers.get(node.inputs[0])
        alone = len(readers[node.inputs[0]]) == 1 and node.inputs[0] not in graph.outputs
        if source is None or not alone or not takes_factors(source):
            continue
        if any(n not in graph.initializers for n in (*node.inputs[1:], *source.inputs[1:])):
            continue
        _fold(graph, weights, source, node)
        producers[source.outputs[0]] = source
        gone.add(id(node))
    graph.nodes[:] = [node for node in graph.nodes if id(node) not in gone]


def takes_factors(node: Node) -> bool:
    """Return whether a factor per output channel can be folded into the kernel."""
    grouped = node.attributes.get("group", 1) != 1
    return node.op_type == "Conv" or (node.op_type == "ConvTranspose" and not grouped)


def _fold(graph: Graph, weights: Mapping[str, Tensor], conv: Node, norm: Node) -> None:
    kernel, *biases = conv.inputs[1:]
    gamma, beta, mean, variance = (constant_of(graph, weights, n) for n in norm.inputs[1:])
    epsilon = float(str(norm.attributes["epsilon"]))
    axis = CHANNEL_AXIS[conv.op_type]
    spec = graph.specs[kernel]
    shape = tuple(n for n in spec.shape if isinstance(n, int))
    make_kernel = constant_of(graph, weights, kernel)
    make_bias = constant_of(graph, weights, biases[0]) if biases else None

    def factor() -> np.ndarray:
        spread = variance()
        return np.asarray(gamma() / np.sqrt(spread + np.asarray(epsilon, spread.dtype)))

    def scaled() -> np.ndarray:
        f = factor()
        f = f.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        return np.asarray(make_kernel() * f)

    def offset() -> np.ndarray:
        moved = (make_bias() if make_bias else 0) - mean()
        return np.asarray(beta() + moved * factor())

    name = conv.outputs[0]
    channels = (shape[axis],)
    _initialize(graph, f"{name}/kernel", spec.dtype, shape, scaled)
    _initialize(graph, f"{name}/bias", spec.dtype, channels, offset)
    conv.inputs[1:] = [f"{name}/kernel", f"{name}/bias"]
    conv.outputs[0] = norm.outputs[0]


def _initialize(
    graph: Graph, name: str, dtype: str, shape: tuple[int, ...], make: Callable[[], np.ndarray]
) -> None:
    graph.initializers[name] = Folded(dtype, shape, lambda: make().astype(dtype, copy=False))
    graph.specs[name] = Spec(dtype, shape)
