"""Bessel functions of orders 0 and 1, by the approximations of Cephes.

All are computed in float64, whatever the dtype is. Denominators of J and Y have the leading
coefficient 1; torch omits it (``leading=()``), and is wrong by up to 2e-7.
Sources: https://github.com/jeremybarnes/cephes/tree/60f27df395b8322c2da22c83751a2366b82d50d1/bessel,
https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/Math.h
"""

from collections.abc import Sequence
from math import factorial, inf, nan, pi, sqrt

from converter.lower.builder import Builder
from converter.lower.ops.elementwise import is_negative
from converter.lower.ops.special import in_double, polynomial
from converter.lower.values import Value

# For J and Y: rational functions R and Y up to 5; P and Q, for the amplitude and the phase, beyond.
# For I and K: Chebyshev coefficients A near zero and B beyond. The highest degree comes first.
# fmt: off
LEADING = (1.0,)
J0_PP = (
    0.0007969367292973471, 0.08283523921074408, 1.239533716464143, 5.447250030587687,
    8.74716500199817, 5.303240382353949, 1.0,
)
J0_PQ = (
    0.0009244088105588637, 0.08562884743544745, 1.2535274390105895, 5.470977403304171,
    8.761908832370695, 5.306052882353947, 1.0,
)
J0_QP = (
    -0.011366383889846916, -1.2825271867050931, -19.553954425773597, -93.20601521237683,
    -177.68116798048806, -147.07750515495118, -51.41053267665993, -6.050143506007285,
)
J0_QQ = (
    64.3178256118178, 856.4300259769806, 3882.4018360540163, 7240.467741956525, 5930.727011873169,
    2062.0933166032783, 242.0057402402914,
)
J0_RP = (
    -4794432209.782018, 1956174919465.5657, -249248344360967.72, 9708622510473064.0,
)
J0_RQ = (
    499.563147152651, 173785.4016763747, 48440965.83399621, 11185553704.535683, 2112775201154.892,
    310518229857422.56, 3.1812195594320496e+16, 1.7108629408104315e+18,
)
J1_PP = (
    0.0007621256162081731, 0.07313970569409176, 1.1271960812968493, 5.112079511468076,
    8.424045901417724, 5.214515986823615, 1.0,
)
J1_PQ = (
    0.0005713231280725487, 0.06884559087544954, 1.105142326340617, 5.073863861286015,
    8.399855543276042, 5.209828486823619, 1.0,
)
J1_QP = (
    0.05108625947501766, 4.982138729512334, 75.82382841325453, 366.7796093601508, 710.8563049989261,
    597.4896124006136, 211.68875710057213, 25.207020585802372,
)
J1_QQ = (
    74.23732770356752, 1056.4488603826283, 4986.410583376536, 9562.318924047562, 7997.041604473507,
    2826.1927851763908, 336.0936078106983,
)
J1_RP = (
    -899971225.7055594, 452228297998.19403, -72749424522181.83, 3682957328638529.0,
)
J1_RQ = (
    620.8364781180543, 256987.25675774884, 83514679.14319493, 22151159547.97925, 4749141220799.914,
    784369607876235.9, 8.952223361846274e+16, 5.322786203326801e+18,
)
Y0_YP = (
    15592.436785523574, -14663929.59039716, 5435264770.518765, -982136065717.9115, 87590639439536.7,
    -3466283033847297.0, 4.4273326857256984e+16, -1.8495080043698668e+16,
)
Y0_YQ = (
    1041.2835366425984, 626107.330137135, 268919633.39381415, 86400248710.3935, 20297961275010.555,
    3171577528429750.5, 2.5059625617265306e+17,
)
Y1_YP = (
    1263204747.9017804, -647355876379.1603, 114509511541823.73, -8127702555013251.0,
    2.024394757135949e+17, -7.788771962659501e+17,
)
Y1_YQ = (
    594.3015923461282, 235564.09294306856, 73481194.44597217, 18760131610.870617,
    3882312774962.3857, 620557727146953.8, 6.871410873553005e+16, 3.9727060811656064e+18,
)
I0_A = (
    -4.4153416464793395e-18, 3.3307945188222384e-17, -2.431279846547955e-16, 1.715391285555133e-15,
    -1.1685332877993451e-14, 7.676185498604936e-14, -4.856446783111929e-13, 2.95505266312964e-12,
    -1.726826291441556e-11, 9.675809035373237e-11, -5.189795601635263e-10, 2.6598237246823866e-09,
    -1.300025009986248e-08, 6.046995022541919e-08, -2.670793853940612e-07, 1.1173875391201037e-06,
    -4.4167383584587505e-06, 1.6448448070728896e-05, -5.754195010082104e-05, 0.00018850288509584165,
    -0.0005763755745385824, 0.0016394756169413357, -0.004324309995050576, 0.010546460394594998,
    -0.02373741480589947, 0.04930528423967071, -0.09490109704804764, 0.17162090152220877,
    -0.3046826723431984, 0.6767952744094761,
)
I0_B = (
    -7.233180487874754e-18, -4.830504485944182e-18, 4.46562142029676e-17, 3.461222867697461e-17,
    -2.8276239805165836e-16, -3.425485619677219e-16, 1.7725601330565263e-15, 3.8116806693526224e-15,
    -9.554846698828307e-15, -4.150569347287222e-14, 1.54008621752141e-14, 3.8527783827421426e-13,
    7.180124451383666e-13, -1.7941785315068062e-12, -1.3215811840447713e-11,
    -3.1499165279632416e-11, 1.1889147107846439e-11, 4.94060238822497e-10, 3.3962320257083865e-09,
    2.266668990498178e-08, 2.0489185894690638e-07, 2.8913705208347567e-06, 6.889758346916825e-05,
    0.0033691164782556943, 0.8044904110141088,
)
I1_A = (
    2.7779141127610464e-18, -2.111421214358166e-17, 1.5536319577362005e-16, -1.1055969477353862e-15,
    7.600684294735408e-15, -5.042185504727912e-14, 3.223793365945575e-13, -1.9839743977649436e-12,
    1.1736186298890901e-11, -6.663489723502027e-11, 3.625590281552117e-10, -1.8872497517228294e-09,
    9.381537386495773e-09, -4.445059128796328e-08, 2.0032947535521353e-07, -8.568720264695455e-07,
    3.4702513081376785e-06, -1.3273163656039436e-05, 4.781565107550054e-05, -0.00016176081582589674,
    0.0005122859561685758, -0.0015135724506312532, 0.004156422944312888, -0.010564084894626197,
    0.024726449030626516, -0.05294598120809499, 0.1026436586898471, -0.17641651835783406,
    0.25258718644363365,
)
I1_B = (
    7.517296310842105e-18, 4.414348323071708e-18, -4.6503053684893586e-17, -3.209525921993424e-17,
    2.96262899764595e-16, 3.3082023109209285e-16, -1.8803547755107825e-15, -3.8144030724370075e-15,
    1.0420276984128802e-14, 4.272440016711951e-14, -2.1015418427726643e-14, -4.0835511110921974e-13,
    -7.198551776245908e-13, 2.0356285441470896e-12, 1.4125807436613782e-11, 3.2526035830154884e-11,
    -1.8974958123505413e-11, -5.589743462196584e-10, -3.835380385964237e-09,
    -2.6314688468895196e-08, -2.512236237870209e-07, -3.882564808877691e-06,
    -0.00011058893876262371, -0.009761097491361469, 0.7785762350182801,
)
K0_A = (
    1.374465435613523e-16, 4.25981614279661e-14, 1.0349695257633842e-11, 1.904516377220209e-09,
    2.5347910790261494e-07, 2.286212103119452e-05, 0.001264615411446926, 0.0359799365153615,
    0.3442898999246285, -0.5353273932339028,
)
K0_B = (
    5.300433772686263e-18, -1.6475804301524212e-17, 5.2103915050390274e-17, -1.678231096805412e-16,
    5.512055978524319e-16, -1.848593377343779e-15, 6.3400764774050706e-15, -2.2275133269916698e-14,
    8.032890775363575e-14, -2.9800969231727303e-13, 1.140340588208475e-12, -4.514597883373944e-12,
    1.8559491149547177e-11, -7.957489244477107e-11, 3.577397281400301e-10, -1.69753450938906e-09,
    8.574034017414225e-09, -4.660489897687948e-08, 2.766813639445015e-07, -1.8317555227191195e-06,
    1.39498137188765e-05, -0.00012849549581627802, 0.0015698838857300533, -0.0314481013119645,
    2.4403030820659555,
)
K1_A = (
    -7.023863479386288e-18, -2.427449850519366e-15, -6.666901694199329e-13, -1.4114883926335278e-10,
    -2.213387630734726e-08, -2.4334061415659684e-06, -0.0001730288957513052, -0.006975723859639864,
    -0.12261118082265715, -0.3531559607765449, 1.5253002273389478,
)
K1_B = (
    -5.756744483665017e-18, 1.7940508731475592e-17, -5.689462558442859e-17, 1.838093544366639e-16,
    -6.057047248373319e-16, 2.038703165624334e-15, -7.019837090418314e-15, 2.4771544244813043e-14,
    -8.976705182324994e-14, 3.3484196660784293e-13, -1.2891739609510289e-12, 5.13963967348173e-12,
    -2.1299678384275683e-11, 9.218315187605006e-11, -4.1903547593418965e-10, 2.015049755197033e-09,
    -1.0345762465678097e-08, 5.7410841254500495e-08, -3.5019606030878126e-07, 2.406484947837217e-06,
    -1.936197974166083e-05, 0.00019521551847135162, -0.002857816859622779, 0.10392373657681724,
    2.7206261904844427,
)
# fmt: on


def _ratio(op: Builder, x: Value, above: Sequence[float], below: Sequence[float]) -> Value:
    return op.div(polynomial(op, x, above), polynomial(op, x, below))


def _chebyshev(op: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """Return the sum of a Chebyshev series by Clenshaw's recurrence."""
    first, second, *others = coefficients
    before: Value = op.constant(first, "float64")
    at = op.add(op.mul(x, first), second)
    further = op.constant(0.0, "float64")
    for c in others:
        further, before, at = before, at, op.add(op.sub(op.mul(x, at), before), c)
    return op.mul(op.sub(at, further), 0.5)


def _where(
    op: Builder, question: str, x: Value, bound: float, yes: Value | float, no: Value
) -> Value:
    return op.where(op.elementwise(question, x, bound), yes, no)


# -- J and Y ---------------------------------------------------------------------------------------


def _wave(op: Builder, x: Value, order: int, leading: Sequence[float], *, is_second: bool) -> Value:
    """Return J or Y beyond 5, by the asymptotic expansion of Hankel."""
    pp, pq, qp, qq = ((J0_PP, J0_PQ, J0_QP, J0_QQ), (J1_PP, J1_PQ, J1_QP, J1_QQ))[order]
    w = op.div(op.constant(5.0, "float64"), x)
    z = op.mul(w, w)
    p, q = _ratio(op, z, pp, pq), op.mul(w, _ratio(op, z, qp, (*leading, *qq)))
    angle = op.sub(x, (0.25 + 0.5 * order) * pi)
    sine, cosine = op.unary("Sin", angle), op.unary("Cos", angle)
    if is_second:
        found = op.add(op.mul(p, sine), op.mul(q, cosine))
    else:
        found = op.sub(op.mul(p, cosine), op.mul(q, sine))
    return op.div(op.mul(found, sqrt(2 / pi)), op.unary("Sqrt", x))


def _j0(op: Builder, x: Value, leading: Sequence[float]) -> Value:
    size = op.unary("Abs", x)
    z = op.mul(size, size)
    roots = op.mul(op.sub(z, 5.78318596294678452118), op.sub(z, 30.4712623436620863991))
    near = op.mul(roots, _ratio(op, z, J0_RP, (*leading, *J0_RQ)))
    tiny = op.sub(op.constant(1.0, "float64"), op.mul(z, 0.25))
    near = _where(op, "Less", size, 0.00001, tiny, near)
    return _where(op, "LessOrEqual", size, 5.0, near, _wave(op, size, 0, leading, is_second=False))


def _j1(op: Builder, x: Value, leading: Sequence[float]) -> Value:
    size = op.unary("Abs", x)
    z = op.mul(size, size)
    roots = op.mul(op.sub(z, 14.6819706421238932572), op.sub(z, 49.2184563216946036703))
    near = op.mul(op.mul(_ratio(op, z, J1_RP, (*leading, *J1_RQ)), size), roots)
    found = _where(op, "LessOrEqual", size, 5.0, near, _wave(op, size, 1, leading, is_second=False))
    return op.where(is_negative(op, x), op.unary("Neg", found), found)


def _second(op: Builder, x: Value, near: Value, order: int, leading: Sequence[float]) -> Value:
    """Return Y, from its values between 0 and 5."""
    found = _where(op, "LessOrEqual", x, 5.0, near, _wave(op, x, order, leading, is_second=True))
    found = _where(op, "Equal", x, 0.0, -inf, found)
    return _where(op, "Less", x, 0.0, nan, found)


def _y0(op: Builder, x: Value, leading: Sequence[float]) -> Value:
    slow = op.mul(op.mul(op.unary("Log", x), 2 / pi), _j0(op, x, leading))
    return _second(
        op, x, op.add(_ratio(op, op.mul(x, x), Y0_YP, (*leading, *Y0_YQ)), slow), 0, leading
    )


def _y1(op: Builder, x: Value, leading: Sequence[float]) -> Value:
    slow = op.sub(op.mul(_j1(op, x, leading), op.unary("Log", x)), op.unary("Reciprocal", x))
    fast = op.mul(x, _ratio(op, op.mul(x, x), Y1_YP, (*leading, *Y1_YQ)))
    return _second(op, x, op.add(fast, op.mul(slow, 2 / pi)), 1, leading)


# -- I and K ---------------------------------------------------------------------------------------


def _scaled_i(
    op: Builder, x: Value, near: Sequence[float], far: Sequence[float], *, is_odd: bool
) -> Value:
    """Return `exp(-|x|) * I(x)`."""
    size = op.unary("Abs", x)
    small = _chebyshev(op, op.sub(op.mul(size, 0.5), 2.0), near)
    small = op.mul(small, size) if is_odd else small
    inverse = op.sub(op.div(op.constant(32.0, "float64"), size), 2.0)
    large = op.div(_chebyshev(op, inverse, far), op.unary("Sqrt", size))
    found = _where(op, "LessOrEqual", size, 8.0, small, large)
    if is_odd:
        found = op.where(is_negative(op, x), op.unary("Neg", found), found)
    return found


def _i0e(op: Builder, x: Value) -> Value:
    return _scaled_i(op, x, I0_A, I0_B, is_odd=False)


def _i1e(op: Builder, x: Value) -> Value:
    return _scaled_i(op, x, I1_A, I1_B, is_odd=True)


def _i0(op: Builder, x: Value) -> Value:
    return op.mul(_i0e(op, x), op.unary("Exp", op.unary("Abs", x)))


def _i1(op: Builder, x: Value) -> Value:
    return op.mul(_i1e(op, x), op.unary("Exp", op.unary("Abs", x)))


def _scaled_k(op: Builder, x: Value, near: Value, far: Sequence[float]) -> Value:
    """Return `exp(x) * K(x)`, from the values of K between 0 and 2."""
    inverse = op.sub(op.div(op.constant(8.0, "float64"), x), 2.0)
    large = op.div(_chebyshev(op, inverse, far), op.unary("Sqrt", x))
    found = _where(op, "LessOrEqual", x, 2.0, op.mul(near, op.unary("Exp", x)), large)
    found = _where(op, "Equal", x, 0.0, inf, found)
    return _where(op, "Less", x, 0.0, nan, found)


def _k0e(op: Builder, x: Value) -> Value:
    series = _chebyshev(op, op.sub(op.mul(x, x), 2.0), K0_A)
    slow = op.mul(op.unary("Log", op.mul(x, 0.5)), _i0(op, x))
    return _scaled_k(op, x, op.sub(series, slow), K0_B)


def _k1e(op: Builder, x: Value) -> Value:
    series = op.div(_chebyshev(op, op.sub(op.mul(x, x), 2.0), K1_A), x)
    slow = op.mul(op.unary("Log", op.mul(x, 0.5)), _i1(op, x))
    return _scaled_k(op, x, op.add(series, slow), K1_B)


def _third(op: Builder, x: Value, scaled: Value) -> Value:
    return op.mul(scaled, op.unary("Exp", op.unary("Neg", x)))


# -- for any dtype ---------------------------------------------------------------------------------


def j0(op: Builder, x: Value, *, leading: Sequence[float] = LEADING) -> Value:
    """Bessel function of the first kind of order 0."""
    return in_double(op, x, lambda op, x: _j0(op, x, leading))


def j1(op: Builder, x: Value, *, leading: Sequence[float] = LEADING) -> Value:
    """Bessel function of the first kind of order 1."""
    return in_double(op, x, lambda op, x: _j1(op, x, leading))


def y0(op: Builder, x: Value, *, leading: Sequence[float] = LEADING) -> Value:
    """Bessel function of the second kind of order 0."""
    return in_double(op, x, lambda op, x: _y0(op, x, leading))


def y1(op: Builder, x: Value, *, leading: Sequence[float] = LEADING) -> Value:
    """Bessel function of the second kind of order 1."""
    return in_double(op, x, lambda op, x: _y1(op, x, leading))


def i0(op: Builder, x: Value) -> Value:
    """Modified Bessel function of the first kind of order 0."""
    return in_double(op, x, _i0)


def i1(op: Builder, x: Value) -> Value:
    """Modified Bessel function of the first kind of order 1."""
    return in_double(op, x, _i1)


def i0e(op: Builder, x: Value) -> Value:
    """`exp(-|x|)` times the modified Bessel function of the first kind of order 0."""
    return in_double(op, x, _i0e)


def i1e(op: Builder, x: Value) -> Value:
    """`exp(-|x|)` times the modified Bessel function of the first kind of order 1."""
    return in_double(op, x, _i1e)


def k0(op: Builder, x: Value) -> Value:
    """Modified Bessel function of the second kind of order 0."""
    return in_double(op, x, lambda op, x: _third(op, x, _k0e(op, x)))


def k1(op: Builder, x: Value) -> Value:
    """Modified Bessel function of the second kind of order 1."""
    return in_double(op, x, lambda op, x: _third(op, x, _k1e(op, x)))


def k0e(op: Builder, x: Value) -> Value:
    """`exp(x)` times the modified Bessel function of the second kind of order 0."""
    return in_double(op, x, _k0e)


def k1e(op: Builder, x: Value) -> Value:
    """`exp(x)` times the modified Bessel function of the second kind of order 1."""
    return in_double(op, x, _k1e)


SPHERICAL = 0.5  # below which sin(x) / x is a series, of (-1)^n x^2n / (2n + 1)!


def spherical_j0(op: Builder, x: Value) -> Value:
    """Spherical Bessel function of the first kind of order 0, `sin(x) / x`."""
    return in_double(op, x, _spherical_j0)


def _spherical_j0(op: Builder, x: Value) -> Value:
    square = op.mul(x, x)
    near = polynomial(op, square, [(-1) ** n / factorial(2 * n + 1) for n in range(6, -1, -1)])
    far = op.div(op.unary("Sin", x), x)
    is_near = op.elementwise("Less", op.unary("Abs", x), SPHERICAL)
    is_infinite = op.elementwise("Equal", op.unary("Abs", x), inf)
    return op.where(is_infinite, 0.0, op.where(is_near, near, far))
