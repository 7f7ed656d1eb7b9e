"""Integers that stand for real numbers: ``(q - zero_point) * scale``."""

from typing import Any

from converter.write.torch.graph_module.dtypes import torch_dtype
from converter.write.torch.graph_module.operators import Tensor, operator, torch


@operator("DequantizeLinear")
def dequantize(
    q: Tensor, scale: Tensor, zero_point: Tensor | None = None, *, axis: int = 1,
    block_size: int = 0, output_dtype: int = 0,
) -> Tensor:  # fmt: skip
    """Return the real numbers."""
    factor = _spread(scale, q, axis, block_size)
    wide = q.to(torch.int32) if not q.is_floating_point() else q.to(factor.dtype)
    if zero_point is not None:
        wide = wide - _spread(zero_point, q, axis, block_size).to(wide.dtype)
    made = wide.to(factor.dtype) * factor
    return made.to(torch_dtype(output_dtype)) if output_dtype else made


@operator("QuantizeLinear")
def quantize(
    x: Tensor, scale: Tensor, zero_point: Tensor | None = None, *, axis: int = 1,
    block_size: int = 0, saturate: int = 1, output_dtype: int = 0,
) -> Tensor:  # fmt: skip
    """Return the integers, rounded to even and bounded by their dtype."""
    del saturate
    dtype: Any = torch_dtype(output_dtype) if output_dtype else torch.uint8
    dtype = dtype if zero_point is None else zero_point.dtype
    scaled = x / _spread(scale, x, axis, block_size)
    if dtype.is_floating_point:
        return scaled.to(dtype)
    made = torch.round(scaled)
    if zero_point is not None:
        made = made + _spread(zero_point, x, axis, block_size)
    bounds = torch.iinfo(dtype)
    return torch.clamp(made, bounds.min, bounds.max).to(dtype)


@operator("DynamicQuantizeLinear")
def quantize_by_range(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return bytes that span the range of values, their scale and their zero point."""
    low, high = torch.clamp(x.amin(), max=0), torch.clamp(x.amax(), min=0)
    scale = (high - low) / 255
    zero = torch.clamp(torch.round(-low / scale), 0, 255)
    q = torch.clamp(torch.round(x / scale) + zero, 0, 255)
    return q.to(torch.uint8), scale, zero.to(torch.uint8)


def _spread(values: Tensor, like: Tensor, axis: int, block_size: int) -> Tensor:
    """Return values for each element: one for all, for each index of an axis, or for each block."""
    if block_size:
        return values.repeat_interleave(block_size, axis).narrow(axis, 0, like.shape[axis])
    if values.ndim == 0 or (values.ndim == 1 and like.ndim == 0):
        return values.reshape(())
    shape = [1] * like.ndim
    shape[axis % like.ndim] = -1
    return values.reshape(shape)
