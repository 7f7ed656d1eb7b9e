"""Matrices: made of vectors and of each other, inverse ones, determinants, solutions.

What needs elimination is done column by column.
Spec: https://docs.pytorch.org/docs/2.13/linalg.html
"""

import numpy as np

from converter.lower.gap import Gap
from converter.lower.tf import sizes
from converter.lower.torch.context import Context
from converter.lower.torch.creation import diag_embed
from converter.lower.torch.linear import product
from converter.lower.torch.promotion import together
from converter.lower.torch.shaping import diagonal
from converter.lower.torch.table import aten
from converter.lower.torch.things import Tensors
from converter.lower.values import Value

SMALLEST = 3  # rows of what has formulas
UNROLLED = 16  # most rows of what is eliminated: a dozen operators each


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
    return diag_embed(op, op.reshape(x, (sizes.product(x.shape),)), offset)


@aten("block_diag")
def block_diag(op: Context, tensors: Tensors) -> Value:
    """Matrices along the diagonal of a larger one, and zeros."""
    parts = together(op, [op.reshape(t, (1,) * (2 - t.rank) + t.shape) for t in tensors])
    widths = [p.shape[1] for p in parts]
    if not all(isinstance(n, int) for n in widths):
        raise Gap("blocks of sizes that depend on the inputs")
    known = [int(n) for n in widths if isinstance(n, int)]
    rows = []
    for i, part in enumerate(parts):
        before, after = sum(known[:i]), sum(known[i + 1 :])
        rows.append(op.pad(part, [0, before], [0, after]))
    return op.concat(rows, 0)


@aten("kron")
def kron(op: Context, self: Value, other: Value) -> Value:
    """The second tensor times each element of the first, beside each other."""
    a, b = together(op, [self, other])
    rank = max(a.rank, b.rank)
    a, b = (op.reshape(x, (1,) * (rank - x.rank) + op.named(x).shape) for x in (a, b))
    wide = op.mul(
        op.unsqueeze(a, [2 * i + 1 for i in range(rank)]),
        op.unsqueeze(b, [2 * i for i in range(rank)]),
    )
    return op.reshape(wide, tuple(sizes.mul(m, n) for m, n in zip(a.shape, b.shape, strict=True)))


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
        columns.append(op.reshape(op.expand(wide, shape), (sizes.product(shape), 1)))
    return op.concat(columns, 1)


@aten("cross", "linalg_cross")
def cross(op: Context, self: Value, other: Value, dim: int | None = None) -> Value:
    """The vector that is upright on two others, of three elements along an axis."""
    a, b = together(op, [self, other])
    if dim is None:  # `cross` takes the first axis that will do, `linalg_cross` the last
        dim = next((i for i, n in enumerate(a.shape) if n == 3), -1)
    return _crossed(op, a, b, dim)


def _crossed(op: Context, a: Value, b: Value, axis: int) -> Value:
    left, right = ([op.cut(x, axis, i, i + 1) for i in range(3)] for x in (a, b))
    made = [
        op.sub(op.mul(left[i], right[j]), op.mul(left[j], right[i]))
        for i, j in ((1, 2), (2, 0), (0, 1))
    ]
    return op.concat(made, axis)


@aten("inner")
def inner(op: Context, self: Value, other: Value) -> Value:
    """Sums of products along the last axes of both."""
    a, b = together(op, [self, other])
    if not a.rank or not b.rank:
        return op.mul(a, b)
    if a.rank > 2 or b.rank > 2:
        from converter.lower.torch.linear import tensordot

        return tensordot(op, a, b, [-1], [-1])
    return product(op, a, b.transposed([1, 0]) if b.rank == 2 else b)


# -- determinants ----------------------------------------------------------------------------------


def _rows(x: Value) -> int:
    """Return how many rows square matrices have.

    Raises:
        Gap: That is not known, or they are not square.
    """
    rows, columns = (x.shape[-2], x.shape[-1]) if x.rank > 1 else (None, None)
    if not isinstance(rows, int) or rows != columns:
        raise Gap(f"matrices of {rows} by {columns}")
    return rows


@aten("det")
def det(op: Context, self: Value) -> Value:
    """The determinant."""
    x, count = self, _rows(self)
    if count > SMALLEST:
        return op.node("Det", [op.outer(x)], [(x.dtype, x.shape[:-2])])[0]
    at = _elements(op, x, count)
    return op.squeeze(_small_det(op, at, count), [-2, -1])


@aten("linalg_det")
def linalg_det(op: Context, A: Value) -> Value:  # noqa: N803 - torch's name
    """The determinant."""
    return det(op, A)


@aten("_linalg_det")
def linalg_det_and_more(op: Context, A: Value) -> list[Value]:  # noqa: N803
    """The determinant; what else torch yields, only its gradients need."""
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
    if count > SMALLEST:
        return _solved(op, x, _identity(op, x, count))
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


def _identity(op: Context, x: Value, count: int) -> Value:
    zeros = op.mul(x, op.constant(0.0, x.dtype))
    return op.add(zeros, op.constant(np.eye(count), x.dtype))


@aten("linalg_inv")
def linalg_inv(op: Context, A: Value) -> Value:  # noqa: N803
    """The inverse of matrices."""
    return inverse(op, A)


@aten("linalg_inv_ex")
def inv_ex(op: Context, A: Value, check_errors: bool = False) -> list[Value]:  # noqa: N803
    """The inverse of matrices, and zero where there is one."""
    del check_errors
    made = inverse(op, A)
    return [made, op.filled(op.named(A).shape[:-2], 0, "int32")]


def _solved(op: Context, x: Value, right: Value) -> Value:
    """Return what matrices have to be multiplied by to be the right-hand side."""
    count = _rows(x)
    if count > UNROLLED:
        raise Gap(f"solutions for matrices of {count} rows")
    more = op.named(right).shape[-1]
    wide = op.concat([x, right], -1)
    for k in range(count):
        wide = _eliminated(op, wide, k, count)
    return op.cut(op.shaped(wide, (*x.shape[:-1], sizes.add(more, count))), -1, count,
                  sizes.add(more, count))  # fmt: skip


def _eliminated(op: Context, x: Value, k: int, count: int) -> Value:
    """Return matrices with zeros in a column but for a one in the row of its number.

    That row is the one whose number is the largest there, of those not taken yet.
    """
    below = op.cut(x, -2, k, count)
    sizes_there = op.unary("Abs", op.cut(below, -1, k, k + 1))
    (largest,) = op.node(
        "ArgMax", [op.outer(sizes_there)], [("int64", (*sizes_there.shape[:-2], 1, 1))],
        attributes={"axis": x.rank - 2, "keepdims": 1},
    )  # fmt: skip
    is_it = op.elementwise("Equal", op.constant(np.arange(count - k)[:, None]), largest)
    first = op.cut(below, -2, 0, 1)
    row = op.reduce(
        "ReduceSum", op.where(is_it, below, op.constant(0.0, x.dtype)), [-2], keepdims=True
    )
    row = op.div(row, op.cut(row, -1, k, k + 1))
    parts = [op.cut(x, -2, 0, k)] if k else []
    if k + 1 < count:
        parts.append(op.cut(op.where(is_it, first, below), -2, 1, count - k))
    cleared = [op.sub(part, op.mul(op.cut(part, -1, k, k + 1), row)) for part in parts]
    return op.concat([*cleared[:1], row, *cleared[1:]] if k else [row, *cleared], -2)


@aten("linalg_solve")
def solve(op: Context, A: Value, B: Value, left: bool = True) -> Value:  # noqa: N803
    """What matrices have to be multiplied by to be others."""
    return solve_ex(op, A, B, left)[0]


@aten("linalg_solve_ex", "_linalg_solve_ex")
def solve_ex(
    op: Context, A: Value, B: Value, left: bool = True, check_errors: bool = False,  # noqa: N803
) -> list[Value]:  # fmt: skip
    """What matrices have to be multiplied by to be others."""
    del check_errors
    if not left:
        raise Gap("a solution for what stands to the left")
    is_vector = B.rank == 1 or (A.rank == B.rank + 1 and A.shape[:-1] == B.shape)
    right = op.unsqueeze(B, [-1]) if is_vector else B
    if A.rank != right.rank:
        raise Gap("a solution for matrices that are broadcast")
    made = _solved(op, A, right)
    return [op.squeeze(made, [-1]) if is_vector else made]
