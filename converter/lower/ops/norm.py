"""Normalization: statistics over axes, and scaling along them.

Steps that the frameworks compute in float32 for every dtype are computed in float32 here too.
"""

from collections.abc import Sequence

from converter.lower.builder import Builder
from converter.lower.graph import Dim
from converter.lower.values import Value


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


def by_channel(
    op: Builder, x: Value, axis: int, gamma: Value | None, beta: Value | None, mean: Value,
    variance: Value, epsilon: float,
) -> Value | None:  # fmt: skip
    """Return ONNX's BatchNormalization; None for float64, or where axis 0 has the channels.

    The operator requires channels in axis 1; a stored order that has them there is kept.
    """
    order = x.stored
    if order[0] != 0 or order.index(axis) != 1:
        order = (0, axis, *(i for i in range(1, x.rank) if i != axis))
    if axis == 0 or x.dtype == "float64":
        return None
    count = mean.shape[0] if isinstance(mean.shape[0], int) else 0
    one = op.constant([1.0] * count, x.dtype) if gamma is None else gamma
    zero = op.constant([0.0] * count, x.dtype) if beta is None else beta
    inputs = [op.kept(x, order), one, zero, mean, variance]
    return op.node(
        "BatchNormalization", inputs, [(x.dtype, x.shape)],
        attributes={"epsilon": float(epsilon)}, stored=order,
    )[0]  # fmt: skip


def moments(op: Builder, x: Value, axes: Sequence[int]) -> tuple[Value, Value]:
    """Return `x - mean(x)` and the variance of x, over axes."""
    centred = op.sub(x, op.reduce("ReduceMean", x, axes, keepdims=True))
    return centred, op.reduce("ReduceMean", op.mul(centred, centred), axes, keepdims=True)


def standardize(op: Builder, x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """`(x - mean) / sqrt(variance + epsilon)`, over axes."""
    centred, variance = moments(op, x, axes)
    return op.div(centred, op.unary("Sqrt", op.add(variance, epsilon)))


def unit(op: Builder, x: Value, axes: Sequence[int], least_power: float) -> Value:
    """`x / sqrt(max(sum(x * x), least_power))`, over axes."""
    power = op.reduce("ReduceSum", op.mul(x, x), axes, keepdims=True)
    least = op.constant(least_power, x.dtype)
    return op.div(x, op.unary("Sqrt", op.elementwise("Max", power, least)))
