"""Special functions that ONNX lacks: error, gamma, zeta, incomplete gamma and beta functions.

Most are computed in float64 whatever the dtype is, and are exact to about the last bits of float64:
approximations of Cephes, Lanczos and Stirling.
Spec: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/kernels/cwise_ops.h,
whose functors are from Eigen's SpecialFunctions
"""

from collections.abc import Callable, Sequence
from math import exp, log, pi, sqrt

import numpy as np

from converter.lower.builder import Builder
from converter.lower.repeat import repeat
from converter.lower.values import Value

Function = Callable[[Builder, Value], Value]


def in_double(op: Builder, x: Value, function: Function) -> Value:
    """Apply a function to a value in float64, and cast the result back."""
    return op.cast(function(op, op.cast(x, "float64")), x.dtype)


def polynomial(op: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """Evaluate a polynomial; the coefficient of the highest power is first."""
    first, second, *others = coefficients
    result = op.add(x if first == 1 else op.mul(x, first), second)
    for c in others:
        result = op.add(op.mul(result, x), c)
    return result


# -- exponentials near zero ------------------------------------------------------------------------


def expm1(op: Builder, x: Value) -> Value:
    """`exp(x) - 1`; exact near zero, where it is 2 t / (1 - t) with t = tanh(x / 2)."""
    half = op.unary("Tanh", op.mul(x, 0.5))
    near = op.div(op.mul(half, 2.0), op.sub(1.0, half))
    far = op.sub(op.unary("Exp", x), 1.0)
    return op.where(op.elementwise("Less", op.unary("Abs", x), 1.0), near, far)


def log1p(op: Builder, x: Value) -> Value:
    """`log(1 + x)`, exact near zero: with u = 1 + x, log(u) * x / (u - 1)."""
    u = op.add(x, 1.0)
    near = op.sub(u, 1.0)
    same = op.elementwise("Equal", near, 0.0)
    exact = op.div(op.mul(op.unary("Log", u), x), op.where(same, 1.0, near))
    far = op.elementwise("Greater", op.unary("Abs", x), 0.5)
    return op.where(far, op.unary("Log", u), op.where(same, x, exact))


# -- the error function ----------------------------------------------------------------------------

# fmt: off
# Numerical Recipes' erfcc: the relative error is at most 1.2e-7 everywhere.
ERFCC = (
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418,
    0.37409196, 1.00002368, -1.26551223,
)
STEP, TERMS = 0.5, 13  # of the sum by Chiarella and Reichel; its error is exp(-(pi / STEP) ** 2)
NEAR = 0.5  # up to here, 1 - erf(x) is exact enough
ZERO = 30.0  # above, erfc(x) is zero in every dtype
# fmt: on


def erfc(op: Builder, x: Value) -> Value:
    """`1 - erf(x)`, exact also where it is close to zero."""
    near = op.sub(1.0, op.unary("Erf", x))
    above = op.elementwise("Max", x, op.constant(NEAR, x.dtype))
    above = op.elementwise("Min", above, op.constant(ZERO, x.dtype))
    tail = _tail(op, above) if x.dtype == "float64" else _tail_of_single(op, above)
    return op.where(op.elementwise("Greater", x, NEAR), tail, near)


def _tail_of_single(op: Builder, x: Value) -> Value:
    wide = op.cast(x, "float32")
    t = op.unary("Reciprocal", op.add(op.mul(wide, 0.5), 1.0))
    power = op.sub(polynomial(op, t, ERFCC), op.mul(wide, wide))
    return op.cast(op.mul(t, op.unary("Exp", power)), x.dtype)


def _tail(op: Builder, x: Value) -> Value:
    """Return `erfc(x)` for x >= 0.5: the integral of a Gaussian, by the trapezoidal rule."""
    square = op.mul(x, x)
    total = op.unary("Reciprocal", square)
    for k in range(1, TERMS + 1):
        place = (k * STEP) ** 2
        total = op.add(total, op.div(2 * exp(-place), op.add(square, place)))
    bell = op.mul(op.mul(x, STEP / pi), op.unary("Exp", op.unary("Neg", square)))
    beyond = op.div(2.0, op.sub(op.unary("Exp", op.mul(x, 2 * pi / STEP)), 1.0))
    # The correction term applies to x < pi / STEP only; beyond, it is part of the error.
    beyond = op.where(op.elementwise("Less", x, pi / STEP), beyond, 0.0)
    return op.sub(op.mul(bell, total), beyond)


# fmt: off
# https://github.com/jeremybarnes/cephes/blob/60f27df395b8322c2da22c83751a2366b82d50d1/cprob/ndtri.c
P0 = (
    -5.99633501014107895267e1, 9.80010754185999661536e1, -5.66762857469070293439e1,
    1.39312609387279679503e1, -1.23916583867381258016e0,
)
Q0 = (
    1.0, 1.95448858338141759834e0, 4.67627912898881538453e0, 8.63602421390890590575e1,
    -2.25462687854119370527e2, 2.00260212380060660359e2, -8.20372256168333339912e1,
    1.59056225126211695515e1, -1.18331621121330003142e0,
)
P1 = (
    4.05544892305962419923e0, 3.15251094599893866154e1, 5.71628192246421288162e1,
    4.40805073893200834700e1, 1.46849561928858024014e1, 2.18663306850790267539e0,
    -1.40256079171354495875e-1, -3.50424626827848203418e-2, -8.57456785154685413611e-4,
)
Q1 = (
    1.0, 1.57799883256466749731e1, 4.53907635128879210584e1, 4.13172038254672030440e1,
    1.50425385692907503408e1, 2.50464946208309415979e0, -1.42182922854787788574e-1,
    -3.80806407691578277194e-2, -9.33259480895457427372e-4,
)
P2 = (
    3.23774891776946035970e0, 6.91522889068984211695e0, 3.93881025292474443415e0,
    1.33303460815807542389e0, 2.01485389549179081538e-1, 1.23716634817820021358e-2,
    3.01581553508235416007e-4, 2.65806974686737550832e-6, 6.23974539184983293730e-9,
)
Q2 = (
    1.0, 6.02427039364742014255e0, 3.67983563856160859403e0, 1.37702099489081330271e0,
    2.16236993594496635890e-1, 1.34204006088543189037e-2, 3.28014464682127739104e-4,
    2.89247864745380683936e-6, 6.79019408009981274425e-9,
)
# fmt: on


def _ndtri(op: Builder, p: Value) -> Value:
    is_high = op.elementwise("Greater", p, 1 - exp(-2))
    y = op.where(is_high, op.sub(1.0, p), p)
    tail = _quantile_of_tail(op, y)
    tail = op.where(is_high, tail, op.unary("Neg", tail))
    middle = _quantile_of_middle(op, op.sub(y, 0.5))
    result = op.where(op.elementwise("Greater", y, exp(-2)), middle, tail)
    infinite = op.where(is_high, np.inf, op.constant(-np.inf, "float64"))
    return op.where(op.elementwise("Equal", y, 0.0), infinite, result)


def _quantile_of_middle(op: Builder, away: Value) -> Value:
    """Return the normal quantile of `0.5 + away`."""
    square = op.mul(away, away)
    ratio = op.div(polynomial(op, square, P0), polynomial(op, square, Q0))
    return op.mul(op.add(away, op.mul(away, op.mul(square, ratio))), sqrt(2 * pi))


def _quantile_of_tail(op: Builder, y: Value) -> Value:
    """Return the normal quantile of `1 - y`, for y up to exp(-2)."""
    x = op.unary("Sqrt", op.mul(op.unary("Log", y), -2.0))
    z = op.unary("Reciprocal", x)
    near = op.div(polynomial(op, z, P1), polynomial(op, z, Q1))
    far = op.div(polynomial(op, z, P2), polynomial(op, z, Q2))
    less = op.mul(z, op.where(op.elementwise("Less", x, 8.0), near, far))
    return op.sub(op.sub(x, op.div(op.unary("Log", x), x)), less)


def ndtri(op: Builder, x: Value) -> Value:
    """Quantile function of the standard normal distribution."""
    return in_double(op, x, _ndtri)


def erfinv(op: Builder, x: Value) -> Value:
    """Inverse of erf, by Giles's polynomials in float32 and those of Cephes in float64."""
    found = _erfinv_of_double(op, x) if x.dtype == "float64" else _erfinv_of_single(op, x)
    size = op.unary("Abs", x)
    infinite = op.mul(op.unary("Sign", x), np.inf)
    found = op.where(op.elementwise("Equal", size, 1.0), infinite, found)
    return op.where(op.elementwise("Greater", size, 1.0), np.nan, found)


# fmt: off
CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)
TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)
# fmt: on


def _erfinv_of_single(op: Builder, x: Value) -> Value:
    """Inverse of erf; spec: https://people.maths.ox.ac.uk/gilesm/files/gems_erfinv.pdf."""
    w = op.unary("Neg", log1p(op, op.unary("Neg", op.mul(x, x))))
    middle = polynomial(op, op.sub(w, 2.5), CENTRE)
    root = op.unary("Sqrt", op.elementwise("Max", w, op.constant(0.0, x.dtype)))
    tail = polynomial(op, op.sub(root, 3.0), TAIL)
    return op.mul(op.where(op.elementwise("Less", w, 5.0), middle, tail), x)


def _erfinv_of_double(op: Builder, x: Value) -> Value:
    size = op.unary("Abs", x)
    share = op.mul(op.sub(1.0, size), 0.5)  # probability beyond the quantile
    near = op.elementwise("Greater", share, exp(-2))
    tail = op.mul(_quantile_of_tail(op, op.where(near, 0.1, share)), op.unary("Sign", x))
    middle = _quantile_of_middle(op, op.mul(x, 0.5))
    return op.mul(op.where(near, middle, tail), sqrt(0.5))


# -- the gamma function ----------------------------------------------------------------------------

# fmt: off
# Lanczos approximation for g = 7 and 9 terms, by Godfrey.
LANCZOS = (
    676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)
LANCZOS_FIRST = 0.99999999999980993
# Coefficients of Stirling's series for digamma, from 1 / x ** 12 down to x ** 0.
STIRLING = (-691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12, 0.0)
SHIFT = 10
# fmt: on


def _reduce_angle(op: Builder, x: Value) -> Value:
    """Return `pi * (x - n)` for the integer n nearest to x: exact near the poles of gamma."""
    return op.mul(op.sub(x, op.unary("Round", x)), pi)


def _lgamma(op: Builder, x: Value) -> Value:
    is_low = op.elementwise("Less", x, 0.5)
    z = op.sub(op.where(is_low, op.sub(1.0, x), x), 1.0)
    total: Value | None = None
    for i, c in enumerate(LANCZOS):
        part = op.div(c, op.add(z, float(i + 1)))
        total = part if total is None else op.add(total, part)
    assert total is not None
    total = op.add(total, LANCZOS_FIRST)
    t = op.add(z, 7.5)
    half = op.mul(op.add(z, 0.5), op.sub(op.unary("Log", t), 1.0))
    result = op.add(op.add(half, op.unary("Log", total)), 0.5 * log(2 * pi) - 7.0)
    sine = op.unary("Abs", op.unary("Sin", _reduce_angle(op, x)))
    reflected = op.sub(op.unary("Log", op.div(pi, sine)), result)
    result = op.where(is_low, reflected, result)
    infinite = op.unary("IsInf", x)
    return op.where(infinite, np.inf, result)


def lgamma(op: Builder, x: Value) -> Value:
    """`log(abs(gamma(x)))`."""
    return in_double(op, x, _lgamma)


def _digamma(op: Builder, x: Value) -> Value:
    is_low = op.elementwise("Less", x, 0.5)
    y = op.where(is_low, op.sub(1.0, x), x)
    w = op.add(y, float(SHIFT))
    inverse = op.unary("Reciprocal", w)
    series = polynomial(op, op.mul(inverse, inverse), STIRLING)
    result = op.sub(op.sub(op.unary("Log", w), op.mul(inverse, 0.5)), series)
    for k in range(SHIFT):
        result = op.sub(result, op.unary("Reciprocal", op.add(y, float(k))))
    angle = _reduce_angle(op, x)
    cotangent = op.div(op.unary("Cos", angle), op.unary("Sin", angle))
    reflected = op.sub(result, op.mul(cotangent, pi))
    result = op.where(is_low, reflected, result)
    whole = op.elementwise("Equal", x, op.unary("Floor", x))
    at_pole = op.elementwise("And", op.elementwise("LessOrEqual", x, 0.0), whole)
    return op.where(at_pole, np.nan, result)


def digamma(op: Builder, x: Value) -> Value:
    """Derivative of `log(gamma(x))`."""
    return in_double(op, x, _digamma)


# -- series whose number of terms depends on their arguments ---------------------------------------

# Coefficients of the Euler-Maclaurin formula: Bernoulli numbers B(2 k) / (2 k)!.
BERNOULLI = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
    1 / 74724249600, -3617 / 10670622842880000, 43867 / 5109094217170944000,
)  # fmt: skip
TINY = 1e-300


def _ones(op: Builder, *values: Value) -> Value:
    """Return ones of the shape that values broadcast to."""
    total = values[0]
    for v in values[1:]:
        total = op.add(total, v)
    return op.where(op.elementwise("Equal", total, total), 1.0, op.constant(1.0, "float64"))


def _rounds(op: Builder, x: Value, least: float, factor: float) -> Value:
    """Return the number of iterations: `least + factor * sqrt(max(x))`."""
    largest = op.reduce("ReduceMax", op.reshape(x, (None,)), [0]) if x.rank else x
    most = op.mul(op.unary("Sqrt", op.clip(largest, 0.0, 1e8)), factor)
    return op.cast(op.add(most, least), "int64")


def _zeta(op: Builder, x: Value, q: Value) -> Value:
    def below_zero(at: Value, values: list[Value]) -> list[Value]:
        del at
        total, place = values
        is_below = op.elementwise("Less", place, 0.0)
        part = op.elementwise("Pow", op.where(is_below, place, 1.0), op.unary("Neg", x))
        total = op.add(total, op.where(is_below, part, 0.0))
        return [total, op.where(is_below, op.add(place, 1.0), place)]

    ones = _ones(op, x, q)
    place = op.mul(ones, q)
    lowest = op.reduce("ReduceMin", op.reshape(q, (None,)), [0]) if q.rank else q
    number = op.cast(op.unary("Ceil", op.unary("Neg", op.clip(lowest, -1e4, 0.0))), "int64")
    total, place = repeat(op, number, [op.sub(ones, 1.0), place], below_zero)
    power = op.unary("Neg", x)
    for k in range(SHIFT):
        total = op.add(total, op.elementwise("Pow", op.add(place, float(k)), power))
    w = op.add(place, float(SHIFT))
    last = op.elementwise("Pow", w, power)
    total = op.add(total, op.div(op.mul(last, w), op.sub(x, 1.0)))
    total = op.add(total, op.mul(last, 0.5))
    factor = op.div(op.mul(last, x), w)
    for j, c in enumerate(BERNOULLI):
        total = op.add(total, op.mul(factor, c))
        more = op.mul(op.add(x, 2.0 * j + 1), op.add(x, 2.0 * j + 2))
        factor = op.div(op.mul(factor, more), op.mul(w, w))
    infinite = op.constant(np.inf, "float64")
    total = op.where(op.elementwise("Equal", x, 1.0), infinite, total)
    whole_q = op.elementwise("Equal", q, op.unary("Floor", q))
    at_pole = op.elementwise("And", whole_q, op.elementwise("LessOrEqual", q, 0.0))
    broken = op.unary("Not", op.elementwise("Equal", x, op.unary("Floor", x)))
    odd = op.elementwise("And", broken, op.elementwise("Less", q, 0.0))
    total = op.where(odd, np.nan, total)
    total = op.where(at_pole, infinite, total)
    return op.where(op.elementwise("Less", x, 1.0), np.nan, total)


def _both(op: Builder, *values: Value) -> list[Value]:
    return [op.cast(v, "float64") for v in values]


def zeta(op: Builder, x: Value, q: Value) -> Value:
    """Hurwitz zeta function: the sum of `(q + k) ** -x` over k = 0, 1, …."""
    return op.cast(_zeta(op, *_both(op, x, q)), x.dtype)


def polygamma(op: Builder, a: Value, x: Value) -> Value:
    """Polygamma function: the a-th derivative of digamma at x."""
    number, place = _both(op, a, x)
    following = op.add(number, 1.0)
    sign = op.where(op.elementwise("Equal", op.elementwise("Mod", number, 2.0, fmod=1), 0.0), -1.0,
                    op.constant(1.0, "float64"))  # fmt: skip
    size = op.mul(op.unary("Exp", _lgamma(op, following)), _zeta(op, following, place))
    result = op.where(op.elementwise("Equal", number, 0.0), _digamma(op, place), op.mul(sign, size))
    whole = op.elementwise("Equal", number, op.unary("Floor", number))
    proper = op.elementwise("And", whole, op.elementwise("GreaterOrEqual", number, 0.0))
    return op.cast(op.where(proper, result, np.nan), x.dtype)


def _igamma(op: Builder, a: Value, x: Value) -> tuple[Value, Value]:
    """Return the regularized lower and upper incomplete gamma functions.

    Computed by a series where x < a + 1, else by a continued fraction (Lentz).
    """
    ones = _ones(op, a, x)
    is_low = op.elementwise("Less", x, op.add(a, 1.0))
    low_x = op.where(is_low, x, op.mul(ones, 0.0))
    high_x = op.where(is_low, op.add(a, 2.0), x)
    number = _rounds(op, a, 80.0, 14.0)

    def step(at: Value, values: list[Value]) -> list[Value]:
        term, total, c, d, fraction = values
        k = op.add(op.cast(at, "float64"), 1.0)
        term = op.div(op.mul(term, low_x), op.add(a, k))
        an = op.mul(op.mul(k, -1.0), op.sub(k, a))
        b = op.add(op.sub(high_x, a), op.add(op.mul(k, 2.0), 1.0))
        d = op.unary("Reciprocal", _not_zero(op, op.add(op.mul(an, d), b)))
        c = _not_zero(op, op.add(b, op.div(an, c)))
        return [term, op.add(total, term), c, d, op.mul(fraction, op.mul(c, d))]

    first = op.unary("Reciprocal", op.add(op.sub(high_x, a), 1.0))
    start = [ones, ones, op.div(ones, TINY), op.mul(ones, first), op.mul(ones, first)]
    _, total, _, _, fraction = repeat(op, number, start, step)
    power = op.sub(op.sub(op.mul(a, op.unary("Log", x)), x), _lgamma(op, a))
    factor = op.unary("Exp", power)
    lower = op.div(op.mul(factor, total), a)
    upper = op.mul(factor, fraction)
    low = op.where(is_low, lower, op.sub(1.0, upper))
    high = op.where(is_low, op.sub(1.0, lower), upper)
    none = op.elementwise("Equal", x, 0.0)
    low, high = op.where(none, 0.0, low), op.where(none, 1.0, high)
    endless = op.unary("IsInf", x)
    low, high = op.where(endless, 1.0, low), op.where(endless, 0.0, high)
    bad = op.elementwise("Or", op.elementwise("LessOrEqual", a, 0.0),
                         op.elementwise("Less", x, 0.0))  # fmt: skip
    return op.where(bad, np.nan, low), op.where(bad, np.nan, high)


def _not_zero(op: Builder, x: Value) -> Value:
    return op.where(op.elementwise("Less", op.unary("Abs", x), TINY), TINY, x)


def igamma(op: Builder, a: Value, x: Value) -> Value:
    """Regularized lower incomplete gamma function."""
    return op.cast(_igamma(op, *_both(op, a, x))[0], x.dtype)


def igammac(op: Builder, a: Value, x: Value) -> Value:
    """Regularized upper incomplete gamma function."""
    return op.cast(_igamma(op, *_both(op, a, x))[1], x.dtype)


def betainc(op: Builder, a: Value, b: Value, x: Value) -> Value:
    """Regularized incomplete beta function, by a continued fraction (Lentz)."""
    first, second, place = _both(op, a, b, x)
    ones = _ones(op, first, second, place)
    both = op.add(first, second)
    is_low = op.elementwise("Less", place, op.div(op.add(first, 1.0), op.add(both, 2.0)))
    p, q = op.where(is_low, first, second), op.where(is_low, second, first)
    t = op.where(is_low, place, op.sub(1.0, place))
    number = _rounds(op, both, 60.0, 8.0)

    def lentz(top: Value, c: Value, d: Value) -> tuple[Value, Value, Value]:
        d = op.unary("Reciprocal", _not_zero(op, op.add(op.mul(top, d), 1.0)))
        c = _not_zero(op, op.add(op.div(top, c), 1.0))
        return c, d, op.mul(c, d)

    def step(at: Value, values: list[Value]) -> list[Value]:
        c, d, fraction = values
        k = op.add(op.cast(at, "float64"), 1.0)
        twice = op.mul(k, 2.0)
        even = op.div(op.mul(op.mul(k, op.sub(q, k)), t),
                      op.mul(op.add(p, op.sub(twice, 1.0)), op.add(p, twice)))  # fmt: skip
        c, d, factor = lentz(even, c, d)
        fraction = op.mul(fraction, factor)
        odd = op.div(op.mul(op.mul(op.unary("Neg", op.add(p, k)), op.add(both, k)), t),
                     op.mul(op.add(p, twice), op.add(p, op.add(twice, 1.0))))  # fmt: skip
        c, d, factor = lentz(odd, c, d)
        return [c, d, op.mul(fraction, factor)]

    begun = op.sub(1.0, op.div(op.mul(both, t), op.add(p, 1.0)))
    begun = op.unary("Reciprocal", _not_zero(op, begun))
    start = [ones, op.mul(ones, begun), op.mul(ones, begun)]
    _, _, fraction = repeat(op, number, start, step)
    power = op.add(op.mul(p, op.unary("Log", t)), op.mul(q, log1p(op, op.unary("Neg", t))))
    scale = op.sub(_lgamma(op, both), op.add(_lgamma(op, p), _lgamma(op, q)))
    found = op.div(op.mul(op.unary("Exp", op.add(power, scale)), fraction), p)
    result = op.where(is_low, found, op.sub(1.0, found))
    result = op.where(op.elementwise("Equal", place, 0.0), 0.0, result)
    result = op.where(op.elementwise("Equal", place, 1.0), 1.0, result)
    zero = op.constant(0.0, "float64")
    bad = op.elementwise("Or", op.elementwise("LessOrEqual", p, zero),
                         op.elementwise("LessOrEqual", q, zero))  # fmt: skip
    outside = op.elementwise("Or", op.elementwise("Less", place, zero),
                             op.elementwise("Greater", place, 1.0))  # fmt: skip
    return op.cast(op.where(op.elementwise("Or", bad, outside), np.nan, result), x.dtype)
