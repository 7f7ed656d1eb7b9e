"""Operations on axes: shapes, orders, joining and cutting, padding, new tensors.

Spec: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/ops/numpy.py
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from converter.lower.builder import END, Builder
from converter.lower.graph import Dim
from converter.lower.keras.operations.operands import (
    Axes,
    all_axes,
    flatten,
    known_size,
    promote,
    reshape_to,
    tensor,
)
from converter.lower.keras.table import OPERATIONS, Unsupported, operation
from converter.lower.ops.pad import pad_ends, reverse_axes
from converter.lower.ops.shape import drop_ones, roll_axis
from converter.lower.values import Value, broadcast

# -- shapes ----------------------------------------------------------------------------------------


@operation(OPERATIONS, "Reshape")
def reshape(op: Builder, x: Any, *, newshape: int | Sequence[int | None]) -> Value:
    """The tensor in another shape; one size may be -1."""
    sizes = [newshape] if isinstance(newshape, int) else newshape
    return reshape_to(op, tensor(op, x), sizes)


@operation(OPERATIONS, "Ravel")
def ravel(op: Builder, x: Any) -> Value:
    """The flattened tensor."""
    return flatten(op, tensor(op, x))


@operation(OPERATIONS, "ExpandDims")
def expand_dims(op: Builder, x: Any, *, axis: int | Sequence[int]) -> Value:
    """The tensor with new axes of size 1."""
    return op.unsqueeze(tensor(op, x), [axis] if isinstance(axis, int) else list(axis))


@operation(OPERATIONS, "Squeeze")
def squeeze(op: Builder, x: Any, *, axis: Axes = None) -> Value:
    """The tensor without axes of size 1: those given, or all."""
    value = tensor(op, x)
    if axis is None:
        return drop_ones(op, value)
    axes = all_axes(value, axis)
    return op.squeeze(value, axes) if axes else value


@operation(OPERATIONS, "BroadcastTo")
def broadcast_to(op: Builder, x: Any, *, shape: Sequence[int | None]) -> Value:
    """The tensor broadcast to a shape."""
    value = tensor(op, x)
    sizes: list[Dim] = [n if n is not None and n >= 0 else None for n in shape]
    wide = (1,) * (len(sizes) - value.rank) + value.shape
    sizes = [m if n is None else n for n, m in zip(sizes, wide, strict=True)]
    like = op.reshape(value, wide) if len(wide) > value.rank else value
    return op.expand(value, tuple(sizes), like=like)


# -- order -----------------------------------------------------------------------------------------


@operation(OPERATIONS, "Transpose")
def transpose(op: Builder, x: Any, *, axes: Sequence[int] | None = None) -> Value:
    """The tensor with axes permuted, reversed by default."""
    value = tensor(op, x)
    order = [value.axis(a) for a in axes] if axes else list(reversed(range(value.rank)))
    return op.transpose(value, order)


@operation(OPERATIONS, "Swapaxes")
def swapaxes(op: Builder, x: Any, *, axis1: int, axis2: int) -> Value:
    """The tensor with two axes exchanged."""
    value = tensor(op, x)
    order = list(range(value.rank))
    a, b = value.axis(axis1), value.axis(axis2)
    order[a], order[b] = b, a
    return op.transpose(value, order)


def move_axes(op: Builder, x: Value, source: Axes, destination: Axes) -> Value:
    """Return a value with axes moved to other positions."""
    sources = [x.axis(a) for a in ([source] if isinstance(source, int) else source or [])]
    places = [
        x.axis(a) for a in ([destination] if isinstance(destination, int) else destination or [])
    ]
    order = [i for i in range(x.rank) if i not in sources]
    for place, axis in sorted(zip(places, sources, strict=True)):
        order.insert(place, axis)
    return op.transpose(x, order)


@operation(OPERATIONS, "Moveaxis")
def moveaxis(op: Builder, x: Any, *, source: Axes, destination: Axes) -> Value:
    """The tensor with axes moved to other positions."""
    return move_axes(op, tensor(op, x), source, destination)


@operation(OPERATIONS, "Flip")
def flip(op: Builder, x: Any, *, axis: Axes = None) -> Value:
    """The tensor with axes flipped, all by default."""
    value = tensor(op, x)
    return reverse_axes(op, value, all_axes(value, axis))


@operation(OPERATIONS, "Fliplr")
def fliplr(op: Builder, x: Any) -> Value:
    """The tensor with its second axis flipped."""
    return reverse_axes(op, tensor(op, x), [1])


@operation(OPERATIONS, "Flipud")
def flipud(op: Builder, x: Any) -> Value:
    """The tensor with its first axis flipped."""
    return reverse_axes(op, tensor(op, x), [0])


@operation(OPERATIONS, "Rot90")
def rot90(op: Builder, array: Any, *, k: int = 1, axes: Sequence[int] = (0, 1)) -> Value:
    """A rotation by multiples of 90 degrees in the plane of two axes."""
    value = tensor(op, array)
    first, second = (value.axis(a) for a in axes)
    for _ in range(k % 4):
        value = reverse_axes(op, value, [second])
        order = list(range(value.rank))
        order[first], order[second] = second, first
        value = op.transpose(value, order)
    return value


@operation(OPERATIONS, "Roll")
def roll(op: Builder, x: Any, *, shift: int | Sequence[int], axis: Axes = None) -> Value:
    """Elements rolled along axes."""
    value = tensor(op, x)
    if axis is None:
        line = flatten(op, value)
        amount = shift if isinstance(shift, int) else sum(shift)
        return op.reshape(roll_axis(op, line, 0, amount), value.shape)
    axes = [axis] if isinstance(axis, int) else list(axis)
    amounts = [shift] * len(axes) if isinstance(shift, int) else list(shift)
    for place, amount in zip(axes, amounts, strict=True):
        value = roll_axis(op, value, place, amount)
    return value


# -- joining and cutting ---------------------------------------------------------------------------


@operation(OPERATIONS, "Concatenate")
def concatenate(op: Builder, xs: Sequence[Any], *, axis: int = 0) -> Value:
    """Tensors concatenated along an axis."""
    return op.concat(promote(op, *xs), axis)


@operation(OPERATIONS, "Append")
def append(op: Builder, x1: Any, x2: Any, *, axis: int | None = None) -> Value:
    """x2 appended to x1 along an axis, or both flattened."""
    values = promote(op, x1, x2)
    if axis is None:
        return op.concat([flatten(op, v) for v in values], 0)
    return op.concat(values, axis)


@operation(OPERATIONS, "Stack")
def stack(op: Builder, x: Sequence[Any], *, axis: int = 0) -> Value:
    """Tensors stacked along a new axis."""
    values = promote(op, *x)
    place = axis + values[0].rank + 1 if axis < 0 else axis
    return op.concat([op.unsqueeze(v, [place]) for v in values], place)


@operation(OPERATIONS, "Hstack")
def hstack(op: Builder, xs: Sequence[Any]) -> Value:
    """Tensors stacked horizontally, along the second axis, or the only one."""
    values = promote(op, *xs)
    return op.concat(values, min(1, values[0].rank - 1))


@operation(OPERATIONS, "Vstack")
def vstack(op: Builder, xs: Sequence[Any]) -> Value:
    """Tensors stacked vertically, along the first axis."""
    return op.concat(promote(op, *xs), 0)


@operation(OPERATIONS, "Dstack")
def dstack(op: Builder, xs: Sequence[Any]) -> Value:
    """Tensors stacked along the third axis, which is added if missing."""
    new = {0: [0, 1, 2], 1: [0, 2], 2: [2]}
    values = [op.unsqueeze(v, new[v.rank]) if v.rank < 3 else v for v in promote(op, *xs)]
    return op.concat(values, 2)


def cut(op: Builder, x: Value, sections: Any, axis: int) -> list[Value]:
    """Return a value split into equal parts, or at indices."""
    axis = x.axis(axis)
    if isinstance(sections, int):
        if isinstance(x.shape[axis], int):
            size = known_size(x, axis, "cutting")
            return op.split(x, axis, [size // sections] * sections)
        shape = (*x.shape[:axis], None, *x.shape[axis + 1 :])
        return op.node(
            "Split", [x], [(x.dtype, shape)] * sections, stored=x.stored,
            attributes={"axis": x.stored.index(axis), "num_outputs": sections},
        )  # fmt: skip
    places = [0, *(int(n) for n in np.asarray(sections).reshape(-1)), END]
    if isinstance(x.shape[axis], int):
        places[-1] = known_size(x, axis, "cutting")
        return op.split(x, axis, [b - a for a, b in pairwise(places)])
    return [op.slice(x, [axis], [a], [b]) for a, b in pairwise(places)]


@operation(OPERATIONS, "Split")
def split(op: Builder, x: Any, *, indices_or_sections: Any, axis: int = 0) -> list[Value]:
    """The tensor split along an axis, into equal parts or at indices."""
    return cut(op, tensor(op, x), indices_or_sections, axis)


@operation(OPERATIONS, "Hsplit")
def hsplit(op: Builder, x: Any, *, indices_or_sections: Any) -> list[Value]:
    """The tensor split along its second axis, or its only one."""
    value = tensor(op, x)
    return cut(op, value, indices_or_sections, min(1, value.rank - 1))


@operation(OPERATIONS, "Vsplit")
def vsplit(op: Builder, x: Any, *, indices_or_sections: Any) -> list[Value]:
    """The tensor split along its first axis."""
    return cut(op, tensor(op, x), indices_or_sections, 0)


@operation(OPERATIONS, "Dsplit")
def dsplit(op: Builder, x: Any, *, indices_or_sections: Any) -> list[Value]:
    """The tensor split along its third axis."""
    return cut(op, tensor(op, x), indices_or_sections, 2)


@operation(OPERATIONS, "ArraySplit")
def array_split(op: Builder, x: Any, *, indices_or_sections: int, axis: int = 0) -> list[Value]:
    """The tensor split along an axis into parts whose sizes differ by at most 1."""
    value = tensor(op, x)
    small, more = divmod(known_size(value, axis, "cutting"), indices_or_sections)
    sizes = [small + 1] * more + [small] * (indices_or_sections - more)
    return op.split(value, axis, sizes)


@operation(OPERATIONS, "Unstack")
def unstack(op: Builder, x: Any, *, num: int | None = None, axis: int = 0) -> list[Value]:
    """The slices of x along an axis, without it."""
    value = tensor(op, x)
    count = num if num is not None else known_size(value, axis, "unstacking")
    return [op.squeeze(part, [axis]) for part in op.split(value, axis, [1] * count)]


# -- repeating and padding -------------------------------------------------------------------------


@operation(OPERATIONS, "Tile")
def tile(op: Builder, x: Any, *, repeats: int | Sequence[int]) -> Value:
    """The tensor tiled along its axes."""
    value = tensor(op, x)
    counts = [repeats] if isinstance(repeats, int) else list(repeats)
    counts = [1] * (value.rank - len(counts)) + counts
    if len(counts) > value.rank:
        value = op.unsqueeze(value, list(range(len(counts) - value.rank)))
    shape = tuple(
        n * c if isinstance(n, int) else n if c == 1 else None
        for n, c in zip(value.shape, counts, strict=True)
    )
    return op.emit("Tile", value, op.constant(counts, "int64"), dtype=value.dtype, shape=shape)


@operation(OPERATIONS, "Repeat")
def repeat(op: Builder, x: Any, *, repeats: int | Sequence[int], axis: int | None = None) -> Value:
    """The tensor with each element repeated along an axis."""
    value = tensor(op, x)
    value, axis = (flatten(op, value), 0) if axis is None else (value, value.axis(axis))
    size = value.shape[axis]
    counts = [repeats] if isinstance(repeats, int) else [int(n) for n in repeats]
    if isinstance(size, int):
        return op.gather(value, op.constant(np.repeat(np.arange(size), counts), "int64"), axis)
    if len(counts) != 1:
        raise Unsupported("repeats of an axis of unknown size")
    wide = op.unsqueeze(value, [axis + 1])
    many = [counts[0] if i == axis + 1 else 1 for i in range(wide.rank)]
    shape: tuple[Dim, ...] = (*value.shape[:axis], None, *value.shape[axis + 1 :])
    return op.reshape(tile(op, wide, repeats=many), shape)


@operation(OPERATIONS, "Pad")
def pad(
    op: Builder, x: Any, constant_values: Any = None, *, pad_width: Any, mode: str = "constant"
) -> Value:
    """The tensor padded by a number or by reflection."""
    value = tensor(op, x)
    return pad_ends(op, value, pairs(pad_width, value.rank), mode.lower(), constant_values)


def pairs(pad_width: Any, rank: int) -> list[tuple[int, int]]:
    """Return an argument that says how much to pad, for each axis."""
    if isinstance(pad_width, int):
        return [(pad_width, pad_width)] * rank
    if isinstance(pad_width[0], int):
        found = [(int(pad_width[0]), int(pad_width[-1]))]
    else:
        found = [(int(low), int(high)) for low, high in pad_width]
    return found * rank if len(found) == 1 else found


# -- new tensors -----------------------------------------------------------------------------------


def fill_like(op: Builder, like: Value, number: Any, dtype: str) -> Value:
    """Return a tensor of one number in the shape of another."""
    return op.expand(tensor(op, number, dtype), like.shape, like=like)


@operation(OPERATIONS, "ZerosLike", "EmptyLike")
def zeros_like(op: Builder, x: Any, *, dtype: str | None = None) -> Value:
    """Zeros of the shape of x."""
    value = tensor(op, x)
    return fill_like(op, value, 0, dtype or value.dtype)


@operation(OPERATIONS, "OnesLike")
def ones_like(op: Builder, x: Any, *, dtype: str | None = None) -> Value:
    """Ones of the shape of x."""
    value = tensor(op, x)
    return fill_like(op, value, 1, dtype or value.dtype)


@operation(OPERATIONS, "FullLike")
def full_like(op: Builder, x: Any, fill_value: Any, *, dtype: str | None = None) -> Value:
    """A number, filled into the shape of x."""
    value = tensor(op, x)
    return fill_like(op, value, fill_value, dtype or value.dtype)


@operation(OPERATIONS, "Full")
def full(op: Builder, fill_value: Any, *, shape: Any, dtype: str | None = None) -> Value:
    """A tensor filled with a number."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    return op.expand(tensor(op, fill_value, dtype or "float32"), sizes)


@operation(OPERATIONS, "Linspace")
def linspace(
    op: Builder, start: Any, stop: Any, *,
    num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: str | None = None,
    axis: int = 0,
) -> Any:  # fmt: skip
    """A number of equally spaced values from start to stop."""
    first, last = promote(op, start, stop, also=("float",))
    first, last = (op.cast(v, dtype) if dtype and "float" in dtype else v for v in (first, last))
    parts = max(num - 1, 1) if endpoint else max(num, 1)
    step = op.div(op.sub(last, first), float(parts))
    shape = broadcast(first.shape, last.shape)
    place = axis + len(shape) + 1 if axis < 0 else axis
    count = [num if i == place else 1 for i in range(len(shape) + 1)]
    share = op.constant(np.arange(num).reshape(count), first.dtype)
    rise = op.mul(op.unsqueeze(step, [place]), share)
    result = op.add(rise, op.unsqueeze(first, [place]))
    if dtype and "int" in dtype:
        result = op.unary("Floor", result)
    result = op.cast(result, dtype or result.dtype)
    return [result, step] if retstep else result


@operation(OPERATIONS, "Logspace")
def logspace(
    op: Builder, start: Any, stop: Any, *,
    num: int = 50, endpoint: bool = True, base: Any = 10, dtype: str | None = None, axis: int = 0,
) -> Value:  # fmt: skip
    """Powers of a base with equally spaced exponents."""
    powers = linspace(op, start, stop, num=num, endpoint=endpoint, dtype=dtype, axis=axis)
    return op.elementwise("Pow", tensor(op, base, powers.dtype), powers)


@operation(OPERATIONS, "Geomspace")
def geomspace(
    op: Builder, start: Any, stop: Any, *,
    num: int = 50, endpoint: bool = True, dtype: str | None = None, axis: int = 0,
) -> Value:  # fmt: skip
    """A geometric sequence from start to stop."""
    first, last = promote(op, start, stop, also=("float",))
    low, high = (op.unary("Log", op.unary("Abs", v)) for v in (first, last))
    powers = linspace(op, low, high, num=num, endpoint=endpoint, axis=axis)
    place = axis + first.rank + 1 if axis < 0 else axis
    sign = op.unary("Sign", first)
    sign = op.unsqueeze(sign, [place]) if first.rank >= last.rank else sign
    return op.cast(op.mul(op.unary("Exp", powers), sign), dtype or first.dtype)


@operation(OPERATIONS, "Meshgrid")
def meshgrid(op: Builder, *x: Any, indexing: str = "xy") -> list[Value]:
    """Coordinate grids of vectors."""
    lines = [flatten(op, tensor(op, v)) for v in x]
    order = list(range(len(lines)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = [1, 0]
    shape = [lines[i].shape[0] for i in order]
    vector = op.concat([op.size(lines[i], 0) for i in order], 0)
    return [
        op.emit(
            "Expand", op.unsqueeze(line, [k for k in range(len(order)) if order[k] != i]), vector,
            dtype=line.dtype, shape=tuple(shape),
        )
        for i, line in enumerate(lines)
    ]  # fmt: skip


@operation(OPERATIONS, "Size")
def size(op: Builder, x: Any) -> Value:
    """The number of elements of x."""
    value = tensor(op, x)
    found = op.emit("Size", value, dtype="int64", shape=())
    return op.cast(found, "int32")


@operation(OPERATIONS, "Vander")
def vander(op: Builder, x: Any, *, N: int | None = None, increasing: bool = False) -> Value:  # noqa: N803
    """Powers of each element as columns, descending by default."""
    value = tensor(op, x)
    count = N if N is not None else known_size(value, 0, "powers")
    powers = np.arange(count) if increasing else np.arange(count)[::-1]
    wide = value if value.is_float else op.cast(value, "float32")
    result = op.elementwise("Pow", op.unsqueeze(wide, [-1]), op.constant(powers, wide.dtype))
    return op.cast(result, value.dtype)
