"""Order: the largest, sorted elements, and cumulative sums."""

import math

import numpy as np

from converter.lower import dims
from converter.lower.graph import Dim
from converter.lower.known_values import real
from converter.lower.ops import sort as ordered
from converter.lower.ops.cumulative import accumulate, cumulative_sum
from converter.lower.ops.elementwise import logaddexp
from converter.lower.ops.reduce import index_of_extreme, some
from converter.lower.ops.scatter import add_by_index, scatter_elements
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Int, Scalar, integer
from converter.lower.torch.promotion import kind, together
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


def _top(op: Context, x: Value, k: Int, dim: int, *, largest: bool, in_order: bool) -> list[Value]:
    if x.rank == 0:
        return [x, op.constant(0, "int64")]
    vector = op.vector([k])
    found = ordered.top_k(
        op, op.outer(x), dim, k, vector, largest=largest, in_order=in_order, is_nan_largest=True
    )
    return [*found]


NEAREST = {"lower": "Floor", "higher": "Ceil", "nearest": "Round"}  # without interpolation


@aten("topk")
def topk(
    op: Context, self: Value, k: Int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list[Value]:
    """The largest or smallest elements, and their indices."""
    return _top(op, self, k, dim, largest=largest, in_order=sorted)


@aten("sort")
def sort(op: Context, self: Value, dim: int = -1, descending: bool = False) -> list[Value]:
    """Sorted elements, and their indices."""
    return sort_stable(op, self, None, dim, descending)


@aten("sort.stable")
def sort_stable(
    op: Context, self: Value, stable: bool | None, dim: int = -1, descending: bool = False
) -> list[Value]:
    """Stably sorted elements, and their indices."""
    del stable
    x = op.named(self)
    if x.rank == 0:
        return [x, op.constant(0, "int64")]
    return _top(op, x, integer(op.axis_of(x, dim)), dim, largest=descending, in_order=True)


@aten("argsort")
def argsort(op: Context, self: Value, dim: int = -1, descending: bool = False) -> Value:
    """Indices that sort the elements."""
    return sort(op, self, dim, descending)[1]


@aten("argsort.stable")
def argsort_stable(
    op: Context, self: Value, stable: bool, dim: int = -1, descending: bool = False
) -> Value:
    """Indices that stably sort the elements."""
    return sort_stable(op, self, stable, dim, descending)[1]


@aten("msort")
def msort(op: Context, self: Value) -> Value:
    """Elements sorted along the first axis."""
    return sort(op, self, 0)[0]


@aten("kthvalue")
def kthvalue(op: Context, self: Value, k: Int, dim: int = -1, keepdim: bool = False) -> list[Value]:
    """The k-th smallest element, and its index."""
    if self.rank == 0:
        return [self, op.constant(0, "int64")]
    values = _top(op, self, k, dim, largest=False, in_order=True)
    return [_last(op, v, dim, k, keepdim=keepdim) for v in values]


def _last(op: Context, x: Value, dim: int, count: Dim, *, keepdim: bool) -> Value:
    """Return the last of a number of elements along an axis."""
    cut = op.cut(x, x.axis(dim), dims.sub(count, 1), count)
    return cut if keepdim else op.squeeze(cut, [dim])


@aten("median.dim")
def median_dim(op: Context, self: Value, dim: int, keepdim: bool = False) -> list[Value]:
    """The lower median along an axis and its index; the first NaN where there is any."""
    n = op.axis_of(self, dim) if self.rank else 1
    found = kthvalue(op, self, integer(op.floordiv(dims.add(n, 1), 2)), dim, keepdim)
    if kind(self.dtype) != 2 or not self.rank:
        return found
    is_nan = op.cast(op.unary("IsNaN", op.named(self)), "int32")
    first = index_of_extreme(op, "ArgMax", is_nan, self.axis(dim), keepdims=keepdim)
    some = op.reduce("ReduceMax", is_nan, [self.axis(dim)], keepdims=keepdim)
    some = op.cast(some, "bool")
    return [op.where(some, math.nan, found[0]), op.where(some, first, found[1])]


@aten("median")
def median(op: Context, self: Value) -> Value:
    """The lower median of all elements; NaN of none."""
    x = op.named(self)
    if 0 in x.shape and kind(x.dtype) == 2:
        return op.constant(math.nan, x.dtype)
    return median_dim(op, op.reshape(x, (dims.product(x.shape),)), 0)[0]


@aten("nanmedian.dim")
def nanmedian_along(op: Context, self: Value, dim: int, keepdim: bool = False) -> list[Value]:
    """The lower median of the elements along an axis that are not NaN, and its index."""
    if kind(self.dtype) != 2:
        raise Unsupported(f"medians of {self.dtype}")
    if self.rank == 0:
        return [self, op.constant(0, "int64")]
    axis = self.axis(dim)
    x = op.named(self)
    is_nan = op.unary("IsNaN", x)
    rising = ordered.sort(op, op.where(is_nan, op.constant(math.inf, x.dtype), x), axis)[0]
    count = op.reduce("ReduceSum", op.cast(op.unary("Not", is_nan), "int64"), [axis], keepdims=True)
    most = op.elementwise("Max", count, op.constant(1, "int64"))
    middle = op.div(op.sub(most, 1), 2)
    shape = tuple(1 if i == axis else n for i, n in enumerate(x.shape))
    values = op.emit("GatherElements", rising, middle, dtype=x.dtype, shape=shape, axis=axis)
    is_it = op.cast(op.elementwise("Equal", x, values), "int64")
    indices = op.emit("ArgMax", is_it, dtype="int64", shape=shape, axis=axis, keepdims=1)
    values = op.where(op.elementwise("Equal", count, op.constant(0, "int64")), math.nan, values)
    return [v if keepdim else op.squeeze(v, [axis]) for v in (values, indices)]


@aten("nanmedian")
def nanmedian(op: Context, self: Value) -> Value:
    """The lower median of all elements that are not NaN."""
    if kind(self.dtype) != 2:
        raise Unsupported(f"medians of {self.dtype}")
    x = op.named(self)
    x = op.reshape(x, (dims.product(x.shape),))
    is_none = op.unary("IsNaN", x)
    last = op.constant(math.inf, x.dtype)
    rising = ordered.sort(op, op.where(is_none, last, x), 0)[0]
    count = op.reduce("ReduceSum", op.cast(op.unary("Not", is_none), "int64"), [0])
    middle = op.div(op.sub(op.elementwise("Max", count, op.constant(1, "int64")), 1), 2)
    lacks = op.elementwise("Equal", count, op.constant(0, "int64"))
    return op.where(lacks, math.nan, op.gather(rising, middle))


@aten("quantile", "quantile.scalar")
def quantile(
    op: Context, self: Value, q: Value | float, dim: int | None = None, keepdim: bool = False,
    interpolation: str = "linear",
) -> Value:  # fmt: skip
    """Quantiles of the elements; NaN where any element is NaN."""
    shares = real(op, q, "float64")
    x = op.named(self)
    axes = list(range(x.rank)) if dim is None else [x.axis(dim)] if x.rank else []
    if not axes:
        x, axes = op.reshape(x, (1,)), [0]
    return ordered.quantile(op, x, shares, axes, method=interpolation, keepdims=keepdim)


@aten("nanquantile", "nanquantile.scalar")
def nanquantile(
    op: Context, self: Value, q: Value | float, dim: int | None = None, keepdim: bool = False,
    interpolation: str = "linear",
) -> Value:  # fmt: skip
    """Quantiles of the elements that are not NaN."""
    x = op.named(self)
    axes = list(range(x.rank)) if dim is None else [x.axis(dim)] if x.rank else []
    kept = [i for i in range(x.rank) if i not in axes]
    line = op.plain(op.transpose(x, [*kept, *axes]))
    if len(axes) != 1:
        line = op.reshape(
            line, (*(x.shape[i] for i in kept), dims.product([x.shape[i] for i in axes]))
        )
    is_nan = op.unary("IsNaN", line)
    rising = ordered.sort(op, op.where(is_nan, op.constant(math.inf, x.dtype), line), -1)[0]
    present = op.cast(op.unary("Not", is_nan), "float64")
    count = op.reduce("ReduceSum", present, [-1], keepdims=True)
    last = op.elementwise("Max", op.sub(count, 1.0), 0.0)
    shares = op.cast(q, "float64") if isinstance(q, Value) else op.constant(q, "float64")
    is_vector = shares.rank == 1
    exact = op.mul(last, shares if is_vector else op.unsqueeze(shares, [0]))

    def take(op_type: str) -> Value:
        at = op.plain(op.cast(op.unary(op_type, exact), "int64"))
        axis = line.rank - 1
        return op.emit("GatherElements", rising, at, dtype=x.dtype, shape=exact.shape, axis=axis)

    if interpolation in NEAREST:
        found = take(NEAREST[interpolation])
    else:
        low, high = take("Floor"), take("Ceil")
        share = op.cast(op.sub(exact, op.unary("Floor", exact)), x.dtype)
        share = op.constant(0.5, x.dtype) if interpolation == "midpoint" else share
        is_same = op.elementwise("Equal", low, high)  # also both infinite
        found = op.where(is_same, low, op.add(low, op.mul(op.sub(high, low), share)))
    found = op.where(op.elementwise("Equal", count, 0.0), math.nan, found)
    if not is_vector:
        found = op.squeeze(found, [-1])
        return op.unsqueeze(found, axes) if keepdim else found
    found = op.transpose(found, [found.rank - 1, *range(found.rank - 1)])
    return op.unsqueeze(found, [i + 1 for i in axes]) if keepdim else found


# -- running ---------------------------------------------------------------------------------------


@aten("cumsum")
def cumsum(op: Context, self: Value, dim: int, dtype: str | None = None) -> Value:
    """Cumulative sums; of integers in int64."""
    x = op.cast(self, dtype or (self.dtype if kind(self.dtype) == 2 else "int64"))
    if x.rank == 0:
        return x
    return cumulative_sum(op, x, dim)


@aten("cumprod")
def cumprod(op: Context, self: Value, dim: int, dtype: str | None = None) -> Value:
    """Cumulative products; of integers in int64."""
    x = op.cast(self, dtype or (self.dtype if kind(self.dtype) == 2 else "int64"))
    if x.rank == 0:
        return x
    return accumulate(op, op.named(x), dim, op.mul, 1)


def _running(op: Context, which: str, x: Value, dim: int) -> list[Value]:
    """Return the extreme of each element and those before it."""
    if x.rank == 0:
        return [x]
    kinds = np.iinfo(x.dtype) if kind(x.dtype) == 1 else None
    lowest, highest = (kinds.min, kinds.max) if kinds is not None else (-math.inf, math.inf)
    neutral = lowest if which == "Max" else highest
    return [accumulate(op, op.named(x), dim, lambda a, b: op.elementwise(which, a, b), neutral)]


def _running_with_place(op: Context, which: str, x: Value, dim: int) -> list[Value]:
    """Return cumulative extremes, and the index of the last occurrence of each."""
    (found,) = _running(op, which, x, dim)
    if x.rank == 0:
        return [found, op.constant(0, "int64")]
    axis = x.axis(dim)
    others = [i for i in range(x.rank) if i != axis]
    places = op.unsqueeze(op.range(x.shape[axis]), others)
    is_new = op.elementwise("Equal", x, found)
    if x.is_float:
        is_new = op.elementwise("Or", is_new, op.unary("IsNaN", x))
    return [found, *_running(op, "Max", op.where(is_new, places, op.constant(0, "int64")), dim)]


@aten("cummax")
def cummax(op: Context, self: Value, dim: int) -> list[Value]:
    """The cumulative maximum, and the index of its last occurrence."""
    return _running_with_place(op, "Max", self, dim)


@aten("cummin")
def cummin(op: Context, self: Value, dim: int) -> list[Value]:
    """The cumulative minimum, and the index of its last occurrence."""
    return _running_with_place(op, "Min", self, dim)


@aten("logcumsumexp")
def logcumsumexp(op: Context, self: Value, dim: int) -> Value:
    """Logarithms of cumulative sums of exponentials."""
    if self.rank == 0:
        return self
    return accumulate(op, self, dim, lambda a, b: logaddexp(op, a, b), -math.inf)


@aten("diff")
def diff(
    op: Context, self: Value, n: int = 1, dim: int = -1, prepend: Value | None = None,
    append: Value | None = None,
) -> Value:  # fmt: skip
    """Differences of neighbours."""
    if n == 0:
        return op.outer(self)
    parts = [part for part in (prepend, self, append) if part is not None]
    axis = self.axis(dim)
    x = op.named(op.concat(together(op, parts), axis) if len(parts) > 1 else self)
    whole = x.shape[axis]
    for _ in range(min(n, whole) if isinstance(whole, int) else n):
        count = x.shape[axis]
        second, first = op.cut(x, axis, 1, count), op.cut(x, axis, 0, dims.sub(count, 1))
        second = op.shaped(second, first.shape)
        is_bool = x.dtype == "bool"
        apart = op.elementwise("Xor", second, first) if is_bool else op.sub(second, first)
        x = op.shaped(apart, first.shape)
    return x


@aten("bucketize.Tensor", "bucketize.Scalar")
def bucketize(
    op: Context, self: Value | Scalar, boundaries: Value, out_int32: bool = False,
    right: bool = False,
) -> Value:  # fmt: skip
    """The index of the bucket of each element."""
    (x,) = together(op, [self], None if isinstance(self, Value) else boundaries.dtype)
    return _below(op, x, boundaries, out_int32=out_int32, right=right)


@aten("searchsorted.Tensor")
def searchsorted(
    op: Context, sorted_sequence: Value, self: Value, out_int32: bool = False,
    right: bool = False, side: str | None = None, sorter: Value | None = None,
) -> Value:  # fmt: skip
    """The index at which each value would be inserted into a sorted sequence."""
    if sorter is not None:
        sorted_sequence = op.emit("GatherElements", sorted_sequence, sorter,
                                  dtype=sorted_sequence.dtype, shape=sorted_sequence.shape,
                                  axis=sorted_sequence.rank - 1)  # fmt: skip
    if side is not None:
        right = side == "right"
    return _below(op, self, sorted_sequence, out_int32=out_int32, right=right)


def _below(op: Context, x: Value, bounds: Value, *, out_int32: bool, right: bool) -> Value:
    """Return how many bounds are less than each number, or no more."""
    rising, values = together(op, [bounds, x])
    found = ordered.count_before(op, rising, values, or_equal=right)
    return found if out_int32 else op.cast(found, "int64")


@aten("isin.Tensor_Tensor")
def isin(
    op: Context, elements: Value, test_elements: Value, assume_unique: bool = False,
    invert: bool = False,
) -> Value:  # fmt: skip
    """Whether each element is one of the test elements."""
    del assume_unique
    named = op.named(test_elements)
    flat = op.reshape(named, (dims.product(named.shape),))
    some = ordered.is_in(op, *together(op, [elements, flat]))
    return op.unary("Not", some) if invert else some


@aten("unique_consecutive")
def unique_consecutive(
    op: Context, self: Value, return_inverse: bool = False, return_counts: bool = False,
    dim: int | None = None,
) -> list[Value]:  # fmt: skip
    """The first element or slice of each run of equal ones, the run of each, and the lengths."""
    del return_inverse, return_counts
    x = op.named(self)
    axis = 0 if dim is None else x.axis(dim)
    line = op.reshape(x, (dims.product(x.shape),)) if dim is None else op.plain(x)
    count = line.shape[axis]
    ends = [op.slice(line, [axis], [0], [-1]), op.slice(line, [axis], [1], [1 << 62])]
    differs = op.unary("Not", op.elementwise("Equal", *ends))
    if line.rank > 1:
        differs = some(op, differs, [i for i in range(line.rank) if i != axis])
    begins = op.concat([op.constant([True]), differs], 0)
    shape = (*line.shape[:axis], None, *line.shape[axis + 1 :])
    kept = op.emit("Compress", line, begins, dtype=x.dtype, shape=shape, axis=axis)
    steps = op.cast(begins, "int64")
    group = op.sub(cumsum(op, steps, 0), 1)
    total = op.size(kept, axis)
    zeros = op.emit("Expand", op.constant([0], "int64"), total, dtype="int64", shape=(None,))
    ones = op.emit("Expand", op.constant([1], "int64"), op.size(line, axis), dtype="int64",
                   shape=(count,))  # fmt: skip
    counts = scatter_elements(op, zeros, 0, group, ones, "add")
    group = op.shaped(group, (count,))
    return [op.named(kept), op.reshape(group, x.shape) if dim is None else group, counts]


@aten("bincount")
def bincount(op: Context, self: Value, weights: Value | None = None, minlength: int = 0) -> Value:
    """The number of occurrences of each integer."""
    most = op.reduce("ReduceMax", op.cast(self, "int64"), [0], keepdims=True)
    length = op.elementwise("Max", op.add(most, 1), op.constant([minlength], "int64"))
    dtype = "int64" if weights is None else "float32" if weights.dtype == "float32" else "float64"
    return op.named(add_by_index(op, self, length, weights, dtype))


@aten("unique_dim")
def unique_dim(
    op: Context, self: Value, dim: int, sorted: bool = True, return_inverse: bool = False,
    return_counts: bool = False,
) -> list[Value]:  # fmt: skip
    """Distinct slices along an axis, which of them each slice is, and how often they occur."""
    del sorted, return_inverse, return_counts
    x = op.named(self)
    found = ordered.find_unique(op, x, x.axis(dim), in_order=True)
    return [op.named(found.values), op.named(found.inverse), found.counts]


@aten("_unique2")
def unique2(
    op: Context, self: Value, sorted: bool = True, return_inverse: bool = False,
    return_counts: bool = False,
) -> list[Value]:  # fmt: skip
    """Distinct elements in order, the index of each element among them, and their counts."""
    del sorted, return_inverse, return_counts
    x = op.named(self)
    flat = op.reshape(x, (dims.product(x.shape),))
    found = ordered.find_unique(op, flat, in_order=True)
    return [op.named(found.values), op.reshape(found.inverse, x.shape), found.counts]
