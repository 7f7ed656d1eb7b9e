"""Color spaces of images, and adjustments of hue, saturation and contrast; channels are last.

Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels
(colorspace_op, adjust_hue_op, adjust_saturation_op, adjust_contrast_op)
"""

from converter.lower.builder import Builder
from converter.lower.values import Value


def _channels(op: Builder, images: Value) -> list[Value]:
    return [op.slice(images, [-1], [i], [i + 1]) for i in range(3)]


def _hue(op: Builder, images: Value) -> tuple[Value, Value, Value]:
    """Return hue in [0, 1) (0 for gray), and the maximum and minimum of the channels."""
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


def _shares(op: Builder, hue: Value) -> Value:
    """Return the weights of red, green and blue in a hue, from 0 to 1."""
    sixths = op.mul(hue, 6.0)

    def distance(place: float) -> Value:
        return op.unary("Abs", op.sub(sixths, place))

    shares = [op.sub(distance(3.0), 1.0), op.sub(2.0, distance(2.0)), op.sub(2.0, distance(4.0))]
    return op.concat([op.clip(share, 0.0, 1.0) for share in shares], -1)


def rgb_to_hsv(op: Builder, images: Value) -> Value:
    """Convert red, green and blue to hue, saturation and value."""
    hue, most, least = _hue(op, images)
    some = op.elementwise("Greater", most, 0.0)
    spread = op.sub(most, least)
    saturation = op.where(some, op.div(spread, op.where(some, most, 1.0)), 0.0)
    return op.concat([hue, saturation, most], -1)


def hsv_to_rgb(op: Builder, images: Value) -> Value:
    """Convert hue, saturation and value to red, green and blue."""
    hue, saturation, value = _channels(op, images)
    mixed = op.add(op.sub(1.0, saturation), op.mul(saturation, _shares(op, hue)))
    return op.mul(mixed, value)


def adjust_hue(op: Builder, images: Value, delta: Value) -> Value:
    """Add a delta to the hue of images, modulo 1."""
    single = op.cast(images, "float32")
    hue, most, least = _hue(op, single)
    turned = op.add(hue, op.cast(delta, "float32"))
    turned = op.sub(turned, op.unary("Floor", turned))
    made = op.add(least, op.mul(op.sub(most, least), _shares(op, turned)))
    return op.cast(made, images.dtype)


def adjust_saturation(op: Builder, images: Value, scale: Value) -> Value:
    """Multiply the saturation of images by a factor."""
    single = op.cast(images, "float32")
    hue, saturation, value = _channels(op, rgb_to_hsv(op, single))
    more = op.clip(op.mul(saturation, op.cast(scale, "float32")), 0.0, 1.0)
    return op.cast(hsv_to_rgb(op, op.concat([hue, more, value], -1)), images.dtype)


def adjust_contrast(op: Builder, images: Value, factor: Value) -> Value:
    """Scale contrast around the mean of each channel of each image: `(x - mean) * f + mean`."""
    single = op.cast(images, "float32")
    mean = op.reduce("ReduceMean", single, [-3, -2], keepdims=True)
    made = op.add(op.mul(op.sub(single, mean), op.cast(factor, "float32")), mean)
    return op.cast(made, images.dtype)
