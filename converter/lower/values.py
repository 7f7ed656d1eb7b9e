"""Values of a graph under construction: a dtype, a shape, and the order of axes they are kept in.

A value's shape is that of the source. What stands in the graph may be a permutation of it: a
channels-last image is kept channels-first from the first convolution on, and every operation that
can work on the permuted tensor does. So no transposes stand between layers, and none is ever
removed again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from converter.lower.graph import Dim, Shape

Permutation = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """One value.

    Attributes:
        name: Of the tensor that stands in the graph.
        dtype: numpy's name for it, ``bfloat16`` and ``string`` included.
        shape: The source's: sizes, names of dynamic sizes, None for what is not known.
        stored: Axis ``i`` of the tensor in the graph is axis ``stored[i]`` of the value.
        is_constant: Whether it depends on no input of the graph.
    """

    name: str
    dtype: str
    shape: Shape
    stored: Permutation
    is_constant: bool = False

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_plain(self) -> bool:
        """Whether the tensor in the graph has the value's own order of axes."""
        return self.stored == tuple(range(self.rank))

    @property
    def is_float(self) -> bool:
        """Whether its elements are floating point numbers."""
        return "float" in self.dtype

    def axis(self, axis: int) -> int:
        """Return a possibly negative axis as a positive one."""
        return axis + self.rank if axis < 0 else axis

    def transposed(self, order: Sequence[int]) -> "Value":
        """Return the value with axis ``i`` taken from ``order[i]``; nothing moves in the graph."""
        back = inverse(order)
        shape = tuple(self.shape[i] for i in order)
        return replace(self, shape=shape, stored=tuple(back[axis] for axis in self.stored))


def inverse(order: Sequence[int]) -> Permutation:
    """Return the permutation that undoes one."""
    result = [0] * len(order)
    for i, axis in enumerate(order):
        result[axis] = i
    return tuple(result)


def identity(rank: int) -> Permutation:
    """Return the order that changes nothing."""
    return tuple(range(rank))


def without(stored: Permutation, axes: Sequence[int]) -> Permutation:
    """Return an order after some of the value's axes are gone."""
    kept = [axis for axis in stored if axis not in axes]
    ranks = {axis: i for i, axis in enumerate(sorted(kept))}
    return tuple(ranks[axis] for axis in kept)


def broadcast(a: Shape, b: Shape) -> Shape:
    """Return the shape of an element-wise operation, as far as it is known.

    Raises:
        ValueError: The shapes do not go together.
    """
    rank = max(len(a), len(b))
    wide_a = (1,) * (rank - len(a)) + a
    wide_b = (1,) * (rank - len(b)) + b
    return tuple(_join_dims(m, n) for m, n in zip(wide_a, wide_b, strict=True))


def _join_dims(m: Dim, n: Dim) -> Dim:
    if m == 1:
        return n
    if n == 1 or m == n:
        return m
    sizes = [size for size in (m, n) if isinstance(size, int)]
    if len(sizes) == 2:
        raise ValueError(f"sizes {m} and {n} do not go together")
    return sizes[0] if sizes else None


def total(sizes: Sequence[Dim]) -> int | None:
    """Return the product of sizes, or None where one is not known."""
    known = [n for n in sizes if isinstance(n, int)]
    return prod(known) if len(known) == len(sizes) else None
