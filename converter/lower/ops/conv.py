"""Convolution of images in the layouts and paddings of Keras and TensorFlow.

Kernels are ``[*spatial, in / groups, out]``; those of ONNX are ``[out, in / groups, *spatial]``.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from converter.lower import dims
from converter.lower.builder import Builder
from converter.lower.graph import Attribute, Dim, Shape
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

Padding: TypeAlias = tuple[list[int], list[int]]  # before and after each spatial axis


def numbers(value: Any, rank: int) -> list[int]:
    """Return an argument as a list of integers for each spatial axis; one integer is repeated."""
    if isinstance(value, int):
        return [value] * rank
    result = [int(n) for n in value]
    return result * rank if len(result) == 1 and rank > 1 else result


def channels_first(op: Builder, x: Value, data_format: str | None) -> Value:
    """Transpose an image to channels-first."""
    if data_format == "channels_first":
        return x
    return op.transpose(x, [0, x.rank - 1, *range(1, x.rank - 1)])


def as_given(op: Builder, x: Value, data_format: str | None) -> Value:
    """Transpose a channels-first image back to its data format."""
    if data_format == "channels_first":
        return x
    return op.transpose(x, [0, *range(2, x.rank), 1])


def same_padding(
    sizes: Sequence[Dim], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Padding | None:
    """Return TensorFlow's SAME padding before and after each axis; None if it is not static.

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
    strides: Any, padding: str | Padding, data_format: str | None,
    dilations: Any, groups: int = 1,
) -> Value:  # fmt: skip
    """Cross-correlate an image with a kernel of [*spatial, in / groups, out].

    Padding is a mode of Keras, or the amounts before and after each spatial axis. If the size of
    the kernel is unknown, so is that of the result.
    """
    rank = x.rank - 2
    steps, spread = numbers(strides, rank), numbers(dilations, rank)
    image = channels_first(op, x, data_format)
    sizes = [n if isinstance(n, int) else 0 for n in kernel.shape[:rank]]
    weight = op.transpose(kernel, [rank + 1, rank, *range(rank)])
    spatial = image.shape[2:]
    counts = [_divide_up(n, s) for n, s in zip(spatial, steps, strict=True)]  # of SAME padding
    out, pads = counts, _resolve_padding(padding, spatial, sizes, steps, spread)
    if pads is not None:
        around = [a + b for a, b in zip(*pads, strict=True)]
        out = [_windows(*axis) for axis in zip(spatial, sizes, steps, spread, around, strict=True)]
    result = emit_conv(
        op, image, weight, bias, (image.shape[0], kernel.shape[-1], *out), strides=steps,
        dilations=spread, padding=pads, groups=groups,
    )  # fmt: skip
    if padding == "half":
        result = _first_windows(op, result, counts)
    return as_given(op, result, data_format)


def _resolve_padding(
    padding: str | Padding, spatial: Sequence[Dim], kernel: Sequence[int],
    strides: Sequence[int], dilations: Sequence[int],
) -> Padding | None:  # fmt: skip
    """Return the amounts that a mode stands for; None for SAME padding that is not static."""
    none = [0] * len(kernel)
    if isinstance(padding, tuple):
        return padding
    if padding == "valid":
        return none, none
    if padding not in ("same", "causal", "half"):
        raise Unsupported(f"padding {padding!r}")
    is_dilated = any(d > 1 for d in dilations)
    if not all(kernel) and (padding != "same" or is_dilated):
        raise Unsupported("a kernel whose size depends on the inputs, with this padding")
    if padding == "same":
        return same_padding(spatial, kernel, strides, dilations) if all(kernel) else None
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    if padding == "causal":  # before the axis only; Keras supports it for one spatial axis
        return reach, none
    half = [(n + 1) // 2 for n in reach]
    return half, half


def emit_conv(
    op: Builder, image: Value, weight: Value, bias: Value | None, shape: Shape, *,
    strides: Sequence[int], dilations: Sequence[int], padding: Padding | None, groups: int = 1,
) -> Value:  # fmt: skip
    """Return ONNX's convolution of images [N, C, *spatial].

    Args:
        op: Builder.
        image: The images.
        weight: [M, C / groups, *kernel].
        bias: [M].
        shape: Shape of the result.
        strides: Stride of each spatial axis.
        dilations: Dilation of each spatial axis.
        padding: Padding before and after each spatial axis; None for SAME padding.
        groups: Number of groups.
    """
    attributes: dict[str, Attribute] = {
        "strides": list(strides), "dilations": list(dilations), "group": groups,
        **_kernel_shape(weight),
    }  # fmt: skip
    if padding is None:
        attributes["auto_pad"] = "SAME_UPPER"
    elif any(padding[0]) or any(padding[1]):
        attributes["pads"] = [*padding[0], *padding[1]]
    return op.emit("Conv", image, weight, bias, dtype=image.dtype, shape=shape, **attributes)


def _kernel_shape(weight: Value) -> dict[str, Attribute]:
    """Return the sizes of a kernel as an attribute; none where they depend on the inputs."""
    sizes = [n for n in weight.shape[2:] if isinstance(n, int)]
    return {"kernel_shape": sizes} if len(sizes) == weight.rank - 2 else {}


def emit_conv_transpose(
    op: Builder, image: Value, weight: Value, bias: Value | None, shape: Shape, *,
    strides: Sequence[int], dilations: Sequence[int], before: Sequence[int],
    after: Sequence[int], output_padding: Sequence[int], groups: int = 1,
) -> Value:  # fmt: skip
    """Return ONNX's transposed convolution of images [N, C, *spatial].

    Args:
        op: Builder.
        image: The images.
        weight: [C, M / groups, *kernel].
        bias: [M].
        shape: Shape of the result.
        strides: Stride of each spatial axis.
        dilations: Dilation of each spatial axis.
        before: Number of elements cut at the start of each spatial axis.
        after: Number of elements cut at its end.
        output_padding: Number of elements added at its end, where the result is the bias alone if
            it is beyond the reach of the kernel.
        groups: Number of groups.
    """
    more, beyond = list(output_padding), [0] * len(strides)
    if any(e >= s for e, s in zip(more, strides, strict=True)):  # which onnxruntime refuses
        beyond = [max(e - p, 0) for p, e in zip(after, more, strict=True)]
        after = [max(p - e, 0) for p, e in zip(after, more, strict=True)]
        more = [0] * len(strides)
    attributes: dict[str, Attribute] = {
        "strides": list(strides), "dilations": list(dilations), "pads": [*before, *after],
        "output_padding": more, "group": groups, **_kernel_shape(weight),
    }  # fmt: skip
    if not any(beyond):
        return op.emit(
            "ConvTranspose", image, weight, bias, dtype=image.dtype, shape=shape, **attributes
        )
    reached = (*shape[:2], *(dims.sub(n, e) for n, e in zip(shape[2:], beyond, strict=True)))
    result = op.emit("ConvTranspose", image, weight, dtype=image.dtype, shape=reached, **attributes)
    result = op.pad(result, [0] * len(shape), [0, 0, *beyond])
    axes = list(range(1, len(strides) + 1))
    return result if bias is None else op.add(result, op.unsqueeze(bias, axes))


def _first_windows(op: Builder, x: Value, counts: Sequence[Dim]) -> Value:
    """Slice an image to the first windows of each axis: Theano's half padding may add one more."""
    for axis, (n, count) in enumerate(zip(x.shape[2:], counts, strict=True), 2):
        if n == count and n is not None:
            continue
        if not isinstance(count, int):
            raise Unsupported("padding 'half' of an image of unknown size")
        x = op.slice(x, [axis], [0], [count])
    return x


def _divide_up(n: Dim, stride: int) -> Dim:
    return -(-n // stride) if isinstance(n, int) else n if stride == 1 else None


def _windows(n: Dim, kernel: int, stride: int, dilation: int, pad: int) -> Dim:
    if kernel == 0:  # its size is not known
        return None
    if isinstance(n, int):
        return max((n + pad - (kernel - 1) * dilation - 1) // stride + 1, 0)
    return n if (kernel - 1) * dilation == pad and stride == 1 else None
