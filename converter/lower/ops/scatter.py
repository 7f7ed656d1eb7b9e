"""Scatter operations, with or without a reduction.

A reduction of float16 or bfloat16 is accumulated in float32: onnxruntime has no kernels for
narrower types.
"""

import numpy as np

from converter.lower.builder import Builder
from converter.lower.graph import Attribute, Dim
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

NARROW = frozenset(("float16", "bfloat16"))


def scatter_nd(
    op: Builder, x: Value, indices: Value, updates: Value, reduction: str = "none"
) -> Value:
    """Return a copy of a tensor with elements or slices updated at indices.

    Args:
        op: Builder.
        x: Tensor.
        indices: [..., depth], where depth is the number of leading axes that are indexed.
        updates: [..., the axes of x that are not indexed].
        reduction: Reduction of updates and elements: none, add, mul, max or min.

    Raises:
        Unsupported: A reduction of booleans or strings.
    """
    wide, how = _accumulate_as(x, reduction)
    given = op.cast(x, wide), op.cast(indices, "int64"), op.cast(updates, wide)
    return op.cast(op.emit("ScatterND", *given, dtype=wide, shape=x.shape, **how), x.dtype)


def update_slice(op: Builder, x: Value, updates: Value, start: Value) -> Value:
    """Return a copy of a tensor in which updates replace the slice that begins at start.

    As XLA's DynamicUpdateSlice, moves a start that leaves too little room.

    Args:
        op: Builder.
        x: Tensor.
        updates: Tensor of as many axes, none longer.
        start: [axes of x], int64.

    Raises:
        Unsupported: An axis of unknown size is updated in part.
    """
    known = op.array(start)
    if known is not None:
        axes = zip(x.shape, updates.shape, known.tolist(), strict=True)
        before, after = map(list, zip(*(_room(*axis) for axis in axes), strict=True))
        is_true = op.cast(updates, "bool")
        everywhere = op.elementwise("Or", is_true, op.unary("Not", is_true))
        there = op.cast(op.pad(op.cast(everywhere, "int32"), before, after), "bool")
        return op.where(there, op.pad(updates, before, after), x)
    whole, sizes = ([n for n in v.shape if isinstance(n, int)] for v in (x, updates))
    if len(whole) + len(sizes) < 2 * x.rank:
        raise Unsupported("updating over an axis of unknown size")
    room = [n - m for n, m in zip(whole, sizes, strict=True)]
    zero = op.constant(0, "int64")
    start = op.elementwise("Max", start, zero)
    start = op.elementwise("Min", start, op.constant(room, "int64"))
    grid = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), -1)
    return scatter_nd(op, x, op.add(op.constant(grid, "int64"), start), updates)


def _room(whole: Dim, part: Dim, start: int) -> tuple[int, int]:
    """Return how much of an axis is before and after a part that starts somewhere."""
    if isinstance(whole, int) and isinstance(part, int):
        start = min(max(start, 0), whole - part)
        return start, whole - part - start
    if whole != part or start:
        raise Unsupported("updating a part of an axis of unknown size")
    return 0, 0


def scatter_elements(
    op: Builder, x: Value, axis: int, indices: Value, updates: Value, reduction: str = "none"
) -> Value:
    """Return a copy of a tensor with elements updated at indices along an axis.

    Args:
        op: Builder.
        x: Tensor of rank 1 or more.
        axis: Axis.
        indices: Indices along the axis; on all other axes, updates keep their own index.
        updates: Updates, of the shape of the indices.
        reduction: Reduction of updates and elements: none, add, mul, max or min.

    Raises:
        Unsupported: A reduction of booleans or strings.
    """
    wide, how = _accumulate_as(x, reduction)
    given = op.cast(x, wide), indices, op.cast(updates, wide)
    made = op.emit("ScatterElements", *given, dtype=wide, shape=x.shape, axis=x.axis(axis), **how)
    return op.cast(made, x.dtype)


def add_by_index(
    op: Builder, indices: Value, length: Value, weights: Value | None, dtype: str, *,
    is_binary: bool = False, dim: Dim = None,
) -> Value:  # fmt: skip
    """Count each index along the last axis, or sum its weights, as numpy.bincount does.

    Args:
        op: Builder.
        indices: [..., n], none negative; those at or beyond the length are left out.
        length: Length of the last axis of the result: a vector of one element (int64).
        weights: Weights, of the shape of the indices; each is one by default.
        dtype: Dtype of the result.
        is_binary: Whether an index that occurs counts one, however often it does.
        dim: The length as a dimension, where it is known.
    """
    indices = op.elementwise("Min", op.cast(indices, "int64"), length)
    rows = [op.size(indices, i) for i in range(indices.rank - 1)]
    sizes = op.concat([*rows, op.add(length, 1)], 0)
    shape = (*indices.shape[:-1], None)
    zeros = op.emit("Expand", op.constant(0, dtype), sizes, dtype=dtype, shape=shape)
    if weights is None:
        each = op.emit("Shape", indices, dtype="int64", shape=(indices.rank,))
        one = op.constant(1, dtype)
        weights = op.emit("Expand", one, each, dtype=dtype, shape=indices.shape)
    reduction = "none" if is_binary else "add"
    made = scatter_elements(op, zeros, -1, indices, op.cast(weights, dtype), reduction)
    start, last = op.constant([0], "int64"), op.constant([-1], "int64")
    return op.emit("Slice", made, start, length, last, dtype=dtype, shape=(*shape[:-1], dim))


def _accumulate_as(x: Value, reduction: str) -> tuple[str, dict[str, Attribute]]:
    if reduction == "none":
        return x.dtype, {}
    if x.dtype in ("bool", "string"):
        raise Unsupported(f"{reduction} of {x.dtype}")
    return "float32" if x.dtype in NARROW else x.dtype, {"reduction": reduction}
