"""Products of Householder reflections, as LAPACK keeps the orthogonal factor of matrices.

Spec: https://docs.pytorch.org/docs/2.13/generated/torch.linalg.householder_product.html
"""

from collections.abc import Iterable

from converter.lower.ops import linalg
from converter.lower.torch.context import Context
from converter.lower.torch.creation import eye_m, tril
from converter.lower.torch.linear import product
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

MOST = 64  # reflections, which are written one after the other


def _reflect(op: Context, x: Value, vectors: Value, factors: Value, order: Iterable[int]) -> Value:
    """Return ``H x`` for each ``H = 1 - factor * vector * vector^T``, one after the other."""
    for i in order:
        vector = op.cut(vectors, vectors.rank - 1, i, i + 1)
        factor = op.unsqueeze(op.cut(factors, factors.rank - 1, i, i + 1), [-1])
        turned = vector.transposed([*range(vector.rank - 2), vector.rank - 1, vector.rank - 2])
        x = op.sub(x, op.mul(op.mul(factor, vector), product(op, op.plain(turned), x)))
    return x


def _read(op: Context, reflectors: Value, factors: Value) -> tuple[Value, Value, int]:
    """Return the vectors, the identity of their shape, and their number.

    The vectors are below the diagonal; on it they have 1.

    Raises:
        Unsupported: There are too many, or their number is not known.
    """
    matrices = op.named(reflectors)
    rows, columns = matrices.shape[-2:]
    count = op.named(factors).shape[-1]
    if not (isinstance(rows, int) and isinstance(columns, int) and isinstance(count, int)):
        raise Unsupported("reflections of matrices of unknown size")
    if count > MOST:
        raise Unsupported(f"{count} reflections; up to {MOST} are supported")
    identity = eye_m(op, rows, columns, matrices.dtype)
    return op.add(tril(op, matrices, -1), identity), identity, count


@aten("geqrf")
def geqrf(op: Context, self: Value) -> list[Value]:
    """The QR decomposition: R, with the reflections below its diagonal, and their factors."""
    return list(linalg.reflect_columns(op, self))


@aten("orgqr")
def orgqr(op: Context, self: Value, input2: Value) -> Value:
    """The first columns of the product of reflections."""
    return householder_product(op, self, input2)


@aten("linalg_householder_product")
def householder_product(op: Context, input: Value, tau: Value) -> Value:
    """The first columns of the product of reflections."""
    vectors, identity, count = _read(op, input, tau)
    return _reflect(op, op.expand(identity, vectors.shape), vectors, tau, reversed(range(count)))


@aten("ormqr")
def ormqr(
    op: Context, self: Value, input2: Value, input3: Value, left: bool = True,
    transpose: bool = False,
) -> Value:  # fmt: skip
    """Matrices multiplied by the product of reflections, or by its transpose, on either side."""
    vectors, _, count = _read(op, self, input2)
    order = [*range(count)] if transpose == left else [*reversed(range(count))]
    turn = [*range(input3.rank - 2), input3.rank - 1, input3.rank - 2]
    x = input3 if left else op.plain(input3.transposed(turn))
    made = _reflect(op, x, vectors, input2, order)
    return made if left else made.transposed(turn)
