"""Images: resizing, crops, projective transforms, and colors.

Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels/image
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from converter.lower import dims
from converter.lower.graph import Attribute, Dim
from converter.lower.ops import image as sampling
from converter.lower.ops import image_color, resize, resize_computed
from converter.lower.ops.conv import as_given, channels_first
from converter.lower.ops.resize import apply_weights, by_scales, by_sizes
from converter.lower.ops.resize_computed import Size
from converter.lower.tf.context import Context
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value
from formats.core.plurals import count

F = np.float32
REPEATED = ("float32", "float16", "int32", "int8", "uint8")  # dtypes of onnxruntime's Resize
FACTORS_TRIED = 4096


def _sizes(op: Context, size: Value) -> tuple[list[Size], list[Dim]]:
    """Return height and width as integers or scalars, and as dimensions.

    Raises:
        Unsupported: The size does not have two elements.
    """
    dims: list[Dim] = op.dims(size) if isinstance(size.shape[0], int) else [None, None]
    if len(dims) != 2:
        raise Unsupported(f"a size of {count('number', len(dims))}")
    found: list[Size] = []
    for i, n in enumerate(dims):
        if isinstance(n, int):
            found.append(n)
        else:
            found.append(op.cast(op.squeeze(op.slice(size, [0], [i], [i + 1]), [0]), "int64"))
    return found, dims


def _how(*, align_corners: bool, half_pixel_centers: bool) -> str:
    if align_corners and half_pixel_centers:
        raise Unsupported("align_corners and half_pixel_centers at once")
    if align_corners:
        return "align_corners"
    return "half_pixel" if half_pixel_centers else "asymmetric"


@tf_op("ResizeBilinear")
def resize_bilinear(
    op: Context, images: Value, size: Value, /, *,
    align_corners: bool = False, half_pixel_centers: bool = False,
) -> Value:  # fmt: skip
    """Images resized by bilinear interpolation."""
    how = _how(align_corners=align_corners, half_pixel_centers=half_pixel_centers)
    wanted, dims = _sizes(op, size)
    image = channels_first(op, op.cast(images, "float32"), None)
    if list(image.shape[2:]) != dims or None in dims:
        attributes: dict[str, Attribute] = {
            "mode": "linear", "coordinate_transformation_mode": how
        }  # fmt: skip
        image = by_sizes(op, image, wanted, attributes)
    return as_given(op, replace(image, shape=(*image.shape[:2], *dims)), None)


@tf_op("ResizeNearestNeighbor")
def resize_nearest_neighbor(
    op: Context, images: Value, size: Value, /, *,
    align_corners: bool = False, half_pixel_centers: bool = False,
) -> Value:  # fmt: skip
    """Images resized by nearest-neighbor interpolation."""
    how = _how(align_corners=align_corners, half_pixel_centers=half_pixel_centers)
    wanted, dims = _sizes(op, size)
    image = channels_first(op, images, None)
    factors = [_factor(n, m, how) for n, m in zip(image.shape[2:], dims, strict=True)]
    known = [f for f in factors if f is not None]
    if known == [1, 1]:
        return images
    if len(known) == 2 and image.dtype in REPEATED:
        image = by_scales(op, image, known, resize.REPEAT)
        return as_given(op, replace(image, shape=(*image.shape[:2], *dims)), None)
    for axis, (m, what) in enumerate(zip(wanted, dims, strict=True), 2):
        n = image.shape[axis]
        if factors[axis - 2] == 1:
            continue
        if isinstance(n, int) and isinstance(m, int):
            image = op.gather(image, op.constant(_rows(n, m, how), "int64"), axis)
        else:
            image = resize_computed.nearest(
                op, image, axis, m, is_centred=how == "half_pixel",
                by_corners=how == "align_corners",
            )  # fmt: skip
            image = replace(image, shape=(*image.shape[:axis], what, *image.shape[axis + 1 :]))
    return as_given(op, image, None)


def _rows(size: int, wanted: int, how: str) -> list[int]:
    """Return the source row of each row of the result."""
    scale = resize.step(size, wanted, by_corners=how == "align_corners")
    places = np.arange(wanted, dtype=F) + F(0.5 if how == "half_pixel" else 0)
    at = places * scale
    whole = np.floor(at)
    if how == "align_corners":  # rounded half up
        whole += at - whole >= F(0.5)
    return [int(n) for n in np.minimum(whole, size - 1)]


def _factor(size: Dim, wanted: Dim, how: str) -> int | None:
    """Return how often each row is repeated, or None if resizing is not a repetition."""
    if size == wanted and size is not None:
        return 1 if how != "align_corners" or isinstance(size, int) else None
    factor = dims.divide_exactly(wanted, size)
    if not isinstance(factor, int) or factor < 1 or how == "align_corners":
        return None
    if isinstance(size, int) and isinstance(wanted, int):
        rows = _rows(size, wanted, how)
        return factor if rows == [i // factor for i in range(wanted)] else None
    return factor if how == "half_pixel" or _is_exact(factor) else None


@cache
def _is_exact(factor: int) -> bool:
    """Return whether `floor(i * factor * (1 / factor)) == i` in float32 for the tested rows i."""
    rows = np.arange(FACTORS_TRIED, dtype=F)
    return bool((np.floor(rows * F(factor) * (F(1) / F(factor))) == rows).all())


@tf_op("ResizeBicubic")
def resize_bicubic(
    op: Context, images: Value, size: Value, /, *,
    align_corners: bool = False, half_pixel_centers: bool = False,
) -> Value:  # fmt: skip
    """Images resized by bicubic interpolation."""
    how = _how(align_corners=align_corners, half_pixel_centers=half_pixel_centers)
    is_centred, by_corners = how == "half_pixel", how == "align_corners"

    def matrix(n: Size, m: Size) -> Value:
        if isinstance(n, int) and isinstance(m, int):
            found = resize.cubic_by_table(n, m, is_centred=is_centred, by_corners=by_corners)
            return op.constant(found.astype(F))
        if is_centred:
            return resize_computed.weights(op, n, m, "bicubic", antialias=False)
        return resize_computed.cubic_at_edges(op, n, m, by_corners=by_corners)

    return _by_matrices(op, images, size, [matrix, matrix])


@tf_op("ResizeArea")
def resize_area(
    op: Context, images: Value, size: Value, /, *, align_corners: bool = False
) -> Value:
    """Images resized by area: each pixel is the mean of the source pixels that it covers."""

    def matrix(n: Size, m: Size) -> Value:
        if align_corners and n == 1:
            raise Unsupported("align_corners of an image of one row or column")
        if isinstance(n, int) and isinstance(m, int):
            return op.constant(resize.area(n, m, by_corners=align_corners).astype(F))
        if align_corners:
            raise Unsupported("align_corners of an unknown size")
        return resize_computed.weights(op, n, m, "area", antialias=False)

    return _by_matrices(op, images, size, [matrix, matrix])


KERNELS = {
    "lanczos1": "lanczos1", "lanczos3": "lanczos3", "lanczos5": "lanczos5",
    "gaussian": "gaussian", "box": "box", "triangle": "bilinear", "keyscubic": "bicubic",
    "mitchellcubic": "mitchellcubic",
}  # fmt: skip


@tf_op("ScaleAndTranslate")
def scale_and_translate(
    op: Context, images: Value, size: Value, scale: Value, translation: Value, /, *,
    kernel_type: str = "lanczos3", antialias: bool = True,
) -> Value:  # fmt: skip
    """Images scaled and translated: each pixel is a kernel-weighted sum of source pixels."""
    if kernel_type not in KERNELS:
        raise Unsupported(f"kernel_type {kernel_type}")
    method = KERNELS[kernel_type]
    scales, moves = op.static(scale), op.static(translation)

    def matrix(axis: int, n: Size, m: Size) -> Value:
        if isinstance(n, int) and isinstance(m, int) and scales is not None and moves is not None:
            radius, kernel = resize.KERNELS[method]
            found = resize.spans(
                n, m, radius, kernel, antialias=antialias, scale=float(scales[axis]),
                translation=float(moves[axis]),
            )  # fmt: skip
            return op.constant(found.astype(F))
        by, moved = (
            op.squeeze(op.slice(v, [0], [axis], [axis + 1]), [0]) for v in (scale, translation)
        )
        return resize_computed.weights(
            op, n, m, method, antialias=antialias, scale=by, translation=moved
        )

    return _by_matrices(op, images, size, [lambda n, m, axis=i: matrix(axis, n, m) for i in (0, 1)])


def _by_matrices(op: Context, images: Value, size: Value, matrices: Sequence[object]) -> Value:
    """Multiply the rows and columns of images by interpolation matrices."""
    wanted, dims = _sizes(op, size)
    image = channels_first(op, op.cast(images, "float32"), None)
    for axis, (m, matrix) in enumerate(zip(wanted, matrices, strict=True), 2):
        assert callable(matrix)
        image = apply_weights(
            op, image, axis, matrix(resize_computed.axis_size(op, image, axis), m)
        )
    return as_given(op, replace(image, shape=(*image.shape[:2], *dims)), None)


# -- crops and transforms --------------------------------------------------------------------------


@tf_op("CropAndResize")
def crop_and_resize(
    op: Context, image: Value, boxes: Value, box_ind: Value, crop_size: Value, /, *,
    method: str = "bilinear", extrapolation_value: float = 0.0,
) -> Value:  # fmt: skip
    """Crops of images, resized to one size."""
    wanted, dims = _sizes(op, crop_size)
    found = sampling.crop_and_resize(
        op, image, boxes, box_ind, wanted, method=method, fill_value=float(extrapolation_value)
    )
    return replace(found, shape=(found.shape[0], *dims, found.shape[3]))


@tf_op("ImageProjectiveTransformV2", "ImageProjectiveTransformV3")
def image_projective_transform(
    op: Context, images: Value, transforms: Value, output_shape: Value,
    fill_value: Value | None = None, /, *, interpolation: str, fill_mode: str = "CONSTANT",
) -> Value:  # fmt: skip
    """Projective transformation of images."""
    wanted, dims = _sizes(op, output_shape)
    found = sampling.transform(
        op, images, transforms, wanted, op.constant(0.0) if fill_value is None else fill_value,
        interpolation=interpolation.lower(), fill_mode=fill_mode.lower(),
    )  # fmt: skip
    return replace(found, shape=(found.shape[0], *dims, found.shape[3]))


# -- colors ----------------------------------------------------------------------------------------


@tf_op("RGBToHSV")
def rgb_to_hsv(op: Context, images: Value, /) -> Value:
    """Conversion from RGB to HSV."""
    return image_color.rgb_to_hsv(op, images)


@tf_op("HSVToRGB")
def hsv_to_rgb(op: Context, images: Value, /) -> Value:
    """Conversion from HSV to RGB."""
    return image_color.hsv_to_rgb(op, images)


@tf_op("AdjustHue")
def adjust_hue(op: Context, images: Value, delta: Value, /) -> Value:
    """Images with `delta` added to their hue."""
    return image_color.adjust_hue(op, images, delta)


@tf_op("AdjustSaturation")
def adjust_saturation(op: Context, images: Value, scale: Value, /) -> Value:
    """Images with their saturation multiplied by `scale`."""
    return image_color.adjust_saturation(op, images, scale)


@tf_op("AdjustContrastv2")
def adjust_contrast(op: Context, images: Value, contrast_factor: Value, /) -> Value:
    """`(x - mean) * contrast_factor + mean`, for each channel of each image."""
    return image_color.adjust_contrast(op, images, contrast_factor)
