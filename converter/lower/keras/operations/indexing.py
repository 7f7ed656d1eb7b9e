"""Operations by index: taking, putting, diagonals, one-hot, searching.

Spec: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/ops/numpy.py
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from converter.lower.builder import END, Builder
from converter.lower.graph import Dim
from converter.lower.keras.operations.operands import (
    flatten,
    promote,
    tensor,
)
from converter.lower.keras.operations.shaping import move_axes
from converter.lower.keras.table import OPERATIONS, Unsupported, operation
from converter.lower.ops import index, sort
from converter.lower.ops.diagonal import make_diagonal, take_diagonal
from converter.lower.ops.scatter import add_by_index, scatter_nd, update_slice
from converter.lower.values import Value, total

# -- taking ----------------------------------------------------------------------------------------


@operation(OPERATIONS, "GetItem")
def get_item(op: Builder, x: Any, key: Any) -> Value:
    """`x[key]`, for integers, slices, an ellipsis, new axes and one tensor of indices."""
    parts = list(key) if isinstance(key, list | tuple) else [key]
    return item(op, tensor(op, x), parts)


def item(op: Builder, x: Value, parts: Sequence[Any]) -> Value:
    """Return a part of a value, as ``x[parts]`` of Python has it.

    Raises:
        Unsupported: It is indexed by booleans, or by several tensors.
    """
    parts = _expand_ellipsis(x, parts)
    axes: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    steps: list[int] = []
    numbers: list[int] = []  # axes that a number takes away
    tensors: list[tuple[int, Value]] = []
    new: list[int] = []  # positions of new axes in the result
    computed: list[tuple[int, slice]] = []  # slices whose bounds are tensors
    axis = place = 0
    for part in parts:
        if part is None:
            new.append(place)
            place += 1
            continue
        if isinstance(part, slice) and _is_computed(part):
            computed.append((axis, part))
            place += 1
        elif isinstance(part, slice):
            bounds = _bounds(part)
            if bounds is not None:
                axes.append(axis)
                for found, number in zip((starts, ends, steps), bounds, strict=True):
                    found.append(number)
            place += 1
        elif isinstance(part, int) and not isinstance(part, bool):
            axes.append(axis)
            starts.append(part)
            ends.append(part + 1 if part != -1 else END)
            steps.append(1)
            numbers.append(axis)
        else:
            index = tensor(op, part)
            if index.dtype == "bool":
                raise Unsupported("an index of booleans")
            tensors.append((axis, index))
            place += index.rank
        axis += 1
    if len(tensors) > 1:
        raise Unsupported("an index of several tensors")
    result = op.slice(x, axes, starts, ends, steps) if axes else x
    for at, part in computed:
        result = _cut_at(op, result, at, part)
    result = op.squeeze(result, numbers) if numbers else result
    for at, index in tensors:
        where = at - sum(n < at for n in numbers)
        result = op.gather(result, _whole(op, index), where)
    return op.unsqueeze(result, new) if new else result


def _expand_ellipsis(x: Value, parts: Sequence[Any]) -> list[Any]:
    """Return an index with its ellipsis replaced by slices."""
    found = list(parts)
    given = sum(part is not None and part is not ... for part in found)
    where = next((i for i, part in enumerate(found) if part is ...), None)
    if where is None:
        found.append(...)
        where = len(found) - 1
    found[where : where + 1] = [slice(None)] * (x.rank - given)
    return found


def _bounds(part: slice) -> tuple[int, int, int] | None:
    """Return start, end and step of a slice; None where it takes everything."""
    step = 1 if part.step is None else int(part.step)
    start = (0 if step > 0 else -1) if part.start is None else int(part.start)
    end = (END if step > 0 else -END) if part.stop is None else int(part.stop)
    return None if (start, end, step) == (0, END, 1) else (start, end, step)


def _is_computed(part: slice) -> bool:
    return any(isinstance(n, Value) for n in (part.start, part.stop))


def _cut_at(op: Builder, x: Value, axis: int, part: slice) -> Value:
    """Return a slice of an axis whose bounds are tensors."""
    if part.step not in (None, 1):
        raise Unsupported("steps of a slice whose bounds are computed")
    bounds = [
        op.reshape(tensor(op, default if n is None else n, "int64"), (1,))
        for n, default in ((part.start, 0), (part.stop, END))
    ]
    shape = (*x.shape[:axis], None, *x.shape[axis + 1 :])
    place = op.constant([axis], "int64")
    return op.emit("Slice", x, *bounds, place, dtype=x.dtype, shape=shape)


def _whole(op: Builder, numbers: Value) -> Value:
    return numbers if numbers.dtype in ("int32", "int64") else op.cast(numbers, "int64")


@operation(OPERATIONS, "Take")
def take(op: Builder, x: Any, indices: Any, *, axis: int | None = None) -> Value:
    """Slices along an axis by index; negative indices count from the end."""
    value = tensor(op, x)
    value, axis = (flatten(op, value), 0) if axis is None else (value, axis)
    return op.gather(value, _whole(op, tensor(op, indices)), axis)


@operation(OPERATIONS, "TakeAlongAxis")
def take_along_axis(op: Builder, x: Any, indices: Any, *, axis: int | None = None) -> Value:
    """The element at each index along an axis, at the same position of other axes."""
    value, numbers = tensor(op, x), op.cast(tensor(op, indices), "int64")
    value, axis = (flatten(op, value), 0) if axis is None else (value, value.axis(axis))
    return index.take_along_axis(op, value, numbers, axis)


@operation(OPERATIONS, "Slice")
def slice_(op: Builder, inputs: Any, start_indices: Any, *, shape: Sequence[int]) -> Value:
    """A slice by start indices and sizes; -1 takes the rest."""
    value, start = tensor(op, inputs), tensor(op, start_indices, "int64")
    sizes = np.asarray(shape)
    count = op.constant(np.where(sizes < 0, END, sizes), "int64")
    place = op.constant(list(range(value.rank)), "int64")
    out: list[Dim] = [int(n) if n >= 0 else None for n in sizes]
    known = op.array(start)
    if known is not None:
        out = [
            n - int(s) if m is None and isinstance(n, int) else n if m is None and not s else m
            for n, m, s in zip(value.shape, out, known, strict=True)
        ]
    end = op.add(start, count)
    return op.emit("Slice", value, start, end, place, dtype=value.dtype, shape=tuple(out))


# -- putting ---------------------------------------------------------------------------------------


@operation(OPERATIONS, "SliceUpdate")
def slice_update(op: Builder, inputs: Any, start_indices: Any, updates: Any) -> Value:
    """The inputs with a slice, from start indices on, replaced by updates.

    As TensorFlow's dynamic_update_slice, moves a start that leaves too little room.
    """
    value, new = tensor(op, inputs), tensor(op, updates)
    return update_slice(op, value, new, tensor(op, start_indices, "int64"))


@operation(OPERATIONS, "Scatter")
def scatter(op: Builder, indices: Any, values: Any, *, shape: Sequence[int]) -> Value:
    """Zeros of a shape, with values added at indices."""
    new = tensor(op, values)
    start = op.expand(op.constant(0, new.dtype), tuple(shape))
    return put(op, start, indices, new, "add")


@operation(OPERATIONS, "ScatterUpdate")
def scatter_update(
    op: Builder, inputs: Any, indices: Any, updates: Any, *, reduction: str | None = None
) -> Value:
    """The inputs with updates at indices: replaced, added, multiplied, maximum or minimum."""
    value = tensor(op, inputs)
    return put(op, value, indices, tensor(op, updates, value.dtype), reduction or "none")


def put(op: Builder, x: Value, indices: Any, updates: Value, reduction: str) -> Value:
    """Return a value with updates at indices, reduced with what was there."""
    return scatter_nd(op, x, tensor(op, indices), updates, reduction)


# -- diagonals -------------------------------------------------------------------------------------


def triangle(op: Builder, x: Value, k: int, *, upper: bool) -> Value:
    """Return matrices with zeros on one side of a diagonal."""
    value = x if x.dtype in ("float32", "float64", "int64", "int32", "bool") else None
    wide = op.cast(x, "float32" if x.is_float else "int32") if value is None else value
    side = op.constant(k, "int64")
    result = op.emit("Trilu", wide, side, dtype=wide.dtype, shape=wide.shape, upper=int(upper))
    return op.cast(result, x.dtype)


@operation(OPERATIONS, "Tril")
def tril(op: Builder, x: Any, *, k: int = 0) -> Value:
    """The lower triangle: zeros above a diagonal."""
    return triangle(op, tensor(op, x), k, upper=False)


@operation(OPERATIONS, "Triu")
def triu(op: Builder, x: Any, *, k: int = 0) -> Value:
    """The upper triangle: zeros below a diagonal."""
    return triangle(op, tensor(op, x), k, upper=True)


@operation(OPERATIONS, "Diagonal")
def diagonal(op: Builder, x: Any, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """A diagonal of two axes, as the last axis."""
    value = tensor(op, x)
    return take_diagonal(op, move_axes(op, value, [axis1, axis2], [-2, -1]), offset)


@operation(OPERATIONS, "Trace")
def trace(op: Builder, x: Any, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """The sum of a diagonal."""
    found = diagonal(op, x, offset=offset, axis1=axis1, axis2=axis2)
    wide = op.cast(found, "int32") if found.dtype in ("bool", "int8", "int16") else found
    return op.reduce("ReduceSum", wide, [-1])


@operation(OPERATIONS, "Diag")
def diag(op: Builder, x: Any, *, k: int = 0) -> Value:
    """A matrix with a vector on a diagonal, or a diagonal of a matrix."""
    value = tensor(op, x)
    return diagonal(op, value, offset=k) if value.rank == 2 else make_diagonal(op, value, k)


@operation(OPERATIONS, "Diagflat")
def diagflat(op: Builder, x: Any, *, k: int = 0) -> Value:
    """A matrix with all elements of x on a diagonal."""
    return make_diagonal(op, flatten(op, tensor(op, x)), k)


# -- numbers ---------------------------------------------------------------------------------------


def hot(op: Builder, x: Any, classes: int, axis: int, dtype: str) -> Value:
    """Return 1 where a new axis has the index of x, else 0."""
    value = op.cast(tensor(op, x), "int64")
    line = op.constant(np.arange(classes), "int64")
    return op.cast(index.one_hot(op, value, line, axis), dtype)


@operation(OPERATIONS, "OneHot")
def one_hot(
    op: Builder, x: Any, *,
    num_classes: int, axis: int = -1, dtype: str | None = None, sparse: bool = False,
) -> Value:  # fmt: skip
    """One-hot vectors of class indices."""
    if sparse:
        raise Unsupported("sparse tensors")
    return hot(op, x, num_classes, axis, dtype or "float32")


@operation(OPERATIONS, "MultiHot")
def multi_hot(
    op: Builder, inputs: Any, *,
    num_classes: int | None = None, axis: int = -1, dtype: str | None = None,
    sparse: bool = False, num_tokens: int | None = None,
) -> Value:  # fmt: skip
    """Multi-hot vectors of the classes in each row."""
    if sparse:
        raise Unsupported("sparse tensors")
    classes = num_classes if num_classes is not None else num_tokens
    if classes is None:
        raise Unsupported("num_classes")
    value = tensor(op, inputs)
    ones = hot(op, value, classes, axis, "int32")
    return op.cast(op.reduce("ReduceMax", ones, [1 if value.rank > 1 else 0]), dtype or "float32")


@operation(OPERATIONS, "SearchSorted")
def search_sorted(op: Builder, sorted_sequence: Any, values: Any, *, side: str = "left") -> Value:
    """The index at which each value would be inserted into a sorted sequence."""
    rising, value = promote(op, sorted_sequence, values)
    return sort.count_before(op, rising, value, or_equal=side == "right")


@operation(OPERATIONS, "Digitize")
def digitize(op: Builder, x: Any, bins: Any) -> Value:
    """The index of the bin of each element."""
    value, rising = promote(op, x, tensor(op, bins, "float32"))
    return sort.count_before(op, rising, value, or_equal=True)


@operation(OPERATIONS, "IsIn")
def is_in(
    op: Builder, x1: Any, x2: Any, *, assume_unique: bool = False, invert: bool = False
) -> Value:
    """Whether each element of x1 is one of x2."""
    del assume_unique  # a hint
    a, b = promote(op, x1, x2)
    found = sort.is_in(op, a, flatten(op, b))
    return op.unary("Not", found) if invert else found


@operation(OPERATIONS, "UnravelIndex")
def unravel_index(op: Builder, indices: Any, *, shape: Sequence[int]) -> list[Value]:
    """The multi-dimensional indices of flat indices."""
    rest = tensor(op, indices)
    rest = op.where(op.elementwise("Less", rest, 0), op.add(rest, total(shape) or 0), rest)
    found = []
    for n in reversed(shape):
        found.append(op.elementwise("Mod", rest, op.constant(n, rest.dtype)))
        rest = op.div(rest, n)
    return list(reversed(found))


@operation(OPERATIONS, "Bincount")
def bincount(
    op: Builder, x: Any, *, weights: Any = None, minlength: int = 0, sparse: bool = False
) -> Value:
    """The count of each integer along the last axis, or the sum of its weights."""
    if sparse:
        raise Unsupported("sparse tensors")
    value = op.cast(tensor(op, x), "int64")
    most = op.reduce("ReduceMax", value, list(range(value.rank)))
    count = op.elementwise("Max", op.add(most, 1), op.constant(minlength, "int64"))
    weight = None if weights is None else tensor(op, weights)
    dtype = "int32" if weight is None else weight.dtype
    return add_by_index(op, value, op.unsqueeze(count, [0]), weight, dtype)


@operation(OPERATIONS, "Unique")
def unique(
    op: Builder, x: Any, *,
    sorted: bool = True, return_index: bool = False, return_inverse: bool = False,
    return_counts: bool = False, axis: int | None = None, size: int | None = None,
    fill_value: Any = None,
) -> Any:  # fmt: skip
    """The distinct elements or slices, their indices, and their counts."""
    del fill_value
    if size is not None:
        raise Unsupported("size")
    value = tensor(op, x)
    made = sort.find_unique(op, value, axis, in_order=sorted)
    inverse = op.cast(made.inverse, "int32")
    inverse = op.reshape(inverse, value.shape) if axis is None else inverse
    found = [made.values]
    found += [op.cast(made.first, "int32")] if return_index else []
    found += [inverse] if return_inverse else []
    found += [op.cast(made.counts, "int32")] if return_counts else []
    return found if len(found) > 1 else found[0]
