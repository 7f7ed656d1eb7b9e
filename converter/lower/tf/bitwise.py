"""Bitwise ops, shifts and bitcasts.

ONNX shifts unsigned integers only: signed ones are reinterpreted as unsigned, and the bits of
negative ones are inverted before and after a right shift.
Spec: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/kernels/cwise_ops.h
(left_shift_op, right_shift_op), population_count_op.cc and bitcast_op.cc in the same directory
"""

from dataclasses import dataclass
from math import log

import numpy as np

from converter.lower.table import Variant
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import QUANTIZED, Node
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value


@tf_op(
    Variant("BitwiseAnd", "Bitwise AND.", name="BitwiseAnd"),
    Variant("BitwiseOr", "Bitwise OR.", name="BitwiseOr"),
    Variant("BitwiseXor", "Bitwise exclusive OR.", name="BitwiseXor"),
)
def bitwise(op: Context, x: Value, y: Value, /, *, name: str) -> Value:
    """Bitwise function of two tensors."""
    return op.elementwise(name, x, y)


@tf_op("Invert")
def invert(op: Context, x: Value, /) -> Value:
    """Bitwise NOT."""
    return op.unary("BitwiseNot", x)


# -- shifts ----------------------------------------------------------------------------------------


def shift(op: Context, x: Value, distance: Value, direction: str) -> Value:
    """Shift unsigned integers of 8, 32 or 64 bits."""
    return op.elementwise("BitShift", x, distance, direction=direction)


def by(op: Context, x: Value, distance: int, direction: str = "RIGHT") -> Value:
    """Shift unsigned integers of 8, 32 or 64 bits by a constant."""
    return shift(op, x, op.constant(distance, x.dtype), direction)


def _bits(dtype: str) -> int:
    return np.dtype(dtype).itemsize * 8


def _distance(op: Context, y: Value, dtype: str) -> Value:
    """Return shift distances as unsigned integers, clamped to [0, bits - 1] as in TensorFlow."""
    known, most = op.static(y), _bits(y.dtype) - 1
    if known is not None and known.size and known.min() >= 0 and known.max() <= most:
        return op.cast(y, dtype)
    wide = op.cast(y, "int64") if y.dtype != "uint64" else y
    low, high = op.constant(0, wide.dtype), op.constant(most, wide.dtype)
    return op.cast(op.elementwise("Min", op.elementwise("Max", wide, low), high), dtype)


@tf_op("LeftShift")
def left_shift(op: Context, x: Value, y: Value, /) -> Value:
    """`x * 2 ** y`; overflowing bits are dropped."""
    kind = x.dtype if x.dtype in ("uint8", "uint32", "uint64") else "uint64"
    return op.cast(shift(op, op.cast(x, kind), _distance(op, y, kind), "LEFT"), x.dtype)


@tf_op("RightShift")
def right_shift(op: Context, x: Value, y: Value, /) -> Value:
    """`x / 2 ** y`, rounded down."""
    if x.dtype.startswith("u"):
        kind = x.dtype if x.dtype in ("uint8", "uint32", "uint64") else "uint32"
        return op.cast(shift(op, op.cast(x, kind), _distance(op, y, kind), "RIGHT"), x.dtype)
    wide = op.cast(x, "int64")
    below = op.elementwise("Less", wide, op.constant(0, "int64"))
    turn = op.unary("Neg", op.cast(below, "int64"))  # all bits, or none
    turned = op.cast(op.elementwise("BitwiseXor", wide, turn), "uint64")
    moved = op.cast(shift(op, turned, _distance(op, y, "uint64"), "RIGHT"), "int64")
    return op.cast(op.elementwise("BitwiseXor", moved, turn), x.dtype)


# -- counts ----------------------------------------------------------------------------------------


@tf_op("PopulationCount")
def population_count(op: Context, x: Value, /) -> Value:
    """Number of bits that are set, by parallel sums of 2, 4 and 8 bits."""
    bits = _bits(x.dtype)
    kind = "uint64" if bits == 64 else "uint32"
    value = op.cast(op.cast(x, f"uint{bits}"), kind)
    width = _bits(kind)
    fives, threes, fs, ones = (
        op.constant(int(f"{byte * (width // 8)}", 16), kind) for byte in ("55", "33", "0f", "01")
    )
    pairs = op.sub(value, op.elementwise("BitwiseAnd", by(op, value, 1), fives))
    low = op.elementwise("BitwiseAnd", pairs, threes)
    fours = op.add(low, op.elementwise("BitwiseAnd", by(op, pairs, 2), threes))
    eights = op.elementwise("BitwiseAnd", op.add(fours, by(op, fours, 4)), fs)
    return op.cast(by(op, op.mul(eights, ones), width - 8), "uint8")


# -- bitcasts --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Format:
    """A floating-point format: a sign bit, and the numbers of exponent and fraction bits."""

    exponent: int
    fraction: int

    @property
    def bits(self) -> int:
        """The total number of bits."""
        return 1 + self.exponent + self.fraction

    @property
    def bias(self) -> int:
        """The bias of the exponent."""
        return (1 << (self.exponent - 1)) - 1

    @property
    def infinity(self) -> int:
        """The bit pattern of infinity."""
        return ((1 << self.exponent) - 1) << self.fraction


FORMATS = {
    "float16": Format(5, 10), "bfloat16": Format(8, 7), "float32": Format(8, 23),
    "float64": Format(11, 52),
}  # fmt: skip


def _width(dtype: str) -> int:
    if dtype in FORMATS:
        return FORMATS[dtype].bits
    if dtype not in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        raise Unsupported(f"the bits of {dtype}")
    return _bits(dtype)


def bits_of(op: Context, x: Value) -> Value:
    """Return the bits of floating-point numbers as int64; every NaN is the canonical one."""
    form = FORMATS[x.dtype]
    wide = op.cast(x, "float64")
    size = op.unary("Abs", wide)
    least = 1 - form.bias
    special = op.elementwise("Or", op.unary("IsNaN", size), op.unary("IsInf", size))
    size = op.where(special, 1.0, size)
    power = op.unary("Floor", op.div(op.unary("Log", size), log(2)))
    power = op.clip(power, least, form.bias)
    two = op.constant(2.0, "float64")
    part = op.div(size, op.elementwise("Pow", two, power))
    # The logarithm may be rounded to the next integer.
    more = op.elementwise("GreaterOrEqual", part, 2.0)
    few = op.elementwise(
        "And", op.elementwise("Less", part, 1.0), op.elementwise("Greater", power, float(least))
    )
    power = op.sub(op.add(power, op.cast(more, "float64")), op.cast(few, "float64"))
    part = op.div(size, op.elementwise("Pow", two, power))
    fraction = op.cast(op.mul(part, float(1 << form.fraction)), "int64")
    above = op.cast(op.add(power, float(form.bias - 1)), "int64")
    found = op.add(fraction, op.mul(above, 1 << form.fraction))
    infinite = op.where(op.unary("IsNaN", wide), form.infinity + (1 << (form.fraction - 1)),
                        op.constant(form.infinity, "int64"))  # fmt: skip
    found = op.where(special, infinite, found)
    zero = op.constant(0.0, "float64")
    below = op.elementwise("Less", wide, zero)
    minus = op.elementwise("And", op.elementwise("Equal", wide, zero),
                           op.elementwise("Less", op.unary("Reciprocal", wide), zero))  # fmt: skip
    sign = op.cast(op.elementwise("Or", below, minus), "int64")
    mask = -(1 << 63) if form.bits == 64 else 1 << (form.bits - 1)
    return op.add(found, op.mul(sign, mask))


def of_bits(op: Context, bits: Value, dtype: str) -> Value:
    """Convert bit patterns (int64) to floating-point numbers."""
    form = FORMATS[dtype]
    plain = op.cast(bits, "uint64")
    size = op.elementwise("BitwiseAnd", plain, op.constant((1 << (form.bits - 1)) - 1, "uint64"))
    power = op.cast(by(op, size, form.fraction), "int64")
    fraction = op.cast(
        op.elementwise("BitwiseAnd", size, op.constant((1 << form.fraction) - 1, "uint64")), "int64"
    )
    none = op.elementwise("Equal", power, 0)
    part = op.where(none, fraction, op.add(fraction, 1 << form.fraction))
    power_of = op.sub(op.elementwise("Max", power, 1), form.bias + form.fraction)
    two = op.constant(2.0, "float64")
    value = op.mul(
        op.cast(part, "float64"), op.elementwise("Pow", two, op.cast(power_of, "float64"))
    )
    special = op.elementwise("Equal", power, (1 << form.exponent) - 1)
    nothing = op.elementwise("Equal", fraction, 0)
    odd = op.where(nothing, np.inf, op.constant(np.nan, "float64"))
    value = op.where(special, odd, value)
    sign = op.elementwise("Equal", by(op, plain, form.bits - 1), op.constant(1, "uint64"))
    if form.bits < 64:
        sign = op.elementwise(
            "Equal",
            op.elementwise("BitwiseAnd", by(op, plain, form.bits - 1), op.constant(1, "uint64")),
            op.constant(1, "uint64"),
        )
    side = op.where(sign, -1.0, op.constant(1.0, "float64"))
    return op.cast(op.mul(value, side), dtype)


@tf_op("Bitcast")
def bitcast(op: Context, input: Value, /, *, node: Node) -> Value:
    """The bits as another dtype; a smaller one adds a last axis, a larger one removes it."""
    wanted = node.attribute("type")
    dtype = QUANTIZED.get(wanted, wanted)
    own, other = _width(input.dtype), _width(dtype)
    if input.dtype == dtype:
        return input
    if own == other and input.dtype not in FORMATS and dtype not in FORMATS:
        return op.cast(input, dtype)
    x = bits_of(op, input) if input.dtype in FORMATS else op.cast(input, f"uint{own}")
    if own > other:
        places = op.constant(np.arange(0, own, other), "uint64")
        x = shift(op, op.unsqueeze(op.cast(x, "uint64"), [x.rank]), places, "RIGHT")
        if dtype in FORMATS:
            mask = op.constant((1 << other) - 1, "uint64")
            x = op.elementwise("BitwiseAnd", x, mask)
    elif own < other:
        x = op.cast(op.cast(x, f"uint{own}"), "uint64")
        parts = [op.gather(x, op.constant(i, "int64"), -1) for i in range(other // own)]
        x = parts[0]
        for i, part in enumerate(parts[1:], start=1):
            x = op.elementwise("BitwiseOr", x, by(op, part, i * own, "LEFT"))
    if dtype in FORMATS:
        return of_bits(op, op.cast(x, "int64"), dtype)
    return op.cast(x, dtype)


@tf_op("NextAfter")
def next_after(op: Context, x1: Value, x2: Value, /) -> Value:
    """The floating-point number next to `x1` in the direction of `x2`."""
    ordered = [_in_order(op, v) for v in (x1, x2)]
    first, second = ordered
    up = op.cast(op.elementwise("Less", first, second), "int64")
    down = op.cast(op.elementwise("Greater", first, second), "int64")
    found = op.sub(op.add(first, up), down)
    form = FORMATS[x1.dtype]
    least = -(1 << 63) if form.bits == 64 else 1 << (form.bits - 1)
    below = op.elementwise("Less", found, 0)
    size = op.unary("Abs", found)
    bits = op.where(below, op.add(size, least), size)
    result = of_bits(op, bits, x1.dtype)
    odd = op.elementwise("Or", op.unary("IsNaN", x1), op.unary("IsNaN", x2))
    same = op.elementwise("Equal", x1, x2)
    return op.where(odd, op.add(x1, x2), op.where(same, x2, result))


def _in_order(op: Context, x: Value) -> Value:
    """Map floating-point numbers to integers in the same order; neighbors stay adjacent."""
    size = bits_of(op, op.unary("Abs", x))
    return op.where(op.elementwise("Less", x, op.constant(0, x.dtype)), op.unary("Neg", size), size)
