"""Running results along an axis: of each element with all before it."""

from collections.abc import Callable

from converter.lower.builder import Builder
from converter.lower.scan import scan
from converter.lower.values import Value

Join = Callable[[Value, Value], Value]
MOST_DOUBLED = 1 << 16  # elements of an axis that is gone over by doubling


def accumulate(op: Builder, x: Value, axis: int, join: Join, neutral: float) -> Value:
    """Return each element joined with all before it along an axis.

    By doubling where the size is known: after step i each element is the result of the 2**i up to
    it. Else by a loop over the axis.

    Args:
        op: Builder.
        x: Values of any rank but 0.
        axis: The axis.
        join: An associative operation of two values.
        neutral: What joins with any value to that value.
    """
    axis = x.axis(axis)
    size, one = x.shape[axis], op.constant(neutral, x.dtype)
    if isinstance(size, int) and size <= MOST_DOUBLED:
        reach = 1
        while reach < size:
            before = [0] * x.rank
            before[axis] = reach
            cut = op.slice(x, [axis], [0], [size - reach])
            pads = op.constant([*before, *[0] * x.rank], "int64")
            x = join(op.emit("Pad", cut, pads, one, dtype=x.dtype, shape=x.shape), x)
            reach *= 2
        return x
    shape = tuple(n for i, n in enumerate(x.shape) if i != axis)
    sizes = [op.size(x, i) for i in range(x.rank) if i != axis]
    start = one
    if sizes:
        start = op.emit("Expand", one, op.concat(sizes, 0), dtype=x.dtype, shape=shape)

    def step(states: list[Value], parts: list[Value]) -> tuple[list[Value], list[Value]]:
        after = join(states[0], parts[0])
        return [after], [after]

    return scan(op, step, [start], [op.plain(x)], axis=axis)[1][0]
