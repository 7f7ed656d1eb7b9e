"""Sums of products: matrices, tensors, convolution of vectors, and linear algebra.

Spec: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/ops/numpy.py
"""

from collections.abc import Sequence
from math import inf
from string import ascii_letters
from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.core import einsum_shape
from converter.lower.keras.operations.operands import (
    Axes,
    all_axes,
    as_float,
    flatten,
    known_size,
    promote,
    tensor,
)
from converter.lower.keras.operations.shaping import move_axes
from converter.lower.keras.table import OPERATIONS, Unsupported, operation
from converter.lower.ops import reduce
from converter.lower.ops.einsum import contract
from converter.lower.values import Value

# -- of two ----------------------------------------------------------------------------------------


def wide(op: Builder, a: Any, b: Any) -> tuple[Value, Value, str]:
    """Return two operands in a dtype that is multiplied, and the one of the result."""
    first, second = promote(op, a, b)
    dtype = first.dtype
    if first.is_float or dtype in ("int32", "int64"):
        return first, second, dtype
    result = "int32" if dtype == "int8" else dtype
    return op.cast(first, "int32"), op.cast(second, "int32"), result


def multiply(op: Builder, a: Value, b: Value) -> Value:
    """Return the matrix product, of vectors too."""
    left, right = a.rank == 1, b.rank == 1
    a = op.unsqueeze(a, [0]) if left else a
    b = op.unsqueeze(b, [1]) if right else b
    result = op.matmul(a, b)
    gone = [axis for axis, is_gone in ((-2, left), (-1, right)) if is_gone]
    return op.squeeze(result, gone) if gone else result


@operation(OPERATIONS, "Matmul")
def matmul(op: Builder, x1: Any, x2: Any) -> Value:
    """The matrix product."""
    a, b, dtype = wide(op, x1, x2)
    return op.cast(multiply(op, a, b), dtype)


def contract_axes(
    op: Builder, a: Value, b: Value, axes_a: Sequence[int], axes_b: Sequence[int]
) -> Value:
    """Return the sum of products over pairs of axes; what is left of a comes first."""
    axes_a, axes_b = [a.axis(i) for i in axes_a], [b.axis(i) for i in axes_b]
    if axes_a == [a.rank - 1] and axes_b == [0] and b.rank == 2 and a.rank > 1:
        return op.matmul(a, b)
    names = iter(ascii_letters)
    left = [next(names) for _ in range(a.rank)]
    right = ["" for _ in range(b.rank)]
    for i, j in zip(axes_a, axes_b, strict=True):
        right[j] = left[i]
    right = [c or next(names) for c in right]
    out = [c for i, c in enumerate(left) if i not in axes_a]
    out += [c for j, c in enumerate(right) if j not in axes_b]
    equation = f"{''.join(left)},{''.join(right)}->{''.join(out)}"
    return contract(op, equation, a, b, shape=einsum_shape(equation, a, b))


@operation(OPERATIONS, "Dot")
def dot(op: Builder, x1: Any, x2: Any) -> Value:
    """The sum of products over the last axis of x1 and the one before the last of x2."""
    a, b, dtype = wide(op, x1, x2)
    if 0 in (a.rank, b.rank):
        return op.cast(op.mul(a, b), dtype)
    return op.cast(contract_axes(op, a, b, [-1], [-1 if b.rank == 1 else -2]), dtype)


@operation(OPERATIONS, "Inner")
def inner(op: Builder, x1: Any, x2: Any) -> Value:
    """The sum of products over the last axes."""
    a, b, dtype = wide(op, x1, x2)
    if 0 in (a.rank, b.rank):
        return op.cast(op.mul(a, b), dtype)
    return op.cast(contract_axes(op, a, b, [-1], [-1]), dtype)


@operation(OPERATIONS, "Vdot")
def vdot(op: Builder, x1: Any, x2: Any) -> Value:
    """The sum of the products of all elements."""
    a, b, dtype = wide(op, x1, x2)
    both = op.mul(flatten(op, a), flatten(op, b))
    return op.cast(op.reduce("ReduceSum", both, [0]), dtype)


@operation(OPERATIONS, "Outer")
def outer(op: Builder, x1: Any, x2: Any) -> Value:
    """The product of every element of x1 with every one of x2."""
    a, b, dtype = wide(op, x1, x2)
    column, row = op.unsqueeze(flatten(op, a), [1]), op.unsqueeze(flatten(op, b), [0])
    return op.cast(op.matmul(column, row), dtype)


@operation(OPERATIONS, "Tensordot")
def tensordot(op: Builder, x1: Any, x2: Any, *, axes: Any = 2) -> Value:
    """The sum of products over pairs of axes."""
    a, b, dtype = wide(op, x1, x2)
    if isinstance(axes, int):
        pairs = (list(range(a.rank - axes, a.rank)), list(range(axes)))
    else:
        first, second = axes
        pairs = ([first] if isinstance(first, int) else list(first),
                 [second] if isinstance(second, int) else list(second))  # fmt: skip
    return op.cast(contract_axes(op, a, b, *pairs), dtype)


@operation(OPERATIONS, "Einsum")
def einsum(op: Builder, *operands: Any, subscripts: str) -> Value:
    """An einsum."""
    values = promote(op, *operands)
    dtype = values[0].dtype
    if not values[0].is_float and dtype not in ("int32", "int64"):
        values = [op.cast(v, "int32") for v in values]
    equation = explicit(subscripts)
    result = contract(op, equation, *values, shape=einsum_shape(equation, *values))
    return op.cast(result, "int32" if dtype == "int8" else dtype)


def explicit(subscripts: str) -> str:
    """Return an equation that says its output: letters that appear once, in order."""
    text = subscripts.replace(" ", "")
    if "->" in text:
        return text
    letters = sorted({c for c in text if c.isalpha() and text.count(c) == 1})
    return f"{text}->{'...' if '...' in text else ''}{''.join(letters)}"


@operation(OPERATIONS, "Kron")
def kron(op: Builder, x1: Any, x2: Any) -> Value:
    """The Kronecker product."""
    a, b = promote(op, x1, x2)
    rank = max(a.rank, b.rank)
    a, b = (op.unsqueeze(v, list(range(rank - v.rank))) if v.rank < rank else v for v in (a, b))
    apart = op.mul(
        op.unsqueeze(a, list(range(1, 2 * rank, 2))), op.unsqueeze(b, list(range(0, 2 * rank, 2)))
    )
    shape = tuple(
        n * m if isinstance(n, int) and isinstance(m, int) else n if m == 1 else None
        for n, m in zip(a.shape, b.shape, strict=True)
    )
    return op.reshape(apart, shape)


@operation(OPERATIONS, "Cross")
def cross(
    op: Builder, x1: Any, x2: Any, *,
    axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None,
) -> Value:  # fmt: skip
    """The cross product of vectors of two or three elements."""
    axisa, axisb, axisc = (axisa, axisb, axisc) if axis is None else (axis, axis, axis)
    a, b = promote(op, x1, x2)
    a, b = move_axes(op, a, axisa, -1), move_axes(op, b, axisb, -1)
    flat = all(known_size(v, -1, "a cross product") == 2 for v in (a, b))
    left, right = (_three(op, v) for v in (a, b))
    places = [2] if flat else [0, 1, 2]
    parts = []
    for i in places:
        j, k = (i + 1) % 3, (i + 2) % 3
        parts.append(op.sub(op.mul(left[j], right[k]), op.mul(left[k], right[j])))
    result = op.concat(parts, -1)
    return op.squeeze(result, [-1]) if flat else move_axes(op, result, -1, axisc)


def _three(op: Builder, x: Value) -> list[Value]:
    count = known_size(x, -1, "a cross product")
    parts = op.split(x, -1, [1] * count)
    return parts if count == 3 else [*parts, op.sub(parts[0], parts[0])]


@operation(OPERATIONS, "Correlate")
def correlate(op: Builder, x1: Any, x2: Any, *, mode: str = "valid") -> Value:
    """The sums of products of one vector with another that slides along it."""
    a, b = (as_float(op, v) for v in promote(op, x1, x2))
    n, m = (known_size(v, 0, "a correlation") for v in (a, b))
    pad = 0 if mode == "valid" else max(m - 1, 0)
    size = n + 2 * pad - m + 1
    line = op.emit(
        "Conv", op.unsqueeze(a, [0, 1]), op.unsqueeze(b, [0, 1]), dtype=a.dtype,
        shape=(1, 1, size), kernel_shape=[m], pads=[pad, pad],
    )  # fmt: skip
    result = op.squeeze(line, [0, 1])
    if mode != "same":
        return result
    length = max(n, m)
    start = (size - length) // 2
    return op.slice(result, [0], [start], [start + length])


@operation(OPERATIONS, "Corrcoef")
def corrcoef(op: Builder, x: Any) -> Value:
    """The correlation coefficients of rows."""
    value = as_float(op, x)
    away = op.sub(value, op.reduce("ReduceMean", value, [-1], keepdims=True))
    size = known_size(value, -1, "a correlation")
    covariance = op.div(op.matmul(away, op.transpose(away, [1, 0])), float(size - 1))
    power = op.div(op.reduce("ReduceSum", op.mul(away, away), [-1]), float(size - 1))
    spread = op.unary("Sqrt", power)
    both = op.mul(op.unsqueeze(spread, [1]), op.unsqueeze(spread, [0]))
    return op.clip(op.div(covariance, both), -1.0, 1.0)


@operation(OPERATIONS, "CDist")
def cdist(op: Builder, x: Any, y: Any) -> Value:
    """Distances between all rows of two matrices."""
    away = op.sub(op.unsqueeze(tensor(op, x), [-2]), op.unsqueeze(tensor(op, y), [-3]))
    return op.unary("Sqrt", op.reduce("ReduceSum", op.mul(away, away), [-1]))


@operation(OPERATIONS, "ExtractSequences")
def extract_sequences(op: Builder, x: Any, *, sequence_length: int, sequence_stride: int) -> Value:
    """Windows of x along its last axis."""
    value = tensor(op, x)
    size = known_size(value, -1, "windows")
    starts = range(0, size - sequence_length + 1, sequence_stride)
    places = [[start + i for i in range(sequence_length)] for start in starts]
    return op.gather(value, op.constant(places, "int64"), -1)


# -- linear algebra --------------------------------------------------------------------------------


@operation(OPERATIONS, "Norm")
def norm(
    op: Builder, x: Any, *, ord: Any = None, axis: Axes = None, keepdims: bool = False
) -> Value:
    """A norm of vectors, by order, or of matrices."""
    value = as_float(op, x)
    axes = all_axes(value, axis)
    if ord in (None, "fro"):
        return reduce.norm(op, value, 2, axes, keepdims=keepdims)
    order = float(ord) if isinstance(ord, int | float) else ord
    if len(axes) == 1 and isinstance(order, float):
        return reduce.norm(op, value, order, axes, keepdims=keepdims)
    given = [axis] if isinstance(axis, int) else list(axis) if axis is not None else [-2, -1]
    if len(axes) == 2 and order in (1, -1, inf, -inf):
        rows, columns = (value.axis(a) for a in given)
        inner, outer_ = (rows, columns) if abs(order) == 1 else (columns, rows)
        sums = op.reduce("ReduceSum", op.unary("Abs", value), [inner], keepdims=True)
        result = op.reduce("ReduceMax" if order > 0 else "ReduceMin", sums, [outer_], keepdims=True)
        return result if keepdims else op.squeeze(result, axes)
    raise Unsupported(f"ord {ord!r}, for which ONNX has no operator")
