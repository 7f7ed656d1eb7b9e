"""Convolutions of one to three dimensions, and transposed ones: one worker each way.

Spec: https://docs.pytorch.org/docs/2.13/nn.functional.html#convolution-functions
"""

from collections.abc import Sequence

from converter.lower import dims
from converter.lower.graph import Dim
from converter.lower.ops.conv import Padding, emit_conv, emit_conv_transpose
from converter.lower.table import Variant
from converter.lower.torch.context import Context
from converter.lower.torch.padding import pad_axes
from converter.lower.torch.program_values import Int, Ints, as_list, integer, numbers
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


def windows(
    op: Context, n: Dim, size: Dim, step: int, spread: int, around: int, *, up: bool = False
) -> Dim:
    """Return how many windows an axis has.

    Args:
        op: Builder.
        n: Size of the axis.
        size: Size of a window.
        step: Stride.
        spread: Dilation.
        around: Sum of the padding at both ends.
        up: Whether the last window may reach over the end (ceil_mode).
    """
    room = dims.sub(dims.add(n, around), effective_size(size, spread))
    if up:
        return dims.add(op.ceildiv(room, step), 1)
    return dims.add(op.floordiv(room, step), 1)


def effective_size(size: Dim, dilation: int) -> Dim:
    """Return how many elements of an axis a dilated kernel spans."""
    return dims.add(dims.mul(dims.sub(size, 1), dilation), 1)


def convolve(
    op: Context, x: Value, weight: Value, bias: Value | None, *,
    stride: Ints, padding: Ints | str, dilation: Ints, groups: int, rank: int,
) -> Value:  # fmt: skip
    """Cross-correlate images [N, C, *spatial], or one of them, with a kernel [M, C / groups, ...].

    Raises:
        Unsupported: Sizes of the kernel are unknown, or the padding is malformed.
    """
    if x.rank == rank + 1:
        batch = op.unsqueeze(x, [0])
        found = convolve(
            op, batch, weight, bias, stride=stride, padding=padding, dilation=dilation,
            groups=groups, rank=rank,
        )  # fmt: skip
        return op.squeeze(found, [0])
    steps, spread = numbers(stride, rank, "a stride"), numbers(dilation, rank, "a dilation")
    kernel = weight.shape[2:]
    if not isinstance(groups, int):
        raise Unsupported("as many groups as the inputs say")
    if padding == "same" and not all(isinstance(k, int) for k in kernel):
        x, padding = _pad_by_sizes(op, x, _halves(op, kernel, spread)), "valid"
    elif not isinstance(padding, str) and not all(isinstance(n, int) for n in padding):
        x, padding = _pad_by_sizes(op, x, [(n, n) for n in as_list(padding, rank)]), "valid"
    before, after = _pads(padding, kernel, spread, steps, rank)
    spatial = [
        windows(op, n, k, s, d, a + b)
        for n, k, s, d, a, b in zip(x.shape[2:], kernel, steps, spread, before, after, strict=True)
    ]
    return emit_conv(
        op, x, weight, bias, (x.shape[0], weight.shape[0], *spatial), strides=steps,
        dilations=spread, padding=(before, after), groups=groups,
    )  # fmt: skip


def _halves(op: Context, kernel: Sequence[Dim], spread: Sequence[int]) -> list[tuple[Int, Int]]:
    """Return the padding of each axis with which a kernel keeps the size of images."""
    wholes = [dims.sub(effective_size(k, d), 1) for k, d in zip(kernel, spread, strict=True)]
    befores = [op.floordiv(n, 2) for n in wholes]
    return [(integer(b), integer(dims.sub(n, b))) for n, b in zip(wholes, befores, strict=True)]


def _pad_by_sizes(op: Context, x: Value, around: Sequence[tuple[Int, Int]]) -> Value:
    """Return images with zeros around them, of which some numbers depend on the inputs' shapes."""
    return pad_axes(op, x, [n for ends in reversed(around) for n in ends], "constant", 0.0)


def _pads(
    padding: Ints | str, kernel: Sequence[Dim], spread: Sequence[int],
    steps: Sequence[int], rank: int,
) -> Padding:  # fmt: skip
    if isinstance(padding, str):
        if padding == "valid":
            return [0] * rank, [0] * rank
        if padding != "same" or any(s != 1 for s in steps):
            raise Unsupported(f"padding = {padding!r}")
        known = [k for k in kernel if isinstance(k, int)]
        whole = [(k - 1) * d for k, d in zip(known, spread, strict=True)]
        return [n // 2 for n in whole], [n - n // 2 for n in whole]
    around = numbers(padding, rank, "padding")
    return around, around


def convolve_transposed(
    op: Context, x: Value, weight: Value, bias: Value | None, *,
    stride: Ints, padding: Ints, output_padding: Ints, groups: int, dilation: Ints, rank: int,
) -> Value:  # fmt: skip
    """Spread images [N, C, *spatial], or one of them, by a kernel [C, M / groups, ...]."""
    if x.rank == rank + 1:
        found = convolve_transposed(
            op, op.unsqueeze(x, [0]), weight, bias, stride=stride, padding=padding,
            output_padding=output_padding, groups=groups, dilation=dilation, rank=rank,
        )  # fmt: skip
        return op.squeeze(found, [0])
    steps, spread = numbers(stride, rank, "a stride"), numbers(dilation, rank, "a dilation")
    around = numbers(padding, rank, "padding")
    more = numbers(output_padding, rank, "output padding")
    kernel = weight.shape[2:]
    spatial = [
        dims.add(dims.mul(dims.sub(n, 1), s), dims.add(effective_size(k, d), e - 2 * p))
        for n, s, k, d, p, e in zip(x.shape[2:], steps, kernel, spread, around, more, strict=True)
    ]
    channels = weight.shape[1]
    shape = (x.shape[0], dims.mul(channels, groups), *spatial)
    return emit_conv_transpose(
        op, x, weight, bias, shape, strides=steps, dilations=spread, before=around, after=around,
        output_padding=more, groups=groups,
    )  # fmt: skip


@aten("conv1d", "conv1d.padding")
def conv1d(
    op: Context, input: Value, weight: Value, bias: Value | None = None, stride: Ints = (1,),
    padding: Ints | str = (0,), dilation: Ints = (1,), groups: int = 1,
) -> Value:  # fmt: skip
    """Cross-correlation along one axis."""
    return convolve(
        op, input, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups,
        rank=1,
    )  # fmt: skip


@aten("conv2d", "conv2d.padding")
def conv2d(
    op: Context, input: Value, weight: Value, bias: Value | None = None, stride: Ints = (1,),
    padding: Ints | str = (0,), dilation: Ints = (1,), groups: int = 1,
) -> Value:  # fmt: skip
    """Cross-correlation of images."""
    return convolve(
        op, input, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups,
        rank=2,
    )  # fmt: skip


@aten("conv3d", "conv3d.padding")
def conv3d(
    op: Context, input: Value, weight: Value, bias: Value | None = None, stride: Ints = (1,),
    padding: Ints | str = (0,), dilation: Ints = (1,), groups: int = 1,
) -> Value:  # fmt: skip
    """Cross-correlation of volumes."""
    return convolve(
        op, input, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups,
        rank=3,
    )  # fmt: skip


@aten(
    Variant("conv_transpose1d", "Transposed convolution along one axis.", rank=1),
    Variant("conv_transpose2d.input", "Transposed convolution of images.", rank=2),
    Variant("conv_transpose3d.input", "Transposed convolution of volumes.", rank=3),
)
def transposed_convolution(
    op: Context, input: Value, weight: Value, bias: Value | None = None, stride: Ints = (1,),
    padding: Ints = (0,), output_padding: Ints = (0,), groups: int = 1, dilation: Ints = (1,), *,
    rank: int,
) -> Value:  # fmt: skip
    """A transposed convolution."""
    return convolve_transposed(
        op, input, weight, bias, stride=stride, padding=padding,
        output_padding=output_padding, groups=groups, dilation=dilation, rank=rank,
    )  # fmt: skip


@aten("_convolution_mode")
def convolution_mode(
    op: Context, input: Value, weight: Value, bias: Value | None, stride: Ints, padding: str,
    dilation: Ints, groups: int,
) -> Value:  # fmt: skip
    """Cross-correlation along any number of axes, with padding ``same`` or ``valid``."""
    return convolve(
        op, input, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups,
        rank=weight.rank - 2,
    )  # fmt: skip


@aten("conv_tbc")
def conv_tbc(op: Context, self: Value, weight: Value, bias: Value, pad: int = 0) -> Value:
    """Cross-correlation along one axis, of [time, batch, channels]."""
    made = convolve(
        op, self.transposed([1, 2, 0]), weight.transposed([2, 1, 0]), bias, stride=(1,),
        padding=(pad,), dilation=(1,), groups=1, rank=1,
    )  # fmt: skip
    return made.transposed([2, 0, 1])


@aten("convolution", "_convolution", "_convolution.deprecated")
def convolution(
    op: Context, input: Value, weight: Value, bias: Value | None, stride: Ints, padding: Ints,
    dilation: Ints, transposed: bool, output_padding: Ints, groups: int,
    benchmark: bool = False, deterministic: bool = False, cudnn_enabled: bool = True,
    allow_tf32: bool = True,
) -> Value:  # fmt: skip
    """Convolution, or transposed convolution, along any number of axes."""
    del benchmark, deterministic, cudnn_enabled, allow_tf32  # how, not what
    rank = weight.rank - 2
    if transposed:
        return convolve_transposed(
            op, input, weight, bias, stride=stride, padding=padding,
            output_padding=output_padding, groups=groups, dilation=dilation, rank=rank,
        )  # fmt: skip
    return convolve(
        op, input, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups,
        rank=rank,
    )  # fmt: skip
