"""torch's special functions.

Spec: https://docs.pytorch.org/docs/2.13/special.html
"""

from collections.abc import Callable

import numpy as np

from converter.lower.builder import Builder
from converter.lower.ops import special
from converter.lower.torch.context import Context
from converter.lower.torch.elementwise import real
from converter.lower.torch.promotion import floating, result_type, together
from converter.lower.torch.table import aten
from converter.lower.values import Value


def _enter(function: Callable[[Builder, Value], Value], *names: str) -> None:
    def handler(op: Context, self: Value) -> Value:
        return function(op, real(op, self))

    handler.__doc__ = function.__doc__
    aten(*names)(handler)


_enter(special.erfc, "erfc", "special_erfc")
_enter(special.erfinv, "erfinv", "special_erfinv")
_enter(special.expm1, "expm1", "special_expm1")
_enter(special.lgamma, "lgamma", "special_gammaln")
_enter(special.log1p, "log1p", "special_log1p")
_enter(special.ndtri, "special_ndtri")


@aten("digamma", "special_digamma", "special_psi")
def digamma(op: Context, self: Value) -> Value:
    """The derivative of the gamma function's logarithm; -inf at 0, +inf at -0."""
    x = real(op, self)
    pole = op.mul(op.unary("Reciprocal", x), -np.inf)
    return op.where(op.elementwise("Equal", x, 0.0), pole, special.digamma(op, x))


@aten("polygamma", "special_polygamma")
def polygamma(op: Context, n: int, self: Value) -> Value:
    """The n-th derivative of digamma."""
    x = real(op, self)
    if n == 0:
        return digamma(op, x)
    return special.polygamma(op, op.constant(n, x.dtype), x)


def _enter_pair(function: Callable[[Builder, Value, Value], Value], *names: str) -> None:
    def handler(op: Context, self: Value, other: Value) -> Value:
        return function(op, *together(op, [self, other], floating(result_type(self, other))))

    handler.__doc__ = function.__doc__
    aten(*names)(handler)


_enter_pair(special.zeta, "special_zeta")
_enter_pair(special.igamma, "igamma", "special_gammainc")
_enter_pair(special.igammac, "igammac", "special_gammaincc")
