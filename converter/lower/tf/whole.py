"""Arrays of whole numbers, known while a graph is lowered or computed when it runs.

Places of elements are computed of sizes: with numpy where all of these are known, so that the graph
has a constant, and with nodes where they are not; the formulas are the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from converter.lower.tf.context import Context
from converter.lower.values import Value, broadcast

Operand: TypeAlias = "Whole | int"


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """An array of int64, or of booleans that came of comparing such."""

    op: Context
    held: "np.ndarray | Value"

    @property
    def known(self) -> "np.ndarray | None":
        """The numbers, where all are known."""
        return self.held if isinstance(self.held, np.ndarray) else None

    @property
    def value(self) -> Value:
        """The array as a tensor."""
        return self.held if isinstance(self.held, Value) else self.op.constant(self.held)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return self.held.ndim if isinstance(self.held, np.ndarray) else self.held.rank

    def _joined(self, other: Operand, op_type: str, function: Callable[..., Any]) -> "Whole":
        right = other if isinstance(other, Whole) else whole(self.op, other)
        if self.known is not None and right.known is not None:
            return Whole(self.op, np.asarray(function(self.known, right.known)))
        return Whole(self.op, self.op.elementwise(op_type, self.value, right.value))

    def __add__(self, other: Operand) -> "Whole":
        return self._joined(other, "Add", np.add)

    def __sub__(self, other: Operand) -> "Whole":
        return self._joined(other, "Sub", np.subtract)

    def __mul__(self, other: Operand) -> "Whole":
        return self._joined(other, "Mul", np.multiply)

    def least(self, other: Operand) -> "Whole":
        """Return the smaller."""
        return self._joined(other, "Min", np.minimum)

    def most(self, other: Operand) -> "Whole":
        """Return the larger."""
        return self._joined(other, "Max", np.maximum)

    def __lt__(self, other: Operand) -> "Whole":
        return self._joined(other, "Less", np.less)

    def __le__(self, other: Operand) -> "Whole":
        return self._joined(other, "LessOrEqual", np.less_equal)

    def __ge__(self, other: Operand) -> "Whole":
        return self._joined(other, "GreaterOrEqual", np.greater_equal)

    def __and__(self, other: "Whole") -> "Whole":
        return self._joined(other, "And", np.logical_and)

    def choose(self, a: Operand, b: Operand) -> "Whole":
        """Return a where this holds, else b."""
        left, right = (v if isinstance(v, Whole) else whole(self.op, v) for v in (a, b))
        if all(v.known is not None for v in (self, left, right)):
            return Whole(self.op, np.where(self.held, left.held, right.held))  # type: ignore[arg-type]
        return Whole(self.op, self.op.where(self.value, left.value, right.value))

    def column(self) -> "Whole":
        """Return a vector as a matrix of one column."""
        if self.known is not None:
            return Whole(self.op, self.known[:, None])
        return Whole(self.op, self.op.unsqueeze(self.value, [1]))

    def holds(self) -> bool:
        """Tell whether it is known that all hold."""
        return self.known is not None and bool(self.known.all())


def whole(op: Context, number: "int | Value") -> Whole:
    """Return a number, or a tensor of integers."""
    if isinstance(number, Value):
        known = op.static(number)
        if known is not None:
            return Whole(op, known.astype(np.int64))
        return Whole(op, op.cast(number, "int64"))
    return Whole(op, np.asarray(number, np.int64))


def size(op: Context, x: Value, axis: int) -> Whole:
    """Return the size of an axis."""
    axis = x.axis(axis)
    n = x.shape[axis]
    if isinstance(n, int):
        return whole(op, n)
    return Whole(op, op.squeeze(op.size(x, axis), [0]))


def count(op: Context, until: Whole) -> Whole:
    """Return the numbers from 0 to before another."""
    if until.known is not None:
        return Whole(op, np.arange(int(until.known), dtype=np.int64))
    zero, one = op.constant(0, "int64"), op.constant(1, "int64")
    return Whole(op, op.emit("Range", zero, until.value, one, dtype="int64", shape=(None,)))


def vector(op: Context, parts: "list[Whole | int]") -> Value:
    """Return numbers as one vector."""
    made = [v if isinstance(v, Whole) else whole(op, v) for v in parts]
    if all(v.known is not None for v in made):
        return op.constant([int(v.known) for v in made if v.known is not None], "int64")
    return op.concat([op.unsqueeze(v.value, [0]) for v in made], 0)


def shape_of(*values: Whole) -> tuple[int | str | None, ...]:
    """Return the shape that arrays have together."""
    result: tuple[int | str | None, ...] = ()
    for v in values:
        result = broadcast(result, tuple(v.held.shape))
    return result
