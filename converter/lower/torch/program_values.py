"""Values of a torch program other than tensors: sizes, and numbers computed at run time.

Handlers take the builder's `Value`s for tensors, Python's own numbers, strings, lists and None, and
for an integer that depends on the inputs' shapes a `Size`: the name of that size, a sum of products
of the names of dynamic axes (`converter.lower.dims`). A size costs no nodes until an operator
wants it as a tensor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from converter.lower.dims import SymbolicDim
from converter.lower.graph import Dim
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


class Size(SymbolicDim):
    """A symbolic integer: the name of a size."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Number:
    """A number that is only known when the graph runs: a tensor without axes.

    To torch it is a Python number: only its kind takes part in type promotion.
    """

    value: Value


# How handlers annotate their parameters; `converter.lower.torch.table` tells overloads apart by it.
Int: TypeAlias = int | Size
Scalar: TypeAlias = int | float | bool | Size | Number
Ints: TypeAlias = Sequence[int | Size]
Floats: TypeAlias = Sequence[float]
Tensors: TypeAlias = Sequence[Value]
ProgramValue: TypeAlias = Any  # Value, Scalar, str, None, or a list of those


def integer(dim: Dim) -> Int:
    """Return a known size as a value of the program.

    Raises:
        Unsupported: It is not known.
    """
    if dim is None:
        raise Unsupported("a size that is not known")
    return dim if isinstance(dim, int) else Size(dim)


def as_list(value: "Int | Ints", count: int) -> list[Int]:
    """Return an argument that is one number, or one for each axis, as the latter."""
    if isinstance(value, int | Size):
        return [value] * count
    found = list(value)
    return found * count if len(found) == 1 else found


def numbers(value: "Int | Ints", count: int, what: str) -> list[int]:
    """Return `as_list` numbers that must be known.

    Raises:
        Unsupported: One is a symbolic size, or there is another number of them.
    """
    found = as_list(value, count)
    plain = [n for n in found if isinstance(n, int)]
    if len(plain) != len(found):
        raise Unsupported(f"{what} that depends on the inputs' shapes")
    if len(plain) != count:
        raise Unsupported(f"{what} of {len(plain)} numbers for {count} axes")
    return plain
