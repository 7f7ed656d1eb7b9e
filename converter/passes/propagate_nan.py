"""Let max-pooling propagate NaN and -inf, only on request.

ONNX leaves open what MaxPool makes of NaN. Kernels of onnxruntime skip it or return it, by its
position, and begin with the lowest finite float, so that a window of -inf gives that. Max gives
what torch does: a window is pooled axis by axis, as the maximum of one slice for each of its
elements, which takes several times as long. Reductions always propagate NaN: see
`converter.lower.ops.reduce`.

Kernels: https://github.com/microsoft/onnxruntime/blob/002469275374731e5990f57a279ca6f891266988/onnxruntime/core/mlas/lib/pooling.cpp
"""

from collections.abc import Sequence
from math import inf
from typing import cast

import numpy as np

from converter.lower.graph import Dim, Graph, Node, Spec, consumers
from converter.lower.ops.conv import same_padding
from formats.errors import UnsupportedError

FLOATS = ("float16", "float32", "float64")
SINCE = 13  # opset in which Max takes all of them
END = np.iinfo(np.int64).max


def propagate_nan(graph: Graph) -> None:
    """Replace each max-pooling by operators that propagate NaN.

    Raises:
        UnsupportedError: A pooling also returns the indices of maxima, has padding that depends on
            a dynamic size, is of an old opset or of another type of floats, or is GlobalMaxPool,
            which only ONNX files have.
    """
    readers = consumers(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        for body in node.bodies:
            propagate_nan(body)
        is_pooling = not node.domain and node.op_type in ("MaxPool", "GlobalMaxPool")
        dtype = graph.specs[node.inputs[0]].dtype if is_pooling else ""
        if not is_pooling or dtype in ("int8", "uint8"):
            nodes.append(node)
            continue
        if dtype not in FLOATS or node.op_type == "GlobalMaxPool" or graph.opset < SINCE:
            of = f"{node.op_type} of {dtype}, opset {graph.opset}"
            raise UnsupportedError(f"propagate_nan=True with {of}, as {node.name} is")
        if any(readers.get(name) or name in graph.outputs for name in node.outputs[1:]):
            raise UnsupportedError(f"propagate_nan=True with indices of maxima, as {node.name} has")
        nodes += _pool(graph, node)
    graph.nodes[:] = nodes


def _pool(graph: Graph, node: Node) -> list[Node]:
    """Return the maxima of windows, axis by axis."""
    x, out = node.inputs[0], node.outputs[0]
    dtype = graph.specs[x].dtype
    kernel = cast("list[int]", node.attributes["kernel_shape"])
    rank = len(kernel)
    steps = cast("list[int]", node.attributes.get("strides", [1] * rank))
    spread = cast("list[int]", node.attributes.get("dilations", [1] * rank))
    spatial = graph.specs[x].shape[2:] or (None,) * rank
    before, after = _padding(node, spatial, kernel, steps, spread)
    nodes: list[Node] = []

    def add(op_type: str, inputs: list[str], name: str) -> str:
        graph.specs.setdefault(name, Spec(dtype, (None,) * (rank + 2)))
        nodes.append(Node(op_type, inputs, [name], {}, name))
        return name

    if any((*before, *after)):
        pads = _constant(graph, f"{out}/pads", [0, 0, *before, 0, 0, *after])
        lowest = _constant(graph, f"{out}/lowest", np.array(-inf, dtype))
        x = add("Pad", [x, pads, lowest], f"{out}/padded")
    windowed = [i for i in range(rank) if kernel[i] > 1 or steps[i] > 1]
    for i in windowed:
        of = f"{out}/{i}"
        axis = _constant(graph, f"{of}/axis", [i + 2])
        step = _constant(graph, f"{of}/step", [steps[i]])
        slices = []
        for k in range(kernel[i]):
            begin = _constant(graph, f"{of}/{k}/begin", [k * spread[i]])
            behind = (k - kernel[i] + 1) * spread[i]
            end = _constant(graph, f"{of}/{k}/end", [behind or END])
            slices.append(add("Slice", [x, begin, end, axis, step], f"{of}/{k}"))
        x = add("Max", slices, out if i == windowed[-1] else f"{of}/largest")
    if not windowed:
        add("Identity", [x], out)
    return nodes


def _padding(
    node: Node, spatial: Sequence[Dim], kernel: list[int], steps: list[int], spread: list[int]
) -> tuple[list[int], list[int]]:
    """Return the padding before and after each axis, with what rounding up adds.

    Raises:
        UnsupportedError: It depends on a dynamic size.
    """
    rank = len(kernel)
    mode = str(node.attributes.get("auto_pad", "NOTSET"))
    if mode.startswith("SAME"):
        found = same_padding(spatial, kernel, steps, spread)
        if found is None:
            raise UnsupportedError(f"propagate_nan=True with {mode} of {_dynamic(node)}")
        return found if mode == "SAME_UPPER" else found[::-1]
    if mode == "VALID":
        return [0] * rank, [0] * rank
    pads = cast("list[int]", node.attributes.get("pads", [0] * 2 * rank))
    before, after = pads[:rank], pads[rank:]
    if node.attributes.get("ceil_mode", 0):
        for i, n in enumerate(spatial):
            if steps[i] == 1:
                continue
            if not isinstance(n, int):
                raise UnsupportedError(f"propagate_nan=True with ceil_mode of {_dynamic(node)}")
            whole = n + before[i] + after[i] - (kernel[i] - 1) * spread[i] - 1
            reached = -(-whole // steps[i]) * steps[i]
            if reached < n + before[i]:  # a window that would begin in the padding is none
                after[i] += reached - whole
    return before, after


def _dynamic(node: Node) -> str:
    return f"a dynamic size, as {node.name} has"


def _constant(graph: Graph, name: str, value: "np.ndarray | list[int]") -> str:
    array = np.asarray(value)
    graph.initializers[name] = array
    graph.specs[name] = Spec(array.dtype.name, array.shape)
    return name
