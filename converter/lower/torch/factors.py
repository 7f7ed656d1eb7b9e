"""Factors of matrices and what is computed by them: LU, pseudoinverses, ranks, least squares.

Spec: https://docs.pytorch.org/docs/2.13/linalg.html
"""

from collections.abc import Sequence

import numpy as np

from converter.lower.dims import product
from converter.lower.graph import Dim
from converter.lower.known_values import count, size
from converter.lower.ops import linalg, spectra
from converter.lower.torch.context import Context
from converter.lower.torch.matrices import inverse, zero_pivot
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

# ruff: noqa: N803 - the schemas name matrices with capital letters

Tolerance = Value | float | None


# -- LU --------------------------------------------------------------------------------------------


def _indices(op: Context, x: Value) -> tuple[Value, Value]:
    """Return the indices of the rows of matrices, as a column, and of the columns, as a row."""
    return count(op, size(op, x, -2)).column().value, count(op, size(op, x, -1)).value


@aten("linalg_lu_factor_ex")
def lu_factor_ex(
    op: Context, A: Value, pivot: bool = True, check_errors: bool = False
) -> list[Value]:
    """L and U in one matrix, the pivots, and the index of the first zero on U's diagonal."""
    del check_errors
    if not pivot:
        raise Unsupported("factors without pivots")
    found = linalg.factorize(op, linalg.as_matrices(op, A))
    pivots = op.cast(op.add(found.pivots, 1), "int32")
    return [op.cast(found.lu, A.dtype), pivots, zero_pivot(op, found.lu)]


@aten("_lu_with_info")
def lu_with_info(
    op: Context, self: Value, pivot: bool = True, check_errors: bool = True
) -> list[Value]:
    """L and U in one matrix, the pivots, and the index of the first zero on U's diagonal."""
    return lu_factor_ex(op, self, pivot, check_errors)


@aten("linalg_lu_factor")
def lu_factor(op: Context, A: Value, pivot: bool = True) -> list[Value]:
    """L and U in one matrix, and the pivots."""
    return lu_factor_ex(op, A, pivot)[:2]


def _smaller(x: Value) -> Dim:
    rows, columns = x.shape[-2:]
    if rows == columns:
        return rows
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise Unsupported("factors of matrices that may have more rows or more columns")
    return min(rows, columns)


def _split(op: Context, lu: Value) -> tuple[Value, Value]:
    """Return L and U of both in one matrix."""
    least = _smaller(lu)
    lower, upper = op.cut(lu, -1, 0, least), op.cut(lu, -2, 0, least)
    rows, columns = _indices(op, lower)
    lower = op.where(op.elementwise("Greater", rows, columns), lower, 0.0)
    lower = op.where(op.elementwise("Equal", rows, columns), 1.0, lower)
    rows, columns = _indices(op, upper)
    return lower, op.where(op.elementwise("LessOrEqual", rows, columns), upper, 0.0)


@aten("linalg_lu")
def lu(op: Context, A: Value, pivot: bool = True) -> list[Value]:
    """P, L and U, with the matrices as their product."""
    if not pivot:
        raise Unsupported("factors without pivots")
    x = op.named(linalg.as_matrices(op, A))
    found = linalg.factorize(op, x)
    parts = (linalg.permutation_matrix(op, found.order, x.dtype), *_split(op, found.lu))
    return [op.cast(part, A.dtype) for part in parts]


def _order(op: Context, lu: Value, pivots: Value) -> Value:
    return linalg.follow_pivots(op, lu, op.sub(op.cast(pivots, "int64"), 1))


@aten("lu_unpack")
def lu_unpack(
    op: Context, LU_data: Value, LU_pivots: Value, unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> list[Value | Unsupported]:  # fmt: skip
    """P, L and U from the outputs of `lu_factor`."""
    x = op.named(LU_data)
    empty = Unsupported("a factor that was not asked for")
    order = _order(op, x, LU_pivots) if unpack_pivots else None
    first = empty if order is None else linalg.permutation_matrix(op, order, x.dtype)
    return [first, *(_split(op, x) if unpack_data else (empty, empty))]


@aten("linalg_lu_solve")
def lu_solve(
    op: Context, LU: Value, pivots: Value, B: Value, left: bool = True, adjoint: bool = False
) -> Value:
    """The x for which `A @ x` is B, of the factors of A; or `x @ A`, or with A transposed."""
    if not left:
        across = lu_solve(op, LU, pivots, linalg.transpose(op, B), adjoint=not adjoint)
        return linalg.transpose(op, across)
    lower, upper = _split(op, op.named(LU))
    permutation = linalg.permutation_matrix(op, _order(op, LU, pivots), LU.dtype)
    if adjoint:
        half = linalg.solve_triangular(op, linalg.transpose(op, upper), B, lower=True)
        found = linalg.solve_triangular(op, linalg.transpose(op, lower), half, lower=False)
        return op.matmul(permutation, found)
    half = op.matmul(linalg.transpose(op, permutation), B)
    half = linalg.solve_triangular(op, lower, half, lower=True)
    return linalg.solve_triangular(op, upper, half, lower=False)


@aten("lu_solve")
def lu_solve_of(op: Context, self: Value, LU_data: Value, LU_pivots: Value) -> Value:
    """The x for which `A @ x` are these matrices, of the factors of A."""
    return lu_solve(op, LU_data, LU_pivots, self)


# -- singular values -------------------------------------------------------------------------------


def _tolerances(op: Context, x: Value, atol: Tolerance, rtol: Tolerance) -> tuple[Value, Value]:
    """Return the absolute and the relative tolerance, [...] or scalars of float64.

    By default these are 0 and the dtype's epsilon times the larger side; with an absolute one that
    is not 0, the relative one is 0 by default.
    """

    def value(given: Value | float) -> Value:
        if isinstance(given, Value):
            return op.cast(given, "float64")
        return op.constant(float(given), "float64")

    absolute = value(0.0 if atol is None else atol)
    if rtol is not None:
        return absolute, value(rtol)
    side = size(op, x, -2).most(size(op, x, -1)).to("float64")
    relative = (side * float(np.finfo(x.dtype).eps)).value
    if atol is not None:
        given = op.elementwise("Greater", absolute, 0.0)
        relative = op.where(given, op.constant(0.0, "float64"), relative)
    return absolute, relative


def _beside(op: Context, tolerance: Value, axes: int) -> Value:
    return op.unsqueeze(tolerance, list(range(-axes, 0))) if tolerance.rank else tolerance


def _symmetric(op: Context, x: Value) -> Value:
    """Return the symmetric matrices that have these lower triangles."""
    rows, columns = _indices(op, x)
    is_given = op.elementwise("GreaterOrEqual", rows, columns)
    return op.where(is_given, x, linalg.transpose(op, x))


@aten("linalg_pinv.atol_rtol_tensor", "linalg_pinv.atol_rtol_float")
def pinv(
    op: Context, self: Value, atol: Value | float | None = None,
    rtol: Value | float | None = None, hermitian: bool = False,
) -> Value:  # fmt: skip
    """The Moore-Penrose inverse of matrices."""
    tolerances = (_beside(op, t, 2) for t in _tolerances(op, self, atol, rtol))
    return spectra.pseudo_inverse(op, _symmetric(op, self) if hermitian else self, *tolerances)


@aten("linalg_pinv", "linalg_pinv.rcond_tensor", "pinverse")
def pinv_of_rcond(
    op: Context, self: Value, rcond: Value | float = 1e-15, hermitian: bool = False
) -> Value:
    """The Moore-Penrose inverse of matrices, with a relative tolerance."""
    return pinv(op, self, 0.0, rcond, hermitian)


def _rank(op: Context, x: Value, atol: Tolerance, rtol: Tolerance, *, is_symmetric: bool) -> Value:
    x = _symmetric(op, x) if is_symmetric else x
    values = op.cast(spectra.singular_values(op, x), "float64")
    absolute, relative = (_beside(op, t, 1) for t in _tolerances(op, x, atol, rtol))
    cutoff = spectra.cutoff(op, values, absolute, relative)
    is_large = op.elementwise("Greater", values, cutoff)
    return op.reduce("ReduceSum", op.cast(is_large, "int64"), [-1])


@aten("linalg_matrix_rank.atol_rtol_float")
def matrix_rank(
    op: Context, self: Value, atol: float | None = None, rtol: float | None = None,
    hermitian: bool = False,
) -> Value:  # fmt: skip
    """The number of singular values that are larger than a tolerance."""
    return _rank(op, self, atol, rtol, is_symmetric=hermitian)


@aten("linalg_matrix_rank.atol_rtol_tensor")
def matrix_rank_of_tensors(
    op: Context, input: Value, atol: Value | None = None, rtol: Value | None = None,
    hermitian: bool = False,
) -> Value:  # fmt: skip
    """The number of singular values that are larger than a tolerance."""
    return _rank(op, input, atol, rtol, is_symmetric=hermitian)


@aten("linalg_matrix_rank")
def matrix_rank_of_number(op: Context, self: Value, tol: float, hermitian: bool = False) -> Value:
    """The number of singular values that are larger than a tolerance."""
    return _rank(op, self, tol, 0.0, is_symmetric=hermitian)


@aten("linalg_matrix_rank.tol_tensor")
def matrix_rank_of_tensor(op: Context, input: Value, tol: Value, hermitian: bool = False) -> Value:
    """The number of singular values that are larger than a tolerance."""
    return _rank(op, input, tol, 0.0, is_symmetric=hermitian)


@aten("linalg_lstsq")
def lstsq(
    op: Context, self: Value, b: Value, rcond: float | None = None, driver: str | None = None
) -> list[Value | Unsupported]:
    """The least-squares solution of least norm; residuals, ranks and singular values.

    Which of the others a driver computes is torch's on the CPU: what it does not is empty.
    """
    driver = driver or "gelsy"
    if driver == "gelsy" and rcond is not None:  # it cuts off another factor than singular values
        raise Unsupported("rcond of least squares by the driver gelsy; gelsd has it, too")
    is_vector = b.rank == 1 or (self.rank == b.rank + 1 and self.shape[:-1] == b.shape)
    right = op.unsqueeze(b, [-1]) if is_vector else b
    atol = None if rcond is None else 0.0
    found = op.matmul(pinv(op, self, atol, rcond), right)
    x = op.squeeze(found, [-1]) if is_vector else found
    residuals: Value | Unsupported = op.constant(np.zeros(0), self.dtype)
    ranks, values = op.constant(np.zeros(0), "int64"), residuals
    if driver != "gels":
        ranks = _rank(op, self, atol, rcond, is_symmetric=False)
    if driver in ("gelsd", "gelss"):
        values = spectra.singular_values(op, self)
    if driver != "gelsy":
        residuals = _residuals(op, self, found, right, None if driver == "gels" else ranks)
    return [x, residuals, ranks, values]


def _residuals(
    op: Context, a: Value, x: Value, b: Value, ranks: Value | None
) -> Value | Unsupported:
    """Return the squared residuals of `a @ x = b`: none but of more equations than unknowns.

    Args:
        op: Builder.
        a: [..., m, n].
        x: [..., n, k].
        b: [..., m, k].
        ranks: Those of `a`; None where they are taken to be n.
    """
    rows, columns = a.shape[-2:]
    if not isinstance(rows, int) or not isinstance(columns, int):
        return Unsupported("residuals of matrices of dynamic sizes")
    if rows <= columns:
        return op.constant(np.zeros(0), a.dtype)
    apart = op.sub(op.matmul(a, x), b)
    found = op.reduce("ReduceSum", op.mul(apart, apart), [-2])
    if ranks is None:
        return found
    if ranks.rank:
        return Unsupported("residuals of several matrices, which torch gives if all ranks are full")
    is_full = op.cast(op.elementwise("Equal", ranks, columns), "int64")
    start, axis = op.constant([0], "int64"), op.constant([0], "int64")
    count = op.mul(op.reshape(is_full, (1,)), op.size(found, 0))
    inputs = [op.plain(found), start, count, axis]
    return op.node("Slice", inputs, [(found.dtype, (None,))])[0]


# -- others ----------------------------------------------------------------------------------------


@aten("matrix_exp", "linalg_matrix_exp")
def matrix_exp(op: Context, self: Value) -> Value:
    """The exponential of square matrices."""
    return linalg.exponential(op, self)


@aten("linalg_tensorinv")
def tensorinv(op: Context, self: Value, ind: int = 2) -> Value:
    """The inverse of a tensor taken as a matrix from its last axes to its first ones."""
    x = op.named(self)
    first, last = x.shape[:ind], x.shape[ind:]
    matrix = op.reshape(x, (product(first), product(last)))
    return op.reshape(inverse(op, op.named(matrix)), (*last, *first))


@aten("linalg_tensorsolve")
def tensorsolve(
    op: Context, self: Value, other: Value, dims: Sequence[int] | None = None,
) -> Value:  # fmt: skip
    """The x for which the product of a tensor with it, over the axes of x, is another tensor."""
    x, right = op.named(self), op.named(other)
    if dims is not None:
        moved = [x.axis(n) for n in dims]
        x = x.transposed([*(i for i in range(x.rank) if i not in moved), *moved])
    rows = product(right.shape)
    matrix = op.reshape(x, (rows, product(x.shape[right.rank :])))
    found = linalg.solve(op, matrix, op.reshape(right, (rows, 1)))
    return op.reshape(found, x.shape[right.rank :])
