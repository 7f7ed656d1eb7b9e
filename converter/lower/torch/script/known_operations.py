"""Operations of tensors that are known while lowering: traces compute sizes with them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from converter.lower.torch.mutable_tensors import Reference
from converter.lower.torch.program_values import ProgramValue, Size
from converter.lower.torch.promotion import SCALAR_TYPES, floating, result_type
from converter.lower.torch.script.numbers import compute
from converter.lower.torch.script.types import Interpreter

WHOLE = {None: "", "floor": "floordiv", "trunc": "__round_to_zero_floordiv"}


def compute_known_integers(
    interpreter: Interpreter, name: str, args: list[ProgramValue], kwargs: dict[str, ProgramValue]
) -> ProgramValue:
    """Return an operation of tensors that are known integers, as traces have; None for others."""
    mode = kwargs.get("rounding_mode")
    if name == "div" and mode in WHOLE and set(kwargs) <= {"rounding_mode"}:
        name = WHOLE[mode]
    elif kwargs and kwargs != {"alpha": 1}:
        return None
    count = 1 if name == "neg" else 2
    if name not in FOLLOWED or len(args) < count or args[count:] not in ([], [1]):
        return None
    found = [_integer(interpreter, one) for one in args[:count]]
    if None in found or not any(isinstance(one, Reference) for one in args):
        return None
    return compute(interpreter.op, name, found)


FOLLOWED = (
    "add", "sub", "mul", "floordiv", "floor_divide", "remainder", "neg",
    "__round_to_zero_floordiv",
)  # fmt: skip


def _integer(interpreter: Interpreter, operand: ProgramValue) -> ProgramValue:
    """Return the integer that a tensor without axes, or a number, is known to be."""
    if isinstance(operand, Reference):
        known = interpreter.numbers.get(operand)
        if known is not None:
            return known
        value = operand.read()
        array = interpreter.op.array(value) if value.rank == 0 and value.dtype == "int64" else None
        return None if array is None else int(array)
    is_integer = isinstance(operand, int | Size) and not isinstance(operand, bool)
    return operand if is_integer else None


# What traces of before torch 1.6 compute of sizes, to resize by a factor.
FOLDED: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "floor": np.floor,
    "ceil": np.ceil, "to": np.asarray,
}  # fmt: skip


def fold_constants(
    interpreter: Interpreter, name: str, args: list[ProgramValue], kwargs: dict[str, ProgramValue]
) -> ProgramValue:
    """Return an operation of known tensors without axes as a constant, or None for others."""
    count = 2 if name in ("add", "sub", "mul", "div") else 1
    if name not in FOLDED or kwargs or len(args) < count:
        return None
    if name == "to":
        if len(args) < 2 or args[1] not in SCALAR_TYPES or isinstance(args[1], bool):
            return None
    elif args[count:] not in ([], [1]):
        return None
    known = [_element(interpreter, one) for one in args[:count]]
    if None in known or not any(isinstance(one, Reference) for one in args[:count]):
        return None
    operands = [one.read() if isinstance(one, Reference) else one for one in args[:count]]
    dtype = SCALAR_TYPES[args[1]] if name == "to" else result_type(*operands)
    dtype = floating(dtype) if name == "div" else dtype
    if dtype not in ("float32", "float64", "int64", "int32"):
        return None
    with np.errstate(all="ignore"):
        made = np.asarray(FOLDED[name](*(np.asarray(n, dtype) for n in known)), dtype)
    return Reference.to(interpreter.op.constant(made, dtype)) if np.isfinite(made) else None


def _element(interpreter: Interpreter, value: ProgramValue) -> ProgramValue:
    """Return the known number that a tensor without axes, or a number, is."""
    if isinstance(value, Reference):
        number = interpreter.numbers.get(value)
        if number is None and value.read().rank == 0:
            array = interpreter.op.array(value.read())
            number = None if array is None else array.item()
        value = number
    return value if type(value) in (int, float) else None
