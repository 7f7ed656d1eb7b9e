"""Functions of images: sizes, colours, flips, crops and patches."""

from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.keras.operations import images as pic
from converter.lower.keras.operations.operands import known_size, tensor
from converter.lower.keras.table import TF_FUNCTIONS, Unsupported, operation
from converter.lower.keras.tensorflow_ops.arrays import shape_of
from converter.lower.keras.tensorflow_ops.networks import keras_padding, spatial_values
from converter.lower.keras.tensorflow_ops.operands import known_elements, vector
from converter.lower.keras.tensorflow_rows import call_op
from converter.lower.ops.conv import channels_first
from converter.lower.ops.pad import reverse_axes
from converter.lower.ops.resize_computed import of_aspect
from converter.lower.values import Value

# fmt: off
RESIZING = {
    "area": "ResizeArea", "bicubic": "ResizeBicubic", "bilinear": "ResizeBilinear",
    "nearest": "ResizeNearestNeighbor",
}
KERNELS = {"bicubic": "keyscubic", "bilinear": "triangle"}  # of methods that are also ops
# fmt: on


def batched(op: Builder, images: Any) -> tuple[Value, bool]:
    """Return images with a batch, and whether it is new."""
    value = tensor(op, images)
    return (op.unsqueeze(value, [0]), True) if value.rank == 3 else (value, False)


def resize_by(op: Builder, method: str, images: Any, size: Any, **how: bool) -> Value:
    """Return images in another size, by the op of a method.

    Raises:
        Unsupported: There is no such method.
    """
    if method not in RESIZING:
        raise Unsupported(f"interpolation {method!r}")
    value, is_single = batched(op, images)
    result = call_op(op, RESIZING[method], value, vector(op, size), **how)
    return op.squeeze(result, [0]) if is_single else result


def resize_by_kernel(op: Builder, kernel: str, images: Any, size: Any, *, antialias: bool) -> Value:
    """Return images in another size, each pixel a sum of those around, weighted by a kernel."""
    value, is_single = batched(op, images)
    sizes = vector(op, size)
    old = call_op(op, "Slice", shape_of(op, value), op.constant([1]), op.constant([2]))
    scale = call_op(op, "RealDiv", *(call_op(op, "Cast", n, DstT="float32") for n in (sizes, old)))
    result = call_op(
        op, "ScaleAndTranslate", value, sizes, scale, op.constant([0, 0], "float32"),
        kernel_type=kernel, antialias=antialias,
    )  # fmt: skip
    return op.squeeze(result, [0]) if is_single else result


@operation(TF_FUNCTIONS, "image.resize")
def resize(
    op: Builder, images: Any, size: Any, method: str = "bilinear",
    preserve_aspect_ratio: bool = False, antialias: bool = False, *, align_corners: bool = False,
) -> Value:  # fmt: skip
    """Images resized."""
    if align_corners:
        raise Unsupported("align_corners")
    if preserve_aspect_ratio:
        image = channels_first(op, batched(op, images)[0], None)
        size = of_aspect(op, image, known_elements(op, vector(op, size)))
    if method not in RESIZING or (antialias and method in KERNELS):
        kernel = KERNELS.get(method, method)
        return resize_by_kernel(op, kernel, images, size, antialias=antialias)
    centred = {} if method == "area" else {"half_pixel_centers": True}
    return resize_by(op, method, images, size, **centred)


@operation(TF_FUNCTIONS, "image.rgb_to_grayscale")
def rgb_to_grayscale(op: Builder, images: Any) -> Value:
    """0.2989 * red + 0.587 * green + 0.114 * blue."""
    value = tensor(op, images)
    if not value.is_float:
        raise Unsupported("images of integers")
    return pic.rgb_to_grayscale(op, value)


@operation(TF_FUNCTIONS, "image.grayscale_to_rgb")
def grayscale_to_rgb(op: Builder, images: Any) -> Value:
    """Grayscale images as RGB."""
    value = tensor(op, images)
    return op.concat([value] * 3, -1)


@operation(TF_FUNCTIONS, "image.flip_left_right")
def flip_left_right(op: Builder, image: Any) -> Value:
    """Images flipped left to right."""
    return reverse_axes(op, tensor(op, image), [-2])


@operation(TF_FUNCTIONS, "image.flip_up_down")
def flip_up_down(op: Builder, image: Any) -> Value:
    """Images flipped upside down."""
    return reverse_axes(op, tensor(op, image), [-3])


@operation(TF_FUNCTIONS, "image.crop_to_bounding_box")
def crop_to_bounding_box(
    op: Builder, image: Any, offset_height: int, offset_width: int, target_height: int,
    target_width: int,
) -> Value:  # fmt: skip
    """Images cropped."""
    starts = [offset_height, offset_width]
    ends = [offset_height + target_height, offset_width + target_width]
    return op.slice(tensor(op, image), [-3, -2], starts, ends)


@operation(TF_FUNCTIONS, "image.pad_to_bounding_box")
def pad_to_bounding_box(
    op: Builder, image: Any, offset_height: int, offset_width: int, target_height: int,
    target_width: int,
) -> Value:  # fmt: skip
    """Images padded with zeros up to a size."""
    return pic.pad_images(
        op, image, top_padding=offset_height, left_padding=offset_width,
        target_height=target_height, target_width=target_width,
    )  # fmt: skip


@operation(TF_FUNCTIONS, "image.extract_patches")
def extract_patches(
    op: Builder, images: Any, sizes: Any, strides: Any, rates: Any, padding: str
) -> Value:
    """Patches of images, each flattened into the channels of one pixel."""
    return pic.extract_patches(
        op, images, size=spatial_values(sizes, 2, None), strides=spatial_values(strides, 2, None),
        dilation_rate=spatial_values(rates, 2, None), padding=keras_padding(padding),
    )  # fmt: skip


@operation(TF_FUNCTIONS, "image.per_image_standardization")
def per_image_standardization(op: Builder, image: Any) -> Value:
    """`(x - mean) / max(standard deviation, 1 / sqrt(elements))` for each image."""
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
    """`x + delta`."""
    value = tensor(op, image)
    if not value.is_float:
        raise Unsupported("images of integers")
    return op.add(value, delta)


@operation(TF_FUNCTIONS, "image.convert_image_dtype")
def convert_image_dtype(op: Builder, image: Any, dtype: str, saturate: bool = False) -> Value:
    """Images cast to a dtype, scaled to its range."""
    del saturate
    value = tensor(op, image)
    if value.dtype == dtype:
        return value
    if value.is_float and "float" in dtype:
        return op.cast(value, dtype)
    if not value.is_float and "float" in dtype:
        return op.mul(op.cast(value, dtype), 1 / float(np.iinfo(value.dtype).max))
    raise Unsupported(f"images of {value.dtype} as {dtype}")
