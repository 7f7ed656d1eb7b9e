"""Type promotion: of tensors with axes first, then of those without, then of numbers.

Spec: https://docs.pytorch.org/docs/2.13/tensor_attributes.html#type-promotion-doc
"""

from collections.abc import Sequence
from typing import TypeAlias

from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Number, Scalar, Size
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

Operand: TypeAlias = Value | Scalar

# ScalarType in the schema of exported programs (formats.torch.export) is another numbering.
# https://github.com/pytorch/pytorch/blob/v2.13.0/torch/headeronly/core/ScalarType.h
SCALAR_TYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32",
    7: "float64", 8: "complex32", 9: "complex64", 10: "complex128", 11: "bool",
    12: "qint8", 13: "quint8", 14: "qint32", 15: "bfloat16",
    23: "float8_e5m2", 24: "float8_e4m3fn", 27: "uint16", 28: "uint32", 29: "uint64",
}  # fmt: skip
INTEGERS = ("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
DEFAULT = "float32"
_SIGNED = {8: "int8", 16: "int16", 32: "int32", 64: "int64"}


def kind(dtype: str) -> int:
    """Return 0 for booleans, 1 for integers, 2 for floating point numbers.

    Raises:
        Unsupported: It is another one.
    """
    if dtype == "bool":
        return 0
    if dtype in INTEGERS:
        return 1
    if dtype in FLOATS:
        return 2
    raise Unsupported(f"arithmetic of {dtype}")


def promote_types(a: str, b: str) -> str:
    """Return the dtype of two tensors alike in rank.

    Raises:
        Unsupported: torch itself has none for them.
    """
    if a == b:
        return a
    lower, higher = sorted((a, b), key=kind)
    if kind(lower) < kind(higher):
        return higher
    if kind(a) == 2:
        return "float32" if {a, b} == {"float16", "bfloat16"} else max(a, b, key=_bits)
    if a[0] == b[0]:
        return max(a, b, key=_bits)
    unsigned, signed = (a, b) if a[0] == "u" else (b, a)
    if unsigned != "uint8":
        raise Unsupported(f"{a} together with {b}")
    return _SIGNED[max(_bits(signed), 16)]


def _bits(dtype: str) -> int:
    return int("".join(c for c in dtype if c.isdigit()))


def number_type(operand: Scalar) -> str:
    """Return the dtype that a number would have as a tensor."""
    if isinstance(operand, bool):
        return "bool"
    if isinstance(operand, int | Size):
        return "int64"
    if isinstance(operand, Number):
        found = operand.value.dtype
        return DEFAULT if kind(found) == 2 else found
    return DEFAULT


def result_type(*operands: Operand) -> str:
    """Return the dtype of an operation of tensors and numbers."""
    groups: list[str | None] = [None, None, None]  # with axes, without, numbers
    for value in operands:
        if isinstance(value, Value):
            place, dtype = (0 if value.rank else 1), value.dtype
        else:
            place, dtype = 2, number_type(value)
        before = groups[place]
        groups[place] = dtype if before is None else promote_types(before, dtype)
    found = _over(groups[0], _over(groups[1], groups[2]))
    if found is None:
        raise Unsupported("an operation of nothing")
    return found


def _over(first: str | None, second: str | None) -> str | None:
    """Return the dtype of what comes first, unless what comes second is of a higher kind."""
    if first is None or second is None:
        return second if first is None else first
    if kind(first) >= kind(second):
        return first
    if kind(first) == 0 or kind(second) == 2:
        return promote_types(first, second)
    return first


def floating(dtype: str) -> str:
    """Return the dtype that functions with fractions have: integers become float32."""
    return dtype if kind(dtype) == 2 else DEFAULT


def together(op: Context, operands: Sequence[Operand], dtype: str | None = None) -> list[Value]:
    """Return operands as tensors of the dtype that they are computed in."""
    to = dtype or result_type(*operands)
    return [op.cast(t, to) if isinstance(t, Value) else op.scalar(t, to) for t in operands]
