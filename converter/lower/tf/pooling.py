"""Max and average pooling, computed channels-first.

Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels
"""

from collections.abc import Sequence
from dataclasses import replace

from converter.lower.graph import Attribute
from converter.lower.ops.pool import pool
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.tf.windows import (
    Windows,
    as_first,
    as_was,
    attributes_of,
    explicit_of,
    is_first,
    lowest,
    order,
    pad_windows,
    spatial_of,
    taps,
)
from converter.lower.values import Value

# Dtypes of onnxruntime's MaxPool. Other integers of up to 32 bits are cast to float64, exactly.
POOLED = ("float16", "bfloat16", "float32", "float64", "int8", "uint8")


def windows_of(
    ksize: Sequence[int], strides: Sequence[int], padding: str, explicit: Sequence[int],
    data_format: str,
) -> Windows:  # fmt: skip
    """Return the pooling windows of an op's attributes."""
    lengths = spatial_of(ksize, data_format, "windows")
    before, after = explicit_of(explicit, padding, data_format)
    return Windows(
        lengths, spatial_of(strides, data_format, "strides"), (1,) * len(lengths), padding,
        before, after,
    )  # fmt: skip


def largest(op: Context, x: Value, windows: Windows, data_format: str) -> Value:
    """Return the maximum of each window."""
    kind = x.dtype
    image = as_first(op, x, data_format)
    shape = (*image.shape[:2], *windows.counts(image.shape[2:]))
    if kind in ("int64", "uint64"):  # not exact in float64
        padded, bare = pad_windows(op, image, windows, lowest(kind))
        cuts = [cut for _, cut in taps(op, padded, bare)]
        return as_was(op, op.elementwise("Max", *cuts) if cuts[1:] else cuts[0], data_format)
    if kind not in POOLED:
        image = op.cast(image, "float64")
    padding = windows.padding.lower()
    if windows.padding == "EXPLICIT" or _is_gap_of_pool(image, windows):
        image, _ = pad_windows(op, image, windows, lowest(image.dtype))
        padding = "valid"
    found = pool(
        op, image, "MaxPool", pool_size=list(windows.sizes), strides=windows.steps,
        padding=padding, data_format="channels_first",
    )  # fmt: skip
    return as_was(op, op.cast(replace(found, shape=shape), kind), data_format)


def _is_gap_of_pool(image: Value, windows: Windows) -> bool:
    """Return whether strides exceed the window while the padding is only known at run time."""
    return windows.pads(image.shape[2:]) is None and not windows.are_named


@tf_op("MaxPool")
def max_pool(
    op: Context, input: Value, /, *,
    ksize: Sequence[int], strides: Sequence[int], padding: str,
    explicit_paddings: Sequence[int] = (), data_format: str = "NHWC",
) -> Value:  # fmt: skip
    """The maximum of each window, spatial or along the channels."""
    channel = 1 if is_first(data_format) else len(ksize) - 1
    if ksize[channel] != 1:
        return _largest_of_channels(op, input, channel, ksize, strides)
    windows = windows_of(ksize, strides, padding, explicit_paddings, data_format)
    return largest(op, input, windows, data_format)


def _largest_of_channels(
    op: Context, x: Value, channel: int, ksize: Sequence[int], strides: Sequence[int]
) -> Value:
    rest = [n for i, n in enumerate(ksize) if i != channel]
    count, size = x.shape[channel], ksize[channel]
    if any(n != 1 for n in rest) or strides[channel] != size or not isinstance(count, int):
        raise Unsupported("windows of channels and of space at once")
    groups = (*x.shape[:channel], count // size, size, *x.shape[channel + 1 :])
    cut = op.emit("Reshape", x, op.sizes_of(x, groups), dtype=x.dtype, shape=groups)
    return op.reduce("ReduceMax", cut, [channel + 1])


@tf_op("MaxPoolV2")
def max_pool_v2(
    op: Context, input: Value, ksize: Value, strides: Value, /, *,
    padding: str, data_format: str = "NHWC",
) -> Value:  # fmt: skip
    """The maximum of each window."""
    return max_pool(
        op, input, ksize=op.ints(ksize, "sizes of windows"),
        strides=op.ints(strides, "steps of windows"), padding=padding, data_format=data_format,
    )  # fmt: skip


@tf_op("MaxPool3D")
def max_pool_3d(
    op: Context, input: Value, /, *,
    ksize: Sequence[int], strides: Sequence[int], padding: str, data_format: str = "NDHWC",
) -> Value:  # fmt: skip
    """The maximum of each three-dimensional window."""
    return largest(op, input, windows_of(ksize, strides, padding, (), data_format), data_format)


@tf_op("AvgPool3D")
def avg_pool_3d(
    op: Context, input: Value, /, *,
    ksize: Sequence[int], strides: Sequence[int], padding: str, data_format: str = "NDHWC",
) -> Value:  # fmt: skip
    """The mean of each three-dimensional window, padding excluded."""
    return avg_pool(
        op, input, ksize=ksize, strides=strides, padding=padding, data_format=data_format
    )


@tf_op("AvgPool")
def avg_pool(
    op: Context, value: Value, /, *,
    ksize: Sequence[int], strides: Sequence[int], padding: str, data_format: str = "NHWC",
) -> Value:  # fmt: skip
    """The mean of each window, padding excluded."""
    windows = windows_of(ksize, strides, padding, (), data_format)
    image = as_first(op, value, data_format)
    shape = (*image.shape[:2], *windows.counts(image.shape[2:]))
    if value.dtype == "float64" or _is_gap_of_pool(image, windows):
        return as_was(op, replace(_means(op, image, windows), shape=shape), data_format)
    found = pool(
        op, image, "AveragePool", pool_size=list(windows.sizes), strides=windows.steps,
        padding=padding.lower(), data_format=order("NCHW"),
    )  # fmt: skip
    return as_was(op, replace(found, shape=shape), data_format)


def _means(op: Context, image: Value, windows: Windows) -> Value:
    """Return the sum of each window divided by its number of elements, padding excluded."""

    def sums(x: Value) -> Value:
        padded, bare = pad_windows(op, x, windows)
        cuts = [cut for _, cut in taps(op, padded, bare)]
        return op.elementwise("Sum", *cuts) if cuts[1:] else cuts[0]

    one = op.reshape(op.constant(1.0, image.dtype), (1,) * image.rank)
    spread = (1, 1, *image.shape[2:])
    return op.div(sums(image), sums(op.expand(one, spread, like=image)))


@tf_op("MaxPoolWithArgmax", outputs=("output", "argmax"))
def max_pool_with_argmax(
    op: Context, input: Value, /, *,
    ksize: Sequence[int], strides: Sequence[int], padding: str,
    include_batch_in_index: bool = False, node: Node,
) -> list[Value]:  # fmt: skip
    """The maximum of each window, and its flat index in the image."""
    windows = windows_of(ksize, strides, padding, (), "NHWC")
    image = as_first(op, input, "NHWC")
    kind = input.dtype
    if kind in ("int64", "uint64"):
        raise Unsupported(f"places of {kind}")
    if kind not in POOLED:
        image = op.cast(image, "float64")
    pads = windows.pads(image.shape[2:])
    shape = (*image.shape[:2], *windows.counts(image.shape[2:]))
    how: dict[str, Attribute] = {"auto_pad": "SAME_UPPER" if padding == "SAME" else "VALID"}
    before = [0, 0]
    if padding == "SAME" and not windows.are_named:
        if pads is None:
            raise Unsupported("steps larger than windows of an unknown size")
        image, _ = pad_windows(op, image, windows, lowest(image.dtype))
        how, before = {"auto_pad": "VALID"}, pads[0]
    values, places = op.node(
        "MaxPool", [op.plain(image)], [(image.dtype, shape), ("int64", shape)],
        attributes={**attributes_of(windows), **how},
    )  # fmt: skip
    found = _in_images(op, places, image, before, input, is_whole=include_batch_in_index)
    return [
        as_was(op, op.cast(values, kind), "NHWC"),
        as_was(op, op.cast(found, node.attribute("Targmax", "int64")), "NHWC"),
    ]


def _in_images(
    op: Context, places: Value, padded: Value, before: Sequence[int], input: Value, *,
    is_whole: bool,
) -> Value:  # fmt: skip
    """Convert flat indices in padded channels-first images to those in channels-last images."""

    def size(x: Value, axis: int) -> Value:
        n = x.shape[axis]
        return op.constant(n, "int64") if isinstance(n, int) else op.squeeze(op.size(x, axis), [0])

    height, width = (size(padded, axis) for axis in (2, 3))
    within = op.elementwise("Mod", places, op.mul(height, width))
    if any(before):
        row = op.sub(op.div(within, width), before[0])
        column = op.sub(op.elementwise("Mod", within, width), before[1])
        within = op.add(op.mul(row, size(input, 2)), column)
    channels = size(input, 3)
    found = op.add(op.mul(within, channels), _numbers(op, input, 3, 1))
    if is_whole:
        image = op.mul(op.mul(size(input, 1), size(input, 2)), channels)
        found = op.add(found, op.mul(_numbers(op, input, 0, 0), image))
    return found


def _numbers(op: Context, x: Value, axis: int, place: int) -> Value:
    """Return 0, 1, ..., size - 1 of an axis of `x`, along axis `place` of four."""
    n = x.shape[axis]
    if isinstance(n, int):
        vector = op.constant(list(range(n)), "int64")
    else:
        bounds = [
            op.constant(0, "int64"),
            op.squeeze(op.size(x, axis), [0]),
            op.constant(1, "int64"),
        ]
        vector = op.emit("Range", *bounds, dtype="int64", shape=(n,))
    return op.unsqueeze(vector, [i for i in range(4) if i != place])
