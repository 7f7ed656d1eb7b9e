"""Convolution, forwards and transposed, of images that stay channels-first inside.

Kernels are [*spatial, in / groups, out]; ONNX wants [out, in / groups, *spatial]. What onnxruntime
convolves in float32 alone (float64, int32) is a product of matrices: windows by kernels.
Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from converter.lower import dims
from converter.lower.graph import Dim
from converter.lower.ops.conv import convolve
from converter.lower.ops.pad import padded
from converter.lower.tf.activations import apply_fused
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node
from converter.lower.tf.images import resize_bilinear
from converter.lower.tf.normalization import by_statistics
from converter.lower.tf.session import Session
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.tf.windows import (
    Windows,
    as_first,
    as_was,
    explicit_of,
    is_first,
    order,
    spatial_of,
    surrounded,
    taps,
)
from converter.lower.values import Value, total

PRODUCTS = ("int32", "int64")


def windows_of(
    kernel: Value, strides: Sequence[int], padding: str, explicit: Sequence[int],
    data_format: str, dilations: Sequence[int],
) -> Windows:  # fmt: skip
    """Return the windows that a kernel of [*spatial, in, out] moves in."""
    rank = kernel.rank - 2
    lengths = tuple(n if isinstance(n, int) else None for n in kernel.shape[:rank])
    before, after = explicit_of(explicit, padding, data_format)
    return Windows(
        lengths, spatial_of(strides, data_format, "strides"),
        spatial_of(dilations or [1] * (rank + 2), data_format, "dilations"), padding, before, after,
    )  # fmt: skip


def convolved(
    op: Context, x: Value, kernel: Value, windows: Windows, data_format: str,
    *, groups: int | None = None, bias: Value | None = None,
) -> Value:  # fmt: skip
    """Return the cross-correlation of an image with a kernel of [*spatial, in / groups, out]."""
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
        padded_image, bare = surrounded(op, image, windows)
        result = _by_products(op, padded_image, kernel, bare, groups)
        if bias is not None:
            result = op.add(result, op.reshape(bias, (bias.shape[0], *[1] * len(count))))
    else:
        pads: Any = windows.pads(image.shape[2:])
        if pads is None and windows.are_named:
            pads = "same"
        elif pads is None:
            image, _ = surrounded(op, image, windows)
            pads = ([0] * len(count), [0] * len(count))
        result = convolve(
            op, image, kernel, bias, strides=windows.steps, padding=pads,
            data_format="channels_first", dilations=windows.spreads, groups=groups,
        )  # fmt: skip
    return as_was(op, replace(result, shape=shape), data_format)


def _by_products(op: Context, image: Value, kernel: Value, windows: Windows, groups: int) -> Value:
    """Convolve a padded image: all elements of a window beside each other, times the kernel."""
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
    grouped = op.concat([_grouped(op, part, groups, each) for part in parts], place + 1)
    weights = op.reshape(kernel, (length, groups, filters // groups))
    made = op.matmul(op.unsqueeze(grouped, [place + 1]), op.transpose(weights, [1, 0, 2]))
    shape = (*parts[0].shape[:-1], filters)
    joined = op.emit(
        "Reshape", made, _sizes(op, parts[0], filters), dtype=made.dtype, shape=shape
    )  # fmt: skip
    return op.transpose(joined, [0, joined.rank - 1, *range(1, joined.rank - 1)])


def _grouped(op: Context, x: Value, groups: int, each: int) -> Value:
    shape = (*x.shape[:-1], groups, each)
    return op.emit("Reshape", x, _sizes(op, x, groups, each), dtype=x.dtype, shape=shape)


def _sizes(op: Context, x: Value, *last: int) -> Value:
    """Return the sizes of a value, with others instead of the last."""
    parts = [op.size(x, axis) for axis in range(x.rank - 1)]
    return op.concat([*parts, op.constant(list(last), "int64")], 0)


@tf_op("Conv2D")
def conv2d(
    op: Context, input: Value, filter: Value, /, *,
    strides: Sequence[int], padding: str, use_cudnn_on_gpu: bool = True,
    explicit_paddings: Sequence[int] = (), data_format: str = "NHWC",
    dilations: Sequence[int] = (1, 1, 1, 1),
) -> Value:  # fmt: skip
    """Cross-correlation of images; groups are as many as fit the kernel's channels."""
    del use_cudnn_on_gpu
    windows = windows_of(filter, strides, padding, explicit_paddings, data_format, dilations)
    return convolved(op, input, filter, windows, data_format)


@tf_op("Conv3D")
def conv3d(
    op: Context, input: Value, filter: Value, /, *,
    strides: Sequence[int], padding: str, data_format: str = "NDHWC",
    dilations: Sequence[int] = (1, 1, 1, 1, 1),
) -> Value:  # fmt: skip
    """Cross-correlation of volumes."""
    windows = windows_of(filter, strides, padding, (), data_format, dilations)
    return convolved(op, input, filter, windows, data_format)


@tf_op("Conv")
def conv(
    op: Context, input: Value, filter: Value, /, *,
    strides: Sequence[int], padding: str, explicit_paddings: Sequence[int] = (),
    data_format: str = "CHANNELS_LAST", dilations: Sequence[int] = (), batch_dims: int = 1,
    groups: int = 1,
) -> Value:  # fmt: skip
    """Cross-correlation of images or volumes with any number of axes of batches."""
    windows = windows_of(filter, strides, padding, explicit_paddings, data_format, dilations)
    if batch_dims == 0:
        made = convolved(op, op.unsqueeze(input, [0]), filter, windows, data_format, groups=groups)
        return op.squeeze(made, [0])
    if batch_dims == 1:
        return convolved(op, input, filter, windows, data_format, groups=groups)
    rest = input.shape[batch_dims:]
    before = op.slice(op.shape_vector(input, "int64"), [0], [0], [batch_dims])
    flat = op.concat([op.constant([-1], "int64"), *_tail(op, input, batch_dims)], 0)
    images = op.shaped(input, flat, [None, *rest])
    made = convolved(op, images, filter, windows, data_format, groups=groups)
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
    """One kernel, or several, for each channel."""
    windows = windows_of(filter, strides, padding, explicit_paddings, data_format, dilations)
    kernel, channels = grouped_kernel(op, filter)
    return convolved(op, input, kernel, windows, data_format, groups=channels)


def grouped_kernel(op: Context, kernel: Value) -> tuple[Value, int]:
    """Return a kernel of [*spatial, in, multiplier] as one of as many groups, and their number."""
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
    """The gradient of a convolution, which is the transposed one."""
    del use_cudnn_on_gpu
    windows = windows_of(filter, strides, padding, explicit_paddings, data_format, dilations)
    return transposed(op, input_sizes, filter, out_backprop, windows, data_format)


@tf_op("Conv3DBackpropInput", "Conv3DBackpropInputV2")
def conv3d_backprop_input(
    op: Context, input_sizes: Value, filter: Value, out_backprop: Value, /, *,
    strides: Sequence[int], padding: str, data_format: str = "NDHWC",
    dilations: Sequence[int] = (1, 1, 1, 1, 1), node: Node,
) -> Value:  # fmt: skip
    """The gradient of a convolution of volumes, which is the transposed one."""
    windows = windows_of(filter, strides, padding, (), data_format, dilations)
    if node.op == "Conv3DBackpropInput":  # it is given the input itself
        input_sizes = op.shape_vector(input_sizes)
    return transposed(op, input_sizes, filter, out_backprop, windows, data_format)


@tf_op("DepthwiseConv2dNativeBackpropInput")
def depthwise_backprop_input(
    op: Context, input_sizes: Value, filter: Value, out_backprop: Value, /, *,
    strides: Sequence[int], padding: str, explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC", dilations: Sequence[int] = (1, 1, 1, 1),
) -> Value:  # fmt: skip
    """The gradient of a depthwise convolution."""
    windows = windows_of(filter, strides, padding, explicit_paddings, data_format, dilations)
    kernel, channels = grouped_kernel(op, filter)
    return transposed(op, input_sizes, kernel, out_backprop, windows, data_format, groups=channels)


def transposed(
    op: Context, input_sizes: Value, kernel: Value, x: Value, windows: Windows, data_format: str,
    *, groups: int | None = None,
) -> Value:  # fmt: skip
    """Return the gradient of a convolution with a kernel of [*spatial, in / groups, out].

    Args:
        op: Builder.
        input_sizes: Of the result: all axes, or the spatial ones alone.
        kernel: The convolution's.
        x: The gradient of what it yields.
        windows: The convolution's.
        data_format: Of images, before and after.
        groups: Where it is not said by the kernel's channels.
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
    made = op.emit(
        "ConvTranspose", image, weight, dtype=x.dtype, shape=shape, kernel_shape=lengths,
        strides=list(windows.steps), dilations=list(windows.spreads), pads=[*before, *after],
        output_padding=more, group=groups,
    )  # fmt: skip
    if None in cuts:
        made = _cut_computed(op, image, made, input_sizes, start, windows)
        made = replace(made, shape=(image.shape[0], channels, *spatial))
    return as_was(op, made, data_format)


def _cut(n: Dim, size: Dim, axis: int, windows: Windows) -> tuple[int, int, int] | None:
    """Return what is cut before and behind the whole result, and what is added behind it.

    The whole has (n - 1) * step + reach elements. None where that takes a run.
    """
    step, reach = windows.steps[axis], windows.reaches[axis] or 1
    if isinstance(size, int):
        n = windows.counts([size if i == axis else 1 for i in range(len(windows.steps))])[axis]
    rest = dims.sub(size, dims.mul(dims.sub(n, 1), step))  # what the last window has
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
    """Return the part of a whole result that is of sizes which a run says."""
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


# -- beside convolutions ---------------------------------------------------------------------------


@tf_op("BiasAdd")
def bias_add(op: Context, value: Value, bias: Value, /, *, data_format: str = "NHWC") -> Value:
    """A number added to each channel."""
    if is_first(data_format) and value.rank > 2:
        bias = op.reshape(bias, (bias.shape[0], *[1] * (value.rank - 2)))
    return op.add(value, bias)


@tf_op("BiasAddV1")
def bias_add_v1(op: Context, value: Value, bias: Value, /) -> Value:
    """A number added to each column of the last axis."""
    return op.add(value, bias)


@tf_op("Dilation2D")
def dilation2d(
    op: Context, input: Value, filter: Value, /, *,
    strides: Sequence[int], rates: Sequence[int], padding: str,
) -> Value:  # fmt: skip
    """The largest of each window, a number added to each of its elements: grey-scale dilation."""
    if not input.is_float:
        raise Unsupported(f"of {input.dtype}")
    lengths = tuple(n if isinstance(n, int) else None for n in filter.shape[:2])
    steps, spreads = spatial_of(strides, "NHWC", "strides"), spatial_of(rates, "NHWC", "rates")
    windows = Windows(lengths, steps, spreads, padding)
    image, bare = surrounded(op, as_first(op, input, "NHWC"), windows, -float("inf"))
    weights = op.transpose(filter, [2, 0, 1])  # [C, kH, kW]
    sums = []
    for (row, column), cut in taps(op, image, bare):
        one = op.slice(weights, [1, 2], [row, column], [row + 1, column + 1])
        sums.append(op.add(cut, one))
    made = op.elementwise("Max", *sums) if len(sums) > 1 else sums[0]
    return as_was(op, made, "NHWC")


# -- fused -----------------------------------------------------------------------------------------


def finished(
    op: Context, x: Value, arguments: Sequence[Value], fused_ops: Sequence[str], data_format: str,
    epsilon: float, leakyrelu_alpha: float,
) -> Value:  # fmt: skip
    """Return what was fused behind an operation, one after the other."""
    left = list(arguments)
    for name in fused_ops:
        if name == "BiasAdd":
            x = bias_add(op, x, left.pop(0), data_format=data_format)
        elif name == "FusedBatchNorm":
            scale, offset, mean, variance = left[:4]
            del left[:4]
            x = by_statistics(op, x, scale, offset, mean, variance, epsilon, data_format)
        elif name == "Add":
            x = op.add(x, left.pop(0))
        else:
            x = apply_fused(op, name, x, leakyrelu_alpha)
    return x


@tf_op("_FusedConv2D")
def fused_conv2d(
    op: Context, input: Value, filter: Value, /, *args: Value,
    num_args: int, strides: Sequence[int], padding: str, explicit_paddings: Sequence[int] = (),
    data_format: str = "NHWC", filter_format: str = "HWIO",
    dilations: Sequence[int] = (1, 1, 1, 1), use_cudnn_on_gpu: bool = True,
    fused_ops: Sequence[str] = (), epsilon: float = 1e-4, leakyrelu_alpha: float = 0.2,
    num_host_args: int = 0,
) -> Value:  # fmt: skip
    """A convolution, and what a grappler fused behind it."""
    del use_cudnn_on_gpu, num_args
    if filter_format != "HWIO" or num_host_args:
        raise Unsupported(f"filter_format {filter_format}")
    windows = windows_of(filter, strides, padding, explicit_paddings, data_format, dilations)
    made = convolved(op, input, filter, windows, data_format)
    return finished(op, made, args, fused_ops, data_format, epsilon, leakyrelu_alpha)


@tf_op("_FusedDepthwiseConv2dNative")
def fused_depthwise_conv2d(
    op: Context, input: Value, filter: Value, /, *args: Value,
    num_args: int, strides: Sequence[int], padding: str, data_format: str = "NHWC",
    dilations: Sequence[int] = (1, 1, 1, 1), fused_ops: Sequence[str] = (),
    epsilon: float = 1e-4, leakyrelu_alpha: float = 0.2,
) -> Value:  # fmt: skip
    """A depthwise convolution, and what a grappler fused behind it."""
    del num_args
    windows = windows_of(filter, strides, padding, (), data_format, dilations)
    kernel, channels = grouped_kernel(op, filter)
    made = convolved(op, input, kernel, windows, data_format, groups=channels)
    return finished(op, made, args, fused_ops, data_format, epsilon, leakyrelu_alpha)


@tf_op("FusedPadConv2D")
def fused_pad_conv2d(
    op: Context, input: Value, paddings: Value, filter: Value, /, *,
    mode: str, strides: Sequence[int], padding: str,
) -> Value:  # fmt: skip
    """A convolution of images that are mirrored at their edges, one image at a time."""
    if isinstance(input.shape[0], int) and input.shape[0] > 1:
        # https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/kernels/conv_ops_fused_image_transform.cc
        raise Unsupported("several images, of which TensorFlow's kernel gets only the first right")
    pairs = op.ints(paddings, "paddings")
    widths = list(zip(pairs[::2], pairs[1::2], strict=True))
    image = padded(op, input, widths, mode)
    windows = windows_of(filter, strides, padding, (), "NHWC", ())
    return convolved(op, image, filter, windows, "NHWC")


@tf_op("FusedResizeAndPadConv2D")
def fused_resize_and_pad_conv2d(
    op: Context, input: Value, size: Value, paddings: Value, filter: Value, /, *,
    resize_align_corners: bool = False, mode: str, strides: Sequence[int], padding: str,
) -> Value:  # fmt: skip
    """A convolution of images in another size, mirrored at their edges."""
    image = resize_bilinear(op, input, size, align_corners=resize_align_corners)
    return fused_pad_conv2d(
        op, op.cast(image, input.dtype), paddings, filter, mode=mode, strides=strides,
        padding=padding,
    )  # fmt: skip


# -- TensorFlow 1's dilation: blocks of space moved into batches and back --------------------------


def dilated(op: Session, node: Node, block_shape: Value, crops: Value) -> Value | None:
    """Return what a BatchToSpaceND yields behind a convolution of what a SpaceToBatchND does.

    That is one convolution with dilation, of fewer zeros around the image. None where it is not.

    Args:
        op: Builder.
        node: The BatchToSpaceND.
        block_shape: Its sizes of blocks.
        crops: What it cuts at both ends of each axis.
    """
    activation = op.walker.current
    if activation is None:
        return None
    body = activation.body.nodes
    inner = body.get(node.inputs[0].node)
    lines = inner is not None and inner.op == "Squeeze"  # of images of one row
    if inner is not None and lines:
        inner = body.get(inner.inputs[0].node)
    if inner is None or inner.op not in ("Conv2D", "DepthwiseConv2dNative") or not _is_bare(inner):
        return None
    outer = body.get(inner.inputs[0].node)
    if outer is not None and lines:
        outer = body.get(outer.inputs[0].node) if outer.op == "ExpandDims" else None
    if outer is None or outer.op != "SpaceToBatchND":
        return None
    image, blocks, paddings, kernel = (
        op.walker.value(activation, port) for port in (*outer.inputs, inner.inputs[1])
    )
    values = [v for v in (image, blocks, paddings, kernel) if isinstance(v, Value)]
    if len(values) < 4:
        return None
    found = _spread(op, values, block_shape, crops)
    if found is None:
        return None
    windows, image, kernel = found
    groups = None
    if inner.op == "DepthwiseConv2dNative":
        kernel, groups = grouped_kernel(op, kernel)
    if not lines:
        return convolved(op, image, kernel, windows, "NHWC", groups=groups)
    wide = op.unsqueeze(image, [1])
    return op.squeeze(convolved(op, wide, kernel, windows, "NHWC", groups=groups), [1])


def _is_bare(node: Node) -> bool:
    """Return whether a convolution has no padding, no steps and no dilation of its own."""
    ones = [*node.attribute("strides"), *(node.attribute("dilations") or ())]
    plain = node.attribute("data_format", "NHWC") == "NHWC"
    return plain and node.attribute("padding") == "VALID" and all(n == 1 for n in ones)


def _spread(
    op: Context, values: Sequence[Value], block_shape: Value, crops: Value
) -> tuple[Windows, Value, Value] | None:
    """Return the windows of a convolution with dilation, its image and its kernel, if it is one."""
    image, blocks, paddings, kernel = values
    before, after = op.static(blocks), op.static(block_shape)
    added, cut = op.elements(paddings), op.elements(crops)
    if before is None or after is None or added is None or cut is None:
        return None
    lengths = [n for n in kernel.shape[:2] if isinstance(n, int)]
    rank = before.size
    if before.tolist() != after.tolist() or len(lengths) < 2 or image.rank != rank + 2:
        return None
    if rank == 1 and lengths[0] != 1:
        return None
    left = [dims.sub(_dim(p), _dim(c)) for p, c in zip(added.flat, cut.flat, strict=True)]
    pads = [n for n in left if isinstance(n, int) and n >= 0]
    if len(pads) < 2 * rank:
        return None
    spreads = [int(n) for n in before.flat]
    if rank == 1:
        spreads, pads = [1, *spreads], [0, 0, *pads]
    windows = Windows(
        (lengths[0], lengths[1]), (1, 1), (spreads[0], spreads[1]), "EXPLICIT",
        (pads[0], pads[2]), (pads[1], pads[3]),
    )  # fmt: skip
    return windows, image, kernel


def _dim(n: Any) -> Dim:
    return n if n is None or isinstance(n, str) else int(n)


__all__ = ["convolved", "dilated", "order", "transposed", "windows_of"]
