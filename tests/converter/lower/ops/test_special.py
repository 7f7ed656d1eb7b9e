"""Special and Bessel functions beside SciPy's, at zeros, poles, infinities and NaN."""

import numpy as np
import op_by_hand
import pytest
from scipy import special as scipy

from converter.lower.ops import bessel, special

EDGES = [0.0, -0.0, 1e-30, -1e-30, 1e30, -1e30, np.inf, -np.inf, np.nan]
LINE = np.array([*np.linspace(-12.3, 12.3, 83), 0.5, 1, 2, 5, 8, 26, 100, *EDGES])
POSITIVE = np.array([*np.geomspace(1e-6, 1e4, 61), 0.5, 1, 2, 5, 8, np.inf, np.nan])
UNIT = np.array([*np.linspace(-1, 1, 41), 1e-9, -1e-9, 1 - 1e-7, -1 + 1e-7, 1.5, np.nan])
SHARES = np.array([*np.linspace(0, 1, 41), 1e-9, 1 - 1e-7, -0.5, np.nan])


def lgamma(x):
    return np.where(np.isinf(x), np.inf, scipy.gammaln(x))  # C has inf of -inf


# Function: where it is computed, the reference, and the relative tolerance in float64.
ROWS = {
    "expm1": (special.expm1, LINE, np.expm1, 1e-13),
    "log1p": (special.log1p, np.array([*np.geomspace(1e-18, 1e18, 40), -0.5, -1, -2, np.inf]),
              np.log1p, 1e-13),
    "erfc": (special.erfc, LINE, scipy.erfc, 1e-12),
    "ndtri": (special.ndtri, SHARES, scipy.ndtri, 1e-12),
    "erfinv": (special.erfinv, UNIT, scipy.erfinv, 1e-12),
    "lgamma": (special.lgamma, LINE, lgamma, 1e-12),
    "digamma": (special.digamma, POSITIVE[:-2], scipy.digamma, 1e-12),
    **{name: (getattr(bessel, name), LINE, getattr(scipy, name), 1e-12)
       for name in ("j0", "j1", "i0", "i1", "i0e", "i1e")},
    **{name: (getattr(bessel, name), POSITIVE, getattr(scipy, name), 1e-12)
       for name in ("y0", "y1", "k0", "k1")},
    **{f"{name}e": (getattr(bessel, f"{name}e"), POSITIVE, getattr(scipy, f"{name}e"), 1e-12)
       for name in ("k0", "k1")},
}  # fmt: skip
PAIRS = np.meshgrid([0.1, 0.5, 1, 3, 10, 60], [0, 0.01, 0.4, 1, 5, 30, 100])
A, X = (grid.reshape(-1) for grid in PAIRS)


def compare(function, reference, tolerance, *arrays, dtype):
    given = [x.astype(dtype) for x in arrays]
    with np.errstate(all="ignore"):
        expected = reference(*(x.astype("float64") for x in given)).astype(dtype)
    (found,) = op_by_hand.compute(function, *given, is_symbolic=True)
    assert found.dtype == dtype
    limit = max(tolerance, {"float16": 2e-3, "float32": 4e-6, "float64": 0}[dtype])
    np.testing.assert_allclose(
        found, expected, rtol=limit, atol=limit / 1e3
    )  # at zeros of the function


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("name", ROWS)
def test_a_function_of_one_number_is_scipys(name, dtype):
    function, x, reference, tolerance = ROWS[name]
    with np.errstate(all="ignore"):
        compare(function, reference, tolerance, x.astype(dtype), dtype=dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("function", "reference"),
    [(special.igamma, scipy.gammainc), (special.igammac, scipy.gammaincc)],
)
def test_the_incomplete_gamma_functions_are_scipys(function, reference, dtype):
    compare(function, reference, 1e-11, A, X, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_incomplete_beta_function_is_scipys(dtype):
    a, b, x = (g.reshape(-1) for g in np.meshgrid([0.3, 1, 7], [0.5, 2, 20], [0, 0.1, 0.5, 0.9, 1]))
    compare(special.betainc, scipy.betainc, 1e-11, a, b, x, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_sums_over_all_integers_are_scipys(dtype):
    s, q = (grid.reshape(-1) for grid in np.meshgrid([1.5, 2, 4, 20], [0.5, 1, 3, 30]))
    compare(special.zeta, scipy.zeta, 1e-11, s, q, dtype=dtype)
    n, x = (grid.reshape(-1) for grid in np.meshgrid([0.0, 1, 2, 5], [0.5, 1, 3, 30]))
    compare(special.polygamma, lambda n, x: scipy.polygamma(n.astype(int), x), 1e-11, n, x,
            dtype=dtype)  # fmt: skip
