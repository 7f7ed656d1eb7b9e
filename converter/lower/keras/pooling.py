"""Pooling: windows, whole axes, and adaptive.

Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/pooling
"""

from typing import Any

from converter.lower.builder import Builder
from converter.lower.graph import Attribute, Dim
from converter.lower.keras.convolution import as_given, channels_first, numbers, same_padding
from converter.lower.keras.table import Gap, Roles, keras_layer
from converter.lower.values import Value


def pool(
    op: Builder, x: Value, op_type: str, *, pool_size: Any, strides: Any, padding: str,
    data_format: str | None,
) -> Value:  # fmt: skip
    """Pool windows of an image; padding counts neither as a value nor in a mean."""
    rank = x.rank - 2
    sizes = numbers(pool_size, rank)
    steps = sizes if strides is None else numbers(strides, rank)
    image = channels_first(op, x, data_format)
    attributes: dict[str, Attribute] = {"kernel_shape": sizes, "strides": steps}
    spatial = image.shape[2:]
    out: list[Dim]
    if padding == "same":
        pads = same_padding(spatial, sizes, steps, [1] * rank)
        if pads is None:
            attributes["auto_pad"] = "SAME_UPPER"
        else:
            attributes["pads"] = [*pads[0], *pads[1]]
        out = [
            -(-n // s) if isinstance(n, int) else None for n, s in zip(spatial, steps, strict=True)
        ]
    elif padding == "valid":
        out = [
            (n - k) // s + 1 if isinstance(n, int) else None
            for n, k, s in zip(spatial, sizes, steps, strict=True)
        ]
    else:
        raise Gap(f"padding {padding!r}")
    shape = (*image.shape[:2], *out)
    result = op.emit(op_type, image, dtype=x.dtype, shape=shape, **attributes)
    return as_given(op, result, data_format)


def _strided(n: Dim, stride: int) -> Dim:
    return -(-n // stride) if isinstance(n, int) else None


@keras_layer("MaxPooling1D", "MaxPooling2D", "MaxPooling3D")
def max_pooling(
    op: Builder, w: Roles, x: Value, /, *,
    pool_size: Any = 2, strides: Any = None, padding: str = "valid",
    data_format: str | None = "channels_last",
) -> Value:  # fmt: skip
    """The largest of each window."""
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


def _spatial(x: Value, data_format: str | None) -> list[int]:
    first = data_format == "channels_first"
    return list(range(2, x.rank) if first else range(1, x.rank - 1))


@keras_layer("GlobalAveragePooling1D")
def global_average_pooling_1d(
    op: Builder, w: Roles, x: Value, /, *,
    data_format: str | None = "channels_last", keepdims: bool = False, mask: Value | None = None,
) -> Value:  # fmt: skip
    """The mean over the steps, of those that are not masked."""
    del w
    axes = _spatial(x, data_format)
    if mask is None:
        return op.reduce("ReduceMean", x, axes, keepdims=keepdims)
    weight = op.unsqueeze(op.cast(mask, x.dtype), [2 if axes == [1] else 1])
    whole = op.reduce("ReduceSum", op.mul(x, weight), axes, keepdims=keepdims)
    return op.div(whole, op.reduce("ReduceSum", weight, axes, keepdims=keepdims))


@keras_layer("GlobalAveragePooling2D", "GlobalAveragePooling3D")
def global_average_pooling(
    op: Builder, w: Roles, x: Value, /, *,
    data_format: str | None = "channels_last", keepdims: bool = False,
) -> Value:  # fmt: skip
    """The mean over all spatial axes."""
    del w
    return op.reduce("ReduceMean", x, _spatial(x, data_format), keepdims=keepdims)


@keras_layer("GlobalMaxPooling1D", "GlobalMaxPooling2D", "GlobalMaxPooling3D")
def global_max_pooling(
    op: Builder, w: Roles, x: Value, /, *,
    data_format: str | None = "channels_last", keepdims: bool = False,
) -> Value:  # fmt: skip
    """The largest over all spatial axes."""
    del w
    return op.reduce("ReduceMax", x, _spatial(x, data_format), keepdims=keepdims)
