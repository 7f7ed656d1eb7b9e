"""Arithmetic of a TorchScript program's numbers: known ones, sizes that have names, and others.

A number that is known stays Python's. A size stays the name of one as long as its arithmetic is
that of sizes (`converter.lower.dims`). What is left is computed in the graph, in int64 and
float64 as torch does.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/jit/runtime/register_prim_ops.cpp
"""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from converter.lower import dims
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Number, ProgramValue, Size, integer
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

WIDEST = 1 << 63


def _check_range(number: ProgramValue) -> ProgramValue:
    if isinstance(number, int) and not -WIDEST <= number < WIDEST:
        raise Unsupported("an integer of more than 64 bits")
    if isinstance(number, complex):
        raise Unsupported("complex numbers")
    return number


def _round_to_zero(a: int, b: int) -> int:
    found = abs(a) // abs(b)
    return found if (a < 0) == (b < 0) else -found


def _pow(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        if b < 0:
            return float(a) ** b
        if abs(a) > 1 and b > 64:
            raise Unsupported("an integer of more than 64 bits")
    return a**b


def _floordiv(a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        return float(math.floor(a / b))
    return a // b


def _shift(function: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def apply(a: int, b: int) -> int:
        if not 0 <= b < 64:
            raise Unsupported(f"a shift by {b} bits")
        return function(a, b)

    return apply


# fmt: off
KNOWN: Mapping[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floordiv": _floordiv, "floor_divide": _floordiv, "remainder": operator.mod, "pow": _pow,
    "fmod": math.fmod, "__round_to_zero_floordiv": _round_to_zero,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge,
    "__and__": operator.and_, "__or__": operator.or_, "__xor__": operator.xor,
    "__lshift__": _shift(operator.lshift), "__rshift__": _shift(operator.rshift),
    "__not__": operator.not_, "neg": operator.neg, "abs": abs, "bitwise_not": operator.invert,
    "min": min, "max": max,
    "floor": math.floor, "ceil": math.ceil, "round": round, "trunc": math.trunc,
    "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "log2": math.log2, "log10": math.log10,
    "log1p": math.log1p, "expm1": math.expm1, "sin": math.sin, "cos": math.cos, "tan": math.tan,
    "asin": math.asin, "acos": math.acos, "atan": math.atan, "atan2": math.atan2,
    "sinh": math.sinh, "cosh": math.cosh, "tanh": math.tanh, "isnan": math.isnan,
    "isinf": math.isinf, "isfinite": math.isfinite, "copysign": math.copysign, "gcd": math.gcd,
    "fabs": math.fabs, "radians": math.radians, "degrees": math.degrees, "erf": math.erf,
}
# What a number computed by the graph is computed with.
OPERATORS = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "eq": "Equal", "lt": "Less", "le": "LessOrEqual",
    "gt": "Greater", "ge": "GreaterOrEqual", "__and__": "And", "__or__": "Or", "__xor__": "Xor",
    "min": "Min", "max": "Max", "neg": "Neg", "abs": "Abs", "__not__": "Not", "sqrt": "Sqrt",
    "exp": "Exp", "log": "Log", "pow": "Pow",
}
# fmt: on
FRACTIONS = frozenset(("div", "sqrt", "exp", "log"))
COMPARED = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))


def compute(op: Context, name: str, args: list[ProgramValue]) -> ProgramValue:
    """Return an operation of numbers.

    Args:
        op: Builder.
        name: A key of `KNOWN`.
        args: Numbers of every kind.

    Raises:
        Unsupported: There is no such number, or the graph cannot compute it.
    """
    if not any(isinstance(a, Size | Number) for a in args):
        try:
            return _check_range(KNOWN[name](*args))
        except ArithmeticError as e:
            raise Unsupported(f"{name} of {args}: {e!s:.60}") from e
    if not any(isinstance(a, Number | float) for a in args):
        found = _of_sizes(op, name, args)
        if found is not None:
            return found
    return _compute(op, name, args)


def _of_sizes(op: Context, name: str, args: list[ProgramValue]) -> ProgramValue:
    """Return an operation of sizes and integers, or None where that is no size."""
    if len(args) == 1:
        return integer(op.product([args[0], -1])) if name == "neg" else None
    a, b = (int(n) if isinstance(n, bool) else n for n in args)
    if name in COMPARED:
        difference = dims.sub(a, b)
        return KNOWN[name](difference, 0) if isinstance(difference, int) else None
    if name in ("add", "sub", "mul"):
        found = op.combine(name.capitalize(), getattr(dims, name)(a, b), a, b)
    elif name in ("floordiv", "floor_divide"):
        found = op.floordiv(a, b)
    elif name == "__round_to_zero_floordiv" and isinstance(b, int) and b > 0:
        found = op.floordiv(a, b)  # sizes are not negative
    elif name == "remainder":
        found = op.modulo(a, b)
    elif name in ("min", "max"):
        found = op.least(a, b) if name == "min" else op.most(a, b)
    else:
        return None
    return None if found is None else integer(found)


def tensor_of(op: Context, operand: ProgramValue) -> Value:
    """Return a number as a tensor without axes, as torch would make one for arithmetic."""
    if isinstance(operand, Number):
        return operand.value
    if isinstance(operand, bool):
        return op.constant(operand, "bool")
    if isinstance(operand, float):
        return op.constant(operand, "float64")
    return op.scalar(operand, "int64")


def _compute(op: Context, name: str, args: list[ProgramValue]) -> ProgramValue:
    values = [tensor_of(op, a) for a in args]
    if name in ("__and__", "__or__", "__xor__", "__not__"):
        if any(v.dtype != "bool" for v in values):
            raise Unsupported(f"{name} of integers that depend on the inputs")
        return Number(op.elementwise(OPERATORS[name], *values, dtype="bool"))
    is_real = name in FRACTIONS or any(v.is_float for v in values)
    values = [op.cast(v, "float64" if is_real else "int64") for v in values]
    kind = values[0].dtype
    if name == "ne":
        return Number(op.unary("Not", op.elementwise("Equal", *values, dtype="bool")))
    if name == "div":
        return Number(op.div(*values))
    if name in ("floordiv", "floor_divide"):
        return Number(_floor_divide(op, *values))
    if name == "remainder":
        whole = op.mul(_floor_divide(op, *values), values[1])
        return Number(op.sub(values[0], whole))
    if name in ("floor", "ceil", "round"):
        if not is_real:
            return Number(values[0])
        found = op.unary(name.capitalize(), values[0])
        return Number(found if name == "round" else op.cast(found, "int64"))
    if name not in OPERATORS:
        raise Unsupported(f"{name} of numbers that depend on the inputs")
    return Number(
        op.elementwise(OPERATORS[name], *values, dtype="bool" if name in COMPARED else kind)
    )


def _floor_divide(op: Context, a: Value, b: Value) -> Value:
    """A / b, rounded down."""
    if a.is_float:
        return op.unary("Floor", op.div(a, b))
    rest = op.elementwise("Mod", a, b)  # of b's sign
    return op.div(op.sub(a, rest), b)


def truth(op: Context, operand: ProgramValue) -> "bool | Number":
    """Return whether a number is not zero."""
    if isinstance(operand, Size):
        if operand in op.nonzero:
            return True
        return Number(op.unary("Not", op.elementwise("Equal", op.scalar(operand, "int64"), 0)))
    if isinstance(operand, Number):
        return Number(op.cast(operand.value, "bool"))
    return bool(operand)
