"""Quantization in exported programs: integers as tensors of their own (``quantized_decomposed``).

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/ao/quantization/fx/_decomposed.py
"""

import numpy as np

from converter.lower.ops import quantize as ops
from converter.lower.torch.context import Context
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


def _integers(
    op: Context, x: Value, scale: Value, zero: Value, quant_min: int, quant_max: int, dtype: str,
    axis: int | None = None,
) -> Value:  # fmt: skip
    bounds = (quant_min, quant_max)
    return ops.quantize(op, op.outer(x), scale, zero, dtype, axis=axis, bounds=bounds)


def _numbers(
    op: Context, x: Value, scale: Value, zero: Value, out_dtype: str | None,
    axis: int | None = None,
) -> Value:  # fmt: skip
    if out_dtype not in (None, "float32"):
        raise Unsupported(f"numbers of {out_dtype}")
    return ops.dequantize(op, op.outer(x), scale, zero, axis=axis)


def _one(op: Context, number: Value | float, dtype: str) -> Value:
    """Return a number as a tensor without axes."""
    if isinstance(number, Value):
        return op.reshape(number, ()) if number.rank else number
    return op.constant(number, dtype)


@aten(
    "quantized_decomposed.quantize_per_tensor", "quantized_decomposed.quantize_per_tensor.tensor",
    "quantized_decomposed.quantize_per_tensor.tensor2",
)  # fmt: skip
def quantize_per_tensor(
    op: Context, input: Value, scale: Value | float, zero_point: Value | int,
    quant_min: Value | int, quant_max: Value | int, dtype: str,
) -> Value:  # fmt: skip
    """Affine quantization with one scale: `round(x / scale) + zero_point`, clipped."""
    if not isinstance(quant_min, int) or not isinstance(quant_max, int):
        raise Unsupported("bounds that tensors say")
    sides = _one(op, scale, "float32"), _one(op, zero_point, "int64")
    return _integers(op, input, *sides, quant_min, quant_max, dtype)


@aten(
    "quantized_decomposed.dequantize_per_tensor",
    "quantized_decomposed.dequantize_per_tensor.tensor",
    "quantized_decomposed.dequantize_per_tensor.tensor2",
)  # fmt: skip
def dequantize_per_tensor(
    op: Context, input: Value, scale: Value | float, zero_point: Value | int,
    quant_min: Value | int, quant_max: Value | int, dtype: str, out_dtype: str | None = None,
) -> Value:  # fmt: skip
    """Affine dequantization: `(q - zero_point) * scale`."""
    del quant_min, quant_max, dtype  # as it was made with
    sides = _one(op, scale, "float32"), _one(op, zero_point, "int64")
    return _numbers(op, input, *sides, out_dtype)


@aten("quantized_decomposed.quantize_per_channel")
def quantize_per_channel(
    op: Context, input: Value, scales: Value, zero_points: Value, axis: int, quant_min: int,
    quant_max: int, dtype: str,
) -> Value:  # fmt: skip
    """Affine quantization with a scale for each channel."""
    return _integers(op, input, scales, zero_points, quant_min, quant_max, dtype, axis)


@aten("quantized_decomposed.dequantize_per_channel")
def dequantize_per_channel(
    op: Context, input: Value, scales: Value, zero_points: Value | None, axis: int,
    quant_min: int, quant_max: int, dtype: str, out_dtype: str | None = None,
) -> Value:  # fmt: skip
    """Affine dequantization with a scale for each channel."""
    del quant_min, quant_max, dtype
    zeros = zero_points
    if zeros is None:
        zeros = op.filled(op.named(scales).shape, 0, input.dtype)
    return _numbers(op, input, scales, zeros, out_dtype, axis)


@aten("quantized_decomposed.choose_qparams.tensor")
def choose_qparams(
    op: Context, input: Value, quant_min: int, quant_max: int, eps: float, dtype: str
) -> list[Value]:
    """The scale and zero point of a tensor's range."""
    del dtype
    low, high = ops.extremes_with_zero(op, input)
    steps = float(quant_max - quant_min)
    scale = op.div(op.sub(high, low), steps)
    scale = op.elementwise("Max", scale, op.constant(np.float32(eps)))
    middle = op.sub(float(quant_min), op.unary("Round", op.div(low, scale)))
    held = op.clip(middle, float(quant_min), float(quant_max))
    wide = op.cast(scale, "float64")
    return [op.reshape(wide, (1,)), op.reshape(op.cast(held, "int64"), (1,))]
