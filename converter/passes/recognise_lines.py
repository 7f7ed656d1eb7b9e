"""Replace 2-D convolutions and poolings of one-row images by 1-D ones.

TensorFlow has no 1-D convolution: Conv1D is ExpandDims, Conv2D and Squeeze. ONNX has 1-D Conv;
without the Squeeze, the next nodes directly follow the convolution and can be folded into it.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from converter.lower.graph import Attribute, Graph, Node, Spec, consumers
from formats.core.weights import Tensor

OF_WINDOWS = ("AveragePool", "Conv", "MaxPool")
PER_AXIS = ("dilations", "kernel_shape", "strides")


def recognise_lines(graph: Graph, weights: Mapping[str, Tensor]) -> None:
    """Replace each Unsqueeze, convolution (or pooling) and Squeeze of one spatial axis."""
    del weights
    made = {name: node for node in graph.nodes for name in node.outputs}
    readers = consumers(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += _replace(graph, made, readers, node)
    graph.nodes[:] = nodes


def _replace(
    graph: Graph, made: Mapping[str, Node], readers: Mapping[str, Sequence[Node]], node: Node
) -> list[Node]:
    """Return the replacement of a node."""
    axis = _axis(graph, node) if node.op_type == "Squeeze" else None
    inner = made.get(node.inputs[0]) if axis is not None else None
    if axis is None or inner is None or inner.op_type not in OF_WINDOWS or inner.outputs[1:]:
        return [node]
    name = inner.outputs[0]
    rank = len(graph.specs[name].shape) - 2
    alone = len(readers[name]) == 1 and name not in graph.outputs
    attributes = _without(inner.attributes, axis - 2, rank) if rank == 2 and axis >= 2 else None
    line = _line(graph, made, inner.inputs[0], axis, node.outputs[0])
    if not alone or attributes is None or line is None:
        return [node]
    source, before = line
    inputs = [source, *inner.inputs[1:]]
    if inner.op_type == "Conv":
        kernel = graph.specs[inner.inputs[1]]
        if kernel.shape[axis] != 1:
            return [node]
        inputs[1] = f"{node.outputs[0]}/kernel"
        shape = tuple(n for i, n in enumerate(kernel.shape) if i != axis)
        graph.specs[inputs[1]] = Spec(kernel.dtype, shape)
        before.append(
            Node("Squeeze", [inner.inputs[1], node.inputs[1]], [inputs[1]], {}, inputs[1])
        )
    return [*before, Node(inner.op_type, inputs, list(node.outputs), attributes, node.name)]


def _line(
    graph: Graph, made: Mapping[str, Node], image: str, axis: int, name: str
) -> tuple[str, list[Node]] | None:
    """Return the 1-D value that a one-row image is expanded from, and its transpose; or None."""
    outer = made.get(image)
    if outer is not None and outer.op_type == "Unsqueeze":
        return (outer.inputs[0], []) if _axis(graph, outer) == axis else None
    if outer is None or outer.op_type != "Transpose":
        return None
    first, order = made.get(outer.inputs[0]), outer.attributes.get("perm")
    if first is None or first.op_type != "Unsqueeze" or not isinstance(order, list):
        return None
    numbers = _but(order, ())
    new = _axis(graph, first)
    if new is None or numbers[axis] != new:
        return None
    line = f"{name}/line"
    spec = graph.specs[image]
    shape = tuple(n for i, n in enumerate(spec.shape) if i != axis)
    graph.specs[line] = Spec(spec.dtype, shape)
    perm = [n - (n > new) for n in numbers if n != new]
    return line, [Node("Transpose", [first.inputs[0]], [line], {"perm": perm}, line)]


def _axis(graph: Graph, node: Node) -> int | None:
    """Return the single axis that a node adds or removes."""
    found = graph.initializers.get(node.inputs[1]) if len(node.inputs) > 1 else None
    if not isinstance(found, np.ndarray) or found.size != 1:
        return None
    return int(found.reshape(-1)[0])


def _without(
    attributes: dict[str, Attribute], place: int, rank: int
) -> dict[str, Attribute] | None:
    """Return the attributes of the other spatial axis; None if this one has more than one row."""
    found = dict(attributes)
    for name in PER_AXIS:
        numbers = attributes.get(name)
        if numbers is None:
            continue
        if not isinstance(numbers, list) or len(numbers) != rank or numbers[place] != 1:
            return None
        found[name] = _but(numbers, (place,))
    if "kernel_shape" not in attributes:
        return None
    pads = attributes.get("pads")
    if isinstance(pads, list):
        if pads[place] or pads[place + rank]:
            return None
        found["pads"] = _but(pads, (place, place + rank))
    return found


def _but(numbers: Sequence[object], places: Sequence[int]) -> list[int]:
    return [n for i, n in enumerate(numbers) if i not in places and isinstance(n, int)]
