"""Normalisations: by statistics that were learnt, and by those of the input itself.

Spec: https://docs.pytorch.org/docs/2.13/nn.html#normalization-layers
"""

import math
from collections.abc import Sequence

import numpy as np

from converter.lower import dims
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Int, Ints
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

MOST_CHANNELS = 1 << 20  # of which constants are made


def _constant_vector(op: Context, number: float, channels: object, dtype: str) -> Value:
    if not isinstance(channels, int) or channels > MOST_CHANNELS:
        raise Unsupported("a number of channels that is not known")
    return op.constant([number] * channels, dtype)


def normalize_batch(
    op: Context, x: Value, weight: Value | None, bias: Value | None, mean: Value | None,
    variance: Value | None, eps: float,
) -> Value:  # fmt: skip
    """Return a batch normalization by known statistics, of [N, C, ...]."""
    if mean is None or variance is None:
        raise Unsupported("a batch normalisation without statistics")
    if x.rank < 2:
        raise Unsupported(f"a batch normalisation of {x.rank} axes")
    kind = mean.dtype
    given = op.cast(x, kind)
    scale = weight if weight is not None else _constant_vector(op, 1.0, mean.shape[0], kind)
    offset = bias if bias is not None else _constant_vector(op, 0.0, mean.shape[0], kind)
    inputs = [op.outer(given), *(op.cast(v, kind) for v in (scale, offset, mean, variance))]
    (made,) = op.node(
        "BatchNormalization", inputs, [(kind, x.shape)], attributes={"epsilon": float(eps)}
    )
    return op.cast(made, x.dtype)


def _by_batch(
    op: Context, x: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    """Return x normalised by its own statistics, and what torch saves of them."""
    axes = [i for i in range(x.rank) if i != 1]
    centred, mean, variance = _center(op, x, axes)
    root = op.unary("Reciprocal", op.unary("Sqrt", op.add(variance, eps)))
    wide = (1, x.shape[1], *[1] * (x.rank - 2))
    made = op.mul(centred, root)
    if weight is not None:
        made = op.mul(made, op.reshape(weight, wide))
    if bias is not None:
        made = op.add(made, op.reshape(bias, wide))
    vector = (x.shape[1],)
    return made, op.reshape(mean, vector), op.reshape(root, vector)


@aten("batch_norm")
def batch_norm(
    op: Context, input: Value, weight: Value | None, bias: Value | None,
    running_mean: Value | None, running_var: Value | None, training: bool, momentum: float,
    eps: float, cudnn_enabled: bool = False,
) -> Value:  # fmt: skip
    """Batch normalization by running statistics, or by those of the batch."""
    del momentum, cudnn_enabled  # of training, and of how
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


@aten("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm")
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
    scale = weight if weight is not None else _constant_vector(op, 1.0, channels, input.dtype)
    offset = bias if bias is not None else _constant_vector(op, 0.0, channels, input.dtype)
    return op.node(
        "InstanceNormalization", [op.outer(input), scale, offset], [(input.dtype, input.shape)],
        attributes={"epsilon": float(eps)},
    )[0]  # fmt: skip


def _center(op: Context, x: Value, axes: Sequence[int]) -> tuple[Value, Value, Value]:
    """Return x less its mean, the mean, and the variance, along axes that are kept."""
    mean = op.reduce("ReduceMean", x, axes, keepdims=True)
    centred = op.sub(x, mean)
    return centred, mean, op.reduce("ReduceMean", op.mul(centred, centred), axes, keepdims=True)


def _layer(
    op: Context, x: Value, shape: Ints, weight: Value | None, bias: Value | None, eps: float
) -> list[Value]:
    """Return a layer normalization, the mean, and one over the root of the variance."""
    axes = list(range(x.rank - len(shape), x.rank))
    kept = (*x.shape[: axes[0]], *[1] * len(axes))
    if weight is None:
        sides = [n for n in shape if isinstance(n, int)]
        if len(sides) != len(shape) or math.prod(sides) > MOST_CHANNELS:
            raise Unsupported("a layer normalisation of a shape that is not known")
        weight = op.constant(np.ones(sides, x.dtype if x.dtype != "bfloat16" else "float32"))
        weight = op.cast(weight, x.dtype)
    inputs = [
        op.outer(x),
        op.cast(weight, x.dtype),
        None if bias is None else op.cast(bias, x.dtype),
    ]
    return op.node(
        "LayerNormalization", inputs, [(x.dtype, x.shape), ("float32", kept), ("float32", kept)],
        attributes={"axis": axes[0], "epsilon": float(eps)},
    )  # fmt: skip


@aten("layer_norm")
def layer_norm(
    op: Context, input: Value, normalized_shape: Ints, weight: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, cudnn_enable: bool = True,
) -> Value:  # fmt: skip
    """Layer normalization over the last axes."""
    del cudnn_enable
    return _layer(op, input, normalized_shape, weight, bias, eps)[0]


@aten("native_layer_norm")
def native_layer_norm(
    op: Context, input: Value, normalized_shape: Ints, weight: Value | None, bias: Value | None,
    eps: float,
) -> list[Value]:  # fmt: skip
    """Layer normalization over the last axes; also means and reciprocal deviations."""
    found = _layer(op, input, normalized_shape, weight, bias, eps)
    if input.dtype != "float64":  # of which ONNX's operator has float32 statistics
        return found
    axes = list(range(input.rank - len(normalized_shape), input.rank))
    _, mean, variance = _center(op, input, axes)
    deviation = op.unary("Sqrt", op.add(variance, eps))
    return [found[0], mean, op.unary("Reciprocal", deviation)]


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
    kind = "float32" if x.dtype in ("float16", "bfloat16") else x.dtype
    wide = op.cast(x, kind)
    axes = list(range(x.rank - len(shape), x.rank))
    square = op.reduce("ReduceMean", op.mul(wide, wide), axes, keepdims=True)
    small = float(np.finfo(kind).eps) if eps is None else eps
    root = op.unary("Reciprocal", op.unary("Sqrt", op.add(square, small)))
    made = op.mul(wide, root)
    if weight is not None:
        made = op.mul(made, op.cast(weight, kind))
    return op.cast(made, x.dtype), root


def _groups(
    op: Context, x: Value, weight: Value | None, bias: Value | None, groups: int, eps: float
) -> tuple[Value, Value, Value]:
    """Return a group normalization of [N, C, ...], the means, and 1 / the deviations."""
    if groups < 1 or not isinstance(x.shape[1], int) or x.shape[1] % groups:
        raise Unsupported(f"{x.shape[1]} channels in {groups} groups")
    named = op.named(x)
    inside = dims.product([x.shape[1] // groups, *named.shape[2:]])
    rows = op.reshape(named, (named.shape[0], groups, inside))
    centred, mean, variance = _center(op, rows, [2])
    root = op.unary("Reciprocal", op.unary("Sqrt", op.add(variance, eps)))
    made = op.reshape(op.mul(centred, root), named.shape)
    wide = (1, x.shape[1], *[1] * (x.rank - 2))
    if weight is not None:
        made = op.mul(made, op.reshape(weight, wide))
    if bias is not None:
        made = op.add(made, op.reshape(bias, wide))
    return made, op.squeeze(mean, [2]), op.squeeze(root, [2])


@aten("group_norm")
def group_norm(
    op: Context, input: Value, num_groups: int, weight: Value | None = None,
    bias: Value | None = None, eps: float = 1e-5, cudnn_enabled: bool = True,
) -> Value:  # fmt: skip
    """Group normalization."""
    del cudnn_enabled
    return _groups(op, input, weight, bias, num_groups, eps)[0]


@aten("native_group_norm")
def native_group_norm(
    op: Context, input: Value, weight: Value | None, bias: Value | None,
    N: Int, C: Int, HxW: Int,  # noqa: N803 - the schema's names
    group: int, eps: float,
) -> list[Value]:  # fmt: skip
    """Group normalization; also the means, and the reciprocals of the standard deviations."""
    del N, C, HxW  # the input's own
    return [*_groups(op, input, weight, bias, group, eps)]
