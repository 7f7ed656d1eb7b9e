"""Linear algebra of keras.ops.

Spec: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/ops/linalg.py
"""

from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.operations.operands import as_float, promote
from converter.lower.keras.table import OPERATIONS, Unsupported, operation
from converter.lower.ops import linalg, spectra
from converter.lower.values import Value


@operation(OPERATIONS, "Inv")
def inv(op: Builder, x: Any) -> Value:
    """The inverse of matrices."""
    return linalg.inverse(op, as_float(op, x))


@operation(OPERATIONS, "Det")
def det(op: Builder, x: Any) -> Value:
    """The determinant of matrices."""
    return linalg.determinant(op, as_float(op, x))


@operation(OPERATIONS, "Slogdet")
def slogdet(op: Builder, x: Any) -> list[Value]:
    """The sign of the determinant of matrices, and the logarithm of its absolute value."""
    return list(linalg.log_determinant(op, as_float(op, x)))


@operation(OPERATIONS, "Logdet")
def logdet(op: Builder, x: Any) -> Value:
    """The logarithm of the determinant of positive matrices."""
    return linalg.log_determinant(op, as_float(op, x))[1]


@operation(OPERATIONS, "Cholesky")
def cholesky(op: Builder, x: Any, *, upper: bool = False) -> Value:
    """The Cholesky factor of matrices, the lower or the upper one."""
    found = linalg.cholesky(op, as_float(op, x))
    return linalg.transpose(op, found) if upper else found


@operation(OPERATIONS, "CholeskyInverse")
def cholesky_inverse(op: Builder, x: Any, *, upper: bool = False) -> Value:
    """The inverse of the matrices that have these Cholesky factors."""
    factor = as_float(op, x)
    lower = linalg.transpose(op, factor) if upper else factor
    inverse = linalg.solve_triangular(op, lower, linalg.identity_like(op, lower), lower=True)
    return op.matmul(linalg.transpose(op, inverse), inverse)


@operation(OPERATIONS, "Qr")
def qr(op: Builder, x: Any, *, mode: str = "reduced") -> list[Value]:
    """The QR decomposition of matrices."""
    return list(linalg.qr(op, as_float(op, x), full=mode == "complete"))


@operation(OPERATIONS, "Solve")
def solve(op: Builder, a: Any, b: Any) -> Value:
    """The x for which a @ x is b."""
    left, right = promote(op, a, b, also=("float",))
    if right.rank == left.rank - 1:
        return op.squeeze(linalg.solve(op, left, op.unsqueeze(right, [-1])), [-1])
    return linalg.solve(op, left, right)


@operation(OPERATIONS, "SolveTriangular")
def solve_triangular(op: Builder, a: Any, b: Any, *, lower: bool = False) -> Value:
    """The x for which triangular a @ x is b."""
    left, right = promote(op, a, b, also=("float",))
    if right.rank == left.rank - 1:
        column = op.unsqueeze(right, [-1])
        return op.squeeze(linalg.solve_triangular(op, left, column, lower=lower), [-1])
    return linalg.solve_triangular(op, left, right, lower=lower)


@operation(OPERATIONS, "SVD")
def svd(op: Builder, x: Any, *, full_matrices: bool = True, compute_uv: bool = True) -> Value:
    """The singular values of matrices, without vectors."""
    del full_matrices
    if compute_uv:
        raise Unsupported("singular vectors, whose signs differ between implementations")
    return spectra.singular_values(op, as_float(op, x))
