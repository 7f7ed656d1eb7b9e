"""Functions of two numbers, for every pair of the edges: signed zeros, infinities, NaN."""

import numpy as np
import op_by_hand
import pytest

from converter.lower.ops import elementwise

EDGES = [0.0, -0.0, 1.0, -1.0, 2.5, -3.5, 1e-30, 1e30, np.inf, -np.inf, np.nan]
A, B = (grid.reshape(-1) for grid in np.meshgrid(EDGES, EDGES))
INTEGERS = [grid.reshape(-1) for grid in np.meshgrid([-7, -3, 0, 3, 7], [-5, -3, 2, 3])]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("function", "reference"),
    [(elementwise.atan2, np.arctan2), (elementwise.hypot, np.hypot),
     (elementwise.logaddexp, np.logaddexp)],
)  # fmt: skip
def test_a_function_is_numpys(function, reference, dtype):
    a, b = A.astype(dtype), B.astype(dtype)
    with np.errstate(all="ignore"):  # an infinite result, the difference of infinities
        expected = reference(a, b)
    (found,) = op_by_hand.compute(function, a, b, is_symbolic=True)
    np.testing.assert_allclose(found, expected, rtol=2e-6 if dtype == "float32" else 1e-14)
    zeros = expected == 0
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_remainder_has_the_divisors_sign(dtype):
    op_by_hand.check(elementwise.floor_mod, np.mod, *(x.astype(dtype) for x in INTEGERS))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_minus_zero_is_negative(dtype):
    x = np.array([0.0, -0.0, 1, -1, 6e4, -6e4, np.inf, -np.inf], dtype)
    op_by_hand.check(elementwise.is_negative, np.signbit, x)


def test_operands_are_broadcast():
    a, b = np.arange(6, dtype="float32").reshape(2, 1, 3) - 2, np.array([[1.5], [-0.5]], "float32")
    op_by_hand.check(elementwise.hypot, np.hypot, a, b)
    op_by_hand.check(elementwise.atan2, np.arctan2, a, np.array(0.5, "float32"))
