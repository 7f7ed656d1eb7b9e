"""Activations of neural networks.

Spec: https://docs.pytorch.org/docs/2.13/nn.functional.html#non-linear-activation-functions
"""

import math

from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Scalar
from converter.lower.torch.promotion import kind
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

ALPHA = 1.6732632423543772848170429916717
SCALE = 1.0507009873554804934193349852946


@aten("relu")
def relu(op: Context, self: Value) -> Value:
    """max(x, 0)."""
    return op.unary("Relu", self)


@aten("relu6")
def relu6(op: Context, self: Value) -> Value:
    """min(max(x, 0), 6)."""
    return op.clip(self, 0, 6)


@aten("hardtanh")
def hardtanh(op: Context, self: Value, min_val: float = -1, max_val: float = 1) -> Value:
    """X, held between two bounds."""
    return op.clip(self, min_val, max_val)


@aten("leaky_relu")
def leaky_relu(op: Context, self: Value, negative_slope: float = 0.01) -> Value:
    """X if x > 0, else x times the slope."""
    return op.unary("LeakyRelu", self, alpha=float(negative_slope))


@aten("elu")
def elu(
    op: Context, self: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> Value:
    """Scale * (x if x > 0, else alpha * (exp(input_scale * x) - 1))."""
    if input_scale == 1:
        x = op.unary("Elu", self, alpha=float(alpha))
        return x if scale == 1 else op.mul(x, scale)
    below = op.mul(op.sub(op.unary("Exp", op.mul(self, input_scale)), 1.0), alpha)
    positive = op.elementwise("Greater", self, op.constant(0.0, self.dtype))
    return op.mul(op.where(positive, self, below), scale)


@aten("celu")
def celu(op: Context, self: Value, alpha: float = 1.0) -> Value:
    """X if x > 0, else alpha * (exp(x / alpha) - 1)."""
    return op.unary("Celu", self, alpha=float(alpha))


@aten("selu")
def selu(op: Context, self: Value) -> Value:
    """Elu with the constants that normalise."""
    return op.unary("Selu", self, alpha=ALPHA, gamma=SCALE)


@aten("silu")
def silu(op: Context, self: Value) -> Value:
    """X * sigmoid(x)."""
    return op.mul(self, op.unary("Sigmoid", self))


@aten("mish")
def mish(op: Context, self: Value) -> Value:
    """X * tanh(softplus(x))."""
    return op.mul(self, op.unary("Tanh", op.unary("Softplus", self)))


@aten("gelu")
def gelu(op: Context, self: Value, approximate: str = "none") -> Value:
    """X * (1 + erf(x / sqrt(2))) / 2, or with tanh."""
    if approximate == "none":  # spelled as runtimes know it
        root = op.constant(math.sqrt(2.0), self.dtype)
        inner = op.add(op.unary("Erf", op.div(self, root)), 1.0)
        return op.mul(op.mul(self, inner), 0.5)
    if approximate != "tanh":
        raise Unsupported(f"approximate = {approximate!r}")
    cube = op.mul(op.mul(self, self), self)
    inner = op.mul(op.add(self, op.mul(cube, 0.044715)), math.sqrt(2 / math.pi))
    return op.mul(op.mul(self, 0.5), op.add(op.unary("Tanh", inner), 1.0))


@aten("softplus")
def softplus(op: Context, self: Value, beta: Scalar = 1, threshold: Scalar = 20) -> Value:
    """log(1 + exp(beta * x)) / beta, and x where beta * x is over the threshold."""
    if not isinstance(beta, int | float) or not isinstance(threshold, int | float):
        raise Unsupported("bounds that are computed from the inputs")
    x = self if beta == 1 else op.mul(self, float(beta))
    found = op.unary("Softplus", x)
    found = found if beta == 1 else op.div(found, float(beta))
    if threshold >= 20:  # there the two differ by less than a float32 holds
        return found
    return op.where(op.elementwise("Greater", x, op.constant(threshold, x.dtype)), self, found)


@aten("softsign")
def softsign(op: Context, self: Value) -> Value:
    """X / (1 + abs(x))."""
    return op.unary("Softsign", self)


@aten("tanhshrink")
def tanhshrink(op: Context, self: Value) -> Value:
    """X - tanh(x)."""
    return op.sub(self, op.unary("Tanh", self))


@aten("hardsigmoid")
def hardsigmoid(op: Context, self: Value) -> Value:
    """min(max(x + 3, 0), 6) / 6."""
    return op.unary("HardSigmoid", self, alpha=1 / 6, beta=0.5)


@aten("hardswish")
def hardswish(op: Context, self: Value) -> Value:
    """X * min(max(x + 3, 0), 6) / 6."""
    return op.mul(self, hardsigmoid(op, self))


@aten("hardshrink")
def hardshrink(op: Context, self: Value, lambd: float = 0.5) -> Value:
    """X, and 0 between -lambd and lambd."""
    inside = op.elementwise("LessOrEqual", op.unary("Abs", self), op.constant(lambd, self.dtype))
    return op.where(inside, op.constant(0.0, self.dtype), self)


@aten("softshrink")
def softshrink(op: Context, self: Value, lambd: float = 0.5) -> Value:
    """X moved towards zero by lambd, and 0 nearer than that."""
    found = op.unary("Shrink", self, lambd=float(lambd), bias=float(lambd))
    return op.where(op.unary("IsNaN", self), self, found)


@aten("threshold")
def threshold(op: Context, self: Value, threshold: Scalar, value: Scalar) -> Value:
    """X where it is over the threshold, else the value."""
    under = op.elementwise("LessOrEqual", self, op.scalar(threshold, self.dtype))
    return op.where(under, op.scalar(value, self.dtype), self)


@aten("log_sigmoid", "special_log_sigmoid")
def log_sigmoid(op: Context, self: Value) -> Value:
    """-log(1 + exp(-x))."""
    return op.unary("Neg", op.unary("Softplus", op.unary("Neg", self)))


@aten("log_sigmoid_forward")
def log_sigmoid_forward(op: Context, self: Value) -> list[Value]:
    """-log(1 + exp(-x)), and a buffer that only training reads."""
    return [log_sigmoid(op, self), op.constant([0.0], self.dtype)]


@aten("prelu", "_prelu_kernel")
def prelu(op: Context, self: Value, weight: Value) -> Value:
    """X if x > 0, else x times its channel's weight."""
    if weight.rank == 1 and self.rank > 1:
        weight = op.reshape(weight, (1, *weight.shape, *[1] * (self.rank - 2)))
    elif weight.rank == 1:
        weight = op.squeeze(weight, [0]) if self.rank == 0 else weight
    return op.elementwise("PRelu", self, weight)


@aten("glu")
def glu(op: Context, self: Value, dim: int = -1) -> Value:
    """One half of x times the sigmoid of the other."""
    axis = self.axis(dim)
    n = op.axis_of(self, axis)
    middle = op.floordiv(n, 2)
    first = op.cut(self, axis, 0, middle)
    second = op.cut(self, axis, middle, n)
    second = op.shaped(second, first.shape)
    return op.mul(first, op.unary("Sigmoid", second))


@aten("softmax.int", "_softmax", "special_softmax")
def softmax(
    op: Context, self: Value, dim: int, half_to_float: bool | None = None,
    dtype: str | None = None,
) -> Value:  # fmt: skip
    """exp(x), divided by its sum along an axis."""
    return _softmax(op, "Softmax", self, dim, half_to_float, dtype)


@aten("log_softmax.int", "_log_softmax", "special_log_softmax")
def log_softmax(
    op: Context, self: Value, dim: int, half_to_float: bool | None = None,
    dtype: str | None = None,
) -> Value:  # fmt: skip
    """The logarithm of softmax."""
    return _softmax(op, "LogSoftmax", self, dim, half_to_float, dtype)


@aten("softmin")
def softmin(op: Context, self: Value, dim: int, dtype: str | None = None) -> Value:
    """The softmax of -x."""
    return _softmax(op, "Softmax", op.unary("Neg", self), dim, None, dtype)


@aten("_safe_softmax")
def safe_softmax(op: Context, self: Value, dim: int, dtype: str | None = None) -> Value:
    """The softmax, and zeros where all of x is minus infinity."""
    x = self if dtype is None else op.cast(self, dtype)
    axis = x.axis(dim)
    most = op.reduce("ReduceMax", x, [axis], keepdims=True)
    masked = op.elementwise("Equal", most, op.constant(-math.inf, x.dtype))
    return op.where(masked, op.constant(0.0, x.dtype), op.softmax(x, axis))


def _softmax(
    op: Context, op_type: str, x: Value, dim: int, half_to_float: bool | None, dtype: str | None
) -> Value:
    if half_to_float:
        dtype = "float32"
    if dtype is not None:
        x = op.cast(x, dtype)
    if kind(x.dtype) < 2:
        raise Unsupported(f"of {x.dtype}")
    if x.rank == 0:
        return op.reshape(op.softmax(op.reshape(x, (1,)), 0, op_type), ())
    return op.softmax(x, dim, op_type)
