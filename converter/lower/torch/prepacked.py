"""XNNPACK-prepacked Linear and Conv2d (mobile), with output clamping.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/xnnpack/RegisterOpContextClass.cpp
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from converter.lower.table import Variant
from converter.lower.torch.context import Context
from converter.lower.torch.linear import linear
from converter.lower.torch.program_values import Ints, ProgramValue, numbers
from converter.lower.torch.quantized import (
    convolve_packed,
    packed_weights,
    prepack,
)
from converter.lower.torch.quantized_tensors import Packed
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


def _clamp(layer: Packed, *bounds: object) -> Packed:
    """Return a layer whose output is clamped."""
    for bound in bounds:
        if bound is not None and not isinstance(bound, int | float):
            raise Unsupported("a bound that is no number")
    low, high = (float(n) if isinstance(n, int | float) else None for n in bounds)
    return replace(layer, low=low, high=high)


@aten("prepacked.linear_clamp_prepack")
def linear_clamp_prepack(
    op: Context, weight: Value, bias: Value | None = None, output_min: float | None = None,
    output_max: float | None = None,
) -> Packed:  # fmt: skip
    """The weights of a Linear, packed."""
    del op
    return _clamp(Packed(weight, bias), output_min, output_max)


@aten("prepacked.conv2d_clamp_prepack")
def conv2d_clamp_prepack(
    op: Context, weight: Value, bias: Value | None, stride: Ints, padding: Ints, dilation: Ints,
    groups: int, output_min: float | None = None, output_max: float | None = None,
) -> Packed:  # fmt: skip
    """The weights of a convolution, packed."""
    named = (("a stride", stride), ("padding", padding), ("a dilation", dilation))
    steps, around, spaces = (numbers(n, 2, what) for what, n in named)
    layer = prepack(op, weight, bias, steps, around, spaces, groups)
    return _clamp(layer, output_min, output_max)


@aten("prepacked.conv2d_transpose_clamp_prepack")
def conv2d_transpose_clamp_prepack(
    op: Context, weight: Value, bias: Value | None, stride: Ints, padding: Ints,
    output_padding: Ints, dilation: Ints, groups: int, output_min: float | None = None,
    output_max: float | None = None,
) -> Packed:  # fmt: skip
    """The weights of a transposed convolution, packed."""
    layer = conv2d_clamp_prepack(
        op, weight, bias, stride, padding, dilation, groups, output_min, output_max
    )
    more = tuple(numbers(output_padding, 2, "output padding"))
    return replace(layer, output_padding=more, transposed=True)


@aten(
    Variant("prepacked.linear_clamp_run", "`x @ weight.T + bias`, clamped."),
    Variant("prepacked.conv2d_clamp_run", "Cross-correlation of images, clamped."),
    Variant("prepacked.conv2d_transpose_clamp_run", "Transposed convolution of images, clamped."),
)
def run_clamped(op: Context, x: Value, weights: ProgramValue) -> Value:
    """A packed layer, clamped."""
    layer = packed_weights(weights)
    if layer.stride:
        made = convolve_packed(op, x, layer, 2)
    else:
        made = linear(op, x, layer.weight, layer.bias)
    is_bounded = layer.low is not None or layer.high is not None
    return op.clip(made, layer.low, layer.high) if is_bounded else made


PACKING: Mapping[str, Callable[..., Packed]] = {
    "LinearOpContext": linear_clamp_prepack,
    "Conv2dOpContext": conv2d_clamp_prepack,
    "TransposeConv2dOpContext": conv2d_transpose_clamp_prepack,
}
