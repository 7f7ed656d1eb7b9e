"""Orthogonal polynomials of degrees that may differ from element to element.

Each is a recurrence in the degree, `p[k + 1] = (a x + b) p[k] - c p[k - 1]`, run to the highest
degree of all, in float64.
Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/Math.h
"""

from collections.abc import Callable
from dataclasses import dataclass

from converter.lower.repeat import repeat
from converter.lower.table import Variant
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Scalar
from converter.lower.torch.promotion import floating, result_type, together
from converter.lower.torch.table import aten
from converter.lower.values import Value

Coefficients = Callable[[Context, Value, Value], tuple[Value, Value]]


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A family of polynomials whose first one is 1.

    Attributes:
        slope: Coefficient of x in the polynomial of degree 1.
        shift: Its constant.
        coefficients: Maps x and the degree k, both float64, to the factors of p[k] and p[k - 1].
        is_shifted: Whether x is 2 x - 1 instead.
    """

    slope: float
    shift: float
    coefficients: Coefficients
    is_shifted: bool = False


def _chebyshev(op: Context, x: Value, k: Value) -> tuple[Value, Value]:
    del k
    return op.mul(x, 2.0), op.constant(1.0, "float64")


def _hermite(op: Context, x: Value, k: Value) -> tuple[Value, Value]:
    return op.mul(x, 2.0), op.mul(k, 2.0)


def _hermite_of_statistics(op: Context, x: Value, k: Value) -> tuple[Value, Value]:
    del op
    return x, k


def _laguerre(op: Context, x: Value, k: Value) -> tuple[Value, Value]:
    after = op.add(k, 1.0)
    return op.div(op.sub(op.add(op.mul(k, 2.0), 1.0), x), after), op.div(k, after)


def _legendre(op: Context, x: Value, k: Value) -> tuple[Value, Value]:
    after = op.add(k, 1.0)
    return op.div(op.mul(op.add(op.mul(k, 2.0), 1.0), x), after), op.div(k, after)


CHEBYSHEV = {"t": (1.0, 0.0), "u": (2.0, 0.0), "v": (2.0, -1.0), "w": (2.0, 1.0)}
KINDS = {"t": "first", "u": "second", "v": "third", "w": "fourth"}


def _names(family: str) -> tuple[str, ...]:
    name = f"special_{family}"
    return name, f"{name}.x_scalar", f"{name}.n_scalar"


@aten(
    *(Variant(_names(f"chebyshev_polynomial_{kind}"),
              f"Chebyshev polynomials of the {KINDS[kind]} kind.",
              family=Recurrence(slope, shift, _chebyshev))
      for kind, (slope, shift) in CHEBYSHEV.items()),
    *(Variant(_names(f"shifted_chebyshev_polynomial_{kind}"),
              f"Chebyshev polynomials of the {KINDS[kind]} kind of 2 x - 1.",
              family=Recurrence(slope, shift, _chebyshev, is_shifted=True))
      for kind, (slope, shift) in CHEBYSHEV.items()),
    Variant(_names("hermite_polynomial_h"), "Hermite polynomials of physics.",
            family=Recurrence(2.0, 0.0, _hermite)),
    Variant(_names("hermite_polynomial_he"), "Hermite polynomials of statistics.",
            family=Recurrence(1.0, 0.0, _hermite_of_statistics)),
    Variant(_names("laguerre_polynomial_l"), "Laguerre polynomials.",
            family=Recurrence(-1.0, 1.0, _laguerre)),
    Variant(_names("legendre_polynomial_p"), "Legendre polynomials.",
            family=Recurrence(1.0, 0.0, _legendre)),
)  # fmt: skip
def polynomial(op: Context, x: Value | Scalar, n: Value | Scalar, *, family: Recurrence) -> Value:
    """A polynomial of a degree that is rounded towards zero; 0 of a negative degree."""
    dtype = floating(result_type(x, n))
    at, degree = together(op, [x, n], "float64")
    degree = op.cast(op.cast(degree, "int64"), "float64")
    if family.is_shifted:
        at = op.sub(op.mul(at, 2.0), 1.0)
    nothing = op.mul(op.add(at, degree), 0.0)  # of the shape of both; NaN where x is
    one = op.add(nothing, 1.0)
    first = op.add(op.mul(op.add(at, nothing), family.slope), family.shift)
    zero = op.constant(0.0, "float64")
    start = op.where(op.elementwise("Less", degree, 0.0), zero, one)
    start = op.where(op.elementwise("Equal", degree, 1.0), first, start)

    def step(number: Value, values: list[Value]) -> list[Value]:
        before, last, found = values
        k = op.add(op.cast(number, "float64"), 1.0)
        up, down = family.coefficients(op, at, k)
        now = op.sub(op.mul(up, last), op.mul(down, before))
        is_asked = op.elementwise("Equal", degree, op.add(k, 1.0))
        return [last, now, op.where(is_asked, now, found)]

    highest = op.reduce("ReduceMax", degree, list(range(degree.rank)))
    steps = op.cast(op.elementwise("Max", op.sub(highest, 1.0), 0.0), "int64")
    return op.cast(repeat(op, steps, [one, first, start], step)[2], dtype)
