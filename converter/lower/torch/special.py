"""torch's special functions.

Spec: https://docs.pytorch.org/docs/2.13/special.html
"""

from collections.abc import Callable

import numpy as np

from converter.lower.builder import Builder
from converter.lower.ops import special
from converter.lower.table import Variant
from converter.lower.torch.context import Context
from converter.lower.torch.elementwise import real
from converter.lower.torch.promotion import floating, result_type, together
from converter.lower.torch.table import aten
from converter.lower.values import Value


@aten(
    Variant(("erfc", "special_erfc"), special.erfc.__doc__, function=special.erfc),
    Variant(("erfinv", "special_erfinv"), special.erfinv.__doc__, function=special.erfinv),
    Variant(("expm1", "special_expm1"), special.expm1.__doc__, function=special.expm1),
    Variant(("lgamma", "special_gammaln"), special.lgamma.__doc__, function=special.lgamma),
    Variant(("log1p", "special_log1p"), special.log1p.__doc__, function=special.log1p),
    Variant("special_ndtri", special.ndtri.__doc__, function=special.ndtri),
)
def special_of_one(
    op: Context, self: Value, *, function: Callable[[Builder, Value], Value],
) -> Value:  # fmt: skip
    """A special function of each element."""
    return function(op, real(op, self))


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


@aten(
    Variant("special_zeta", special.zeta.__doc__, function=special.zeta),
    Variant(("igamma", "special_gammainc"), special.igamma.__doc__, function=special.igamma),
    Variant(("igammac", "special_gammaincc"), special.igammac.__doc__, function=special.igammac),
)
def special_of_two(
    op: Context, self: Value, other: Value, *, function: Callable[[Builder, Value, Value], Value],
) -> Value:  # fmt: skip
    """A special function of two tensors."""
    return function(op, *together(op, [self, other], floating(result_type(self, other))))
