"""Batch normalization, local response normalization, softmax and cross entropy.

As in TensorFlow's kernels, statistics of narrower float types are computed in float32.
Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels
"""

from collections.abc import Sequence

from converter.lower import dims
from converter.lower.ops.conv import as_given, channels_first
from converter.lower.ops.norm import batch_norm, scale_and_shift, standardize, wide
from converter.lower.ops.reduce import moments
from converter.lower.tf.context import Context
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.tf.windows import is_first
from converter.lower.values import Value, broadcast

NORMS = ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2")


def by_statistics(
    op: Context, x: Value, scale: Value, offset: Value, mean: Value, variance: Value,
    epsilon: float, data_format: str,
) -> Value:  # fmt: skip
    """Return `(x - mean) / sqrt(variance + epsilon) * scale + offset`, per channel."""
    axis = 1 if is_first(data_format) else x.rank - 1
    single = wide(op, x)
    made = batch_norm(op, single, [axis], mean, variance, scale, offset, epsilon)
    return op.cast(made, x.dtype)


def _of_batch(
    op: Context, x: Value, scale: Value, offset: Value, epsilon: float, data_format: str
) -> tuple[Value, Value, Value, Value]:
    """Return normalized `x`, and its means, variances and unbiased variances per channel."""
    axis = 1 if is_first(data_format) else x.rank - 1
    axes = [i for i in range(x.rank) if i != axis]
    single = wide(op, x)
    mean, variance = moments(op, single, axes, keepdims=True)
    normalized = standardize(op, single, axes, epsilon)
    result = scale_and_shift(op, normalized, scale, offset, [axis])
    count = dims.product([x.shape[i] for i in axes])
    if isinstance(count, int):
        unbiased: Value = op.mul(variance, count / max(count - 1, 1))
    else:
        all_of = op.div(op.emit("Size", x, dtype="int64", shape=()), op.size(x, axis))
        elements = op.cast(all_of, single.dtype)
        rest = op.elementwise("Max", op.sub(elements, 1.0), 1.0)
        unbiased = op.mul(variance, op.div(elements, rest))
    flat = [op.squeeze(v, axes) for v in (mean, variance, unbiased)]
    return op.cast(result, x.dtype), flat[0], flat[1], flat[2]


def _normalize(
    op: Context, x: Value, scale: Value, offset: Value, mean: Value, variance: Value,
    epsilon: float, exponential_avg_factor: float, data_format: str, *, is_training: bool,
) -> list[Value]:  # fmt: skip
    if not is_training:
        found = by_statistics(op, x, scale, offset, mean, variance, epsilon, data_format)
        return [found, mean, variance, mean, variance]
    result, middle, biased, spread = _of_batch(op, x, scale, offset, epsilon, data_format)
    moving = [middle, spread]
    if exponential_avg_factor != 1:
        kept = 1 - exponential_avg_factor
        moving = [
            op.add(op.mul(old, kept), op.mul(new, exponential_avg_factor))
            for old, new in ((mean, middle), (variance, spread))
        ]
    return [result, *moving, middle, biased]


@tf_op("FusedBatchNorm", "FusedBatchNormV2", outputs=NORMS)
def fused_batch_norm(
    op: Context, x: Value, scale: Value, offset: Value, mean: Value, variance: Value, /, *,
    epsilon: float = 1e-4, exponential_avg_factor: float = 1.0, data_format: str = "NHWC",
    is_training: bool = True,
) -> list[Value]:  # fmt: skip
    """`(x - mean) / sqrt(variance + epsilon) * scale + offset`, and the statistics."""
    return _normalize(
        op, x, scale, offset, mean, variance, epsilon, exponential_avg_factor, data_format,
        is_training=is_training,
    )  # fmt: skip


@tf_op("FusedBatchNormV3", outputs=(*NORMS, "reserve_space_3"))
def fused_batch_norm_v3(
    op: Context, x: Value, scale: Value, offset: Value, mean: Value, variance: Value, /, *,
    epsilon: float = 1e-4, exponential_avg_factor: float = 1.0, data_format: str = "NHWC",
    is_training: bool = True,
) -> list[Value]:  # fmt: skip
    """`(x - mean) / sqrt(variance + epsilon) * scale + offset`, the statistics, an empty tensor."""
    found = _normalize(
        op, x, scale, offset, mean, variance, epsilon, exponential_avg_factor, data_format,
        is_training=is_training,
    )  # fmt: skip
    return [*found, op.constant([], scale.dtype)]


@tf_op("BatchNormWithGlobalNormalization")
def batch_norm_with_global_normalization(
    op: Context, t: Value, m: Value, v: Value, beta: Value, gamma: Value, /, *,
    variance_epsilon: float, scale_after_normalization: bool,
) -> Value:  # fmt: skip
    """`(t - m) / sqrt(v + variance_epsilon) * gamma + beta`; `gamma` is optional."""
    if not scale_after_normalization:
        count = next((n for n in (m.shape[0], t.shape[-1]) if isinstance(n, int)), None)
        if count is None:
            raise Unsupported("channels of unknown number")
        gamma = op.constant([1.0] * count, t.dtype)
    return by_statistics(op, t, gamma, beta, m, v, variance_epsilon, "NHWC")


@tf_op("LRN")
def lrn(
    op: Context, input: Value, /, *,
    depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5,
) -> Value:  # fmt: skip
    """`x / (bias + alpha * sum(x ** 2)) ** beta`, summed over the neighboring channels."""
    image = channels_first(op, input, None)
    size = 2 * depth_radius + 1
    made = op.emit(
        "LRN", image, dtype=image.dtype, shape=image.shape, size=size, bias=float(bias),
        alpha=float(alpha * size), beta=float(beta),
    )  # fmt: skip
    return as_given(op, made, None)


# -- softmax ---------------------------------------------------------------------------------------


@tf_op("Softmax")
def softmax(op: Context, logits: Value, /) -> Value:
    """`exp(x) / sum(exp(x))` along the last axis."""
    return op.softmax(logits, -1)


@tf_op("LogSoftmax")
def log_softmax(op: Context, logits: Value, /) -> Value:
    """`x - log(sum(exp(x)))` along the last axis."""
    return op.softmax(logits, -1, "LogSoftmax")


@tf_op("SoftmaxCrossEntropyWithLogits", outputs=("loss", "backprop"))
def softmax_cross_entropy(op: Context, features: Value, labels: Value, /) -> list[Value]:
    """`-sum(labels * log(softmax(features)))` of each row, and its gradient."""
    shape = broadcast(features.shape, labels.shape)
    if features.shape != shape:
        features = op.add(features, op.mul(labels, 0.0))
    shares = op.mul(labels, op.softmax(features, -1, "LogSoftmax"))
    loss = op.unary("Neg", op.reduce("ReduceSum", shares, [1]))
    return [loss, op.sub(op.softmax(features, -1), labels)]


@tf_op("SparseSoftmaxCrossEntropyWithLogits", outputs=("loss", "backprop"))
def sparse_softmax_cross_entropy(op: Context, features: Value, labels: Value, /) -> list[Value]:
    """`-log(softmax(features))` at each row's label, and its gradient."""
    logs = op.softmax(features, -1, "LogSoftmax")
    column = op.unsqueeze(op.cast(labels, "int64"), [1])
    found = op.emit(
        "GatherElements", logs, column, dtype=logs.dtype, shape=(features.shape[0], 1), axis=1
    )
    count = features.shape[1]
    every: Value
    if isinstance(count, int):
        every = op.constant([list(range(count))], "int64")
    else:
        bounds: Sequence[Value] = (
            op.constant(0, "int64"), op.squeeze(op.size(features, 1), [0]),
            op.constant(1, "int64"),
        )  # fmt: skip
        every = op.unsqueeze(op.emit("Range", *bounds, dtype="int64", shape=(count,)), [0])
    hot = op.cast(op.elementwise("Equal", every, column), features.dtype)
    loss = op.unary("Neg", op.squeeze(found, [1]))
    return [loss, op.sub(op.softmax(features, -1), hot)]
