"""TensorFlow's special functions.

Spec: https://www.tensorflow.org/api_docs/python/tf/math
"""

from math import sqrt

from converter.lower.ops import bessel, special
from converter.lower.table import Handler
from converter.lower.tf.context import Context
from converter.lower.tf.table import tf_op
from converter.lower.values import Value

FUNCTIONS: dict[str, Handler] = {
    "BesselI0": bessel.i0, "BesselI0e": bessel.i0e, "BesselI1": bessel.i1,
    "BesselI1e": bessel.i1e, "BesselJ0": bessel.j0, "BesselJ1": bessel.j1,
    "BesselK0": bessel.k0, "BesselK0e": bessel.k0e, "BesselK1": bessel.k1,
    "BesselK1e": bessel.k1e, "BesselY0": bessel.y0, "BesselY1": bessel.y1,
    "Betainc": special.betainc, "Digamma": special.digamma, "Erfc": special.erfc,
    "Expm1": special.expm1, "Igamma": special.igamma, "Igammac": special.igammac,
    "Lgamma": special.lgamma, "Log1p": special.log1p, "Ndtri": special.ndtri,
    "Polygamma": special.polygamma, "Zeta": special.zeta,
}  # fmt: skip
for _name, _function in FUNCTIONS.items():
    tf_op(_name)(_function)


@tf_op("Erfinv")
def erfinv(op: Context, x: Value, /) -> Value:
    """The inverse of erf: `ndtri((x + 1) / 2) / sqrt(2)`, with the argument rounded."""
    half = op.add(op.mul(x, 0.5), 0.5)
    return op.mul(special.ndtri(op, half), sqrt(0.5))
