"""Matrices: construction, products, determinants, inverses, solutions, decompositions.

Spec: https://docs.pytorch.org/docs/2.13/linalg.html
"""

import itertools
from collections.abc import Callable

import numpy as np

from converter.lower import dims
from converter.lower.ops import linalg, spectra
from converter.lower.torch.context import Context
from converter.lower.torch.creation import diag_embed
from converter.lower.torch.linear import product, tensordot
from converter.lower.torch.program_values import Tensors
from converter.lower.torch.promotion import together
from converter.lower.torch.shaping import diagonal
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

SMALLEST = 3  # rows of what has formulas


@aten("diag")
def diag(op: Context, self: Value, diagonal: int = 0) -> Value:
    """A matrix with a vector on a diagonal, or the vector on a matrix's diagonal."""
    if self.rank == 1:
        return diag_embed(op, self, diagonal)
    return _diagonal(op, self, diagonal)


def _diagonal(op: Context, x: Value, offset: int) -> Value:
    return diagonal(op, x, offset)


@aten("diagflat")
def diagflat(op: Context, self: Value, offset: int = 0) -> Value:
    """A matrix with all elements on a diagonal."""
    x = op.named(self)
    return diag_embed(op, op.reshape(x, (dims.product(x.shape),)), offset)


@aten("block_diag")
def block_diag(op: Context, tensors: Tensors) -> Value:
    """Matrices along the diagonal of a larger one, and zeros."""
    parts = together(op, [op.reshape(t, (1,) * (2 - t.rank) + t.shape) for t in tensors])
    widths = [p.shape[1] for p in parts]
    if not all(isinstance(n, int) for n in widths):
        raise Unsupported("blocks of sizes that depend on the inputs")
    known = [int(n) for n in widths if isinstance(n, int)]
    rows = []
    for i, part in enumerate(parts):
        before, after = sum(known[:i]), sum(known[i + 1 :])
        rows.append(op.pad(part, [0, before], [0, after]))
    return op.concat(rows, 0)


@aten("kron")
def kron(op: Context, self: Value, other: Value) -> Value:
    """The Kronecker product."""
    a, b = together(op, [self, other])
    rank = max(a.rank, b.rank)
    a, b = (op.reshape(x, (1,) * (rank - x.rank) + op.named(x).shape) for x in (a, b))
    wide = op.mul(
        op.unsqueeze(a, [2 * i + 1 for i in range(rank)]),
        op.unsqueeze(b, [2 * i for i in range(rank)]),
    )
    return op.reshape(wide, tuple(dims.mul(m, n) for m, n in zip(a.shape, b.shape, strict=True)))


@aten("cartesian_prod")
def cartesian_prod(op: Context, tensors: Tensors) -> Value:
    """All combinations of an element of each vector, as rows."""
    if len(tensors) == 1:
        return tensors[0]
    vectors = [op.named(t) for t in tensors]
    shape = tuple(v.shape[0] for v in vectors)
    columns = []
    for i, v in enumerate(vectors):
        wide = op.reshape(v, (1,) * i + v.shape + (1,) * (len(vectors) - i - 1))
        columns.append(op.reshape(op.expand(wide, shape), (dims.product(shape), 1)))
    return op.concat(columns, 1)


@aten("combinations")
def combinations(op: Context, self: Value, r: int = 2, with_replacement: bool = False) -> Value:
    """All combinations of r elements of a vector, as rows."""
    count = self.shape[0]
    if not isinstance(count, int):
        raise Unsupported("combinations of as many elements as the inputs have")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = np.array(list(choose(range(count), r)), "int64").reshape(-1, r)
    return op.gather(self, op.constant(rows))


@aten("cross", "linalg_cross")
def cross(op: Context, self: Value, other: Value, dim: int | None = None) -> Value:
    """The cross product of vectors of three elements along an axis."""
    a, b = together(op, [self, other])
    if dim is None:  # `cross` takes the first axis that will do, `linalg_cross` the last
        dim = next((i for i, n in enumerate(a.shape) if n == 3), -1)
    return _cross(op, a, b, dim)


def _cross(op: Context, a: Value, b: Value, axis: int) -> Value:
    left, right = ([op.cut(x, axis, i, i + 1) for i in range(3)] for x in (a, b))
    made = [
        op.sub(op.mul(left[i], right[j]), op.mul(left[j], right[i]))
        for i, j in ((1, 2), (2, 0), (0, 1))
    ]
    return op.concat(made, axis)


@aten("inner")
def inner(op: Context, self: Value, other: Value) -> Value:
    """The inner product along the last axes."""
    a, b = together(op, [self, other])
    if not a.rank or not b.rank:
        return op.mul(a, b)
    if a.rank > 2 or b.rank > 2:
        return tensordot(op, a, b, [-1], [-1])
    return product(op, a, b.transposed([1, 0]) if b.rank == 2 else b)


# -- determinants ----------------------------------------------------------------------------------


def _rows(x: Value) -> int:
    """Return how many rows square matrices have; 0 where that is not known.

    Raises:
        Unsupported: They are not square.
    """
    rows, columns = (x.shape[-2], x.shape[-1]) if x.rank > 1 else (1, 0)
    if isinstance(rows, int) and isinstance(columns, int) and rows != columns:
        raise Unsupported(f"matrices of {rows} by {columns}")
    return rows if isinstance(rows, int) else 0


@aten("det")
def det(op: Context, self: Value) -> Value:
    """The determinant."""
    x, count = self, _rows(self)
    if not count or count > SMALLEST:
        return linalg.determinant(op, op.outer(x))
    at = _elements(op, x, count)
    return op.squeeze(_small_det(op, at, count), [-2, -1])


@aten("linalg_det")
def linalg_det(op: Context, A: Value) -> Value:  # noqa: N803 - torch's name
    """The determinant."""
    return det(op, A)


@aten("_linalg_det")
def linalg_det_and_more(op: Context, A: Value) -> list[Value]:  # noqa: N803
    """The determinant; other outputs are for gradients."""
    return [det(op, A)]


def _elements(op: Context, x: Value, count: int) -> list[list[Value]]:
    """Return each element of matrices, as matrices of one."""
    rows = [op.cut(x, -2, i, i + 1) for i in range(count)]
    return [[op.cut(row, -1, j, j + 1) for j in range(count)] for row in rows]


def _minor(op: Context, at: list[list[Value]], rows: list[int], columns: list[int]) -> Value:
    (a, b), (c, d) = rows, columns
    return op.sub(op.mul(at[a][c], at[b][d]), op.mul(at[a][d], at[b][c]))


def _small_det(op: Context, at: list[list[Value]], count: int) -> Value:
    if count == 1:
        return at[0][0]
    if count == 2:
        return _minor(op, at, [0, 1], [0, 1])
    parts = [
        op.mul(at[0][j], _minor(op, at, [1, 2], [k for k in range(3) if k != j])) for j in range(3)
    ]
    return op.add(op.sub(parts[0], parts[1]), parts[2])


@aten("inverse")
def inverse(op: Context, self: Value) -> Value:
    """The inverse of matrices."""
    x, count = self, _rows(self)
    if count == 1:
        return op.unary("Reciprocal", x)
    if not count or count > SMALLEST:
        return linalg.inverse(op, x)
    at = _elements(op, x, count)
    size = _small_det(op, at, count)
    if count == 2:
        found = [[at[1][1], _neg(op, at[0][1])], [_neg(op, at[1][0]), at[0][0]]]
    else:
        found = []
        for i in range(3):
            row = []
            for j in range(3):
                rows, columns = ([k for k in range(3) if k != n] for n in (j, i))
                minor = _minor(op, at, rows, columns)
                row.append(minor if (i + j) % 2 == 0 else _neg(op, minor))
            found.append(row)
    return op.div(op.concat([op.concat(row, -1) for row in found], -2), size)


def _neg(op: Context, x: Value) -> Value:
    return op.unary("Neg", x)


@aten("linalg_inv")
def linalg_inv(op: Context, A: Value) -> Value:  # noqa: N803
    """The inverse of matrices."""
    return inverse(op, A)


def _first_on_diagonal(op: Context, x: Value, is_flaw: Callable[[Value], Value]) -> Value:
    """Return the index of the first flaw on the diagonals of matrices as LAPACK reports it.

    Args:
        op: Builder.
        x: [..., m, n].
        is_flaw: Function that returns of which elements the test is true.

    Returns:
        [...] of int32: the index from 1 on; 0 where there is none.
    """
    if 0 in x.shape:
        return op.filled(op.named(x).shape[:-2], 0, "int32")
    flaws = op.cast(is_flaw(diagonal(op, x, 0, -2, -1)), "int32")
    shape = flaws.shape[:-1]
    first = op.emit("ArgMax", flaws, dtype="int64", shape=shape, axis=-1, keepdims=0)
    return op.mul(op.cast(op.add(first, 1), "int32"), op.reduce("ReduceMax", flaws, [-1]))


def zero_pivot(op: Context, lu: Value) -> Value:
    """Return the index of the first zero on U's diagonal, from 1 on; 0 where there is none."""
    return _first_on_diagonal(op, lu, lambda x: op.elementwise("Equal", x, 0.0))


def _singular_at(op: Context, x: Value) -> Value:
    return zero_pivot(op, linalg.factorize(op, linalg.as_matrices(op, x)).lu)


@aten("linalg_inv_ex")
def inv_ex(op: Context, A: Value, check_errors: bool = False) -> list[Value]:  # noqa: N803
    """The inverse of matrices, and 0, or where they are singular."""
    del check_errors
    return [inverse(op, A), _singular_at(op, A)]


@aten("linalg_solve")
def solve(op: Context, A: Value, B: Value, left: bool = True) -> Value:  # noqa: N803
    """The x for which `A @ x` is B."""
    return solve_ex(op, A, B, left)[0]


@aten("linalg_solve_ex")
def solve_ex(
    op: Context, A: Value, B: Value, left: bool = True, check_errors: bool = False,  # noqa: N803
) -> list[Value]:  # fmt: skip
    """The x for which `A @ x`, or `x @ A`, is B; and 0, or where A is singular."""
    del check_errors
    if not left:
        across = [linalg.transpose(op, x) for x in (A, B)]
        found = linalg.transpose(op, linalg.solve(op, *_broadcast_batches(op, *across)))
        return [found, _singular_at(op, across[0])]
    is_vector = B.rank == 1 or (A.rank == B.rank + 1 and A.shape[:-1] == B.shape)
    right = op.unsqueeze(B, [-1]) if is_vector else B
    made = linalg.solve(op, *_broadcast_batches(op, A, right))
    return [op.squeeze(made, [-1]) if is_vector else made, _singular_at(op, A)]


def _broadcast_batches(op: Context, a: Value, b: Value) -> tuple[Value, Value]:
    """Return matrices with equal leading axes."""
    a, b = op.named(a), op.named(b)
    shape = op.broadcast(a.shape[:-2], b.shape[:-2])
    return op.expand(a, (*shape, *a.shape[-2:])), op.expand(b, (*shape, *b.shape[-2:]))


@aten("_linalg_solve_ex")
def solve_and_factors(
    op: Context, A: Value, B: Value, left: bool = True, check_errors: bool = False,  # noqa: N803
) -> list[Value | Unsupported]:  # fmt: skip
    """The x for which `A @ x` is B; no factors; and 0, or where A is singular."""
    found, info = solve_ex(op, A, B, left, check_errors)
    factors = Unsupported("factors that only gradients need")
    return [found, factors, factors, info]


@aten("slogdet")
def slogdet_of(op: Context, self: Value) -> list[Value]:
    """The sign of the determinant, and the logarithm of its absolute value."""
    return slogdet(op, self)


@aten("linalg_slogdet")
def slogdet(op: Context, A: Value) -> list[Value]:  # noqa: N803
    """The sign of the determinant, and the logarithm of its absolute value."""
    return list(linalg.log_determinant(op, A))


@aten("_linalg_slogdet")
def slogdet_and_more(op: Context, A: Value) -> list[Value]:  # noqa: N803
    """Sign and log-magnitude of the determinant; other outputs are for gradients."""
    return slogdet(op, A)


@aten("logdet")
def logdet(op: Context, self: Value) -> Value:
    """The logarithm of the determinant; NaN of a negative one."""
    sign, size = linalg.log_determinant(op, self)
    return op.where(op.elementwise("Less", sign, 0.0), float("nan"), size)


# -- factors ---------------------------------------------------------------------------------------


@aten("linalg_cholesky", "cholesky")
def cholesky(op: Context, self: Value, upper: bool = False) -> Value:
    """The Cholesky factor of matrices, the lower or the upper one."""
    found = linalg.cholesky(op, self)
    return linalg.transpose(op, found) if upper else found


@aten("linalg_cholesky_ex")
def cholesky_ex(
    op: Context, self: Value, upper: bool = False, check_errors: bool = False
) -> list[Value]:
    """The Cholesky factor of matrices, and 0, or which leading minor is not positive definite."""
    del check_errors
    found = cholesky(op, self, upper)

    def is_flaw(x: Value) -> Value:
        return op.unary("Not", op.elementwise("Greater", x, 0.0))

    return [found, _first_on_diagonal(op, found, is_flaw)]


@aten("cholesky_inverse")
def cholesky_inverse(op: Context, self: Value, upper: bool = False) -> Value:
    """The inverse of matrices, from their Cholesky factors."""
    return cholesky_solve(op, linalg.identity_like(op, self), self, upper)


@aten("cholesky_solve")
def cholesky_solve(op: Context, self: Value, input2: Value, upper: bool = False) -> Value:
    """The x for which `A @ x` is given, from the Cholesky factors of A."""
    lower = linalg.transpose(op, input2) if upper else input2
    half = linalg.solve_triangular(op, lower, self, lower=True)
    return linalg.solve_triangular(op, linalg.transpose(op, lower), half, lower=False)


@aten("linalg_solve_triangular")
def solve_triangular(
    op: Context, self: Value, B: Value, upper: bool, left: bool = True,  # noqa: N803
    unitriangular: bool = False,
) -> Value:  # fmt: skip
    """The x for which `A @ x` is B, for triangular A."""
    matrix = self
    if unitriangular:
        ones = op.cast(linalg.identity_like(op, self), "bool")
        matrix = op.where(ones, 1.0, self)
    if left:
        return linalg.solve_triangular(op, matrix, B, lower=not upper)
    across = [linalg.transpose(op, x) for x in (matrix, B)]
    return linalg.transpose(op, linalg.solve_triangular(op, *across, lower=upper))


@aten("triangular_solve")
def triangular_solve(
    op: Context, self: Value, A: Value, upper: bool = True, transpose: bool = False,  # noqa: N803
    unitriangular: bool = False,
) -> list[Value]:  # fmt: skip
    """The x for which `A @ x` is given, for triangular A; and A."""
    matrix = linalg.transpose(op, A) if transpose else A
    found = solve_triangular(
        op, matrix, self, upper=upper is not transpose, unitriangular=unitriangular
    )
    return [found, A]


@aten("linalg_qr")
def qr(op: Context, A: Value, mode: str = "reduced") -> list[Value]:  # noqa: N803
    """The QR decomposition of matrices; only R where the mode is 'r'."""
    first, second = linalg.qr(op, A, full=mode == "complete")
    return [op.constant(np.zeros(0), A.dtype) if mode == "r" else first, second]


@aten("qr")
def qr_of(op: Context, self: Value, some: bool = True) -> list[Value]:
    """The QR decomposition of matrices."""
    return qr(op, self, "reduced" if some else "complete")


@aten("svd")
def svd_of(
    op: Context, self: Value, some: bool = True, compute_uv: bool = True
) -> list[Value | Unsupported]:
    """The singular values of matrices, without vectors."""
    first, values, second = svd(op, self, not some, compute_uv)
    return [first, values, second]


@aten("linalg_svdvals")
def svdvals(op: Context, A: Value, driver: str | None = None) -> Value:  # noqa: N803
    """The singular values of matrices, in descending order."""
    del driver
    return spectra.singular_values(op, A)


@aten("linalg_svd", "_linalg_svd")
def svd(
    op: Context, A: Value, full_matrices: bool = False, compute_uv: bool = True,  # noqa: N803
    driver: str | None = None,
) -> list[Value | Unsupported]:  # fmt: skip
    """The singular values of matrices, without vectors."""
    del full_matrices, compute_uv, driver
    vectors = Unsupported("singular vectors, whose signs differ between implementations")
    return [vectors, spectra.singular_values(op, A), vectors]


@aten("linalg_eigvalsh")
def eigvalsh(op: Context, self: Value, UPLO: str = "L") -> Value:  # noqa: N803
    """The eigenvalues of symmetric matrices, in ascending order."""
    return spectra.eigenvalues(op, self, lower=UPLO == "L")


@aten("_linalg_eigh")
def eigh(
    op: Context, A: Value, UPLO: str = "L", compute_v: bool = True,  # noqa: N803
) -> list[Value | Unsupported]:  # fmt: skip
    """The eigenvalues of symmetric matrices, without vectors."""
    del compute_v
    vectors = Unsupported("eigenvectors, whose signs differ between implementations")
    return [eigvalsh(op, A, UPLO), vectors]


@aten("linalg_eigh")
def eigh_of(op: Context, self: Value, UPLO: str = "L") -> list[Value | Unsupported]:  # noqa: N803
    """The eigenvalues of symmetric matrices, without vectors."""
    return eigh(op, self, UPLO)
