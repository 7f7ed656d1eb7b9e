"""Sampling of images at computed coordinates: crops of boxes and projective transforms.

Images are channels-last, of any size; coordinates are float32, as TensorFlow computes them.
Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels/image
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from converter.lower import dims
from converter.lower.builder import Builder
from converter.lower.ops import resize_computed
from converter.lower.ops.resize_computed import Size
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

F = np.float32


def _floating(op: Builder, size: Size) -> Value:
    if isinstance(size, int):
        return op.constant(float(size))
    return op.cast(size, "float32")


def _count_to(op: Builder, size: Size) -> Value:
    """Return the integers below a size, as float32."""
    if isinstance(size, int):
        return op.constant(np.arange(size, dtype=F))
    bounds = [op.constant(0, "int64"), op.cast(size, "int64"), op.constant(1, "int64")]
    return op.cast(op.emit("Range", *bounds, dtype="int64", shape=(None,)), "float32")


def _round_half_away(op: Builder, x: Value) -> Value:
    """Round half away from zero."""
    size = op.unary("Abs", x)
    whole = op.unary("Floor", size)
    up = op.cast(op.elementwise("GreaterOrEqual", op.sub(size, whole), 0.5), "float32")
    return op.mul(op.unary("Sign", x), op.add(whole, up))


class _Pixels:
    """Images [N, H, W, C] whose pixels are gathered by image, row and column."""

    def __init__(self, op: Builder, images: Value) -> None:
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
        """Return the index of the last row or column, as float32."""
        return self.op.sub(_floating(self.op, size), 1.0)

    def at(self, image: Value, row: Value, column: Value) -> Value:
        """Return pixels at float32 coordinates, which are clamped to the image."""
        op = self.op

        def within(x: Value, size: Size) -> Value:
            low = op.elementwise("Max", x, 0.0)
            return op.cast(op.elementwise("Min", low, self.last(size)), "int64")

        height, width = (
            op.constant(n, "int64") if isinstance(n, int) else n for n in (self.height, self.width)
        )
        rows = op.add(op.mul(image, height), within(row, self.height))
        return op.gather(self.flat, op.add(op.mul(rows, width), within(column, self.width)))


def crop_and_resize(
    op: Builder, images: Value, boxes: Value, indices: Value, sizes: Sequence[Size], *,
    method: str = "bilinear", fill_value: float = 0.0,
) -> Value:  # fmt: skip
    """Crop boxes out of images and resize them: [boxes, height, width, channels].

    Args:
        op: Builder.
        images: [N, H, W, C].
        boxes: [boxes, 4]: y1, x1, y2, x2, where 0 and 1 are the centers of the corner pixels.
        indices: [boxes]: index of the image of each box.
        sizes: Height and width of the result.
        method: ``nearest`` or ``bilinear``.
        fill_value: Value of pixels outside the image.

    Raises:
        Unsupported: The method is not supported.
    """
    pixels = _Pixels(op, op.cast(images, "float32"))
    boxes = op.cast(boxes, "float32")
    corners = [op.slice(boxes, [1], [i], [i + 1]) for i in range(4)]  # y1, x1, y2, x2: [n, 1]

    def places(low: Value, high: Value, size: Size, count: Size) -> Value:
        """Return the coordinates of each row (or column) of each crop: [n, count]."""
        last, steps = pixels.last(size), op.unsqueeze(_count_to(op, count), [0])
        middle = op.mul(op.mul(op.add(low, high), 0.5), last)
        if count == 1:
            return middle
        gaps = op.sub(_floating(op, count), 1.0)
        scale = op.div(op.mul(op.sub(high, low), last), gaps)
        found = op.add(op.mul(low, last), op.mul(steps, scale))
        if isinstance(count, int):
            return found
        return op.where(op.elementwise("Equal", gaps, 0.0), middle, found)

    row = op.unsqueeze(places(corners[0], corners[2], pixels.height, sizes[0]), [2])
    column = op.unsqueeze(places(corners[1], corners[3], pixels.width, sizes[1]), [1])
    number = op.unsqueeze(op.cast(indices, "int64"), [1, 2])

    def inside(x: Value, size: Size) -> Value:
        low = op.elementwise("GreaterOrEqual", x, 0.0)
        return op.elementwise("And", low, op.elementwise("LessOrEqual", x, pixels.last(size)))

    if method == "nearest":
        found = pixels.at(number, _round_half_away(op, row), _round_half_away(op, column))
    elif method == "bilinear":
        found = _between(op, pixels, number, row, column)
    else:
        raise Unsupported(f"method {method}")
    valid = op.elementwise("And", inside(row, pixels.height), inside(column, pixels.width))
    found = op.where(op.unsqueeze(valid, [3]), found, fill_value)
    return replace(found, shape=(boxes.shape[0], *_known(sizes), images.shape[3]))


def _between(op: Builder, pixels: _Pixels, number: Value, row: Value, column: Value) -> Value:
    """Interpolate between the four nearest pixels."""
    top, left = op.unary("Floor", row), op.unary("Floor", column)
    bottom, right = op.unary("Ceil", row), op.unary("Ceil", column)
    across = op.unsqueeze(op.sub(column, left), [3])
    down = op.unsqueeze(op.sub(row, top), [3])

    def mixed(a: Value, b: Value, share: Value) -> Value:
        return op.add(a, op.mul(op.sub(b, a), share))

    above = mixed(pixels.at(number, top, left), pixels.at(number, top, right), across)
    below = mixed(pixels.at(number, bottom, left), pixels.at(number, bottom, right), across)
    return mixed(above, below, down)


def transform(
    op: Builder, images: Value, transforms: Value, sizes: Sequence[Size], fill_value: Value, *,
    interpolation: str, fill_mode: str = "constant",
) -> Value:  # fmt: skip
    """Apply projective transforms to images [N, H, W, C].

    Args:
        op: Builder.
        images: Images.
        transforms: [N or 1, 8]: a0 ... c1. The pixel (x, y) of the result is sampled at
            ((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k), where k = c0 x + c1 y + 1.
        sizes: Height and width of the result.
        fill_value: Value of pixels outside the image, a scalar.
        interpolation: ``nearest`` or ``bilinear``.
        fill_mode: Pixels outside the image: ``constant``, ``nearest``, ``reflect`` (the mirrored
            image, with the edge repeated) or ``wrap`` (the image repeated).

    Raises:
        Unsupported: The mode is not supported, or bilinear interpolation is not in float32.
    """
    if fill_mode not in FILL_MODES:
        raise Unsupported(f"fill_mode {fill_mode!r}")
    if interpolation == "bilinear" and images.dtype != "float32":
        raise Unsupported(f"bilinear interpolation of images of {images.dtype}")
    pixels = _Pixels(op, images)
    column = op.unsqueeze(_count_to(op, sizes[1]), [0, 1])
    row = op.unsqueeze(_count_to(op, sizes[0]), [0, 2])
    t = [op.unsqueeze(op.slice(transforms, [1], [i], [i + 1]), [2]) for i in range(8)]

    def line(a: Value, b: Value, c: Value | float) -> Value:
        return op.add(op.add(op.mul(a, column), op.mul(b, row)), c)

    depth = line(t[6], t[7], 1.0)
    nowhere = op.elementwise("Equal", depth, 0.0)
    x, y = op.div(line(*t[0:3]), depth), op.div(line(*t[3:6]), depth)
    inside = FILL_MODES[fill_mode]
    x, y = inside(op, x, pixels.last(pixels.width)), inside(op, y, pixels.last(pixels.height))
    count = resize_computed.axis_size(op, images, 0)
    number = op.unsqueeze(op.cast(_count_to(op, count), "int64"), [1, 2])
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

    if interpolation == "nearest":
        found = read(_round_half_away(op, y), _round_half_away(op, x))
    elif interpolation == "bilinear":
        top, left = op.unary("Floor", y), op.unary("Floor", x)
        bottom, right = op.add(top, 1.0), op.add(left, 1.0)
        shares = [op.sub(right, x), op.sub(x, left), op.sub(bottom, y), op.sub(y, top)]
        before, behind, above, below = (op.unsqueeze(share, [3]) for share in shares)

        def along(row: Value) -> Value:
            return op.add(op.mul(before, read(row, left)), op.mul(behind, read(row, right)))

        found = op.add(op.mul(above, along(top)), op.mul(below, along(bottom)))
    else:
        raise Unsupported(f"interpolation {interpolation!r}")
    found = op.where(op.unsqueeze(nowhere, [3]), fill, found)
    return replace(found, shape=(images.shape[0], *_known(sizes), images.shape[3]))


def _known(sizes: Sequence[Size]) -> list[int | None]:
    return [n if isinstance(n, int) else None for n in sizes]


def _unchanged(op: Builder, at: Value, last: Value) -> Value:
    """Return coordinates unchanged: pixels outside the image are filled."""
    del op, last
    return at


def _clamped(op: Builder, at: Value, last: Value) -> Value:
    """Clamp coordinates to the image."""
    return op.elementwise("Min", op.elementwise("Max", at, 0.0), last)


def _reflected(op: Builder, at: Value, last: Value) -> Value:
    """Map coordinates to an image that is mirrored at the outer edges of its pixels."""
    size = op.add(last, 1.0)
    period = op.mul(size, 2.0)
    below = op.sub(op.unary("Neg", at), 1.0)
    found = op.where(op.elementwise("Less", at, 0.0), below, at)
    found = op.sub(found, op.mul(period, op.unary("Floor", op.div(found, period))))
    mirrored = op.sub(op.sub(period, found), 1.0)
    found = op.where(op.elementwise("Less", found, size), found, mirrored)
    return _clamped(op, found, last)


def _wrap(op: Builder, at: Value, last: Value) -> Value:
    """Map coordinates to an image that is repeated, with TensorFlow's period of `last`."""
    size, period = op.add(last, 1.0), op.elementwise("Max", last, 1.0)
    below = op.add(op.unary("Floor", op.div(op.unary("Neg", at), period)), 1.0)
    above = op.unary("Neg", op.unary("Floor", op.div(at, period)))
    found = op.where(op.elementwise("Less", at, 0.0), below, above)
    found = op.add(at, op.mul(found, size))
    is_inside = op.elementwise(
        "And", op.elementwise("GreaterOrEqual", at, 0.0), op.elementwise("LessOrEqual", at, last)
    )
    return _clamped(op, op.where(is_inside, at, found), last)


FILL_MODES = {
    "constant": _unchanged, "nearest": _clamped, "reflect": _reflected, "wrap": _wrap,
}  # fmt: skip
