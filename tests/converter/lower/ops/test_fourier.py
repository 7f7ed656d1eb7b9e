"""Fourier transforms beside NumPy's: lengths that are one, prime, composite, or symbolic."""

import numpy as np
import op_by_hand
import pytest

from converter.lower.ops import fourier
from converter.lower.ops.complex import join

RNG = np.random.default_rng(0)
LENGTHS = [1, 2, 7, 12, 1024, 1031]
TOLERANCE = {"float32": 1e-5, "float64": 1e-11}


def is_dft_exact(length, dtype):
    """Return whether onnxruntime's own DFT, for symbolic lengths, is as exact as ours."""
    return dtype == "float32" and length < 1031


def parts(z):
    return z.real, z.imag


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("inverse", [False, True])
def test_a_transform_is_numpys(length, inverse, dtype):
    real, imaginary = RNG.normal(size=(2, 3, length)).astype(dtype)
    reference = np.fft.ifft if inverse else np.fft.fft
    op_by_hand.check(
        lambda op, a, b: fourier.transform(op, join(a, b), inverse=inverse),
        lambda a, b: parts(reference(a + 1j * b)),
        real, imaginary, tolerance=TOLERANCE[dtype], is_static_only=not is_dft_exact(length, dtype),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", LENGTHS)
def test_half_a_transform_of_real_values_and_back(length, dtype):
    x = RNG.normal(size=(3, length)).astype(dtype)
    op_by_hand.check(
        fourier.of_real, lambda x: parts(np.fft.rfft(x)), x, tolerance=TOLERANCE[dtype],
        is_static_only=not is_dft_exact(length, dtype),
    )  # fmt: skip
    op_by_hand.check(
        lambda op, x: fourier.to_real(op, fourier.of_real(op, x), length), lambda x: x, x,
        tolerance=TOLERANCE[dtype], is_static_only=True,
    )  # fmt: skip


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_transform_along_any_axis(axis):
    real, imaginary = RNG.normal(size=(2, 4, 5, 6)).astype("float32")
    op_by_hand.check(
        lambda op, a, b: fourier.along(op, join(a, b), axis, inverse=False),
        lambda a, b: parts(np.fft.fft(a + 1j * b, axis=axis)), real, imaginary, tolerance=1e-5,
    )  # fmt: skip


@pytest.mark.parametrize("length", [2, 5, 9])
def test_a_length_is_cut_or_filled_up_with_zeros(length):
    x = RNG.normal(size=(2, 5)).astype("float32")
    op_by_hand.check(
        lambda op, x: fourier.fit_length(op, x, length, None),
        lambda x: np.pad(x, [(0, 0), (0, 9)])[:, :length], x,
    )  # fmt: skip
