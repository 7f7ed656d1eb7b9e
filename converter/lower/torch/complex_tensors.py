"""Complex tensors: ONNX computes with none, so one is a pair of real tensors.

What computes with them is `converter.lower.torch.complexes`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.graph import Folded, Spec
from converter.lower.ops.complex import PARTS, WHOLES, Complex
from converter.lower.torch.compound import Compound
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value, identity


@dataclass(frozen=True, slots=True, eq=False)
class Pair(Compound):
    """A complex tensor: its parts are the real and the imaginary one."""

    @classmethod
    def of(cls, real: Value, imaginary: Value) -> "Pair":
        """Return the tensor real + i * imaginary."""
        kind = WHOLES.get(real.dtype)
        if kind is None or imaginary.dtype != real.dtype:
            raise Unsupported(f"complex numbers of {real.dtype} and {imaginary.dtype}")
        constant = real.is_constant and imaginary.is_constant
        order = identity(real.rank)
        return cls("a pair", kind, real.shape, order, constant, parts=(real, imaginary))

    @classmethod
    def joined(cls, x: Complex) -> "Pair":
        """Return what functions that TensorFlow's ops share have made."""
        return cls.of(x.real, x.imaginary)

    @property
    def imaginary(self) -> Value:
        """The imaginary part."""
        return self.parts[1]

    @property
    def split(self) -> Complex:
        """The same, as functions that TensorFlow's ops share take it."""
        return Complex(self.real, self.imaginary, self.dtype)

    def each(self, function: Callable[[Value], Value]) -> "Pair":
        """Return what a function does to both parts."""
        return Pair.of(function(self.real), function(self.imaginary))

    def transposed(self, order: Sequence[int]) -> "Pair":
        """Return the pair with axis ``i`` taken from ``order[i]``."""
        return self.each(lambda part: part.transposed(order))


def is_complex(value: Any) -> bool:
    """Return whether a value is a complex number or tensor, or has one inside."""
    if isinstance(value, list | tuple):
        return any(is_complex(one) for one in value)
    return isinstance(value, Pair | complex)


def weight(op: Builder, tensor: str) -> Value:
    """Return a tensor of the bundle, which becomes a pair where it is complex."""
    stored = op.weights[tensor]
    kind = PARTS.get(stored.dtype.name)
    if kind is None:
        return op.weight(tensor)

    def part(which: str) -> Value:
        def make() -> np.ndarray:
            return np.ascontiguousarray(getattr(stored.numpy(), which))

        name = op.unique(f"{tensor}.{which}")
        op.graph.initializers[name] = Folded(kind, stored.shape, make)
        op.graph.specs[name] = Spec(kind, stored.shape)
        return Value(name, kind, stored.shape, identity(len(stored.shape)), is_constant=True)

    return Pair.of(part("real"), part("imag"))
