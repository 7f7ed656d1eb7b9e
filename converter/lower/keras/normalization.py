"""Normalisation with statistics learned, or taken from the input.

What Keras computes in float32 whatever the layer's dtype is computed in float32 here too.
Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/normalization
"""

from collections.abc import Sequence
from typing import Any

from converter.lower.builder import Builder
from converter.lower.graph import Dim
from converter.lower.keras.table import Gap, Masked, Roles, keras_layer
from converter.lower.keras.wrapped import call_layer
from converter.lower.values import Value, inverse, total


def along(op: Builder, x: Value, vector: Value, axes: Sequence[int]) -> Value:
    """Return a parameter of these axes of x, shaped to be broadcast against x."""
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
    """Return a value in float32 at least."""
    return x if x.dtype == "float64" else op.cast(x, "float32")


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
        axes = [a - 1 for a in axes]  # tf.keras saves them as they are behind that of the batches
    single = wide(op, x)
    if fused is not False and x.rank in (4, 5) and axes in ([1], [x.rank - 1]):
        epsilon = max(epsilon, least_epsilon)

    def parameter(role: str) -> Value:
        """Of several axes or with virtual batches, they have the axes of x."""
        found = op.cast(w.exact(role), single.dtype)
        return op.reshape(found, tuple(x.shape[a] for a in axes)) if found.rank > 1 else found

    mean, variance = parameter("moving_mean"), parameter("moving_variance")
    gamma = parameter("gamma") if scale else None
    beta = parameter("beta") if center else None
    if len(axes) == 1 and x.rank > 1:
        result = by_channel(op, single, axes[0], gamma, beta, mean, variance, epsilon)
        if result is not None:
            return op.cast(result, x.dtype)
    factor = op.unary("Reciprocal", op.unary("Sqrt", op.add(variance, epsilon)))
    factor = factor if gamma is None else op.mul(factor, gamma)
    offset = op.unary("Neg", op.mul(mean, factor))
    offset = offset if beta is None else op.add(offset, beta)
    result = op.add(op.mul(single, along(op, x, factor, axes)), along(op, x, offset, axes))
    return op.cast(result, x.dtype)


def _without_history(
    op: Builder, w: Roles, x: Value, axis: int, epsilon: float, mode: int
) -> Value:
    """Standardise by what there is: Keras 1 did so by sample (mode 1), or by batch (mode 2)."""
    if mode == 1:
        centred, variance = moments(op, x, [-1])
        spread = op.add(op.unary("Sqrt", op.add(variance, epsilon)), epsilon)
        result, axes = op.div(centred, spread), [x.rank - 1]
    elif mode == 2:
        result = standardized(op, x, [i for i in range(x.rank) if i != axis], epsilon)
        axes = [axis]
    else:
        raise Gap(f"mode {mode}")
    result = op.mul(result, along(op, x, w["gamma"], axes))
    return op.add(result, along(op, x, w["beta"], axes))


def by_channel(
    op: Builder, x: Value, axis: int, gamma: Value | None, beta: Value | None, mean: Value,
    variance: Value, epsilon: float,
) -> Value | None:  # fmt: skip
    """Return ONNX's own operator, which wants channels in axis 1; None where batches are not first.

    A stored order that has them there is kept.
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
        _, spread = moments(op, single, axes)
        result = op.div(single, op.unary("Sqrt", op.add(spread, epsilon)))
        scale, center = True, False
    elif axes == [x.rank - 1] and single.dtype != "float64":  # its operator is of float32
        return op.cast(_layer_norm(op, w, single, epsilon, center, scale), x.dtype)
    else:
        result = standardized(op, single, axes, epsilon)
    if scale:
        result = op.mul(result, along(op, x, op.cast(w.exact("gamma"), single.dtype), axes))
    if center:
        result = op.add(result, along(op, x, op.cast(w.exact("beta"), single.dtype), axes))
    return op.cast(result, x.dtype)


def _layer_norm(
    op: Builder, w: Roles, x: Value, epsilon: float, center: bool, scale: bool
) -> Value:
    """Return ONNX's own operator, over the last axis."""
    size = int(x.shape[-1] or 0)
    gamma = op.cast(w.exact("gamma"), x.dtype) if scale else op.constant([1.0] * size, x.dtype)
    beta = op.cast(w.exact("beta"), x.dtype) if center else None
    return op.emit(
        "LayerNormalization", x, gamma, beta, dtype=x.dtype, shape=x.shape, axis=-1,
        epsilon=float(epsilon),
    )  # fmt: skip


def moments(op: Builder, x: Value, axes: Sequence[int]) -> tuple[Value, Value]:
    """Return x minus its mean, and its variance, over axes."""
    centred = op.sub(x, op.reduce("ReduceMean", x, axes, keepdims=True))
    return centred, op.reduce("ReduceMean", op.mul(centred, centred), axes, keepdims=True)


def standardized(op: Builder, x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """(x - mean) / sqrt(variance + epsilon), over axes."""
    centred, variance = moments(op, x, axes)
    return op.div(centred, op.unary("Sqrt", op.add(variance, epsilon)))


@keras_layer("RMSNormalization")
def rms_normalization(
    op: Builder, w: Roles, x: Value, /, *, axis: int | list[int] = -1, epsilon: float = 1e-6
) -> Value:
    """X / sqrt(mean(x * x) + epsilon) * scale, over axes."""
    single = wide(op, x)
    power = op.reduce("ReduceMean", op.mul(single, single), _axes(x, axis), keepdims=True)
    result = op.div(single, op.unary("Sqrt", op.add(power, epsilon)))
    # Keras broadcasts the scale along the last axes, whatever axes it is of.
    return op.cast(op.mul(result, op.cast(w["scale"], single.dtype)), x.dtype)


@keras_layer("UnitNormalization", mask="pass")
def unit_normalization(
    op: Builder, w: Roles, x: Value, /, *,
    axis: int | list[int] = -1, least_power: float = 1e-24,
) -> Value:  # fmt: skip
    """X / its Euclidean norm over axes."""
    del w
    return unit(op, x, _axes(x, axis), least_power)


def unit(op: Builder, x: Value, axes: Sequence[int], least_power: float) -> Value:
    """X / sqrt(max(sum(x * x), least_power)), over axes."""
    power = op.reduce("ReduceSum", op.mul(x, x), axes, keepdims=True)
    least = op.constant(least_power, x.dtype)
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
    first = op.transpose(wide(op, x), order)
    rest = total(first.shape[2:])
    size = None if rest is None else rest * (channels // groups)
    cut = op.reshape(first, (first.shape[0], groups, size))
    result = standardized(op, cut, [2], epsilon)
    result = op.transpose(op.emit(
        "Reshape", result, op.sizes_of(first, first.shape), dtype=first.dtype, shape=first.shape,
    ), inverse(order))  # fmt: skip
    if scale:
        result = op.mul(result, along(op, x, op.cast(w.exact("gamma"), result.dtype), [axis]))
    if center:
        result = op.add(result, along(op, x, op.cast(w.exact("beta"), result.dtype), [axis]))
    return op.cast(result, x.dtype)


@keras_layer("SpectralNormalization")
def spectral_normalization(
    op: Builder, w: Roles, x: Value, /, *, layer: Any, power_iterations: int = 1
) -> Any:
    """The wrapped layer, whose kernel training has normalised."""
    del power_iterations
    w.leave("vector_u", "0")  # what training begins from; Keras 3 stores it by its number
    result = call_layer(op, w, layer, x)
    return result.value if isinstance(result, Masked) else result
