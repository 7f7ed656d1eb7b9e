"""Statistics, integrals, differences and powers, which torch composes of other operations.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native, the functions' names
"""

import math
from collections.abc import Sequence

import numpy as np

from converter.lower import dims
from converter.lower.ops import linalg
from converter.lower.ops import sort as ordered
from converter.lower.ops.elementwise import is_negative
from converter.lower.ops.scatter import scatter_elements
from converter.lower.repeat import repeat
from converter.lower.torch.arithmetic import div, mul
from converter.lower.torch.context import Context
from converter.lower.torch.creation import linspace
from converter.lower.torch.linear import product
from converter.lower.torch.matrices import inverse, svdvals
from converter.lower.torch.ordering import cumprod, cumsum
from converter.lower.torch.program_values import Int, Ints, Scalar
from converter.lower.torch.promotion import floating, kind, result_type, together
from converter.lower.torch.reductions import Axes, amax, amin, axes_of, norm_of, total
from converter.lower.torch.shaping import diagonal, swap_axes
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


@aten("copysign.Tensor", "copysign.Scalar")
def copysign(op: Context, self: Value, other: Value | Scalar) -> Value:
    """The absolute value of the first, with the sign of the second."""
    a, b = together(op, [self, other], floating(result_type(self, other)))
    size = op.unary("Abs", a)
    return op.where(is_negative(op, b), op.unary("Neg", size), size)


@aten("isreal")
def isreal(op: Context, self: Value) -> Value:
    """True, for real tensors."""
    return op.elementwise(
        "Equal", zeros := op.mul(op.cast(op.cast(self, "bool"), "int32"), 0), zeros
    )


@aten("sum_to_size")
def sum_to_size(op: Context, self: Value, size: Ints) -> Value:
    """Sums over the axes along which this shape would be broadcast."""
    lead = self.rank - len(size)
    shape = op.named(self).shape
    inner = [i for i, n in enumerate(size) if n == 1 and shape[lead + i] != 1]
    axes = [*range(lead), *(lead + i for i in inner)]
    if not axes:
        return op.outer(self)
    dtype = self.dtype if kind(self.dtype) else "int64"
    found = op.reduce("ReduceSum", op.cast(self, dtype), axes, keepdims=True)
    return op.squeeze(found, list(range(lead))) if lead else found


# -- greatest common divisors ----------------------------------------------------------------------

MOST_DIVISIONS = 92  # of Euclid's algorithm, for 64 bits: those of neighbouring Fibonacci numbers


def _gcd(op: Context, a: Value, b: Value) -> Value:
    zero = op.constant(0, a.dtype)
    shape = op.named(op.add(a, b)).shape
    first = [op.expand(op.unary("Abs", x), shape) for x in (a, b)]

    def divide(number: Value, values: list[Value]) -> list[Value]:
        del number
        x, y = values
        done = op.elementwise("Equal", y, zero)
        divisor = op.where(done, op.constant(1, a.dtype), y)
        rest = op.where(done, zero, op.elementwise("Mod", x, divisor))
        return [op.where(done, x, y), rest]

    return repeat(op, op.constant(MOST_DIVISIONS, "int64"), first, divide)[0]


@aten("gcd")
def gcd(op: Context, self: Value, other: Value) -> Value:
    """The greatest common divisor."""
    return _gcd(op, *together(op, [self, other]))


@aten("lcm")
def lcm(op: Context, self: Value, other: Value) -> Value:
    """The least common multiple."""
    a, b = together(op, [self, other])
    common = _gcd(op, a, b)
    none = op.elementwise("Equal", common, op.constant(0, a.dtype))
    one = op.where(none, op.constant(1, a.dtype), common)
    return op.unary("Abs", op.mul(op.div(a, one), b))


# -- integrals and differences ---------------------------------------------------------------------


def _halves(op: Context, x: Value, axis: int) -> tuple[Value, Value]:
    """Return all but the last and all but the first elements along an axis."""
    count = op.named(x).shape[axis]
    left = op.cut(op.named(x), axis, 0, dims.sub(count, 1))
    return left, op.shaped(op.cut(op.named(x), axis, 1, count), left.shape)


def _widths(op: Context, x: Value, y: Value, axis: int) -> Value:
    """Return the distances of points, which may lie along one axis of y alone."""
    if x.rank == 1 and y.rank > 1:
        x = op.reshape(x, tuple(op.named(x).shape[0] if i == axis else 1 for i in range(y.rank)))
    elif x.rank < y.rank:
        x = op.unsqueeze(x, list(range(y.rank - x.rank)))
    left, right = _halves(op, x, axis)
    return op.sub(right, left)


def _areas(op: Context, y: Value, widths: Value | Scalar, axis: int) -> Value:
    """Return twice the areas between neighbours."""
    left, right = _halves(op, y, axis)
    return mul(op, op.add(left, right), widths)


@aten("trapezoid.dx", "trapz.dx")
def trapezoid(op: Context, y: Value, dx: Scalar = 1, dim: int = -1) -> Value:
    """The integral by the trapezoidal rule, with equal steps."""
    return div(op, mul(op, total(op, _areas(op, y, 1, y.axis(dim)), [dim]), dx), 2.0)


@aten("trapezoid.x", "trapz.x")
def trapezoid_of_points(op: Context, y: Value, x: Value, dim: int = -1) -> Value:
    """The integral by the trapezoidal rule, at given points."""
    axis = y.axis(dim)
    return div(op, total(op, _areas(op, y, _widths(op, x, y, axis), axis), [dim]), 2.0)


@aten("cumulative_trapezoid.dx")
def cumulative_trapezoid(op: Context, y: Value, dx: Scalar = 1, dim: int = -1) -> Value:
    """The cumulative integral by the trapezoidal rule, with equal steps."""
    return div(op, mul(op, cumsum(op, _areas(op, y, 1, y.axis(dim)), dim), dx), 2.0)


@aten("cumulative_trapezoid.x")
def cumulative_trapezoid_of_points(op: Context, y: Value, x: Value, dim: int = -1) -> Value:
    """The cumulative integral by the trapezoidal rule, at given points."""
    axis = y.axis(dim)
    return div(op, cumsum(op, _areas(op, y, _widths(op, x, y, axis), axis), dim), 2.0)


# -- statistics ------------------------------------------------------------------------------------


@aten("cov")
def cov(
    op: Context, self: Value, correction: int = 1, fweights: Value | None = None,
    aweights: Value | None = None,
) -> Value:  # fmt: skip
    """The covariance matrix of rows; columns are observations."""
    x = op.cast(self, floating(self.dtype))
    x = op.reshape(x, (1, op.named(x).shape[0] if x.rank else 1)) if x.rank < 2 else op.named(x)
    weights = [op.cast(w, x.dtype) for w in (fweights, aweights) if w is not None]
    if weights:
        weight = weights[0] if len(weights) == 1 else op.mul(*weights)
        whole = total(op, weight)
        mean = op.div(op.reduce("ReduceSum", op.mul(x, weight), [1], keepdims=True), whole)
    else:
        weight, whole = None, op.scalar_of(x.shape[1], x.dtype)
        mean = op.reduce("ReduceMean", x, [1], keepdims=True)
    less: Value | float = float(correction)
    if aweights is not None and weight is not None and correction:
        squares = total(op, op.mul(weight, op.cast(aweights, x.dtype)))
        less = op.div(op.mul(squares, float(correction)), whole)
    count = op.elementwise("Max", op.sub(whole, less), op.constant(0, x.dtype))
    centred = op.sub(x, mean)
    other = centred if weight is None else op.mul(centred, weight)
    found = op.div(product(op, centred, swap_axes(other, 0, 1)), count)
    return op.reshape(found, ()) if x.shape[0] == 1 else found


@aten("corrcoef")
def corrcoef(op: Context, self: Value) -> Value:
    """The correlation coefficients of rows."""
    found = cov(op, self)
    if found.rank == 0:
        return op.div(found, found)
    deviation = op.unary("Sqrt", diagonal(op, found))
    found = op.div(op.div(found, op.unsqueeze(deviation, [1])), op.unsqueeze(deviation, [0]))
    return op.clip(found, -1.0, 1.0)


@aten("renorm")
def renorm(op: Context, self: Value, p: Scalar, dim: int, maxnorm: Scalar) -> Value:
    """Slices along an axis, scaled down to a largest p-norm."""
    if not isinstance(p, int | float) or not isinstance(maxnorm, int | float):
        raise Unsupported("bounds that are computed from the inputs")
    axes = [i for i in range(self.rank) if i != self.axis(dim)]
    norm = norm_of(op, self, float(p), axes, keepdim=True)
    most = op.constant(maxnorm, norm.dtype)
    scale = op.div(most, op.add(norm, 1e-7))
    larger = op.elementwise("Greater", norm, most)
    return op.mul(self, op.where(larger, scale, op.constant(1, norm.dtype)))


@aten("pdist", "_pdist_forward")
def pdist(op: Context, self: Value, p: float = 2.0) -> Value:
    """The p-norms of the differences of all pairs of rows."""
    count = op.named(self).shape[0]
    if not isinstance(count, int):
        raise Unsupported("pairs of as many rows as the inputs have")
    first, second = (op.constant(at, "int64") for at in np.triu_indices(count, 1))
    return norm_of(
        op, op.sub(op.gather(self, first), op.gather(self, second)), p, [-1], keepdim=False
    )


@aten("mode")
def mode(
    op: Context, self: Value, dim: int = -1, keepdim: bool = False
) -> list[Value | Unsupported]:
    """The most frequent element along an axis, the smallest of several."""
    place = Unsupported("where the most frequent element is: torch may name any of its places")
    if self.rank == 0:
        return [op.outer(self), place]
    axis = self.axis(dim)
    x = swap_axes(op.named(self), axis, self.rank - 1)
    same = op.elementwise("Equal", op.unsqueeze(x, [-1]), op.unsqueeze(x, [-2]))
    counts = op.reduce("ReduceSum", op.cast(same, "int64"), [-1])
    most = op.elementwise("Equal", counts, op.reduce("ReduceMax", counts, [-1], keepdims=True))
    largest = amax(op, x, [-1], keepdim=True)
    found = amin(op, op.where(most, x, largest), [-1], keepdim=True)
    found = swap_axes(found, axis, self.rank - 1)
    return [found if keepdim else op.squeeze(found, [axis]), place]


@aten("histc")
def histc(op: Context, self: Value, bins: int = 100, min: Scalar = 0, max: Scalar = 0) -> Value:
    """The histogram of a range with equal bins."""
    if not isinstance(min, int | float) or not isinstance(max, int | float):
        raise Unsupported("bounds that are computed from the inputs")
    if kind(self.dtype) != 2:
        raise Unsupported(f"histograms of {self.dtype}")
    x = op.named(self)
    x = op.reshape(x, (dims.product(x.shape),))
    low, high = (op.constant(float(n), x.dtype) for n in (min, max))
    if min == max:
        low, high = amin(op, x), amax(op, x)
        same = op.elementwise("Equal", low, high)
        low = op.where(same, op.sub(low, 1.0), low)
        high = op.where(same, op.add(high, 1.0), high)
    inside = op.elementwise("And", op.elementwise("GreaterOrEqual", x, low),
                            op.elementwise("LessOrEqual", x, high))  # fmt: skip
    part = op.div(op.mul(op.sub(x, low), float(bins)), op.sub(high, low))
    part = op.where(inside, op.unary("Floor", part), op.constant(0, x.dtype))
    index = op.elementwise("Min", op.cast(part, "int64"), op.constant(bins - 1, "int64"))
    zeros = op.constant(np.zeros(bins), x.dtype)
    return scatter_elements(op, zeros, 0, index, op.cast(inside, x.dtype), "add")


@aten("histogram.bin_ct")
def histogram(
    op: Context, self: Value, bins: int = 100, range: Sequence[float] | None = None,
    weight: Value | None = None, density: bool = False,
) -> list[Value]:  # fmt: skip
    """How many elements, or how much of their weight, lie between equally spaced edges."""
    x = op.named(self)
    x = op.reshape(x, (dims.product(x.shape),))
    bounds = (0.0, 1.0) if x.shape == (0,) else range
    low, high = (amin(op, x), amax(op, x)) if bounds is None else (
        op.constant(float(n), x.dtype) for n in bounds)  # fmt: skip
    same = op.elementwise("Equal", low, high)
    low, high = op.where(same, op.sub(low, 0.5), low), op.where(same, op.add(high, 0.5), high)
    edges = linspace(op, low, high, bins + 1, x.dtype)
    after = ordered.count_before(op, edges, x, or_equal=True)
    index = op.sub(op.elementwise("Min", after, op.constant(bins, after.dtype)), 1)
    inside = op.elementwise("And", op.elementwise("GreaterOrEqual", x, low),
                            op.elementwise("LessOrEqual", x, high))  # fmt: skip
    counts = op.cast(inside, x.dtype)
    if weight is not None:
        counts = op.mul(counts, op.reshape(weight, op.named(x).shape))
    index = op.cast(op.where(inside, index, op.constant(0, index.dtype)), "int64")
    made = scatter_elements(op, op.constant(np.zeros(bins), x.dtype), 0, index, counts, "add")
    if density:
        widths = op.sub(op.cut(edges, 0, 1, bins + 1), op.cut(edges, 0, 0, bins))
        made = op.div(op.div(made, op.reduce("ReduceSum", made, [0])), widths)
    return [made, edges]


# -- powers and norms of matrices ------------------------------------------------------------------


def _vander(op: Context, x: Value, count: Int | None) -> Value:
    x = op.named(op.cast(x, result_type(x, op.constant([0], "int64"))))
    columns = x.shape[-1] if count is None else count
    if not isinstance(columns, int):
        raise Unsupported("as many powers as the inputs have elements")
    ones = op.filled((*x.shape, 1), 1, x.dtype)
    if columns < 2:
        return op.cut(ones, -1, 0, columns)
    wide = op.expand(op.unsqueeze(x, [-1]), (*x.shape, columns - 1))
    return op.concat([ones, cumprod(op, wide, -1)], -1)


@aten("vander")
def vander(op: Context, x: Value, N: int | None = None, increasing: bool = False) -> Value:  # noqa: N803
    """Powers of each element as columns, in descending order."""
    found = _vander(op, x, N)
    if increasing:
        return found
    columns = found.shape[-1]
    assert isinstance(columns, int)
    return op.gather(found, op.constant(np.arange(columns)[::-1].copy(), "int64"), 1)


@aten("linalg_vander")
def linalg_vander(op: Context, x: Value, N: int | None = None) -> Value:  # noqa: N803
    """Powers of each element as columns, in ascending order."""
    return _vander(op, op.reshape(x, (1,)) if x.rank == 0 else x, N)


@aten("matrix_power", "linalg_matrix_power")
def matrix_power(op: Context, self: Value, n: int) -> Value:
    """A power of matrices; of their inverses if the exponent is negative."""
    if n == 0:
        return linalg.identity_like(op, self)
    x = inverse(op, self) if n < 0 else op.outer(self)
    found = None
    left = abs(n)
    while left:
        if left % 2:
            found = x if found is None else product(op, found, x)
        left //= 2
        x = product(op, x, x) if left else x
    assert found is not None
    return found


def _matrix_norm(op: Context, x: Value, ord: str | float, dim: Axes, *, keepdim: bool) -> Value:
    first, second = axes_of(x, dim)
    x = op.cast(x, floating(x.dtype))
    if ord == "fro":
        return norm_of(op, x, 2.0, [first, second], keepdim=keepdim)
    if 0 in (x.shape[first], x.shape[second]):  # torch refuses norms by the least of nothing
        kept = [1 if i in (first, second) else n for i, n in enumerate(x.shape)]
        none = op.filled(kept, 0.0, x.dtype)
        return none if keepdim else op.squeeze(none, sorted((first, second)))
    if ord in ("nuc", 2, -2):
        order = [i for i in range(x.rank) if i not in (first, second)] + [first, second]
        values = svdvals(op, op.plain(x.transposed(order)))
        found = {"nuc": total, 2: amax, -2: amin}[ord](op, values, [-1])
        return op.unsqueeze(found, sorted((first, second))) if keepdim else found
    if ord in (1, -1, math.inf, -math.inf):
        over, rest = (first, second) if abs(float(ord)) == 1 else (second, first)
        sums = total(op, op.unary("Abs", x), [over], keepdim=True)
        found = (amax if float(ord) > 0 else amin)(op, sums, [rest], keepdim=True)
        return found if keepdim else op.squeeze(found, [first, second])
    raise Unsupported(f"a matrix's norm of {ord!r}")


@aten("linalg_matrix_norm", "linalg_matrix_norm.str_ord")
def matrix_norm(
    op: Context, self: Value, ord: Scalar | str = "fro", dim: Sequence[int] = (-2, -1),
    keepdim: bool = False, dtype: str | None = None,
) -> Value:  # fmt: skip
    """A norm of matrices, by name or order."""
    if not isinstance(ord, str | int | float):
        raise Unsupported("a norm that is computed from the inputs")
    return _matrix_norm(op, op.cast(self, dtype or self.dtype), ord, dim, keepdim=keepdim)


@aten("linalg_norm", "linalg_norm.ord_str")
def linalg_norm(
    op: Context, self: Value, ord: Scalar | str | None = None, dim: Axes = None,
    keepdim: bool = False, dtype: str | None = None,
) -> Value:  # fmt: skip
    """A norm of vectors, or of matrices by name or order."""
    if ord is not None and not isinstance(ord, str | int | float):
        raise Unsupported("a norm that is computed from the inputs")
    x, axes = op.cast(self, dtype or self.dtype), axes_of(self, dim)
    if ord is None or not (isinstance(ord, str) or len(axes) == 2):
        return norm_of(op, x, 2.0 if ord is None else float(ord), dim, keepdim=keepdim)
    return _matrix_norm(op, x, ord, dim, keepdim=keepdim)


@aten("linalg_cond", "linalg_cond.p_str")
def linalg_cond(op: Context, self: Value, p: Scalar | str | None = None) -> Value:
    """The condition number of matrices."""
    if p is None or p in (2, -2):
        values = svdvals(op, self)
        largest, smallest = amax(op, values, [-1]), amin(op, values, [-1])
        return op.div(smallest, largest) if p == -2 else op.div(largest, smallest)
    sides = [matrix_norm(op, x, p) for x in (self, inverse(op, self))]
    return op.mul(*sides)


@aten("nuclear_norm", "nuclear_norm.dim")
def nuclear_norm(
    op: Context, self: Value, dim: Sequence[int] = (-2, -1), keepdim: bool = False
) -> Value:
    """The nuclear norm of matrices."""
    return _matrix_norm(op, self, "nuc", dim, keepdim=keepdim)


@aten("linalg_diagonal")
def linalg_diagonal(
    op: Context, A: Value, offset: int = 0, dim1: int = -2, dim2: int = -1,  # noqa: N803
) -> Value:  # fmt: skip
    """The diagonals of matrices."""
    return diagonal(op, A, offset, dim1, dim2)
