"""Operators that compute each element from the elements at its place."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from converter.write.torch.graph_module.dtypes import torch_dtype
from converter.write.torch.graph_module.operators import (
    Known,
    NotSupportedError,
    Tensor,
    operator,
    torch,
)

F: Any = torch.nn.functional
# fmt: off
ONE = {  # operand
    "Abs": torch.abs, "Neg": torch.neg, "Sign": torch.sign, "Sqrt": torch.sqrt, "Exp": torch.exp,
    "Log": torch.log, "Reciprocal": torch.reciprocal, "Floor": torch.floor, "Ceil": torch.ceil,
    "Round": torch.round, "Erf": torch.erf, "Sin": torch.sin, "Cos": torch.cos, "Tan": torch.tan,
    "Asin": torch.asin, "Acos": torch.acos, "Atan": torch.atan, "Sinh": torch.sinh,
    "Cosh": torch.cosh, "Tanh": torch.tanh, "Asinh": torch.asinh, "Acosh": torch.acosh,
    "Atanh": torch.atanh, "Sigmoid": torch.sigmoid, "Relu": torch.relu, "Softsign": F.softsign,
    "Mish": F.mish, "HardSwish": F.hardswish, "IsNaN": torch.isnan, "Not": torch.logical_not,
    "BitwiseNot": torch.bitwise_not, "Identity": lambda x: x,
}
TWO = {  # operands, which are broadcast
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Equal": torch.eq, "Less": torch.lt,
    "Greater": torch.gt, "LessOrEqual": torch.le, "GreaterOrEqual": torch.ge,
    "And": torch.logical_and, "Or": torch.logical_or, "Xor": torch.logical_xor,
    "BitwiseAnd": torch.bitwise_and, "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
}
# fmt: on


def _enter_one(name: str, function: Callable[..., Any]) -> None:
    @operator(name)
    def compute(x: Tensor) -> Tensor:
        return function(x)


def _enter_two(name: str, function: Callable[..., Any]) -> None:
    @operator(name)
    def compute(a: Tensor, b: Tensor) -> Tensor:
        return function(a, b)


for _name, _function in ONE.items():
    _enter_one(_name, _function)
for _name, _function in TWO.items():
    _enter_two(_name, _function)


# -- arithmetic ----------------------------------------------------------------------------------


@operator("Div")
def divide(a: Tensor, b: Tensor) -> Tensor:
    """Divide; integers are rounded towards zero."""
    return torch.div(a, b, rounding_mode=None if a.is_floating_point() else "trunc")


@operator("Mod")
def take_remainder(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    """Return the remainder, with the sign of the divisor, or as C's fmod has it."""
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


@operator("Pow")
def raise_to_power(x: Tensor, y: Tensor) -> Tensor:
    """Return a power in the dtype of the base."""
    return torch.pow(x, y).to(x.dtype)


@operator("Max")
def find_largest(*operands: Tensor) -> Tensor:
    """Return the largest of each."""
    return _fold(torch.maximum, operands)


@operator("Min")
def find_least(*operands: Tensor) -> Tensor:
    """Return the least of each."""
    return _fold(torch.minimum, operands)


@operator("Sum")
def add_up(*operands: Tensor) -> Tensor:
    """Return the sum of each."""
    return _fold(torch.add, operands)


@operator("Mean")
def average(*operands: Tensor) -> Tensor:
    """Return the mean of each."""
    return _fold(torch.add, operands) / len(operands)


def _fold(function: Callable[..., Any], operands: tuple[Tensor, ...]) -> Tensor:
    result = operands[0]
    for other in operands[1:]:
        result = function(result, other)
    return result


@operator("BitShift")
def shift_bits(x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    """Shift bits to the left or to the right."""
    shift = torch.bitwise_left_shift if direction == "LEFT" else torch.bitwise_right_shift
    return shift(x, y)


@operator("Where")
def choose(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return x where a condition holds, else y."""
    return torch.where(condition, x, y)


@operator("Clip")
def clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """Bound values; where the bounds cross, the upper one counts."""
    result = x if low is None else torch.maximum(x, low)
    return result if high is None else torch.minimum(result, high)


@operator("Cast")
def cast(x: Tensor, *, to: int, saturate: int = 1) -> Tensor:
    """Return values of another dtype."""
    del saturate
    return x.to(torch_dtype(to))


@operator("CastLike")
def cast_like(x: Tensor, like: Tensor, *, saturate: int = 1) -> Tensor:
    """Return values of another's dtype."""
    del saturate
    return x.to(like.dtype)


@operator("IsInf")
def is_infinite(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    """Return whether values are infinite, of one sign or of both."""
    signs = [s for s, wanted in ((-1, detect_negative), (1, detect_positive)) if wanted]
    found = [x == sign * math.inf for sign in signs]
    return _fold(torch.logical_or, tuple(found)) if found else torch.zeros_like(x).bool()


# -- activations ---------------------------------------------------------------------------------


@operator("LeakyRelu")
def leak(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    """Return x, or alpha times x below 0."""
    return F.leaky_relu(x, alpha)


@operator("PRelu")
def leak_by_weights(x: Tensor, slope: Tensor) -> Tensor:
    """Return x, or a slope times x below 0."""
    return torch.where(x < 0, x * slope, x)


@operator("Elu")
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Return x, or alpha times (exp(x) - 1) below 0."""
    return F.elu(x, alpha)


@operator("Celu")
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Return x, or alpha times (exp(x / alpha) - 1) below 0."""
    return F.celu(x, alpha)


@operator("Selu")
def selu(
    x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Tensor:
    """Return gamma times elu(x)."""
    return gamma * F.elu(x, alpha)


@operator("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """Return a line, bounded by 0 and 1."""
    return torch.clamp(alpha * x + beta, 0, 1)


@operator("Softplus")
def softplus(x: Tensor) -> Tensor:
    """Return log(1 + exp(x))."""
    return torch.logaddexp(x, torch.zeros_like(x))


@operator("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """Return x times the normal distribution's function of x."""
    return F.gelu(x, approximate=approximate)


@operator("Swish")
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Return x times sigmoid(alpha x)."""
    return x * torch.sigmoid(alpha * x)


@operator("ThresholdedRelu")
def threshold(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Return x above alpha, else 0."""
    return torch.where(x > alpha, x, torch.zeros_like(x))


@operator("Shrink")
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    """Return x moved towards 0 by a bias, and 0 near 0."""
    moved = torch.where(x < -lambd, x + bias, torch.zeros_like(x))
    return torch.where(x > lambd, x - bias, moved)


@operator("Dropout")
def drop_nothing(
    x: Tensor, ratio: Tensor | None = None, mode: Tensor | None = None, *, seed: int = 0,
    outputs: int = 1,
) -> list[Tensor]:  # fmt: skip
    """Return x as it is, and that all of it is kept."""
    del ratio, mode, seed
    return [x, torch.ones_like(x, dtype=torch.bool)][:outputs]


# -- random numbers ------------------------------------------------------------------------------


@operator("RandomUniform")
def draw_uniform(
    *, shape: list[int], dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: float = 0.0
) -> Tensor:
    """Draw numbers between bounds."""
    del seed
    return torch.rand(shape, dtype=torch_dtype(dtype)) * (high - low) + low


@operator("RandomUniformLike")
def draw_uniform_like(
    x: Tensor, *, dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: float = 0.0
) -> Tensor:
    """Draw numbers between bounds, in the shape of another."""
    del seed
    return torch.rand_like(x, dtype=torch_dtype(dtype)) * (high - low) + low


@operator("RandomNormal")
def draw_normal(
    *, shape: list[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float = 0.0
) -> Tensor:
    """Draw numbers of a normal distribution."""
    del seed
    return torch.randn(shape, dtype=torch_dtype(dtype)) * scale + mean


@operator("RandomNormalLike")
def draw_normal_like(
    x: Tensor, *, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float = 0.0
) -> Tensor:
    """Draw numbers of a normal distribution, in the shape of another."""
    del seed
    return torch.randn_like(x, dtype=torch_dtype(dtype)) * scale + mean


@operator("Constant")
def make_constant(**settings: Any) -> Known:
    """Return a constant, whose one attribute names its type."""
    ((kind, value),) = settings.items()
    if kind == "value":
        return np.asarray(value)
    if kind not in ("value_float", "value_floats", "value_int", "value_ints"):
        raise NotSupportedError(f"Constant with {kind}")
    return np.asarray(value, np.float32 if "float" in kind else np.int64)
