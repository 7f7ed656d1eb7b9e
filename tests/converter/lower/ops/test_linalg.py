"""Linear algebra beside NumPy's: of one element, many rows, batches, and singular matrices."""

import numpy as np
import op_by_hand
import pytest

from converter.lower.ops import linalg, spectra

RNG = np.random.default_rng(0)
SHAPES = [(1, 1), (3, 3), (20, 20), (2, 0, 4, 4), (2, 3, 5, 5)]
TOLERANCE = {"float32": 2e-4, "float64": 1e-9}


def square(shape, dtype):
    """Return matrices that are well conditioned and need their rows exchanged."""
    return (RNG.normal(size=shape) + 2 * np.roll(np.eye(shape[-1]), 1, 0)).astype(dtype)


def symmetric(shape, dtype):
    x = RNG.normal(size=shape)
    return (x + x.swapaxes(-1, -2)).astype(dtype)


def positive(shape, dtype):
    x = RNG.normal(size=shape)
    return (x @ x.swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


ROWS = {
    "inverse": (linalg.inverse, np.linalg.inv, square),
    "determinant": (linalg.determinant, np.linalg.det, square),
    "log determinant": (linalg.log_determinant, lambda x: tuple(np.linalg.slogdet(x)), square),
    "cholesky": (linalg.cholesky, np.linalg.cholesky, positive),
    "singular values": (
        spectra.singular_values, lambda x: np.linalg.svd(x, compute_uv=False), square,
    ),
    "eigenvalues": (spectra.eigenvalues, np.linalg.eigvalsh, symmetric),
    "eigenvalues of the upper triangle": (
        lambda op, x: spectra.eigenvalues(op, x, lower=False),
        lambda x: np.linalg.eigvalsh(x, "U"), square,
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_a_function_of_matrices_is_numpys(name, shape, dtype):
    function, reference, make = ROWS[name]
    op_by_hand.check(function, reference, make(shape, dtype), tolerance=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_systems_are_solved(shape, dtype):
    matrices, right = square(shape, dtype), RNG.normal(size=(*shape[:-1], 2)).astype(dtype)
    op_by_hand.check(linalg.solve, np.linalg.solve, matrices, right, tolerance=TOLERANCE[dtype])
    for lower, cut in ((True, np.tril), (False, np.triu)):
        op_by_hand.check(
            lambda op, a, b, lower=lower: linalg.solve_triangular(op, a, b, lower=lower),
            lambda a, b, cut=cut: np.linalg.solve(cut(a), b),
            positive(shape, dtype), right, tolerance=TOLERANCE[dtype],
        )  # fmt: skip


@pytest.mark.parametrize("is_symbolic", [False, True])
@pytest.mark.parametrize("shape", [*SHAPES, (6, 3), (3, 6), (2, 17, 5)], ids=str)
@pytest.mark.parametrize("full", [False, True])
def test_qr_gives_orthogonal_columns_and_a_triangle(shape, full, is_symbolic):
    x = RNG.normal(size=shape)
    q, r = op_by_hand.compute(lambda op, x: linalg.qr(op, x, full=full), x, is_symbolic=is_symbolic)
    expected = np.linalg.qr(x, "complete" if full else "reduced")
    assert (q.shape, r.shape) == (expected.Q.shape, expected.R.shape)
    np.testing.assert_allclose(q @ r, x, atol=1e-9)
    columns = np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], q.shape[-1], q.shape[-1]))
    np.testing.assert_allclose(q.swapaxes(-1, -2) @ q, columns, atol=1e-9)
    np.testing.assert_allclose(r, np.triu(r), atol=1e-9)


@pytest.mark.parametrize("is_symbolic", [False, True])
@pytest.mark.parametrize("shape", [*SHAPES[1:], (5, 3), (2, 3, 6), (0, 2)], ids=str)
def test_lu_factors_multiply_to_the_rows_in_their_order(shape, is_symbolic):
    x = RNG.normal(size=shape)
    both, order, pivots, sign = op_by_hand.compute(
        lambda op, x: tuple(linalg.factorize(op, x)), x, is_symbolic=is_symbolic
    )
    least = min(shape[-2:])
    lower = np.tril(both, -1)[..., :least] + np.eye(shape[-2], least)
    rows = np.take_along_axis(x, order[..., None], -2)
    np.testing.assert_allclose(lower @ np.triu(both)[..., :least, :], rows, atol=1e-9)
    if shape[-1] == shape[-2]:
        np.testing.assert_allclose(sign * np.prod(both.diagonal(0, -2, -1), -1), np.linalg.det(x))
    assert pivots.shape == (*shape[:-2], least)
    for matrix in np.ndindex(*shape[:-2]):
        exchanged = np.arange(shape[-2])
        for i, j in enumerate(pivots[matrix]):
            exchanged[[i, j]] = exchanged[[j, i]]
        np.testing.assert_array_equal(exchanged, order[matrix])


def test_a_singular_matrix_has_no_determinant():
    x = np.array([[1, 2], [2, 4]], "float64")
    op_by_hand.check(linalg.determinant, lambda x: np.float64(0), x)
    sign, logarithm = op_by_hand.compute(linalg.log_determinant, x)
    assert (sign, logarithm) == (0, -np.inf)


@pytest.mark.parametrize("shape", [*SHAPES, (5, 3), (2, 3, 6), (4, 1)], ids=str)
def test_pseudo_inverses_are_numpys(shape):
    x = RNG.normal(size=shape)
    x[..., 0] = x[..., -1] if shape[-1] > 2 else x[..., 0]  # of less than full rank

    def function(op, x):
        return spectra.pseudo_inverse(op, x, op.constant(0.0, "float64"),
                                     op.constant(1e-10, "float64"))  # fmt: skip

    op_by_hand.check(function, lambda x: np.linalg.pinv(x, rcond=1e-10), x, tolerance=1e-7)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exponentials_are_scipys(dtype, scale):
    from scipy.linalg import expm

    x = (scale * RNG.normal(size=(2, 4, 4))).astype(dtype)
    op_by_hand.check(linalg.exponential, expm, x, tolerance=2e-3 if dtype == "float32" else 1e-8)
