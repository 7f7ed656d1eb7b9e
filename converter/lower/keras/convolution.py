"""Convolutions of one to three dimensions; one function for each direction, for any rank.

Kernels are stored as [*spatial, in / groups, out]; ONNX wants [out, in / groups, *spatial].
A bias is its filter's, on whatever axis those are. Keras since 3.7 adds it along the last axis of
channels-first images on TensorFlow, not on its other backends, where that axis happens to have as
many columns as there are filters (https://github.com/keras-team/keras/pull/20386).
Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/convolutional
"""

from collections.abc import Sequence
from functools import wraps
from typing import Any

from converter.lower.builder import END, Builder
from converter.lower.graph import Dim
from converter.lower.keras.activations import activate
from converter.lower.keras.core import fitting
from converter.lower.keras.fold_time import fold_steps, unfold_steps
from converter.lower.keras.table import Roles, Unsupported, keras_layer
from converter.lower.ops.conv import (
    as_given,
    channels_first,
    convolve,
    emit_conv_transpose,
    numbers,
)
from converter.lower.table import Handler
from converter.lower.values import Value


def normalize_kernel(
    op: Builder, kernel: Value, rank: int, order: Sequence[int] | None, flipped: bool
) -> Value:
    """Return a kernel in today's order of axes, [*spatial, …, …], with spatial axes not flipped.

    Args:
        op: Builder.
        kernel: Kernel as it is stored.
        rank: Number of spatial axes.
        order: Which of its axes come first, second, …; None where they are today's.
        flipped: Whether its spatial axes run backwards, as Theano has them.
    """
    if rank == 1 and kernel.rank == 4:
        # Keras 1 convolved images of one column; before 1.1 in Theano's order.
        if kernel.shape[3] == 1 and kernel.shape[1] != 1:
            kernel = op.transpose(kernel, [2, 3, 1, 0])
        kernel = op.squeeze(kernel, [1])
    if order is not None:
        kernel = op.transpose(kernel, order)
    if flipped:
        axes = list(range(rank))
        kernel = op.slice(kernel, axes, [-1] * rank, [-END] * rank, [-1] * rank)
    return kernel


def over_batch_axes(handler: Handler) -> Handler:
    """Let a convolution take several batch axes, as Keras 2 does."""

    @wraps(handler)
    def over(op: Builder, w: Roles, x: Value, /, **settings: Any) -> Value:
        if x.rank > w["kernel"].rank:
            return unfold_steps(op, over(op, w, fold_steps(op, x), **settings), x)
        made: Value = handler(op, w, x, **settings)
        return made

    return over


@keras_layer("Conv1D", "Conv2D", "Conv3D")
@over_batch_axes
def conv(
    op: Builder, w: Roles, x: Value, /, *,
    filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid",
    data_format: str | None = "channels_last", dilation_rate: Any = 1, groups: int = 1,
    activation: Any = None, use_bias: bool = True,
    kernel_order: Sequence[int] | None = None, flipped: bool = False,
) -> Value:  # fmt: skip
    """Convolution with groups, strides, dilations; valid, same or causal padding."""
    kernel = normalize_kernel(op, w["kernel"], x.rank - 2, kernel_order, flipped)
    kernel = fitting(kernel, *numbers(kernel_size, x.rank - 2), None, filters)
    result = convolve(
        op, x, kernel, w["bias"] if use_bias else None, strides=strides, padding=padding,
        data_format=data_format, dilations=dilation_rate, groups=groups,
    )  # fmt: skip
    return activate(op, result, activation)


@keras_layer("DepthwiseConv1D", "DepthwiseConv2D")
def depthwise_conv(
    op: Builder, w: Roles, x: Value, /, *,
    kernel_size: Any, strides: Any = 1, padding: str = "valid", depth_multiplier: int = 1,
    data_format: str | None = "channels_last", dilation_rate: Any = 1,
    activation: Any = None, use_bias: bool = True,
    filters: Any = None, groups: Any = None, rank: Any = None,
) -> Value:  # fmt: skip
    """Depthwise convolution."""
    del kernel_size, depth_multiplier, filters, groups, rank
    role = "depthwise_kernel" if "depthwise_kernel" in w else "kernel"
    result = depthwise(
        op, x, w[role], w["bias"] if use_bias else None, strides, padding, data_format,
        dilation_rate,
    )  # fmt: skip
    return activate(op, result, activation)


def depthwise(
    op: Builder, x: Value, kernel: Value, bias: Value | None, strides: Any, padding: str,
    data_format: str | None, dilations: Any,
) -> Value:  # fmt: skip
    """Convolve each channel alone, with a kernel of [*spatial, in, multiplier]."""
    *spatial, channels, multiplier = kernel.shape
    if not isinstance(channels, int) or not isinstance(multiplier, int):
        raise Unsupported("a kernel of unknown shape")
    # Output channel c * multiplier + m is channel c with kernel m: as ONNX's groups have it.
    grouped = op.reshape(kernel, (*spatial, 1, channels * multiplier))
    return convolve(
        op, x, grouped, bias, strides=strides, padding=padding, data_format=data_format,
        dilations=dilations, groups=channels,
    )  # fmt: skip


@keras_layer("SeparableConv1D", "SeparableConv2D")
def separable_conv(
    op: Builder, w: Roles, x: Value, /, *,
    filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid",
    depth_multiplier: int = 1, data_format: str | None = "channels_last", dilation_rate: Any = 1,
    activation: Any = None, use_bias: bool = True, groups: Any = None, rank: Any = None,
    kernel_order: Sequence[int] | None = None,
) -> Value:  # fmt: skip
    """Separable convolution: depthwise, then pointwise."""
    del filters, kernel_size, depth_multiplier, groups, rank
    spread, point = (
        normalize_kernel(op, w[role], x.rank - 2, kernel_order, flipped=False)
        for role in ("depthwise_kernel", "pointwise_kernel")
    )
    inner = depthwise(op, x, spread, None, strides, padding, data_format, dilation_rate)
    result = convolve(
        op, inner, point, w["bias"] if use_bias else None, strides=1, padding="valid",
        data_format=data_format, dilations=1,
    )  # fmt: skip
    return activate(op, result, activation)


@keras_layer("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")
def conv_transpose(
    op: Builder, w: Roles, x: Value, /, *,
    filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid",
    output_padding: Any = None, data_format: str | None = "channels_last", dilation_rate: Any = 1,
    activation: Any = None, use_bias: bool = True, groups: int = 1, output_shape: Any = None,
    kernel_order: Sequence[int] | None = None, flipped: bool = False,
) -> Value:  # fmt: skip
    """Transposed convolution; kernels are [*spatial, out, in]."""
    if groups != 1:
        raise Unsupported("groups in a transposed convolution")
    kernel = normalize_kernel(op, w["kernel"], x.rank - 2, kernel_order, flipped)
    result = convolve_transposed(
        op, x, fitting(kernel, *numbers(kernel_size, x.rank - 2), filters, None),
        w["bias"] if use_bias else None, strides=strides, padding=padding,
        output_padding=output_padding, data_format=data_format, dilations=dilation_rate,
        output_shape=output_shape,
    )  # fmt: skip
    return activate(op, result, activation)


def convolve_transposed(
    op: Builder, x: Value, kernel: Value, bias: Value | None, *,
    strides: Any, padding: str, output_padding: Any, data_format: str | None, dilations: Any,
    output_shape: Any = None,
) -> Value:  # fmt: skip
    """Return the gradient of a convolution with a kernel of [*spatial, out, in]."""
    rank = x.rank - 2
    sizes = [n if isinstance(n, int) else 0 for n in kernel.shape[:rank]]
    steps, spread = numbers(strides, rank), numbers(dilations, rank)
    extra = [None] * rank if output_padding is None else numbers(output_padding, rank)
    image = channels_first(op, x, data_format)
    weight = op.transpose(kernel, [rank + 1, rank, *range(rank)])  # [in, out, *spatial]
    # In Keras 1 the shape of the output was an argument.
    wanted = [None] * rank if output_shape is None else list(output_shape[-rank:])
    if output_shape is not None and data_format != "channels_first":
        wanted = list(output_shape[-rank - 1 : -1])
    pads_before, pads_after, more, out = [], [], [], []
    axes = zip(image.shape[2:], sizes, steps, spread, extra, wanted, strict=True)
    for n, k, s, d, e, size in axes:
        if size is None:
            before, after, grow, size = _plan_transposed_axis(n, k, s, d, padding, e)
        elif isinstance(n, int):
            before, after, grow = _cut((n - 1) * s + (k - 1) * d + 1 - size, padding)
        else:
            raise Unsupported("an output shape for an input of unknown size")
        pads_before.append(before)
        pads_after.append(after)
        more.append(grow)
        out.append(size)
    shape = (image.shape[0], kernel.shape[rank], *out)
    result = emit_conv_transpose(
        op, image, weight, bias, shape, strides=steps, dilations=spread, before=pads_before,
        after=pads_after, output_padding=more,
    )  # fmt: skip
    return as_given(op, result, data_format)


def _plan_transposed_axis(
    n: Dim, kernel: int, stride: int, dilation: int, padding: str, output_padding: int | None
) -> tuple[int, int, int, Dim]:
    """Return ONNX's padding before and after an axis, what it adds, and the output's size.

    Keras takes TensorFlow's gradient of a convolution over an output of the size it computes
    (compute_conv_transpose_output_shape in keras/src/backend/common/backend_utils.py).
    """
    reach = (kernel - 1) * dilation + 1

    def length(m: int) -> int:
        if output_padding is None:
            return m * stride + (0 if padding == "same" else max(reach - stride, 0))
        cut = reach // 2 * 2 if padding == "same" else 0
        return (m - 1) * stride + reach - cut + output_padding

    # The whole result has (n - 1) * stride + reach elements.
    size = length(n) if isinstance(n, int) else None
    return *_cut(reach - length(1), padding), size


def _cut(surplus: int, padding: str) -> tuple[int, int, int]:
    """Return how much is cut before and after an axis, as SAME pads, and added after it."""
    before = max(surplus, 0) // 2 if padding == "same" else 0
    after = surplus - before
    return before, max(after, 0), max(-after, 0)
