"""Operations on the elements of two tensors: arithmetic, comparison, logic, bits.

Spec: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/ops/numpy.py
"""

from collections.abc import Callable
from math import log
from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.operations.operands import (
    promote,
    tensor,
)
from converter.lower.keras.table import OPERATIONS, operation
from converter.lower.ops.elementwise import atan2, floor_mod, hypot, logaddexp
from converter.lower.table import Variant, direct
from converter.lower.values import Value

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
    """A logical function of two tensors; other values than zero are true."""
    return op.elementwise(op_type, tensor(op, x1, "bool"), tensor(op, x2, "bool"))


@operation(OPERATIONS, *direct(BITWISE, "{} of the bits."))
def bitwise(op: Builder, x: Any, y: Any, *, op_type: str) -> Value:
    """A bitwise function of two tensors."""
    a, b = promote(op, x, y)
    return op.elementwise(op_type if a.dtype == "bool" else f"Bitwise{op_type}", a, b)


@operation(
    OPERATIONS,
    Variant(("BitwiseLeftShift", "LeftShift"), "`x << y`.", shift=left_shift),
    Variant(
        ("BitwiseRightShift", "RightShift"), "`x >> y`, an arithmetic shift.", shift=right_shift
    ),
)
def shifted(op: Builder, x: Any, y: Any, *, shift: Binary) -> Value:
    """A shift of the bits of x by y."""
    return shift(op, *promote(op, x, y))


@operation(OPERATIONS, "BitwiseNot", "BitwiseInvert")
def bitwise_not(op: Builder, x: Any) -> Value:
    """`~x`, bitwise."""
    value = tensor(op, x)
    return op.unary("Not" if value.dtype == "bool" else "BitwiseNot", value)


@operation(OPERATIONS, "LogicalNot")
def logical_not(op: Builder, x: Any) -> Value:
    """Whether x is zero."""
    return op.unary("Not", tensor(op, x, "bool"))


@operation(OPERATIONS, "Ldexp")
def ldexp(op: Builder, x1: Any, x2: Any) -> Value:
    """`x1 * 2 ** x2`."""
    a, b = promote(op, x1, x2, also=("float",))
    return op.mul(a, op.elementwise("Pow", op.constant(2.0, b.dtype), b))
