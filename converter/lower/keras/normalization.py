"""Normalization by learned statistics, or by those of the input.

What Keras computes in float32 whatever the layer's dtype is computed in float32 here too.
Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/normalization
"""

from collections.abc import Sequence
from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.inner_layers import call_layer
from converter.lower.keras.table import Masked, Roles, Unsupported, keras_layer
from converter.lower.ops.norm import (
    batch_norm,
    deviation,
    group_norm,
    layer_norm,
    rms_norm,
    scale_and_shift,
    standardize,
    unit,
    wide,
)
from converter.lower.ops.reduce import moments
from converter.lower.values import Value


def _axes(x: Value, axis: int | Sequence[int]) -> list[int]:
    axes = [axis] if isinstance(axis, int) else axis
    return sorted(x.axis(a) for a in axes)


@keras_layer("BatchNormalization", "SyncBatchNormalization", mask="pass")
def batch_normalization(
    op: Builder, w: Roles, x: Value, /, *,
    axis: int | list[int] = -1, momentum: float = 0.99, epsilon: float = 1e-3, center: bool = True,
    scale: bool = True, renorm: bool = False, fused: Any = None, virtual_batch_size: Any = None,
    renorm_clipping: Any = None, renorm_momentum: Any = None, mode: int = 0,
    least_epsilon: float = 0.0,
) -> Value:  # fmt: skip
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, by moving statistics."""
    del momentum, renorm, renorm_clipping, renorm_momentum
    w.leave("moving_stddev", "renorm_mean", "renorm_stddev")
    if mode:
        w.leave("moving_mean", "moving_variance")
        channels = x.axis(axis if isinstance(axis, int) else -1)
        return _without_history(op, w, x, channels, epsilon, mode)
    axes = _axes(x, axis)
    if virtual_batch_size:
        axes = [a - 1 for a in axes]  # tf.keras saves them counted after the batch axis
    single = wide(op, x)
    if fused is not False and x.rank in (4, 5) and axes in ([1], [x.rank - 1]):
        epsilon = max(epsilon, least_epsilon)

    def parameter(role: str) -> Value:
        """Return a parameter; for several axes or virtual batches, it has the axes of x."""
        found = w.exact(role)
        return op.reshape(found, tuple(x.shape[a] for a in axes)) if found.rank > 1 else found

    mean, variance = parameter("moving_mean"), parameter("moving_variance")
    gamma = parameter("gamma") if scale else None
    beta = parameter("beta") if center else None
    return op.cast(batch_norm(op, single, axes, mean, variance, gamma, beta, epsilon), x.dtype)


def _without_history(
    op: Builder, w: Roles, x: Value, axis: int, epsilon: float, mode: int
) -> Value:
    """Standardise by what there is: Keras 1 did so by sample (mode 1), or by batch (mode 2)."""
    if mode == 1:
        mean, variance = moments(op, x, [-1], keepdims=True)
        spread = op.add(deviation(op, variance, epsilon), epsilon)
        result, axes = op.div(op.sub(x, mean), spread), [x.rank - 1]
    elif mode == 2:
        result = standardize(op, x, [i for i in range(x.rank) if i != axis], epsilon)
        axes = [axis]
    else:
        raise Unsupported(f"mode {mode}")
    return scale_and_shift(op, result, w["gamma"], w["beta"], axes)


@keras_layer("LayerNormalization", mask="pass")
def layer_normalization(
    op: Builder, w: Roles, x: Value, /, *,
    axis: int | list[int] = -1, epsilon: float = 1e-3, center: bool = True, scale: bool = True,
    rms_scaling: bool = False,
) -> Value:  # fmt: skip
    """(x - mean(x)) / sqrt(var(x) + epsilon) * gamma + beta, over the given axes."""
    axes = _axes(x, axis)
    single = wide(op, x)
    if rms_scaling:
        # Not the root mean square, whatever the name says: Keras divides by the deviation.
        _, variance = moments(op, single, axes, keepdims=True)
        result = op.div(single, deviation(op, variance, epsilon))
        result = scale_and_shift(op, result, w.exact("gamma"), None, axes)
    else:
        gamma = w.exact("gamma") if scale else None
        beta = w.exact("beta") if center else None
        result = layer_norm(op, single, axes, gamma, beta, epsilon)
    return op.cast(result, x.dtype)


@keras_layer("RMSNormalization")
def rms_normalization(
    op: Builder, w: Roles, x: Value, /, *, axis: int | list[int] = -1, epsilon: float = 1e-6
) -> Value:
    """`x / sqrt(mean(x * x) + epsilon) * scale`, over axes."""
    single = wide(op, x)
    result, _ = rms_norm(op, single, _axes(x, axis), epsilon)
    # Keras broadcasts the scale along the last axes, whatever axes it is of.
    return op.cast(op.mul(result, op.cast(w["scale"], single.dtype)), x.dtype)


@keras_layer("UnitNormalization", mask="pass")
def unit_normalization(
    op: Builder, w: Roles, x: Value, /, *,
    axis: int | list[int] = -1, least_power: float = 1e-24,
) -> Value:  # fmt: skip
    """`x / norm(x)` over axes, with the Euclidean norm."""
    del w
    return unit(op, x, _axes(x, axis), least_power)


@keras_layer("GroupNormalization", mask="pass")
def group_normalization(
    op: Builder, w: Roles, x: Value, /, *,
    groups: int = 32, axis: int = -1, epsilon: float = 1e-3, center: bool = True,
    scale: bool = True,
) -> Value:  # fmt: skip
    """Normalization over each group of channels and all spatial axes."""
    axis = x.axis(axis)
    groups = int(x.shape[axis] or 0) if groups == -1 else groups
    result = group_norm(op, wide(op, x), axis, groups, epsilon)
    gamma = w.exact("gamma") if scale else None
    beta = w.exact("beta") if center else None
    return op.cast(scale_and_shift(op, result, gamma, beta, [axis]), x.dtype)


@keras_layer("SpectralNormalization")
def spectral_normalization(
    op: Builder, w: Roles, x: Value, /, *, layer: Any, power_iterations: int = 1
) -> Any:
    """The wrapped layer; training has normalized its kernel."""
    del power_iterations
    w.leave("vector_u", "0")  # what training begins from; Keras 3 stores it by its number
    result = call_layer(op, w, layer, x)
    return result.value if isinstance(result, Masked) else result
