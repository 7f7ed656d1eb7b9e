"""Fake quantization, QuantizeV2 and Dequantize.

Most of these ops round halves up or away from zero, and adjust the range so that zero is exact;
ONNX's QuantizeLinear rounds halves to even. So the kernels' formulas are emitted in full. oneDNN,
which TensorFlow uses on some machines, may return the adjacent integer.
Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels
(fake_quant_ops_functor.h, quantize_and_dequantize_op.h, quantize_op.cc, dequantize_op.cc)
"""

import numpy as np

from converter.lower.known_values import Numbers, real
from converter.lower.ops.quantize import bounds_of, clamp, fake_quantize
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import QUANTIZED, Node
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value

MOST = float(np.finfo(np.float32).max)


def away(op: Context, x: Value) -> Value:
    """Return `x` rounded to integers, halves away from zero."""
    return Numbers(op, x).rounded().value


# -- fake quantization -----------------------------------------------------------------------------


@tf_op("FakeQuantWithMinMaxArgs")
def fake_quant_args(
    op: Context, inputs: Value, /, *, min: float = -6.0, max: float = 6.0, num_bits: int = 8,
    narrow_range: bool = False,
) -> Value:  # fmt: skip
    """Values quantized to a fixed range and dequantized."""
    return fake_quantize(
        op, inputs, real(op, min), real(op, max), num_bits, narrow_range=narrow_range
    )


@tf_op("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel")
def fake_quant_vars(
    op: Context, inputs: Value, min: Value, max: Value, /, *, num_bits: int = 8,
    narrow_range: bool = False,
) -> Value:  # fmt: skip
    """Values quantized to a range and dequantized, per tensor or per channel."""
    return fake_quantize(
        op, inputs, real(op, min), real(op, max), num_bits, narrow_range=narrow_range
    )


# -- quantize and dequantize -----------------------------------------------------------------------


def _by_axis(op: Context, bound: Value, x: Value, axis: int) -> Value:
    """Return bounds reshaped to broadcast along an axis, or as a scalar if `axis` is negative."""
    if axis < 0:
        return op.reshape(bound, ()) if bound.rank else bound
    return op.unsqueeze(bound, list(range(1, x.rank - axis))) if axis < x.rank - 1 else bound


def _there_and_back(
    op: Context, x: Value, bounds: tuple[Value, Value] | None, *, signed: bool, num_bits: int,
    round_mode: str, narrow_range: bool, axis: int,
) -> Value:  # fmt: skip
    if axis < -1:
        raise Unsupported(f"axis {axis}")
    if bounds is None:
        axes = [i for i in range(x.rank) if i != axis]
        found = [op.reduce(f"Reduce{m}", x, axes, keepdims=axis >= 0) for m in ("Min", "Max")]
        low, high = (real(op, v, x.dtype) for v in found)
    else:
        low, high = (real(op, _by_axis(op, b, x, axis), x.dtype) for b in bounds)
    first = (int(narrow_range) - (1 << (num_bits - 1))) if signed else 0
    last = (1 << (num_bits - 1)) - 1 if signed else (1 << num_bits) - 1
    most = _most(x.dtype)
    by_low = (low * float(first) > 0.0).choose(float(first) / low, most) if first else None
    by_high = (high * float(last) > 0.0).choose(float(last) / high, most)
    scale, inverse = by_high, high / float(last)
    if by_low is not None:
        is_low = by_low < by_high
        scale = is_low.choose(by_low, by_high)
        inverse = is_low.choose(low / float(first), inverse)
        high = is_low.choose(inverse * float(last), high)
        low = is_low.choose(low, inverse * float(first))
    else:
        low = inverse * 0.0
    if bounds is not None:
        x = clamp(op, x, low, high)
    scaled = op.mul(x, scale.value)
    if round_mode == "HALF_TO_EVEN":
        rounded = op.unary("Round", scaled)
    elif round_mode == "HALF_UP":
        rounded = op.unary("Floor", op.add(scaled, 0.5))
    else:
        raise Unsupported(f"round_mode {round_mode!r}")
    return op.mul(rounded, inverse.value)


def _most(dtype: str) -> float:
    if dtype == "bfloat16":
        return 3.3895313892515355e38
    return float(np.finfo(dtype).max)


@tf_op("QuantizeAndDequantize")
def quantize_and_dequantize(
    op: Context, input: Value, /, *, signed_input: bool = True, num_bits: int = 8,
    range_given: bool = False, input_min: float = 0.0, input_max: float = 0.0,
) -> Value:  # fmt: skip
    """Values quantized and dequantized; the range is an attribute."""
    bounds = None
    if range_given:
        bounds = (op.constant(input_min, input.dtype), op.constant(input_max, input.dtype))
    return _there_and_back(
        op, input, bounds, signed=signed_input, num_bits=num_bits, round_mode="HALF_TO_EVEN",
        narrow_range=False, axis=-1,
    )  # fmt: skip


@tf_op("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4")
def quantize_and_dequantize_v2(
    op: Context, input: Value, input_min: Value, input_max: Value, /, *,
    signed_input: bool = True, num_bits: int = 8, range_given: bool = False,
    round_mode: str = "HALF_TO_EVEN", narrow_range: bool = False, axis: int = -1,
) -> Value:  # fmt: skip
    """Values quantized and dequantized."""
    return _there_and_back(
        op, input, (input_min, input_max) if range_given else None, signed=signed_input,
        num_bits=num_bits, round_mode=round_mode, narrow_range=narrow_range, axis=axis,
    )  # fmt: skip


@tf_op("QuantizeAndDequantizeV3")
def quantize_and_dequantize_v3(
    op: Context, input: Value, input_min: Value, input_max: Value, num_bits: Value, /, *,
    signed_input: bool = True, range_given: bool = True, narrow_range: bool = False,
    axis: int = -1,
) -> Value:  # fmt: skip
    """Values quantized to `num_bits` bits and dequantized."""
    return _there_and_back(
        op, input, (input_min, input_max) if range_given else None, signed=signed_input,
        num_bits=op.int(num_bits, "a number of bits"), round_mode="HALF_TO_EVEN",
        narrow_range=narrow_range, axis=axis,
    )  # fmt: skip


# -- quantize, dequantize --------------------------------------------------------------------------


@tf_op("QuantizeV2", outputs=("output", "output_min", "output_max"))
def quantize_v2(
    op: Context, input: Value, min_range: Value, max_range: Value, /, *, node: Node,
    mode: str = "MIN_COMBINED", round_mode: str = "HALF_AWAY_FROM_ZERO",
    narrow_range: bool = False, axis: int = -1, ensure_minimum_range: float = 0.01,
) -> list[Value]:  # fmt: skip
    """Values quantized to integers, and the range used."""
    dtype = QUANTIZED[node.attribute("T")]
    low, high = (real(op, _by_axis(op, v, input, axis)) for v in (min_range, max_range))
    size = low.size().most(high.size()).most(1.0)
    bottom = low.least(0.0)
    top = high.most(bottom + size * ensure_minimum_range).most(0.0)
    first, last = bounds_of(dtype)
    if mode == "MIN_COMBINED":
        scale = float(last - first) / (top - bottom)
        steps = op.mul(op.sub(clamp(op, input, bottom, top), bottom.value), scale.value)
        if first:
            steps = away(op, op.sub(steps, (last - first + 1) / 2))
        else:
            steps = op.unary("Floor", op.add(steps, 0.5))
    elif mode == "MIN_FIRST":
        steps = quantize_steps(op, input, bottom, top, dtype)
    elif mode == "SCALED":
        first += int(narrow_range)
        scale = (top * float(last) > 0.0).choose(float(last) / top, MOST)
        if first:
            by_low = (bottom * float(first) > 0.0).choose(float(first) / bottom, MOST)
            scale = by_low.least(scale)
        bottom, top = float(first) / scale, float(last) / scale
        scaled = op.mul(clamp(op, input, bottom, top), scale.value)
        steps = op.unary("Round", scaled) if round_mode == "HALF_TO_EVEN" else away(op, scaled)
    else:
        raise Unsupported(f"mode {mode!r}")
    bounds = [_flat(op, v, axis) for v in (bottom, top)]
    return [op.cast(op.cast(steps, "int32"), dtype), *bounds]


def _flat(op: Context, bound: Numbers, axis: int) -> Value:
    value = bound.value
    return op.reshape(value, (value.shape[0],)) if axis >= 0 else value


def quantize_steps(op: Context, x: Value, low: Numbers, high: Numbers, dtype: str) -> Value:
    """Return values quantized to a range in mode MIN_FIRST: integers in float32."""
    first, last = bounds_of(dtype)
    apart = high - low
    inverse = (float(last - first) / apart.to("float64")).to("float32")
    scale = (apart > 0.0).choose(inverse, 0.0)
    offset = (low * scale).rounded() - float(first)
    rounded = away(op, op.mul(x, scale.value))
    bounds = (max(float(first), -2.147483648e09), min(float(last), 2.147483520e09))
    return op.clip(op.sub(rounded, offset.value), *bounds)


@tf_op("Dequantize")
def dequantize(
    op: Context, input: Value, min_range: Value, max_range: Value, /, *, node: Node,
    mode: str = "MIN_COMBINED", narrow_range: bool = False, axis: int = -1,
) -> Value:  # fmt: skip
    """Quantized integers converted to floats."""
    kind = node.attribute("dtype", "float32")
    low, high = (real(op, _by_axis(op, v, input, axis)) for v in (min_range, max_range))
    first, last = bounds_of(input.dtype)
    x = op.cast(input, "float32")
    if mode == "MIN_COMBINED":
        scale = (high - low) / float(np.float32(last) - np.float32(first))
        x = op.add(x, float((last - first + 1) / 2)) if first else x
        return op.cast(op.add(op.mul(x, scale.value), low.value), kind)
    if mode == "MIN_FIRST":
        return op.cast(dequantize_steps(op, x, low, high, input.dtype), kind)
    if mode == "SCALED":
        scale = high / float(last)
        if first:
            scale = (low / float(first + int(narrow_range))).most(scale)
        return op.cast(op.mul(x, scale.value), kind)
    raise Unsupported(f"mode {mode!r}")


def dequantize_steps(op: Context, x: Value, low: Numbers, high: Numbers, dtype: str) -> Value:
    """Return the values of integers quantized to a range in mode MIN_FIRST."""
    first, last = bounds_of(dtype)
    scale = ((high - low).to("float64") / float(last - first)).to("float32")
    rounded = (low / scale).rounded() * scale
    start = (high > low).choose(rounded, low) - scale * float(first)
    return op.add(op.mul(x, scale.value), start.value)
