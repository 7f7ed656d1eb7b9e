"""XNNPACK-prepacked Linear and Conv2d (mobile), with output clamping.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/xnnpack/RegisterOpContextClass.cpp
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from converter.lower.torch.context import Context
from converter.lower.torch.convolution import convolve, transposed
from converter.lower.torch.linear import linear
from converter.lower.torch.program_values import Ints, ProgramValue, numbers
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights of a packed layer.

    Attributes:
        weight: Weight of the module.
        bias: Bias of the module.
        spaced: Stride, padding and dilation of a convolution; empty for a Linear.
        more: Output padding of a transposed convolution; empty for others.
        groups: Of a convolution.
        low: Lower bound of the output.
        high: Upper bound of the output.
    """

    weight: Value
    bias: Value | None
    spaced: tuple[tuple[int, ...], ...] = ()
    more: tuple[int, ...] = ()
    groups: int = 1
    low: float | None = None
    high: float | None = None


def _layer(value: ProgramValue) -> Layer:
    if not isinstance(value, Layer):
        raise Unsupported("weights that are not packed")
    return value


def _held(op: Context, x: Value, layer: Layer) -> Value:
    if layer.low is None and layer.high is None:
        return x
    return op.clip(x, layer.low, layer.high)


def _bound(number: object) -> float | None:
    if number is None:
        return None
    if not isinstance(number, int | float):
        raise Unsupported("a bound that is no number")
    return float(number)


@aten("prepacked.linear_clamp_prepack")
def linear_clamp_prepack(
    op: Context, weight: Value, bias: Value | None = None, output_min: float | None = None,
    output_max: float | None = None,
) -> Layer:  # fmt: skip
    """The weights of a Linear, packed."""
    del op
    return Layer(weight, bias, low=_bound(output_min), high=_bound(output_max))


@aten("prepacked.conv2d_clamp_prepack")
def conv2d_clamp_prepack(
    op: Context, weight: Value, bias: Value | None, stride: Ints, padding: Ints, dilation: Ints,
    groups: int, output_min: float | None = None, output_max: float | None = None,
) -> Layer:  # fmt: skip
    """The weights of a convolution, packed."""
    del op
    named = (("a stride", stride), ("padding", padding), ("a dilation", dilation))
    spaced = tuple(tuple(numbers(n, 2, what)) for what, n in named)
    low, high = _bound(output_min), _bound(output_max)
    return Layer(weight, bias, spaced, (), groups, low, high)


@aten("prepacked.conv2d_transpose_clamp_prepack")
def conv2d_transpose_clamp_prepack(
    op: Context, weight: Value, bias: Value | None, stride: Ints, padding: Ints,
    output_padding: Ints, dilation: Ints, groups: int, output_min: float | None = None,
    output_max: float | None = None,
) -> Layer:  # fmt: skip
    """The weights of a transposed convolution, packed."""
    plain = conv2d_clamp_prepack(
        op, weight, bias, stride, padding, dilation, groups, output_min, output_max
    )
    more = tuple(numbers(output_padding, 2, "output padding"))
    return Layer(weight, bias, plain.spaced, more, groups, plain.low, plain.high)


@aten("prepacked.linear_clamp_run")
def linear_clamp_run(op: Context, x: Value, weights: ProgramValue) -> Value:
    """`x @ weight.T + bias`, clamped."""
    layer = _layer(weights)
    return _held(op, linear(op, x, layer.weight, layer.bias), layer)


@aten("prepacked.conv2d_clamp_run")
def conv2d_clamp_run(op: Context, x: Value, weights: ProgramValue) -> Value:
    """Cross-correlation of images, clamped."""
    layer = _layer(weights)
    stride, padding, dilation = layer.spaced
    made = convolve(
        op, x, layer.weight, layer.bias, stride=stride, padding=padding, dilation=dilation,
        groups=layer.groups, rank=2,
    )  # fmt: skip
    return _held(op, made, layer)


@aten("prepacked.conv2d_transpose_clamp_run")
def conv2d_transpose_clamp_run(op: Context, x: Value, weights: ProgramValue) -> Value:
    """Transposed convolution of images, clamped."""
    layer = _layer(weights)
    stride, padding, dilation = layer.spaced
    made = transposed(
        op, x, layer.weight, layer.bias, stride=stride, padding=padding,
        output_padding=layer.more, groups=layer.groups, dilation=dilation, rank=2,
    )  # fmt: skip
    return _held(op, made, layer)


PACKING: Mapping[str, Callable[..., Layer]] = {
    "LinearOpContext": linear_clamp_prepack,
    "Conv2dOpContext": conv2d_clamp_prepack,
    "TransposeConv2dOpContext": conv2d_transpose_clamp_prepack,
}
