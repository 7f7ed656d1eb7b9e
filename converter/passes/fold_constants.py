"""Fold operations on constants: they are computed when the file is written.

Results are not kept: each kernel is read, transposed, written and released before the next one.
"""

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from converter.lower.graph import Folded, Graph, Node, Weight
from formats.core.weights import DTYPES, Tensor, numpy_dtype

Arrays = list[np.ndarray]
BLOCK = 128  # rows transposed at once: they fit into a cache, the whole kernel does not
CACHE = 1 << 20  # bytes of a kernel that are reordered at once


def fold_constants(graph: Graph, weights: Mapping[str, Tensor]) -> None:
    """Replace nodes whose inputs are all constant by initializers."""
    kept: list[Node] = []
    for node in graph.nodes:
        evaluate = EVALUATORS.get(node.op_type)
        constant = all(not name or name in graph.initializers for name in node.inputs)
        if evaluate is None or not constant or len(node.outputs) != 1 or node.domain:
            kept.append(node)
            continue
        spec = graph.specs[node.outputs[0]]
        shape = tuple(n for n in spec.shape if isinstance(n, int))
        if len(shape) != len(spec.shape) or spec.dtype not in DTYPES:  # strings are not folded
            kept.append(node)
            continue
        makers = [constant_of(graph, weights, name) for name in node.inputs if name]
        graph.initializers[node.outputs[0]] = _fold(node, evaluate, makers, spec.dtype, shape)
    graph.nodes[:] = kept


def constant_of(graph: Graph, weights: Mapping[str, Tensor], name: str) -> Callable[[], np.ndarray]:
    """Return a function that computes an initializer's array."""
    found = graph.initializers[name]
    if isinstance(found, Weight):
        return weights[found.tensor].numpy
    if isinstance(found, Folded):
        return found.make
    return lambda: found


def _fold(
    node: Node,
    evaluate: Callable[[Node, Arrays], np.ndarray],
    makers: list[Callable[[], np.ndarray]],
    dtype: str,
    shape: tuple[int, ...],
) -> Folded:
    kind = numpy_dtype(DTYPES[dtype])

    def make() -> np.ndarray:
        result = evaluate(node, [maker() for maker in makers])
        return np.asarray(result).astype(kind, copy=False).reshape(shape)

    return Folded(dtype, shape, make)


def transpose(x: np.ndarray, order: list[int]) -> np.ndarray:
    """Return a contiguous transpose, computed in blocks where the strides differ much."""
    rank = x.ndim
    # [*spatial, in, out] -> [out, in, *spatial] is the expensive one: transpose as a matrix first.
    if rank >= 3 and order[:2] == [rank - 1, rank - 2] and order[2:] == list(range(rank - 2)):
        *spatial, inner, outer = x.shape
        rows = prod(spatial) * inner
        matrix = x.reshape(rows, outer)
        result = np.empty((outer, inner, prod(spatial)), x.dtype)
        step = min(max(1, outer), max(8, CACHE // max(1, rows * x.itemsize)))
        turned = np.empty((step, rows), x.dtype)
        for start in range(0, outer, step):
            part = result[start : start + step]
            for row in range(0, rows, BLOCK):
                columns = matrix[row : row + BLOCK, start : start + step]
                turned[: len(part), row : row + BLOCK] = columns.T
            part[:] = turned[: len(part)].reshape(len(part), -1, inner).transpose(0, 2, 1)
        return result.reshape(outer, inner, *spatial)
    return np.ascontiguousarray(x.transpose(order))


def _slice(node: Node, x: Arrays) -> np.ndarray:
    del node
    data, starts, ends, axes, steps = x
    index: list[slice] = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        last = None if step < 0 and end < -data.shape[axis] else int(end)
        index[axis] = slice(int(start), last, int(step))
    return data[tuple(index)]


def _squeeze(node: Node, x: Arrays) -> np.ndarray:
    del node
    return np.squeeze(x[0], tuple(int(a) for a in x[1]))


def _unsqueeze(node: Node, x: Arrays) -> np.ndarray:
    del node
    return np.expand_dims(x[0], tuple(int(a) for a in x[1]))


def _reshape(node: Node, x: Arrays) -> np.ndarray:
    del node
    return x[0].reshape([int(n) for n in x[1]])


def _ints(value: object) -> list[int]:
    return [int(n) for n in value] if isinstance(value, list) else []


def _elementwise(function: Callable[..., np.ndarray]) -> Callable[[Node, Arrays], np.ndarray]:
    def evaluate(node: Node, x: Arrays) -> np.ndarray:
        del node
        return function(*x)

    return evaluate


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind != "f":  # ONNX truncates towards zero
        return np.asarray(np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)), a.dtype)
    return np.asarray(a / b)


EVALUATORS: dict[str, Callable[[Node, Arrays], np.ndarray]] = {
    "Transpose": lambda node, x: transpose(x[0], _ints(node.attributes["perm"])),
    "Reshape": _reshape,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Slice": _slice,
    "Concat": lambda node, x: np.concatenate(x, int(str(node.attributes["axis"]))),
    "Gather": lambda node, x: np.take(x[0], x[1], int(str(node.attributes.get("axis", 0)))),
    "Cast": _elementwise(lambda x: x),
    "Add": _elementwise(np.add),
    "Sub": _elementwise(np.subtract),
    "Mul": _elementwise(np.multiply),
    "Div": _elementwise(_divide),
    "Neg": _elementwise(np.negative),
    "Sqrt": _elementwise(np.sqrt),
    "Reciprocal": _elementwise(np.reciprocal),
}
