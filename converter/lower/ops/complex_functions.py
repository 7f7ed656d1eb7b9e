"""Functions of complex numbers, in terms of real functions of their parts.

The formulas follow annex G of the C99 standard for finite arguments, including its branch cuts, and
avoid cancellation near zero.
"""

from collections.abc import Callable
from math import log as log_of
from math import pi

from converter.lower.builder import Builder
from converter.lower.ops.complex import Complex, join
from converter.lower.ops.elementwise import atan2, hypot, is_negative
from converter.lower.ops.special import expm1 as real_expm1
from converter.lower.ops.special import log1p as real_log1p
from converter.lower.values import Value

Function = Callable[[Builder, Complex], Complex]


def _negative(op: Builder, x: Value) -> Value:
    return op.unary("Neg", x)


def _turn(op: Builder, x: Complex) -> Complex:
    """Return `i * x`."""
    return join(_negative(op, x.imaginary), x.real)


def _turn_back(op: Builder, x: Complex) -> Complex:
    """Return `-i * x`."""
    return join(x.imaginary, _negative(op, x.real))


def _scale(op: Builder, x: Complex, factor: float) -> Complex:
    return join(op.mul(x.real, factor), op.mul(x.imaginary, factor))


def _shift(op: Builder, x: Complex, by: float) -> Complex:
    return join(op.add(x.real, by), x.imaginary)


def _multiply(op: Builder, x: Complex, y: Complex) -> Complex:
    return join(
        op.sub(op.mul(x.real, y.real), op.mul(x.imaginary, y.imaginary)),
        op.add(op.mul(x.real, y.imaginary), op.mul(x.imaginary, y.real)),
    )


def size(op: Builder, x: Complex) -> Value:
    """Return `|x|` without intermediate overflow."""
    return hypot(op, x.real, x.imaginary)


def exp(op: Builder, x: Complex) -> Complex:
    """`exp(x)`."""
    away = op.unary("Exp", x.real)
    angle = x.imaginary
    return join(op.mul(away, op.unary("Cos", angle)), op.mul(away, op.unary("Sin", angle)))


def expm1(op: Builder, x: Complex) -> Complex:
    """`exp(x) - 1`, exact near zero."""
    half = op.unary("Sin", op.mul(x.imaginary, 0.5))
    cosine = op.unary("Cos", x.imaginary)
    real = op.sub(op.mul(real_expm1(op, x.real), cosine), op.mul(op.mul(half, half), 2.0))
    return join(real, op.mul(op.unary("Exp", x.real), op.unary("Sin", x.imaginary)))


def log(op: Builder, x: Complex) -> Complex:
    """Logarithm with an imaginary part from -pi to pi."""
    return join(op.unary("Log", size(op, x)), atan2(op, x.imaginary, x.real))


def log1p(op: Builder, x: Complex) -> Complex:
    """`log(1 + x)`, exact near zero."""
    away = op.add(op.mul(x.real, op.add(x.real, 2.0)), op.mul(x.imaginary, x.imaginary))
    angle = atan2(op, x.imaginary, op.add(x.real, 1.0))
    return join(op.mul(real_log1p(op, away), 0.5), angle)


def sqrt(op: Builder, x: Complex) -> Complex:
    """Square root with a non-negative real part.

    For x = a + i b, one part is t = sqrt((|x| + |a|) / 2), without cancellation, the other b/(2t).
    """
    zero, one = (op.constant(n, x.real.dtype) for n in (0.0, 1.0))
    larger = op.unary("Sqrt", op.mul(op.add(size(op, x), op.unary("Abs", x.real)), 0.5))
    is_zero = op.elementwise("Equal", larger, zero)
    divisor = op.where(is_zero, one, op.mul(larger, 2.0))
    other = op.div(op.unary("Abs", x.imaginary), divisor)
    is_right = op.elementwise("GreaterOrEqual", x.real, zero)
    real, imaginary = op.where(is_right, larger, other), op.where(is_right, other, larger)
    below = is_negative(op, x.imaginary)
    return join(real, op.where(below, _negative(op, imaginary), imaginary))


def reciprocal(op: Builder, x: Complex) -> Complex:
    """`1 / x`."""
    square = op.add(op.mul(x.real, x.real), op.mul(x.imaginary, x.imaginary))
    return join(op.div(x.real, square), op.div(_negative(op, x.imaginary), square))


def rsqrt(op: Builder, x: Complex) -> Complex:
    """`1 / sqrt(x)`."""
    return reciprocal(op, sqrt(op, x))


def sinh(op: Builder, x: Complex) -> Complex:
    """Hyperbolic sine."""
    real = op.mul(op.unary("Sinh", x.real), op.unary("Cos", x.imaginary))
    return join(real, op.mul(op.unary("Cosh", x.real), op.unary("Sin", x.imaginary)))


def cosh(op: Builder, x: Complex) -> Complex:
    """Hyperbolic cosine."""
    real = op.mul(op.unary("Cosh", x.real), op.unary("Cos", x.imaginary))
    return join(real, op.mul(op.unary("Sinh", x.real), op.unary("Sin", x.imaginary)))


def tanh(op: Builder, x: Complex) -> Complex:
    """Hyperbolic tangent of a + i b: `(t + i u) / (1 + i t u)`, for t = `tanh a`, u = `tan b`."""
    t, angle = op.unary("Tanh", x.real), op.unary("Tan", x.imaginary)
    both, square = op.mul(t, angle), op.mul(t, t)
    divisor = op.add(op.mul(both, both), 1.0)
    real = op.div(op.mul(t, op.add(op.mul(angle, angle), 1.0)), divisor)
    return join(real, op.div(op.mul(angle, op.sub(op.constant(1.0, t.dtype), square)), divisor))


def sigmoid(op: Builder, x: Complex) -> Complex:
    """`1 / (1 + exp(-x))`, computed as `(1 + tanh(x / 2)) / 2`."""
    return _shift(op, _scale(op, tanh(op, _scale(op, x, 0.5)), 0.5), 0.5)


def asinh(op: Builder, x: Complex) -> Complex:
    """Inverse of sinh, by Kahan's formulas from p = sqrt(1 - i x) and q = sqrt(1 + i x)."""
    turned = _turn(op, x)
    p = sqrt(op, _shift(op, _scale(op, turned, -1.0), 1.0))
    q = sqrt(op, _shift(op, turned, 1.0))
    # sinh(real part) is Im(conj(p) q); tan(imaginary part) is Im(x) / Re(p q).
    product = op.sub(op.mul(q.real, p.imaginary), op.mul(q.imaginary, p.real))
    real = op.unary("Asinh", _negative(op, product))
    below = op.sub(op.mul(p.real, q.real), op.mul(p.imaginary, q.imaginary))
    return join(real, atan2(op, x.imaginary, below))


def asin(op: Builder, x: Complex) -> Complex:
    """Inverse of sin: `-i asinh(i x)`."""
    return _turn_back(op, asinh(op, _turn(op, x)))


def acos(op: Builder, x: Complex) -> Complex:
    """Inverse of cos: `pi / 2 - asin(x)`."""
    return _shift(op, _scale(op, asin(op, x), -1.0), pi / 2)


def acosh(op: Builder, x: Complex) -> Complex:
    """Inverse of cosh with a non-negative real part, by Kahan's formulas."""
    p, q = sqrt(op, _shift(op, x, -1.0)), sqrt(op, _shift(op, x, 1.0))
    real = op.unary("Asinh", op.add(op.mul(p.real, q.real), op.mul(p.imaginary, q.imaginary)))
    return join(real, op.mul(atan2(op, p.imaginary, q.real), 2.0))


def atanh(op: Builder, x: Complex) -> Complex:
    """Inverse of tanh: `(log(1 + x) - log(1 - x)) / 2`."""
    over, under = log1p(op, x), log1p(op, _scale(op, x, -1.0))
    real = op.sub(over.real, under.real)
    return _scale(op, join(real, op.sub(over.imaginary, under.imaginary)), 0.5)


def atan(op: Builder, x: Complex) -> Complex:
    """Inverse of tan: `-i atanh(i x)`."""
    return _turn_back(op, atanh(op, _turn(op, x)))


def sin(op: Builder, x: Complex) -> Complex:
    """Sine: `-i sinh(i x)`."""
    return _turn_back(op, sinh(op, _turn(op, x)))


def cos(op: Builder, x: Complex) -> Complex:
    """Cosine: `cosh(i x)`."""
    return cosh(op, _turn(op, x))


def tan(op: Builder, x: Complex) -> Complex:
    """Tangent: `-i tanh(i x)`."""
    return _turn_back(op, tanh(op, _turn(op, x)))


def sign(op: Builder, x: Complex) -> Complex:
    """`x / |x|`, and 0 where x is 0."""
    away = size(op, x)
    zero = op.constant(0.0, away.dtype)
    is_zero = op.elementwise("Equal", away, zero)
    divisor = op.where(is_zero, op.constant(1.0, away.dtype), away)
    return join(op.div(x.real, divisor), op.div(x.imaginary, divisor))


def power(op: Builder, x: Complex, y: Complex) -> Complex:
    """`exp(y * log(x))`; 1 where y is 0, else 0 where x is 0."""
    made = exp(op, _multiply(op, y, log(op, x)))
    away, other = size(op, x), size(op, y)
    zero, one = op.constant(0.0, away.dtype), op.constant(1.0, away.dtype)
    from_zero, to_zero = op.elementwise("Equal", away, zero), op.elementwise("Equal", other, zero)
    real = op.where(to_zero, one, op.where(from_zero, zero, made.real))
    nothing = op.elementwise("Or", to_zero, from_zero)
    return join(real, op.where(nothing, zero, made.imaginary))


def log_to(base: float) -> Function:
    """Return a function that computes the logarithm to a base."""

    def log_base(op: Builder, x: Complex) -> Complex:
        return _scale(op, log(op, x), 1 / log_of(base))

    return log_base


FUNCTIONS: dict[str, Function] = {
    function.__name__: function
    for function in (
        acos, acosh, asin, asinh, atan, atanh, cos, cosh, exp, expm1, log, log1p, reciprocal, rsqrt,
        sigmoid, sin, sinh, sqrt, tan, tanh,
    )
}  # fmt: skip
