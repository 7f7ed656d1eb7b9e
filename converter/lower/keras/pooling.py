"""Pooling: windows, whole axes, and adaptive.

Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/pooling
"""

from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.table import Roles, keras_layer
from converter.lower.known_values import size, whole
from converter.lower.ops.conv import as_given, channels_first, numbers
from converter.lower.ops.pool import adaptive_max, adaptive_mean, pool
from converter.lower.ops.reduce import reduce_axes
from converter.lower.values import Value


@keras_layer("MaxPooling1D", "MaxPooling2D", "MaxPooling3D")
def max_pooling(
    op: Builder, w: Roles, x: Value, /, *,
    pool_size: Any = 2, strides: Any = None, padding: str = "valid",
    data_format: str | None = "channels_last",
) -> Value:  # fmt: skip
    """The maximum of each window."""
    del w
    return pool(
        op, x, "MaxPool", pool_size=pool_size, strides=strides, padding=padding,
        data_format=data_format,
    )  # fmt: skip


@keras_layer("AveragePooling1D", "AveragePooling2D", "AveragePooling3D")
def average_pooling(
    op: Builder, w: Roles, x: Value, /, *,
    pool_size: Any = 2, strides: Any = None, padding: str = "valid",
    data_format: str | None = "channels_last",
) -> Value:  # fmt: skip
    """The mean of each window."""
    del w
    return pool(
        op, x, "AveragePool", pool_size=pool_size, strides=strides, padding=padding,
        data_format=data_format,
    )  # fmt: skip


@keras_layer("AdaptiveMaxPooling1D", "AdaptiveMaxPooling2D", "AdaptiveMaxPooling3D")
def adaptive_max_pooling(
    op: Builder, w: Roles, x: Value, /, *,
    output_size: Any, data_format: str | None = "channels_last",
) -> Value:  # fmt: skip
    """Adaptive max pooling."""
    del w
    return _adaptive(op, x, "MaxPool", output_size, data_format)


@keras_layer("AdaptiveAveragePooling1D", "AdaptiveAveragePooling2D", "AdaptiveAveragePooling3D")
def adaptive_average_pooling(
    op: Builder, w: Roles, x: Value, /, *,
    output_size: Any, data_format: str | None = "channels_last",
) -> Value:  # fmt: skip
    """Adaptive average pooling."""
    del w
    return _adaptive(op, x, "AveragePool", output_size, data_format)


def _adaptive(
    op: Builder, x: Value, op_type: str, output_size: Any, data_format: str | None
) -> Value:
    """Pool windows from floor(i * size / count) to ceil((i + 1) * size / count) of each axis.

    They have one of two lengths: every window of each length is pooled, and those wanted taken.
    """
    image = channels_first(op, x, data_format)
    counts = numbers(output_size, x.rank - 2)
    if alone := [axis for axis, count in enumerate(counts, 2) if count == 1]:
        # onnxruntime adds a window up one by one, which of a large one loses more than Keras does.
        reducer = "ReduceMean" if op_type == "AveragePool" else "ReduceMax"
        image = op.reduce(reducer, image, alone, keepdims=True)
    for axis, count in enumerate(counts, 2):
        if not isinstance(image.shape[axis], int):
            given = image, axis, size(op, image, axis), whole(op, count), count
            is_mean = op_type == "AveragePool"
            image = adaptive_mean(op, *given) if is_mean else adaptive_max(op, *given)[0]
    sizes = [n for n in image.shape[2:] if isinstance(n, int)]
    even = [n // count if n % count == 0 else 1 for n, count in zip(sizes, counts, strict=True)]
    if any(k > 1 for k in even):
        image = _pool(op, image, op_type, even, even)
    for axis, (n, count) in enumerate(zip(sizes, counts, strict=True)):
        if n % count == 0:
            continue
        starts = [i * n // count for i in range(count)]
        lengths = [-(-(i + 1) * n // count) - start for i, start in enumerate(starts)]
        parts, offsets, total = [], {}, 0
        for length in sorted(set(lengths)):
            kernel = [length if i == axis else 1 for i in range(len(counts))]
            parts.append(_pool(op, image, op_type, kernel, [1] * len(counts)))
            offsets[length] = total
            total += n - length + 1
        wanted = [offsets[length] + start for start, length in zip(starts, lengths, strict=True)]
        every = op.concat(parts, 2 + axis)
        image = op.gather(every, op.constant(wanted, "int64"), 2 + axis)
    return as_given(op, image, data_format)


def _pool(op: Builder, image: Value, op_type: str, kernel: list[int], strides: list[int]) -> Value:
    """Pool windows of a channels-first image of known size."""
    spatial = zip(image.shape[2:], kernel, strides, strict=True)
    out = [(n - k) // s + 1 if isinstance(n, int) else None for n, k, s in spatial]
    return op.emit(
        op_type, image, dtype=image.dtype, shape=(*image.shape[:2], *out), kernel_shape=kernel,
        strides=strides, auto_pad="VALID",
    )  # fmt: skip


def _spatial(x: Value, data_format: str | None) -> list[int]:
    first = data_format == "channels_first"
    return list(range(2, x.rank) if first else range(1, x.rank - 1))


@keras_layer("GlobalAveragePooling1D")
def global_average_pooling_1d(
    op: Builder, w: Roles, x: Value, /, *,
    data_format: str | None = "channels_last", keepdims: bool = False, mask: Value | None = None,
    keeps_dtype: bool = False,
) -> Value:  # fmt: skip
    """The mean over the steps that are not masked."""
    del w, keeps_dtype  # integers that stay so are refused before
    axes = _spatial(x, data_format)
    if mask is None:
        return op.reduce("ReduceMean", x, axes, keepdims=keepdims)
    weight = op.unsqueeze(op.cast(mask, x.dtype), [2 if axes == [1] else 1])
    whole = op.reduce("ReduceSum", op.mul(x, weight), axes, keepdims=keepdims)
    return op.div(whole, op.reduce("ReduceSum", weight, axes, keepdims=keepdims))


@keras_layer("GlobalAveragePooling2D", "GlobalAveragePooling3D")
def global_average_pooling(
    op: Builder, w: Roles, x: Value, /, *,
    data_format: str | None = "channels_last", keepdims: bool = False, keeps_dtype: bool = False,
) -> Value:  # fmt: skip
    """The mean over all spatial axes."""
    del w, keeps_dtype  # integers that stay so are refused before
    return op.reduce("ReduceMean", x, _spatial(x, data_format), keepdims=keepdims)


@keras_layer("GlobalMaxPooling1D", "GlobalMaxPooling2D", "GlobalMaxPooling3D")
def global_max_pooling(
    op: Builder, w: Roles, x: Value, /, *,
    data_format: str | None = "channels_last", keepdims: bool = False,
) -> Value:  # fmt: skip
    """The maximum over all spatial axes."""
    del w
    return reduce_axes(op, "ReduceMax", x, _spatial(x, data_format), keepdims=keepdims)
