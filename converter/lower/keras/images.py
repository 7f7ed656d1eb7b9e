"""Layers on images at inference: resizing, cropping, contrast; augmentation is the identity.

Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/preprocessing
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.keras.inner_layers import call_layer
from converter.lower.keras.table import Masked, Roles, Unsupported, keras_layer
from converter.lower.ops.conv import as_given, channels_first
from converter.lower.ops.resize import LINEAR, interpolate, resize
from converter.lower.values import Value

F = np.float32
NARROW = ("uint8", "int8", "uint16", "int16")
OVERSHOOTING = ("bicubic", "lanczos3", "lanczos5", "mitchellcubic")  # beyond the image's values


def cast_to_compute(op: Builder, w: Roles, x: Value) -> Value:
    """Cast x to the dtype that the layer computes in."""
    return op.cast(x, w.policy or "float32")


# -- noise ---------------------------------------------------------------------------------------


@keras_layer(
    "AugMix", "CutMix", "RandAugment", "RandomElasticTransform", "RandomErasing", "RandomFlip",
    "RandomGaussianBlur", "RandomPerspective", "RandomRotation", "RandomSharpness", "RandomShear",
    "RandomTranslation", "RandomZoom", "Solarization",
)  # fmt: skip
def augmentation(
    op: Builder, w: Roles, x: Value, /, *,
    addition_factor: Any = None, all_ops: Any = None, alpha: Any = None,
    bounding_box_format: Any = None,
    chain_depth: Any = None, data_format: Any = None, factor: Any = None, fill_mode: Any = None,
    fill_value: Any = None, height_factor: Any = None, interpolation: Any = None,
    kernel_size: Any = None, mode: Any = None, num_chains: Any = None, num_ops: Any = None,
    scale: Any = None, seed: Any = None, sigma: Any = None, threshold_factor: Any = None,
    value_range: Any = None, width_factor: Any = None, x_factor: Any = None, y_factor: Any = None,
) -> Value:  # fmt: skip
    """The input, cast to the layer's dtype: augmentation happens in training only."""
    del addition_factor, all_ops, alpha, bounding_box_format, chain_depth, data_format, factor
    del fill_mode, fill_value, height_factor, interpolation, kernel_size, mode, num_chains, num_ops
    del scale, seed, sigma, threshold_factor, value_range, width_factor, x_factor, y_factor
    return cast_to_compute(op, w, x)


@keras_layer(
    "Equalization", "MaxNumBoundingBoxes", "MixUp", "RandomBrightness", "RandomColorDegeneration",
    "RandomColorJitter", "RandomContrast", "RandomGrayscale", "RandomHeight", "RandomHue",
    "RandomInvert", "RandomPosterization", "RandomSaturation", "RandomWidth",
)  # fmt: skip
def augmentation_of_any_dtype(
    op: Builder, w: Roles, x: Value, /, *,
    alpha: Any = None, bins: Any = None, bounding_box_format: Any = None,
    brightness_factor: Any = None, contrast_factor: Any = None, data_format: Any = None,
    factor: Any = None, fill_value: Any = None, hue_factor: Any = None, interpolation: Any = None,
    max_number: Any = None, saturation_factor: Any = None, seed: Any = None,
    value_range: Any = None, keeps_dtype: bool = True,
) -> Value:  # fmt: skip
    """The input: augmentation happens in training only."""
    del alpha, bins, bounding_box_format, brightness_factor, contrast_factor, data_format, factor
    del fill_value, hue_factor, interpolation, max_number, saturation_factor, seed, value_range
    return x if keeps_dtype else cast_to_compute(op, w, x)


@keras_layer("RandomCrop")
def random_crop(
    op: Builder, w: Roles, x: Value, /, *,
    height: int, width: int, seed: Any = None, data_format: str | None = "channels_last",
    bounding_box_format: Any = None, keeps_dtype: bool = True,
) -> Value:  # fmt: skip
    """The input: random cropping happens in training only; Keras 2 resizes at inference."""
    del seed, bounding_box_format
    if keeps_dtype:
        return x
    return _of_aspect(op, cast_to_compute(op, w, x), (height, width), data_format)


@keras_layer("Pipeline")
def pipeline(
    op: Builder, w: Roles, x: Value, /, *, layers: Sequence[Any], mask: Value | None = None
) -> Any:
    """Layers in sequence."""
    for entry in layers:
        name = entry.get("config", {}).get("name") if isinstance(entry, dict) else None
        below = w.below(name) if isinstance(name, str) else w
        result = call_layer(op, below, entry, x, mask=mask)
        # Nothing in a pipeline has several outputs, and only the last one's mask counts.
        x = result.value if isinstance(result, Masked) else result
        mask = (
            result.mask if isinstance(result, Masked) and isinstance(result.mask, Value) else None
        )
    return Masked(x, mask)


# -- sizes ---------------------------------------------------------------------------------------


@keras_layer("Resizing")
def resizing(
    op: Builder, w: Roles, x: Value, /, *,
    height: int, width: int, interpolation: str = "bilinear", crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False, fill_mode: str = "constant", fill_value: float = 0.0,
    antialias: bool = False, data_format: str | None = "channels_last",
    bounding_box_format: Any = None, keeps_dtype: bool = True,
) -> Value:  # fmt: skip
    """Images resized by any interpolation, and cropped or padded to the aspect ratio first."""
    del bounding_box_format
    method = {"lanczos_3": "lanczos3", "lanczos_5": "lanczos5"}.get(interpolation, interpolation)
    if fill_mode != "constant":
        raise Unsupported(f"fill_mode {fill_mode!r}")
    if x.is_float and keeps_dtype:
        x = op.cast(x, w.policy or x.dtype)
    image = channels_first(op, _batched(op, x), data_format)
    if method != "nearest":
        image = op.cast(image, "float64" if x.dtype == "float64" else "float32")
    elif not keeps_dtype:
        image = cast_to_compute(op, w, image)
    size = (height, width)
    if crop_to_aspect_ratio:
        image = _crop_to_aspect(op, image, size)
    elif pad_to_aspect_ratio:
        image = _pad_to_aspect(op, image, size, fill_value)
    if not keeps_dtype and w.policy in NARROW and method in OVERSHOOTING:
        raise Unsupported(
            f"interpolation {method!r} to {w.policy}: Keras 2 wraps what is beyond its limits"
        )
    result = _resize(op, image, size, method, is_integer=not x.is_float, antialias=antialias)
    result = _back(op, result, x.dtype) if keeps_dtype else cast_to_compute(op, w, result)
    return _as_batched(op, as_given(op, result, data_format), x)


def _resize(
    op: Builder, image: Value, size: tuple[int, int], method: str, *,
    is_integer: bool, antialias: bool = False,
) -> Value:  # fmt: skip
    """Resize an image; integers in the order of TensorFlow's kernel, as results are rounded."""
    is_known = all(isinstance(n, int) for n in image.shape[2:])
    if is_integer and is_known and method == "bilinear" and not antialias:
        return interpolate(op, image, size)
    return resize(op, image, size, method, antialias=antialias)


def _batched(op: Builder, x: Value) -> Value:
    """Return a batch of images; a single image becomes a batch of one."""
    return op.unsqueeze(x, [0]) if x.rank == 3 else x


def _as_batched(op: Builder, result: Value, given: Value) -> Value:
    """Undo `_batched` for the result."""
    return op.squeeze(result, [0]) if given.rank == 3 else result


def _back(op: Builder, x: Value, dtype: str) -> Value:
    """Cast x to the dtype of the images; for integers, round it and clip it to their range."""
    if x.dtype == dtype or "int" not in dtype:
        return op.cast(x, dtype)
    limits = np.iinfo(dtype)
    high = F(limits.max)
    if int(high) > limits.max:  # float32 has no such number: the one below
        high = np.nextafter(high, F(0))
    return op.cast(op.clip(op.unary("Round", x), float(limits.min), float(high)), dtype)


@keras_layer("CenterCrop")
def center_crop(
    op: Builder, w: Roles, x: Value, /, *,
    height: int, width: int, data_format: str | None = "channels_last",
    bounding_box_format: Any = None, keeps_dtype: bool = True,
) -> Value:  # fmt: skip
    """The center of x; an x that is too small is cropped to the aspect ratio and enlarged."""
    del bounding_box_format
    images = _batched(op, cast_to_compute(op, w, x))
    image = channels_first(op, images, data_format)
    rows, columns = image.shape[2:]
    if not isinstance(rows, int) or not isinstance(columns, int):
        made = as_given(op, _center_of_any(op, image, (height, width)), data_format)
    elif rows < height or columns < width:
        made = _of_aspect(op, images, (height, width), data_format)
    else:
        top, left = (rows - height) // 2, (columns - width) // 2
        part = op.slice(image, [2, 3], [top, left], [top + height, left + width])
        made = as_given(op, part, data_format)
    return _as_batched(op, made if keeps_dtype else cast_to_compute(op, w, made), x)


def _of_aspect(op: Builder, x: Value, size: tuple[int, int], data_format: str | None) -> Value:
    """Crop to an aspect ratio, then resize (`keras.utils.image_utils.smart_resize`).

    The result for integers stays float32.
    """
    image = channels_first(op, x, data_format)
    image = _crop_to_aspect(op, op.cast(image, "float32"), size)
    result = _resize(op, image, size, "bilinear", is_integer=not x.is_float)
    return as_given(op, op.cast(result, x.dtype) if x.is_float else result, data_format)


def _crop_to_aspect(op: Builder, image: Value, size: tuple[int, int]) -> Value:
    rows, columns = image.shape[2:]
    if not isinstance(rows, int) or not isinstance(columns, int):
        starts, sizes = _box_of_any(op, image, size)
        return _slice(op, image, starts, sizes)
    height, width = size
    high = max(min(rows, int(F(columns * height) / F(width))), 1)
    wide = max(min(columns, int(F(rows * width) / F(height))), 1)
    top, left = (rows - high) // 2, (columns - wide) // 2
    return op.slice(image, [2, 3], [top, left], [top + high, left + wide])


def _pad_to_aspect(op: Builder, image: Value, size: tuple[int, int], fill: float) -> Value:
    rows, columns = image.shape[2:]
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise Unsupported("padding images of unknown size to an aspect")
    height, width = size
    top = (max(rows, int(F(columns * height) / F(width))) - rows) // 2
    left = (max(columns, int(F(rows * width) / F(height))) - columns) // 2
    around = [0, 0, top, left]
    return op.pad(image, around, around, value=fill)


# Symbolic sizes: the same, as tensors of height and width.


def _sizes(op: Builder, image: Value) -> Value:
    return op.concat([op.size(image, 2), op.size(image, 3)], 0)


def _box_of_any(op: Builder, image: Value, size: tuple[int, int]) -> tuple[Value, Value]:
    """Return the start and the size of the crop of an image that has this aspect ratio."""
    sizes = _sizes(op, image)
    turned = op.gather(sizes, op.constant([1, 0], "int64"))
    across = op.cast(op.mul(turned, op.constant(list(size), "int64")), "float32")
    wanted = op.cast(op.div(across, op.constant([size[1], size[0]], "float32")), "int64")
    least = op.constant([1, 1], "int64")
    box = op.elementwise("Max", op.elementwise("Min", sizes, wanted), least)
    return op.div(op.sub(sizes, box), op.constant([2, 2], "int64")), box


def _center_of_any(op: Builder, image: Value, size: tuple[int, int]) -> Value:
    sizes, wanted = _sizes(op, image), op.constant(list(size), "int64")
    starts, box = _box_of_any(op, image, size)
    enough = op.cast(op.elementwise("GreaterOrEqual", sizes, wanted), "int32")
    fits = op.cast(op.reduce("ReduceMin", enough, [0], keepdims=True), "bool")
    middle = op.div(op.sub(sizes, wanted), op.constant([2, 2], "int64"))
    part = _slice(op, image, op.where(fits, middle, starts), op.where(fits, wanted, box))
    # Of a part that has the size already this is the part itself.
    shape = (*image.shape[:2], *size)
    to = op.sizes_of(image, shape)
    kept = op.cast(part, "float32")
    result = op.emit("Resize", kept, None, None, to, dtype="float32", shape=shape, **LINEAR)
    return op.cast(result, image.dtype)


def _slice(op: Builder, image: Value, starts: Value, sizes: Value) -> Value:
    shape = (*image.shape[:2], None, None)
    axes = op.constant([2, 3], "int64")
    ends = op.add(starts, sizes)
    return op.emit("Slice", image, starts, ends, axes, dtype=image.dtype, shape=shape)


# -- contrast ------------------------------------------------------------------------------------


def in_range(op: Builder, x: Value, old: Sequence[float], new: Sequence[float]) -> Value:
    """Map x linearly from one range of values to another."""
    if list(old) == list(new):
        return x
    share = op.div(op.sub(x, float(old[0])), float(old[1]) - float(old[0]))
    return op.add(op.mul(share, float(new[1]) - float(new[0])), float(new[0]))


@keras_layer("AutoContrast")
def auto_contrast(
    op: Builder, w: Roles, x: Value, /, *,
    value_range: Sequence[float] = (0, 255), data_format: Any = None,
    bounding_box_format: Any = None,
) -> Value:  # fmt: skip
    """Images scaled one by one to fill the range of values."""
    del data_format, bounding_box_format
    given = cast_to_compute(op, w, x)
    image = in_range(op, given, value_range, (0, 255))
    low = op.reduce("ReduceMin", image, [1, 2], keepdims=True)
    high = op.reduce("ReduceMax", image, [1, 2], keepdims=True)
    scale = op.div(255.0, op.sub(high, low))
    moved = op.add(op.mul(image, scale), op.mul(op.unary("Neg", low), scale))
    result = in_range(op, op.clip(moved, 0.0, 255.0), (0, 255), value_range)
    # A constant image has no contrast to scale.
    flat = op.elementwise("Equal", low, high)
    return op.where(flat, given, result)


@keras_layer("ContrastLimitedAdaptiveHistogramEqualization")
def clahe(
    op: Builder, w: Roles, x: Value, /, *,
    value_range: Sequence[float] = (0, 255), clip_limit: float = 4.0,
    tile_grid_size: Sequence[int] = (8, 8), data_format: str | None = "channels_last",
    bounding_box_format: Any = None,
) -> Value:  # fmt: skip
    """Images equalized by clipped histograms of tiles, interpolated between tiles."""
    del w, bounding_box_format
    image = op.cast(channels_first(op, x, data_format), "float32")
    channels, rows, columns = image.shape[1:]
    if not isinstance(rows, int) or not isinstance(columns, int) or not isinstance(channels, int):
        raise Unsupported("histograms of images of unknown size")
    image = in_range(op, image, value_range, (0, 255))
    down, across = tile_grid_size
    high, wide = -(-rows // down), -(-columns // across)
    for axis, (n, whole) in enumerate(((rows, high * down), (columns, wide * across)), 2):
        if whole > n:  # mirrored at the edge
            mirrored = [*range(n), *range(n - 1, 2 * n - whole - 1, -1)]
            image = op.gather(image, op.constant(mirrored, "int64"), axis)
    pixels = op.cast(op.clip(image, 0.0, 255.0), "int64")
    tables = _tile_tables(op, pixels, (down, across), (high, wide), channels, clip_limit)
    result = _between_tiles(op, pixels, tables, (down, across), (high, wide))
    result = op.slice(result, [2, 3], [0, 0], [rows, columns])
    result = op.cast(in_range(op, result, (0, 255), value_range), x.dtype)
    return as_given(op, result, data_format)


def _tile_tables(
    op: Builder, pixels: Value, grid: tuple[int, int], tile: tuple[int, int], channels: int,
    clip_limit: float,
) -> Value:  # fmt: skip
    """Return the lookup tables of the 256 values: [N, C, tiles down, tiles across, 256]."""
    (down, across), (high, wide), batch = grid, tile, pixels.shape[0]
    cut = op.reshape(pixels, (batch, channels, down, high, across, wide))
    tiles = op.plain(op.transpose(cut, [0, 1, 2, 4, 3, 5]))
    flat = op.reshape(tiles, (batch, channels, down, across, high * wide))
    depth, ends = op.constant([256], "int64"), op.constant([0.0, 1.0], "float32")
    hot = op.emit("OneHot", flat, depth, ends, dtype="float32", shape=(*flat.shape, 256), axis=-1)
    counts = op.reduce("ReduceSum", hot, [4])
    if clip_limit > 0:
        held = op.clip(counts, 0.0, float(F(clip_limit * (high * wide) / 256.0)))
        excess = op.reduce("ReduceSum", op.sub(counts, held), [-1], keepdims=True)
        counts = op.add(held, op.div(excess, 256.0))
    last = op.constant(4, "int64")
    sums = op.emit("CumSum", counts, last, dtype="float32", shape=counts.shape)
    least = op.reduce("ReduceMin", sums, [-1], keepdims=True)
    room = op.sub(float(high * wide), least)
    room = op.where(op.elementwise("Equal", room, 0.0), 1.0, room)
    shares = op.div(op.mul(op.sub(sums, least), 255.0), room)
    return op.clip(shares, 0.0, 255.0)


def _between_tiles(
    op: Builder, pixels: Value, tables: Value, grid: tuple[int, int], tile: tuple[int, int]
) -> Value:
    """Look every pixel up in the tables of the four nearest tiles, and interpolate."""
    places = [_tiles_beside(count, size) for count, size in zip(grid, tile, strict=True)]
    (above, below, down), (before, behind, across) = places
    batch, channels, rows, columns = pixels.shape
    numbers = op.unsqueeze(pixels, [4])

    def looked_up(vertical: list[int], horizontal: list[int]) -> Value:
        # [N, C, rows, columns, 256]: the table of each pixel, of which one number is taken.
        by_row = op.gather(tables, op.constant(vertical, "int64"), 2)
        by_pixel = op.gather(by_row, op.constant(horizontal, "int64"), 3)
        shape = (batch, channels, rows, columns, 1)
        found = op.emit(
            "GatherElements", by_pixel, numbers, dtype=by_pixel.dtype, shape=shape, axis=4
        )
        return op.squeeze(found, [4])

    def mixed(a: Value, b: Value, share: Value) -> Value:
        return op.add(op.mul(a, op.sub(1.0, share)), op.mul(b, share))

    right = op.constant(across.reshape(1, 1, 1, -1), "float32")
    lower = op.constant(down.reshape(1, 1, -1, 1), "float32")
    top = mixed(looked_up(above, before), looked_up(above, behind), right)
    bottom = mixed(looked_up(below, before), looked_up(below, behind), right)
    return mixed(top, bottom, lower)


def _tiles_beside(count: int, size: int) -> tuple[list[int], list[int], np.ndarray]:
    """Return for each index along an axis the tiles on both sides, and the weight of the second."""
    at = (np.arange(count * size, dtype=F) - F(size / 2.0)) / F(size) + F(1.0)
    first = np.floor(at)
    # Keras repeats the tiles at the edges; tile 1 of those is the first there is.
    both = [
        np.clip(np.clip(n, 0, count + 1) - 1, 0, count - 1).astype(int) for n in (first, first + 1)
    ]
    return both[0].tolist(), both[1].tolist(), (at - first).astype(F)
