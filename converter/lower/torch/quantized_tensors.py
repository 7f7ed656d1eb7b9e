"""Quantized tensors: integers with a scale and a zero point.

The graph holds dequantized values, as DequantizeLinear returns them; quantization is
a QuantizeLinear and a DequantizeLinear, which runtimes fuse with layers of integers. The ops are in
`converter.lower.torch.quantized`.
Spec: https://docs.pytorch.org/docs/2.13/quantization-support.html,
https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from converter.lower.ops import quantize as ops
from converter.lower.torch.compound import Compound
from converter.lower.torch.context import Context
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value, identity
from formats.core.bundle import Encoding

INTEGERS = {"quint8": "uint8", "qint8": "int8", "qint32": "int32"}
BOUNDS = {"quint8": (0, 255), "qint8": (-128, 127)}


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedTensor(Compound):
    """A quantized tensor, whose one part are its dequantized values.

    Attributes:
        scale: Factor of the integers; zero where each channel has its own.
        zero_point: The integer that represents zero.
    """

    scale: float = 0.0
    zero_point: int = 0

    def transposed(self, order: Sequence[int]) -> "QuantizedTensor":
        """Return the tensor with axis ``i`` taken from ``order[i]``."""
        return self.each(lambda part: part.transposed(order))

    def moved(self, real: Value) -> "QuantizedTensor":
        """Return other values with the same scale and zero point."""
        return self.each(lambda _: real)


@dataclass(frozen=True, slots=True)
class Packed:
    """The weights of a quantized layer.

    Attributes:
        weight: Quantized, or plain where it is stored in float16.
        bias: Plain.
        stride: Stride of a convolution; empty for a Linear.
        padding: Likewise.
        dilation: Likewise.
        output_padding: Likewise.
        groups: Likewise.
        transposed: Whether it is a transposed convolution.
        low: Lower bound of the output, of a layer packed for XNNPACK.
        high: Upper bound, likewise.
    """

    weight: Value
    bias: Value | None
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    output_padding: tuple[int, ...] = ()
    groups: int = 1
    transposed: bool = False
    low: float | None = None
    high: float | None = None


def is_quantized(value: Any) -> bool:
    """Return whether a value is or contains a quantized tensor."""
    if isinstance(value, list | tuple):
        return any(is_quantized(one) for one in value)
    return isinstance(value, QuantizedTensor)


def numbers(x: Value) -> Value:
    """Return the dequantized values of a tensor."""
    return x.real if isinstance(x, QuantizedTensor) else x


def of_numbers(real: Value, scale: float, zero_point: int, dtype: str) -> QuantizedTensor:
    """Return numbers that are multiples of a scale as a quantized tensor."""
    order = identity(real.rank)
    return QuantizedTensor(
        "a quantized tensor", dtype, real.shape, order, real.is_constant, (real,), scale, zero_point
    )


def integers(op: Context, x: QuantizedTensor) -> Value:
    """Return the integers of a quantized tensor."""
    if not x.scale:
        raise Unsupported("integers of a tensor with a scale for each channel")
    return _quantize(op, x.real, x.scale, x.zero_point, x.dtype)


def _quantize(op: Context, x: Value, scale: float, zero_point: int, dtype: str) -> Value:
    if dtype not in BOUNDS:
        raise Unsupported(f"numbers quantized to {dtype}")
    low, high = BOUNDS[dtype]
    if not low <= zero_point <= high or not scale > 0:
        raise Unsupported(f"numbers quantized by {scale} about {zero_point}")
    zero = op.constant(zero_point, INTEGERS[dtype])
    return ops.quantize(op, x, op.constant(scale), zero, zero.dtype)


def quantize(op: Context, x: Value, scale: float, zero_point: int, dtype: str) -> QuantizedTensor:
    """Return numbers quantized by a scale and a zero point."""
    made = _quantize(op, x, scale, zero_point, dtype)
    real = ops.dequantize(op, made, op.constant(scale), op.constant(zero_point, made.dtype))
    return of_numbers(real, scale, zero_point, dtype)


def load_quantized(op: Context, name: str, encoding: Encoding) -> QuantizedTensor:
    """Return a quantized tensor of the bundle.

    Args:
        op: Builder.
        name: Name of the tensor.
        encoding: The tensors of the bundle that it consists of.

    Raises:
        Unsupported: The encoding is not known.
    """
    parts, dtype = encoding.parts, encoding.dtype
    if dtype not in INTEGERS or set(parts) != {"values", "scale", "zero_point"}:
        raise Unsupported(f"a tensor {name} of {dtype}")
    value = op.weight(parts["values"])
    scale, zero = (op.weights[parts[role]].numpy() for role in ("scale", "zero_point"))
    axis = encoding.parameters.get("axis", 0)
    if value.dtype != INTEGERS[dtype] or scale.shape != zero.shape or not isinstance(axis, int):
        raise Unsupported(f"a tensor {name} of {dtype}")
    if scale.ndim and (not 0 <= axis < value.rank or scale.shape != (value.shape[axis],)):
        raise Unsupported(f"a tensor {name} of {scale.size} scales")
    if not np.array_equal(zero, np.round(zero)):
        raise Unsupported("zeros that are no integers")
    sides = op.constant(scale, "float32"), op.constant(zero, value.dtype)
    real = ops.dequantize(op, value, *sides, axis=axis if scale.ndim else None)
    if scale.ndim:
        return of_numbers(real, 0.0, 0, dtype)
    return of_numbers(real, float(scale), int(zero), dtype)
