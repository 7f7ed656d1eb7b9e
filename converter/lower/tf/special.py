"""TensorFlow's special functions.

Spec: https://www.tensorflow.org/api_docs/python/tf/math
"""

from collections.abc import Callable
from math import sqrt

from converter.lower.builder import Builder
from converter.lower.ops import bessel, special
from converter.lower.table import Handler, Variant
from converter.lower.tf.context import Context
from converter.lower.tf.table import tf_op
from converter.lower.values import Value

FUNCTIONS: dict[str, Handler] = {
    "Betainc": special.betainc, "Digamma": special.digamma, "Erfc": special.erfc,
    "Expm1": special.expm1, "Igamma": special.igamma, "Igammac": special.igammac,
    "Lgamma": special.lgamma, "Log1p": special.log1p, "Ndtri": special.ndtri,
    "Polygamma": special.polygamma, "Zeta": special.zeta,
}  # fmt: skip
for _name, _function in FUNCTIONS.items():
    tf_op(_name)(_function)


BESSEL = (
    bessel.i0, bessel.i0e, bessel.i1, bessel.i1e, bessel.j0, bessel.j1, bessel.k0, bessel.k0e,
    bessel.k1, bessel.k1e, bessel.y0, bessel.y1,
)  # fmt: skip


@tf_op(*(Variant(f"Bessel{f.__name__.capitalize()}", f.__doc__, function=f) for f in BESSEL))
def bessel_function(
    op: Context, x: Value, /, *, function: Callable[[Builder, Value], Value]
) -> Value:
    """A Bessel function of each element."""
    return function(op, x)


@tf_op("Erfinv")
def erfinv(op: Context, x: Value, /) -> Value:
    """The inverse of erf: `ndtri((x + 1) / 2) / sqrt(2)`, with the argument rounded."""
    half = op.add(op.mul(x, 0.5), 0.5)
    return op.mul(special.ndtri(op, half), sqrt(0.5))
