"""Shapes beside NumPy's: axes dropped, rolled, reversed, padded; diagonals; cumulative sums."""

import numpy as np
import op_by_hand
import pytest

from converter.lower.ops import cumulative, diagonal, pad, shape

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4, 5)).astype("float32")
DTYPES = ["float16", "float32", "float64", "int32", "int64", "uint8", "bool"]


@pytest.mark.parametrize("dtype", [*DTYPES, "int16"])
@pytest.mark.parametrize("amount", [0, 1, 4, -3, 11])
def test_elements_are_rolled(amount, dtype):
    x = (X * 9).astype(dtype)
    for axis in (0, 1, -1):
        op_by_hand.check(
            lambda op, x, axis=axis: shape.roll_axis(op, x, axis % 3, amount),
            lambda x, axis=axis: np.roll(x, amount, axis), x,
        )  # fmt: skip


def test_axes_of_one_element_are_dropped():
    x = X.reshape(3, 1, 20, 1)
    for axes in ([1], [1, 3], [3], [-1]):
        op_by_hand.check(
            lambda op, x, axes=axes: shape.drop_ones(op, x, axes),
            lambda x, axes=axes: np.squeeze(x, tuple(axes)), x, is_static_only=True,
        )  # fmt: skip
    op_by_hand.check(shape.drop_ones, np.squeeze, x, is_static_only=True)
    # Axes of unknown size stay: a graph's number of axes is the same in every run.
    (found,) = op_by_hand.compute(shape.drop_ones, x, is_symbolic=True)
    assert found.shape == x.shape


@pytest.mark.parametrize("dtype", [*DTYPES, "int16", "uint16"])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap"])
def test_ends_are_padded(mode, dtype):
    x, widths = (X * 9).astype(dtype), [(0, 0), (2, 3), (1, 0)]
    op_by_hand.check(
        lambda op, x: pad.pad_ends(op, x, widths, mode), lambda x: np.pad(x, widths, mode), x
    )


def test_padding_has_a_value_and_known_modes():
    op_by_hand.check(
        lambda op, x: pad.pad_ends(op, x, [(1, 1)] * 3, "constant", -2.5),
        lambda x: np.pad(x, 1, constant_values=-2.5), X,
    )  # fmt: skip
    with pytest.raises(Exception, match="padding mode 'mean'"):
        op_by_hand.compute(lambda op, x: pad.pad_ends(op, x, [(1, 1)] * 3, "mean"), X)


def test_axes_are_reversed():
    op_by_hand.check(lambda op, x: pad.reverse_axes(op, x, [0, 2]), lambda x: x[::-1, :, ::-1], X)
    op_by_hand.check(lambda op, x: pad.reverse_axes(op, x, []), lambda x: x, X)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0, 1, -2, 4, -3, 7])
def test_diagonals_are_taken_and_made(offset, dtype):
    x = (X * 9).astype(dtype)
    op_by_hand.check(
        lambda op, x: diagonal.take_diagonal(op, x, offset),
        lambda x: np.diagonal(x, offset, -2, -1), x,
    )  # fmt: skip
    op_by_hand.check(
        lambda op, x: diagonal.make_diagonal(op, x, offset),
        lambda x: np.stack([np.diag(row, offset) for row in x.reshape(-1, 5)]).reshape(
            3, 4, 5 + abs(offset), 5 + abs(offset)), x,
    )  # fmt: skip


def exclusive(x, axis, function, neutral, *, reverse):
    """Return what NumPy accumulates before each element."""
    x = np.flip(x, axis) if reverse else x
    whole = function.accumulate(x, axis)
    before = np.take(whole, range(x.shape[axis] - 1), axis)
    first = np.full_like(np.take(x, [0], axis), neutral)
    found = np.concatenate([first, before], axis)
    return np.flip(found, axis) if reverse else found


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_sums_so_far(axis, dtype):
    x = (X * 9).astype(dtype)
    op_by_hand.check(
        lambda op, x: cumulative.cumulative_sum(op, x, axis),
        lambda x: np.cumsum(x, axis, dtype=x.dtype), x,
    )  # fmt: skip
    for reverse in (False, True):
        op_by_hand.check(
            lambda op, x, r=reverse: cumulative.cumulative_sum(
                op, x, axis, exclusive=True, reverse=r),
            lambda x, r=reverse: exclusive(x, axis, np.add, 0, reverse=r), x,
        )  # fmt: skip


@pytest.mark.parametrize("length", [1, 5, 64, 65, 1000])
@pytest.mark.parametrize("reverse", [False, True])
def test_products_so_far_of_any_length(length, reverse):
    x = RNG.uniform(0.9, 1.1, (2, length)).astype("float64")
    for is_exclusive in (False, True):

        def reference(x, is_exclusive=is_exclusive):
            if is_exclusive:
                return exclusive(x, 1, np.multiply, 1, reverse=reverse)
            return np.cumprod(x[:, ::-1], 1)[:, ::-1] if reverse else np.cumprod(x, 1)

        op_by_hand.check(
            lambda op, x, e=is_exclusive: cumulative.accumulate(
                op, x, 1, op.mul, 1.0, exclusive=e, reverse=reverse),
            reference, x,
        )  # fmt: skip
