"""Arguments of TensorFlow's functions as tensors: what is a number or a list becomes a constant.

TensorFlow promotes nothing: a number or a list takes the dtype of the tensor it meets.
"""

from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.operations.operands import Axes, flat, known_size, tensor
from converter.lower.keras.tensorflow_rows import call_op
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


def same_dtype(op: Builder, *operands: Any) -> list[Value]:
    """Return operands as values of the dtype of the first tensor among them."""
    dtype = next((v.dtype for v in operands if isinstance(v, Value)), None)
    return [tensor(op, v, dtype) for v in operands]


def as_list(values: Any) -> list[Any]:
    """Return an argument that may be one tensor or a list of tensors as a list."""
    return list(values) if isinstance(values, list | tuple) else [values]


def integers(op: Builder, numbers: Any) -> Value:
    """Return sizes, axes or bounds as a tensor of integers; any of a list may be computed."""
    if isinstance(numbers, list | tuple) and any(isinstance(n, Value) for n in flat(numbers)):
        dtype = next(n.dtype for n in flat(numbers) if isinstance(n, Value))
        parts = [integers(op, n) for n in numbers]
        scalars = [op.reshape(n, ()) if n.shape == (1,) else n for n in parts]
        return call_op(op, "Pack", *(op.cast(n, dtype) for n in scalars), axis=0)
    return numbers if isinstance(numbers, Value) else tensor(op, numbers, "int32")


def vector(op: Builder, numbers: Any) -> Value:
    """Return sizes, axes or bounds as a vector of integers; a single one is one element."""
    if not isinstance(numbers, Value):
        return integers(op, as_list(numbers))
    one = op.constant([1], "int32")
    return call_op(op, "Reshape", numbers, one) if numbers.rank == 0 else numbers


def known_elements(op: Builder, numbers: Value) -> list[int | Value]:
    """Return the elements of a vector, as integers where they are known."""
    found = op.array(numbers)
    if found is not None:
        return [int(n) for n in found]
    count = known_size(numbers, 0, "splitting")
    return [op.squeeze(part, [0]) for part in op.split(numbers, 0, [1] * count)]


def axes(op: Builder, axis: Any, x: Value) -> Value:
    """Return the axes that an argument names as a vector; None names all."""
    return vector(op, list(range(x.rank)) if axis is None else axis)


def known_axes(op: Builder, axis: Any) -> Axes:
    """Return an argument that names axes as numbers.

    Raises:
        Unsupported: They are computed.
    """
    if isinstance(axis, Value):
        found = op.array(axis)
        if found is None:
            raise Unsupported("axes that are computed")
        return [int(n) for n in found.reshape(-1)]
    return axis if axis is None or isinstance(axis, int) else [int(n) for n in axis]


def known_axis(op: Builder, axis: Any) -> int:
    """Return an argument that names an axis as a number, 0 where it names none."""
    found = known_axes(op, axis)
    return found if isinstance(found, int) else next(iter(found or [0]))
