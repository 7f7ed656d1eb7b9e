"""Operations of keras.ops.image: resizing, padding, cropping, patches, transforms, colors.

Spec: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/ops/image.py
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from converter.lower.builder import Builder
from converter.lower.graph import Dim
from converter.lower.keras.images import resizing
from converter.lower.keras.operations.nn import windows
from converter.lower.keras.operations.operands import known_size, tensor
from converter.lower.keras.table import OPERATIONS, Roles, Unsupported, operation
from converter.lower.ops import image
from converter.lower.ops.conv import as_given, channels_first, numbers, same_padding
from converter.lower.ops.image_color import hsv_to_rgb, rgb_to_hsv
from converter.lower.ops.resize_computed import axis_size
from converter.lower.table import Variant
from converter.lower.values import Value, total


def _places(x: Value, data_format: str | None) -> tuple[int, int]:
    """Return the axes of height and width of an image, or of a batch."""
    last = x.rank - 2 if data_format == "channels_first" else x.rank - 3
    return last, last + 1


@operation(OPERATIONS, "Resize")
def resize(
    op: Builder, images: Any, *,
    size: Sequence[int], interpolation: str = "bilinear", antialias: bool = False,
    crop_to_aspect_ratio: bool = False, pad_to_aspect_ratio: bool = False,
    fill_mode: str = "constant", fill_value: float = 0.0, data_format: str | None = None,
) -> Value:  # fmt: skip
    """Images resized by any interpolation, and cropped or padded to the aspect ratio first."""
    value = tensor(op, images)
    batch = op.unsqueeze(value, [0]) if value.rank == 3 else value
    result: Value = resizing(
        op, Roles(op, "", {}), batch, height=size[0], width=size[1], interpolation=interpolation,
        antialias=antialias, crop_to_aspect_ratio=crop_to_aspect_ratio, fill_mode=fill_mode,
        pad_to_aspect_ratio=pad_to_aspect_ratio, fill_value=fill_value, data_format=data_format,
    )  # fmt: skip
    return op.squeeze(result, [0]) if value.rank == 3 else result


def edges(size: Dim, before: int | None, after: int | None, wanted: int | None, sign: int) -> Any:
    """Return the padding (or, with sign -1, the cropping) before and after an axis."""
    if before is not None and after is not None:
        return before, after
    if not isinstance(size, int) or wanted is None:
        raise Unsupported("a target size for images of unknown size")
    whole = sign * (wanted - size)
    if before is None:
        return whole - (after or 0), after or 0
    return before, whole - before


@operation(OPERATIONS, "PadImages")
def pad_images(
    op: Builder, images: Any, *,
    top_padding: int | None = None, left_padding: int | None = None,
    bottom_padding: int | None = None, right_padding: int | None = None,
    target_height: int | None = None, target_width: int | None = None,
    data_format: str | None = None,
) -> Value:  # fmt: skip
    """Images padded with zeros, by numbers of rows and columns or up to a size."""
    value = tensor(op, images)
    high, wide = _places(value, data_format)
    before, after = [0] * value.rank, [0] * value.rank
    for axis, low, up, wanted in (
        (high, top_padding, bottom_padding, target_height),
        (wide, left_padding, right_padding, target_width),
    ):
        before[axis], after[axis] = edges(value.shape[axis], low, up, wanted, 1)
    return op.pad(value, before, after)


@operation(OPERATIONS, "CropImages")
def crop_images(
    op: Builder, images: Any, *,
    top_cropping: int | None = None, left_cropping: int | None = None,
    bottom_cropping: int | None = None, right_cropping: int | None = None,
    target_height: int | None = None, target_width: int | None = None,
    data_format: str | None = None,
) -> Value:  # fmt: skip
    """Images cropped by numbers of rows and columns, or down to a size."""
    value = tensor(op, images)
    high, wide = _places(value, data_format)
    starts, ends = [], []
    for axis, low, up, wanted in (
        (high, top_cropping, bottom_cropping, target_height),
        (wide, left_cropping, right_cropping, target_width),
    ):
        if low is not None and wanted is not None:
            starts.append(low)
            ends.append(low + wanted)
            continue
        start, end = edges(value.shape[axis], low, up, wanted, -1)
        starts.append(start)
        ends.append(-end if end else 2**31)
    return op.slice(value, [high, wide], starts, ends)


@operation(OPERATIONS, "RGBToGrayscale")
def rgb_to_grayscale(op: Builder, images: Any, *, data_format: str | None = None) -> Value:
    """0.2989 * red + 0.587 * green + 0.114 * blue."""
    value = tensor(op, images)
    axis = value.rank - 3 if data_format == "channels_first" else value.rank - 1
    if value.shape[axis] == 1:
        return value
    shape = [3 if i == axis else 1 for i in range(value.rank)]
    wide = value if value.is_float else op.cast(value, "float32")
    shares = op.reshape(op.constant([0.2989, 0.5870, 0.1140], wide.dtype), shape)
    return op.cast(op.reduce("ReduceSum", op.mul(wide, shares), [axis], keepdims=True), value.dtype)


@operation(
    OPERATIONS,
    Variant("RGBToHSV", "RGB images converted to HSV.", convert=rgb_to_hsv),
    Variant("HSVToRGB", "HSV images converted to RGB.", convert=hsv_to_rgb),
)
def convert_color(
    op: Builder, images: Any, *, data_format: str | None = None,
    convert: Callable[[Builder, Value], Value],
) -> Value:  # fmt: skip
    """Images in another color space."""
    return on_channels_last(op, tensor(op, images), data_format, lambda x: convert(op, x))


def on_channels_last(
    op: Builder, images: Value, data_format: str | None, function: Callable[[Value], Value]
) -> Value:
    """Apply a function of images with their channels last to images of any format."""
    if data_format != "channels_first":
        return function(images)
    first = images.rank - 3
    result = function(op.transpose(images, [*range(first), first + 1, first + 2, first]))
    return op.transpose(result, [*range(first), first + 2, first, first + 1])


@operation(OPERATIONS, "AffineTransform")
def affine_transform(
    op: Builder, images: Any, transform: Any, *, interpolation: str = "bilinear",
    fill_mode: str = "constant", fill_value: float = 0, data_format: str | None = None,
) -> Value:  # fmt: skip
    """Projective transforms of images, with any fill mode."""
    value, factors = tensor(op, images), op.cast(tensor(op, transform), "float32")
    batch = op.unsqueeze(value, [0]) if value.rank == 3 else value
    factors = op.unsqueeze(factors, [0]) if factors.rank == 1 else factors

    def apply(x: Value) -> Value:
        sizes = [axis_size(op, x, axis) for axis in (1, 2)]
        found = image.transform(
            op, x, factors, sizes, op.constant(float(fill_value)), interpolation=interpolation,
            fill_mode=fill_mode,
        )  # fmt: skip
        return replace(found, shape=x.shape)

    result = on_channels_last(op, batch, data_format, apply)
    return op.squeeze(result, [0]) if value.rank == 3 else result


@operation(OPERATIONS, "ExtractPatches")
def extract_patches(
    op: Builder, images: Any, *,
    size: Any, strides: Any = None, dilation_rate: Any = 1, padding: str = "valid",
    data_format: str | None = None,
) -> Value:  # fmt: skip
    """Patches of images, each flattened into the channels of one pixel."""
    value = tensor(op, images)
    if not isinstance(size, int) and len(size) == 3:
        raise Unsupported("patches of three axes")
    batch = op.unsqueeze(value, [0]) if value.rank == 3 else value
    kernel, spread = numbers(size, 2), numbers(dilation_rate, 2)
    steps = numbers(strides, 2) if strides else kernel
    image = channels_first(op, batch, data_format)
    if padding == "same":
        sizes = [known_size(image, axis, "patches") for axis in (2, 3)]
        around = same_padding(sizes, kernel, steps, spread)
        if around is not None:
            image = op.pad(image, [0, 0, *around[0]], [0, 0, *around[1]])
    cut = windows(op, image, kernel, steps, spread)  # [N, C, kH, outH, kW, outW]
    cut = op.transpose(cut, [0, 2, 4, 1, 3, 5])
    found = op.reshape(cut, (cut.shape[0], total(cut.shape[1:4]), *cut.shape[4:]))
    result = as_given(op, found, data_format)
    return op.squeeze(result, [0]) if value.rank == 3 else result
