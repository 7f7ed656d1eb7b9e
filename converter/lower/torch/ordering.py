"""Order: the largest, sorted elements, and cumulative sums."""

import math

import numpy as np

from converter.lower import dims
from converter.lower.graph import Dim
from converter.lower.known_values import real
from converter.lower.ops import sort as ordered
from converter.lower.ops.cumulative import accumulate, cumulative_sum
from converter.lower.ops.elementwise import logaddexp
from converter.lower.ops.scatter import scatter_elements
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Int, Scalar, integer
from converter.lower.torch.promotion import kind, together
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


def _top(op: Context, x: Value, k: Int, dim: int, *, largest: bool, in_order: bool) -> list[Value]:
    if x.rank == 0:
        return [x, op.constant(0, "int64")]
    found = ordered.top_k(
        op, op.outer(x), dim, k, op.vector([k]), largest=largest, in_order=in_order
    )
    return [*found]


@aten("topk")
def topk(
    op: Context, self: Value, k: Int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list[Value]:
    """The largest or smallest elements, and where they are."""
    return _top(op, self, k, dim, largest=largest, in_order=sorted)


@aten("sort")
def sort(op: Context, self: Value, dim: int = -1, descending: bool = False) -> list[Value]:
    """Elements in order, and where they were."""
    return sort_stable(op, self, None, dim, descending)


@aten("sort.stable")
def sort_stable(
    op: Context, self: Value, stable: bool | None, dim: int = -1, descending: bool = False
) -> list[Value]:
    """Elements in order, equal ones in that they had, and where they were."""
    del stable
    x = op.named(self)
    if x.rank == 0:
        return [x, op.constant(0, "int64")]
    return _top(op, x, integer(op.axis_of(x, dim)), dim, largest=descending, in_order=True)


@aten("argsort")
def argsort(op: Context, self: Value, dim: int = -1, descending: bool = False) -> Value:
    """Where elements in order were."""
    return sort(op, self, dim, descending)[1]


@aten("argsort.stable")
def argsort_stable(
    op: Context, self: Value, stable: bool, dim: int = -1, descending: bool = False
) -> Value:
    """Where elements in order were."""
    return sort_stable(op, self, stable, dim, descending)[1]


@aten("msort")
def msort(op: Context, self: Value) -> Value:
    """Elements in order along the first axis."""
    return sort(op, self, 0)[0]


@aten("kthvalue")
def kthvalue(op: Context, self: Value, k: Int, dim: int = -1, keepdim: bool = False) -> list[Value]:
    """The k-th smallest element, and where it is."""
    if self.rank == 0:
        return [self, op.constant(0, "int64")]
    values = _top(op, self, k, dim, largest=False, in_order=True)
    return [_last(op, v, dim, k, keepdim=keepdim) for v in values]


def _last(op: Context, x: Value, dim: int, count: Dim, *, keepdim: bool) -> Value:
    """Return the last of so many elements of an axis."""
    cut = op.cut(x, x.axis(dim), dims.sub(count, 1), count)
    return cut if keepdim else op.squeeze(cut, [dim])


@aten("median.dim")
def median_dim(op: Context, self: Value, dim: int, keepdim: bool = False) -> list[Value]:
    """The middle element, of two the smaller one, and where it is."""
    n = op.axis_of(self, dim) if self.rank else 1
    return kthvalue(op, self, integer(op.floordiv(dims.add(n, 1), 2)), dim, keepdim)


@aten("median")
def median(op: Context, self: Value) -> Value:
    """The middle element of all, of two the smaller one."""
    x = op.named(self)
    return median_dim(op, op.reshape(x, (dims.product(x.shape),)), 0)[0]


@aten("quantile", "quantile.scalar")
def quantile(
    op: Context, self: Value, q: Value | float, dim: int | None = None, keepdim: bool = False,
    interpolation: str = "linear",
) -> Value:  # fmt: skip
    """Numbers below which are these shares of the elements."""
    shares = real(op, q, "float64")
    x = op.named(self)
    axes = list(range(x.rank)) if dim is None else [x.axis(dim)] if x.rank else []
    if not axes:
        x, axes = op.reshape(x, (1,)), [0]
    return ordered.quantile(op, x, shares, axes, method=interpolation, keepdims=keepdim)


# -- running ---------------------------------------------------------------------------------------


@aten("cumsum")
def cumsum(op: Context, self: Value, dim: int, dtype: str | None = None) -> Value:
    """Running sums; of integers as int64."""
    x = op.cast(self, dtype or (self.dtype if kind(self.dtype) == 2 else "int64"))
    if x.rank == 0:
        return x
    return cumulative_sum(op, x, dim)


@aten("cumprod")
def cumprod(op: Context, self: Value, dim: int, dtype: str | None = None) -> Value:
    """Running products; of integers as int64."""
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
    """Return running extremes, and the last place of each so far."""
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
    """The largest so far, and where the last of them is."""
    return _running_with_place(op, "Max", self, dim)


@aten("cummin")
def cummin(op: Context, self: Value, dim: int) -> list[Value]:
    """The smallest so far, and where the last of them is."""
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
    """Between which bounds numbers are."""
    (x,) = together(op, [self], None if isinstance(self, Value) else boundaries.dtype)
    return _below(op, x, boundaries, out_int32=out_int32, right=right)


@aten("searchsorted.Tensor")
def searchsorted(
    op: Context, sorted_sequence: Value, self: Value, out_int32: bool = False,
    right: bool = False, side: str | None = None, sorter: Value | None = None,
) -> Value:  # fmt: skip
    """Where numbers would stand among sorted ones."""
    if sorter is not None:
        raise Unsupported("a sequence that is sorted by another")
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
    """Whether elements are among others."""
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
    """Elements that differ from the one before them, which one each belongs to, and how often."""
    del return_inverse, return_counts
    if dim is not None and self.rank != 1:
        raise Unsupported("runs of slices")
    x = op.named(self)
    count = dims.product(x.shape)
    flat = op.reshape(x, (count,))
    ends = [op.slice(flat, [0], [0], [-1]), op.slice(flat, [0], [1], [1 << 62])]
    differs = op.unary("Not", op.elementwise("Equal", *ends))
    begins = op.concat([op.constant([True]), differs], 0)
    kept = op.emit("Compress", flat, begins, dtype=x.dtype, shape=(None,), axis=0)
    steps = op.cast(begins, "int64")
    group = op.sub(cumsum(op, steps, 0), 1)
    total = op.size(kept, 0)
    zeros = op.emit("Expand", op.constant([0], "int64"), total, dtype="int64", shape=kept.shape)
    ones = op.emit("Expand", op.constant([1], "int64"), op.size(flat, 0), dtype="int64",
                   shape=(count,))  # fmt: skip
    counts = scatter_elements(op, zeros, 0, group, ones, "add")
    return [op.named(kept), op.reshape(op.shaped(group, (count,)), x.shape), counts]


@aten("bincount")
def bincount(op: Context, self: Value, weights: Value | None = None, minlength: int = 0) -> Value:
    """How often each number occurs."""
    most = op.node("ReduceMax", [op.cast(self, "int64"), op.constant([0], "int64")],
                   [("int64", (1,))], attributes={"keepdims": 1})[0]  # fmt: skip
    length = op.elementwise("Max", op.add(most, 1), op.constant([minlength], "int64"))
    dtype = "int64" if weights is None else "float32" if weights.dtype == "float32" else "float64"
    zero = op.constant([0], dtype)
    zeros = op.emit("Expand", zero, length, dtype=dtype, shape=(None,))
    given = op.emit("Expand", op.constant([1], dtype), op.size(self, 0), dtype=dtype,
                    shape=self.shape) if weights is None else op.cast(weights, dtype)  # fmt: skip
    made = scatter_elements(op, zeros, 0, op.cast(self, "int64"), given, "add")
    return op.named(made)


@aten("_unique2")
def unique2(
    op: Context, self: Value, sorted: bool = True, return_inverse: bool = False,
    return_counts: bool = False,
) -> list[Value]:  # fmt: skip
    """Elements that differ, where each is among them, and how often; torch sorts them always."""
    del sorted, return_inverse, return_counts
    x = op.named(self)
    count = dims.product(x.shape)
    flat = op.reshape(x, (count,))
    found, which, many = ordered.find_unique(op, flat, in_order=True)
    return [op.named(found), op.reshape(which, x.shape), many]
