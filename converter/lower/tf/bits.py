"""Bits of integers.

ONNX shifts unsigned integers alone: signed ones are taken for them, and negative ones turned over
before they are shifted to the right.
Spec: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/kernels/cwise_ops.h
(left_shift_op, right_shift_op), population_count_op.cc and compare_and_bitpack_op.cc beside it
"""

import numpy as np

from converter.lower.tf.context import Context
from converter.lower.tf.table import tf_op
from converter.lower.values import Value


def _bitwise(name: str, meaning: str) -> None:
    def handler(op: Context, x: Value, y: Value, /) -> Value:
        return op.elementwise(name, x, y)

    handler.__doc__ = meaning
    tf_op(name)(handler)


_bitwise("BitwiseAnd", "The bits that both have.")
_bitwise("BitwiseOr", "The bits that either has.")
_bitwise("BitwiseXor", "The bits that one of both has.")


@tf_op("Invert")
def invert(op: Context, x: Value, /) -> Value:
    """Every bit turned over."""
    return op.unary("BitwiseNot", x)


# -- shifts ----------------------------------------------------------------------------------------


def shifted(op: Context, x: Value, distance: Value, direction: str) -> Value:
    """Return unsigned integers of 8, 32 or 64 bits, shifted."""
    return op.elementwise("BitShift", x, distance, direction=direction)


def by(op: Context, x: Value, distance: int, direction: str = "RIGHT") -> Value:
    """Return unsigned integers of 8, 32 or 64 bits, shifted by a number."""
    return shifted(op, x, op.constant(distance, x.dtype), direction)


def _bits(dtype: str) -> int:
    return np.dtype(dtype).itemsize * 8


def _distance(op: Context, y: Value, dtype: str) -> Value:
    """Return distances as unsigned ones, held between 0 and the last bit as TensorFlow does."""
    known, most = op.static(y), _bits(y.dtype) - 1
    if known is not None and known.size and known.min() >= 0 and known.max() <= most:
        return op.cast(y, dtype)
    wide = op.cast(y, "int64") if y.dtype != "uint64" else y
    low, high = op.constant(0, wide.dtype), op.constant(most, wide.dtype)
    return op.cast(op.elementwise("Min", op.elementwise("Max", wide, low), high), dtype)


@tf_op("LeftShift")
def left_shift(op: Context, x: Value, y: Value, /) -> Value:
    """X * 2 ** y, without what goes beyond."""
    kind = x.dtype if x.dtype in ("uint8", "uint32", "uint64") else "uint64"
    return op.cast(shifted(op, op.cast(x, kind), _distance(op, y, kind), "LEFT"), x.dtype)


@tf_op("RightShift")
def right_shift(op: Context, x: Value, y: Value, /) -> Value:
    """X / 2 ** y, rounded down."""
    if x.dtype.startswith("u"):
        kind = x.dtype if x.dtype in ("uint8", "uint32", "uint64") else "uint32"
        return op.cast(shifted(op, op.cast(x, kind), _distance(op, y, kind), "RIGHT"), x.dtype)
    wide = op.cast(x, "int64")
    below = op.elementwise("Less", wide, op.constant(0, "int64"))
    turn = op.unary("Neg", op.cast(below, "int64"))  # all bits, or none
    turned = op.cast(op.elementwise("BitwiseXor", wide, turn), "uint64")
    moved = op.cast(shifted(op, turned, _distance(op, y, "uint64"), "RIGHT"), "int64")
    return op.cast(op.elementwise("BitwiseXor", moved, turn), x.dtype)


# -- counts ----------------------------------------------------------------------------------------


@tf_op("PopulationCount")
def population_count(op: Context, x: Value, /) -> Value:
    """How many bits are set: of pairs, of fours, of bytes, and of all."""
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


@tf_op("CompareAndBitpack")
def compare_and_bitpack(op: Context, input: Value, threshold: Value, /) -> Value:
    """Whether elements are above a threshold, eight to a byte, the first in its highest bit."""
    if input.dtype == "bool":
        above = op.elementwise("And", input, op.unary("Not", threshold))
    else:
        above = op.elementwise("Greater", input, threshold)
    last = input.shape[-1]
    size = last // 8 if isinstance(last, int) else None
    eights = op.shaped(
        op.cast(above, "int32"),
        op.concat([*(op.size(input, i) for i in range(input.rank - 1)),
                   op.constant([-1, 8], "int64")], 0),
        [*input.shape[:-1], size, 8],
    )  # fmt: skip
    weights = op.constant([128, 64, 32, 16, 8, 4, 2, 1], "int32")
    return op.cast(op.reduce("ReduceSum", op.mul(eights, weights), [-1]), "uint8")
