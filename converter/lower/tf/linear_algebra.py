"""Determinants, inverses, solutions of equations, factors of matrices.

ONNX has but the determinant. The rest is loops over the columns of matrices of any size:
elimination with the largest pivot of each column, which is also how TensorFlow's own kernels
(Eigen's PartialPivLU) go, substitution, Cholesky's factors and Householder's reflections.
Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels/linalg
"""

from collections.abc import Callable, Sequence

from converter.lower.graph import Shape
from converter.lower.tf.context import Context
from converter.lower.tf.diagonals import along_diagonal
from converter.lower.tf.figures import count, size, whole
from converter.lower.tf.graphdef import Node
from converter.lower.tf.loops import loop
from converter.lower.tf.products import turned
from converter.lower.tf.table import Gap, tf_op
from converter.lower.tf.things import Thing
from converter.lower.values import Value

Step = Callable[[Value, list[Value]], list[Value]]

# -- parts of loops --------------------------------------------------------------------------------


def by_columns(op: Context, number: Value, start: Sequence[Value], step: Step) -> list[Value]:
    """Return what a step makes of some values, done for each number from 0 to before another."""

    def condition(things: list[Thing]) -> Thing:
        return op.elementwise("Less", _value(things[0]), number)

    def body(things: list[Thing]) -> list[Thing]:
        at, *values = (_value(t) for t in things)
        return [op.add(at, op.constant(1, "int64")), *step(at, values)]

    zero = op.constant(0, "int64")
    _, *found = loop(op, [zero, *start], condition, body, (), range(1 + len(start)))
    return [_value(t) for t in found]


def _value(thing: Thing) -> Value:
    assert isinstance(thing, Value)
    return thing


def _column(op: Context, x: Value, at: Value) -> Value:
    """Return one column of matrices, as matrices of one column."""
    return op.gather(x, op.unsqueeze(at, [0]), -1)


def _row(op: Context, x: Value, at: Value) -> Value:
    return op.gather(x, op.unsqueeze(at, [0]), -2)


def _rows(op: Context, x: Value) -> tuple[Value, Value]:
    """Return the number of rows of matrices, and the numbers of the rows as a column."""
    number = size(op, x, -2)
    return number.value, count(op, number).column().value


def _there(op: Context, question: str, numbers: Value, at: Value) -> Value:
    return op.elementwise(question, numbers, at)


def _like(op: Context, x: Value, shape: Value, dims: Shape) -> Value:
    return op.emit("Expand", x, shape, dtype=x.dtype, shape=dims)


def _shape(op: Context, x: Value) -> Value:
    return op.emit("Shape", x, dtype="int64", shape=(x.rank,))


def _wide(op: Context, x: Value) -> Value:
    """Return a value in the dtype to compute in."""
    if x.dtype not in ("float16", "float32", "float64", "bfloat16"):
        raise Gap(f"of {x.dtype}")
    return op.cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x


# -- elimination -----------------------------------------------------------------------------------


def _exchanged(op: Context, x: Value, order: Value) -> Value:
    """Return matrices with their rows in another order, which is a column of numbers each."""
    wide = _like(op, order, _shape(op, x), x.shape)
    return op.emit("GatherElements", x, wide, dtype=x.dtype, shape=x.shape, axis=x.rank - 2)


def _pivoted(op: Context, x: Value, numbers: Value, at: Value) -> tuple[Value, Value]:
    """Return an order of rows that brings the largest of a column up, and where that was."""
    column = op.unary("Abs", _column(op, x, at))
    below = _there(op, "GreaterOrEqual", numbers, at)
    column = op.where(below, column, -1.0)
    shape = (*x.shape[:-2], 1, 1)
    largest = op.emit("ArgMax", column, dtype="int64", shape=shape, axis=x.rank - 2, keepdims=1)
    order = op.where(_there(op, "Equal", numbers, largest), at, numbers)
    return op.where(_there(op, "Equal", numbers, at), largest, order), largest


def eliminated(op: Context, x: Value) -> Value:
    """Return matrices, of as many rows as columns or more columns, with ones for the first half.

    Gauss and Jordan: what stands to the right is then multiplied with the inverse of the first.
    """
    number, numbers = _rows(op, x)

    def step(at: Value, values: list[Value]) -> list[Value]:
        (matrix,) = values
        order, _ = _pivoted(op, matrix, numbers, at)
        matrix = _exchanged(op, matrix, order)
        row = _row(op, matrix, at)
        row = op.div(row, _column(op, row, at))
        others = op.sub(matrix, op.mul(_column(op, matrix, at), row))
        return [op.where(_there(op, "Equal", numbers, at), row, others)]

    return by_columns(op, number, [x], step)[0]


def factored(op: Context, x: Value) -> tuple[Value, Value, Value]:
    """Return L and U in one, the order of rows, and 1 or -1: the sign of that order."""
    number, numbers = _rows(op, x)
    shape = op.concat([op.slice(_shape(op, x), [0], [0], [-1]), op.constant([1], "int64")], 0)
    order = _like(op, numbers, shape, (*x.shape[:-1], 1))
    one = op.constant([[1.0]], x.dtype)
    sides = op.concat([op.slice(shape, [0], [0], [-2]), op.constant([1, 1], "int64")], 0)
    sign = _like(op, one, sides, (*x.shape[:-2], 1, 1))

    def step(at: Value, values: list[Value]) -> list[Value]:
        matrix, before, parity = values
        found, largest = _pivoted(op, matrix, numbers, at)
        matrix = _exchanged(op, matrix, found)
        before = _exchanged(op, before, found)
        same = op.elementwise("Equal", largest, at)
        parity = op.where(same, parity, op.unary("Neg", parity))
        row = _row(op, matrix, at)
        pivot = _column(op, row, at)
        safe = op.where(op.elementwise("Equal", pivot, 0.0), 1.0, pivot)
        factors = op.div(_column(op, matrix, at), safe)
        below = _there(op, "Greater", numbers, at)
        right = _there(op, "Greater", op.transpose(numbers, [1, 0]), at)
        both = op.elementwise("And", below, right)
        reduced = op.where(both, op.sub(matrix, op.mul(factors, row)), matrix)
        here = _there(op, "Equal", op.transpose(numbers, [1, 0]), at)
        return [op.where(op.elementwise("And", below, here), factors, reduced), before, parity]

    lu, order, sign = by_columns(op, number, [x, order, sign], step)
    return lu, op.squeeze(order, [-1]), op.squeeze(sign, [-2, -1])


@tf_op("MatrixInverse")
def matrix_inverse(op: Context, input: Value, /, *, adjoint: bool = False) -> Value:
    """The inverses of matrices, by elimination."""
    x = turned(op, _wide(op, input), adjoint)
    number, numbers = _rows(op, x)
    same = op.elementwise("Equal", numbers, op.transpose(numbers, [1, 0]))
    ones = _like(op, op.cast(same, x.dtype), _shape(op, x), x.shape)
    both = eliminated(op, op.concat([op.plain(x), ones], -1))
    return op.cast(_right_half(op, both, number, x.shape), input.dtype)


def _right_half(op: Context, x: Value, number: Value, shape: Shape) -> Value:
    axis = op.constant([x.rank - 1], "int64")
    end = op.constant([1 << 62], "int64")
    return op.emit("Slice", x, op.unsqueeze(number, [0]), end, axis, dtype=x.dtype, shape=shape)


@tf_op("MatrixSolve")
def matrix_solve(op: Context, matrix: Value, rhs: Value, /, *, adjoint: bool = False) -> Value:
    """The x for which matrix @ x is the right-hand side, by elimination."""
    x, right = turned(op, _wide(op, matrix), adjoint), _wide(op, rhs)
    both = eliminated(op, op.concat([op.plain(x), op.plain(right)], -1))
    return op.cast(_right_half(op, both, size(op, x, -2).value, rhs.shape), rhs.dtype)


@tf_op("MatrixDeterminant")
def matrix_determinant(op: Context, input: Value, /) -> Value:
    """The determinants of matrices."""
    if input.dtype != "float64":
        return op.emit("Det", input, dtype=input.dtype, shape=input.shape[:-2])
    lu, _, sign = factored(op, input)
    return op.mul(op.reduce("ReduceProd", along_diagonal(op, lu), [-1]), sign)


@tf_op("LogMatrixDeterminant", outputs=("sign", "log_abs_determinant"))
def log_matrix_determinant(op: Context, input: Value, /) -> list[Value]:
    """The signs of the determinants of matrices, and the logarithms of their sizes."""
    lu, _, sign = factored(op, _wide(op, input))
    pivots = along_diagonal(op, lu)
    sign = op.mul(op.reduce("ReduceProd", op.unary("Sign", pivots), [-1]), sign)
    whole = op.reduce("ReduceSum", op.unary("Log", op.unary("Abs", pivots)), [-1])
    return [op.cast(sign, input.dtype), op.cast(whole, input.dtype)]


@tf_op("Lu", outputs=("lu", "p"))
def lu(op: Context, input: Value, /, *, node: Node) -> list[Value]:
    """L and U in one, and the order in which rows are taken."""
    kind = node.attribute("output_idx_type", "int32")
    found, order, _ = factored(op, _wide(op, input))
    return [op.cast(found, input.dtype), op.cast(order, kind)]


# -- triangles -------------------------------------------------------------------------------------


@tf_op("MatrixTriangularSolve")
def matrix_triangular_solve(
    op: Context, matrix: Value, rhs: Value, /, *, lower: bool = True, adjoint: bool = False
) -> Value:
    """The x for which a triangular matrix @ x is the right-hand side, row by row."""
    x, right = turned(op, _wide(op, matrix), adjoint), _wide(op, rhs)
    number, numbers = _rows(op, x)
    from_above = lower is not adjoint
    if x.shape[:-2] != right.shape[:-2]:
        # A zero for each row of all the matrices, so that the answer has their shape.
        same = op.elementwise("Equal", _column(op, x, op.constant(0, "int64")), 0.0)
        none = op.elementwise("And", same, op.unary("Not", same))
        right = op.where(none, 0.0, right)
    start = op.sub(right, right)
    last = op.sub(number, op.constant(1, "int64"))

    def step(at: Value, values: list[Value]) -> list[Value]:
        (found,) = values
        at = at if from_above else op.sub(last, at)
        row = _row(op, x, at)
        rest = op.sub(_row(op, right, at), op.matmul(row, found))
        here = op.div(rest, _column(op, row, at))
        return [op.where(_there(op, "Equal", numbers, at), here, found)]

    return op.cast(by_columns(op, number, [start], step)[0], rhs.dtype)


@tf_op("Cholesky")
def cholesky(op: Context, input: Value, /) -> Value:
    """The lower triangles that, times themselves transposed, are the matrices."""
    x = op.plain(_wide(op, input))
    number, numbers = _rows(op, x)

    def step(at: Value, values: list[Value]) -> list[Value]:
        rest, factor = values
        column = _column(op, rest, at)
        pivot = op.unary("Sqrt", _row(op, column, at))
        below = _there(op, "GreaterOrEqual", numbers, at)
        column = op.where(below, op.div(column, pivot), 0.0)
        rest = op.sub(rest, op.matmul(column, turned(op, column, is_turned=True)))
        here = _there(op, "Equal", op.transpose(numbers, [1, 0]), at)
        return [rest, op.where(here, column, factor)]

    return op.cast(by_columns(op, number, [x, op.sub(x, x)], step)[1], input.dtype)


# -- bands -----------------------------------------------------------------------------------------


@tf_op("TridiagonalMatMul")
def tridiagonal_matmul(
    op: Context, superdiag: Value, maindiag: Value, subdiag: Value, rhs: Value, /
) -> Value:
    """The products of matrices of three diagonals, a row each, with others."""
    above, main, below = (turned(op, v, is_turned=True) for v in (superdiag, maindiag, subdiag))
    result = op.mul(main, rhs)
    result = op.add(result, op.mul(above, _slid(op, rhs, -1)))
    return op.add(result, op.mul(below, _slid(op, rhs, 1)))


def _slid(op: Context, x: Value, distance: int) -> Value:
    """Return matrices with their rows one further down or up, and zeros in the free one."""
    before, after = [0] * x.rank, [0] * x.rank
    before[-2], after[-2] = distance, -distance
    pads = op.constant([*before, *after], "int64")
    return op.emit("Pad", x, pads, dtype=x.dtype, shape=x.shape)


@tf_op("TridiagonalSolve")
def tridiagonal_solve(
    op: Context, diagonals: Value, rhs: Value, /, *, partial_pivoting: bool = True,
    perturb_singular: bool = False,
) -> Value:  # fmt: skip
    """The x for which a matrix of three diagonals @ x is the right-hand side, by elimination."""
    del partial_pivoting  # without, TensorFlow's answer is the same but for rounding
    if perturb_singular:
        raise Gap("matrices that are made regular")
    wide = _wide(op, diagonals)
    above, main, below = (op.gather(wide, op.constant(i, "int64"), -2) for i in range(3))
    numbers = count(op, size(op, wide, -1)).value
    column, along = op.unsqueeze(numbers, [1]), op.unsqueeze(numbers, [0])
    away = op.sub(along, column)
    parts = [op.unsqueeze(v, [-1]) for v in (above, main, below)]
    matrix = op.where(op.elementwise("Equal", away, 1), parts[0], 0.0)
    for distance, part in ((0, parts[1]), (-1, parts[2])):
        matrix = op.where(op.elementwise("Equal", away, distance), part, matrix)
    both = eliminated(op, op.concat([op.plain(matrix), op.plain(_wide(op, rhs))], -1))
    return op.cast(_right_half(op, both, size(op, wide, -1).value, rhs.shape), rhs.dtype)


# -- reflections -----------------------------------------------------------------------------------


@tf_op("Qr", outputs=("q", "r"))
def qr(op: Context, input: Value, /, *, full_matrices: bool = False) -> list[Value]:
    """Orthogonal matrices and upper triangles whose products the matrices are, by reflections.

    A column is reflected to the side where its first element is not, as Eigen and LAPACK do.
    """
    x = op.plain(_wide(op, input))
    rows, columns = size(op, x, -2), size(op, x, -1)
    numbers = count(op, rows).column().value
    same = op.elementwise("Equal", numbers, op.transpose(numbers, [1, 0]))
    square = op.matmul(op.mul(x, 0.0), turned(op, x, is_turned=True))
    start = op.where(same, 1.0, op.mul(square, 0.0))

    def step(at: Value, values: list[Value]) -> list[Value]:
        matrix, whole = values
        column = _column(op, matrix, at)
        below = op.where(_there(op, "Greater", numbers, at), column, 0.0)
        first = _row(op, column, at)
        rest = op.reduce("ReduceSum", op.mul(below, below), [-2], keepdims=True)
        is_done = op.elementwise("Equal", rest, 0.0)
        length = op.unary("Sqrt", op.add(op.mul(first, first), rest))
        side = op.elementwise("GreaterOrEqual", first, 0.0)
        beta = op.where(side, op.unary("Neg", length), length)
        beta = op.where(is_done, 1.0, beta)
        away = op.div(below, op.where(is_done, 1.0, op.sub(first, beta)))
        away = op.where(_there(op, "Equal", numbers, at), 1.0, away)
        tau = op.where(is_done, 0.0, op.div(op.sub(beta, first), beta))
        across = turned(op, away, is_turned=True)
        matrix = op.sub(matrix, op.mul(tau, op.mul(away, op.matmul(across, matrix))))
        whole = op.sub(whole, op.mul(tau, op.mul(op.matmul(whole, away), across)))
        return [matrix, whole]

    least = rows.least(columns)
    triangle, whole = by_columns(op, least.value, [x, start], step)
    triangle = op.emit("Trilu", triangle, dtype=x.dtype, shape=x.shape, upper=1)
    if not full_matrices:
        side = None if least.known is None else int(least.known)
        whole = _first(op, whole, least.value, whole.rank - 1, (*whole.shape[:-1], side))
        triangle = _first(op, triangle, least.value, x.rank - 2, (*x.shape[:-2], side, x.shape[-1]))
    return [op.cast(whole, input.dtype), op.cast(triangle, input.dtype)]


def _first(op: Context, x: Value, number: Value, axis: int, shape: Shape) -> Value:
    """Return the first elements along an axis."""
    start, where = op.constant([0], "int64"), op.constant([axis], "int64")
    end = op.unsqueeze(number, [0])
    return op.emit("Slice", x, start, end, where, dtype=x.dtype, shape=shape)


@tf_op("MatrixSolveLs")
def matrix_solve_ls(
    op: Context, matrix: Value, rhs: Value, l2_regularizer: Value, /, *, fast: bool = True
) -> Value:
    """The x for which matrix @ x is nearest to the right-hand side, by the normal equations."""
    if not fast:
        raise Gap("without the normal equations: matrices may be of any rank")
    x, right = _wide(op, matrix), _wide(op, rhs)
    rows, columns = x.shape[-2:]
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise Gap("matrices of unknown sizes")
    across = turned(op, x, is_turned=True)
    is_tall = rows >= columns
    square = op.matmul(across, x) if is_tall else op.matmul(x, across)
    right = op.matmul(across, right) if is_tall else right
    _, numbers = _rows(op, square)
    same = op.elementwise("Equal", numbers, op.transpose(numbers, [1, 0]))
    square = op.add(square, op.mul(op.cast(same, x.dtype), op.cast(l2_regularizer, x.dtype)))
    both = eliminated(op, op.concat([op.plain(square), op.plain(right)], -1))
    found = _right_half(op, both, size(op, square, -2).value, right.shape)
    return op.cast(found if is_tall else op.matmul(across, found), rhs.dtype)


# -- singular values -------------------------------------------------------------------------------

SWEEPS = 14  # over all pairs of columns; each about squares what is left


def _singular_values(op: Context, x: Value) -> Value:
    """Return the singular values of matrices of float64, the largest first.

    One-sided Jacobi: pairs of columns are turned until all are at right angles. Half of the columns
    meet the other half at once, and then each but the first moves on one seat.
    """
    columns, own = x.shape[-1], size(op, x, -1)
    if not isinstance(columns, int):
        x, half = op.concat([x, op.mul(x, 0.0)], -1), own
    else:
        half = whole(op, (columns + 1) // 2)
        if columns % 2:
            x = op.concat([x, op.mul(op.gather(x, op.constant([0], "int64"), -1), 0.0)], -1)
    total = size(op, x, -1)
    seat = count(op, total)
    top = (seat <= 0).choose(seat, (seat <= 1).choose(half, seat - 1))
    bottom = (seat < total - 1).choose(seat + 1, (half - 1).most(1))
    order = (seat < half).choose(top, bottom).value

    def step(at: Value, values: list[Value]) -> list[Value]:
        del at
        (matrix,) = values
        start, end = op.constant([0], "int64"), op.unsqueeze(half.value, [0])
        axis, last = op.constant([matrix.rank - 1], "int64"), op.constant([1 << 62], "int64")
        dims = (*matrix.shape[:-1], None)
        left = op.emit("Slice", matrix, start, end, axis, dtype=matrix.dtype, shape=dims)
        right = op.emit("Slice", matrix, end, last, axis, dtype=matrix.dtype, shape=dims)
        powers = [
            op.reduce("ReduceSum", op.mul(a, b), [-2], keepdims=True)
            for a, b in ((left, left), (right, right), (left, right))
        ]
        done = op.elementwise("Equal", powers[2], 0.0)
        both = op.mul(op.where(done, 1.0, powers[2]), 2.0)
        ratio = op.div(op.sub(powers[1], powers[0]), both)
        side = op.where(op.elementwise("Less", ratio, 0.0), -1.0, op.constant(1.0, "float64"))
        root = op.unary("Sqrt", op.add(op.mul(ratio, ratio), 1.0))
        tangent = op.div(side, op.add(op.unary("Abs", ratio), root))
        tangent = op.where(done, 0.0, tangent)
        cosine = op.unary("Reciprocal", op.unary("Sqrt", op.add(op.mul(tangent, tangent), 1.0)))
        sine = op.mul(cosine, tangent)
        turned_left = op.sub(op.mul(cosine, left), op.mul(sine, right))
        turned_right = op.add(op.mul(sine, left), op.mul(cosine, right))
        joined = op.concat([turned_left, turned_right], -1)
        moved = op.gather(joined, order, -1)
        return [Value(moved.name, moved.dtype, matrix.shape, moved.stored)]

    rounds = (total - 1) * SWEEPS
    found = by_columns(op, rounds.value, [x], step)[0]
    lengths = op.unary("Sqrt", op.reduce("ReduceSum", op.mul(found, found), [-2]))
    kept = size(op, x, -2).least(own)
    last_size = None if kept.known is None else int(kept.known)
    shape = (*x.shape[:-2], last_size)
    values, _ = op.node(
        "TopK", [lengths, op.unsqueeze(kept.value, [0])], [("float64", shape), ("int64", shape)],
        attributes={"axis": x.rank - 2, "largest": 1, "sorted": 1},
    )  # fmt: skip
    return values


@tf_op("Svd", outputs=("s", "u", "v"))
def svd(
    op: Context, input: Value, /, *, compute_uv: bool = True, full_matrices: bool = False
) -> list[Value]:
    """The singular values of matrices, without vectors."""
    del full_matrices
    if compute_uv:
        raise Gap("singular vectors, whose signs are TensorFlow's own choice")
    values = op.cast(_singular_values(op, op.plain(op.cast(input, "float64"))), input.dtype)
    none = op.constant([], input.dtype)
    return [values, none, none]


@tf_op("SelfAdjointEigV2", outputs=("e", "v"))
def self_adjoint_eig(op: Context, input: Value, /, *, compute_v: bool = True) -> list[Value]:
    """The eigenvalues of symmetric matrices (of the lower triangle), without vectors."""
    if compute_v:
        raise Gap("eigenvectors, whose signs are TensorFlow's own choice")
    x = op.plain(op.cast(input, "float64"))
    _, numbers = _rows(op, x)
    along = op.transpose(numbers, [1, 0])
    x = op.where(_there(op, "GreaterOrEqual", numbers, along), x, turned(op, x, is_turned=True))
    # With its length on the diagonal no eigenvalue is negative: they are the singular values.
    length = op.unary("Sqrt", op.reduce("ReduceSum", op.mul(x, x), [-2, -1], keepdims=True))
    shifted = op.add(x, op.where(_there(op, "Equal", numbers, along), length, 0.0))
    found = op.sub(_singular_values(op, shifted), op.squeeze(length, [-1]))
    back = op.slice(found, [-1], [-1], [-(1 << 62)], [-1])
    return [op.cast(back, input.dtype), op.constant([], input.dtype)]
