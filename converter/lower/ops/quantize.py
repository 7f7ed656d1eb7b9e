"""Affine quantization, `(q - zero_point) * scale`, and fake quantization.

Affine quantization is ONNX's: it rounds half to even and saturates. A tensor has one scale, or
one for each slice along an axis.
Spec: https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html
"""

from math import log

import numpy as np

from converter.lower.builder import Builder
from converter.lower.graph import Attribute
from converter.lower.known_values import Numbers
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

BITS_8 = ("uint8", "int8")


def bounds_of(dtype: str) -> tuple[int, int]:
    """Return the minimum and the maximum of an integer dtype."""
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def quantize(
    op: Builder, x: Value, scale: Value, zero_point: Value, dtype: str, *,
    axis: int | None = None, bounds: tuple[int, int] | None = None,
) -> Value:  # fmt: skip
    """Return `round(x / scale) + zero_point`, clipped to bounds: those of the dtype by default.

    Raises:
        Unsupported: The dtype has more than eight bits.
    """
    if dtype not in BITS_8:
        raise Unsupported(f"numbers quantized to {dtype}")
    op._outermost.rounded = True
    made = _linear(op, "QuantizeLinear", op.cast(x, "float32"), scale, zero_point, dtype, axis)
    if bounds is None or bounds == bounds_of(dtype):
        return made
    low, high = (op.constant(n, dtype) for n in bounds)
    return op.elementwise("Min", op.elementwise("Max", made, low), high)


def dequantize(
    op: Builder, q: Value, scale: Value, zero_point: Value, *, axis: int | None = None
) -> Value:
    """Return `(q - zero_point) * scale` in float32."""
    return _linear(op, "DequantizeLinear", q, scale, zero_point, q.dtype, axis)


def _linear(
    op: Builder, op_type: str, x: Value, scale: Value, zero_point: Value, dtype: str,
    axis: int | None,
) -> Value:  # fmt: skip
    attributes: dict[str, Attribute] = {}
    if axis is not None:
        attributes["axis"] = x.stored.index(x.axis(axis))
    inputs = [x, op.cast(scale, "float32"), op.cast(zero_point, dtype)]
    kind = dtype if op_type == "QuantizeLinear" else "float32"
    (made,) = op.node(op_type, inputs, [(kind, x.shape)], attributes=attributes, stored=x.stored)
    return made


def extremes_with_zero(op: Builder, x: Value) -> tuple[Value, Value]:
    """Return `min(x, 0)` and `max(x, 0)` over all elements of a tensor."""
    flat = op.plain(op.cast(x, "float32"))
    low, high = (
        op.node(f"Reduce{pick}", [flat], [("float32", ())], attributes={"keepdims": 0})[0]
        for pick in ("Min", "Max")
    )
    return op.elementwise("Min", low, 0.0), op.elementwise("Max", high, 0.0)


# -- fake quantization -----------------------------------------------------------------------------


def clamp(op: Builder, x: Value, low: Numbers, high: Numbers) -> Value:
    """Clip x to bounds that are scalars or broadcast against it."""
    if low.rank == high.rank == 0:
        bounds = [op.plain(low.value), op.plain(high.value)]
        return op.node("Clip", [x, *bounds], [(x.dtype, x.shape)], stored=x.stored)[0]
    return op.elementwise("Max", op.elementwise("Min", x, high.value), low.value)


def fake_quantize(
    op: Builder, x: Value, low: Numbers, high: Numbers, num_bits: int, *, narrow_range: bool
) -> Value:
    """Quantize and dequantize x between two bounds, which are nudged so that zero is exact.

    Half is rounded up. Equal bounds yield zeros.
    Spec: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/kernels/fake_quant_ops_functor.h
    """
    first, last = float(narrow_range), float((1 << num_bits) - 1)
    scale = (high - low) / (last - first)
    zero = (first - low / scale).rounded()
    zero = zero.most(first).least(last)
    bottom, top = (first - zero) * scale, (last - zero) * scale
    inverse = 1.0 / scale
    offset = ((bottom * -1.0) * inverse + 0.5).floor()
    shifted = op.mul(op.sub(clamp(op, x, bottom, top), bottom.value), inverse.value)
    steps = op.unary("Floor", op.add(op.sub(shifted, offset.value), 0.5))
    result = op.mul(steps, scale.value)
    differ = scale > 0.0
    return result if differ.holds() else op.where(differ.value, result, 0.0)


def quantize_by_size(
    op: Builder, x: Value, axes: list[int], low: float, high: float, epsilon: float
) -> tuple[Value, Value]:
    """Return `round(x * factor)` clipped to bounds, and `factor = high / (max(|x|) + epsilon)`."""
    size = op.reduce("ReduceMax", op.unary("Abs", x), axes, keepdims=True)
    factor = op.div(high, op.add(size, epsilon))
    return op.clip(op.unary("Round", op.mul(x, factor)), low, high), factor


def round_to_float8(op: Builder, x: Value, scale: Value) -> Value:
    """Return `x / scale` rounded to float8_e4m3fn (3-bit mantissa, 2**-9 to 448), times scale."""
    scaled = op.clip(op.div(x, scale), -448.0, 448.0)
    size = op.elementwise("Max", op.unary("Abs", scaled), 2.0**-6)
    power = op.unary("Floor", op.div(op.unary("Log", size), log(2)))
    two = op.elementwise("Pow", op.constant(2.0, x.dtype), power)
    # The rounded logarithm may yield a wrong exponent next to a power of two.
    two = op.where(op.elementwise("Less", size, two), op.mul(two, 0.5), two)
    doubled = op.mul(two, 2.0)
    two = op.where(op.elementwise("GreaterOrEqual", size, doubled), doubled, two)
    step = op.mul(two, 0.125)
    return op.mul(op.mul(op.unary("Round", op.div(scaled, step)), step), scale)
