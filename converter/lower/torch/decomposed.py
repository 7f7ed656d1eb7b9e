"""Quantization in exported programs: integers as tensors of their own (``quantized_decomposed``).

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/ao/quantization/fx/_decomposed.py
"""

import numpy as np

from converter.lower.graph import Attribute
from converter.lower.torch.context import Context
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

BOUNDS = {"uint8": (0, 255), "int8": (-128, 127)}


def _integers(
    op: Context, x: Value, scale: Value, zero: Value, quant_min: int, quant_max: int, dtype: str,
    axis: int | None = None,
) -> Value:  # fmt: skip
    """Return the integers that stand for numbers, between two of them."""
    if dtype not in BOUNDS:
        raise Unsupported(f"numbers quantized to {dtype}")
    op._outermost.rounded = True
    attributes: dict[str, Attribute] = {} if axis is None else {"axis": x.axis(axis)}
    inputs = [op.outer(op.cast(x, "float32")), op.cast(scale, "float32"), op.cast(zero, dtype)]
    (made,) = op.node("QuantizeLinear", inputs, [(dtype, x.shape)], attributes=attributes)
    if (quant_min, quant_max) == BOUNDS[dtype]:
        return made
    low, high = (op.constant(n, dtype) for n in (quant_min, quant_max))
    return op.elementwise("Min", op.elementwise("Max", made, low), high)


def _numbers(
    op: Context, x: Value, scale: Value, zero: Value, out_dtype: str | None,
    axis: int | None = None,
) -> Value:  # fmt: skip
    """Return the numbers that integers stand for."""
    if out_dtype not in (None, "float32"):
        raise Unsupported(f"numbers of {out_dtype}")
    attributes: dict[str, Attribute] = {} if axis is None else {"axis": x.axis(axis)}
    inputs = [op.outer(x), op.cast(scale, "float32"), op.cast(zero, x.dtype)]
    return op.node("DequantizeLinear", inputs, [("float32", x.shape)], attributes=attributes)[0]


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
    """The integers that stand for numbers at equal distances."""
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
    """The numbers that integers stand for."""
    del quant_min, quant_max, dtype  # as it was made with
    sides = _one(op, scale, "float32"), _one(op, zero_point, "int64")
    return _numbers(op, input, *sides, out_dtype)


@aten("quantized_decomposed.quantize_per_channel")
def quantize_per_channel(
    op: Context, input: Value, scales: Value, zero_points: Value, axis: int, quant_min: int,
    quant_max: int, dtype: str,
) -> Value:  # fmt: skip
    """The integers that stand for numbers, each channel's at distances of its own."""
    return _integers(op, input, scales, zero_points, quant_min, quant_max, dtype, axis)


@aten("quantized_decomposed.dequantize_per_channel")
def dequantize_per_channel(
    op: Context, input: Value, scales: Value, zero_points: Value | None, axis: int,
    quant_min: int, quant_max: int, dtype: str, out_dtype: str | None = None,
) -> Value:  # fmt: skip
    """The numbers that integers stand for, by channels."""
    del quant_min, quant_max, dtype
    zeros = zero_points
    if zeros is None:
        zeros = op.filled(op.named(scales).shape, 0, input.dtype)
    return _numbers(op, input, scales, zeros, out_dtype, axis)


@aten("quantized_decomposed.choose_qparams.tensor")
def choose_qparams(
    op: Context, input: Value, quant_min: int, quant_max: int, eps: float, dtype: str
) -> list[Value]:
    """The distance and the zero that a tensor's numbers want."""
    del dtype
    flat = op.outer(op.cast(input, "float32"))
    zero = op.constant(0.0, "float32")
    ends = []
    for pick in ("Min", "Max"):
        (end,) = op.node(f"Reduce{pick}", [flat], [("float32", ())], attributes={"keepdims": 0})
        ends.append(op.elementwise(pick, end, zero))
    steps = float(quant_max - quant_min)
    scale = op.div(op.sub(ends[1], ends[0]), steps)
    scale = op.elementwise("Max", scale, op.constant(np.float32(eps)))
    middle = op.sub(float(quant_min), op.unary("Round", op.div(ends[0], scale)))
    held = op.clip(middle, float(quant_min), float(quant_max))
    wide = op.cast(scale, "float64")
    return [op.reshape(wide, (1,)), op.reshape(op.cast(held, "int64"), (1,))]
