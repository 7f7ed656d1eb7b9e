"""Values of a graph under construction: their dtype, shape, and stored order of axes.

A value has the shape of the source. Its tensor in the graph may be a permutation of it: a
channels-last image is stored channels-first from the first convolution on, and every operation that
can work on the permuted tensor does. Thus no Transpose nodes are added between layers, and none
have to be removed later.
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
        name: Name of its tensor in the graph.
        dtype: NumPy's name of the dtype, or ``bfloat16`` or ``string``.
        shape: Shape in the source: static sizes, names of symbolic sizes, None where unknown.
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
        """Whether the value is stored in the source's order of axes."""
        return self.stored == tuple(range(self.rank))

    @property
    def is_float(self) -> bool:
        """Whether its dtype is a floating-point type."""
        return "float" in self.dtype

    def axis(self, axis: int) -> int:
        """Return a possibly negative axis as a non-negative one."""
        return axis + self.rank if axis < 0 else axis

    def transposed(self, order: Sequence[int]) -> "Value":
        """Transpose the value: axis ``i`` is axis ``order[i]``; its tensor stays as it is."""
        back = inverse(order)
        shape = tuple(self.shape[i] for i in order)
        return replace(self, shape=shape, stored=tuple(back[axis] for axis in self.stored))


def inverse(order: Sequence[int]) -> Permutation:
    """Return the inverse of a permutation."""
    result = [0] * len(order)
    for i, axis in enumerate(order):
        result[axis] = i
    return tuple(result)


def identity(rank: int) -> Permutation:
    """Return the identity permutation of a rank."""
    return tuple(range(rank))


def without(stored: Permutation, axes: Sequence[int]) -> Permutation:
    """Return a stored order after some of the value's axes are removed."""
    kept = [axis for axis in stored if axis not in axes]
    ranks = {axis: i for i, axis in enumerate(sorted(kept))}
    return tuple(ranks[axis] for axis in kept)


def broadcast(a: Shape, b: Shape) -> Shape:
    """Return the shape that two shapes broadcast to, as far as it is known.

    Raises:
        ValueError: The shapes cannot be broadcast.
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
    """Return the product of sizes, or None where one is not static."""
    known = [n for n in sizes if isinstance(n, int)]
    return prod(known) if len(known) == len(sizes) else None
