"""Adaptive pooling: as many windows of an axis as are asked for, whatever its size is.

Window i goes from floor(i n / m) to ceil((i + 1) n / m), so that windows have one of two lengths
and may overlap. Keras, torch and TensorFlow Addons agree on it.
"""

from collections.abc import Sequence

from converter.lower.builder import Builder
from converter.lower.gap import Gap
from converter.lower.graph import Dim
from converter.lower.known_values import Numbers, count
from converter.lower.values import Value

MOST = 1 << 22  # numbers of a constant that says which elements are whose


def window_edges(op: Builder, size: Numbers, windows: Numbers) -> tuple[Numbers, Numbers]:
    """Return where each window of an axis begins, and where it ends (exclusive).

    Raises:
        Gap: They would take a constant of too many numbers.
    """
    n, m = (1 if v.known is None else int(v.known) for v in (size, windows))
    if n * m > MOST:
        raise Gap(f"adaptive pooling of {n} to {m}")
    number = count(op, windows)
    return number * size // windows, ((number + 1) * size + windows - 1) // windows


def adaptive_mean(
    op: Builder, x: Value, axis: int, size: Numbers, windows: Numbers, dim: Dim
) -> Value:
    """Return the mean of each window along an axis; arguments as of `adaptive_max`."""
    starts, ends = window_edges(op, size, windows)
    at = count(op, size).column()
    lengths = (ends - starts).to("float64")
    inside = (at >= starts) & (at < ends)
    weights = inside.choose(1.0 / lengths, 0.0 * lengths).to(x.dtype).value
    order = [*(i for i in range(x.rank) if i != axis), axis]
    last = op.plain(op.transpose(x, order))
    made = op.emit("MatMul", last, weights, dtype=x.dtype, shape=(*last.shape[:-1], dim))
    return op.transpose(made, [order.index(i) for i in range(x.rank)])


def adaptive_max(
    op: Builder, x: Value, axis: int, size: Numbers, windows: Numbers, dim: Dim
) -> tuple[Value, Value]:
    """Return the largest of each window along an axis, and its index (int64), the first of equals.

    Args:
        op: Builder.
        x: Values of any rank.
        axis: The axis, not negative.
        size: Its size.
        windows: How many windows.
        dim: The same as a size of the result.
    """
    starts, ends = window_edges(op, size, windows)
    longest = (size + windows - 1) // windows + 1
    # Beyond a window's end its last element is repeated, and is never the first of equals.
    members = (starts.column() + count(op, longest)).least(ends.column() - 1)
    shape = (*x.shape[:axis], dim, None, *x.shape[axis + 1 :])
    gathered = op.emit("Gather", x, members.value, dtype=x.dtype, shape=shape, axis=axis)
    values = op.reduce("ReduceMax", gathered, [axis + 1])
    found = op.emit(
        "ArgMax", gathered, dtype="int64", shape=values.shape, axis=axis + 1, keepdims=0
    )
    behind = list(range(1, x.rank - axis))
    return values, op.add(found, op.unsqueeze(starts.value, behind) if behind else starts.value)


def adaptive_max_of_image(
    op: Builder, x: Value, sizes: Sequence[Numbers], windows: Sequence[Numbers], dims: Sequence[Dim]
) -> tuple[Value, Value]:
    """Return the largest of each window over the last axes, and its index in the flat image."""
    index: Value | None = None
    stride: Numbers | None = None
    for i in reversed(range(len(sizes))):
        axis = x.rank - len(sizes) + i
        x, found = adaptive_max(op, x, axis, sizes[i], windows[i], dims[i])
        if index is None or stride is None:
            index, stride = found, sizes[i]
            continue
        inner = op.emit("GatherElements", index, found, dtype="int64", shape=x.shape, axis=axis)
        index = op.add(op.mul(found, stride.value), inner)
        stride = stride * sizes[i]
    assert index is not None
    return x, index
