"""Functions of images: sizes, colours, flips, crops and patches."""

from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.keras.operations import pictures as pic
from converter.lower.keras.operations.operands import known_size, tensor
from converter.lower.keras.table import TF_FUNCTIONS, Unsupported, operation
from converter.lower.keras.tensorflow_ops.networks import how, spatial
from converter.lower.ops.conv import as_given, channels_first
from converter.lower.ops.pad import flipped
from converter.lower.ops.resize import resized
from converter.lower.ops.resize_computed import Size, of_aspect
from converter.lower.values import Value


def batched(op: Builder, images: Any) -> tuple[Value, bool]:
    """Return images with a batch, and whether it is new."""
    value = tensor(op, images)
    return (op.unsqueeze(value, [0]), True) if value.rank == 3 else (value, False)


def pair(op: Builder, size: Any) -> list[Size]:
    """Return height and width, each a number where it is known.

    Raises:
        Unsupported: These are not two.
    """
    found = op.array(size) if isinstance(size, Value) else None
    if found is not None:
        size = found.reshape(-1).tolist()
    if isinstance(size, Value) and size.shape == (2,):
        size = [op.gather(size, op.constant(n, "int64")) for n in (0, 1)]
    if not isinstance(size, list | tuple) or len(size) != 2:
        raise Unsupported("a size that is no pair")
    arrays = [op.array(n) if isinstance(n, Value) else np.asarray(n) for n in size]
    return [n if a is None else int(a) for n, a in zip(size, arrays, strict=True)]


def sized(
    op: Builder, images: Any, size: Any, method: str, *,
    antialias: bool = False, keeps_aspect: bool = False,
) -> Value:  # fmt: skip
    """Return images in another size."""
    value, single = batched(op, images)
    sizes = pair(op, size)
    image = channels_first(op, value, None)
    if keeps_aspect:
        sizes = of_aspect(op, image, sizes)
    if method != "nearest":
        image = op.cast(image, "float32")
    result = as_given(op, resized(op, image, sizes, method, antialias=antialias), None)
    return op.squeeze(result, [0]) if single else result


@operation(TF_FUNCTIONS, "image.resize")
def resize(
    op: Builder, images: Any, size: Any, method: str = "bilinear",
    preserve_aspect_ratio: bool = False, antialias: bool = False, *, align_corners: bool = False,
) -> Value:  # fmt: skip
    """Images in another size."""
    if align_corners:
        raise Unsupported("align_corners")
    return sized(
        op, images, size, str(method), antialias=antialias, keeps_aspect=preserve_aspect_ratio
    )


@operation(TF_FUNCTIONS, "image.rgb_to_grayscale")
def rgb_to_grayscale(op: Builder, images: Any) -> Value:
    """0.2989 * red + 0.587 * green + 0.114 * blue."""
    value = tensor(op, images)
    if not value.is_float:
        raise Unsupported("images of integers")
    return pic.rgb_to_grayscale(op, value)


@operation(TF_FUNCTIONS, "image.grayscale_to_rgb")
def grayscale_to_rgb(op: Builder, images: Any) -> Value:
    """One channel three times."""
    value = tensor(op, images)
    return op.concat([value] * 3, -1)


@operation(TF_FUNCTIONS, "image.flip_left_right")
def flip_left_right(op: Builder, image: Any) -> Value:
    """Images with their columns reversed."""
    return flipped(op, tensor(op, image), [-2])


@operation(TF_FUNCTIONS, "image.flip_up_down")
def flip_up_down(op: Builder, image: Any) -> Value:
    """Images with their rows reversed."""
    return flipped(op, tensor(op, image), [-3])


@operation(TF_FUNCTIONS, "image.crop_to_bounding_box")
def crop_to_bounding_box(
    op: Builder, image: Any, offset_height: int, offset_width: int, target_height: int,
    target_width: int,
) -> Value:  # fmt: skip
    """A part of images."""
    starts = [offset_height, offset_width]
    ends = [offset_height + target_height, offset_width + target_width]
    return op.slice(tensor(op, image), [-3, -2], starts, ends)


@operation(TF_FUNCTIONS, "image.pad_to_bounding_box")
def pad_to_bounding_box(
    op: Builder, image: Any, offset_height: int, offset_width: int, target_height: int,
    target_width: int,
) -> Value:  # fmt: skip
    """Images with zeros around them, up to a size."""
    return pic.pad_images(
        op, image, top_padding=offset_height, left_padding=offset_width,
        target_height=target_height, target_width=target_width,
    )  # fmt: skip


@operation(TF_FUNCTIONS, "image.extract_patches")
def extract_patches(
    op: Builder, images: Any, sizes: Any, strides: Any, rates: Any, padding: str
) -> Value:
    """The patches of images, each in the channels of one place."""
    return pic.extract_patches(
        op, images, size=spatial(sizes, 2, None), strides=spatial(strides, 2, None),
        dilation_rate=spatial(rates, 2, None), padding=how(padding),
    )  # fmt: skip


@operation(TF_FUNCTIONS, "image.per_image_standardization")
def per_image_standardization(op: Builder, image: Any) -> Value:
    """(x - mean) / max(standard deviation, 1 / sqrt(elements)), image by image."""
    x = op.cast(tensor(op, image), "float32")
    axes = [-3, -2, -1]
    count = 1
    for axis in axes:
        count *= known_size(x, axis, "standardising")
    away = op.sub(x, op.reduce("ReduceMean", x, axes, keepdims=True))
    power = op.reduce("ReduceMean", op.mul(away, away), axes, keepdims=True)
    least = op.constant(float(1 / np.sqrt(count)), x.dtype)
    return op.div(away, op.elementwise("Max", op.unary("Sqrt", power), least))


@operation(TF_FUNCTIONS, "image.adjust_brightness")
def adjust_brightness(op: Builder, image: Any, delta: float) -> Value:
    """X + delta."""
    value = tensor(op, image)
    if not value.is_float:
        raise Unsupported("images of integers")
    return op.add(value, delta)


@operation(TF_FUNCTIONS, "image.convert_image_dtype")
def convert_image_dtype(op: Builder, image: Any, dtype: str, saturate: bool = False) -> Value:
    """Images in another dtype, scaled to its range."""
    del saturate
    value = tensor(op, image)
    if value.dtype == dtype:
        return value
    if value.is_float and "float" in dtype:
        return op.cast(value, dtype)
    if not value.is_float and "float" in dtype:
        return op.mul(op.cast(value, dtype), 1 / float(np.iinfo(value.dtype).max))
    raise Unsupported(f"images of {value.dtype} as {dtype}")
