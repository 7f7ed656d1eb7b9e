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
from converter.lower.ops.elementwise import atan2, floor_mod, hypot, logaddexp
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
    """A function of each element that is one node of ONNX."""
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
    Variant("Erfc", "1 - erf(x), exact where that is small.", compute=special.erfc),
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
    """A function of each element."""
    return compute(op, as_float(op, x))


# -- functions that keep the dtype ----------------------------------------------------------------


@operation(OPERATIONS, "Abs", "Absolute", "Fabs")
def absolute(op: Builder, x: Any) -> Value:
    """X without its sign."""
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
    """-1, 0 or 1."""
    return op.unary("Sign", tensor(op, x))


@operation(OPERATIONS, "Signbit")
def signbit(op: Builder, x: Any) -> Value:
    """Whether x is negative; of floating point numbers, -0 is."""
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
    """X * x."""
    value = tensor(op, x)
    value = op.cast(value, "int32") if value.dtype == "bool" else value
    return op.mul(value, value)


@operation(OPERATIONS, "Round")
def round_(op: Builder, x: Any, *, decimals: int = 0) -> Value:
    """X to the nearest number of so many decimals, halves to the even one."""
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
    """X without what is behind the point."""
    value = tensor(op, x)
    if not value.is_float:
        return value
    below = op.elementwise("Less", value, 0.0)
    return op.where(below, op.unary("Ceil", value), op.unary("Floor", value))


@operation(OPERATIONS, "Clip")
def clip(op: Builder, x: Any, *, x_min: Any, x_max: Any) -> Value:
    """x, held between two bounds."""
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
    """X with numbers in place of NaN and of the infinities."""
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
    """X."""
    return tensor(op, x)


# -- of two ---------------------------------------------------------------------------------------

Binary = Callable[[Builder, Value, Value], Value]

# fmt: off
PROMOTED = {
    "Add": "Add", "Subtract": "Sub", "Multiply": "Mul", "Maximum": "Max", "Minimum": "Min",
    "Greater": "Greater", "GreaterEqual": "GreaterOrEqual", "Less": "Less",
    "LessEqual": "LessOrEqual", "Equal": "Equal",
}
LOGICAL = {"LogicalAnd": "And", "LogicalOr": "Or", "LogicalXor": "Xor"}
BITWISE = {"BitwiseAnd": "And", "BitwiseOr": "Or", "BitwiseXor": "Xor"}
# fmt: on


@operation(OPERATIONS, *direct(PROMOTED, "{}(x1, x2)."))
def binary(op: Builder, x1: Any, x2: Any, *, op_type: str) -> Value:
    """A function of two tensors that is one node of ONNX."""
    return op.elementwise(op_type, *promote(op, x1, x2))


def not_equal(op: Builder, a: Value, b: Value) -> Value:
    """Whether a is not b."""
    return op.unary("Not", op.elementwise("Equal", a, b))


def fmod(op: Builder, a: Value, b: Value) -> Value:
    """The remainder, with the sign of a."""
    if a.dtype == "bool":
        a, b = op.cast(a, "int32"), op.cast(b, "int32")
    return op.elementwise("Mod", a, b, fmod=1)


def mod(op: Builder, a: Value, b: Value) -> Value:
    """The remainder, with the sign of b; booleans are integers."""
    if a.dtype == "bool":
        a, b = op.cast(a, "int32"), op.cast(b, "int32")
    return floor_mod(op, a, b)


def floor_divide(op: Builder, a: Value, b: Value) -> Value:
    """The largest integer not above a / b."""
    if a.is_float:
        return op.unary("Floor", op.div(a, b))
    return op.div(op.sub(a, op.elementwise("Mod", a, b)), b)


def divide_no_nan(op: Builder, a: Value, b: Value) -> Value:
    """A / b, and 0 where b is 0."""
    zero = op.elementwise("Equal", b, 0.0)
    return op.where(zero, 0.0, op.div(a, op.where(zero, 1.0, b)))


def power(op: Builder, a: Value, b: Value) -> Value:
    """A ** b."""
    return op.elementwise("Pow", a, b)


def logaddexp2(op: Builder, a: Value, b: Value) -> Value:
    """log2(2 ** a + 2 ** b)."""
    both = logaddexp(op, op.mul(a, log(2)), op.mul(b, log(2)))
    return op.div(both, log(2))


def heaviside(op: Builder, a: Value, b: Value) -> Value:
    """0 below zero, 1 above, b at zero."""
    above = op.where(op.elementwise("Greater", a, 0.0), op.constant(1.0, a.dtype), b)
    return op.where(op.elementwise("Less", a, 0.0), 0.0, above)


def fmax(op: Builder, a: Value, b: Value) -> Value:
    """The larger; a number before NaN."""
    return _without_nan(op, "Max", a, b)


def fmin(op: Builder, a: Value, b: Value) -> Value:
    """The smaller; a number before NaN."""
    return _without_nan(op, "Min", a, b)


def _without_nan(op: Builder, op_type: str, a: Value, b: Value) -> Value:
    result = op.elementwise(op_type, a, b)
    if not a.is_float:
        return result
    return op.where(op.unary("IsNaN", a), b, op.where(op.unary("IsNaN", b), a, result))


def left_shift(op: Builder, a: Value, b: Value) -> Value:
    """A * 2 ** b."""
    return op.mul(a, _two_to(op, b))


def right_shift(op: Builder, a: Value, b: Value) -> Value:
    """A / 2 ** b, rounded down."""
    return floor_divide(op, a, _two_to(op, b))


def _two_to(op: Builder, b: Value) -> Value:
    wide = op.elementwise("Pow", op.constant(2, "int64"), op.cast(b, "int64"))
    return op.cast(wide, b.dtype)


def divide(op: Builder, a: Value, b: Value) -> Value:
    """x1 / x2."""
    return op.div(a, b)


@operation(
    OPERATIONS,
    *(
        Variant(names, join.__doc__, join=join, also=also)
        for names, join, also in (
            ("NotEqual", not_equal, ()),
            ("Mod", mod, ()),
            ("Fmod", fmod, ()),
            ("FloorDivide", floor_divide, ()),
            (("Divide", "TrueDivide"), divide, ("float",)),
            ("DivideNoNan", divide_no_nan, ("float",)),
            ("Power", power, ()),
            ("Arctan2", atan2, ("float",)),
            ("Hypot", hypot, ("float",)),
            ("Logaddexp", logaddexp, ("float",)),
            ("Logaddexp2", logaddexp2, ("float",)),
            ("Heaviside", heaviside, ("float",)),
            ("Fmax", fmax, ()),
            ("Fmin", fmin, ()),
        )
    ),
)
def function_of_two(op: Builder, x1: Any, x2: Any, *, join: Binary, also: tuple[str, ...]) -> Value:
    """A function of two tensors."""
    return join(op, *promote(op, x1, x2, also=also))


@operation(
    OPERATIONS,
    *direct(LOGICAL, "{} of x1 and x2, in which anything but zero is true."),
)
def logical(op: Builder, x1: Any, x2: Any, *, op_type: str) -> Value:
    """A logical function of two tensors, in which anything but zero is true."""
    return op.elementwise(op_type, truth(op, x1), truth(op, x2))


@operation(OPERATIONS, *direct(BITWISE, "{} of the bits."))
def bitwise(op: Builder, x: Any, y: Any, *, op_type: str) -> Value:
    """A function of the bits of two tensors."""
    a, b = promote(op, x, y)
    return op.elementwise(op_type if a.dtype == "bool" else f"Bitwise{op_type}", a, b)


@operation(
    OPERATIONS,
    Variant(("BitwiseLeftShift", "LeftShift"), "x * 2 ** y.", shift=left_shift),
    Variant(("BitwiseRightShift", "RightShift"), "x / 2 ** y, rounded down.", shift=right_shift),
)
def shifted(op: Builder, x: Any, y: Any, *, shift: Binary) -> Value:
    """The bits of x, moved by y places."""
    return shift(op, *promote(op, x, y))


def truth(op: Builder, x: Any) -> Value:
    """Whether elements are anything but zero."""
    return tensor(op, x, "bool")


@operation(OPERATIONS, "BitwiseNot", "BitwiseInvert")
def bitwise_not(op: Builder, x: Any) -> Value:
    """X with every bit turned."""
    value = tensor(op, x)
    return op.unary("Not" if value.dtype == "bool" else "BitwiseNot", value)


@operation(OPERATIONS, "LogicalNot")
def logical_not(op: Builder, x: Any) -> Value:
    """Whether x is zero."""
    return op.unary("Not", truth(op, x))


@operation(OPERATIONS, "Ldexp")
def ldexp(op: Builder, x1: Any, x2: Any) -> Value:
    """x1 * 2 ** x2."""
    a, b = promote(op, x1, x2, also=("float",))
    return op.mul(a, op.elementwise("Pow", op.constant(2.0, b.dtype), b))


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
def asked(op: Builder, x: Any, *, ask: Unary, of_integers: bool = False) -> Value:
    """What is asked of floating point numbers; integers have one answer."""
    value = tensor(op, x)
    if value.is_float:
        return ask(op, value)
    same = op.elementwise("Equal", value, value)
    return same if of_integers else op.unary("Not", same)


@operation(OPERATIONS, "Isreal")
def is_real(op: Builder, x: Any) -> Value:
    """True: there are no complex numbers here."""
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
    """0, and pi where x is negative: there are no complex numbers here."""
    value = as_float(op, x)
    return op.where(op.elementwise("Less", value, 0.0), pi, op.constant(0.0, value.dtype))


@operation(OPERATIONS, "Where")
def where(op: Builder, condition: Any, x1: Any = None, x2: Any = None) -> Any:
    """x1 where the condition holds, else x2; with the condition alone, where it holds."""
    if x1 is None and x2 is None:
        return nonzero(op, condition)
    return op.where(truth(op, condition), *promote(op, x1, x2))


@operation(OPERATIONS, "Nonzero")
def nonzero(op: Builder, x: Any) -> list[Value]:
    """The indices of what is not zero, an output for each axis."""
    value = op.plain(truth(op, x))
    found = op.emit("NonZero", value, dtype="int64", shape=(value.rank, None))
    rows = op.split(op.cast(found, "int32"), 0, [1] * value.rank)
    return [op.squeeze(row, [0]) for row in rows]


@operation(OPERATIONS, "Select")
def select(op: Builder, condlist: Any, choicelist: Any, default: Any = 0) -> Value:
    """The choice of the first condition that holds, else the default."""
    *choices, result = promote(op, *choicelist, default)
    for condition, choice in zip(reversed(condlist), reversed(choices), strict=True):
        result = op.where(truth(op, condition), choice, result)
    return result


# -- dtypes ----------------------------------------------------------------------------------------


@operation(OPERATIONS, "Cast")
def cast(op: Builder, x: Any, *, dtype: str) -> Value:
    """X in another dtype; floating point numbers are cut off to integers."""
    return tensor(op, x, dtype)


@operation(OPERATIONS, "SaturateCast")
def saturate_cast(op: Builder, x: Any, *, dtype: str) -> Value:
    """X in another dtype, held between its bounds."""
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
    """X, in another dtype where one is given."""
    if sparse or ragged:
        raise Unsupported("sparse or ragged tensors")
    return tensor(op, x, dtype)
