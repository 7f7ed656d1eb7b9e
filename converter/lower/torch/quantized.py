"""Quantized layers: float layers between DequantizeLinear and QuantizeLinear.

torch sums integers and rounds the sum; the graph sums dequantized values. Results are
equal, or differ by one integer where a sum lies half-way between two.
Spec: https://github.com/pytorch/pytorch/tree/v2.13.0/aten/src/ATen/native/quantized
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from converter.lower.ops import activation
from converter.lower.ops.quantize import extremes_with_zero
from converter.lower.table import Variant
from converter.lower.torch.context import OF_COMPOUNDS, Context
from converter.lower.torch.convolution import convolve, convolve_transposed
from converter.lower.torch.linear import linear
from converter.lower.torch.normalization import batch_norm
from converter.lower.torch.program_values import Ints, ProgramValue, Scalar, Tensors
from converter.lower.torch.quantized_tensors import (
    BOUNDS,
    Packed,
    QuantizedTensor,
    integers,
    numbers,
    of_numbers,
    quantize,
)
from converter.lower.torch.table import Row, aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

F = TypeVar("F", bound=Callable[..., Any])

# Ops whose results are elements of the tensor, or zero: scale and zero point stay.
KEEPING = frozenset((
    "alias", "chunk", "clone", "contiguous", "detach", "dropout", "expand", "feature_dropout",
    "flatten", "flip", "index_select", "max_pool1d", "max_pool2d", "max_pool3d", "narrow",
    "permute", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "relu", "repeat", "reshape",
    "select", "slice", "split", "squeeze", "stack", "t", "transpose", "unbind", "unsqueeze",
    "unflatten", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "view",
    "adaptive_max_pool2d", "quantized_max_pool2d", "native_channel_shuffle",
))  # fmt: skip
# Ops whose results are requantized by the scale and zero point of the tensor.
ROUNDED = frozenset((
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "avg_pool1d", "avg_pool2d",
    "avg_pool3d", "mean", "upsample_bilinear2d", "upsample_linear1d", "leaky_relu", "elu",
))  # fmt: skip
# Ops whose results have known bounds: their scale and zero point in torch.
BOUNDED = {
    "sigmoid": (1 / 256, 0), "hardsigmoid": (1 / 256, 0), "tanh": (2 / 256, 128),
}  # fmt: skip
OWN: dict[str, Callable[..., Any]] = {}


def own(*names: str) -> Callable[[F], F]:
    """Enter the handlers of other ops for quantized tensors."""

    def enter(function: F) -> F:
        for name in names:
            OWN[name] = function
        return function

    return enter


def apply(op: Context, row: Row, given: Mapping[str, ProgramValue]) -> ProgramValue:
    """Return the result of an op with a quantized argument.

    Raises:
        Unsupported: The op has no form for quantized tensors.
    """
    base = row.name.partition(".")[0]
    if base == "quantized":
        return row.handler(op, **given)
    if base in OWN:
        return OWN[base](op, **given)
    x = next(one for one in given.values() if isinstance(one, QuantizedTensor | list | tuple))
    if not isinstance(x, QuantizedTensor):
        raise Unsupported(OF_COMPOUNDS)
    plain = {name: numbers(one) if isinstance(one, Value) else one for name, one in given.items()}
    if base in KEEPING:
        return _again(x, row.handler(op, **plain))
    if base in ROUNDED:
        return _requantized(op, row.handler(op, **plain), x)
    if base in BOUNDED and x.dtype == "quint8":
        return quantize(op, row.handler(op, **plain), *BOUNDED[base], x.dtype)
    raise Unsupported(OF_COMPOUNDS)


def _again(x: QuantizedTensor, made: ProgramValue) -> ProgramValue:
    if isinstance(made, list):
        return [_again(x, one) if isinstance(one, Value) and one.is_float else one for one in made]
    return x.moved(made)


def _requantized(op: Context, made: ProgramValue, like: QuantizedTensor) -> QuantizedTensor:
    if not isinstance(made, Value) or not like.scale:
        raise Unsupported(OF_COMPOUNDS)
    return quantize(op, made, like.scale, like.zero_point, like.dtype)


# -- in and out ------------------------------------------------------------------------------------


@aten("quantize_per_tensor")
def quantize_per_tensor(
    op: Context, self: Value, scale: float, zero_point: int, dtype: str
) -> Value:
    """Numbers quantized by a scale and a zero point."""
    return quantize(op, self, scale, zero_point, dtype)


@aten("quantize_per_tensor.tensor_qparams")
def quantize_by_tensors(
    op: Context, self: Value, scale: Value, zero_point: Value, dtype: str
) -> Value:
    """Numbers quantized by a scale and a zero point that are tensors."""
    known = [op.array(x) for x in (scale, zero_point)]
    if known[0] is None or known[1] is None:
        raise Unsupported("a scale that is computed from the inputs")
    return quantize(op, self, float(known[0].item()), int(known[1].item()), dtype)


@aten("dequantize.tensor")
def dequantize_tensor(op: Context, qtensor: Value) -> Value:
    """The numbers that a quantized tensor stands for."""
    return dequantize(op, qtensor)


@own("dequantize")
@aten("dequantize.self")
def dequantize(op: Context, self: Value) -> Value:
    """The indices of a quantized tensor."""
    del op
    return numbers(self)


@own("int_repr")
@aten("int_repr")
def int_repr(op: Context, self: Value) -> Value:
    """The integers of a quantized tensor."""
    if not isinstance(self, QuantizedTensor):
        raise Unsupported("integers of what is not quantized")
    return integers(op, self)


@own("q_scale")
@aten("q_scale")
def q_scale(op: Context, self: Value) -> float:
    """The scale of a quantized tensor."""
    del op
    if not isinstance(self, QuantizedTensor) or not self.scale:
        raise Unsupported("the scale of what has none, or several")
    return self.scale


@own("q_zero_point")
@aten("q_zero_point")
def q_zero_point(op: Context, self: Value) -> int:
    """The zero point of a quantized tensor."""
    del op
    if not isinstance(self, QuantizedTensor) or not self.scale:
        raise Unsupported("the zero of what has none, or several")
    return self.zero_point


@own("clamp", "hardtanh", "clip")
def _clamped(
    op: Context, self: QuantizedTensor, min: Scalar | None = None, max: Scalar | None = None,
    min_val: Scalar = -1, max_val: Scalar = 1,
) -> Value:  # fmt: skip
    """Clamp to bounds that are quantized like the tensor."""
    given = (min_val, max_val) if min is None and max is None else (min, max)
    bounds = [None if n is None else _nearest(self, n) for n in given]
    return self.moved(op.clip(self.real, *bounds))


def _nearest(x: QuantizedTensor, number: Scalar) -> float:
    if not isinstance(number, int | float) or x.dtype not in BOUNDS or not x.scale:
        raise Unsupported("a bound that is computed from the inputs")
    low, high = BOUNDS[x.dtype]
    found = min(max(np.rint(number / x.scale) + x.zero_point, low), high)
    return float((found - x.zero_point) * x.scale)


RANKS = (1, 2, 3)

# -- layers ----------------------------------------------------------------------------------------


def packed_weights(value: ProgramValue) -> Packed:
    """Return the weights of a layer that a program packed."""
    if not isinstance(value, Packed):
        raise Unsupported("weights that are not packed")
    return value


@aten(
    Variant("quantized.linear", rectified=False), Variant("quantized.linear_relu", rectified=True)
)
def quantized_linear(
    op: Context, x: Value, weights: ProgramValue, scale: float, zero_point: int, *, rectified: bool,
) -> Value:  # fmt: skip
    """A quantized Linear, with `relu` where the name has it."""
    packed = packed_weights(weights)
    made = linear(op, numbers(x), numbers(packed.weight), packed.bias)
    made = activation.relu(op, made) if rectified else made
    return quantize(op, made, scale, zero_point, "quint8")


def convolve_packed(op: Context, x: Value, packed: Packed, rank: int) -> Value:
    """Return a convolution or a transposed one, in float32."""
    x, weight = numbers(x), numbers(packed.weight)
    if weight.rank != rank + 2:  # torch stores 1-d kernels as 2-d ones
        weight = op.squeeze(weight, [2])
    spaced = {"stride": packed.stride[-rank:], "dilation": packed.dilation[-rank:],
              "padding": packed.padding[-rank:], "groups": packed.groups, "rank": rank}  # fmt: skip
    if packed.transposed:
        more = packed.output_padding[-rank:]
        return convolve_transposed(op, x, weight, packed.bias, output_padding=more, **spaced)  # type: ignore[arg-type]
    return convolve(op, x, weight, packed.bias, **spaced)  # type: ignore[arg-type]


@aten(
    *(Variant(f"quantized.conv{n}d", rank=n, rectified=False) for n in RANKS),
    *(Variant(f"quantized.conv{n}d_relu", rank=n, rectified=True) for n in RANKS),
    *(Variant(f"quantized.conv_transpose{n}d", rank=n, rectified=False) for n in RANKS),
)
def convolution(
    op: Context,
    qx: Value,
    packed_weight: ProgramValue,
    output_scale: float,
    output_zero_point: int,
    *,
    rank: int,
    rectified: bool,
) -> Value:
    """A quantized convolution, with `relu` where the name has it."""
    made = convolve_packed(op, qx, packed_weights(packed_weight), rank)
    made = activation.relu(op, made) if rectified else made
    return quantize(op, made, output_scale, output_zero_point, "quint8")


@aten("quantized.linear_prepack", "quantized.linear_prepack_fp16")
def linear_prepack(op: Context, weight: Value, bias: Value | None = None) -> Packed:
    """The weights of a quantized Linear, packed."""
    del op
    return Packed(weight, bias)


@aten("quantized.linear_unpack", "quantized.linear_unpack_fp16")
def linear_unpack(op: Context, weights: ProgramValue) -> list[ProgramValue]:
    """The weight and the bias of a quantized Linear."""
    del op
    packed = packed_weights(weights)
    return [packed.weight, packed.bias]


def _known(values: Ints) -> tuple[int, ...]:
    found = tuple(n for n in values if isinstance(n, int))
    if len(found) != len(values):
        raise Unsupported("a convolution that depends on the inputs")
    return found


@aten(*(f"quantized.conv{n}d_prepack" for n in RANKS))
def prepack(
    op: Context, weight: Value, bias: Value | None, stride: Ints, padding: Ints, dilation: Ints,
    groups: int,
) -> Packed:  # fmt: skip
    """The weights of a convolution, packed."""
    del op
    steps, around, spaces = (_known(n) for n in (stride, padding, dilation))
    return Packed(weight, bias, steps, around, spaces, groups=groups)


@aten(*(f"quantized.conv_transpose{n}d_prepack" for n in RANKS))
def prepack_transposed(
    op: Context, weight: Value, bias: Value | None, stride: Ints, padding: Ints,
    output_padding: Ints, dilation: Ints, groups: int,
) -> Packed:  # fmt: skip
    """The weights of a transposed convolution, packed."""
    layer = prepack(op, weight, bias, stride, padding, dilation, groups)
    return replace(layer, output_padding=_known(output_padding), transposed=True)


# -- arithmetic ------------------------------------------------------------------------------------


@aten(
    Variant("quantized.add", op_type="Add", rectified=False),
    Variant("quantized.add_relu", op_type="Add", rectified=True),
    Variant("quantized.mul", op_type="Mul", rectified=False),
    Variant("quantized.mul_relu", op_type="Mul", rectified=True),
)
def combine(
    op: Context, qa: Value, qb: Value, scale: float, zero_point: int, *, op_type: str,
    rectified: bool,
) -> Value:  # fmt: skip
    """Sum or product of quantized tensors, with `relu` where the name has it."""
    made = op.elementwise(op_type, numbers(qa), numbers(qb))
    made = activation.relu(op, made) if rectified else made
    return quantize(op, made, scale, zero_point, qa.dtype)


@aten("quantized.mul_scalar", "quantized.mul.Scalar")
def mul_scalar(op: Context, qa: Value, b: float) -> Value:
    """A quantized tensor times a number: the same integers with another scale."""
    if not isinstance(qa, QuantizedTensor) or not b > 0:
        raise Unsupported(f"a quantized tensor times {b!r:.40}")
    real = op.mul(qa.real, float(b))
    return of_numbers(real, qa.scale * b, qa.zero_point, qa.dtype)


@aten("quantized.add_scalar", "quantized.add.Scalar")
def add_scalar(op: Context, qa: Value, b: float) -> Value:
    """A quantized tensor plus a number: the same integers with another zero point."""
    if not isinstance(qa, QuantizedTensor) or not qa.scale:
        raise Unsupported(f"a quantized tensor and {b!r:.40}")
    steps = round(b / qa.scale)
    low, high = BOUNDS[qa.dtype]
    if not low <= qa.zero_point - steps <= high:
        raise Unsupported("a number that leaves no integer for zero")
    real = op.add(qa.real, steps * qa.scale)
    return of_numbers(real, qa.scale, qa.zero_point - steps, qa.dtype)


@aten("quantized.cat", "quantized.cat_relu")
def cat(
    op: Context, qx: Tensors, dim: int, scale: float | None = None, zero_point: int | None = None
) -> Value:
    """Quantized tensors concatenated."""
    first = qx[0]
    if not isinstance(first, QuantizedTensor):
        raise Unsupported("tensors that are not quantized")
    made = op.concat([numbers(x) for x in qx], dim)
    if scale is None or zero_point is None:
        scale, zero_point = first.scale, first.zero_point
    return quantize(op, made, scale, zero_point, first.dtype)


@own("cat")
def _cat(op: Context, tensors: Tensors, dim: int = 0) -> Value:
    return cat(op, tensors, dim)


@aten(
    Variant("quantized.hardswish", function=activation.hard_silu),
    Variant("quantized.sigmoid", function=activation.sigmoid),
)
def apply_activation(
    op: Context, qx: Value, output_scale: float, output_zero_point: int, *,
    function: Callable[[Context, Value], Value],
) -> Value:  # fmt: skip
    """An activation of a quantized tensor."""
    return quantize(op, function(op, numbers(qx)), output_scale, output_zero_point, qx.dtype)


@aten("quantized.leaky_relu")
def leaky_relu(
    op: Context, qx: Value, negative_slope: float, inplace: bool, output_scale: float,
    output_zero_point: int,
) -> Value:  # fmt: skip
    """Leaky ReLU of a quantized tensor."""
    del inplace
    made = activation.leaky_relu(op, numbers(qx), negative_slope)
    return quantize(op, made, output_scale, output_zero_point, qx.dtype)


@aten("quantized.relu6")
def relu6(op: Context, qx: Value, inplace: bool = False) -> Value:
    """min(max(x, 0), 6) of a quantized tensor."""
    del inplace
    if not isinstance(qx, QuantizedTensor):
        raise Unsupported("a tensor that is not quantized")
    return _clamped(op, qx, 0.0, 6.0)


@own("relu6")
def _relu6(op: Context, self: Value) -> Value:
    return relu6(op, self)


@aten(
    *(Variant(f"quantized.batch_norm{n}", rectified=False) for n in ("", "1d", "2d", "3d")),
    *(Variant(f"quantized.batch_norm{n}_relu", rectified=True) for n in ("", "1d", "2d", "3d")),
)
def normalization(
    op: Context, qx: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value,
    eps: float, output_scale: float, output_zero_point: int, *, rectified: bool,
) -> Value:  # fmt: skip
    """Quantized batch normalization, with `relu` where the name has it."""
    made = batch_norm(
        op, numbers(qx), weight, bias, mean, var, training=False, momentum=0.0, eps=eps
    )
    made = activation.relu(op, made) if rectified else made
    return quantize(op, made, output_scale, output_zero_point, qx.dtype)


# -- of numbers that are rounded as they come ------------------------------------------------------

SMALLEST_SCALE = 6.1e-5


def fake_quantize(op: Context, x: Value, *, fewer: bool) -> Value:
    """Return numbers quantized to 256 or 128 levels of their own range, and back.

    Args:
        op: Builder.
        x: The numbers.
        fewer: Whether there are 128 levels (reduce_range), for processors that sum in 16 bits.
    """
    op._outermost.rounded = True
    most = 127.0 if fewer else 255.0
    low, high = extremes_with_zero(op, x)
    scale = op.div(op.sub(high, low), most)
    none = op.elementwise("Equal", scale, 0.0)
    scale = op.where(none, 0.1, scale)
    middle = op.unary("Round", op.div(op.unary("Neg", low), scale))
    middle = op.clip(middle, 0.0, most)
    steps = op.add(
        op.unary("Round", op.mul(op.cast(x, "float32"), op.unary("Reciprocal", scale))), middle
    )
    return op.mul(op.sub(op.clip(steps, 0.0, most), middle), scale)


def dynamic_linear(op: Context, x: Value, packed: Packed, *, fewer: bool) -> Value:
    """Return a Linear with quantized weights, of inputs that are quantized dynamically."""
    if not isinstance(packed.weight, QuantizedTensor):
        return linear(op, x, op.cast(packed.weight, "float32"), packed.bias)
    return linear(op, fake_quantize(op, x, fewer=fewer), numbers(packed.weight), packed.bias)


@aten(
    Variant("quantized.linear_dynamic", rectified=False),
    Variant("quantized.linear_relu_dynamic", rectified=True),
)
def dynamic_linear_ofpacked_weights(
    op: Context, x: Value, weights: ProgramValue, reduce_range: bool = False, *, rectified: bool,
) -> Value:  # fmt: skip
    """A dynamically quantized Linear, with `relu` where the name has it."""
    made = dynamic_linear(op, x, packed_weights(weights), fewer=reduce_range)
    return activation.relu(op, made) if rectified else made


@aten("quantized.linear_dynamic_fp16")
def linear_dynamic_fp16(op: Context, x: Value, weights: ProgramValue) -> Value:
    """A Linear with weights stored in float16."""
    packed = packed_weights(weights)
    half = op.cast(op.cast(numbers(packed.weight), "float16"), "float32")
    return linear(op, x, half, packed.bias)
