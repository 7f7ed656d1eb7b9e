"""Parts of floating-point numbers: mantissas and exponents, neighbours."""

from math import inf

from converter.lower.torch.context import Context
from converter.lower.torch.promotion import together
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

# Bits of the mantissa; the exponents of the smallest number, and of what is next to the largest.
FORMATS = {"float32": (24, -149, 128), "float16": (11, -24, 16)}


def _two_to(op: Context, exponent: Value) -> Value:
    return op.elementwise("Pow", op.constant(2.0, "float64"), exponent)


def _exponent(op: Context, size: Value) -> Value:
    """Return the e, in float64, for which `size / 2 ** e` is in [0.5, 1); 0 of 0."""
    is_none = op.elementwise("Equal", size, 0.0)
    guess = op.add(op.unary("Floor", op.mul(op.unary("Log", op.where(is_none, 1.0, size)),
                                            1.4426950408889634)), 1.0)  # fmt: skip
    share = op.div(size, _two_to(op, guess))
    guess = op.where(op.elementwise("GreaterOrEqual", share, 1.0), op.add(guess, 1.0), guess)
    guess = op.where(op.elementwise("Less", share, 0.5), op.sub(guess, 1.0), guess)
    return op.where(is_none, 0.0, guess)


@aten("frexp.Tensor")
def frexp(op: Context, self: Value) -> list[Value]:
    """The mantissa in [0.5, 1) and the binary exponent of each element."""
    x = op.cast(self, "float64")
    size = op.unary("Abs", x)
    is_finite = op.elementwise("Less", size, inf)
    exponent = _exponent(op, op.where(is_finite, size, 0.0))
    mantissa = op.where(is_finite, op.div(x, _two_to(op, exponent)), x)
    return [op.cast(mantissa, self.dtype), op.cast(exponent, "int32")]


@aten("nextafter")
def nextafter(op: Context, self: Value, other: Value) -> Value:
    """The next floating-point number after one, towards another."""
    a, b = together(op, [self, other])
    if a.dtype not in FORMATS:
        raise Unsupported(f"neighbours of {a.dtype}; those of float16 and float32 are supported")
    bits, smallest, largest = FORMATS[a.dtype]
    x, to = (op.clip(op.cast(v, "float64"), -(2.0**largest), 2.0**largest) for v in (a, b))
    size = op.unary("Abs", x)
    exponent = _exponent(op, size)
    is_up = op.elementwise("Less", x, to)
    grows = op.elementwise("Equal", is_up, op.elementwise("GreaterOrEqual", x, 0.0))
    is_power = op.elementwise("Equal", size, _two_to(op, op.sub(exponent, 1.0)))
    is_closer = op.elementwise("And", is_power, op.unary("Not", grows))
    step = op.sub(op.where(is_closer, op.sub(exponent, 1.0), exponent), float(bits))
    step = op.where(op.elementwise("Equal", size, 0.0), float(smallest), step)
    step = _two_to(op, op.elementwise("Max", step, float(smallest)))
    found = op.where(is_up, op.add(x, step), op.sub(x, step))
    found = op.where(op.elementwise("Equal", a, b), b, op.cast(found, a.dtype))
    is_nan = op.elementwise("Or", *(op.unary("IsNaN", v) for v in (a, b)))
    return op.where(is_nan, op.constant(float("nan"), a.dtype), found)
