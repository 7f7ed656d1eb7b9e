"""Tensors of a program that are several in the graph: complex ones, and quantized ones.

A compound takes the place of a program's tensor, and has its shape and dtype; a node that is given
one is not supported. So only what knows of them computes with them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from converter.lower.graph import Shape
from converter.lower.values import Value

C = TypeVar("C", bound="Compound")


@dataclass(frozen=True, slots=True, eq=False)
class Compound(Value):
    """A tensor that is several in the graph.

    Attributes:
        parts: Them; all of the tensor's shape.
    """

    parts: tuple[Value, ...] = ()

    @property
    def real(self) -> Value:
        """The first part: numbers as they are, or their real parts."""
        return self.parts[0]

    def each(self: C, function: Callable[[Value], Value]) -> C:
        """Return what a function that changes no numbers does to all parts."""
        made = tuple(function(part) for part in self.parts)
        shape, constant = made[0].shape, all(part.is_constant for part in made)
        order = tuple(range(len(shape)))
        return replace(self, parts=made, shape=shape, stored=order, is_constant=constant)

    def shaped(self: C, shape: Shape) -> C:
        """Return the tensor with a shape of which more is known."""
        return self.each(lambda part: replace(part, shape=tuple(shape)))
