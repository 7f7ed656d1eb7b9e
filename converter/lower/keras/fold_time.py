"""The steps of sequences as one batch, for what does to each step the same."""

from typing import Any

from converter.lower.builder import Builder
from converter.lower.values import Value, total


def fold_steps(op: Builder, x: Value) -> Value:
    """Return [batch, steps, ...] as [batch * steps, ...]."""
    x = op.plain(x)
    shape = (total(x.shape[:2]), *x.shape[2:])
    if all(isinstance(n, int) for n in shape[1:]):
        return op.reshape(x, shape)
    first = op.constant([shape[0] if isinstance(shape[0], int) else -1], "int64")
    sizes = [first, *(op.size(x, axis) for axis in range(2, x.rank))]
    return op.emit("Reshape", x, op.concat(sizes, 0), dtype=x.dtype, shape=shape)


def unfold_steps(op: Builder, y: Value, x: Value) -> Value:
    """Return [batch * steps, ...] as [batch, steps, ...], of the batch and steps that x has."""
    y = op.plain(y)
    shape = (*x.shape[:2], *y.shape[1:])
    sizes = [op.size(x, 1), *(op.size(y, axis) for axis in range(1, y.rank))]
    batch = op.constant([x.shape[0] if isinstance(x.shape[0], int) else -1], "int64")
    return op.emit("Reshape", y, op.concat([batch, *sizes], 0), dtype=y.dtype, shape=shape)


def mask_as_given(op: Builder, x: Value, mask: Value | None, inner: Any) -> Value | None:
    """Return the mask of what Keras 3's TimeDistributed gives: that of its input."""
    del op, x, inner
    return mask


def mask_of_steps(op: Builder, x: Value, mask: Value | None, inner: Any) -> Value | None:
    """Return the mask of what Keras 1's and 2's gives: what the layer makes of each step's."""
    found = inner if isinstance(inner, Value | None) else inner[0]
    if found is not None:
        return unfold_steps(op, found, x)
    if mask is None or mask.rank == 2:
        return mask
    some = op.reduce("ReduceMax", op.cast(mask, "int32"), range(2, mask.rank))
    return op.cast(some, "bool")


# Class -> the mask of its outputs, from input, mask, and the mask of what is inside.
ON_STEPS = {"TimeDistributed": mask_as_given, "Keras2TimeDistributed": mask_of_steps}
