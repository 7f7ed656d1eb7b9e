"""Resizing with sizes that are known and sizes that only a run knows: one meaning."""

from math import floor

import numpy as np
import op_by_hand
import pytest

from converter.lower.ops import resize, resize_computed

RNG = np.random.default_rng(0)
METHODS = ["bilinear", "bicubic", "lanczos3", "lanczos5", "area", "gaussian", "mitchellcubic"]
SIZES = [(7, 3), (3, 7), (14, 32), (5, 5), (1, 4), (6, 1)]


def by_kernel(size, wanted, radius, kernel, *, antialias):
    """Return the matrix that resizes an axis: normalized kernels at the centres of pixels."""
    step = size / wanted
    width = max(step, 1) if antialias else 1.0
    at = (np.arange(wanted) + 0.5) * step
    distance = np.abs((np.arange(size) + 0.5)[None] - at[:, None]) / width
    found = np.where(distance < radius, kernel(distance), 0)
    return found / found.sum(1, keepdims=True)


def keys(x):
    near, far = ((1.5 * x - 2.5) * x) * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, far)


KERNELS = {"bilinear": (1, lambda x: 1 - x), "bicubic": (2, keys),
           "lanczos3": (3, lambda x: np.sinc(x) * np.sinc(x / 3)),
           "lanczos5": (5, lambda x: np.sinc(x) * np.sinc(x / 5))}  # fmt: skip


@pytest.mark.parametrize(("size", "wanted"), SIZES)
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("method", KERNELS)
def test_weights_are_normalized_kernels(method, antialias, size, wanted):
    found = resize.weights(size, wanted, method, antialias=antialias)
    expected = by_kernel(size, wanted, *KERNELS[method], antialias=antialias)
    np.testing.assert_allclose(found, expected, atol=2e-3 if method == "bicubic" else 1e-5)


@pytest.mark.parametrize(("size", "wanted"), SIZES)
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_computed_weights_are_the_known_ones(method, antialias, size, wanted):
    known = resize.weights(size, wanted, method, antialias=antialias)
    (computed,) = op_by_hand.compute(
        lambda op, n, m: resize_computed.weights(op, n, m, method, antialias=antialias),
        np.array(size), np.array(wanted),
    )  # fmt: skip
    assert computed.dtype == "float32"
    np.testing.assert_allclose(computed, known, atol=2e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("method", ["nearest", *METHODS])
def test_images_of_known_and_unknown_size_are_resized_alike(method, dtype):
    image = RNG.uniform(0, 1, (2, 3, 6, 9)).astype(dtype)
    known, unknown = (
        op_by_hand.compute(
            lambda op, x: op.plain(resize.resize(op, x, (4, 13), method)), image,
            is_symbolic=is_symbolic,
        )[0]
        for is_symbolic in (False, True)
    )  # fmt: skip
    assert known.shape == (2, 3, 4, 13)
    assert known.dtype == dtype
    np.testing.assert_allclose(known, unknown, atol=2e-3 if dtype == "float16" else 3e-6)


def test_every_pair_of_sizes_takes_the_nearest_pixel():
    x = np.arange(40, dtype="float32").reshape(1, 1, 40)
    sizes = [(n, m) for n in (5, 14, 40) for m in range(1, 41, 3)]
    for n, m in sizes:
        step = np.float32(n) / np.float32(m)
        expected = [min(floor((i + np.float32(0.5)) * step), n - 1) for i in range(m)]
        for is_symbolic in (False, True):
            (found,) = op_by_hand.compute(
                lambda op, x, m=m: resize_computed.nearest(op, x, 2, m), x[..., :n],
                is_symbolic=is_symbolic,
            )  # fmt: skip
            assert found.reshape(-1).tolist() == expected, (n, m)


def test_a_size_that_stays_is_no_node():
    image = RNG.uniform(0, 1, (1, 1, 4, 4)).astype("float32")
    op_by_hand.check(
        lambda op, x: resize.resize(op, x, (4, 4), "bicubic"), lambda x: x, image,
        is_static_only=True,
    )  # fmt: skip
