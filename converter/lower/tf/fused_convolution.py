"""Convolutions that TensorFlow's graph optimizers fused with preceding or following ops."""

from collections.abc import Sequence

from converter.lower.ops.pad import pad_ends
from converter.lower.tf.activations import apply_fused
from converter.lower.tf.context import Context
from converter.lower.tf.convolution import bias_add, convolve_windows, group_kernel, windows_of
from converter.lower.tf.images import resize_bilinear
from converter.lower.tf.normalization import by_statistics
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value


def apply_fused_ops(
    op: Context, x: Value, arguments: Sequence[Value], fused_ops: Sequence[str], data_format: str,
    epsilon: float, leakyrelu_alpha: float,
) -> Value:  # fmt: skip
    """Apply the ops fused after an operation, in order."""
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
    """Convolution with the ops that the graph optimizer (Grappler) fused after it."""
    del use_cudnn_on_gpu, num_args
    if filter_format != "HWIO" or num_host_args:
        raise Unsupported(f"filter_format {filter_format}")
    windows = windows_of(filter, strides, padding, explicit_paddings, data_format, dilations)
    made = convolve_windows(op, input, filter, windows, data_format)
    return apply_fused_ops(op, made, args, fused_ops, data_format, epsilon, leakyrelu_alpha)


@tf_op("_FusedDepthwiseConv2dNative")
def fused_depthwise_conv2d(
    op: Context, input: Value, filter: Value, /, *args: Value,
    num_args: int, strides: Sequence[int], padding: str, data_format: str = "NHWC",
    dilations: Sequence[int] = (1, 1, 1, 1), fused_ops: Sequence[str] = (),
    epsilon: float = 1e-4, leakyrelu_alpha: float = 0.2,
) -> Value:  # fmt: skip
    """Depthwise convolution with the ops that the graph optimizer (Grappler) fused after it."""
    del num_args
    windows = windows_of(filter, strides, padding, (), data_format, dilations)
    kernel, channels = group_kernel(op, filter)
    made = convolve_windows(op, input, kernel, windows, data_format, groups=channels)
    return apply_fused_ops(op, made, args, fused_ops, data_format, epsilon, leakyrelu_alpha)


@tf_op("FusedPadConv2D")
def fused_pad_conv2d(
    op: Context, input: Value, paddings: Value, filter: Value, /, *,
    mode: str, strides: Sequence[int], padding: str,
) -> Value:  # fmt: skip
    """Convolution of an image with mirror padding; one image at a time."""
    if isinstance(input.shape[0], int) and input.shape[0] > 1:
        # https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/kernels/conv_ops_fused_image_transform.cc
        raise Unsupported("several images, of which TensorFlow's kernel gets only the first right")
    pairs = op.ints(paddings, "paddings")
    widths = list(zip(pairs[::2], pairs[1::2], strict=True))
    image = pad_ends(op, input, widths, mode.lower())
    windows = windows_of(filter, strides, padding, (), "NHWC", ())
    return convolve_windows(op, image, filter, windows, "NHWC")


@tf_op("FusedResizeAndPadConv2D")
def fused_resize_and_pad_conv2d(
    op: Context, input: Value, size: Value, paddings: Value, filter: Value, /, *,
    resize_align_corners: bool = False, mode: str, strides: Sequence[int], padding: str,
) -> Value:  # fmt: skip
    """Convolution of an image that is resized and mirror-padded."""
    image = resize_bilinear(op, input, size, align_corners=resize_align_corners)
    return fused_pad_conv2d(
        op, op.cast(image, input.dtype), paddings, filter, mode=mode, strides=strides,
        padding=padding,
    )  # fmt: skip
