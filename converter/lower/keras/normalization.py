"""Normalisation with statistics learned, or taken from the input.

Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/normalization
"""

from collections.abc import Sequence
from typing import Any

from converter.lower.builder import Builder
from converter.lower.graph import Dim
from converter.lower.keras.table import Gap, Roles, keras_layer
from converter.lower.values import Value


def along(op: Builder, x: Value, vector: Value, axes: Sequence[int]) -> Value:
    """Return a parameter of these axes of x, shaped to be broadcast against x."""
    shape: list[Dim] = [1] * x.rank
    for axis, n in zip(axes, vector.shape, strict=True):
        shape[axis] = n
    if list(axes) == list(range(x.rank - len(axes), x.rank)):
        return vector
    return op.reshape(vector, shape)


@keras_layer("BatchNormalization", "SyncBatchNormalization", mask="pass")
def batch_normalization(
    op: Builder, w: Roles, x: Value, /, *,
    axis: int | list[int] = -1, momentum: float = 0.99, epsilon: float = 1e-3, center: bool = True,
    scale: bool = True, renorm: bool = False, fused: Any = None, virtual_batch_size: Any = None,
    renorm_clipping: Any = None, renorm_momentum: Any = None, mode: int = 0,
) -> Value:  # fmt: skip
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, by moving statistics."""
    del momentum, renorm, fused, renorm_clipping, renorm_momentum
    if virtual_batch_size:
        raise Gap("virtual_batch_size")
    if mode != 0:
        raise Gap(f"mode {mode}, which normalises by the batch")
    axes = [x.axis(axis)] if isinstance(axis, int) else [x.axis(a) for a in axis]
    mean, variance = w["moving_mean"], w["moving_variance"]
    gamma = w["gamma"] if scale else None
    beta = w["beta"] if center else None
    if len(axes) == 1 and x.rank > 1 and x.is_float and x.dtype != "float64":
        channels = axes[0]
        # ONNX's operator takes channels in axis 1; a stored order that has them there is kept.
        order = x.stored if x.stored.index(channels) == 1 else None
        if order is None:
            order = (0, channels, *(i for i in range(1, x.rank) if i != channels))
        if order[0] == 0:
            kept = op.kept(x, order)
            size = mean.shape
            one = op.constant([1.0] * int(size[0] or 0), x.dtype) if gamma is None else gamma
            zero = op.constant([0.0] * int(size[0] or 0), x.dtype) if beta is None else beta
            return op.node(
                "BatchNormalization", [kept, one, zero, mean, variance], [(x.dtype, x.shape)],
                attributes={"epsilon": float(epsilon)}, stored=order,
            )[0]  # fmt: skip
    factor = op.unary("Reciprocal", op.unary("Sqrt", op.add(variance, epsilon)))
    factor = factor if gamma is None else op.mul(factor, gamma)
    offset = op.unary("Neg", op.mul(mean, factor))
    offset = offset if beta is None else op.add(offset, beta)
    return op.add(op.mul(x, along(op, x, factor, axes)), along(op, x, offset, axes))


@keras_layer("LayerNormalization", mask="pass")
def layer_normalization(
    op: Builder, w: Roles, x: Value, /, *,
    axis: int | list[int] = -1, epsilon: float = 1e-3, center: bool = True, scale: bool = True,
    rms_scaling: bool = False,
) -> Value:  # fmt: skip
    """(x - mean(x)) / sqrt(var(x) + epsilon) * gamma + beta, over the given axes."""
    axes = [x.axis(axis)] if isinstance(axis, int) else sorted(x.axis(a) for a in axis)
    single = op.cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
    if rms_scaling:
        power = op.reduce("ReduceMean", op.mul(single, single), axes, keepdims=True)
        result = op.div(single, op.unary("Sqrt", op.add(power, epsilon)))
        gamma = along(op, x, op.cast(w["gamma"], single.dtype), axes)
        return op.cast(op.mul(result, gamma), x.dtype)
    result = standardized(op, single, axes, epsilon)
    if scale:
        result = op.mul(result, along(op, x, op.cast(w["gamma"], single.dtype), axes))
    if center:
        result = op.add(result, along(op, x, op.cast(w["beta"], single.dtype), axes))
    return op.cast(result, x.dtype)


def standardized(op: Builder, x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """(x - mean) / sqrt(variance + epsilon), over axes."""
    centred = op.sub(x, op.reduce("ReduceMean", x, axes, keepdims=True))
    variance = op.reduce("ReduceMean", op.mul(centred, centred), axes, keepdims=True)
    return op.div(centred, op.unary("Sqrt", op.add(variance, epsilon)))


@keras_layer("RMSNormalization", mask="pass")
def rms_normalization(
    op: Builder, w: Roles, x: Value, /, *, axis: int = -1, epsilon: float = 1e-6
) -> Value:
    """X / sqrt(mean(x * x) + epsilon) * scale, over an axis."""
    axes = [x.axis(axis)]
    power = op.reduce("ReduceMean", op.mul(x, x), axes, keepdims=True)
    result = op.div(x, op.unary("Sqrt", op.add(power, epsilon)))
    return op.mul(result, along(op, x, w["scale"], axes))


@keras_layer("UnitNormalization", mask="pass")
def unit_normalization(
    op: Builder, w: Roles, x: Value, /, *, axis: int | list[int] = -1, order: float = 2
) -> Value:
    """X / its Euclidean norm over axes."""
    del w
    if order != 2:
        raise Gap(f"order {order}")
    axes = [axis] if isinstance(axis, int) else axis
    power = op.reduce("ReduceSum", op.mul(x, x), axes, keepdims=True)
    least = op.constant(1e-12, x.dtype)
    return op.div(x, op.unary("Sqrt", op.elementwise("Max", power, least)))


@keras_layer("GroupNormalization", mask="pass")
def group_normalization(
    op: Builder, w: Roles, x: Value, /, *,
    groups: int = 32, axis: int = -1, epsilon: float = 1e-3, center: bool = True,
    scale: bool = True,
) -> Value:  # fmt: skip
    """X standardised over each group of channels and all spatial axes."""
    axis = x.axis(axis)
    channels = x.shape[axis]
    if not isinstance(channels, int):
        raise Gap("channels of unknown number")
    groups = channels if groups == -1 else groups
    # [N, groups, rest]: channels first, so that a group is one run.
    order = [0, axis, *(i for i in range(1, x.rank) if i != axis)]
    first = op.transpose(x, order)
    cut = op.reshape(first, (first.shape[0], groups, channels // groups, *first.shape[2:]))
    result = standardized(op, cut, list(range(2, cut.rank)), epsilon)
    whole = op.reshape(result, first.shape)
    back = [0] * x.rank
    for i, a in enumerate(order):
        back[a] = i
    result = op.transpose(whole, back)
    if scale:
        result = op.mul(result, along(op, x, w["gamma"], [axis]))
    if center:
        result = op.add(result, along(op, x, w["beta"], [axis]))
    return result
