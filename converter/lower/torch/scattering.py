"""Scatter: elements written at indices."""

from collections.abc import Sequence
from math import inf, nan

import numpy as np

from converter.lower import dims
from converter.lower.ops.cumulative import cumulative_sum
from converter.lower.ops.scatter import scatter_elements, scatter_nd
from converter.lower.table import Variant
from converter.lower.torch.context import Context
from converter.lower.torch.indexing import MASKS, places_of, spread_masks
from converter.lower.torch.program_values import Int, Ints, Scalar
from converter.lower.torch.promotion import together
from converter.lower.torch.slicing import END, bound
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value, inverse

REDUCTIONS = {
    "sum": "add",
    "prod": "mul",
    "amax": "max",
    "amin": "min",
    "add": "add",
    "multiply": "mul",
}
SEGMENTS = {  # a reduction, and its result for nothing
    "sum": ("ReduceSum", 0.0), "mean": ("ReduceSum", 0.0), "prod": ("ReduceProd", 1.0),
    "max": ("ReduceMax", -inf), "min": ("ReduceMin", inf),
}  # fmt: skip
SEGMENT_JOINS = {"ReduceSum": "Add", "ReduceProd": "Mul", "ReduceMax": "Max", "ReduceMin": "Min"}


@aten("copy")
def copy(op: Context, self: Value, src: Value, non_blocking: bool = False) -> Value:
    """The elements of another tensor, in the shape and dtype of this one."""
    del non_blocking
    return op.expand(op.cast(src, self.dtype), op.named(self).shape)


@aten("select_scatter")
def select_scatter(op: Context, self: Value, src: Value, dim: int, index: Int) -> Value:
    """The tensor, with one element of an axis replaced."""
    x = op.named(self)
    axis = x.axis(dim)
    n = x.shape[axis]
    start = dims.add(n, index) if isinstance(index, int) and index < 0 else index
    part = op.unsqueeze(op.cast(src, x.dtype), [axis])
    return _replace(op, x, part, axis, start, dims.add(start, 1))


@aten("slice_scatter")
def slice_scatter(
    op: Context, self: Value, src: Value, dim: int = 0, start: Int | None = None,
    end: Int | None = None, step: int = 1,
) -> Value:  # fmt: skip
    """The tensor, with a part of an axis replaced."""
    x = op.named(self)
    axis = x.axis(dim)
    n = x.shape[axis]
    first = bound(op, n, 0 if start is None else start, of=n)
    last = bound(op, n, END if end is None else end, of=n)
    part = op.cast(src, x.dtype)
    if step == 1:
        if isinstance(first, int) and isinstance(last, int):
            last = max(first, last)
        return _replace(op, x, part, axis, first, last)
    count = op.ceildiv(dims.sub(last, first), step)
    places = op.add(op.mul(op.range(count), step), op.scalar_of(first, "int64"))
    return _put(op, x, axis, places, part)


def _replace(op: Context, x: Value, part: Value, axis: int, first: object, last: object) -> Value:
    """Return x with a slice of an axis replaced, by concatenation."""
    n = x.shape[axis]
    assert isinstance(first, int | str)
    assert isinstance(last, int | str)
    length = dims.sub(last, first)
    shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
    parts = [op.expand(part, shape)]
    if first != 0:
        parts.insert(0, op.cut(x, axis, 0, first))
    if last != n:
        parts.append(op.cut(x, axis, last, n))
    return op.shaped(op.concat(parts, axis), x.shape)


def _put(
    op: Context, x: Value, axis: int, places: Value, part: Value, reduction: str = "none"
) -> Value:
    """Return x with slices along an axis replaced by those of a part, at these indices."""
    places = op.reshape(places, (1,)) if places.rank == 0 else places
    if x.rank == 0:
        wide, part = op.reshape(x, (1,)), op.reshape(part, (1,))
        return op.reshape(_put(op, wide, 0, places, part, reduction), ())
    if part.rank < x.rank:  # one slice
        part = op.unsqueeze(part, [axis])
    order = [axis, *(i for i in range(x.rank) if i != axis)]
    turned, source = op.plain(x.transposed(order)), op.plain(part.transposed(order))
    shape = (*op.named(places).shape, *turned.shape[1:])
    source = op.expand(source, shape)
    made = scatter_nd(op, turned, op.unsqueeze(places, [-1]), source, reduction)
    return made.transposed(inverse(order))


def _axis(x: Value, dim: int) -> int:
    """Return an axis; a tensor without axes is taken as one of one element."""
    return x.axis(dim) if x.rank else 0


@aten("diagonal_scatter")
def diagonal_scatter(
    op: Context, self: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    """The tensor, with the elements of a diagonal replaced."""
    x = op.named(self)
    last = [x.axis(dim1), x.axis(dim2)]
    order = [*(i for i in range(x.rank) if i not in last), *last]
    x = x.transposed(order)
    rows, columns = (op.range(n) for n in x.shape[-2:])
    is_there = op.elementwise("Equal", op.add(op.unsqueeze(rows, [1]), offset), columns)
    # Element k of the diagonal is in row k, or for a negative offset in column k.
    index = op.unsqueeze(rows, [1]) if offset >= 0 else op.unsqueeze(columns, [0])
    index = op.where(is_there, index, op.constant(0, "int64"))
    placed = op.gather(op.cast(src, x.dtype), index, -1)
    return op.where(is_there, placed, x).transposed(inverse(order))


@aten("segment_reduce")
def segment_reduce(
    op: Context, data: Value, reduce: str, lengths: Value | None = None,
    indices: Value | None = None, offsets: Value | None = None, axis: int = 0,
    unsafe: bool = False, initial: Scalar | None = None,
) -> Value:  # fmt: skip
    """The sum, mean, product, maximum or minimum of consecutive segments."""
    del unsafe
    bounds, x = lengths if offsets is None else offsets, op.named(data)
    if bounds is None or indices is not None or x.axis(axis) != bounds.rank - 1:
        raise Unsupported("segments other than by lengths or offsets, along the last of their axes")
    axis, bounds = x.axis(axis), op.cast(bounds, "int64")
    if offsets is None:
        ends = cumulative_sum(op, bounds, axis)
        starts = op.sub(ends, bounds)
    else:
        starts, ends = op.slice(bounds, [axis], [0], [-1]), op.slice(bounds, [axis], [1], [END])
    at = op.range(x.shape[axis])
    inside = op.elementwise(
        "And",
        op.elementwise("GreaterOrEqual", at, op.unsqueeze(starts, [-1])),
        op.elementwise("Less", at, op.unsqueeze(ends, [-1])),
    )
    op_type, neutral = SEGMENTS[reduce]
    behind = list(range(axis + 2, x.rank + 1))
    held = op.unsqueeze(inside, behind) if behind else inside
    wide = op.where(held, op.unsqueeze(x, [axis]), op.constant(neutral, x.dtype))
    found = op.reduce(op_type, wide, [axis + 1])
    first = op.constant(neutral, x.dtype) if initial is None else op.scalar(initial, x.dtype)
    found = op.elementwise(SEGMENT_JOINS[op_type], found, first)
    if reduce != "mean":
        return found
    count = op.reduce("ReduceSum", op.cast(held, x.dtype), [axis + 1])
    some = op.elementwise("Greater", count, 0.0)
    empty = op.constant(nan, x.dtype) if initial is None else first
    return op.where(some, op.div(found, count), empty)


@aten("index_copy")
def index_copy(op: Context, self: Value, dim: int, index: Value, source: Value) -> Value:
    """The tensor, with slices along an axis replaced."""
    return _put(op, op.named(self), _axis(self, dim), index, source)


@aten("index_add")
def index_add(
    op: Context, self: Value, dim: int, index: Value, source: Value, alpha: Scalar = 1
) -> Value:
    """The tensor, with values added to slices along an axis."""
    part = source if alpha == 1 else op.mul(source, op.scalar(alpha, source.dtype))
    return _put(op, op.named(self), _axis(self, dim), index, part, "add")


@aten("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(op: Context, self: Value, dim: int, index: Value, value: Scalar | Value) -> Value:
    """The tensor, with slices along an axis filled with a number."""
    x = op.named(self)
    (number,) = together(op, [value], x.dtype)
    wide = op.reshape(number, (1,) * x.rank)
    return _put(op, x, _axis(x, dim), index, wide)


@aten("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(
    op: Context, self: Value, indices: Sequence[Value | None], values: Value,
    accumulate: bool = False, unsafe: bool = False,
) -> Value:  # fmt: skip
    """The tensor, with elements replaced by index tensors or masks."""
    del unsafe
    x = op.named(self)
    part = op.cast(values, x.dtype)
    mask = indices[0]
    single = len(indices) == 1 and mask is not None and mask.dtype in MASKS
    if single and mask is not None and not accumulate and all(n == 1 for n in part.shape):
        held = op.cast(mask, "bool")
        if held.rank < x.rank:
            held = op.unsqueeze(held, list(range(held.rank, x.rank)))
        return op.where(held, op.reshape(part, ()), x)
    spread = spread_masks(op, indices)
    axes = [i for i, index in enumerate(spread) if index is not None]
    chosen = [index for index in spread if index is not None]
    if not axes or axes[-1] >= x.rank:
        raise Unsupported(f"{len(spread)} indices of {x.rank} axes")
    rest = [i for i in range(x.rank) if i not in axes]
    order = [*axes, *rest]
    turned = op.plain(x.transposed(order))
    places = places_of(op, chosen)
    count = places.rank - 1
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    before = axes[0] if adjacent else 0
    # The values have the shape that reading there would give.
    shape = (
        *turned.shape[len(axes) :][:before],
        *places.shape[:-1],
        *turned.shape[len(axes) + before :],
    )
    source = op.expand(part, shape)
    moved = source.transposed([
        *range(before, before + count), *range(before), *range(before + count, len(shape)),
    ])  # fmt: skip
    how = "add" if accumulate else "none"
    return scatter_nd(op, turned, places, op.plain(moved), how).transposed(inverse(order))


@aten("_unsafe_masked_index_put_accumulate")
def masked_index_put(
    op: Context, self: Value, mask: Value, indices: Sequence[Value | None], values: Value
) -> Value:
    """The tensor, with values added at indices where a mask holds; indices stay inside."""
    x = op.named(self)
    inside: list[Value | None] = []
    for axis, index in enumerate(indices):
        if index is None:
            inside.append(None)
            continue
        size = op.scalar_of(x.shape[axis], index.dtype)
        last = op.sub(size, op.constant(1, index.dtype))
        low = op.elementwise("Max", index, op.unary("Neg", size))
        inside.append(op.elementwise("Min", low, last))
    held = op.where(mask, values, op.constant(0, values.dtype))
    return index_put(op, x, inside, held, accumulate=True)


def _scatter(
    op: Context, x: Value, dim: int, index: Value, source: Value, reduction: str = "none"
) -> Value:
    """Return x with elements along an axis replaced, or joined with others."""
    if x.rank == 0:
        wide = [op.reshape(v, (1,)) for v in (x, index, source)]
        return op.reshape(_scatter(op, wide[0], 0, wide[1], wide[2], reduction), ())
    index, source = op.named(index), op.named(source)
    if source.shape != index.shape:
        for axis, n in enumerate(index.shape):
            source = op.cut(source, axis, 0, n) if source.shape[axis] != n else source
    target, places, updates = (op.outer(v) for v in (x, index, source))
    return scatter_elements(op, target, dim, places, updates, reduction)


@aten("scatter.src")
def scatter(op: Context, self: Value, dim: int, index: Value, src: Value) -> Value:
    """The tensor, with elements along an axis replaced."""
    return _scatter(op, self, dim, index, src)


@aten("scatter.value")
def scatter_value(op: Context, self: Value, dim: int, index: Value, value: Scalar) -> Value:
    """The tensor, with elements along an axis replaced by a number."""
    source = op.filled(op.named(index).shape, value, self.dtype)
    return _scatter(op, self, dim, index, source)


@aten("scatter.reduce")
def scatter_joined(
    op: Context, self: Value, dim: int, index: Value, src: Value, reduce: str
) -> Value:
    """The tensor, with values added to, or multiplied with, elements along an axis."""
    return _scatter(op, self, dim, index, src, _reduction(reduce))


@aten("scatter.value_reduce")
def scatter_value_joined(
    op: Context, self: Value, dim: int, index: Value, value: Scalar, reduce: str
) -> Value:
    """The tensor, with a number added to, or multiplied with, elements along an axis."""
    source = op.filled(op.named(index).shape, value, self.dtype)
    return _scatter(op, self, dim, index, source, _reduction(reduce))


@aten("scatter_add")
def scatter_add(op: Context, self: Value, dim: int, index: Value, src: Value) -> Value:
    """The tensor, with values added to elements along an axis."""
    return _scatter(op, self, dim, index, src, "add")


@aten("scatter_reduce.two")
def scatter_reduce(
    op: Context, self: Value, dim: int, index: Value, src: Value, reduce: str,
    include_self: bool = True,
) -> Value:  # fmt: skip
    """The tensor, with elements along an axis reduced with values."""
    if not include_self:
        return _of_others(op, self, dim, index, src, reduce)
    if reduce == "mean":
        return _mean_with(op, self, dim, index, src)
    return _scatter(op, self, dim, index, src, _reduction(reduce))


def _mean_with(op: Context, x: Value, dim: int, index: Value, src: Value) -> Value:
    """Return the means of elements and others."""
    if not x.is_float:
        raise Unsupported("means of integers")
    ones = op.filled(op.named(x).shape, 1, x.dtype)
    more = op.filled(op.named(index).shape, 1, x.dtype)
    count = _scatter(op, ones, dim, index, more, "add")
    return op.div(_scatter(op, x, dim, index, src, "add"), count)


@aten("index_reduce")
def index_reduce(
    op: Context, self: Value, dim: int, index: Value, source: Value, reduce: str,
    include_self: bool = True,
) -> Value:  # fmt: skip
    """The tensor, with slices along an axis reduced with values."""
    if self.rank == 0:
        wide = [op.reshape(v, (1,)) for v in (self, index, source)]
        return op.reshape(index_reduce(op, wide[0], 0, wide[1], wide[2], reduce, include_self), ())
    axis = self.axis(dim)
    places = op.reshape(index, (1,)) if index.rank == 0 else index
    wide_index = op.unsqueeze(places, [i for i in range(self.rank) if i != axis])
    every = op.expand(wide_index, op.named(source).shape)
    return scatter_reduce(op, self, dim, every, source, reduce, include_self)


def _of_others(op: Context, x: Value, dim: int, index: Value, src: Value, reduce: str) -> Value:
    """Return x with elements replaced by what others come to, without what was there."""
    zeros = op.filled(op.named(x).shape, 0, "float32")
    ones = op.filled(op.named(index).shape, 1, "float32")
    count = _scatter(op, zeros, dim, index, ones, "add")
    there = op.elementwise("Greater", count, op.constant(0.0, "float32"))
    if reduce == "mean":
        total = _of_others(op, x, dim, index, src, "sum")
        if not x.is_float:
            raise Unsupported("means of integers")
        under = op.elementwise("Max", count, op.constant(1.0, "float32"))
        return op.where(there, op.div(total, op.cast(under, x.dtype)), x)
    if reduce not in ("sum", "prod", "amax", "amin"):
        raise Unsupported(f"reduce = {reduce!r}")
    least, most = _bounds(x.dtype)
    neutral = {"sum": 0, "prod": 1, "amax": least, "amin": most}[reduce]
    begin = op.where(there, op.constant(neutral, x.dtype), x)
    return _scatter(op, begin, dim, index, src, _reduction(reduce))


def _bounds(dtype: str) -> tuple[float, float]:
    """Return the least and the largest number of a dtype."""
    if "float" in dtype:
        return -inf, inf
    if dtype == "bool":
        raise Unsupported("extremes of booleans")
    found = np.iinfo(dtype)
    return int(found.min), int(found.max)


def _reduction(name: str) -> str:
    if name not in REDUCTIONS:
        raise Unsupported(f"reduce = {name!r}")
    return REDUCTIONS[name]


@aten(
    Variant(
        "max_unpool2d",
        "Max unpooling of images: values at their former indices, and zeros.",
        spatial=2,
    ),
    Variant(
        "max_unpool3d",
        "Max unpooling of volumes: values at their former indices, and zeros.",
        spatial=3,
    ),
)
def max_unpool(
    op: Context, self: Value, indices: Value, output_size: Ints, stride: Ints = (),
    padding: Ints = (), *, spatial: int,
) -> Value:  # fmt: skip
    """Zeros, and values at the indices that pooling found."""
    del stride, padding  # torch itself only checks them
    x = op.named(self)
    lead = x.shape[: x.rank - spatial]
    inner = dims.product(x.shape[x.rank - spatial :])
    whole = dims.product(tuple(output_size)[-spatial:])
    zeros = op.filled((*lead, whole), 0, x.dtype)
    places, given = (op.reshape(v, (*lead, inner)) for v in (indices, x))
    made = scatter_elements(op, zeros, len(lead), op.cast(places, "int64"), given)
    return op.reshape(made, (*lead, *list(output_size)[-spatial:]))


@aten("put")
def put(op: Context, self: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    """The tensor, with elements at flat indices replaced, or added to."""
    x = op.named(self)
    flat, places, values = (
        op.reshape(op.named(v), (dims.product(op.named(v).shape),)) for v in (x, index, source)
    )
    count = op.scalar_of(flat.shape[0], "int64")
    is_negative = op.elementwise("Less", places, op.constant(0, "int64"))
    places = op.where(is_negative, op.add(places, count), places)
    found = _scatter(op, flat, 0, places, values, "add" if accumulate else "none")
    return op.reshape(found, x.shape)


@aten("masked_scatter")
def masked_scatter(op: Context, self: Value, mask: Value, source: Value) -> Value:
    """The tensor, with consecutive source elements where a mask is true."""
    x = op.named(self)
    shape = op.broadcast(x.shape, op.named(mask).shape)
    x, held = op.expand(x, shape), op.expand(op.cast(mask, "bool"), shape)
    whole = dims.product(x.shape)
    flat = op.reshape(op.cast(held, "int64"), (whole,))
    running = op.emit("CumSum", flat, op.constant(0, "int64"), dtype="int64", shape=(whole,))
    named = op.named(source)
    values = op.reshape(named, (dims.product(named.shape),))
    first = op.elementwise("Max", op.sub(running, 1), op.constant(0, "int64"))
    taken = op.reshape(op.gather(values, first, 0), x.shape)
    return op.where(held, taken, x)
