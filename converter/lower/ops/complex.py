"""Complex tensors as pairs of real tensors: ONNX's operators do not support complex dtypes."""

from collections.abc import Callable
from dataclasses import dataclass

from converter.lower.builder import Builder
from converter.lower.graph import Shape
from converter.lower.values import Value

PARTS = {"complex64": "float32", "complex128": "float64"}
WHOLES = {part: whole for whole, part in PARTS.items()}


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex tensor, as its real and imaginary parts."""

    real: Value
    imaginary: Value
    dtype: str = "complex64"

    @property
    def shape(self) -> Shape:
        """Shape of both parts."""
        return self.real.shape

    @property
    def rank(self) -> int:
        """Number of axes."""
        return self.real.rank


def join(real: Value, imaginary: Value) -> Complex:
    """Return the complex tensor of two real tensors."""
    return Complex(real, imaginary, WHOLES[real.dtype])


def zeros_like(op: Builder, like: Value) -> Value:
    """Return zeros of a value's shape and dtype."""
    if all(isinstance(n, int) for n in like.shape):
        zero = op.reshape(op.constant(0.0, like.dtype), (1,) * like.rank)
        return op.expand(zero, like.shape, like=like)
    return op.sub(like, like)


def squared_size(op: Builder, x: Complex) -> Value:
    """Return `real ** 2 + imag ** 2`."""
    return op.add(op.mul(x.real, x.real), op.mul(x.imaginary, x.imaginary))


def multiply(op: Builder, x: Complex, y: Complex, by: Callable[[Value, Value], Value]) -> Complex:
    """Return a product of complex tensors, where ``by`` multiplies real tensors."""
    return join(
        op.sub(by(x.real, y.real), by(x.imaginary, y.imaginary)),
        op.add(by(x.real, y.imaginary), by(x.imaginary, y.real)),
    )
