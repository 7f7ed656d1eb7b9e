"""Multi-dimensional and flat indices of a shape, by which sparse tensors are sorted and joined."""

from collections.abc import Sequence

from converter.lower.tf import extents
from converter.lower.tf.context import Context
from converter.lower.tf.extents import Extent
from converter.lower.values import Value


def strides(op: Context, sides: Sequence[Extent]) -> list[Extent]:
    """Return the strides of a contiguous shape."""
    found: list[Extent] = []
    step = extents.number(op, 1)
    for side in reversed(sides):
        found.insert(0, step)
        step = extents.mul(op, step, side)
    return found


def places(op: Context, numbers: Value, sides: Sequence[Extent]) -> list[Value]:
    """Convert flat indices to multi-dimensional indices, one value for each axis."""
    found, rest = [], numbers
    steps = strides(op, sides)
    for i, step in enumerate(steps):
        last = i == len(steps) - 1
        one = step.vector if numbers.rank else op.squeeze(step.vector, [0])
        found.append(rest if last else op.div(rest, one))
        if not last:
            rest = op.elementwise("Mod", rest, one)
    return found


def flatten_indices(op: Context, indices: Value, sides: Sequence[Extent]) -> Value:
    """Convert multi-dimensional indices [n, axes] to flat indices [n]."""
    if len(sides) == 1:
        return op.reshape(indices, (indices.shape[0],))
    steps = extents.vector(op, strides(op, sides))
    return op.reduce("ReduceSum", op.mul(indices, steps), [1])


def stack_indices(op: Context, columns: Sequence[Value]) -> Value:
    """Stack one vector of indices for each axis into [n, axes]."""
    return op.concat([op.unsqueeze(v, [1]) for v in columns], 1)


def sort_keys(op: Context, keys: Value) -> tuple[Value, Value]:
    """Sort keys stably; return them and their original indices."""
    count = op.size(keys, 0)
    found = op.node(
        "TopK", [op.plain(keys), count], [(keys.dtype, keys.shape), ("int64", keys.shape)],
        attributes={"axis": 0, "largest": 0, "sorted": 1},
    )  # fmt: skip
    return found[0], found[1]


def inverse_of(op: Context, order: Value) -> Value:
    """Return the inverse of a permutation."""
    line = extents.count_to(op, extents.of(op, order, 0))
    return op.emit("ScatterElements", order, order, line, dtype="int64", shape=order.shape, axis=0)
