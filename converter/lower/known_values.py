"""Values that are known while a graph is lowered, or else computed when it runs.

Indices are computed from sizes, scales from bounds: by NumPy where all operands are known, so that
the graph has a constant, and by nodes where they are not. The formulas are the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from converter.lower.builder import Builder
from converter.lower.values import Value, broadcast

Operand: TypeAlias = "Numbers | float"


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """An array of one dtype, or of booleans from comparisons; known, or a value of the graph.

    An array of bfloat16 is always a value of the graph, since NumPy has no such dtype.
    """

    op: Builder
    held: "np.ndarray | Value"

    @property
    def known(self) -> "np.ndarray | None":
        """The array, where it is known while lowering; else None."""
        return self.held if isinstance(self.held, np.ndarray) else None

    @property
    def value(self) -> Value:
        """The array as a tensor."""
        return self.held if isinstance(self.held, Value) else self.op.constant(self.held)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return self.held.ndim if isinstance(self.held, np.ndarray) else self.held.rank

    def _joined(self, other: Operand, op_type: str, function: Callable[..., Any]) -> "Numbers":
        right = other if isinstance(other, Numbers) else self._alike(other)
        if self.known is not None and right.known is not None:
            with np.errstate(all="ignore"):
                return Numbers(self.op, np.asarray(function(self.known, right.known)))
        return Numbers(self.op, self.op.elementwise(op_type, self.value, right.value))

    def _alike(self, number: float) -> "Numbers":
        dtype = self.held.dtype
        if isinstance(dtype, str):
            return Numbers(self.op, self.op.constant(number, dtype))
        return Numbers(self.op, np.asarray(number, dtype))

    def _turned(self, op_type: str, function: Callable[..., Any]) -> "Numbers":
        if self.known is not None:
            with np.errstate(all="ignore"):
                return Numbers(self.op, np.asarray(function(self.known)))
        return Numbers(self.op, self.op.unary(op_type, self.value))

    def __add__(self, other: Operand) -> "Numbers":
        return self._joined(other, "Add", np.add)

    def __sub__(self, other: Operand) -> "Numbers":
        return self._joined(other, "Sub", np.subtract)

    def __mul__(self, other: Operand) -> "Numbers":
        return self._joined(other, "Mul", np.multiply)

    def __truediv__(self, other: Operand) -> "Numbers":
        return self._joined(other, "Div", np.divide)

    def __floordiv__(self, other: Operand) -> "Numbers":
        """Return the quotients of non-negative integers, rounded down."""
        return self._joined(other, "Div", np.floor_divide)

    def __mod__(self, other: Operand) -> "Numbers":
        """Return the remainders of integers, with the sign of the divisor."""
        return self._joined(other, "Mod", np.mod)

    def __rmod__(self, other: float) -> "Numbers":
        return self._alike(other) % self

    def __rmul__(self, other: float) -> "Numbers":
        return self * other

    def __rsub__(self, other: float) -> "Numbers":
        return self._alike(other) - self

    def __rtruediv__(self, other: float) -> "Numbers":
        return self._alike(other) / self

    def to(self, dtype: str) -> "Numbers":
        """Cast to another dtype."""
        if self.known is not None and dtype != "bfloat16":
            return Numbers(self.op, self.known.astype(dtype))
        return Numbers(self.op, self.op.cast(self.value, dtype))

    def floor(self) -> "Numbers":
        """Round down."""
        return self._turned("Floor", np.floor)

    def ceil(self) -> "Numbers":
        """Round up."""
        return self._turned("Ceil", np.ceil)

    def to_even(self) -> "Numbers":
        """Round half to even."""
        return self._turned("Round", np.round)

    def size(self) -> "Numbers":
        """Return the absolute values."""
        return self._turned("Abs", np.abs)

    def rounded(self) -> "Numbers":
        """Round half away from zero."""
        size = self.size()
        low = size.floor()
        up = (size - low >= 0.5).choose(low + 1.0, low)
        return (self < 0).choose(up * -1.0, up)

    def least(self, other: Operand) -> "Numbers":
        """Return the elementwise minimum."""
        return self._joined(other, "Min", np.minimum)

    def most(self, other: Operand) -> "Numbers":
        """Return the elementwise maximum."""
        return self._joined(other, "Max", np.maximum)

    def __lt__(self, other: Operand) -> "Numbers":
        return self._joined(other, "Less", np.less)

    def __le__(self, other: Operand) -> "Numbers":
        return self._joined(other, "LessOrEqual", np.less_equal)

    def __gt__(self, other: Operand) -> "Numbers":
        return self._joined(other, "Greater", np.greater)

    def __ge__(self, other: Operand) -> "Numbers":
        return self._joined(other, "GreaterOrEqual", np.greater_equal)

    def __and__(self, other: "Numbers") -> "Numbers":
        return self._joined(other, "And", np.logical_and)

    def choose(self, a: Operand, b: Operand) -> "Numbers":
        """Return a where this is true, else b; one of them is an array, or both are integers."""
        like = next((v for v in (a, b) if isinstance(v, Numbers)), whole(self.op, 0))
        left, right = (v if isinstance(v, Numbers) else like._alike(v) for v in (a, b))
        if all(v.known is not None for v in (self, left, right)):
            return Numbers(self.op, np.where(self.held, left.held, right.held))  # type: ignore[arg-type]
        return Numbers(self.op, self.op.where(self.value, left.value, right.value))

    def column(self) -> "Numbers":
        """Return a vector as a matrix of one column."""
        if self.known is not None:
            return Numbers(self.op, self.known[:, None])
        return Numbers(self.op, self.op.unsqueeze(self.value, [1]))

    def holds(self) -> bool:
        """Return whether all elements are known to be true."""
        return self.known is not None and bool(self.known.all())


def whole(op: Builder, number: "int | Value") -> Numbers:
    """Return an integer or a tensor as int64."""
    if isinstance(number, Value):
        known = op.array(number)
        if known is not None:
            return Numbers(op, known.astype(np.int64))
        return Numbers(op, op.cast(number, "int64"))
    return Numbers(op, np.asarray(number, np.int64))


def real(op: Builder, number: "float | np.ndarray | Value", dtype: str = "float32") -> Numbers:
    """Return a number, an array or a tensor as floating-point values of a dtype."""
    if not isinstance(number, Value):
        if dtype == "bfloat16":
            return Numbers(op, op.constant(number, dtype))
        return Numbers(op, np.asarray(number, dtype))
    known = op.array(number)
    if known is not None and dtype != "bfloat16":
        return Numbers(op, known.astype(dtype))
    return Numbers(op, op.cast(number, dtype))


def size(op: Builder, x: Value, axis: int) -> Numbers:
    """Return the size of an axis."""
    axis = x.axis(axis)
    n = x.shape[axis]
    if isinstance(n, int):
        return whole(op, n)
    return Numbers(op, op.squeeze(op.size(x, axis), [0]))


def count(op: Builder, until: Numbers) -> Numbers:
    """Return the integers from 0 up to, but not including, another."""
    if until.known is not None:
        return Numbers(op, np.arange(int(until.known), dtype=np.int64))
    zero, one = op.constant(0, "int64"), op.constant(1, "int64")
    return Numbers(op, op.emit("Range", zero, until.value, one, dtype="int64", shape=(None,)))


def vector(op: Builder, parts: "list[Numbers | int]") -> Value:
    """Return scalars as one vector (int64)."""
    made = [v if isinstance(v, Numbers) else whole(op, v) for v in parts]
    if all(v.known is not None for v in made):
        return op.constant([int(v.known) for v in made if v.known is not None], "int64")
    return op.concat([op.unsqueeze(v.value, [0]) for v in made], 0)


def shape_of(*values: Numbers) -> tuple[int | str | None, ...]:
    """Return the shape that arrays broadcast to."""
    result: tuple[int | str | None, ...] = ()
    for v in values:
        result = broadcast(result, tuple(v.held.shape))
    return result
