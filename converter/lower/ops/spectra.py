"""Singular values of matrices of any size, and what follows from them: inverses and eigenvalues.

ONNX has none of it. One-sided Jacobi rotations make the columns of matrices orthogonal, in float64;
their lengths are the singular values.
Literature: Golub and Van Loan, Matrix Computations, 4th edition, section 8.6.
"""

from converter.lower.builder import Builder
from converter.lower.known_values import count, size, whole
from converter.lower.ops.linalg import as_matrices, identity_like, transpose
from converter.lower.repeat import repeat
from converter.lower.values import Value

SWEEPS = 14  # over all pairs of columns; each one about squares the error


def _orthogonalize(op: Builder, x: Value, rows: Value | None = None) -> Value:
    """Rotate the columns of float64 matrices until those of the leading rows are orthogonal.

    One-sided Jacobi: each step pairs one half of the columns with the other, as in a round-robin
    tournament; the first column stays. Columns of zeros are added until their number is even.

    Args:
        op: Builder.
        x: [..., m, n].
        rows: Number of leading rows, a vector of one element; all by default.
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
        heads = [v if rows is None else _leading_rows(op, v, rows) for v in (left, right)]
        powers = [
            op.reduce("ReduceSum", op.mul(heads[i], heads[j]), [-2], keepdims=True)
            for i, j in ((0, 0), (1, 1), (0, 1))
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
    return repeat(op, rounds.value, [x], step)[0]


def _leading_rows(op: Builder, x: Value, rows: Value) -> Value:
    start, axis = op.constant([0], "int64"), op.constant([x.rank - 2], "int64")
    shape = (*x.shape[:-2], None, x.shape[-1])
    return op.emit("Slice", x, start, rows, axis, dtype=x.dtype, shape=shape)


def _column_norms(op: Builder, x: Value) -> Value:
    return op.unary("Sqrt", op.reduce("ReduceSum", op.mul(x, x), [-2]))


def _singular_values(op: Builder, x: Value) -> Value:
    """Return the singular values of matrices of float64, the largest first."""
    lengths = _column_norms(op, _orthogonalize(op, x))
    kept = size(op, x, -2).least(size(op, x, -1))
    last_size = None if kept.known is None else int(kept.known)
    shape = (*x.shape[:-2], last_size)
    values, _ = op.node(
        "TopK", [lengths, op.unsqueeze(kept.value, [0])], [("float64", shape), ("int64", shape)],
        attributes={"axis": x.rank - 2, "largest": 1, "sorted": 1},
    )  # fmt: skip
    return values


def singular_values(op: Builder, matrices: Value) -> Value:
    """Return the singular values of matrices, in descending order."""
    found = _singular_values(op, op.plain(op.cast(as_matrices(op, matrices), "float64")))
    return op.cast(found, matrices.dtype)


def pseudo_inverse(op: Builder, matrices: Value, atol: Value, rtol: Value) -> Value:
    """Return the Moore-Penrose inverses of matrices [..., m, n], as [..., n, m].

    Args:
        op: Builder.
        matrices: The matrices.
        atol: Singular values up to this (float64) are taken as zero.
        rtol: So are those up to this fraction (float64) of the largest one.
    """
    x = op.plain(op.cast(as_matrices(op, matrices), "float64"))
    square = op.matmul(transpose(op, x), x)
    rows = op.size(x, x.rank - 2)
    # The leading rows become U @ S, those below V.
    both = _orthogonalize(op, op.concat([x, identity_like(op, square)], -2), rows)
    left = _leading_rows(op, both, rows)
    right = op.emit("Slice", both, rows, op.constant([1 << 62], "int64"),
                    op.constant([x.rank - 2], "int64"), dtype=x.dtype,
                    shape=(*x.shape[:-2], x.shape[-1], both.shape[-1]))  # fmt: skip
    values = op.unsqueeze(_column_norms(op, left), [-2])
    large = op.elementwise("Greater", values, cutoff(op, values, atol, rtol))
    power = op.where(large, op.mul(values, values), 1.0)
    scaled = op.div(op.where(large, right, 0.0), power)
    return op.cast(op.matmul(scaled, transpose(op, left)), matrices.dtype)


def cutoff(op: Builder, values: Value, atol: Value, rtol: Value) -> Value:
    """Return the largest singular value, along the last axis, that is taken as zero."""
    largest = op.reduce("ReduceMax", values, [-1], keepdims=True)
    return op.elementwise("Max", atol, op.mul(rtol, largest))


def eigenvalues(op: Builder, matrices: Value, *, lower: bool = True) -> Value:
    """Return the eigenvalues of symmetric matrices in ascending order; reads only one triangle."""
    x = op.plain(op.cast(as_matrices(op, matrices), "float64"))
    numbers = count(op, size(op, x, -2)).column().value
    along = op.transpose(numbers, [1, 0])
    given = "GreaterOrEqual" if lower else "LessOrEqual"
    x = op.where(op.elementwise(given, numbers, along), x, transpose(op, x))
    # Adding the Frobenius norm to the diagonal makes eigenvalues non-negative: singular values.
    length = op.unary("Sqrt", op.reduce("ReduceSum", op.mul(x, x), [-2, -1], keepdims=True))
    shifted = op.add(x, op.where(op.elementwise("Equal", numbers, along), length, 0.0))
    found = op.sub(_singular_values(op, shifted), op.squeeze(length, [-1]))
    return op.cast(op.slice(found, [-1], [-1], [-(1 << 62)], [-1]), matrices.dtype)
