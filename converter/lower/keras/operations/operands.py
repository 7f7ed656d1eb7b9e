"""Operands of operations: values, arrays and numbers; and the dtype that several are promoted to.

Spec: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/backend/common/dtypes.py
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from converter.lower.builder import Builder
from converter.lower.graph import Dim, Shape
from converter.lower.keras.table import Unsupported
from converter.lower.values import Value, total

Operand: TypeAlias = "Value | np.ndarray | bool | float | list[Any] | tuple[Any, ...]"
Axes: TypeAlias = "int | Sequence[int] | None"

# Each dtype and those right above it; "int" and "float" are Python's numbers, which yield.
# fmt: off
ABOVE = {
    "bool": ("int",), "int": ("uint8", "int8"), "float": ("bfloat16", "float16"),
    "uint8": ("int16", "uint16"), "uint16": ("int32", "uint32"), "uint32": ("int64",),
    "int8": ("int16",), "int16": ("int32",), "int32": ("int64",), "int64": ("float",),
    "bfloat16": ("float32",), "float16": ("float32",), "float32": ("float64",), "float64": (),
}
# fmt: on
STRONG = {"int": "int32", "float": "float32"}


def result_type(*kinds: str) -> str:
    """Return the dtype that operands of these dtypes are promoted to.

    Raises:
        Unsupported: There is no common dtype, as for strings.
    """
    if unknown := [kind for kind in kinds if kind not in ABOVE]:
        raise Unsupported(f"arithmetic in {unknown[0]}")
    wanted = set(kinds)
    bounds = set.intersection(*(_bounds(kind) for kind in wanted))
    least = (bounds & wanted) or {kind for kind in bounds if bounds <= _bounds(kind)}
    (found,) = least
    return STRONG.get(found, found)


def _bounds(kind: str) -> set[str]:
    found = {kind}
    for above in ABOVE[kind]:
        found |= _bounds(above)
    return found


def kind(operand: Operand) -> str:
    """Return the dtype of an operand, or "int" or "float" for a Python number."""
    if isinstance(operand, Value):
        return operand.dtype
    if isinstance(operand, np.ndarray):
        return operand.dtype.name
    if isinstance(operand, bool):
        return "bool"
    if isinstance(operand, int):
        return "int"
    if isinstance(operand, float):
        return "float"
    return _array(operand).dtype.name


def _array(operand: object) -> np.ndarray:
    found = np.asarray(operand)
    if found.dtype == np.float64:
        return found.astype(np.float32)
    return found.astype(np.int32) if found.dtype == np.int64 else found


def tensor(op: Builder, operand: Any, dtype: str | None = None) -> Value:
    """Return an operand as a value: numbers become what Keras's convert_to_tensor makes of them.

    Raises:
        Unsupported: It is neither a value nor numbers.
    """
    if isinstance(operand, list | tuple) and any(isinstance(v, Value) for v in flat(operand)):
        parts = [op.unsqueeze(v, [0]) for v in promote(op, *operand)]
        value = op.concat(parts, 0)
        return op.cast(value, dtype) if dtype else value
    if isinstance(operand, Value):
        return op.cast(operand, dtype) if dtype else operand
    if operand is None or isinstance(operand, str | dict | slice):
        raise Unsupported(f"{operand!r} in place of a tensor")
    array = operand if isinstance(operand, np.ndarray) else _array(operand)
    return op.constant(array, dtype or array.dtype.name)


def flat(structure: Any) -> list[Any]:
    """Return what nested lists hold."""
    if isinstance(structure, list | tuple):
        return [part for item in structure for part in flat(item)]
    return [structure]


def promote(op: Builder, *operands: Any, also: Sequence[str] = ()) -> list[Value]:
    """Return operands as values of the dtype they have together.

    Args:
        op: Builder.
        operands: Operands, at least one.
        also: Kinds that are promoted with them: "float" where the result is one.
    """
    dtype = result_type(*(kind(v) for v in operands), *also)
    return [tensor(op, v, dtype) for v in operands]


def as_float(op: Builder, x: Any) -> Value:
    """Return an operand as floating point, by default float32."""
    value = tensor(op, x)
    return value if value.is_float else op.cast(value, "float32")


def all_axes(x: Value, axis: Axes) -> list[int]:
    """Return the axes that an argument names, in order; None names all."""
    if axis is None:
        return list(range(x.rank))
    return sorted(x.axis(a) for a in ([axis] if isinstance(axis, int) else axis))


def flatten(op: Builder, x: Value) -> Value:
    """Return a value in one axis."""
    return x if x.rank == 1 else op.reshape(x, (total(x.shape),))


def reshape_to(op: Builder, x: Value, sizes: Sequence[int | None]) -> Value:
    """Return a value in another shape, in which -1 and None mean unknown sizes."""
    target: list[Dim] = [n if n is not None and n >= 0 else None for n in sizes]
    unknown = [i for i, n in enumerate(target) if n is None]
    if len(unknown) == 1:
        target[unknown[0]] = rest(x.shape, target)
    else:
        for i in unknown:
            target[i] = x.shape[i] if i < x.rank else None
    return op.reshape(x, target)


def rest(shape: Shape, target: Sequence[Dim]) -> Dim:
    """Return the size that one unknown size of a target has, if that can be said."""
    known_target = total([n for n in target if n is not None]) or 0
    whole = total(shape)
    if whole is not None:
        return whole // known_target if known_target else None
    names = [n for n in shape if not isinstance(n, int)]
    known_source = total([n for n in shape if isinstance(n, int)])
    return names[0] if len(names) == 1 and known_source == known_target else None


def known_size(x: Value, axis: int, why: str) -> int:
    """Return the size of an axis.

    Raises:
        Unsupported: It is not known.
    """
    size = x.shape[x.axis(axis)]
    if not isinstance(size, int):
        raise Unsupported(f"{why} over an axis of unknown size")
    return size
