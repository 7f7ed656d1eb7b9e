"""Cropping, padding, repeating and up-sampling of spatial axes.

Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/reshaping
"""

from typing import Any

from converter.lower.builder import END, Builder
from converter.lower.graph import Attribute
from converter.lower.keras.convolution import as_given, channels_first, numbers
from converter.lower.keras.table import Gap, Roles, keras_layer
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
    """X with zeros around its spatial axes."""
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
    """X without the ends of its spatial axes."""
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
    """X with each spatial axis made larger by a whole factor."""
    del w
    factors = numbers(size, x.rank - 2)
    image = channels_first(op, x, data_format)
    result = resize(op, image, factors, interpolation)
    return as_given(op, result, data_format)


def resize(op: Builder, image: Value, factors: list[int], interpolation: str) -> Value:
    """Scale the spatial axes of a channels-first image by whole factors."""
    how: dict[str, dict[str, Attribute]] = {
        "nearest": {
            "mode": "nearest", "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        },
        "bilinear": {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
        "bicubic": {
            "mode": "cubic", "coordinate_transformation_mode": "half_pixel",
            "cubic_coeff_a": -0.5, "exclude_outside": 1,
        },
    }  # fmt: skip
    if interpolation not in how:
        raise Gap(f"interpolation {interpolation!r}")
    scales = op.constant([1.0, 1.0, *map(float, factors)], "float32")
    spatial = [
        n * f if isinstance(n, int) else None for n, f in zip(image.shape[2:], factors, strict=True)
    ]
    plain = op.plain(image)
    return op.node(
        "Resize", [plain, None, scales], [(image.dtype, (*image.shape[:2], *spatial))],
        attributes=how[interpolation],
    )[0]  # fmt: skip
