"""Airy's function Ai: its series near zero, and the approximations of Cephes beyond.

Source: https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/Math.h
"""

from itertools import accumulate
from math import inf, nan, pi, sqrt

from converter.lower.builder import Builder
from converter.lower.ops.special import in_double, polynomial
from converter.lower.values import Value

# Numerators and denominators; the highest degree comes first.
# fmt: off
AN = (
    0.346538101525629, 12.007595273964581, 76.27960536152345, 168.08922493463058,
    159.75639135016442, 70.53609068404442, 14.026469116338967, 1.0,
)
AD = (
    0.5675945326387702, 14.75625625848472, 84.51389701414746, 177.31808814540045,
    164.2346928715297, 71.47784008255756, 14.095913560783403, 1.0,
)
AFN = (
    -0.1316963234183318, -0.6264565444319123, -0.6931580360369335, -0.2797799815451191,
    -0.04919001326095003, -0.004062659235948854, -0.0001592764962392621, -2.776491081552329e-06,
    -1.6778769848911465e-08,
)
AFD = (
    13.356042070655324, 32.682503279522464, 26.736704094149957, 9.187074029072596,
    1.4752914677166642, 0.11568717379518804, 0.004402916416152112, 7.547203482874142e-05,
    4.5185009297058035e-07,
)
AGN = (
    0.01973399320916857, 0.39110302961568827, 1.0657989759959559, 0.9391692298166502,
    0.35146565610554764, 0.06338889196289255, 0.005858041130483885, 0.000282851600836737,
    6.98793669997261e-06, 8.117892395543892e-08, 3.415517847659236e-10,
)
AGD = (
    9.30892908077442, 19.835292871831214, 15.564662893286462, 5.476860694229755,
    0.9542936116189619, 0.08645808263523921, 0.004126565238242226, 0.00010125908511650914,
    1.1716673321441352e-06, 4.9183457006293e-09,
)
# fmt: on
AT_ZERO, SLOPE = 0.355028053887817239260, 0.258819403792806798405  # Ai(0) and -Ai'(0)
NEAR, FAR, LAST = 2.09, 8.3203353, 103.892  # where the forms change, and where it is 0
TERMS = 16  # of the series, in powers of x^3
FACTOR = 1 / sqrt(pi)
# Coefficients of the series: of 1, and of x.
EVEN = (*accumulate(range(1, TERMS), lambda c, k: c / ((3 * k - 1) * 3 * k), initial=1.0),)
ODD = (*accumulate(range(1, TERMS), lambda c, k: c / (3 * k * (3 * k + 1)), initial=1.0),)


def airy_ai(op: Builder, x: Value) -> Value:
    """Airy's function Ai."""
    return in_double(op, x, _airy_ai)


def _airy_ai(op: Builder, x: Value) -> Value:
    size = op.unary("Abs", x)
    cube = op.mul(x, op.mul(x, x))
    even = op.mul(polynomial(op, cube, EVEN[::-1]), AT_ZERO)
    odd = op.mul(op.mul(x, polynomial(op, cube, ODD[::-1])), SLOPE)
    root = op.unary("Sqrt", size)
    zeta = op.div(op.mul(op.mul(size, root), 2.0), 3.0)
    fourth = op.unary("Sqrt", root)
    inverse = op.div(op.constant(1.0, x.dtype), zeta)
    rational = op.div(polynomial(op, inverse, AN), polynomial(op, inverse, AD))
    decay = op.mul(op.mul(fourth, 2.0), op.unary("Exp", zeta))
    beyond = op.div(op.mul(rational, FACTOR), decay)
    square = op.mul(inverse, inverse)
    first = op.mul(square, op.div(polynomial(op, square, AFN), polynomial(op, square, AFD)))
    second = op.mul(inverse, op.div(polynomial(op, square, AGN), polynomial(op, square, AGD)))
    angle = op.add(zeta, pi / 4)
    waves = op.sub(
        op.mul(op.unary("Sin", angle), op.add(first, 1.0)), op.mul(op.unary("Cos", angle), second)
    )
    before = op.mul(op.div(waves, fourth), FACTOR)
    found = op.where(op.elementwise("Less", x, -NEAR), before, op.sub(even, odd))
    found = op.where(op.elementwise("GreaterOrEqual", x, NEAR), beyond, found)
    found = op.where(op.elementwise("Greater", x, LAST), 0.0, found)
    return op.where(op.elementwise("Equal", size, inf), nan, found)
