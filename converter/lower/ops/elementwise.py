"""Elementwise functions of two operands that ONNX lacks, exact for zeros, infinities and NaN."""

from math import inf, pi

from converter.lower.builder import Builder
from converter.lower.ops.special import log1p
from converter.lower.values import Value


def is_negative(op: Builder, x: Value) -> Value:
    """Return whether the sign bit is set, for -0 too, whose reciprocal is minus infinity."""
    below = op.elementwise("Less", op.unary("Reciprocal", x), 0.0)
    return op.elementwise("Or", op.elementwise("Less", x, 0.0), below)


def atan2(op: Builder, y: Value, x: Value) -> Value:
    """Return the angle of the point (x, y) in all four quadrants; signs of zeros count."""
    wide, high = op.unary("Abs", x), op.unary("Abs", y)
    least, most = op.elementwise("Min", wide, high), op.elementwise("Max", wide, high)
    same = op.elementwise("Equal", wide, high)  # also if both are infinite, or both zero
    tangent = op.where(same, op.unary("Sign", most), op.div(least, most))
    angle = op.unary("Atan", tangent)
    angle = op.where(op.elementwise("Greater", high, wide), op.sub(pi / 2, angle), angle)
    angle = op.where(is_negative(op, x), op.sub(pi, angle), angle)
    # Multiplied, because onnxruntime's Where turns -0 into 0.
    return op.mul(angle, op.where(is_negative(op, y), op.constant(-1, y.dtype), 1))


def hypot(op: Builder, a: Value, b: Value) -> Value:
    """Return ``sqrt(a * a + b * b)`` without overflow; infinite where either operand is."""
    a, b = op.unary("Abs", a), op.unary("Abs", b)
    most, least = op.elementwise("Max", a, b), op.elementwise("Min", a, b)
    ratio = op.div(least, op.where(op.elementwise("Equal", most, 0.0), 1.0, most))
    length = op.mul(most, op.unary("Sqrt", op.add(op.mul(ratio, ratio), 1.0)))
    infinite = [op.elementwise("Equal", v, inf) for v in (a, b)]
    return op.where(op.elementwise("Or", *infinite), inf, length)


def logaddexp(op: Builder, a: Value, b: Value) -> Value:
    """Return ``log(exp(a) + exp(b))`` without overflow."""
    same = op.elementwise("Equal", a, b)  # also for equal infinities, whose difference is NaN
    away = op.unary("Abs", op.where(same, 0.0, op.sub(a, b)))
    return op.add(op.elementwise("Max", a, b), log1p(op, op.unary("Exp", op.unary("Neg", away))))


def floor_mod(op: Builder, a: Value, b: Value) -> Value:
    """Return the remainder, with the sign of b."""
    if not a.is_float:
        return op.elementwise("Mod", a, b)
    left = op.elementwise("Mod", a, b, fmod=1)
    signs = [op.elementwise("Less", v, 0.0) for v in (left, b)]
    differs = op.unary("Not", op.elementwise("Equal", left, 0.0))
    apart = op.elementwise("And", op.elementwise("Xor", *signs), differs)
    return op.where(apart, op.add(left, b), left)
