"""Normalization by learned statistics, and by those of the input itself.

Spec: https://docs.pytorch.org/docs/2.13/nn.html#normalization-layers
"""

from collections.abc import Sequence

import numpy as np

from converter.lower import dims
from converter.lower.dims import Dim
from converter.lower.ops import norm
from converter.lower.ops.reduce import moments
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Int, Ints
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


def normalize_batch(
    op: Context, x: Value, weight: Value | None, bias: Value | None, mean: Value | None,
    variance: Value | None, eps: float,
) -> Value:  # fmt: skip
    """Return a batch normalization by known statistics, of [N, C, ...]."""
    if mean is None or variance is None:
        raise Unsupported("a batch normalization without statistics")
    if x.rank < 2:
        raise Unsupported(f"a batch normalization of {x.rank} axes")
    wide = op.cast(x, mean.dtype)
    made = norm.batch_norm(op, wide, [1], mean, variance, weight, bias, eps)
    return op.cast(made, x.dtype)


def _by_batch(
    op: Context, x: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    """Return x normalized by its own statistics, the means, and 1 / the deviations."""
    axes = [i for i in range(x.rank) if i != 1]
    made = norm.scale_and_shift(op, norm.standardize(op, x, axes, eps), weight, bias, [1])
    return made, *_statistics(op, x, axes, eps, keepdims=False)


def _statistics(
    op: Context, x: Value, axes: Sequence[int], eps: float, *, keepdims: bool
) -> tuple[Value, Value]:
    """Return the means and the reciprocals of the standard deviations over axes."""
    mean, variance = moments(op, x, axes, keepdims=keepdims)
    return mean, op.unary("Reciprocal", norm.deviation(op, variance, eps))


@aten("batch_norm")
def batch_norm(
    op: Context, input: Value, weight: Value | None, bias: Value | None,
    running_mean: Value | None, running_var: Value | None, training: bool, momentum: float,
    eps: float, cudnn_enabled: bool = False,
) -> Value:  # fmt: skip
    """Batch normalization by running statistics, or by those of the batch."""
    del momentum, cudnn_enabled  # of training, and of how
    if input.shape == (0,):
        return input
    if training:
        return _by_batch(op, input, weight, bias, eps)[0]
    return normalize_batch(op, input, weight, bias, running_mean, running_var, eps)


@aten("_native_batch_norm_legit_no_training")
def native_batch_norm_no_training(
    op: Context, input: Value, weight: Value | None, bias: Value | None, running_mean: Value,
    running_var: Value, momentum: float, eps: float,
) -> list[Value]:  # fmt: skip
    """Batch normalization by running statistics, and two empty tensors."""
    del momentum
    empty = op.constant([], "float32")
    return [normalize_batch(op, input, weight, bias, running_mean, running_var, eps), empty, empty]


@aten("native_batch_norm", "_native_batch_norm_legit")
def native_batch_norm(
    op: Context, input: Value, weight: Value | None, bias: Value | None,
    running_mean: Value | None, running_var: Value | None, training: bool, momentum: float,
    eps: float,
) -> list[Value]:  # fmt: skip
    """Batch normalization by running statistics, or by those of the batch."""
    del momentum
    if training:
        return [*_by_batch(op, input, weight, bias, eps)]
    empty = op.constant([], "float64" if input.dtype == "float64" else "float32")
    return [normalize_batch(op, input, weight, bias, running_mean, running_var, eps), empty, empty]


@aten("_native_batch_norm_legit_functional")
def native_batch_norm_functional(
    op: Context, input: Value, weight: Value | None, bias: Value | None, running_mean: Value,
    running_var: Value, training: bool, momentum: float, eps: float,
) -> list[Value]:  # fmt: skip
    """Batch normalization by the statistics of the batch; also the running ones after it."""
    made = native_batch_norm(
        op, input, weight, bias, running_mean, running_var, training, momentum, eps
    )
    if not training:
        return [*made, running_mean, running_var]
    after = update_statistics(op, input, running_mean, running_var, momentum)
    return [*made, *after]


def update_statistics(
    op: Context, x: Value, mean: Value, variance: Value, momentum: float
) -> list[Value]:
    """Return running means and variances after a batch; its variance is the unbiased one."""
    axes = [i for i in range(x.rank) if i != 1]
    wide = op.cast(x, mean.dtype)
    batch = moments(op, wide, axes, keepdims=False)
    count: Dim = 1
    for axis in axes:
        count = dims.mul(count, op.axis_of(wide, axis))
    ratio = op.div(op.scalar_of(count, mean.dtype), op.scalar_of(dims.sub(count, 1), mean.dtype))
    pairs = ((mean, batch[0]), (variance, op.mul(batch[1], ratio)))
    return [op.add(op.mul(old, 1 - momentum), op.mul(new, momentum)) for old, new in pairs]


@aten("cudnn_batch_norm")
def cudnn_batch_norm(
    op: Context, input: Value, weight: Value, bias: Value | None, running_mean: Value | None,
    running_var: Value | None, training: bool, exponential_average_factor: float, epsilon: float,
) -> list[Value]:  # fmt: skip
    """Batch normalization by running statistics, or by those of the batch."""
    return native_batch_norm(
        op, input, weight, bias, running_mean, running_var, training, exponential_average_factor,
        epsilon,
    )  # fmt: skip


@aten("_batch_norm_with_update")
def batch_norm_with_update(
    op: Context, input: Value, weight: Value | None, bias: Value | None, running_mean: Value,
    running_var: Value, momentum: float, eps: float,
) -> list[Value]:  # fmt: skip
    """Batch normalization by the statistics of the batch, and an empty tensor for its gradient."""
    del running_mean, running_var, momentum
    return [*_by_batch(op, input, weight, bias, eps), op.constant([], "uint8")]


@aten("_native_batch_norm_legit.no_stats")
def native_batch_norm_no_stats(
    op: Context, input: Value, weight: Value | None, bias: Value | None, training: bool,
    momentum: float, eps: float,
) -> list[Value]:  # fmt: skip
    """Batch normalization by the statistics of the batch."""
    del momentum, training
    return [*_by_batch(op, input, weight, bias, eps)]


@aten("instance_norm")
def instance_norm(
    op: Context, input: Value, weight: Value | None, bias: Value | None,
    running_mean: Value | None, running_var: Value | None, use_input_stats: bool,
    momentum: float, eps: float, cudnn_enabled: bool,
) -> Value:  # fmt: skip
    """Instance normalization."""
    del momentum, cudnn_enabled
    if not use_input_stats:
        return normalize_batch(op, input, weight, bias, running_mean, running_var, eps)
    channels = input.shape[1]
    made = norm.group_norm(op, input, 1, channels if isinstance(channels, int) else 0, eps)
    return norm.scale_and_shift(op, made, weight, bias, [1])


@aten("layer_norm")
def layer_norm(
    op: Context, input: Value, normalized_shape: Ints, weight: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, cudnn_enable: bool = True,
) -> Value:  # fmt: skip
    """Layer normalization over the last axes."""
    del cudnn_enable
    axes = range(input.rank - len(normalized_shape), input.rank)
    return norm.layer_norm(op, input, axes, weight, bias, eps)


@aten("native_layer_norm")
def native_layer_norm(
    op: Context, input: Value, normalized_shape: Ints, weight: Value | None, bias: Value | None,
    eps: float,
) -> list[Value]:  # fmt: skip
    """Layer normalization over the last axes; also means and reciprocal deviations."""
    made = layer_norm(op, input, normalized_shape, weight, bias, eps)
    axes = range(input.rank - len(normalized_shape), input.rank)
    return [made, *_statistics(op, norm.wide(op, input), axes, eps, keepdims=True)]


@aten("rms_norm")
def rms_norm(
    op: Context, input: Value, normalized_shape: Ints, weight: Value | None = None,
    eps: float | None = None,
) -> Value:  # fmt: skip
    """Root mean square normalization over the last axes."""
    return _rms(op, input, normalized_shape, weight, eps)[0]


@aten("_fused_rms_norm")
def fused_rms_norm(
    op: Context, input: Value, normalized_shape: Ints, weight: Value | None, eps: float | None
) -> list[Value]:
    """Root mean square normalization over the last axes, and its factor."""
    return [*_rms(op, input, normalized_shape, weight, eps)]


def _rms(
    op: Context, x: Value, shape: Ints, weight: Value | None, eps: float | None
) -> tuple[Value, Value]:
    wide = norm.wide(op, x)
    axes = range(x.rank - len(shape), x.rank)
    least = float(np.finfo(wide.dtype).eps) if eps is None else eps
    made, root = norm.rms_norm(op, wide, axes, least)
    made = norm.scale_and_shift(op, made, weight, None, axes)
    return op.cast(made, x.dtype), op.unary("Reciprocal", root)


@aten("group_norm")
def group_norm(
    op: Context, input: Value, num_groups: int, weight: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, cudnn_enabled: bool = True,
) -> Value:  # fmt: skip
    """Group normalization."""
    del cudnn_enabled
    made = norm.group_norm(op, norm.wide(op, input), 1, num_groups, eps)
    return op.cast(norm.scale_and_shift(op, made, weight, bias, [1]), input.dtype)


@aten("native_group_norm")
def native_group_norm(
    op: Context, input: Value, weight: Value | None, bias: Value | None,
    N: Int, C: Int, HxW: Int,  # noqa: N803 - the schema's names
    group: int, eps: float,
) -> list[Value]:  # fmt: skip
    """Group normalization; also the means, and the reciprocals of the standard deviations."""
    del N, C, HxW  # the input's own
    rows, _, _ = norm.split_groups(op, norm.wide(op, input), 1, group)
    statistics = _statistics(op, rows, [2], eps, keepdims=False)
    return [group_norm(op, input, group, weight, bias, eps), *statistics]
