"""Convolution and transposed convolution; images stay channels-first between ops.

Kernels are [*spatial, in / groups, out]; ONNX expects [out, in / groups, *spatial]. Convolutions of
integer dtypes, which onnxruntime lacks, become matrix products of windows and kernels.
Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from converter.lower import dims
from converter.lower.graph import Dim
from converter.lower.ops.conv import convolve, emit_conv_transpose
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.tf.windows import (
    Windows,
    as_first,
    as_was,
    explicit_of,
    is_first,
    pad_windows,
    spatial_of,
    taps,
)
from converter.lower.values import Value, total

PRODUCTS = ("int32", "int64")


def windows_of(
    kernel: Value, strides: Sequence[int], padding: str, explicit: Sequence[int],
    data_format: str, dilations: Sequence[int],
) -> Windows:  # fmt: skip
    """Return the windows of a kernel of [*spatial, in, out]."""
    rank = kernel.rank - 2
    lengths = tuple(n if isinstance(n, int) else None for n in kernel.shape[:rank])
    before, after = explicit_of(explicit, padding, data_format)
    return Windows(
        lengths, spatial_of(strides, data_format, "strides"),
        spatial_of(dilations or [1] * (rank + 2), data_format, "dilations"), padding, before, after,
    )  # fmt: skip


def convolve_windows(
    op: Context, x: Value, kernel: Value, windows: Windows, data_format: str,
    *, groups: int | None = None, bias: Value | None = None,
) -> Value:  # fmt: skip
    """Cross-correlate an image with a kernel of [*spatial, in / groups, out]."""
    image = as_first(op, x, data_format)
    if groups is None:
        channels, each = image.shape[1], kernel.shape[-2]
        known = isinstance(channels, int) and isinstance(each, int)
        groups = int(channels or 0) // int(each or 1) if known else 1
        if known and (groups < 1 or groups * int(each or 0) != channels):
            raise Unsupported(f"{channels} channels, and a kernel of {each}")
    count = windows.counts(image.shape[2:])
    shape = (image.shape[0], kernel.shape[-1], *count)
    if image.dtype in PRODUCTS:
        padded_image, bare = pad_windows(op, image, windows)
        result = _by_products(op, padded_image, kernel, bare, groups)
        if bias is not None:
            result = op.add(result, op.reshape(bias, (bias.shape[0], *[1] * len(count))))
    else:
        pads: Any = windows.pads(image.shape[2:])
        if pads is None and windows.are_named:
            pads = "same"
        elif pads is None:
            image, _ = pad_windows(op, image, windows)
            pads = ([0] * len(count), [0] * len(count))
        result = convolve(
            op, image, kernel, bias, strides=windows.steps, padding=pads,
            data_format="channels_first", dilations=windows.spreads, groups=groups,
        )  # fmt: skip
    return as_was(op, replace(result, shape=shape), data_format)


def _by_products(op: Context, image: Value, kernel: Value, windows: Windows, groups: int) -> Value:
    """Convolve a padded image: multiply the flattened windows by the kernel."""
    last = [0, *range(2, image.rank), 1]
    parts = [op.plain(op.transpose(cut, last)) for _, cut in taps(op, image, windows)]
    each, filters = kernel.shape[-2:]
    length = total(kernel.shape[:-1])
    if not isinstance(each, int) or not isinstance(filters, int) or length is None:
        raise Unsupported(f"a kernel of unknown size, of {image.dtype}")
    if groups == 1:
        rows = op.concat(parts, -1)
        if rows.rank == 1:
            raise Unsupported("an image without axes")
        result = op.matmul(rows, op.reshape(kernel, (length, filters)))
        return op.transpose(result, [0, result.rank - 1, *range(1, result.rank - 1)])
    # A row for each group: [N, *counts, groups, 1, elements] times [groups, elements, filters].
    place = image.rank - 1
    grouped = op.concat([_group(op, part, groups, each) for part in parts], place + 1)
    weights = op.reshape(kernel, (length, groups, filters // groups))
    made = op.matmul(op.unsqueeze(grouped, [place + 1]), op.transpose(weights, [1, 0, 2]))
    shape = (*parts[0].shape[:-1], filters)
    joined = op.emit(
        "Reshape", made, _sizes(op, parts[0], filters), dtype=made.dtype, shape=shape
    )  # fmt: skip
    return op.transpose(joined, [0, joined.rank - 1, *range(1, joined.rank - 1)])


def _group(op: Context, x: Value, groups: int, each: int) -> Value:
    shape = (*x.shape[:-1], groups, each)
    return op.emit("Reshape", x, _sizes(op, x, groups, each), dtype=x.dtype, shape=shape)


def _sizes(op: Context, x: Value, *last: int) -> Value:
    """Return the shape of a value with the last size replaced."""
    parts = [op.size(x, axis) for axis in range(x.rank - 1)]
    return op.concat([*parts, op.constant(list(last), "int64")], 0)


@tf_op("Conv2D")
def conv2d(
    op: Context, input: Value, filter: Value, /, *,
    strides: Sequence[int], padding: str, use_cudnn_on_gpu: bool = True,
    explicit_paddings: Sequence[int] = (), data_format: str = "NHWC",
    dilations: Sequence[int] = (1, 1, 1, 1),
) -> Value:  # fmt: skip
    """Cross-correlation of images; the number of groups follows from the channels."""
    del use_cudnn_on_gpu
    windows = windows_of(filter, strides, padding, explicit_paddings, data_format, dilations)
    return convolve_windows(op, input, filter, windows, data_format)


@tf_op("Conv3D")
def conv3d(
    op: Context, input: Value, filter: Value, /, *,
    strides: Sequence[int], padding: str, data_format: str = "NDHWC",
    dilations: Sequence[int] = (1, 1, 1, 1, 1),
) -> Value:  # fmt: skip
    """Cross-correlation of volumes."""
    windows = windows_of(filter, strides, padding, (), data_format, dilations)
    return convolve_windows(op, input, filter, windows, data_format)


@tf_op("Conv")
def conv(
    op: Context, input: Value, filter: Value, /, *,
    strides: Sequence[int], padding: str, explicit_paddings: Sequence[int] = (),
    data_format: str = "CHANNELS_LAST", dilations: Sequence[int] = (), batch_dims: int = 1,
    groups: int = 1,
) -> Value:  # fmt: skip
    """Cross-correlation of images or volumes with any number of batch axes."""
    windows = windows_of(filter, strides, padding, explicit_paddings, data_format, dilations)
    if batch_dims == 0:
        made = convolve_windows(
            op, op.unsqueeze(input, [0]), filter, windows, data_format, groups=groups
        )
        return op.squeeze(made, [0])
    if batch_dims == 1:
        return convolve_windows(op, input, filter, windows, data_format, groups=groups)
    rest = input.shape[batch_dims:]
    before = op.slice(op.shape_vector(input, "int64"), [0], [0], [batch_dims])
    flat = op.concat([op.constant([-1], "int64"), *_tail(op, input, batch_dims)], 0)
    images = op.shaped(input, flat, [None, *rest])
    made = convolve_windows(op, images, filter, windows, data_format, groups=groups)
    shape = op.concat([before, *_tail(op, made, 1)], 0)
    result = (*input.shape[:batch_dims], *made.shape[1:])
    return op.emit("Reshape", made, shape, dtype=made.dtype, shape=result)


def _tail(op: Context, x: Value, start: int) -> list[Value]:
    return [op.size(x, axis) for axis in range(start, x.rank)]


@tf_op("DepthwiseConv2dNative")
def depthwise_conv2d(
    op: Context, input: Value, filter: Value, /, *,
    strides: Sequence[int], padding: str, explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC", dilations: Sequence[int] = (1, 1, 1, 1),
) -> Value:  # fmt: skip
    """Depthwise convolution: one or more kernels for each channel."""
    windows = windows_of(filter, strides, padding, explicit_paddings, data_format, dilations)
    kernel, channels = group_kernel(op, filter)
    return convolve_windows(op, input, kernel, windows, data_format, groups=channels)


def group_kernel(op: Context, kernel: Value) -> tuple[Value, int]:
    """Return a kernel [*spatial, in, multiplier] as a grouped one, and the number of groups."""
    *spatial, channels, multiplier = kernel.shape
    if not isinstance(channels, int) or not isinstance(multiplier, int):
        raise Unsupported("a kernel of unknown shape")
    return op.reshape(kernel, (*spatial, 1, channels * multiplier)), channels


# -- transposed ------------------------------------------------------------------------------------


@tf_op("Conv2DBackpropInput")
def conv2d_backprop_input(
    op: Context, input_sizes: Value, filter: Value, out_backprop: Value, /, *,
    strides: Sequence[int], padding: str, use_cudnn_on_gpu: bool = True,
    explicit_paddings: Sequence[int] = (), data_format: str = "NHWC",
    dilations: Sequence[int] = (1, 1, 1, 1),
) -> Value:  # fmt: skip
    """Gradient of a convolution with respect to its input: the transposed convolution."""
    del use_cudnn_on_gpu
    windows = windows_of(filter, strides, padding, explicit_paddings, data_format, dilations)
    return convolve_transposed(op, input_sizes, filter, out_backprop, windows, data_format)


@tf_op("Conv3DBackpropInput", "Conv3DBackpropInputV2")
def conv3d_backprop_input(
    op: Context, input_sizes: Value, filter: Value, out_backprop: Value, /, *,
    strides: Sequence[int], padding: str, data_format: str = "NDHWC",
    dilations: Sequence[int] = (1, 1, 1, 1, 1), node: Node,
) -> Value:  # fmt: skip
    """Gradient of a 3D convolution with respect to its input: the transposed convolution."""
    windows = windows_of(filter, strides, padding, (), data_format, dilations)
    if node.op == "Conv3DBackpropInput":  # its first operand is the input itself
        input_sizes = op.shape_vector(input_sizes)
    return convolve_transposed(op, input_sizes, filter, out_backprop, windows, data_format)


@tf_op("DepthwiseConv2dNativeBackpropInput")
def depthwise_backprop_input(
    op: Context, input_sizes: Value, filter: Value, out_backprop: Value, /, *,
    strides: Sequence[int], padding: str, explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC", dilations: Sequence[int] = (1, 1, 1, 1),
) -> Value:  # fmt: skip
    """Gradient of a depthwise convolution with respect to its input."""
    windows = windows_of(filter, strides, padding, explicit_paddings, data_format, dilations)
    kernel, channels = group_kernel(op, filter)
    return convolve_transposed(
        op, input_sizes, kernel, out_backprop, windows, data_format, groups=channels
    )


def convolve_transposed(
    op: Context, input_sizes: Value, kernel: Value, x: Value, windows: Windows, data_format: str,
    *, groups: int | None = None,
) -> Value:  # fmt: skip
    """Return the gradient of a convolution with a kernel of [*spatial, in / groups, out].

    Args:
        op: Builder.
        input_sizes: Shape of the result: all axes, or the spatial ones alone.
        kernel: Kernel of the convolution.
        x: Gradient of its output.
        windows: Windows of the convolution.
        data_format: Layout of the gradient and of the result.
        groups: Number of groups, if it does not follow from the channels of the kernel.
    """
    if "float" not in x.dtype:
        raise Unsupported(f"a transposed convolution of {x.dtype}")
    rank = kernel.rank - 2
    image = as_first(op, x, data_format)
    wanted, start = op.dims(input_sizes), 0
    if len(wanted) == rank + 2:
        start = 2 if is_first(data_format) else 1
        channels = wanted[1 if is_first(data_format) else -1]
    else:
        channels = kernel.shape[-2]
    spatial = wanted[start : start + rank]
    each = kernel.shape[-2]
    if groups is None:
        known = isinstance(channels, int) and isinstance(each, int)
        groups = int(channels or 0) // int(each or 1) if known else 1
    if isinstance(each, int):
        channels = each * groups
    weight = op.transpose(kernel, [rank + 1, rank, *range(rank)])
    lengths = [k for k in windows.sizes if k is not None]
    if len(lengths) < rank:
        raise Unsupported("a transposed convolution with a kernel of unknown size")
    cuts = [
        _cut(n, size, i, windows) for i, (n, size) in enumerate(
            zip(image.shape[2:], spatial, strict=True)
        )
    ]  # fmt: skip
    known_cuts = [cut for cut in cuts if cut is not None]
    if len(known_cuts) < rank:
        known_cuts = [(0, 0, step - 1) for step in windows.steps]
    before, after, more = (list(numbers) for numbers in zip(*known_cuts, strict=True))
    shape = (image.shape[0], channels, *(spatial if None not in cuts else [None] * rank))
    made = emit_conv_transpose(
        op, image, weight, None, shape, strides=windows.steps, dilations=windows.spreads,
        before=before, after=after, output_padding=more, groups=groups,
    )  # fmt: skip
    if None in cuts:
        made = _cut_computed(op, image, made, input_sizes, start, windows)
        made = replace(made, shape=(image.shape[0], channels, *spatial))
    return as_was(op, made, data_format)


def _cut(n: Dim, size: Dim, axis: int, windows: Windows) -> tuple[int, int, int] | None:
    """Return what is cropped before and after the full result, and the output padding.

    The full result has (n - 1) * step + reach elements. Return None if it is not static.
    """
    step, reach = windows.steps[axis], windows.reaches[axis] or 1
    if isinstance(size, int):
        n = windows.counts([size if i == axis else 1 for i in range(len(windows.steps))])[axis]
    rest = dims.sub(size, dims.mul(dims.sub(n, 1), step))  # elements of the last window
    if not isinstance(rest, int):
        return None
    surplus = reach - rest
    if windows.padding == "EXPLICIT":
        before = windows.before[axis]
    else:
        before = max(surplus, 0) // 2 if windows.padding == "SAME" else 0
    after = surplus - before
    return before, max(after, 0), max(-after, 0)


def _cut_computed(
    op: Context, image: Value, whole: Value, input_sizes: Value, start: int, windows: Windows
) -> Value:
    """Slice a full result to sizes that are computed at run time."""
    rank = image.rank - 2
    vector = op.cast(input_sizes, "int64")
    wanted = op.slice(vector, [0], [start], [start + rank])
    if windows.padding == "SAME":
        counts = op.concat([op.size(image, axis) for axis in range(2, 2 + rank)], 0)
        one = op.constant([1] * rank, "int64")
        covered = op.mul(op.sub(counts, one), op.constant(list(windows.steps), "int64"))
        reaches = op.constant([reach or 1 for reach in windows.reaches], "int64")
        surplus = op.sub(op.add(covered, reaches), wanted)
        least = op.elementwise("Max", surplus, op.constant([0] * rank, "int64"))
        before = op.div(least, op.constant([2] * rank, "int64"))
    else:
        before = op.constant(list(windows.before) or [0] * rank, "int64")
    ends = op.add(before, wanted)
    axes = op.constant(list(range(2, 2 + rank)), "int64")
    return op.emit("Slice", whole, before, ends, axes, dtype=whole.dtype, shape=whole.shape)


# -- bias and dilation -----------------------------------------------------------------------------


@tf_op("BiasAdd")
def bias_add(op: Context, value: Value, bias: Value, /, *, data_format: str = "NHWC") -> Value:
    """Bias added to each channel."""
    if is_first(data_format) and value.rank > 2:
        bias = op.reshape(bias, (bias.shape[0], *[1] * (value.rank - 2)))
    return op.add(value, bias)


@tf_op("BiasAddV1")
def bias_add_v1(op: Context, value: Value, bias: Value, /) -> Value:
    """Bias added along the last axis."""
    return op.add(value, bias)


@tf_op("Dilation2D")
def dilation2d(
    op: Context, input: Value, filter: Value, /, *,
    strides: Sequence[int], rates: Sequence[int], padding: str,
) -> Value:  # fmt: skip
    """Grayscale dilation: the maximum over each window of the image plus the filter."""
    if not input.is_float:
        raise Unsupported(f"of {input.dtype}")
    lengths = tuple(n if isinstance(n, int) else None for n in filter.shape[:2])
    steps, spreads = spatial_of(strides, "NHWC", "strides"), spatial_of(rates, "NHWC", "rates")
    windows = Windows(lengths, steps, spreads, padding)
    image, bare = pad_windows(op, as_first(op, input, "NHWC"), windows, -float("inf"))
    weights = op.transpose(filter, [2, 0, 1])  # [C, kH, kW]
    sums = []
    for (row, column), cut in taps(op, image, bare):
        one = op.slice(weights, [1, 2], [row, column], [row + 1, column + 1])
        sums.append(op.add(cut, one))
    made = op.elementwise("Max", *sums) if len(sums) > 1 else sums[0]
    return as_was(op, made, "NHWC")
