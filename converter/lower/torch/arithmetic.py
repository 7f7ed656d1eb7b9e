"""Arithmetic and comparison, in the dtype that torch would choose."""

from converter.lower.table import Variant
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Scalar
from converter.lower.torch.promotion import (
    Operand,
    floating,
    kind,
    result_type,
    together,
)
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


def _is_one(value: object) -> bool:
    return isinstance(value, int | float) and value == 1


def apply(op: Context, op_type: str, *operands: Operand, dtype: str | None = None) -> Value:
    """Return an operation of tensors and numbers, which are broadcast."""
    return op.elementwise(op_type, *together(op, operands, dtype))


def scale(op: Context, a: Operand, alpha: Scalar, dtype: str) -> Operand:
    """Return a number times a tensor or another number, in a dtype."""
    if _is_one(alpha):
        return a
    return apply(op, "Mul", a, alpha, dtype=dtype)


@aten("add.Tensor", "add.Scalar")
def add(op: Context, self: Value, other: Value | Scalar, alpha: Scalar = 1) -> Value:
    """`a + alpha * b`."""
    dtype = result_type(self, other)
    if dtype == "bool":
        return apply(op, "Or", self, other)
    if isinstance(other, int | float) and other == 0 and dtype == self.dtype:
        return op.outer(self)
    return apply(op, "Add", self, scale(op, other, alpha, dtype), dtype=dtype)


@aten("sub.Tensor", "sub.Scalar", "subtract.Tensor", "subtract.Scalar")
def sub(op: Context, self: Value, other: Value | Scalar, alpha: Scalar = 1) -> Value:
    """`a - alpha * b`."""
    dtype = result_type(self, other)
    return apply(op, "Sub", self, scale(op, other, alpha, dtype), dtype=dtype)


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(op: Context, self: Value, other: Value | Scalar, alpha: Scalar = 1) -> Value:
    """`b - alpha * a`."""
    dtype = result_type(self, other)
    return apply(op, "Sub", other, scale(op, self, alpha, dtype), dtype=dtype)


@aten("mul.Tensor", "mul.Scalar", "multiply.Tensor", "multiply.Scalar")
def mul(op: Context, self: Value, other: Value | Scalar) -> Value:
    """`a * b`."""
    dtype = result_type(self, other)
    return apply(op, "And" if dtype == "bool" else "Mul", self, other, dtype=dtype)


@aten(
    "div.Tensor", "div.Scalar", "true_divide.Tensor", "true_divide.Scalar", "divide.Tensor",
    "divide.Scalar",
)  # fmt: skip
def div(op: Context, self: Value, other: Value | Scalar) -> Value:
    """`a / b`; integers are divided as float32."""
    return apply(op, "Div", self, other, dtype=floating(result_type(self, other)))


@aten("div.Tensor_mode", "div.Scalar_mode", "divide.Tensor_mode", "divide.Scalar_mode")
def div_mode(op: Context, self: Value, other: Value | Scalar, rounding_mode: str | None) -> Value:
    """`a / b`, rounded down or towards zero where ``rounding_mode`` says so."""
    if rounding_mode is None:
        return div(op, self, other)
    if rounding_mode == "floor":
        return floor_divide(op, self, other)
    if rounding_mode != "trunc":
        raise Unsupported(f"rounding_mode = {rounding_mode!r}")
    dtype = result_type(self, other)
    found = apply(op, "Div", self, other, dtype=dtype)
    return found if kind(dtype) < 2 else truncate(op, found)


def truncate(op: Context, x: Value) -> Value:
    """Return numbers without their fractions."""
    return op.mul(op.unary("Sign", x), op.unary("Floor", op.unary("Abs", x)))


@aten("floor_divide", "floor_divide.Scalar", "floor_divide.Tensor")
def floor_divide(op: Context, self: Value, other: Value | Scalar) -> Value:
    """`a / b`, rounded down."""
    dtype = result_type(self, other)
    a, b = together(op, [self, other], dtype)
    if kind(dtype) == 2:
        return _floor_quotient(op, a, b)
    return op.div(op.sub(a, op.elementwise("Mod", a, b)), b)


def _floor_quotient(op: Context, a: Value, b: Value) -> Value:
    """Return the quotient rounded down as Python has it, which torch has too.

    `(a - remainder) / b`, rounded: `a / b` itself may be rounded up to the next integer.
    Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/c10/util/generic_math.h
    """
    rest = op.elementwise("Mod", a, b, fmod=1)
    exact = op.div(op.sub(a, rest), b)
    apart = op.elementwise("Xor", *(op.elementwise("Less", v, 0.0) for v in (b, rest)))
    some = op.unary("Not", op.elementwise("Equal", rest, 0.0))
    exact = op.where(op.elementwise("And", some, apart), op.sub(exact, 1.0), exact)
    near = op.unary("Floor", exact)
    far = op.elementwise("Greater", op.sub(exact, near), op.constant(0.5, a.dtype))
    found = op.where(far, op.add(near, 1.0), near)
    none = op.elementwise("Equal", b, op.constant(0.0, b.dtype))
    return op.where(none, op.div(a, b), found)


def _remainder(op: Context, a: Value, b: Value) -> Value:
    """Return the remainder with the divisor's sign."""
    rest = op.elementwise("Mod", a, b, fmod=1)
    zero = op.constant(0.0, a.dtype)
    differ = op.elementwise(
        "Xor", op.elementwise("Less", rest, zero), op.elementwise("Less", b, zero)
    )
    wrong = op.elementwise("And", differ, op.unary("Not", op.elementwise("Equal", rest, zero)))
    return op.where(wrong, op.add(rest, b), rest)


@aten("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(op: Context, self: Value | Scalar, other: Value | Scalar) -> Value:
    """The remainder of `a / b`, with the sign of b."""
    dtype = result_type(self, other)
    a, b = together(op, [self, other], dtype)
    return _remainder(op, a, b) if kind(dtype) == 2 else op.elementwise("Mod", a, b)


@aten("fmod.Tensor", "fmod.Scalar")
def fmod(op: Context, self: Value, other: Value | Scalar) -> Value:
    """The remainder of `a / b`, with the sign of a."""
    a, b = together(op, [self, other])
    return op.elementwise("Mod", a, b, fmod=1)


@aten("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "__rpow__")
def power(op: Context, self: Value | Scalar, exponent: Value | Scalar) -> Value:
    """`a ** b`."""
    dtype = result_type(self, exponent)
    if isinstance(self, Value) and isinstance(exponent, int | float):
        x = op.cast(self, dtype)
        if exponent == 2:
            return op.mul(x, x)
        if exponent == 0.5 and kind(dtype) == 2:
            return op.unary("Sqrt", x)
        if exponent == 1:
            return x
        if exponent == 3:
            return op.mul(op.mul(x, x), x)
    if kind(dtype) == 1:  # onnxruntime has it of floats alone in full; int64 must stay exact
        a, b = together(op, [self, exponent], "int64")
        return op.cast(op.elementwise("Pow", a, b), dtype)
    return apply(op, "Pow", self, exponent, dtype=dtype)


@aten("float_power.Tensor_Tensor", "float_power.Tensor_Scalar", "float_power.Scalar")
def float_power(op: Context, self: Value | Scalar, exponent: Value | Scalar) -> Value:
    """`a ** b`, in float64."""
    return apply(op, "Pow", self, exponent, dtype="float64")


@aten("ldexp.Tensor")
def ldexp(op: Context, self: Value, other: Value) -> Value:
    """`a * 2 ** b`."""
    dtype = floating(result_type(self, other))
    return apply(op, "Mul", self, apply(op, "Pow", 2.0, other, dtype=dtype), dtype=dtype)


@aten("heaviside")
def heaviside(op: Context, self: Value, values: Value) -> Value:
    """0 below 0, 1 above 0, and the given value at 0."""
    zero = op.constant(0, self.dtype)
    above = op.cast(op.elementwise("Greater", self, zero), self.dtype)
    here = op.elementwise("Equal", self, zero)
    return op.where(here, op.cast(values, self.dtype), above)


@aten("isclose")
def isclose(
    op: Context, self: Value, other: Value, rtol: float = 1e-5, atol: float = 1e-8,
    equal_nan: bool = False,
) -> Value:  # fmt: skip
    """Whether `abs(a - b) <= atol + rtol * abs(b)`."""
    a, b = together(op, [self, other])
    same = op.elementwise("Equal", a, b)
    if kind(a.dtype) < 2:
        a, b = (op.cast(x, "float64") for x in (a, b))
    bound = op.add(op.mul(op.unary("Abs", b), rtol), atol)
    apart = op.unary("Abs", op.sub(a, b))
    near = op.elementwise("LessOrEqual", apart, bound)
    known = [op.unary("Not", op.unary("IsInf", x)) for x in (a, b)]
    near = op.elementwise("And", near, op.elementwise("And", *known))
    found = op.elementwise("Or", same, near)
    if not equal_nan:
        return found
    none = op.elementwise("And", *(op.unary("IsNaN", x) for x in (a, b)))
    return op.elementwise("Or", found, none)


@aten("neg", "negative")
def neg(op: Context, self: Value) -> Value:
    """`-x`."""
    return op.unary("Neg", self)


@aten("addcmul")
def addcmul(op: Context, self: Value, tensor1: Value, tensor2: Value, value: Scalar = 1) -> Value:
    """`a + value * b * c`."""
    dtype = result_type(self, tensor1, tensor2)
    product = apply(op, "Mul", tensor1, tensor2, dtype=dtype)
    return apply(op, "Add", self, scale(op, product, value, dtype), dtype=dtype)


@aten("addcdiv")
def addcdiv(op: Context, self: Value, tensor1: Value, tensor2: Value, value: Scalar = 1) -> Value:
    """`a + value * b / c`."""
    dtype = floating(result_type(self, tensor1, tensor2))
    quotient = apply(op, "Div", tensor1, tensor2, dtype=dtype)
    return apply(op, "Add", self, scale(op, quotient, value, dtype), dtype=dtype)


@aten("lerp.Tensor", "lerp.Scalar")
def lerp(op: Context, self: Value, end: Value, weight: Value | Scalar) -> Value:
    """`a + weight * (b - a)`."""
    dtype = result_type(self, end)
    step = apply(op, "Mul", apply(op, "Sub", end, self, dtype=dtype), weight, dtype=dtype)
    return apply(op, "Add", self, step, dtype=dtype)


@aten("maximum", "max.other")
def maximum(op: Context, self: Value, other: Value) -> Value:
    """The element-wise maximum."""
    return extreme(op, "Max", self, other)


@aten("minimum", "min.other")
def minimum(op: Context, self: Value, other: Value) -> Value:
    """The element-wise minimum."""
    return extreme(op, "Min", self, other)


def extreme(op: Context, op_type: str, a: Value | Scalar, b: Value | Scalar) -> Value:
    """Return the larger or the smaller of two; where one is no number, neither is the result."""
    dtype = result_type(a, b)
    if dtype == "bool":
        return apply(op, "Or" if op_type == "Max" else "And", a, b)
    return apply(op, op_type, a, b, dtype=dtype)


@aten(
    Variant(
        "fmax",
        "The element-wise maximum, ignoring NaN where the other value is a number.",
        op_type="Max",
    ),
    Variant(
        "fmin",
        "The element-wise minimum, ignoring NaN where the other value is a number.",
        op_type="Min",
    ),
)
def extreme_but_nan(op: Context, self: Value, other: Value, *, op_type: str) -> Value:
    """The element-wise maximum or minimum, ignoring NaN where the other value is a number."""
    dtype = result_type(self, other)
    if kind(dtype) < 2:
        return extreme(op, op_type, self, other)
    a, b = together(op, [self, other], dtype)
    found = op.where(op.unary("IsNaN", b), a, op.elementwise(op_type, a, b))
    return op.where(op.unary("IsNaN", a), b, found)


@aten("clamp", "clip", "clamp.Tensor", "clip.Tensor")
def clamp(
    op: Context, self: Value, min: Value | Scalar | None = None, max: Value | Scalar | None = None
) -> Value:
    """`x` clipped to two bounds."""
    bounds = [b for b in (min, max) if b is not None]
    dtype = result_type(self, *bounds)
    x = op.cast(self, dtype)
    if min is not None:
        x = op.elementwise("Max", x, *together(op, [min], dtype))
    if max is not None:
        x = op.elementwise("Min", x, *together(op, [max], dtype))
    return x


@aten("clamp_min", "clamp_min.Tensor")
def clamp_min(op: Context, self: Value, min: Value | Scalar) -> Value:
    """`x` clipped to a lower bound."""
    return clamp(op, self, min, None)


@aten("clamp_max", "clamp_max.Tensor")
def clamp_max(op: Context, self: Value, max: Value | Scalar) -> Value:
    """`x` clipped to an upper bound."""
    return clamp(op, self, None, max)


# -- comparison ------------------------------------------------------------------------------------


def compare(op: Context, op_type: str, a: Value | Scalar, b: Value | Scalar) -> Value:
    """Return a comparison in the dtype that both would be added in."""
    dtype = result_type(a, b)
    if dtype == "bool" and op_type != "Equal":
        dtype = "int32"
    return apply(op, op_type, a, b, dtype=dtype)


@aten("eq.Tensor", "eq.Scalar")
def eq(op: Context, self: Value, other: Value | Scalar) -> Value:
    """`a == b`."""
    return compare(op, "Equal", self, other)


@aten("ne.Tensor", "ne.Scalar", "not_equal.Tensor", "not_equal.Scalar")
def ne(op: Context, self: Value, other: Value | Scalar) -> Value:
    """`a != b`."""
    return op.unary("Not", compare(op, "Equal", self, other))


@aten("gt.Tensor", "gt.Scalar", "greater.Tensor", "greater.Scalar")
def gt(op: Context, self: Value, other: Value | Scalar) -> Value:
    """`a > b`."""
    return compare(op, "Greater", self, other)


@aten("ge.Tensor", "ge.Scalar", "greater_equal.Tensor", "greater_equal.Scalar")
def ge(op: Context, self: Value, other: Value | Scalar) -> Value:
    """`a >= b`."""
    return compare(op, "GreaterOrEqual", self, other)


@aten("lt.Tensor", "lt.Scalar", "less.Tensor", "less.Scalar")
def lt(op: Context, self: Value, other: Value | Scalar) -> Value:
    """`a < b`."""
    return compare(op, "Less", self, other)


@aten("le.Tensor", "le.Scalar", "less_equal.Tensor", "less_equal.Scalar")
def le(op: Context, self: Value, other: Value | Scalar) -> Value:
    """`a <= b`."""
    return compare(op, "LessOrEqual", self, other)


# -- truth and bits --------------------------------------------------------------------------------


@aten("logical_not")
def logical_not(op: Context, self: Value) -> Value:
    """`not x`."""
    return op.unary("Not", op.cast(self, "bool"))


@aten(
    Variant("logical_and", "Logical `a and b`.", op_type="And"),
    Variant("logical_or", "Logical `a or b`.", op_type="Or"),
    Variant("logical_xor", "Logical `a xor b`.", op_type="Xor"),
)
def logical(op: Context, self: Value, other: Value, *, op_type: str) -> Value:
    """A logical function of two tensors; other values than zero are true."""
    return op.elementwise(op_type, op.cast(self, "bool"), op.cast(other, "bool"))


@aten(
    Variant(
        ("bitwise_and.Tensor", "bitwise_and.Scalar", "__and__.Tensor", "__and__.Scalar"),
        "`a & b`, bitwise.",
        op_type="And",
    ),
    Variant(
        ("bitwise_or.Tensor", "bitwise_or.Scalar", "__or__.Tensor", "__or__.Scalar"),
        "`a | b`, bitwise.",
        op_type="Or",
    ),
    Variant(
        ("bitwise_xor.Tensor", "bitwise_xor.Scalar", "__xor__.Tensor", "__xor__.Scalar"),
        "`a ^ b`, bitwise.",
        op_type="Xor",
    ),
)
def bitwise(op: Context, self: Value, other: Value | Scalar, *, op_type: str) -> Value:
    """A bitwise function of two tensors."""
    dtype = result_type(self, other)
    return apply(op, op_type if dtype == "bool" else f"Bitwise{op_type}", self, other)


@aten(
    "bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar", "__lshift__.Tensor",
    "__lshift__.Scalar",
)  # fmt: skip
def left_shift(op: Context, self: Value, other: Value | Scalar) -> Value:
    """`a << b`."""
    a, b = together(op, [self, other])
    return op.cast(op.mul(op.cast(a, "int64"), _power_of_two(op, b)), a.dtype)


@aten(
    "bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar", "__rshift__.Tensor",
    "__rshift__.Scalar",
)  # fmt: skip
def right_shift(op: Context, self: Value, other: Value | Scalar) -> Value:
    """`a >> b`, an arithmetic shift."""
    a, b = together(op, [self, other])
    return op.cast(floor_divide(op, op.cast(a, "int64"), _power_of_two(op, b)), a.dtype)


def _power_of_two(op: Context, exponent: Value) -> Value:
    return op.elementwise("Pow", op.constant(2, "int64"), op.cast(exponent, "int64"))


@aten("bitwise_not")
def bitwise_not(op: Context, self: Value) -> Value:
    """`~x`, bitwise."""
    return op.unary("Not" if self.dtype == "bool" else "BitwiseNot", self)


@aten("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(op: Context, condition: Value, self: Value | Scalar, other: Value | Scalar) -> Value:
    """`a` where the condition is true, else `b`."""
    a, b = together(op, [self, other])
    return op.where(op.cast(condition, "bool"), a, b)


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(op: Context, self: Value, mask: Value, value: Value | Scalar) -> Value:
    """`x` with elements where the mask is true replaced by a number."""
    (number,) = together(op, [value], self.dtype)
    return op.where(op.cast(mask, "bool"), number, self)
