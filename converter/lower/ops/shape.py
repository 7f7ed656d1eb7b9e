"""Squeeze axes of size 1, and roll elements along an axis."""

from collections.abc import Sequence
from dataclasses import replace

from converter.lower.builder import END, Builder
from converter.lower.known_values import count, size
from converter.lower.values import Value


def drop_ones(
    op: Builder, x: Value, axes: Sequence[int] | None = None, *, may_be_one: bool = True
) -> Value:
    """Remove axes of size 1: of those given, or of all.

    The rank of a value in a graph is static, so axes of unknown size are kept, and a note says so.

    Args:
        op: Builder.
        x: Any value.
        axes: Axes to remove if their size is 1; all by default.
        may_be_one: Whether an unknown size may be 1.
    """
    asked = range(x.rank) if axes is None else [x.axis(a) for a in axes]
    if may_be_one and (kept := [a for a in asked if not isinstance(x.shape[a], int)]):
        names = ", ".join(str(x.shape[a] or a) for a in kept)
        op.note(f"squeeze keeps axes of unknown size ({names}); the source drops those of 1")
    gone = [a for a in asked if x.shape[a] == 1]
    return op.squeeze(x, gone) if gone else x


def roll_axis(op: Builder, x: Value, axis: int, amount: int) -> Value:
    """Roll the elements of x along an axis; elements shifted past one end reappear at the other."""
    n = x.shape[x.axis(axis)]
    if not isinstance(n, int):
        own = size(op, x, axis)
        at = (count(op, own) + (own - amount % own)) % own
        return replace(op.gather(x, at.value, axis), shape=x.shape)
    amount %= max(n, 1)
    if not amount:
        return x
    end = op.slice(x, [axis], [-amount], [END])
    return op.concat([end, op.slice(x, [axis], [0], [-amount])], axis)
