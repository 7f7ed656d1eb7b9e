"""Activations of neural networks.

Spec: https://docs.pytorch.org/docs/2.13/nn.functional.html#non-linear-activation-functions
"""

from converter.lower.ops import activation as ops
from converter.lower.table import Variant, summarize
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Scalar
from converter.lower.torch.promotion import kind
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

FUNCTIONS: dict[str, ops.Activation] = {
    "relu": ops.relu, "relu6": ops.relu6, "selu": ops.selu, "silu": ops.silu, "mish": ops.mish,
    "softsign": ops.softsign, "tanhshrink": ops.tanh_shrink, "hardsigmoid": ops.hard_sigmoid,
    "hardswish": ops.hard_silu, "log_sigmoid": ops.log_sigmoid,
    "special_log_sigmoid": ops.log_sigmoid,
}  # fmt: skip


@aten(*(Variant(name, summarize(f.__doc__), function=f) for name, f in FUNCTIONS.items()))
def activation(op: Context, self: Value, *, function: ops.Activation) -> Value:
    """An activation without parameters."""
    return function(op, self)


@aten("hardtanh")
def hardtanh(op: Context, self: Value, min_val: float = -1, max_val: float = 1) -> Value:
    """min(max(x, min_val), max_val)."""
    return ops.hard_tanh(op, self, min_val, max_val)


@aten("leaky_relu")
def leaky_relu(op: Context, self: Value, negative_slope: float = 0.01) -> Value:
    """`x if x > 0 else negative_slope * x`."""
    return ops.leaky_relu(op, self, negative_slope)


@aten("elu")
def elu(
    op: Context, self: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> Value:
    """`scale * (x if x > 0 else alpha * (exp(input_scale * x) - 1))`."""
    x = ops.elu(op, op.mul(self, input_scale) if input_scale != 1 else self, alpha)
    if input_scale != 1:
        x = op.where(op.elementwise("Greater", self, 0.0), self, x)
    return x if scale == 1 else op.mul(x, scale)


@aten("celu")
def celu(op: Context, self: Value, alpha: float = 1.0) -> Value:
    """`x if x > 0 else alpha * (exp(x / alpha) - 1)`."""
    return ops.celu(op, self, alpha)


@aten("gelu")
def gelu(op: Context, self: Value, approximate: str = "none") -> Value:
    """`x * (1 + erf(x / sqrt(2))) / 2`, or approximately with tanh."""
    if approximate not in ("none", "tanh"):
        raise Unsupported(f"approximate = {approximate!r}")
    return ops.gelu(op, self, approximate == "tanh")


@aten("softplus")
def softplus(op: Context, self: Value, beta: Scalar = 1, threshold: Scalar = 20) -> Value:
    """`log(1 + exp(beta * x)) / beta`, and x where `beta * x > threshold`."""
    if not isinstance(beta, int | float) or not isinstance(threshold, int | float):
        raise Unsupported("bounds that are computed from the inputs")
    return ops.softplus(op, self, float(beta), float(threshold))


def keep_nan(op: Context, x: Value, y: Value) -> Value:
    """Return y, and NaN where x is NaN."""
    return op.where(op.unary("IsNaN", x), x, y) if x.is_float else y


@aten("hardshrink")
def hardshrink(op: Context, self: Value, lambd: float = 0.5) -> Value:
    """Values beyond lambd on either side of zero; 0 within it."""
    return keep_nan(op, self, ops.hard_shrink(op, self, lambd))


@aten("softshrink")
def softshrink(op: Context, self: Value, lambd: float = 0.5) -> Value:
    """Values moved towards zero by lambd; 0 within it."""
    return keep_nan(op, self, ops.soft_shrink(op, self, lambd))


@aten("threshold")
def threshold(op: Context, self: Value, threshold: Scalar, value: Scalar) -> Value:
    """`x if x > threshold else value`."""
    bounds = [op.scalar(n, self.dtype) for n in (threshold, value)]
    return keep_nan(op, self, ops.threshold(op, self, *bounds))


@aten("log_sigmoid_forward")
def log_sigmoid_forward(op: Context, self: Value) -> list[Value]:
    """`-log(1 + exp(-x))`, and a buffer that only training reads."""
    return [ops.log_sigmoid(op, self), op.constant([0.0], self.dtype)]


@aten("prelu", "_prelu_kernel")
def prelu(op: Context, self: Value, weight: Value) -> Value:
    """`x if x > 0 else weight * x`, with a weight for each channel."""
    if weight.rank == 1 and self.rank > 1:
        weight = op.reshape(weight, (1, *weight.shape, *[1] * (self.rank - 2)))
    elif weight.rank == 1:
        weight = op.squeeze(weight, [0]) if self.rank == 0 else weight
    return ops.prelu(op, self, weight)


@aten("glu")
def glu(op: Context, self: Value, dim: int = -1) -> Value:
    """`a * sigmoid(b)` for the halves a and b of x along an axis."""
    return ops.glu(op, self, dim)


@aten(
    Variant(("softmax.int", "_softmax", "special_softmax"), function=ops.softmax),
    Variant(
        ("log_softmax.int", "_log_softmax", "special_log_softmax"),
        "x - log(sum(exp(x))) along an axis.", function=ops.log_softmax,
    ),
)  # fmt: skip
def softmax(
    op: Context, self: Value, dim: int, half_to_float: bool | None = None,
    dtype: str | None = None, *, function: ops.Activation = ops.softmax,
) -> Value:  # fmt: skip
    """exp(x) / sum(exp(x)) along an axis."""
    x = op.cast(self, dtype or ("float32" if half_to_float else self.dtype))
    if kind(x.dtype) < 2:
        raise Unsupported(f"of {x.dtype}")
    return function(op, x, dim)


@aten("softmin")
def softmin(op: Context, self: Value, dim: int, dtype: str | None = None) -> Value:
    """softmax(-x) along an axis."""
    return softmax(op, op.unary("Neg", self), dim, dtype=dtype)


@aten("_safe_softmax")
def safe_softmax(op: Context, self: Value, dim: int, dtype: str | None = None) -> Value:
    """`softmax(x)` along an axis, and zeros where all of x is -inf."""
    return ops.safe_softmax(op, op.cast(self, dtype or self.dtype), dim)
