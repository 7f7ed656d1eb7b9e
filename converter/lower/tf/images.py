"""Images in other sizes, cut out, turned, and in other colours; channels-first inside.

Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels/image
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from converter.lower import dims
from converter.lower.graph import Attribute, Dim
from converter.lower.ops import resize, resize_computed
from converter.lower.ops.conv import as_given, channels_first
from converter.lower.ops.resize import apply_weights, by_scales, by_sizes
from converter.lower.ops.resize_computed import Size
from converter.lower.tf.context import Context
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value

F = np.float32
REPEATED = ("float32", "float16", "int32", "int8", "uint8")  # what onnxruntime's Resize takes
FACTORS_TRIED = 4096


def _sizes(op: Context, size: Value) -> tuple[list[Size], list[Dim]]:
    """Return height and width, as numbers where they are known, and what is known of them.

    Raises:
        Unsupported: These are not two.
    """
    dims: list[Dim] = op.dims(size) if isinstance(size.shape[0], int) else [None, None]
    if len(dims) != 2:
        raise Unsupported(f"a size of {len(dims)} numbers")
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
    """Images in another size, each pixel between four."""
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
    """Images in another size, each pixel the one that is nearest."""
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
    """Return which rows of a source the rows of the result are."""
    scale = resize.step(size, wanted, by_corners=how == "align_corners")
    places = np.arange(wanted, dtype=F) + F(0.5 if how == "half_pixel" else 0)
    at = places * scale
    whole = np.floor(at)
    if how == "align_corners":  # rounded, a half up
        whole += at - whole >= F(0.5)
    return [int(n) for n in np.minimum(whole, size - 1)]


def _factor(size: Dim, wanted: Dim, how: str) -> int | None:
    """Return how often each row is repeated, where that is all there is to it."""
    if size == wanted and size is not None:
        return 1 if how != "align_corners" or isinstance(size, int) else None
    factor = dims.divided(wanted, size)
    if not isinstance(factor, int) or factor < 1 or how == "align_corners":
        return None
    if isinstance(size, int) and isinstance(wanted, int):
        rows = _rows(size, wanted, how)
        return factor if rows == [i // factor for i in range(wanted)] else None
    return factor if how == "half_pixel" or _is_exact(factor) else None


@cache
def _is_exact(factor: int) -> bool:
    """Return whether float32 has a row's number right after multiplying it by 1 / factor."""
    rows = np.arange(FACTORS_TRIED, dtype=F)
    return bool((np.floor(rows * F(factor) * (F(1) / F(factor))) == rows).all())


@tf_op("ResizeBicubic")
def resize_bicubic(
    op: Context, images: Value, size: Value, /, *,
    align_corners: bool = False, half_pixel_centers: bool = False,
) -> Value:  # fmt: skip
    """Images in another size, each pixel among sixteen."""
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
    """Images in another size, each pixel the mean of what it covers."""

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
    """Images scaled and moved, each pixel a sum of those around, weighted by a kernel."""
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
    """Return images whose rows and columns are sums of rows and columns."""
    wanted, dims = _sizes(op, size)
    image = channels_first(op, op.cast(images, "float32"), None)
    for axis, (m, matrix) in enumerate(zip(wanted, matrices, strict=True), 2):
        assert callable(matrix)
        image = apply_weights(
            op, image, axis, matrix(resize_computed.axis_size(op, image, axis), m)
        )
    return as_given(op, replace(image, shape=(*image.shape[:2], *dims)), None)


# -- pixels at places ------------------------------------------------------------------------------


def _floating(op: Context, size: Size) -> Value:
    if isinstance(size, int):
        return op.constant(float(size))
    return op.cast(size, "float32")


def _counted(op: Context, size: Size) -> Value:
    """Return 0, 1, ... up to a size, as float32."""
    if isinstance(size, int):
        return op.constant(np.arange(size, dtype=F))
    bounds = [op.constant(0, "int64"), op.cast(size, "int64"), op.constant(1, "int64")]
    return op.cast(op.emit("Range", *bounds, dtype="int64", shape=(None,)), "float32")


def _rounded(op: Context, x: Value) -> Value:
    """Return integers, a half away from zero."""
    size = op.unary("Abs", x)
    whole = op.unary("Floor", size)
    up = op.cast(op.elementwise("GreaterOrEqual", op.sub(size, whole), 0.5), "float32")
    return op.mul(op.unary("Sign", x), op.add(whole, up))


class _Pixels:
    """Images whose pixels are taken by number of image, row and column."""

    def __init__(self, op: Context, images: Value) -> None:
        self.op = op
        count, height, width, self.depth = images.shape
        image = op.plain(images)
        self.height, self.width = (resize_computed.axis_size(op, image, i) for i in (1, 2))
        parts = [op.constant([-1], "int64"), op.size(image, 3)]
        whole = dims.product([count, height, width])
        self.flat = op.emit(
            "Reshape", image, op.concat(parts, 0), dtype=image.dtype, shape=(whole, self.depth)
        )

    def last(self, size: Size) -> Value:
        """Return the number of the last row or column, as float32."""
        return self.op.sub(_floating(self.op, size), 1.0)

    def at(self, image: Value, row: Value, column: Value) -> Value:
        """Return pixels, of the nearest place where there is none; places are float32."""
        op = self.op

        def within(x: Value, size: Size) -> Value:
            low = op.elementwise("Max", x, 0.0)
            return op.cast(op.elementwise("Min", low, self.last(size)), "int64")

        height, width = (
            op.constant(n, "int64") if isinstance(n, int) else n for n in (self.height, self.width)
        )
        rows = op.add(op.mul(image, height), within(row, self.height))
        return op.gather(self.flat, op.add(op.mul(rows, width), within(column, self.width)))


@tf_op("CropAndResize")
def crop_and_resize(
    op: Context, image: Value, boxes: Value, box_ind: Value, crop_size: Value, /, *,
    method: str = "bilinear", extrapolation_value: float = 0.0,
) -> Value:  # fmt: skip
    """Boxes of images, each in one size."""
    wanted, dims = _sizes(op, crop_size)
    pixels = _Pixels(op, op.cast(image, "float32"))
    boxes = op.cast(boxes, "float32")
    corners = [op.slice(boxes, [1], [i], [i + 1]) for i in range(4)]  # y1, x1, y2, x2: [n, 1]

    def places(low: Value, high: Value, size: Size, count: Size) -> Value:
        """Return where each row (or column) of each crop is: [n, count]."""
        last, steps = pixels.last(size), op.unsqueeze(_counted(op, count), [0])
        middle = op.mul(op.mul(op.add(low, high), 0.5), last)
        if count == 1:
            return middle
        gaps = op.sub(_floating(op, count), 1.0)
        scale = op.div(op.mul(op.sub(high, low), last), gaps)
        found = op.add(op.mul(low, last), op.mul(steps, scale))
        if isinstance(count, int):
            return found
        return op.where(op.elementwise("Equal", gaps, 0.0), middle, found)

    row = op.unsqueeze(places(corners[0], corners[2], pixels.height, wanted[0]), [2])
    column = op.unsqueeze(places(corners[1], corners[3], pixels.width, wanted[1]), [1])
    number = op.unsqueeze(op.cast(box_ind, "int64"), [1, 2])

    def inside(x: Value, size: Size) -> Value:
        low = op.elementwise("GreaterOrEqual", x, 0.0)
        return op.elementwise("And", low, op.elementwise("LessOrEqual", x, pixels.last(size)))

    if method == "nearest":
        found = pixels.at(number, _rounded(op, row), _rounded(op, column))
    elif method == "bilinear":
        found = _between(op, pixels, number, row, column)
    else:
        raise Unsupported(f"method {method}")
    valid = op.elementwise("And", inside(row, pixels.height), inside(column, pixels.width))
    found = op.where(op.unsqueeze(valid, [3]), found, float(extrapolation_value))
    return replace(found, shape=(boxes.shape[0], *dims, image.shape[3]))


def _between(op: Context, pixels: _Pixels, number: Value, row: Value, column: Value) -> Value:
    """Return what is between four pixels."""
    top, left = op.unary("Floor", row), op.unary("Floor", column)
    bottom, right = op.unary("Ceil", row), op.unary("Ceil", column)
    across = op.unsqueeze(op.sub(column, left), [3])
    down = op.unsqueeze(op.sub(row, top), [3])

    def mixed(a: Value, b: Value, share: Value) -> Value:
        return op.add(a, op.mul(op.sub(b, a), share))

    above = mixed(pixels.at(number, top, left), pixels.at(number, top, right), across)
    below = mixed(pixels.at(number, bottom, left), pixels.at(number, bottom, right), across)
    return mixed(above, below, down)


@tf_op("ImageProjectiveTransformV2")
def image_projective_transform_v2(
    op: Context, images: Value, transforms: Value, output_shape: Value, /, *,
    interpolation: str, fill_mode: str = "CONSTANT",
) -> Value:  # fmt: skip
    """Images as they are seen from elsewhere."""
    return image_projective_transform(
        op, images, transforms, output_shape, op.constant(0.0), interpolation=interpolation,
        fill_mode=fill_mode,
    )  # fmt: skip


@tf_op("ImageProjectiveTransformV3")
def image_projective_transform(
    op: Context, images: Value, transforms: Value, output_shape: Value, fill_value: Value, /, *,
    interpolation: str, fill_mode: str = "CONSTANT",
) -> Value:  # fmt: skip
    """Images as they are seen from elsewhere, and something around them."""
    wanted, dims = _sizes(op, output_shape)
    if fill_mode not in ("CONSTANT", "NEAREST"):
        raise Unsupported(f"fill_mode {fill_mode}")
    if interpolation == "BILINEAR" and images.dtype != "float32":
        raise Unsupported(f"images of {images.dtype}")
    pixels = _Pixels(op, images)
    column = op.unsqueeze(_counted(op, wanted[1]), [0, 1])
    row = op.unsqueeze(_counted(op, wanted[0]), [0, 2])
    t = [op.unsqueeze(op.slice(transforms, [1], [i], [i + 1]), [2]) for i in range(8)]

    def line(a: Value, b: Value, c: Value | float) -> Value:
        return op.add(op.add(op.mul(a, column), op.mul(b, row)), c)

    depth = line(t[6], t[7], 1.0)
    nowhere = op.elementwise("Equal", depth, 0.0)
    x, y = op.div(line(*t[0:3]), depth), op.div(line(*t[3:6]), depth)
    if fill_mode == "NEAREST":
        x, y = (
            op.elementwise("Min", op.elementwise("Max", v, 0.0), pixels.last(n))
            for v, n in ((x, pixels.width), (y, pixels.height))
        )
    count = resize_computed.axis_size(op, images, 0)
    number = op.unsqueeze(op.cast(_counted(op, count), "int64"), [1, 2])
    fill = op.cast(fill_value, images.dtype)

    def read(row: Value, column: Value) -> Value:
        found = pixels.at(number, row, column)
        tests = [
            op.elementwise("GreaterOrEqual", row, 0.0),
            op.elementwise("GreaterOrEqual", column, 0.0),
            op.elementwise("LessOrEqual", row, pixels.last(pixels.height)),
            op.elementwise("LessOrEqual", column, pixels.last(pixels.width)),
        ]  # fmt: skip
        valid = tests[0]
        for test in tests[1:]:
            valid = op.elementwise("And", valid, test)
        return op.where(op.unsqueeze(valid, [3]), found, fill)

    if interpolation == "NEAREST":
        found = read(_rounded(op, y), _rounded(op, x))
    elif interpolation == "BILINEAR":
        top, left = op.unary("Floor", y), op.unary("Floor", x)
        bottom, right = op.add(top, 1.0), op.add(left, 1.0)
        shares = [op.sub(right, x), op.sub(x, left), op.sub(bottom, y), op.sub(y, top)]
        before, behind, above, below = (op.unsqueeze(share, [3]) for share in shares)

        def along(row: Value) -> Value:
            return op.add(op.mul(before, read(row, left)), op.mul(behind, read(row, right)))

        found = op.add(op.mul(above, along(top)), op.mul(below, along(bottom)))
    else:
        raise Unsupported(f"interpolation {interpolation}")
    found = op.where(op.unsqueeze(nowhere, [3]), fill, found)
    return replace(found, shape=(images.shape[0], *dims, images.shape[3]))


# -- colours ---------------------------------------------------------------------------------------


def _channels(op: Context, images: Value) -> list[Value]:
    return [op.slice(images, [-1], [i], [i + 1]) for i in range(3)]


def _hue(op: Context, images: Value) -> tuple[Value, Value, Value]:
    """Return hue (of 1), the largest and the least channel; hue is nothing where all are equal."""
    red, green, blue = _channels(op, images)
    most = op.reduce("ReduceMax", images, [-1], keepdims=True)
    least = op.reduce("ReduceMin", images, [-1], keepdims=True)
    spread = op.sub(most, least)
    some = op.elementwise("Greater", spread, 0.0)
    norm = op.div(1 / 6, op.where(some, spread, 1.0))
    by_green = op.add(op.mul(norm, op.sub(blue, red)), 2 / 6)
    by_blue = op.add(op.mul(norm, op.sub(red, green)), 4 / 6)
    hue = op.where(op.elementwise("Equal", green, most), by_green, by_blue)
    by_red = op.mul(norm, op.sub(green, blue))
    hue = op.where(op.elementwise("Equal", red, most), by_red, hue)
    hue = op.where(some, hue, 0.0)
    return op.where(op.elementwise("Less", hue, 0.0), op.add(hue, 1.0), hue), most, least


def _shares(op: Context, hue: Value) -> Value:
    """Return how much of red, green and blue a hue has."""
    sixths = op.mul(hue, 6.0)

    def away(place: float) -> Value:
        return op.unary("Abs", op.sub(sixths, place))

    shares = [op.sub(away(3.0), 1.0), op.sub(2.0, away(2.0)), op.sub(2.0, away(4.0))]
    return op.concat([op.clip(share, 0.0, 1.0) for share in shares], -1)


@tf_op("RGBToHSV")
def rgb_to_hsv(op: Context, images: Value, /) -> Value:
    """Hue, saturation and value of red, green and blue."""
    hue, most, least = _hue(op, images)
    some = op.elementwise("Greater", most, 0.0)
    spread = op.sub(most, least)
    saturation = op.where(some, op.div(spread, op.where(some, most, 1.0)), 0.0)
    return op.concat([hue, saturation, most], -1)


@tf_op("HSVToRGB")
def hsv_to_rgb(op: Context, images: Value, /) -> Value:
    """Red, green and blue of hue, saturation and value."""
    hue, saturation, value = _channels(op, images)
    mixed = op.add(op.sub(1.0, saturation), op.mul(saturation, _shares(op, hue)))
    return op.mul(mixed, value)


@tf_op("AdjustHue")
def adjust_hue(op: Context, images: Value, delta: Value, /) -> Value:
    """Images with their hues turned."""
    single = op.cast(images, "float32")
    hue, most, least = _hue(op, single)
    turned = op.add(hue, op.cast(delta, "float32"))
    turned = op.sub(turned, op.unary("Floor", turned))
    made = op.add(least, op.mul(op.sub(most, least), _shares(op, turned)))
    return op.cast(made, images.dtype)


@tf_op("AdjustSaturation")
def adjust_saturation(op: Context, images: Value, scale: Value, /) -> Value:
    """Images with their saturations multiplied."""
    single = op.cast(images, "float32")
    hue, saturation, value = _channels(op, rgb_to_hsv(op, single))
    more = op.clip(op.mul(saturation, op.cast(scale, "float32")), 0.0, 1.0)
    return op.cast(hsv_to_rgb(op, op.concat([hue, more, value], -1)), images.dtype)


@tf_op("AdjustContrastv2")
def adjust_contrast(op: Context, images: Value, contrast_factor: Value, /) -> Value:
    """(x - mean) * contrast_factor + mean, channel by channel of each image."""
    single = op.cast(images, "float32")
    mean = op.reduce("ReduceMean", single, [-3, -2], keepdims=True)
    factor = op.cast(contrast_factor, "float32")
    made = op.add(op.mul(op.sub(single, mean), factor), mean)
    return op.cast(made, images.dtype)
