"""Cropping, padding, repeating and up-sampling of spatial axes.

Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/reshaping
"""

from typing import Any

from converter.lower.builder import END, Builder
from converter.lower.keras.table import Roles, keras_layer
from converter.lower.ops.conv import as_given, channels_first, numbers
from converter.lower.ops.resize import scale_up
from converter.lower.values import Value


def _pairs(value: Any, rank: int) -> list[tuple[int, int]]:
    """Return an argument that is a number, one for each axis, or two for each, as the last."""
    if isinstance(value, int):
        return [(value, value)] * rank
    if rank == 1 and len(value) == 2 and all(isinstance(n, int) for n in value):
        return [(value[0], value[1])]
    return [(n, n) if isinstance(n, int) else (n[0], n[1]) for n in value]


def _first_spatial(data_format: str | None) -> int:
    return 2 if data_format == "channels_first" else 1


@keras_layer("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D")
def zero_padding(
    op: Builder, w: Roles, x: Value, /, *, padding: Any = 1, data_format: str | None = None
) -> Value:
    """The input with spatial axes padded by zeros."""
    del w
    pairs = _pairs(padding, x.rank - 2)
    before, after = [0] * x.rank, [0] * x.rank
    for i, (low, high) in enumerate(pairs, _first_spatial(data_format)):
        before[i], after[i] = low, high
    return op.pad(x, before, after)


@keras_layer("Cropping1D", "Cropping2D", "Cropping3D")
def cropping(
    op: Builder, w: Roles, x: Value, /, *, cropping: Any = 1, data_format: str | None = None
) -> Value:
    """The input with spatial axes cropped at both ends."""
    del w
    pairs = _pairs(cropping, x.rank - 2)
    axes, starts, ends = [], [], []
    for i, (low, high) in enumerate(pairs, _first_spatial(data_format)):
        if low or high:
            axes.append(i)
            starts.append(low)
            ends.append(-high if high else END)
    return op.slice(x, axes, starts, ends) if axes else x


@keras_layer("UpSampling1D", "UpSampling2D", "UpSampling3D")
def up_sampling(
    op: Builder, w: Roles, x: Value, /, *,
    size: Any = 2, data_format: str | None = "channels_last", interpolation: str = "nearest",
) -> Value:  # fmt: skip
    """The input with spatial axes enlarged by integer factors."""
    del w
    image = channels_first(op, x, data_format)
    result = scale_up(op, image, numbers(size, x.rank - 2), interpolation)
    return as_given(op, result, data_format)
