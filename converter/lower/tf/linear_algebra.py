"""Linear algebra ops of TensorFlow, including tridiagonal matrices.

Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels/linalg
"""

from converter.lower.known_values import count, size
from converter.lower.ops import linalg, spectra
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node
from converter.lower.tf.products import transpose_if
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value


@tf_op("MatrixInverse")
def matrix_inverse(op: Context, input: Value, /, *, adjoint: bool = False) -> Value:
    """Inverses of matrices, by Gaussian elimination."""
    return linalg.inverse(op, transpose_if(op, input, adjoint))


@tf_op("MatrixSolve")
def matrix_solve(op: Context, matrix: Value, rhs: Value, /, *, adjoint: bool = False) -> Value:
    """Solution x of `matrix @ x = rhs`, by Gaussian elimination."""
    return linalg.solve(op, transpose_if(op, matrix, adjoint), rhs)


@tf_op("MatrixDeterminant")
def matrix_determinant(op: Context, input: Value, /) -> Value:
    """Determinants of matrices."""
    return linalg.determinant(op, input)


@tf_op("LogMatrixDeterminant", outputs=("sign", "log_abs_determinant"))
def log_matrix_determinant(op: Context, input: Value, /) -> list[Value]:
    """Signs of the determinants of matrices, and logarithms of their absolute values."""
    return list(linalg.log_determinant(op, input))


@tf_op("Lu", outputs=("lu", "p"))
def lu(op: Context, input: Value, /, *, node: Node) -> list[Value]:
    """LU decomposition: L and U packed in one matrix, and the row permutation."""
    kind = node.attribute("output_idx_type", "int32")
    found, order, *_ = linalg.factorize(op, linalg.as_matrices(op, input))
    return [op.cast(found, input.dtype), op.cast(order, kind)]


@tf_op("MatrixTriangularSolve")
def matrix_triangular_solve(
    op: Context, matrix: Value, rhs: Value, /, *, lower: bool = True, adjoint: bool = False
) -> Value:
    """Solution x of `matrix @ x = rhs` for triangular matrices, row by row."""
    return linalg.solve_triangular(
        op, transpose_if(op, matrix, adjoint), rhs, lower=lower is not adjoint
    )


@tf_op("Cholesky")
def cholesky(op: Context, input: Value, /) -> Value:
    """Cholesky decomposition: lower triangular L with `L @ transpose(L) = matrix`."""
    return linalg.cholesky(op, input)


@tf_op("Qr", outputs=("q", "r"))
def qr(op: Context, input: Value, /, *, full_matrices: bool = False) -> list[Value]:
    """QR decomposition, by Householder reflections."""
    return list(linalg.qr(op, input, full=full_matrices))


@tf_op("Svd", outputs=("s", "u", "v"))
def svd(
    op: Context, input: Value, /, *, compute_uv: bool = True, full_matrices: bool = False
) -> list[Value]:
    """Singular values of matrices, without singular vectors."""
    del full_matrices
    if compute_uv:
        raise Unsupported("singular vectors, whose signs are TensorFlow's own choice")
    none = op.constant([], input.dtype)
    return [spectra.singular_values(op, input), none, none]


@tf_op("SelfAdjointEigV2", outputs=("e", "v"))
def self_adjoint_eig(op: Context, input: Value, /, *, compute_v: bool = True) -> list[Value]:
    """Eigenvalues of symmetric matrices (lower triangles), without eigenvectors."""
    if compute_v:
        raise Unsupported("eigenvectors, whose signs are TensorFlow's own choice")
    return [spectra.eigenvalues(op, input), op.constant([], input.dtype)]


@tf_op("MatrixSolveLs")
def matrix_solve_ls(
    op: Context, matrix: Value, rhs: Value, l2_regularizer: Value, /, *, fast: bool = True
) -> Value:
    """Least-squares solution x of `matrix @ x = rhs`, by the normal equations."""
    if not fast:
        raise Unsupported("without the normal equations: matrices may be of any rank")
    x, right = linalg.as_matrices(op, matrix), linalg.as_matrices(op, rhs)
    rows, columns = x.shape[-2:]
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise Unsupported("matrices of unknown sizes")
    across = linalg.transpose(op, x)
    is_tall = rows >= columns
    square = op.matmul(across, x) if is_tall else op.matmul(x, across)
    right = op.matmul(across, right) if is_tall else right
    ones = linalg.identity_like(op, square)
    square = op.add(square, op.mul(ones, op.cast(l2_regularizer, x.dtype)))
    both = linalg.eliminate(op, op.concat([op.plain(square), op.plain(right)], -1))
    found = linalg.right_half(op, both, size(op, square, -2).value, right.shape)
    return op.cast(found if is_tall else op.matmul(across, found), rhs.dtype)


# -- tridiagonal matrices --------------------------------------------------------------------------


@tf_op("TridiagonalMatMul")
def tridiagonal_matmul(
    op: Context, superdiag: Value, maindiag: Value, subdiag: Value, rhs: Value, /
) -> Value:
    """Products of tridiagonal matrices, given by their diagonals, and matrices."""
    above, main, below = (linalg.transpose(op, v) for v in (superdiag, maindiag, subdiag))
    result = op.mul(main, rhs)
    result = op.add(result, op.mul(above, _slid(op, rhs, -1)))
    return op.add(result, op.mul(below, _slid(op, rhs, 1)))


def _slid(op: Context, x: Value, distance: int) -> Value:
    """Shift the rows of matrices by one, down (1) or up (-1), and fill with zeros."""
    before, after = [0] * x.rank, [0] * x.rank
    before[-2], after[-2] = distance, -distance
    pads = op.constant([*before, *after], "int64")
    return op.emit("Pad", x, pads, dtype=x.dtype, shape=x.shape)


@tf_op("TridiagonalSolve")
def tridiagonal_solve(
    op: Context, diagonals: Value, rhs: Value, /, *, partial_pivoting: bool = True,
    perturb_singular: bool = False,
) -> Value:  # fmt: skip
    """Solution x of `matrix @ x = rhs` for tridiagonal matrices, by Gaussian elimination."""
    del partial_pivoting  # without it, TensorFlow's result differs by rounding only
    if perturb_singular:
        raise Unsupported("matrices that are made regular")
    wide = linalg.as_matrices(op, diagonals)
    above, main, below = (op.gather(wide, op.constant(i, "int64"), -2) for i in range(3))
    numbers = count(op, size(op, wide, -1)).value
    column, along = op.unsqueeze(numbers, [1]), op.unsqueeze(numbers, [0])
    away = op.sub(along, column)
    parts = [op.unsqueeze(v, [-1]) for v in (above, main, below)]
    matrix = op.where(op.elementwise("Equal", away, 1), parts[0], 0.0)
    for distance, part in ((0, parts[1]), (-1, parts[2])):
        matrix = op.where(op.elementwise("Equal", away, distance), part, matrix)
    both = linalg.eliminate(
        op, op.concat([op.plain(matrix), op.plain(linalg.as_matrices(op, rhs))], -1)
    )
    return op.cast(linalg.right_half(op, both, size(op, wide, -1).value, rhs.shape), rhs.dtype)
