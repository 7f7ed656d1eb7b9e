"""Elements by index, and one-hot vectors of indices."""

from converter.lower.builder import Builder
from converter.lower.values import Value


def take_along_axis(op: Builder, x: Value, indices: Value, axis: int) -> Value:
    """Gather elements of x by index along an axis; all other axes are broadcast.

    Args:
        op: Builder.
        x: Tensor of rank 1 or more.
        indices: Integers of the same rank.
        axis: Axis.
    """
    axis = x.axis(axis)
    source = _expand_to(op, x, indices, axis)
    places = _expand_to(op, indices, x, axis)
    return op.emit(
        "GatherElements", source, places, dtype=x.dtype, shape=places.shape, axis=axis
    )  # fmt: skip


def _expand_to(op: Builder, x: Value, other: Value, axis: int) -> Value:
    """Broadcast x to the sizes of another tensor along all axes but one."""
    pairs = list(zip(x.shape, other.shape, strict=True))
    if all(i == axis or n == m or m == 1 for i, (n, m) in enumerate(pairs)):
        return x
    sides = tuple(1 if i == axis else m for i, m in enumerate(other.shape))
    shape = tuple(n if i == axis or n != 1 else m for i, (n, m) in enumerate(pairs))
    return op.emit("Expand", x, op.sizes_of(other, sides), dtype=x.dtype, shape=shape)


def one_hot(op: Builder, indices: Value, classes: Value, axis: int = -1) -> Value:
    """Return one-hot vectors as booleans, along a new axis of the classes.

    Args:
        op: Builder.
        indices: Integers of any rank; vectors of indices that are not classes are all false.
        classes: Integers from 0 on, as a vector of the same dtype.
        axis: Index of the new axis in the result.
    """
    place = axis + indices.rank + 1 if axis < 0 else axis
    behind = list(range(1, 1 + indices.rank - place))
    line = op.unsqueeze(classes, behind) if behind else classes
    return op.elementwise("Equal", op.unsqueeze(indices, [place]), line)
