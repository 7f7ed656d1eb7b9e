"""Sums, means, extremes and the like along axes.

Spec: https://docs.pytorch.org/docs/2.13/torch.html#reduction-ops
"""

from collections.abc import Sequence

from converter.lower import dims
from converter.lower.ops import reduce
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Scalar
from converter.lower.torch.promotion import floating, kind, result_type, together
from converter.lower.torch.shaping import diagonal
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

Axes = int | Sequence[int] | None


def axes_of(x: Value, dim: Axes) -> list[int]:
    """Return axes to reduce over: all of them where none are named."""
    if dim is None or (not isinstance(dim, int) and not list(dim)):
        return list(range(x.rank))
    if x.rank == 0:
        return []
    return [x.axis(n) for n in ([dim] if isinstance(dim, int) else dim)]


def reduce_over(op: Context, op_type: str, x: Value, dim: Axes, *, keepdim: bool) -> Value:
    """Return a reduction by one of ONNX's operators."""
    return reduce.reduce_axes(op, op_type, x, axes_of(x, dim), keepdims=keepdim)


@aten("sum", "sum.dim_IntList")
def total(
    op: Context, self: Value, dim: Axes = None, keepdim: bool = False, dtype: str | None = None
) -> Value:
    """The sum; of integers in int64."""
    to = dtype or (self.dtype if kind(self.dtype) == 2 else "int64")
    return reduce_over(op, "ReduceSum", op.cast(self, to), dim, keepdim=keepdim)


@aten("nansum")
def nansum(
    op: Context, self: Value, dim: Axes = None, keepdim: bool = False, dtype: str | None = None
) -> Value:
    """The sum of elements that are not NaN."""
    x = self
    if kind(x.dtype) == 2:
        x = op.where(op.unary("IsNaN", x), op.constant(0.0, x.dtype), x)
    return total(op, x, dim, keepdim, dtype)


@aten("mean", "mean.dim")
def mean(
    op: Context, self: Value, dim: Axes = None, keepdim: bool = False, dtype: str | None = None
) -> Value:
    """The mean; NaN of no elements."""
    return reduce_over(op, "ReduceMean", op.cast(self, dtype or self.dtype), dim, keepdim=keepdim)


@aten("nanmean")
def nanmean(
    op: Context, self: Value, dim: Axes = None, keepdim: bool = False, dtype: str | None = None
) -> Value:
    """The mean of elements that are not NaN."""
    x = op.cast(self, dtype or self.dtype)
    there = op.cast(op.unary("Not", op.unary("IsNaN", x)), x.dtype)
    return op.div(nansum(op, x, dim, keepdim), total(op, there, dim, keepdim))


@aten("prod")
def prod(op: Context, self: Value, dtype: str | None = None) -> Value:
    """The product of all elements; of integers in int64."""
    to = dtype or (self.dtype if kind(self.dtype) == 2 else "int64")
    return reduce_over(op, "ReduceProd", op.cast(self, to), None, keepdim=False)


@aten("prod.dim_int")
def prod_dim(
    op: Context, self: Value, dim: int, keepdim: bool = False, dtype: str | None = None
) -> Value:
    """The product along an axis; of integers in int64."""
    to = dtype or (self.dtype if kind(self.dtype) == 2 else "int64")
    return reduce_over(op, "ReduceProd", op.cast(self, to), [dim], keepdim=keepdim)


@aten("amax")
def amax(op: Context, self: Value, dim: Axes = (), keepdim: bool = False) -> Value:
    """The maximum over axes."""
    return extreme(op, "Max", self, dim, keepdim=keepdim)


@aten("amin")
def amin(op: Context, self: Value, dim: Axes = (), keepdim: bool = False) -> Value:
    """The minimum over axes."""
    return extreme(op, "Min", self, dim, keepdim=keepdim)


def extreme(op: Context, which: str, x: Value, dim: Axes, *, keepdim: bool) -> Value:
    """Return the largest or smallest elements."""
    return reduce_over(op, f"Reduce{which}", x, dim, keepdim=keepdim)


@aten("aminmax")
def aminmax(op: Context, self: Value, dim: int | None = None, keepdim: bool = False) -> list[Value]:
    """The minimum and the maximum."""
    return [extreme(op, which, self, dim, keepdim=keepdim) for which in ("Min", "Max")]


@aten("max")
def maximum(op: Context, self: Value) -> Value:
    """The maximum of all elements."""
    return extreme(op, "Max", self, None, keepdim=False)


@aten("min")
def minimum(op: Context, self: Value) -> Value:
    """The minimum of all elements."""
    return extreme(op, "Min", self, None, keepdim=False)


def _with_place(op: Context, which: str, x: Value, dim: int, *, keepdim: bool) -> list[Value]:
    if x.rank == 0:
        return [x, op.constant(0, "int64")]
    values = extreme(op, which, x, [dim], keepdim=keepdim)
    return [values, place_of(op, f"Arg{which}", x, dim, keepdim=keepdim)]


@aten("max.dim")
def max_dim(op: Context, self: Value, dim: int, keepdim: bool = False) -> list[Value]:
    """The maximum along an axis, and its index."""
    return _with_place(op, "Max", self, dim, keepdim=keepdim)


@aten("min.dim")
def min_dim(op: Context, self: Value, dim: int, keepdim: bool = False) -> list[Value]:
    """The minimum along an axis, and its index."""
    return _with_place(op, "Min", self, dim, keepdim=keepdim)


def place_of(op: Context, op_type: str, x: Value, dim: int | None, *, keepdim: bool) -> Value:
    """Return the indices of the largest or smallest elements: of the first NaN, or of equals."""
    if x.rank == 0:
        return op.constant(0, "int64")
    if dim is None:
        named = op.named(x)
        flat = op.reshape(named, (dims.product(named.shape),))
        found = place_of(op, op_type, flat, 0, keepdim=False)
        return op.reshape(found, (1,) * x.rank) if keepdim else found
    return reduce.index_of_extreme(op, op_type, op.outer(x), dim, keepdims=keepdim, finds_nan=True)


@aten("argmax")
def argmax(op: Context, self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """The index of the maximum."""
    return place_of(op, "ArgMax", self, dim, keepdim=keepdim)


@aten("argmin")
def argmin(op: Context, self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """The index of the minimum."""
    return place_of(op, "ArgMin", self, dim, keepdim=keepdim)


@aten("any", "any.dim", "any.dims", "_is_any_true")
def some(op: Context, self: Value, dim: Axes = None, keepdim: bool = False) -> Value:
    """Whether any element is true."""
    return _as_torch(op, self, reduce.some(op, self, axes_of(self, dim), keepdims=keepdim))


@aten("all", "all.dim", "all.dims", "_is_all_true")
def every(op: Context, self: Value, dim: Axes = None, keepdim: bool = False) -> Value:
    """Whether all elements are true."""
    return _as_torch(op, self, reduce.every(op, self, axes_of(self, dim), keepdims=keepdim))


def _as_torch(op: Context, x: Value, found: Value) -> Value:
    """Return a truth in the dtype that torch gives it: that of bytes stays."""
    return op.cast(found, "uint8") if x.dtype == "uint8" else found


# -- spread ----------------------------------------------------------------------------------------


def _count(op: Context, x: Value, axes: Sequence[int], dtype: str) -> Value:
    return op.scalar_of(dims.product([op.axis_of(x, a) for a in axes]), dtype)


def variance(
    op: Context, x: Value, dim: Axes, correction: float, *, keepdim: bool
) -> tuple[Value, Value]:
    """Return the variance along axes, and the mean."""
    axes = axes_of(x, dim)
    divisor = None
    if correction != 0:
        less = op.sub(_count(op, x, axes, x.dtype), op.constant(correction, x.dtype))
        divisor = op.elementwise("Max", less, op.constant(0.0, x.dtype))
    mean, found = reduce.moments(op, x, axes, keepdims=keepdim, divisor=divisor)
    return found, mean


def _correction(unbiased: bool | None, correction: Scalar | None) -> float:
    if correction is not None:
        if not isinstance(correction, int | float):
            raise Unsupported("a correction that is computed from the inputs")
        return float(correction)
    return 1.0 if unbiased is None or unbiased else 0.0


@aten("var", "var.dim")
def var(
    op: Context, self: Value, dim: Axes = None, unbiased: bool = True, keepdim: bool = False
) -> Value:
    """The variance."""
    return variance(op, self, dim, _correction(unbiased, None), keepdim=keepdim)[0]


@aten("var.correction")
def var_correction(
    op: Context, self: Value, dim: Axes = None, correction: Scalar | None = None,
    keepdim: bool = False,
) -> Value:  # fmt: skip
    """The variance."""
    return variance(op, self, dim, _correction(None, correction), keepdim=keepdim)[0]


@aten("std", "std.dim")
def std(
    op: Context, self: Value, dim: Axes = None, unbiased: bool = True, keepdim: bool = False
) -> Value:
    """The standard deviation."""
    return op.unary("Sqrt", var(op, self, dim, unbiased, keepdim))


@aten("std.correction")
def std_correction(
    op: Context, self: Value, dim: Axes = None, correction: Scalar | None = None,
    keepdim: bool = False,
) -> Value:  # fmt: skip
    """The standard deviation."""
    return op.unary("Sqrt", var_correction(op, self, dim, correction, keepdim))


@aten("var_mean.correction")
def var_mean_correction(
    op: Context, self: Value, dim: Axes = None, correction: Scalar | None = None,
    keepdim: bool = False,
) -> list[Value]:  # fmt: skip
    """The variance, and the mean."""
    return [*variance(op, self, dim, _correction(None, correction), keepdim=keepdim)]


@aten("var_mean", "var_mean.dim")
def var_mean(
    op: Context, self: Value, dim: Axes = None, unbiased: bool = True, keepdim: bool = False
) -> list[Value]:
    """The variance, and the mean."""
    return [*variance(op, self, dim, _correction(unbiased, None), keepdim=keepdim)]


@aten("std_mean.correction")
def std_mean_correction(
    op: Context, self: Value, dim: Axes = None, correction: Scalar | None = None,
    keepdim: bool = False,
) -> list[Value]:  # fmt: skip
    """The standard deviation, and the mean."""
    found, middle = variance(op, self, dim, _correction(None, correction), keepdim=keepdim)
    return [op.unary("Sqrt", found), middle]


@aten("std_mean", "std_mean.dim")
def std_mean(
    op: Context, self: Value, dim: Axes = None, unbiased: bool = True, keepdim: bool = False
) -> list[Value]:
    """The standard deviation, and the mean."""
    found, middle = variance(op, self, dim, _correction(unbiased, None), keepdim=keepdim)
    return [op.unary("Sqrt", found), middle]


@aten("logsumexp", "special_logsumexp")
def logsumexp(op: Context, self: Value, dim: Axes, keepdim: bool = False) -> Value:
    """The logarithm of the sum of exponentials."""
    x = op.cast(self, floating(self.dtype))
    return reduce.logsumexp(op, x, axes_of(x, dim), keepdims=keepdim)


def norm_of(op: Context, x: Value, p: float, dim: Axes, *, keepdim: bool) -> Value:
    """Return the p-norm along axes."""
    x = op.cast(x, floating(x.dtype))
    return reduce.norm(op, x, p, axes_of(x, dim), keepdims=keepdim)


def _power(p: Scalar | None) -> float:
    if p is None:
        return 2.0
    if not isinstance(p, int | float):
        raise Unsupported("a norm that is computed from the inputs")
    return float(p)


@aten("norm.Scalar")
def norm(op: Context, self: Value, p: Scalar = 2) -> Value:
    """The p-norm of all elements."""
    return norm_of(op, self, _power(p), None, keepdim=False)


@aten("norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype", "norm.ScalarOpt_dtype")
def norm_dim(
    op: Context, self: Value, p: Scalar | None, dim: Axes = None, keepdim: bool = False,
    dtype: str | None = None,
) -> Value:  # fmt: skip
    """The p-norm along axes."""
    x = self if dtype is None else op.cast(self, dtype)
    return norm_of(op, x, _power(p), dim, keepdim=keepdim)


@aten("linalg_vector_norm")
def vector_norm(
    op: Context, self: Value, ord: Scalar = 2, dim: Axes = None, keepdim: bool = False,
    dtype: str | None = None,
) -> Value:  # fmt: skip
    """The p-norm along axes."""
    x = self if dtype is None else op.cast(self, dtype)
    return norm_of(op, x, _power(ord), dim, keepdim=keepdim)


@aten("frobenius_norm.dim")
def frobenius_norm(op: Context, self: Value, dim: Axes, keepdim: bool = False) -> Value:
    """The Euclidean norm along axes."""
    return norm_of(op, self, 2.0, dim, keepdim=keepdim)


@aten("pairwise_distance")
def pairwise_distance(
    op: Context, x1: Value, x2: Value, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Value:
    """The p-norm of differences along the last axis."""
    a, b = together(op, [x1, x2], floating(result_type(x1, x2)))
    return norm_of(op, op.add(op.sub(a, b), eps), p, [-1], keepdim=keepdim)


@aten("cosine_similarity")
def cosine_similarity(op: Context, x1: Value, x2: Value, dim: int = 1, eps: float = 1e-8) -> Value:
    """The cosine similarity of vectors along an axis."""
    first, second = together(op, [x1, x2], floating(result_type(x1, x2)))
    shape = op.broadcast(op.named(first).shape, op.named(second).shape)
    least = op.constant(eps, first.dtype)
    sides = [
        op.div(x, op.elementwise("Max", norm_of(op, x, 2.0, [dim], keepdim=True), least))
        for x in (op.expand(first, shape), op.expand(second, shape))
    ]
    return reduce_over(op, "ReduceSum", op.mul(*sides), [dim], keepdim=False)


@aten("_euclidean_dist")
def euclidean_distance(op: Context, x1: Value, x2: Value) -> Value:
    """Distances between all rows of two matrices."""
    apart = op.sub(op.unsqueeze(x1, [-2]), op.unsqueeze(x2, [-3]))
    return norm_of(op, apart, 2.0, [-1], keepdim=False)


@aten("cdist", "_cdist_forward")
def cdist(
    op: Context, x1: Value, x2: Value, p: float = 2, compute_mode: int | None = None
) -> Value:
    """P-norms of the differences between all rows of two matrices."""
    del compute_mode
    apart = op.sub(op.unsqueeze(x1, [-2]), op.unsqueeze(x2, [-3]))
    return norm_of(op, apart, float(p), [-1], keepdim=False)


@aten("count_nonzero", "count_nonzero.dim_IntList")
def count_nonzero(op: Context, self: Value, dim: Axes = None) -> Value:
    """The number of elements that are not zero."""
    return reduce.count_nonzero(op, self, axes_of(self, dim), "int64")


@aten("trace")
def trace(op: Context, self: Value) -> Value:
    """The sum of a matrix's diagonal."""
    return total(op, diagonal(op, self))


@aten("dist")
def dist(op: Context, self: Value, other: Value, p: Scalar = 2) -> Value:
    """The p-norm of a - b."""
    return norm_of(op, op.sub(self, other), _power(p), None, keepdim=False)
