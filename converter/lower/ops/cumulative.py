"""Cumulative operations along an axis (prefix scans)."""

from collections.abc import Callable
from dataclasses import replace

from converter.lower.builder import END, Builder
from converter.lower.scan import scan
from converter.lower.values import Value

Join = Callable[[Value, Value], Value]
MOST_IN_ORDER = 64  # elements of an axis that are combined sequentially
MOST_DOUBLED = 1 << 16  # elements of an axis that are combined by doubling


def cumulative_sum(
    op: Builder, x: Value, axis: "int | Value", *, exclusive: bool = False, reverse: bool = False
) -> Value:
    """Return the cumulative sum along an axis.

    Args:
        op: Builder.
        x: Tensor of rank 1 or more.
        axis: Axis; a scalar value where it is computed.
        exclusive: Whether the sum excludes the element itself.
        reverse: Whether to start from the end.
    """
    along = axis if isinstance(axis, Value) else op.constant(x.axis(axis), "int64")
    how = {"exclusive": int(exclusive), "reverse": int(reverse)}
    return op.emit("CumSum", x, along, dtype=x.dtype, shape=x.shape, **how)


def accumulate(
    op: Builder, x: Value, axis: int, join: Join, neutral: float, *,
    exclusive: bool = False, reverse: bool = False,
) -> Value:  # fmt: skip
    """Return each element combined with all elements before it along an axis.

    Few elements are combined sequentially, in the order of the frameworks, so that results overflow
    where theirs do; more elements by doubling; very many, or an unknown number, by a Scan.

    Args:
        op: Builder.
        x: Tensor of rank 1 or more.
        axis: Axis.
        join: Associative operation of two values.
        neutral: Neutral element of `join`.
        exclusive: Whether the result excludes the element itself.
        reverse: Whether to start from the end.
    """
    axis = x.axis(axis)
    if exclusive:
        x = _shift(op, x, axis, 1, neutral, reverse=reverse)
    size = x.shape[axis]
    if not isinstance(size, int) or size > MOST_DOUBLED:
        return _accumulate_by_steps(op, x, axis, join, neutral, reverse=reverse)
    if size <= MOST_IN_ORDER:
        return _accumulate_in_order(op, x, axis, join, reverse=reverse)
    reach = 1  # after i steps, each element combines the 2**i elements up to it
    while reach < size:
        x = join(_shift(op, x, axis, reach, neutral, reverse=reverse), x)
        reach *= 2
    return x


def _accumulate_in_order(op: Builder, x: Value, axis: int, join: Join, *, reverse: bool) -> Value:
    size = x.shape[axis]
    if not isinstance(size, int) or size < 2:
        return x
    order = -1 if reverse else 1
    found: list[Value] = []
    for part in op.split(x, axis, [1] * size)[::order]:
        found.append(join(found[-1], part) if found else part)
    return op.concat(found[::order], axis)


def _shift(
    op: Builder, x: Value, axis: int, distance: int, neutral: float, *, reverse: bool
) -> Value:
    """Shift the elements of x along an axis and fill the vacated positions with neutral ones."""
    start, end = (distance, END) if reverse else (0, -distance)
    part = op.slice(x, [axis], [start], [end])
    before, after = [0] * x.rank, [0] * x.rank
    (after if reverse else before)[x.stored.index(axis)] = distance
    pads = op.constant([*before, *after], "int64")
    inputs = [part, pads, op.constant(neutral, x.dtype)]
    return op.node("Pad", inputs, [(x.dtype, x.shape)], stored=x.stored)[0]


def _accumulate_by_steps(
    op: Builder, x: Value, axis: int, join: Join, neutral: float, *, reverse: bool
) -> Value:
    """Combine elements by a Scan from a neutral one: onnxruntime takes no empty axis."""
    end = int(reverse)
    ends = [[int(i == axis and k == end) for i in range(x.rank)] for k in (0, 1)]
    wide = op.plain(op.pad(x, *ends, value=neutral))
    shape = tuple(n for i, n in enumerate(x.shape) if i != axis)
    sizes = [op.size(x, i) for i in range(x.rank) if i != axis]
    start = one = op.constant(neutral, x.dtype)
    if sizes:
        start = op.emit("Expand", one, op.concat(sizes, 0), dtype=x.dtype, shape=shape)

    def step(states: list[Value], parts: list[Value]) -> tuple[list[Value], list[Value]]:
        after = join(states[0], parts[0])
        return [after], [after]

    found = scan(op, step, [start], [wide], axis=axis, backwards=reverse)[1][0]
    return replace(op.slice(found, [axis], [1 - end], [-1 if reverse else END]), shape=x.shape)
