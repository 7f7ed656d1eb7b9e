"""torch's special functions.

Spec: https://docs.pytorch.org/docs/2.13/special.html
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from converter.lower.builder import Builder
from converter.lower.ops import airy, bessel, special
from converter.lower.table import Variant
from converter.lower.torch.context import Context
from converter.lower.torch.elementwise import real
from converter.lower.torch.program_values import Scalar
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
    Variant("special_bessel_j0", bessel.j0.__doc__, function=partial(bessel.j0, leading=())),
    Variant("special_bessel_j1", bessel.j1.__doc__, function=partial(bessel.j1, leading=())),
    Variant("special_bessel_y0", bessel.y0.__doc__, function=partial(bessel.y0, leading=())),
    Variant("special_bessel_y1", bessel.y1.__doc__, function=partial(bessel.y1, leading=())),
    Variant(
        ("i0", "special_i0", "special_modified_bessel_i0"), bessel.i0.__doc__, function=bessel.i0
    ),
    Variant(("special_i1", "special_modified_bessel_i1"), bessel.i1.__doc__, function=bessel.i1),
    Variant("special_i0e", bessel.i0e.__doc__, function=bessel.i0e),
    Variant("special_i1e", bessel.i1e.__doc__, function=bessel.i1e),
    Variant("special_modified_bessel_k0", bessel.k0.__doc__, function=bessel.k0),
    Variant("special_modified_bessel_k1", bessel.k1.__doc__, function=bessel.k1),
)
def special_of_one(
    op: Context, self: Value, *, function: Callable[[Builder, Value], Value],
) -> Value:  # fmt: skip
    """A special function of each element."""
    return function(op, real(op, self))


@aten("special_airy_ai")
def airy_ai(op: Context, x: Value) -> Value:
    """Airy's function Ai."""
    return airy.airy_ai(op, real(op, x))


@aten("special_spherical_bessel_j0")
def spherical_bessel_j0(op: Context, x: Value) -> Value:
    """Spherical Bessel function of the first kind of order 0, `sin(x) / x`."""
    return bessel.spherical_j0(op, real(op, x))


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


@aten(
    Variant("special_scaled_modified_bessel_k0", bessel.k0e.__doc__, function=bessel.k0e),
    Variant("special_scaled_modified_bessel_k1", bessel.k1e.__doc__, function=bessel.k1e),
)
def scaled_bessel(
    op: Context, x: Value, *, function: Callable[[Builder, Value], Value],
) -> Value:  # fmt: skip
    """A scaled Bessel function of each element."""
    return function(op, real(op, x))


def _erfcx(op: Builder, x: Value) -> Value:
    """Return exp(x ** 2) * erfc(x) in float64, beyond 25 by a continued fraction."""
    square = op.mul(x, x)
    near = op.mul(op.unary("Exp", square), special.erfc(op, x))
    above = op.add(op.mul(square, op.add(square, 4.5)), 2.0)
    below = op.mul(x, op.add(op.mul(square, op.add(square, 5.0)), 3.75))
    far = op.div(op.mul(above, 1 / math.sqrt(math.pi)), below)
    huge = op.div(op.constant(1 / math.sqrt(math.pi), "float64"), x)
    far = op.where(op.elementwise("Greater", x, 5e7), huge, far)
    found = op.where(op.elementwise("Less", x, 25.0), near, far)
    return op.where(op.elementwise("Less", x, -26.7), math.inf, found)


@aten("special_erfcx")
def erfcx(op: Context, self: Value) -> Value:
    """`exp(x ** 2) * erfc(x)`."""
    return special.in_double(op, real(op, self), _erfcx)


def _log_ndtr(op: Builder, x: Value) -> Value:
    t = op.mul(x, math.sqrt(0.5))
    tail = op.unary("Log", op.mul(_erfcx(op, op.unary("Neg", t)), 0.5))
    rest = special.log1p(op, op.mul(special.erfc(op, t), -0.5))
    return op.where(op.elementwise("Less", x, -1.0), op.sub(tail, op.mul(t, t)), rest)


@aten("special_log_ndtr")
def log_ndtr(op: Context, self: Value) -> Value:
    """The logarithm of the standard normal distribution function."""
    return special.in_double(op, real(op, self), _log_ndtr)


@aten("special_xlog1py", "special_xlog1py.other_scalar", "special_xlog1py.self_scalar")
def xlog1py(op: Context, self: Value | Scalar, other: Value | Scalar) -> Value:
    """`a * log(1 + b)`; 0 where a is 0."""
    a, b = together(op, [self, other], floating(result_type(self, other)))
    zero = op.constant(0.0, a.dtype)
    found = op.where(op.elementwise("Equal", a, zero), zero, op.mul(a, special.log1p(op, b)))
    return op.where(op.unary("IsNaN", b), b, found)


@aten("mvlgamma", "special_multigammaln")
def mvlgamma(op: Context, self: Value, p: int) -> Value:
    """The logarithm of the multivariate gamma function."""
    x = real(op, self)
    shifts = op.constant(np.arange(p) * -0.5, x.dtype)
    terms = special.lgamma(op, op.add(op.unsqueeze(x, [-1]), shifts))
    return op.add(op.reduce("ReduceSum", terms, [-1]), p * (p - 1) / 4 * math.log(math.pi))
