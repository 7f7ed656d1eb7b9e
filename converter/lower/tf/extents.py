"""Dimensions with two forms: the value known while lowering, and the node that computes it.

Space-to-batch blocks, rows of sparse tensors and windows compute shapes from shapes. An `Extent` is
one such dimension: a static or symbolic value, and a vector of one int64 that is built on use.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from converter.lower import dims
from converter.lower.graph import Dim, Shape
from converter.lower.tf.context import Context
from converter.lower.values import Value, total

MOST_COUNTED = 1 << 20  # length up to which a range is a constant; else a Range node


@dataclass(slots=True)
class Extent:
    """One dimension.

    Attributes:
        dim: Its static or symbolic value; None if unknown.
        make: Builds it as a vector of one int64.
    """

    dim: Dim
    make: Callable[[], Value]
    made: Value | None = None

    @property
    def vector(self) -> Value:
        """The dimension as a vector of one int64."""
        if self.made is None:
            self.made = self.make()
        return self.made


def number(op: Context, n: int) -> Extent:
    """Return a static dimension."""
    return Extent(n, lambda: op.constant([n], "int64"))


def of(op: Context, x: Value, axis: int) -> Extent:
    """Return the size of an axis."""
    return Extent(x.shape[axis], lambda: op.size(x, axis))


def of_all(op: Context, x: Value) -> list[Extent]:
    """Return the sizes of all axes."""
    return [of(op, x, axis) for axis in range(x.rank)]


def elements(op: Context, vector: Value) -> list[Extent]:
    """Return the elements of a tensor of any rank as dimensions.

    Raises:
        Unsupported: Their number is unknown.
    """
    count = total(vector.shape)
    dims = op.dims(vector) if vector.rank < 2 or count is None else [None] * count
    known = op.elements(vector)
    if known is not None and vector.rank > 1:
        dims = numbers(known)
    return [_element(op, vector, i, n) for i, n in enumerate(dims)]


def list_elements(op: Context, vector: Value, count: int) -> list[Extent]:
    """Return the elements of a vector of known length as dimensions."""
    known = op.elements(vector)
    dims: list[Dim] = [None] * count if known is None else numbers(known)
    return [_element(op, vector, i, n) for i, n in enumerate(dims)]


def numbers(known: np.ndarray) -> list[Dim]:
    """Return known elements as dimensions, in order."""
    return [n if n is None or isinstance(n, str) else int(n) for n in known.reshape(-1)]


def _element(op: Context, vector: Value, place: int, dim: Dim) -> Extent:
    if isinstance(dim, int):
        return number(op, dim)

    def make() -> Value:
        if vector.rank == 0:
            return op.cast(op.unsqueeze(vector, [0]), "int64")
        flat = vector if vector.rank == 1 else op.reshape(vector, (None,))
        one = flat if flat.shape == (1,) else op.slice(flat, [0], [place], [place + 1])
        return op.cast(one, "int64")

    return Extent(dim, make)


def _combine(op: Context, op_type: str, dim: Dim, a: Extent, b: Extent) -> Extent:
    if isinstance(dim, int):
        return number(op, dim)
    return Extent(dim, lambda: op.elementwise(op_type, a.vector, b.vector))


def add(op: Context, a: Extent, b: Extent) -> Extent:
    """Return `a + b`."""
    if a.dim == 0 or b.dim == 0:
        return b if a.dim == 0 else a
    return _combine(op, "Add", dims.add(a.dim, b.dim), a, b)


def sub(op: Context, a: Extent, b: Extent) -> Extent:
    """Return `a - b`."""
    return a if b.dim == 0 else _combine(op, "Sub", dims.sub(a.dim, b.dim), a, b)


def mul(op: Context, a: Extent, b: Extent) -> Extent:
    """Return `a * b`."""
    if a.dim == 1 or b.dim == 1:
        return b if a.dim == 1 else a
    return _combine(op, "Mul", dims.mul(a.dim, b.dim), a, b)


def div(op: Context, a: Extent, b: Extent) -> Extent:
    """Return `a / b`, rounded down, for nonnegative dimensions."""
    return a if b.dim == 1 else _combine(op, "Div", dims.floordiv(a.dim, b.dim), a, b)


def most(op: Context, a: Extent, b: Extent) -> Extent:
    """Return the larger dimension."""
    return (
        a
        if a.dim == b.dim and a.dim is not None
        else _combine(op, "Max", dims.most(a.dim, b.dim), a, b)
    )


def least(op: Context, a: Extent, b: Extent) -> Extent:
    """Return the smaller dimension."""
    return (
        a
        if a.dim == b.dim and a.dim is not None
        else _combine(op, "Min", dims.least(a.dim, b.dim), a, b)
    )


def product(op: Context, several: Sequence[Extent]) -> Extent:
    """Return the product of dimensions."""
    result = number(op, 1)
    for one in several:
        result = mul(op, result, one)
    return result


def vector(op: Context, several: Sequence[Extent]) -> Value:
    """Return dimensions as a vector of int64."""
    if all(isinstance(one.dim, int) for one in several):
        return op.constant([one.dim for one in several], "int64")
    return op.concat([one.vector for one in several], 0)


def shape_of(several: Sequence[Extent]) -> Shape:
    """Return the static or symbolic values of dimensions."""
    return tuple(one.dim for one in several)


def reshape_to(op: Context, x: Value, several: Sequence[Extent]) -> Value:
    """Reshape a value."""
    target = shape_of(several)
    if target == x.shape and all(n is not None for n in target):
        return op.plain(x)
    open_places = [i for i, n in enumerate(target) if not isinstance(n, int)]
    if len(open_places) <= 1 and 0 not in target:
        wanted = op.constant([n if isinstance(n, int) else -1 for n in target], "int64")
        return op.emit("Reshape", x, wanted, dtype=x.dtype, shape=target)
    wanted = vector(op, several)
    return op.emit("Reshape", x, wanted, dtype=x.dtype, shape=target, allowzero=1)


def fill(op: Context, scalar: Value, several: Sequence[Extent]) -> Value:
    """Broadcast a scalar to a shape."""
    if not several:
        return scalar
    return op.emit(
        "Expand", scalar, vector(op, several), dtype=scalar.dtype, shape=shape_of(several)
    )


def count_to(op: Context, count: Extent, dtype: str = "int64") -> Value:
    """Return the integers from zero up to a count (exclusive), as a vector."""
    if isinstance(count.dim, int) and count.dim <= MOST_COUNTED:
        return op.constant(np.arange(count.dim), dtype)
    end = op.squeeze(count.vector, [0])
    zero, one = op.constant(0, "int64"), op.constant(1, "int64")
    made = op.emit("Range", zero, end, one, dtype="int64", shape=(count.dim,))
    return op.cast(made, dtype)
