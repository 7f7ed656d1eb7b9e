"""Sizes that a program fixes, whatever the declared inputs are.

A trace keeps the sizes that it was made with: `view(x, [1, 512])` of what has `512*batch` elements
works for a batch of one alone. Torch finds that out when the program runs with another; here the
interpretation restarts with that size.
"""

from collections.abc import Mapping, Sequence
from math import prod

from converter.lower import dims
from converter.lower.graph import Dim
from converter.lower.torch.context import Context
from converter.lower.torch.mutable_tensors import Reference
from converter.lower.torch.program_values import ProgramValue

RESHAPING = {"view": "size", "_unsafe_view": "size", "reshape": "shape"}
# Which axes are summed over together: argument and axis of both sides.
PRODUCTS = {
    "linear": (("input", -1), ("weight", 1)),
    "addmm": (("mat1", 1), ("mat2", 0)),
    "mm": (("self", 1), ("mat2", 0)),
    "matmul": (("self", -1), ("other", -2)),
}


class Fixed(Exception):  # noqa: N818 - interpretation restarts with what it learned
    """The program works for one size alone, whatever was said."""

    def __init__(self, name: str, size: int) -> None:
        super().__init__(name)
        self.name = name
        self.size = size


def check(op: Context, name: str, named: Mapping[str, ProgramValue]) -> None:
    """Look whether an op works for one size alone.

    Args:
        op: Builder.
        name: Name of the op.
        named: Its arguments.

    Raises:
        Fixed: It does.
    """
    if name in RESHAPING:
        x, shape = named["self"], named[RESHAPING[name]]
        if isinstance(x, Reference) and all(type(n) is int and n >= 0 for n in shape):
            _solve(dims.product(op.named(x.read()).shape), prod(shape))
    elif name in PRODUCTS:
        sides = [_size(named.get(argument), axis) for argument, axis in PRODUCTS[name]]
        for one, other in (sides, reversed(sides)):
            if isinstance(other, int):
                _solve(one, other)


def _size(x: ProgramValue, axis: int) -> Dim:
    shape: Sequence[Dim] = x.read().shape if isinstance(x, Reference) else ()
    return shape[axis] if -len(shape) <= axis < len(shape) and len(shape) > 1 else None


def _solve(size: Dim, number: int) -> None:
    """Raise what one name must be for a size to be a number."""
    if not isinstance(size, str):
        return
    terms = dict(dims.terms(size))
    offset = terms.pop((), 0)
    if len(terms) != 1:
        return
    ((names, times),) = terms.items()
    left = number - offset
    if len(names) == 1 and names[0].isidentifier() and times > 0 and left > 0 and not left % times:
        raise Fixed(names[0], left // times)
