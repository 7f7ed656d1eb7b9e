"""Normalization: statistics over axes, and parameters along them.

float64 is normalized by elementary operators: ONNX's own have float32 statistics or epsilons.
"""

import math
from collections.abc import Sequence

import numpy as np

from converter.lower import dims
from converter.lower.builder import Builder
from converter.lower.graph import Dim
from converter.lower.ops.reduce import moments
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value, inverse

MOST_ONES = 1 << 20  # elements of a constant that stands for an absent parameter


def along(op: Builder, x: Value, vector: Value, axes: Sequence[int]) -> Value:
    """Reshape a parameter of these axes of x so that it broadcasts against x."""
    sizes: list[Dim] = [x.shape[a] for a in axes]
    if not all(isinstance(n, int) for n in sizes):
        sizes = list(vector.shape)
    last = list(axes) == list(range(x.rank - len(axes), x.rank))
    if last and vector.shape == tuple(sizes):
        return vector
    shape: list[Dim] = [1] * x.rank
    for axis, n in zip(axes, sizes, strict=True):
        shape[axis] = n
    return op.reshape(vector, shape)


def wide(op: Builder, x: Value) -> Value:
    """Cast a value to float32, unless it is float64."""
    return x if x.dtype == "float64" else op.cast(x, "float32")


def scale_and_shift(
    op: Builder, x: Value, gamma: Value | None, beta: Value | None, axes: Sequence[int]
) -> Value:
    """`x * gamma + beta`, with parameters of these axes of x, cast to its dtype."""
    if gamma is not None:
        x = op.mul(x, along(op, x, op.cast(gamma, x.dtype), axes))
    return x if beta is None else op.add(x, along(op, x, op.cast(beta, x.dtype), axes))


def batch_norm(
    op: Builder, x: Value, axes: Sequence[int], mean: Value, variance: Value,
    gamma: Value | None, beta: Value | None, epsilon: float,
) -> Value:  # fmt: skip
    """`(x - mean) / sqrt(variance + epsilon) * gamma + beta`, with parameters of these axes.

    Parameters are cast to the dtype of x. ONNX's BatchNormalization requires channels in axis 1; a
    stored order that has them there is kept.
    """
    axis, count = axes[0], mean.shape[0]
    mean, variance = op.cast(mean, x.dtype), op.cast(variance, x.dtype)
    is_countable = isinstance(count, int) or (gamma is not None and beta is not None)
    if len(axes) == 1 and axis > 0 and x.dtype != "float64" and is_countable:
        order = x.stored
        if order[0] != 0 or order.index(axis) != 1:
            order = (0, axis, *(i for i in range(1, x.rank) if i != axis))
        n = count if isinstance(count, int) else 0
        one = op.constant(np.ones(n), x.dtype) if gamma is None else op.cast(gamma, x.dtype)
        zero = op.constant(np.zeros(n), x.dtype) if beta is None else op.cast(beta, x.dtype)
        return op.node(
            "BatchNormalization", [op.kept(x, order), one, zero, mean, variance],
            [(x.dtype, x.shape)], attributes={"epsilon": float(epsilon)}, stored=order,
        )[0]  # fmt: skip
    factor = op.unary("Reciprocal", deviation(op, variance, epsilon))
    factor = factor if gamma is None else op.mul(factor, op.cast(gamma, x.dtype))
    centred = op.sub(x, along(op, x, mean, axes))
    return scale_and_shift(op, centred, factor, beta, axes)


def deviation(op: Builder, variance: Value, epsilon: float) -> Value:
    """`sqrt(variance + epsilon)`."""
    return op.unary("Sqrt", op.add(variance, epsilon))


def standardize(op: Builder, x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """`(x - mean) / sqrt(variance + epsilon)`, over axes."""
    mean, variance = moments(op, x, axes, keepdims=True)
    return op.div(op.sub(x, mean), deviation(op, variance, epsilon))


def layer_norm(
    op: Builder, x: Value, axes: Sequence[int], gamma: Value | None, beta: Value | None,
    epsilon: float,
) -> Value:  # fmt: skip
    """`(x - mean) / sqrt(variance + epsilon) * gamma + beta`, all over the same axes of x."""
    sizes = [n for n in (x.shape[a] for a in axes) if isinstance(n, int)]
    is_small = len(sizes) == len(axes) and math.prod(sizes) <= MOST_ONES
    are_last = list(axes) == list(range(x.rank - len(axes), x.rank))
    if not are_last or x.dtype == "float64" or not (is_small or gamma is not None):
        return scale_and_shift(op, standardize(op, x, axes, epsilon), gamma, beta, axes)
    one = op.constant(np.ones(sizes), x.dtype) if gamma is None else op.cast(gamma, x.dtype)
    offset = None if beta is None else op.cast(beta, x.dtype)
    return op.emit(
        "LayerNormalization", x, one, offset, dtype=x.dtype, shape=x.shape,
        axis=axes[0] - x.rank, epsilon=float(epsilon),
    )  # fmt: skip


def rms_norm(op: Builder, x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value]:
    """Return `x / root` and the root, `sqrt(mean(x * x) + epsilon)`, over axes."""
    power = op.reduce("ReduceMean", op.mul(x, x), axes, keepdims=True)
    root = deviation(op, power, epsilon)
    return op.div(x, root), root


def group_norm(op: Builder, x: Value, axis: int, groups: int, epsilon: float) -> Value:
    """Standardize each group of channels, an axis of their own, over all axes but the first.

    Raises:
        Unsupported: The number of channels is unknown or not a multiple of that of groups.
    """
    rows, first, order = split_groups(op, x, axis, groups)
    if x.dtype == "float64":
        made = standardize(op, rows, [2], epsilon)
    else:
        one, zero = (op.constant([number] * groups, x.dtype) for number in (1.0, 0.0))
        made = op.emit(
            "InstanceNormalization", rows, one, zero, dtype=x.dtype, shape=rows.shape,
            epsilon=float(epsilon),
        )  # fmt: skip
    joined = op.emit(
        "Reshape", made, op.sizes_of(first, first.shape), dtype=x.dtype, shape=first.shape
    )
    return op.transpose(joined, inverse(order))


def split_groups(
    op: Builder, x: Value, axis: int, groups: int
) -> tuple[Value, Value, Sequence[int]]:
    """Return x as [N, groups, rest], x with the channels first, and the latter's order of axes."""
    channels = x.shape[axis]
    if not isinstance(channels, int):
        raise Unsupported("group normalization of an unknown number of channels")
    if groups < 1 or channels % groups:
        raise Unsupported(f"group normalization of {channels} channels in {groups} groups")
    order = (0, axis, *(i for i in range(1, x.rank) if i != axis))
    first = op.transpose(x, order)
    inside = dims.product([channels // groups, *first.shape[2:]])
    return op.reshape(first, (first.shape[0], groups, inside)), first, order


def unit(op: Builder, x: Value, axes: Sequence[int], least_power: float) -> Value:
    """`x / sqrt(max(sum(x * x), least_power))`, over axes."""
    power = op.reduce("ReduceSum", op.mul(x, x), axes, keepdims=True)
    least = op.constant(least_power, x.dtype)
    return op.div(x, op.unary("Sqrt", op.elementwise("Max", power, least)))
