"""Functions of arrays: shapes, order, joining and cutting, indices."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.graph import Dim, Shape
from converter.lower.keras.operations import indexing as i
from converter.lower.keras.operations import shaping as s
from converter.lower.keras.operations.operands import flattened, known_size, rest, tensor
from converter.lower.keras.table import TF_FUNCTIONS, Unsupported, operation
from converter.lower.keras.tensorflow_ops.arithmetic import alike, axes_of, axis_of
from converter.lower.ops.pad import padded
from converter.lower.table import Variant
from converter.lower.values import Value, identity, total

# -- shapes ----------------------------------------------------------------------------------------


@operation(TF_FUNCTIONS, "shape")
def shape_of(op: Builder, input: Any, out_type: str = "int32", *, optimize: bool = True) -> Value:
    """The sizes of the axes of a tensor."""
    del optimize
    value = tensor(op, input)
    if not value.rank:
        return op.constant([], out_type)
    return op.cast(op.concat([op.size(value, axis) for axis in range(value.rank)], 0), out_type)


def sizes_in(op: Builder, value: Value) -> list[Dim] | None:
    """Return what is known of the numbers in a vector that was made of sizes, as `shape_of`'s.

    None where it was not made of them.
    """
    known = op.array(value)
    if known is not None:
        return [int(n) for n in known.reshape(-1)]
    node = next((n for n in reversed(op.graph.nodes) if value.name in n.outputs), None)
    if node is None:
        return None
    inputs = [_named(op, name) for name in node.inputs]
    if node.op_type in ("Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape"):
        return sizes_in(op, inputs[0])
    if node.op_type == "Shape":
        start, end = (int(str(node.attributes[k])) for k in ("start", "end"))
        return list(op.graph.specs[node.inputs[0]].shape[start:end])
    if node.op_type == "Concat":
        parts = [sizes_in(op, v) for v in inputs]
        return None if any(p is None for p in parts) else [n for p in parts if p for n in p]
    if node.op_type == "Slice":
        found = sizes_in(op, inputs[0])
        bounds = [op.array(v) for v in (inputs[1], inputs[2], inputs[4])]
        if found is None or any(b is None for b in bounds):
            return None
        return found[slice(*(int(b.reshape(-1)[0]) for b in bounds if b is not None))]
    return None


def _named(op: Builder, name: str) -> Value:
    spec = op.graph.specs[name]
    return Value(name, spec.dtype, spec.shape, identity(len(spec.shape)))


def wanted(op: Builder, shape: Any) -> tuple[Value | None, list[Dim]]:
    """Return a shape that is computed as a tensor, and what is known of it; -1 is not known."""
    if isinstance(shape, Value):
        found = sizes_in(op, shape)
        length = shape.shape[0] if shape.rank else 1
        if found is None and not isinstance(length, int):
            raise Unsupported("a shape of unknown length")
        known = found if found is not None else [None] * int(str(length))
        constant = all(isinstance(n, int) for n in known)
        return None if constant else op.cast(flattened(op, shape), "int64"), _unknown(known)
    sizes = [shape] if isinstance(shape, int) else list(shape)
    dims: list[Dim] = []
    for n in sizes:
        found = sizes_in(op, n) if isinstance(n, Value) else [n]
        dims.append(found[0] if found else None)
    if not any(isinstance(n, Value) for n in sizes):
        return None, _unknown(dims)
    parts = [op.reshape(tensor(op, n, "int64"), (1,)) for n in sizes]
    return op.concat(parts, 0), _unknown(dims)


def _unknown(dims: Sequence[Dim]) -> list[Dim]:
    return [None if isinstance(n, int) and n < 0 else n for n in dims]


@operation(TF_FUNCTIONS, "reshape")
def reshape(op: Builder, tensor_: Any, shape: Any) -> Value:
    """A tensor in another shape, which may be computed."""
    value = tensor(op, tensor_)
    computed, dims = wanted(op, shape)
    unknown = [k for k, n in enumerate(dims) if n is None]
    if len(unknown) == 1:
        dims[unknown[0]] = rest(value.shape, dims)
    if computed is None or sum(not isinstance(n, int) for n in dims) <= 1:
        return op.reshape(value, dims)
    return op.emit("Reshape", value, computed, dtype=value.dtype, shape=tuple(dims))


@operation(TF_FUNCTIONS, "keras.backend.batch_flatten")
def batch_flatten(op: Builder, x: Any) -> Value:
    """A tensor in two axes, of which the first is the batch."""
    value = tensor(op, x)
    return op.reshape(value, (value.shape[0], total(value.shape[1:])))


@operation(TF_FUNCTIONS, "broadcast_to")
def broadcast_to(op: Builder, input: Any, shape: Any) -> Value:
    """A tensor repeated to a shape, which may be computed."""
    value = tensor(op, input)
    computed, dims = wanted(op, shape)
    wide = (1,) * (len(dims) - value.rank) + value.shape
    known: Shape = tuple(m if n is None else n for n, m in zip(dims, wide, strict=True))
    if computed is None:
        return s.broadcast_to(op, value, shape=[n if isinstance(n, int) else None for n in dims])
    return op.emit("Expand", value, computed, dtype=value.dtype, shape=known)


@operation(TF_FUNCTIONS, "fill")
def fill(op: Builder, dims: Any, value: Any) -> Value:
    """A number in a shape, which may be computed."""
    computed, known = wanted(op, dims)
    number = tensor(op, value)
    if computed is None:
        return op.expand(number, tuple(known))
    return op.emit("Expand", number, computed, dtype=number.dtype, shape=tuple(known))


@operation(TF_FUNCTIONS, "zeros")
def zeros(op: Builder, shape: Any, dtype: str = "float32") -> Value:
    """0 in a shape, which may be computed."""
    return fill(op, shape, op.constant(0, dtype))


@operation(TF_FUNCTIONS, "ones")
def ones(op: Builder, shape: Any, dtype: str = "float32") -> Value:
    """1 in a shape, which may be computed."""
    return fill(op, shape, op.constant(1, dtype))


@operation(TF_FUNCTIONS, "zeros_like")
def zeros_like(
    op: Builder, input: Any, dtype: str | None = None, *, optimize: bool = True
) -> Value:
    """0 in the shape of a tensor."""
    del optimize
    return s.zeros_like(op, input, dtype=dtype)


@operation(TF_FUNCTIONS, "ones_like")
def ones_like(op: Builder, input: Any, dtype: str | None = None, *, optimize: bool = True) -> Value:
    """1 in the shape of a tensor."""
    del optimize
    return s.ones_like(op, input, dtype=dtype)


@operation(TF_FUNCTIONS, "rank")
def rank(op: Builder, input: Any) -> Value:
    """The number of axes."""
    return op.constant(tensor(op, input).rank, "int32")


@operation(TF_FUNCTIONS, "size")
def size(op: Builder, input: Any, out_type: str = "int32") -> Value:
    """The number of elements."""
    return op.cast(op.emit("Size", tensor(op, input), dtype="int64", shape=()), out_type)


@operation(TF_FUNCTIONS, "expand_dims")
def expand_dims(op: Builder, input: Any, axis: Any = None, *, dim: Any = None) -> Value:
    """A tensor with a new axis of one element."""
    return op.unsqueeze(tensor(op, input), [axis_of(op, dim if axis is None else axis)])


@operation(TF_FUNCTIONS, "squeeze")
def squeeze(op: Builder, input: Any, axis: Any = None, *, squeeze_dims: Any = None) -> Value:
    """A tensor without axes of one element: those named, or all."""
    axes = axes_of(op, squeeze_dims if axis is None else axis)
    return s.squeeze(op, input, axis=None if axes == [] else axes)


@operation(TF_FUNCTIONS, "transpose")
def transpose(op: Builder, a: Any, perm: Any = None, conjugate: bool = False) -> Value:
    """A tensor with its axes in another order, reversed by default."""
    del conjugate  # there are no complex numbers here
    order = axes_of(op, perm)
    return s.transpose(op, a, axes=None if order is None or isinstance(order, int) else order)


# -- joining and cutting ---------------------------------------------------------------------------


def _several(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple) else [values]


@operation(TF_FUNCTIONS, "concat")
def concat(op: Builder, values: Any, axis: Any) -> Value:
    """Tensors one after another along an axis."""
    return op.concat(alike(op, *_several(values)), axis_of(op, axis))


@operation(TF_FUNCTIONS, "stack")
def stack(op: Builder, values: Any, axis: int = 0) -> Value:
    """Tensors one after another along a new axis."""
    return s.stack(op, alike(op, *_several(values)), axis=axis)


@operation(TF_FUNCTIONS, "unstack")
def unstack(op: Builder, value: Any, num: int | None = None, axis: int = 0) -> list[Value]:
    """The slices of a tensor along an axis, without it."""
    return s.unstack(op, value, num=num, axis=axis)


@operation(TF_FUNCTIONS, "split")
def split(
    op: Builder, value: Any, num_or_size_splits: Any, axis: Any = 0, num: int | None = None
) -> list[Value]:
    """A tensor cut along an axis, in equal parts or in parts of given sizes."""
    del num  # as many as there are sizes
    given, place = tensor(op, value), axis_of(op, axis)
    sizes = axes_of(op, num_or_size_splits)
    if sizes is None or isinstance(sizes, int):
        return s.cut(op, given, sizes or 1, place)
    if -1 in sizes:
        left = known_size(given, place, "cutting") - sum(n for n in sizes if n >= 0)
        sizes = [left if n < 0 else n for n in sizes]
    return op.split(given, place, list(sizes))


@operation(TF_FUNCTIONS, "tile")
def tile(op: Builder, input: Any, multiples: Any) -> Value:
    """A tensor as a whole, again and again along its axes."""
    value = tensor(op, input)
    computed, counts = wanted(op, multiples)
    if computed is None and all(isinstance(n, int) for n in counts):
        return s.tile(op, value, repeats=[int(str(n)) for n in counts])
    shape = tuple(
        c if n == 1 else n if c == 1 else None for n, c in zip(value.shape, counts, strict=True)
    )
    return op.emit("Tile", value, computed, dtype=value.dtype, shape=shape)


@operation(TF_FUNCTIONS, "repeat")
def repeat(op: Builder, input: Any, repeats: Any, axis: int | None = None) -> Value:
    """A tensor, each element again and again along an axis."""
    counts = axes_of(op, repeats)
    if counts is None:
        raise Unsupported("repeats")
    return s.repeat(op, input, repeats=counts, axis=axis)


@operation(TF_FUNCTIONS, "pad")
def pad(
    op: Builder, tensor_: Any, paddings: Any, mode: str = "CONSTANT", constant_values: Any = 0
) -> Value:
    """A tensor with more elements at the ends of its axes: one number, or itself mirrored."""
    value = tensor(op, tensor_)
    widths = op.array(paddings) if isinstance(paddings, Value) else np.asarray(paddings)
    if widths is None or isinstance(constant_values, Value):
        raise Unsupported("padding that is computed")
    pairs = [(int(low), int(high)) for low, high in widths]
    number = None if mode.upper() != "CONSTANT" or not constant_values else constant_values
    return padded(op, value, pairs, mode, number)


@operation(TF_FUNCTIONS, "reverse")
def reverse(op: Builder, tensor_: Any, axis: Any) -> Value:
    """A tensor with axes reversed."""
    return s.flip(op, tensor_, axis=axes_of(op, axis))


@operation(TF_FUNCTIONS, "roll")
def roll(op: Builder, input: Any, shift: Any, axis: Any) -> Value:
    """A tensor moved along axes, what leaves at one end coming back at the other."""
    amount = axes_of(op, shift)
    return s.roll(op, input, shift=0 if amount is None else amount, axis=axes_of(op, axis))


# -- indices ---------------------------------------------------------------------------------------


@operation(TF_FUNCTIONS, "getitem")
def get_item(op: Builder, tensor_: Any, slice_spec: Any) -> Value:
    """tensor[slice_spec], of numbers, slices, an ellipsis, new axes; bounds may be computed."""
    parts = slice_spec if isinstance(slice_spec, list | tuple) else [slice_spec]
    return i.item(op, tensor(op, tensor_), [_part(part) for part in parts])


def _part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    if part.get("class_name") == "__ellipsis__":
        return ...
    return slice(part.get("start"), part.get("stop"), part.get("step"))


@operation(TF_FUNCTIONS, "slice")
def slice_(op: Builder, input_: Any, begin: Any, size: Any) -> Value:
    """A part of so many elements from given places on; -1 takes the rest."""
    value = tensor(op, input_)
    starts = _each(op, begin)
    counts = _each(op, size)
    parts: list[Any] = []
    for start, count in zip(starts, counts, strict=True):
        if isinstance(start, int) and isinstance(count, int):
            parts.append(slice(start, None if count < 0 else start + count))
        elif isinstance(count, int) and count < 0:
            parts.append(slice(start, None))
        else:
            end = op.add(tensor(op, start, "int64"), tensor(op, count, "int64"))
            parts.append(slice(start, end))
    return i.item(op, value, parts)


def _each(op: Builder, numbers: Any) -> list[Any]:
    """Return the elements of a vector, as numbers where they are known."""
    if not isinstance(numbers, Value):
        return [numbers] if isinstance(numbers, int) else list(numbers)
    known = op.array(numbers)
    if known is not None:
        return [int(n) for n in known.reshape(-1)]
    count = known_size(numbers, 0, "slicing")
    return [op.squeeze(v, [0]) for v in op.split(numbers, 0, [1] * count)]


@operation(TF_FUNCTIONS, "strided_slice")
def strided_slice(
    op: Builder, input_: Any, begin: Any, end: Any, strides: Any = None, begin_mask: int = 0,
    end_mask: int = 0, ellipsis_mask: int = 0, new_axis_mask: int = 0, shrink_axis_mask: int = 0,
    var: Any = None,
) -> Value:  # fmt: skip
    """A part of a tensor; masks say bit by bit what each bound is instead."""
    del var
    starts, ends = _each(op, begin), _each(op, end)
    steps = [1] * len(starts) if strides is None else _each(op, strides)
    parts: list[Any] = []
    for k, (start, stop, step) in enumerate(zip(starts, ends, steps, strict=True)):
        bit = 1 << k
        if ellipsis_mask & bit:
            parts.append(...)
        elif new_axis_mask & bit:
            parts.append(None)
        elif shrink_axis_mask & bit:
            parts.append(start)
        else:
            low = None if begin_mask & bit else start
            parts.append(slice(low, None if end_mask & bit else stop, step))
    return i.item(op, tensor(op, input_), parts)


@operation(TF_FUNCTIONS, "gather")
def gather(
    op: Builder, params: Any, indices: Any, validate_indices: Any = None, axis: Any = None,
    batch_dims: int = 0,
) -> Value:  # fmt: skip
    """Elements along an axis, by number; in each of the batch by its own numbers."""
    del validate_indices
    value, numbers = tensor(op, params), tensor(op, indices)
    batch = batch_dims + numbers.rank if batch_dims < 0 else batch_dims
    place = value.axis(axis_of(op, axis)) if axis is not None else batch
    if not batch:
        return i.take(op, value, numbers, axis=place)
    if place != batch:
        raise Unsupported("an axis of a gathering behind those of the batch")
    places = op.unsqueeze(op.cast(numbers, "int64"), [-1])
    shape = (*numbers.shape, *value.shape[place + 1 :])
    return op.emit("GatherND", value, places, dtype=value.dtype, shape=shape, batch_dims=batch)


@operation(TF_FUNCTIONS, "gather_nd")
def gather_nd(
    op: Builder, params: Any, indices: Any, batch_dims: int = 0, bad_indices_policy: str = ""
) -> Value:
    """Elements, or slices, by their places."""
    del bad_indices_policy
    value, places = tensor(op, params), op.cast(tensor(op, indices), "int64")
    depth = known_size(places, -1, "gathering")
    shape = (*places.shape[:-1], *value.shape[batch_dims + depth :])
    return op.emit("GatherND", value, places, dtype=value.dtype, shape=shape, batch_dims=batch_dims)


@operation(TF_FUNCTIONS, "embedding_lookup")
def embedding_lookup(
    op: Builder, params: Any, ids: Any, max_norm: Any = None, partition_strategy: str = "mod",
    validate_indices: Any = None,
) -> Value:  # fmt: skip
    """Rows by number."""
    del partition_strategy, validate_indices
    if max_norm is not None:
        raise Unsupported("max_norm")
    return i.take(op, params, ids, axis=0)


@operation(
    TF_FUNCTIONS,
    Variant("tensor_scatter_nd_update", "A tensor with others put at places.", reduction="none"),
    Variant("tensor_scatter_nd_add", "A tensor with others added at places.", reduction="add"),
    Variant(
        "tensor_scatter_nd_max",
        "A tensor with others at places, where they are larger.",
        reduction="max",
    ),
    Variant(
        "tensor_scatter_nd_min",
        "A tensor with others at places, where they are smaller.",
        reduction="min",
    ),
)
def scatter_into(
    op: Builder, tensor_: Any, indices: Any, updates: Any, *, reduction: str,
    bad_indices_policy: str = "",
) -> Value:  # fmt: skip
    """A tensor with updates at the given indices."""
    del bad_indices_policy  # what to do where there is no such place
    value = tensor(op, tensor_)
    return i.put(op, value, indices, tensor(op, updates, value.dtype), reduction)


@operation(TF_FUNCTIONS, "scatter_nd")
def scatter_nd(
    op: Builder, indices: Any, updates: Any, shape: Any, bad_indices_policy: str = ""
) -> Value:
    """Zeros of a shape, with values added at places."""
    del bad_indices_policy
    new = tensor(op, updates)
    return i.put(op, fill(op, shape, op.constant(0, new.dtype)), indices, new, "add")


@operation(TF_FUNCTIONS, "one_hot")
def one_hot(
    op: Builder, indices: Any, depth: Any, on_value: Any = None, off_value: Any = None,
    axis: int | None = None, dtype: str | None = None,
) -> Value:  # fmt: skip
    """One number where a new axis has the number of the index, else another: 1 and 0."""
    count = axes_of(op, depth)
    if not isinstance(count, int):
        raise Unsupported("a depth that is computed")
    place = -1 if axis is None else axis
    if on_value is None and off_value is None:
        return i.hot(op, indices, count, place, dtype or "float32")
    hits = i.hot(op, indices, count, place, "bool")
    on, off = (1 if on_value is None else on_value, 0 if off_value is None else off_value)
    values = alike(op, *(v if isinstance(v, Value) else tensor(op, v, dtype) for v in (on, off)))
    return op.where(hits, *values)


@operation(TF_FUNCTIONS, "range")
def range_(
    op: Builder, start: Any, limit: Any = None, delta: Any = 1, dtype: str | None = None
) -> Value:
    """The numbers from start until a limit."""
    start, limit = (0, start) if limit is None else (start, limit)
    numbers = alike(
        op, *(v if dtype is None else tensor(op, v, dtype) for v in (start, limit, delta))
    )
    scalars = [op.reshape(v, ()) for v in numbers]
    sizes = sizes_in(op, scalars[1])
    known = [op.array(scalars[0]), op.array(scalars[2])]
    plain = all(v is not None for v in known) and [int(v) for v in known if v is not None] == [0, 1]
    length = sizes[0] if plain and sizes else None
    return op.emit("Range", *scalars, dtype=scalars[0].dtype, shape=(length,))


@operation(TF_FUNCTIONS, "linspace")
def linspace(op: Builder, start: Any, stop: Any, num: int, axis: int = 0) -> Value:
    """So many numbers from start to stop."""
    found: Value = s.linspace(op, start, stop, num=num, axis=axis)
    return found


@operation(TF_FUNCTIONS, "sequence_mask")
def sequence_mask(op: Builder, lengths: Any, maxlen: Any = None, dtype: str = "bool") -> Value:
    """Whether each place is before the end of its sequence."""
    ends = op.unsqueeze(op.cast(tensor(op, lengths), "int64"), [-1])
    if maxlen is None:
        maxlen = op.reduce("ReduceMax", ends, list(range(ends.rank)))
    places = range_(op, 0, tensor(op, maxlen, "int64"), 1, "int64")
    return op.cast(op.elementwise("Less", places, ends), dtype)


@operation(TF_FUNCTIONS, "searchsorted")
def searchsorted(
    op: Builder, sorted_sequence: Any, values: Any, side: str = "left", out_type: str = "int32"
) -> Value:
    """Where values would have to stand in rising sequences, row by row."""
    rising, value = alike(op, sorted_sequence, values)
    rising = op.unsqueeze(rising, [-2]) if rising.rank > 1 else rising
    return op.cast(i.placed(op, rising, value, right=side == "right"), out_type)


@operation(TF_FUNCTIONS, "boolean_mask")
def boolean_mask(op: Builder, tensor_: Any, mask: Any, axis: int | None = None) -> Value:
    """The slices of a tensor along an axis where a mask holds."""
    value, where = tensor(op, tensor_), op.plain(tensor(op, mask, "bool"))
    place = axis or 0
    count = where.rank
    if count > 1:
        if place:
            raise Unsupported("a mask of several axes that are not the first")
        value = op.reshape(value, (None, *value.shape[count:]))
        where = op.reshape(where, (None,))
    shape = (*value.shape[:place], None, *value.shape[place + 1 :])
    return op.emit("Compress", value, where, dtype=value.dtype, shape=shape, axis=place)


# -- matrices --------------------------------------------------------------------------------------


@operation(TF_FUNCTIONS, "band_part")
def band_part(op: Builder, input: Any, num_lower: Any, num_upper: Any) -> Value:
    """Matrices with zeros outside a band of so many diagonals; -1 keeps all of a side."""
    value = tensor(op, input)
    low, high = axes_of(op, num_lower), axes_of(op, num_upper)
    if not isinstance(low, int) or not isinstance(high, int):
        raise Unsupported("a band that is computed")
    value = i.triangle(op, value, -low, upper=True) if low >= 0 else value
    return i.triangle(op, value, high, upper=False) if high >= 0 else value


@operation(TF_FUNCTIONS, "diag_part", "tensor_diag_part")
def diag_part(
    op: Builder, input: Any, name: Any = None, k: int = 0, padding_value: Any = 0,
    align: str = "RIGHT_LEFT",
) -> Value:  # fmt: skip
    """The diagonal of matrices."""
    del name, padding_value, align  # of one diagonal nothing is padded
    return i.diagonal(op, input, offset=k, axis1=-2, axis2=-1)
