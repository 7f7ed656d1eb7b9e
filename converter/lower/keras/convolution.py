"""Convolutions of one to three dimensions; one worker each way, which takes the rank.

Kernels are stored as [*spatial, in / groups, out]; ONNX wants [out, in / groups, *spatial].
A bias is its filter's, on whatever axis those are. Keras since 3.7 adds it along the last axis of
channels-first images on TensorFlow, not on its other back ends, where that axis happens to have as
many columns as there are filters (https://github.com/keras-team/keras/pull/20386).
Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/convolutional
"""

from collections.abc import Sequence
from typing import Any

from converter.lower.builder import END, Builder
from converter.lower.graph import Attribute, Dim
from converter.lower.keras.activations import activate
from converter.lower.keras.core import fitting
from converter.lower.keras.table import Gap, Roles, keras_layer
from converter.lower.values import Value


def numbers(value: Any, rank: int) -> list[int]:
    """Return an argument that is one number or one for each spatial axis as the latter."""
    if isinstance(value, int):
        return [value] * rank
    result = [int(n) for n in value]
    return result * rank if len(result) == 1 and rank > 1 else result


def stored_kernel(
    op: Builder, kernel: Value, rank: int, order: Sequence[int] | None, flipped: bool
) -> Value:
    """Return a kernel in today's order of axes, [*spatial, …, …], not turned around.

    Args:
        op: Builder.
        kernel: As it is stored.
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


def channels_first(op: Builder, x: Value, data_format: str | None) -> Value:
    """Return an image with its channels before its spatial axes."""
    if data_format == "channels_first":
        return x
    return op.transpose(x, [0, x.rank - 1, *range(1, x.rank - 1)])


def as_given(op: Builder, x: Value, data_format: str | None) -> Value:
    """Undo `channels_first`."""
    if data_format == "channels_first":
        return x
    return op.transpose(x, [0, *range(2, x.rank), 1])


def same_padding(
    sizes: Sequence[Dim], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[int], list[int]] | None:
    """Return TensorFlow's SAME padding before and after each axis; None where a size is unknown.

    Spec: https://www.tensorflow.org/api_docs/python/tf/nn#notes_on_padding_2
    """
    before, after = [], []
    for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        reach = (k - 1) * d + 1
        if isinstance(n, int):
            whole = max((-(-n // s) - 1) * s + reach - n, 0)
        elif s == 1:
            whole = reach - 1
        else:
            return None
        before.append(whole // 2)
        after.append(whole - whole // 2)
    return before, after


def convolve(
    op: Builder, x: Value, kernel: Value, bias: Value | None, *,
    strides: Any, padding: "str | tuple[list[int], list[int]]", data_format: str | None,
    dilations: Any, groups: int = 1,
) -> Value:  # fmt: skip
    """Cross-correlate an image with a kernel of [*spatial, in / groups, out].

    Padding is Keras's word, or numbers before and behind each spatial axis. A kernel whose size is
    not known leaves that of the result unknown.
    """
    rank = x.rank - 2
    steps, spread = numbers(strides, rank), numbers(dilations, rank)
    image = channels_first(op, x, data_format)
    sizes = [n if isinstance(n, int) else 0 for n in kernel.shape[:rank]]
    weight = op.transpose(kernel, [rank + 1, rank, *range(rank)])
    attributes: dict[str, Attribute] = {"strides": steps, "dilations": spread, "group": groups}
    is_known = all(sizes)
    if is_known:
        attributes["kernel_shape"] = sizes
    elif padding in ("causal", "half") or (padding == "same" and any(d > 1 for d in spread)):
        raise Gap("a kernel whose size depends on the inputs, with this padding")
    spatial = image.shape[2:]
    if isinstance(padding, tuple):
        attributes["pads"] = [*padding[0], *padding[1]]
        around = [a + b for a, b in zip(*padding, strict=True)]
        out = [_windows(*axis) for axis in zip(spatial, sizes, steps, spread, around, strict=True)]
    elif padding == "causal":
        # Left of the first axis only; Keras has it for one dimension.
        left = [(k - 1) * d for k, d in zip(sizes, spread, strict=True)]
        attributes["pads"] = [*left, *[0] * rank]
        out = [_windows(*axis) for axis in zip(spatial, sizes, steps, spread, left, strict=True)]
    elif padding == "same":
        pads = same_padding(spatial, sizes, steps, spread) if is_known else None
        if pads is None:
            attributes["auto_pad"] = "SAME_UPPER"
        else:
            attributes["pads"] = [*pads[0], *pads[1]]
        out = [_strided(n, s) for n, s in zip(spatial, steps, strict=True)]
    elif padding == "valid":
        none = [0] * rank
        out = [_windows(*axis) for axis in zip(spatial, sizes, steps, spread, none, strict=True)]
    elif padding == "half":
        half = [((k - 1) * d + 1) // 2 for k, d in zip(sizes, spread, strict=True)]
        attributes["pads"] = [*half, *half]
        pads_of = [2 * n for n in half]
        out = [_windows(*axis) for axis in zip(spatial, sizes, steps, spread, pads_of, strict=True)]
    else:
        raise Gap(f"padding {padding!r}")
    shape = (image.shape[0], kernel.shape[-1], *out)
    result = op.emit("Conv", image, weight, bias, dtype=x.dtype, shape=shape, **attributes)
    if padding == "half":
        result = _first_windows(
            op, result, [_strided(n, s) for n, s in zip(spatial, steps, strict=True)]
        )
    return as_given(op, result, data_format)


def _first_windows(op: Builder, x: Value, counts: Sequence[Dim]) -> Value:
    """Return an image cut to so many windows: Theano's half padding may make one more."""
    for axis, (n, count) in enumerate(zip(x.shape[2:], counts, strict=True), 2):
        if n == count and n is not None:
            continue
        if not isinstance(count, int):
            raise Gap("padding 'half' of an image of unknown size")
        x = op.slice(x, [axis], [0], [count])
    return x


def _strided(n: Dim, stride: int) -> Dim:
    return -(-n // stride) if isinstance(n, int) else n if stride == 1 else None


def _windows(n: Dim, kernel: int, stride: int, dilation: int, pad: int) -> Dim:
    if kernel == 0:  # its size is not known
        return None
    if isinstance(n, int):
        return max((n + pad - (kernel - 1) * dilation - 1) // stride + 1, 0)
    return n if (kernel - 1) * dilation == pad and stride == 1 else None


@keras_layer("Conv1D", "Conv2D", "Conv3D")
def conv(
    op: Builder, w: Roles, x: Value, /, *,
    filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid",
    data_format: str | None = "channels_last", dilation_rate: Any = 1, groups: int = 1,
    activation: Any = None, use_bias: bool = True,
    kernel_order: Sequence[int] | None = None, flipped: bool = False,
) -> Value:  # fmt: skip
    """Cross-correlation with groups, strides, dilation; valid, same or causal padding."""
    kernel = stored_kernel(op, w["kernel"], x.rank - 2, kernel_order, flipped)
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
    """One kernel, or depth_multiplier of them, for each channel."""
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
        raise Gap("a kernel of unknown shape")
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
    """A depthwise convolution, then one of size one."""
    del filters, kernel_size, depth_multiplier, groups, rank
    spread, point = (
        stored_kernel(op, w[role], x.rank - 2, kernel_order, flipped=False)
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
    """The gradient of a convolution, as an operation: kernels of [*spatial, out, in]."""
    if groups != 1:
        raise Gap("groups in a transposed convolution")
    kernel = stored_kernel(op, w["kernel"], x.rank - 2, kernel_order, flipped)
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
    # Keras 1 was told the shape of the output.
    wanted = [None] * rank if output_shape is None else list(output_shape[-rank:])
    if output_shape is not None and data_format != "channels_first":
        wanted = list(output_shape[-rank - 1 : -1])
    pads_before, pads_after, more, out = [], [], [], []
    axes = zip(image.shape[2:], sizes, steps, spread, extra, wanted, strict=True)
    for n, k, s, d, e, size in axes:
        if size is None:
            before, after, grow, size = _transposed_axis(n, k, s, d, padding, e)
        elif isinstance(n, int):
            before, after, grow = _cut((n - 1) * s + (k - 1) * d + 1 - size, padding)
        else:
            raise Gap("an output shape for an input of unknown size")
        pads_before.append(before)
        pads_after.append(after)
        more.append(grow)
        out.append(size)
    shape = (image.shape[0], kernel.shape[rank], *out)
    result = op.emit(
        "ConvTranspose", image, weight, bias, dtype=x.dtype, shape=shape, kernel_shape=sizes,
        strides=steps, dilations=spread, pads=[*pads_before, *pads_after], output_padding=more,
    )  # fmt: skip
    return as_given(op, result, data_format)


def _transposed_axis(
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
    """Return what is cut before and after an axis, as SAME pads, and what is added behind it."""
    before = max(surplus, 0) // 2 if padding == "same" else 0
    after = surplus - before
    return before, max(after, 0), max(-after, 0)
