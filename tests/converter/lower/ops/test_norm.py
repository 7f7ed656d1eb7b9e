"""Normalization beside its formula in NumPy."""

import numpy as np
import op_by_hand
import pytest

from converter.lower.ops import norm
from converter.lower.unsupported import Unsupported

RNG = np.random.default_rng(0)
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
PRESENCE = pytest.mark.parametrize("has_gamma", [True, False])
OFFSETS = pytest.mark.parametrize("has_beta", [True, False])


def standardized(x, axes, epsilon=1e-3):
    over = tuple(axes)
    return (x - x.mean(over, keepdims=True)) / np.sqrt(x.var(over, keepdims=True) + epsilon)


def parameters(x, axes, count, *, present):
    """Return parameters of some axes of x, None for absent ones, and how they broadcast."""
    shape = tuple(x.shape[a] for a in axes)
    drawn = RNG.uniform(0.5, 2, (count, *shape)).astype(x.dtype)
    places = [x.shape[i] if i in {a % x.ndim for a in axes} else 1 for i in range(x.ndim)]
    return [v if p else None for v, p in zip(drawn, present, strict=True)], places


def constants(op, arrays):
    return [None if v is None else op.constant(v) for v in arrays]


@DTYPES
@pytest.mark.parametrize("axes", [[1], [2, 3], [1, 2, 3], [-1]])
def test_standardization_over_axes(axes, dtype):
    x = RNG.normal(3, 2, (2, 4, 3, 5)).astype(dtype)
    op_by_hand.check(
        lambda op, x: norm.standardize(op, x, axes, 1e-3), lambda x: standardized(x, axes), x
    )


@DTYPES
@pytest.mark.parametrize("axes", [[1], [2, 3], [1, 2, 3], [-1]])
def test_unit_norm_over_axes(axes, dtype):
    x = RNG.normal(3, 2, (2, 4, 3, 5)).astype(dtype)
    op_by_hand.check(
        lambda op, x: norm.unit(op, x, axes, 1e-12),
        lambda x: x / np.sqrt((x * x).sum(tuple(axes), keepdims=True)), x,
    )  # fmt: skip
    zeros = np.zeros_like(x)
    op_by_hand.check(lambda op, x: norm.unit(op, x, axes, 1e-12), lambda x: x, zeros)


@DTYPES
@OFFSETS
@PRESENCE
@pytest.mark.parametrize("axes", [[0], [1], [3], [1, 3]])
def test_batch_normalization(axes, has_gamma, has_beta, dtype):
    x = RNG.normal(3, 2, (2, 4, 3, 5)).astype(dtype)
    given, places = parameters(x, axes, 4, present=[True, True, has_gamma, has_beta])

    def reference(x):
        mean, variance, gamma, beta = (
            None if v is None else v.astype("float64").reshape(places) for v in given
        )
        made = (x - mean) / np.sqrt(variance + 1e-3)
        made = made if gamma is None else made * gamma
        return made if beta is None else made + beta

    op_by_hand.check(
        lambda op, x: op.plain(norm.batch_norm(op, x, axes, *constants(op, given), 1e-3)),
        reference, x,
    )  # fmt: skip


def test_batch_normalization_of_statistics_that_are_nan_infinite_or_zero():
    x = np.asarray([[1, np.inf, np.nan, 2, 3]], "float32")
    mean = np.asarray([0, 0, 0, np.nan, 1], "float32")
    variance = np.asarray([np.inf, 1, 1, 1, 0], "float32")
    given = [mean, variance, None, None]
    op_by_hand.check(
        lambda op, x: norm.batch_norm(op, x, [1], *constants(op, given), 1e-4),
        lambda x: np.asarray([[0, np.inf, np.nan, np.nan, 200]]), x,
    )  # fmt: skip


@DTYPES
@OFFSETS
@PRESENCE
@pytest.mark.parametrize("axes", [[3], [2, 3], [1], [1, 3]])
def test_layer_normalization(axes, has_gamma, has_beta, dtype):
    x = RNG.normal(3, 2, (2, 4, 3, 5)).astype(dtype)
    given, places = parameters(x, axes, 2, present=[has_gamma, has_beta])

    def reference(x):
        gamma, beta = (None if v is None else v.astype("float64").reshape(places) for v in given)
        made = standardized(x, axes)
        made = made if gamma is None else made * gamma
        return made if beta is None else made + beta

    op_by_hand.check(
        lambda op, x: norm.layer_norm(op, x, axes, *constants(op, given), 1e-3), reference, x
    )


@DTYPES
@pytest.mark.parametrize("axes", [[3], [1, 2]])
def test_root_mean_square_normalization(axes, dtype):
    x = RNG.normal(3, 2, (2, 4, 3, 5)).astype(dtype)

    def reference(x):
        root = np.sqrt((x * x).mean(tuple(axes), keepdims=True) + 1e-3)
        return [x / root, root]

    op_by_hand.check(lambda op, x: list(norm.rms_norm(op, x, axes, 1e-3)), reference, x)


@DTYPES
@pytest.mark.parametrize(
    ("shape", "axis", "groups"),
    [
        ((2, 6, 3, 5), 1, 3), ((2, 6, 3, 5), 1, 1), ((2, 6, 3, 5), 1, 6), ((2, 3, 5, 6), 3, 2),
        ((2, 6), 1, 3), ((0, 6, 3), 1, 2),
    ],
)  # fmt: skip
def test_group_normalization(shape, axis, groups, dtype):
    x = RNG.normal(3, 2, shape).astype(dtype)

    def reference(x):
        first = np.moveaxis(x, axis, 1)
        size = first[0].size // groups if len(first) else first.shape[1] // groups * 3
        made = standardized(first.reshape(len(first), groups, size), [2])
        return np.moveaxis(made.reshape(first.shape), 1, axis)

    op_by_hand.check(
        lambda op, x: op.plain(norm.group_norm(op, x, axis, groups, 1e-3)), reference, x,
        is_static_only=True,
    )  # fmt: skip


@pytest.mark.parametrize("groups", [0, 4])
def test_channels_that_groups_do_not_divide_are_refused(groups):
    x = np.zeros((2, 6, 3), "float32")
    with pytest.raises(Unsupported, match=f"6 channels in {groups} groups"):
        op_by_hand.compute(lambda op, x: norm.group_norm(op, x, 1, groups, 1e-3), x)


def test_an_unknown_number_of_channels_is_refused():
    x = np.zeros((2, 6, 3), "float32")
    with pytest.raises(Unsupported, match="unknown number of channels"):
        op_by_hand.compute(lambda op, x: norm.group_norm(op, x, 1, 2, 1e-3), x, is_symbolic=True)
