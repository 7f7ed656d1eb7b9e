"""Activation functions, with the parameter names of Keras.

NaN yields NaN unless stated otherwise, and no finite input overflows.
"""

from collections.abc import Callable, Sequence
from math import inf, pi, sqrt
from typing import TypeAlias

import numpy as np

from converter.lower import dims
from converter.lower.builder import Builder
from converter.lower.node_builder import Operand
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

Activation: TypeAlias = Callable[..., Value]

SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946

# -- sigmoids --------------------------------------------------------------------------------------


def sigmoid(op: Builder, x: Value) -> Value:
    """`1 / (1 + exp(-x))`."""
    return op.unary("Sigmoid", x)


def hard_sigmoid(op: Builder, x: Value, alpha: float = 1 / 6, beta: float = 0.5) -> Value:
    """`min(max(alpha * x + beta, 0), 1)`, by default `relu6(x + 3) / 6`."""
    return op.unary("HardSigmoid", x, alpha=alpha, beta=beta)


def sparse_sigmoid(op: Builder, x: Value) -> Value:
    """`min(max((x + 1) / 2, 0), 1)`."""
    return hard_sigmoid(op, x, 0.5)


def log_sigmoid(op: Builder, x: Value) -> Value:
    """`-log(1 + exp(-x))`."""
    return op.unary("Neg", softplus(op, op.unary("Neg", x)))


def tanh(op: Builder, x: Value) -> Value:
    """`tanh(x)`."""
    return op.unary("Tanh", x)


def hard_tanh(op: Builder, x: Value, low: float = -1.0, high: float = 1.0) -> Value:
    """`min(max(x, low), high)`."""
    return op.clip(x, low, high)


def softsign(op: Builder, x: Value) -> Value:
    """`x / (1 + abs(x))`."""
    return op.unary("Softsign", x)


# -- rectifiers ------------------------------------------------------------------------------------


def relu(
    op: Builder, x: Value, negative_slope: float = 0.0, max_value: float | None = None,
    threshold: float = 0.0,
) -> Value:  # fmt: skip
    """`min(x, max_value)` if `x > threshold`, else `negative_slope * (x - threshold)`."""
    if threshold == 0 and negative_slope == 0:
        return op.unary("Relu", x) if max_value is None else op.clip(x, 0.0, max_value)
    if threshold == 0 and max_value is None:
        return leaky_relu(op, x, negative_slope)
    below = op.mul(op.sub(x, threshold), negative_slope) if negative_slope else 0.0
    above = x if max_value is None else op.clip(x, 0.0, max_value)
    return op.where(op.elementwise("Greater", x, threshold), above, below)


def relu6(op: Builder, x: Value) -> Value:
    """`min(max(x, 0), 6)`."""
    return op.clip(x, 0, 6)


def leaky_relu(op: Builder, x: Value, negative_slope: float = 0.2) -> Value:
    """`x if x > 0 else negative_slope * x`."""
    return op.unary("LeakyRelu", x, alpha=float(negative_slope))


def prelu(op: Builder, x: Value, slope: Value) -> Value:
    """`x if x > 0 else slope * x`; slopes are broadcast against x."""
    return op.elementwise("PRelu", x, slope)


def thresholded_relu(op: Builder, x: Value, theta: float = 1.0) -> Value:
    """`x * (x > theta)`, which is NaN for minus infinity."""
    return op.mul(x, op.cast(op.elementwise("Greater", x, theta), x.dtype))


def threshold(
    op: Builder, x: Value, threshold: Operand = 0.5, default_value: Operand = 0.0
) -> Value:
    """`x if x > threshold else default_value`; NaN yields default_value."""
    return op.where(op.elementwise("Greater", x, threshold), x, default_value)


# -- exponential units -----------------------------------------------------------------------------


def exponential(op: Builder, x: Value) -> Value:
    """`exp(x)`."""
    return op.unary("Exp", x)


def elu(op: Builder, x: Value, alpha: float = 1.0) -> Value:
    """`x if x > 0 else alpha * (exp(x) - 1)`."""
    return op.unary("Elu", x, alpha=float(alpha))


def selu(op: Builder, x: Value) -> Value:
    """`scale * (x if x > 0 else alpha * (exp(x) - 1))`."""
    return op.unary("Selu", x, alpha=SELU_ALPHA, gamma=SELU_SCALE)


def celu(op: Builder, x: Value, alpha: float = 1.0) -> Value:
    """`max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)`."""
    return op.unary("Celu", x, alpha=float(alpha))


# -- smooth units ----------------------------------------------------------------------------------


def softplus(op: Builder, x: Value, beta: float = 1.0, threshold: float = inf) -> Value:
    """`log(1 + exp(beta * x)) / beta`, and x where `beta * x > threshold`."""
    scaled = x if beta == 1 else op.mul(x, beta)
    result = op.unary("Softplus", scaled)
    result = result if beta == 1 else op.div(result, beta)
    # Beyond 20 the two are equal in float32.
    if threshold == inf or (threshold >= 20 and x.dtype != "float64"):
        return result
    return op.where(op.elementwise("Greater", scaled, threshold), x, result)


def squareplus(op: Builder, x: Value, b: float = 4.0) -> Value:
    """`(x + sqrt(x * x + b)) / 2`."""
    root = op.unary("Sqrt", op.add(op.mul(x, x), b))
    return op.mul(op.add(x, root), 0.5)


def sparse_plus(op: Builder, x: Value) -> Value:
    """`0 if x <= -1 else x if x >= 1 else (x + 1)**2 / 4`."""
    near = op.add(x, 1.0)
    curve = op.mul(op.mul(near, near), 0.25)
    upper = op.where(op.elementwise("Less", x, 1.0), curve, x)
    return op.where(op.elementwise("LessOrEqual", x, -1.0), 0.0, upper)


def gelu(op: Builder, x: Value, approximate: bool = False) -> Value:
    """`x * P(X <= x)` for standard normal X: computed by erf, or approximated by tanh."""
    if approximate:
        cube = op.mul(op.mul(x, x), x)
        inner = op.mul(op.add(x, op.mul(cube, 0.044715)), sqrt(2 / pi))
        return op.mul(op.mul(x, 0.5), op.add(op.unary("Tanh", inner), 1.0))
    # Runtimes fuse these operations to Gelu in this order.
    error = op.unary("Erf", op.div(x, sqrt(2)))
    return op.mul(op.mul(x, op.add(error, 1.0)), 0.5)


def silu(op: Builder, x: Value) -> Value:
    """`x * sigmoid(x)`."""
    return op.mul(x, op.unary("Sigmoid", x))


def hard_silu(op: Builder, x: Value) -> Value:
    """`x * relu6(x + 3) / 6`."""
    return op.mul(x, hard_sigmoid(op, x))


def mish(op: Builder, x: Value) -> Value:
    """`x * tanh(softplus(x))`."""
    return op.mul(x, op.unary("Tanh", softplus(op, x)))


def glu(op: Builder, x: Value, axis: int = -1) -> Value:
    """`a * sigmoid(b)` for the halves a and b of x along an axis."""
    axis = x.axis(axis)
    n = x.shape[axis]
    if isinstance(n, int) and n % 2:
        raise Unsupported(f"glu over an axis of {n} elements, which is odd")
    shape = (*x.shape[:axis], dims.divide_exactly(n, 2), *x.shape[axis + 1 :])
    a, b = op.node(
        "Split", [op.plain(x)], [(x.dtype, shape)] * 2,
        attributes={"axis": axis, "num_outputs": 2},
    )  # fmt: skip
    return op.mul(a, op.unary("Sigmoid", b))


# -- shrinkage -------------------------------------------------------------------------------------


def tanh_shrink(op: Builder, x: Value) -> Value:
    """`x - tanh(x)`."""
    return op.sub(x, op.unary("Tanh", x))


def soft_shrink(op: Builder, x: Value, threshold: float = 0.5) -> Value:
    """`x - threshold` above threshold, `x + threshold` below -threshold, else 0 (also for NaN)."""
    return op.unary("Shrink", x, bias=float(threshold), lambd=float(threshold))


def hard_shrink(op: Builder, x: Value, threshold: float = 0.5) -> Value:
    """`x if abs(x) > threshold else 0`; NaN yields 0."""
    return op.unary("Shrink", x, bias=0.0, lambd=float(threshold))


# -- over axes -------------------------------------------------------------------------------------


def softmax(op: Builder, x: Value, axis: int | Sequence[int] = -1) -> Value:
    """`exp(x) / sum(exp(x))` over an axis, or over several."""
    if isinstance(axis, int):
        return _along(op, x, axis, "Softmax")
    peak = op.reduce("ReduceMax", x, axis, keepdims=True)
    powers = op.unary("Exp", op.sub(x, peak))
    return op.div(powers, op.reduce("ReduceSum", powers, axis, keepdims=True))


def log_softmax(op: Builder, x: Value, axis: int | Sequence[int] = -1) -> Value:
    """`x - log(sum(exp(x)))` over an axis, or over several."""
    if isinstance(axis, int):
        return _along(op, x, axis, "LogSoftmax")
    away = op.sub(x, op.reduce("ReduceMax", x, axis, keepdims=True))
    total = op.reduce("ReduceSum", op.unary("Exp", away), axis, keepdims=True)
    return op.sub(away, op.unary("Log", total))


def _along(op: Builder, x: Value, axis: int, op_type: str) -> Value:
    if x.rank == 0:
        return op.reshape(op.softmax(op.reshape(x, (1,)), 0, op_type), ())
    return op.softmax(x, axis, op_type)


def safe_softmax(op: Builder, x: Value, axis: int = -1) -> Value:
    """`softmax(x)` along an axis, or zeros where all elements are minus infinity."""
    peak = op.reduce("ReduceMax", x, [axis], keepdims=True)
    return op.where(op.elementwise("Equal", peak, -inf), 0.0, op.softmax(x, axis))


def sparsemax(op: Builder, x: Value, axis: int = -1) -> Value:
    """`max(x - tau, 0)` along an axis of static size, with the tau of Keras."""
    axis = x.axis(axis)
    size = x.shape[axis]
    if not isinstance(size, int):
        raise Unsupported("sparsemax over an axis of unknown size")
    ordered, _ = op.node(
        "TopK", [op.plain(x), op.constant([size], "int64")],
        [(x.dtype, x.shape), ("int64", x.shape)], attributes={"axis": axis},
    )  # fmt: skip
    sums = op.emit("CumSum", ordered, op.constant(axis, "int64"), dtype=x.dtype, shape=x.shape)
    shape = [size if i == axis else 1 for i in range(x.rank)]
    ranks = op.constant(np.arange(1, size + 1).reshape(shape), x.dtype)
    support = op.elementwise("Greater", op.add(op.mul(ordered, ranks), 1.0), sums)
    count = op.reduce("ReduceSum", op.cast(support, x.dtype), [axis], keepdims=True)
    # The exact projection uses only the last of these sums; Keras backends add all of them.
    inside = op.reduce("ReduceSum", op.where(support, sums, 0.0), [axis], keepdims=True)
    tau = op.div(op.sub(inside, 1.0), count)
    return op.unary("Relu", op.sub(x, tau))
