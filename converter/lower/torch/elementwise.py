"""Functions of each element: roots, exponentials, angles, rounding."""

import math

import numpy as np

from converter.lower.ops import elementwise
from converter.lower.table import Variant
from converter.lower.torch.arithmetic import truncate
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Scalar
from converter.lower.torch.promotion import floating, kind, result_type, together
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


def real(op: Context, x: Value) -> Value:
    """Return a tensor as floating point numbers: integers become float32."""
    return op.cast(x, floating(x.dtype))


# fmt: off
@aten(
    Variant("exp", "`exp(x)`.", op_type='Exp'),
    Variant("log", "The natural logarithm.", op_type='Log'),
    Variant("sqrt", "The square root.", op_type='Sqrt'),
    Variant("reciprocal", "1 / x.", op_type='Reciprocal'),
    Variant("sin", "The sine.", op_type='Sin'),
    Variant("cos", "The cosine.", op_type='Cos'),
    Variant("tan", "The tangent.", op_type='Tan'),
    Variant(("asin", "arcsin"), "The arc sine.", op_type='Asin'),
    Variant(("acos", "arccos"), "The arc cosine.", op_type='Acos'),
    Variant(("atan", "arctan"), "The arc tangent.", op_type='Atan'),
    Variant("sinh", "The hyperbolic sine.", op_type='Sinh'),
    Variant("cosh", "The hyperbolic cosine.", op_type='Cosh'),
    Variant(("asinh", "arcsinh"), "The inverse of the hyperbolic sine.", op_type='Asinh'),
    Variant(("acosh", "arccosh"), "The inverse of the hyperbolic cosine.", op_type='Acosh'),
    Variant(("atanh", "arctanh"), "The inverse of the hyperbolic tangent.", op_type='Atanh'),
    Variant("tanh", "The hyperbolic tangent.", op_type='Tanh'),
    Variant(("sigmoid", "special_expit"), "1 / (1 + exp(-x)).", op_type='Sigmoid'),
    Variant(("erf", "special_erf"), "The error function.", op_type='Erf'),
)
def unary(op: Context, self: Value, *, op_type: str) -> Value:
    """An element-wise floating-point function."""
    return op.unary(op_type, real(op, self))
# fmt: on


@aten("rsqrt")
def rsqrt(op: Context, self: Value) -> Value:
    """1 / sqrt(x)."""
    return op.unary("Reciprocal", op.unary("Sqrt", real(op, self)))


@aten("exp2", "special_exp2")
def exp2(op: Context, self: Value) -> Value:
    """`2 ** x`."""
    x = real(op, self)
    return op.elementwise("Pow", op.constant(2.0, x.dtype), x)


@aten("log2")
def log2(op: Context, self: Value) -> Value:
    """The logarithm to base 2."""
    return op.mul(op.unary("Log", real(op, self)), 1 / math.log(2))


@aten("log10")
def log10(op: Context, self: Value) -> Value:
    """The logarithm to base 10."""
    return op.mul(op.unary("Log", real(op, self)), 1 / math.log(10))


@aten("logit", "special_logit")
def logit(op: Context, self: Value, eps: float | None = None) -> Value:
    """`log(x / (1 - x))`, with x clipped to `[eps, 1 - eps]`."""
    x = real(op, self)
    if eps is not None:
        x = op.clip(x, eps, 1 - eps)
    return op.unary("Log", op.div(x, op.sub(op.constant(1.0, x.dtype), x)))


@aten("atan2", "arctan2")
def atan2(op: Context, self: Value, other: Value) -> Value:
    """The angle of the point (b, a), with the sign of zeros."""
    return elementwise.atan2(op, *together(op, [self, other], floating(result_type(self, other))))


@aten("abs", "absolute")
def absolute(op: Context, self: Value) -> Value:
    """`abs(x)`."""
    return op.unary("Abs", self)


@aten("sign", "sgn")
def sign(op: Context, self: Value) -> Value:
    """The sign: -1, 0 or 1; 0 for NaN."""
    if self.dtype == "bool":
        return self
    found = op.unary("Sign", self)
    return op.where(op.unary("IsNaN", self), 0.0, found) if self.is_float else found


@aten("signbit")
def signbit(op: Context, self: Value) -> Value:
    """Whether the sign bit is set, also of -0."""
    if kind(self.dtype) < 2:
        return op.elementwise("Less", op.cast(self, "int64"), op.constant(0, "int64"))
    inverse = op.unary("Reciprocal", self)  # of minus zero it is minus infinity
    zero = op.constant(0.0, self.dtype)
    below, none = op.elementwise("Less", self, zero), op.elementwise("Equal", self, zero)
    return op.elementwise(
        "Or", below, op.elementwise("And", none, op.elementwise("Less", inverse, zero))
    )


@aten(
    Variant("floor", "x rounded down.", op_type="Floor"),
    Variant("ceil", "x rounded up.", op_type="Ceil"),
    Variant("round", "x rounded to the nearest integer, halves to even.", op_type="Round"),
)
def rounding(op: Context, self: Value, *, op_type: str) -> Value:
    """Each element rounded to an integer."""
    return op.unary(op_type, self) if kind(self.dtype) == 2 else self


@aten("round.decimals")
def round_decimals(op: Context, self: Value, decimals: int) -> Value:
    """Elements rounded to a number of decimals."""
    if kind(self.dtype) < 2:
        raise Unsupported("decimals of integers")
    factor = 10.0 ** abs(decimals)
    if decimals < 0:
        return op.mul(op.unary("Round", op.div(self, factor)), factor)
    return op.div(op.unary("Round", op.mul(self, factor)), factor)


@aten("isposinf")
def isposinf(op: Context, self: Value) -> Value:
    """Whether x is +inf."""
    return op.elementwise("Equal", real(op, self), op.constant(math.inf, floating(self.dtype)))


@aten("isneginf")
def isneginf(op: Context, self: Value) -> Value:
    """Whether x is -inf."""
    return op.elementwise("Equal", real(op, self), op.constant(-math.inf, floating(self.dtype)))


@aten("trunc", "fix")
def trunc(op: Context, self: Value) -> Value:
    """`x` rounded towards zero."""
    return truncate(op, self) if kind(self.dtype) == 2 else self


@aten("frac")
def frac(op: Context, self: Value) -> Value:
    """The fractional part of x, with the sign of x."""
    return op.sub(self, truncate(op, self))


@aten("square")
def square(op: Context, self: Value) -> Value:
    """`x * x`."""
    return op.mul(self, self)


@aten("isnan")
def isnan(op: Context, self: Value) -> Value:
    """Whether x is NaN."""
    if kind(self.dtype) < 2:
        return op.filled(op.named(self).shape, number=False, dtype="bool")
    return op.unary("IsNaN", self)


@aten("isinf")
def isinf(op: Context, self: Value) -> Value:
    """Whether x is infinite."""
    if kind(self.dtype) < 2:
        return op.filled(op.named(self).shape, number=False, dtype="bool")
    return op.unary("IsInf", self)


@aten("isfinite")
def isfinite(op: Context, self: Value) -> Value:
    """Whether x is finite."""
    if kind(self.dtype) < 2:
        return op.filled(op.named(self).shape, number=True, dtype="bool")
    return op.unary("Not", op.elementwise("Or", op.unary("IsInf", self), op.unary("IsNaN", self)))


@aten("nan_to_num")
def nan_to_num(
    op: Context, self: Value, nan: float | None = None, posinf: float | None = None,
    neginf: float | None = None,
) -> Value:  # fmt: skip
    """`x` with NaN and infinities replaced by numbers."""
    if kind(self.dtype) < 2:
        return self
    if self.dtype == "bfloat16":
        raise Unsupported("the largest number of bfloat16")
    most = float(np.finfo(self.dtype).max)
    x = op.where(op.unary("IsNaN", self), op.constant(nan or 0.0, self.dtype), self)
    high = op.elementwise("Equal", self, op.constant(math.inf, self.dtype))
    low = op.elementwise("Equal", self, op.constant(-math.inf, self.dtype))
    x = op.where(high, op.constant(most if posinf is None else posinf, self.dtype), x)
    return op.where(low, op.constant(-most if neginf is None else neginf, self.dtype), x)


@aten("xlogy.Tensor", "xlogy.Scalar_Other", "xlogy.Scalar_Self", "special_xlogy")
def xlogy(op: Context, self: Value | Scalar, other: Value | Scalar) -> Value:
    """`a * log(b)`; 0 where a is 0."""
    dtype = floating(result_type(self, other))
    a, b = together(op, [self, other], dtype)
    zero = op.constant(0.0, dtype)
    found = op.where(op.elementwise("Equal", a, zero), zero, op.mul(a, op.unary("Log", b)))
    return op.where(op.unary("IsNaN", b), b, found)


@aten("logaddexp")
def logaddexp(op: Context, self: Value, other: Value) -> Value:
    """log(exp(a) + exp(b))."""
    dtype = floating(result_type(self, other))
    return elementwise.logaddexp(op, *together(op, [self, other], dtype))


@aten("logaddexp2")
def logaddexp2(op: Context, self: Value, other: Value) -> Value:
    """log2(2 ** a + 2 ** b)."""
    a, b = (op.mul(x, math.log(2)) for x in together(op, [self, other]))
    return op.mul(elementwise.logaddexp(op, a, b), 1 / math.log(2))


@aten("special_entr")
def entr(op: Context, self: Value) -> Value:
    """`-x * log(x)`; 0 at 0, -inf below."""
    x = real(op, self)
    zero = op.constant(0.0, x.dtype)
    found = op.unary("Neg", op.mul(x, op.unary("Log", x)))
    found = op.where(op.elementwise("Equal", x, zero), zero, found)
    return op.where(op.elementwise("Less", x, zero), op.constant(-math.inf, x.dtype), found)


@aten("special_ndtr")
def ndtr(op: Context, self: Value) -> Value:
    """The distribution function of the standard normal distribution."""
    x = real(op, self)
    return op.mul(op.add(op.unary("Erf", op.mul(x, math.sqrt(0.5))), 1.0), 0.5)


@aten("hypot")
def hypot(op: Context, self: Value, other: Value) -> Value:
    """`sqrt(a * a + b * b)`."""
    return elementwise.hypot(op, *together(op, [self, other]))


@aten("deg2rad")
def deg2rad(op: Context, self: Value) -> Value:
    """`x * pi / 180`."""
    return op.mul(real(op, self), math.pi / 180)


@aten("rad2deg")
def rad2deg(op: Context, self: Value) -> Value:
    """`x * 180 / pi`."""
    return op.mul(real(op, self), 180 / math.pi)


@aten("sinc", "special_sinc")
def sinc(op: Context, self: Value) -> Value:
    """sin(pi * x) / (pi * x), and 1 where x is 0."""
    x = op.mul(real(op, self), math.pi)
    none = op.elementwise("Equal", x, op.constant(0.0, x.dtype))
    one = op.constant(1.0, x.dtype)
    return op.where(none, one, op.div(op.unary("Sin", x), op.where(none, one, x)))
