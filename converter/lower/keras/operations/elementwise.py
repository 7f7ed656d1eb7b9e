"""Operations on each element: mathematics, comparison, logic, bits.

Spec: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/ops/numpy.py
"""

from collections.abc import Callable
from functools import partial
from math import log, pi
from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.keras.operations.operands import (
    as_float,
    promote,
    tensor,
)
from converter.lower.keras.table import OPERATIONS, Unsupported, operation
from converter.lower.ops import special
from converter.lower.table import Variant, direct
from converter.lower.values import Value

Unary = Callable[[Builder, Value], Value]

# -- functions of floating point numbers: integers become float32 ---------------------------------

# fmt: off
FLOATING = {
    "Arccos": "Acos",   "Arcsin": "Asin",   "Arctan": "Atan", "Arccosh": "Acosh",
    "Arcsinh": "Asinh", "Arctanh": "Atanh", "Ceil": "Ceil",   "Cos": "Cos",
    "Cosh": "Cosh",     "Erf": "Erf",       "Exp": "Exp",     "Floor": "Floor",
    "Log": "Log",       "Sin": "Sin",       "Sinh": "Sinh",   "Sqrt": "Sqrt",
    "Tan": "Tan",       "Tanh": "Tanh",
}
# fmt: on


@operation(OPERATIONS, *direct(FLOATING))
def unary(op: Builder, x: Any, *, op_type: str) -> Value:
    """An element-wise function that is one ONNX node."""
    return op.unary(op_type, as_float(op, x))


def rsqrt(op: Builder, x: Value) -> Value:
    """1 / sqrt(x)."""
    return op.unary("Reciprocal", op.unary("Sqrt", x))


def sinc(op: Builder, x: Value) -> Value:
    """sin(pi x) / (pi x), and 1 at zero."""
    angle = op.mul(x, pi)
    zero = op.elementwise("Equal", x, 0.0)
    wave = op.div(op.unary("Sin", angle), op.where(zero, 1.0, angle))
    return op.where(zero, 1.0, wave)


def cbrt(op: Builder, x: Value) -> Value:
    """The cube root, of negative numbers too."""
    root = op.elementwise("Pow", op.unary("Abs", x), op.constant(1 / 3, x.dtype))
    return op.mul(op.unary("Sign", x), root)


def _logarithm(op: Builder, x: Value, base: int) -> Value:
    return op.div(op.unary("Log", x), log(base))


@operation(
    OPERATIONS,
    Variant("Cbrt", "The cube root, of negative numbers too.", compute=cbrt),
    Variant("Deg2rad", "x * pi / 180.", compute=lambda op, x: op.mul(x, pi / 180)),
    Variant("Erfc", "`1 - erf(x)`, accurate for large x.", compute=special.erfc),
    Variant("Erfinv", "The inverse of erf.", compute=special.erfinv),
    Variant("Exp2", "2 ** x.", compute=lambda op, x: op.unary("Exp", op.mul(x, log(2)))),
    Variant("Expm1", "exp(x) - 1.", compute=special.expm1),
    Variant("Log10", "log(x) / log(10).", compute=partial(_logarithm, base=10)),
    Variant("Log1p", "log(1 + x).", compute=special.log1p),
    Variant("Log2", "log(x) / log(2).", compute=partial(_logarithm, base=2)),
    Variant("Rad2deg", "x * 180 / pi.", compute=lambda op, x: op.mul(x, 180 / pi)),
    Variant("Rsqrt", "1 / sqrt(x).", compute=rsqrt),
    Variant("Sinc", "sin(pi x) / (pi x), and 1 at zero.", compute=sinc),
)
def function_of_one(op: Builder, x: Any, *, compute: Unary) -> Value:
    """An element-wise function."""
    return compute(op, as_float(op, x))


# -- functions that keep the dtype ----------------------------------------------------------------


@operation(OPERATIONS, "Abs", "Absolute", "Fabs")
def absolute(op: Builder, x: Any) -> Value:
    """`abs(x)`."""
    value = tensor(op, x)
    return value if value.dtype == "bool" else op.unary("Abs", value)


@operation(OPERATIONS, "Negative")
def negative(op: Builder, x: Any) -> Value:
    """-x."""
    return op.unary("Neg", tensor(op, x))


@operation(OPERATIONS, "Reciprocal")
def reciprocal(op: Builder, x: Any) -> Value:
    """1 / x."""
    return op.unary("Reciprocal", as_float(op, x))


@operation(OPERATIONS, "Sign")
def sign(op: Builder, x: Any) -> Value:
    """The sign: -1, 0 or 1."""
    return op.unary("Sign", tensor(op, x))


@operation(OPERATIONS, "Signbit")
def signbit(op: Builder, x: Any) -> Value:
    """Whether the sign bit is set, also of -0."""
    value = tensor(op, x)
    if value.dtype == "bool":
        return op.elementwise("And", value, op.unary("Not", value))
    if not value.is_float:
        return op.elementwise("Less", value, 0)
    # 1 / -0 is minus infinity.
    zero = op.elementwise("Equal", value, 0.0)
    below = op.elementwise("Less", op.unary("Reciprocal", value), 0.0)
    return op.where(zero, below, op.elementwise("Less", value, 0.0))


@operation(OPERATIONS, "Square")
def square(op: Builder, x: Any) -> Value:
    """`x * x`."""
    value = tensor(op, x)
    value = op.cast(value, "int32") if value.dtype == "bool" else value
    return op.mul(value, value)


@operation(OPERATIONS, "Round")
def round_(op: Builder, x: Any, *, decimals: int = 0) -> Value:
    """Elements rounded to a number of decimals, halves to even."""
    value = tensor(op, x)
    if not value.is_float and decimals >= 0:
        return value
    if decimals == 0:
        return op.unary("Round", value)
    wide = as_float(op, value)
    factor = 10.0**decimals
    return op.cast(op.div(op.unary("Round", op.mul(wide, factor)), factor), value.dtype)


@operation(OPERATIONS, "Trunc")
def trunc(op: Builder, x: Any) -> Value:
    """Elements rounded towards zero."""
    value = tensor(op, x)
    if not value.is_float:
        return value
    below = op.elementwise("Less", value, 0.0)
    return op.where(below, op.unary("Ceil", value), op.unary("Floor", value))


@operation(OPERATIONS, "Clip")
def clip(op: Builder, x: Any, *, x_min: Any, x_max: Any) -> Value:
    """Elements clipped to two bounds."""
    value = tensor(op, x)
    value = op.cast(value, "int32") if value.dtype == "bool" else value
    bounds = [None if n is None else tensor(op, n, value.dtype) for n in (x_min, x_max)]
    if any(b is not None and b.rank for b in bounds):
        raise Unsupported("bounds that are no numbers")
    return op.node("Clip", [value, *bounds], [(value.dtype, value.shape)], stored=value.stored)[0]


@operation(OPERATIONS, "NanToNum")
def nan_to_num(
    op: Builder, x: Any, *, nan: float = 0.0, posinf: Any = None, neginf: Any = None
) -> Value:
    """Elements with NaN and infinities replaced by numbers."""
    value = tensor(op, x)
    if not value.is_float:
        return value
    most = float(np.finfo(value.dtype).max) if value.dtype != "bfloat16" else 3.38953139e38
    value = op.where(op.unary("IsNaN", value), nan, value)
    for positive, new, default in ((1, posinf, most), (0, neginf, -most)):
        found = op.unary("IsInf", value, detect_positive=positive, detect_negative=1 - positive)
        value = op.where(found, default if new is None else new, value)
    return value


@operation(OPERATIONS, "Copy", "StopGradient", "Conj", "Conjugate", "Real")
def copy(op: Builder, x: Any) -> Value:
    """The tensor itself."""
    return tensor(op, x)


# -- questions -------------------------------------------------------------------------------------


def is_inf(op: Builder, x: Value, *, positive: bool = True, negative: bool = True) -> Value:
    """Whether elements are infinite."""
    wide = op.cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
    return op.unary("IsInf", wide, detect_positive=int(positive), detect_negative=int(negative))


def is_finite(op: Builder, x: Value) -> Value:
    """Whether elements are neither infinite nor NaN."""
    return op.unary("Not", op.elementwise("Or", op.unary("IsNaN", x), is_inf(op, x)))


@operation(
    OPERATIONS,
    Variant("Isnan", "Whether x is NaN.", ask=lambda op, x: op.unary("IsNaN", x)),
    Variant("Isinf", "Whether x is infinite.", ask=is_inf),
    Variant("Isfinite", "Whether x is neither infinite nor NaN.", ask=is_finite, of_integers=True),
    Variant("Isposinf", "Whether x is infinity.", ask=partial(is_inf, negative=False)),
    Variant("Isneginf", "Whether x is minus infinity.", ask=partial(is_inf, positive=False)),
)
def check_floats(op: Builder, x: Any, *, ask: Unary, of_integers: bool = False) -> Value:
    """A test of floating-point values; integers all give one result."""
    value = tensor(op, x)
    if value.is_float:
        return ask(op, value)
    same = op.elementwise("Equal", value, value)
    return same if of_integers else op.unary("Not", same)


@operation(OPERATIONS, "Isreal")
def is_real(op: Builder, x: Any) -> Value:
    """True: complex dtypes are not supported."""
    value = tensor(op, x)
    same = op.elementwise("Equal", value, value)
    return op.elementwise("Or", same, op.unary("Not", same))


@operation(OPERATIONS, "Isclose")
def is_close(
    op: Builder, x1: Any, x2: Any, rtol: Any = 1e-5, atol: Any = 1e-8, *, equal_nan: bool = False
) -> Value:
    """Whether abs(x1 - x2) <= atol + rtol * abs(x2)."""
    a, b = promote(op, x1, x2)
    if not a.is_float:
        return op.elementwise("Equal", a, b)
    near = op.add(op.mul(op.unary("Abs", b), rtol), atol)
    result = op.elementwise("LessOrEqual", op.unary("Abs", op.sub(a, b)), near)
    if not equal_nan:
        return result
    both = op.elementwise("And", op.unary("IsNaN", a), op.unary("IsNaN", b))
    return op.elementwise("Or", result, both)


@operation(OPERATIONS, "Angle")
def angle(op: Builder, x: Any) -> Value:
    """0, or pi where x is negative."""
    value = as_float(op, x)
    return op.where(op.elementwise("Less", value, 0.0), pi, op.constant(0.0, value.dtype))


@operation(OPERATIONS, "Where")
def where(op: Builder, condition: Any, x1: Any = None, x2: Any = None) -> Any:
    """`x1` where the condition is true, else `x2`; the indices of true elements without both."""
    if x1 is None and x2 is None:
        return nonzero(op, condition)
    return op.where(tensor(op, condition, "bool"), *promote(op, x1, x2))


@operation(OPERATIONS, "Nonzero")
def nonzero(op: Builder, x: Any) -> list[Value]:
    """The indices of elements that are not zero, an output for each axis."""
    value = op.plain(tensor(op, x, "bool"))
    found = op.emit("NonZero", value, dtype="int64", shape=(value.rank, None))
    rows = op.split(op.cast(found, "int32"), 0, [1] * value.rank)
    return [op.squeeze(row, [0]) for row in rows]


@operation(OPERATIONS, "Select")
def select(op: Builder, condlist: Any, choicelist: Any, default: Any = 0) -> Value:
    """The choice of the first condition that is true, else the default."""
    *choices, result = promote(op, *choicelist, default)
    for condition, choice in zip(reversed(condlist), reversed(choices), strict=True):
        result = op.where(tensor(op, condition, "bool"), choice, result)
    return result


# -- dtypes ----------------------------------------------------------------------------------------


@operation(OPERATIONS, "Cast")
def cast(op: Builder, x: Any, *, dtype: str) -> Value:
    """The tensor cast to a dtype; floating-point values are truncated to integers."""
    return tensor(op, x, dtype)


@operation(OPERATIONS, "SaturateCast")
def saturate_cast(op: Builder, x: Any, *, dtype: str) -> Value:
    """The tensor cast to a dtype, clipped to its range."""
    value = tensor(op, x)
    if dtype == "bool" or value.dtype in (dtype, "bool"):
        return op.cast(value, dtype)
    low, high = (_limit(dtype, k) for k in ("min", "max"))
    own_low, own_high = (_limit(value.dtype, k) for k in ("min", "max"))
    bounds = [op.constant(max(low, own_low), value.dtype)]
    bounds.append(op.constant(_below(min(high, own_high), value.dtype), value.dtype))
    held = op.node("Clip", [value, *bounds], [(value.dtype, value.shape)], stored=value.stored)[0]
    return op.cast(held, dtype)


def _limit(dtype: str, which: str) -> float:
    if dtype == "bfloat16":
        return 3.3895314e38 if which == "max" else -3.3895314e38
    info: Any = np.finfo(dtype) if "float" in dtype else np.iinfo(dtype)
    return float(getattr(info, which)) if "float" in dtype else int(getattr(info, which))


def _below(bound: float, dtype: str) -> float:
    """Return the largest number of a dtype that is not above a bound."""
    if "float" not in dtype or dtype == "bfloat16":
        return bound
    near = np.asarray(bound, dtype)
    return float(near if near <= bound else np.nextafter(near, np.asarray(0, dtype)))


@operation(OPERATIONS, "ConvertToTensor", "Array")
def convert_to_tensor(
    op: Builder, x: Any, *, dtype: str | None = None, sparse: Any = None, ragged: Any = None
) -> Value:
    """The tensor, cast to a dtype if one is given."""
    if sparse or ragged:
        raise Unsupported("sparse or ragged tensors")
    return tensor(op, x, dtype)
