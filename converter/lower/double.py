"""Replacements for operators that onnxruntime does not compute with float64 precision.

Some have only a float32 kernel; attributes are float32 whatever the dtype of the operands is. Asin,
Acos and Atan start from the float32 result and add a correction, whose sine or tangent follows from
the addition theorems and is so small that one or two terms of its series suffice. Operators without
a replacement are computed in float32, and counted (`Graph.narrowed`).
"""

from collections.abc import Callable, Sequence
from itertools import product
from math import pi, prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from converter.lower.values import Value

if TYPE_CHECKING:
    from converter.lower.builder import Builder

Form: TypeAlias = "Callable[..., Value | None]"  # builder, inputs and the operator's attributes

FAR = 1e300  # beyond, the arctangent does not change
POINTS, FAR_ERF = 56, 6.0  # quadrature points; beyond FAR_ERF, erf is 1
MOST_TAPS, MOST_GROUPS = 512, 32  # limits of a convolution that is computed by matrix products
END = 1 << 31  # end of a slice that means the end of the axis


def _tan(op: "Builder", x: Value) -> Value:
    return op.div(op.unary("Sin", x), op.unary("Cos", x))


def _sinh(op: "Builder", x: Value) -> Value:
    return op.mul(op.sub(op.unary("Exp", x), op.unary("Exp", op.unary("Neg", x))), 0.5)


def _cosh(op: "Builder", x: Value) -> Value:
    return op.mul(op.add(op.unary("Exp", x), op.unary("Exp", op.unary("Neg", x))), 0.5)


def _asinh(op: "Builder", x: Value) -> Value:
    size = op.unary("Abs", x)
    root = op.unary("Sqrt", op.add(op.mul(size, size), 1.0))
    return op.mul(op.unary("Sign", x), op.unary("Log", op.add(size, root)))


def _acosh(op: "Builder", x: Value) -> Value:
    roots = op.mul(op.unary("Sqrt", op.sub(x, 1.0)), op.unary("Sqrt", op.add(x, 1.0)))
    return op.unary("Log", op.add(x, roots))


def _atanh(op: "Builder", x: Value) -> Value:
    return op.mul(op.unary("Log", op.div(op.add(x, 1.0), op.sub(1.0, x))), 0.5)


def _begun(op: "Builder", op_type: str, x: Value) -> Value:
    return op.cast(op.unary(op_type, op.cast(x, "float32")), "float64")


def _atan(op: "Builder", x: Value) -> Value:
    x = op.elementwise("Max", op.elementwise("Min", x, FAR), -FAR)
    begun = _begun(op, "Atan", x)
    tangent = _tan(op, begun)
    missing = op.div(op.sub(x, tangent), op.add(op.mul(x, tangent), 1.0))
    return op.add(begun, missing)


def _asin(op: "Builder", x: Value) -> Value:
    begun = _begun(op, "Asin", x)
    sine, cosine = op.unary("Sin", begun), op.unary("Cos", begun)
    return _finish_sine(op, begun, op.sub(op.mul(x, cosine), op.mul(_other(op, x), sine)))


def _acos(op: "Builder", x: Value) -> Value:
    begun = _begun(op, "Acos", x)
    sine, cosine = op.unary("Sin", begun), op.unary("Cos", begun)
    return _finish_sine(op, begun, op.sub(op.mul(_other(op, x), cosine), op.mul(x, sine)))


def _other(op: "Builder", x: Value) -> Value:
    """Return the cosine of an angle from its sine, or the sine from the cosine."""
    return op.unary("Sqrt", op.mul(op.sub(1.0, x), op.add(x, 1.0)))


def _finish_sine(op: "Builder", begun: Value, sine: Value) -> Value:
    """Add a small angle, of which the sine s is known, to an angle: asin(s) ~ s + s^3 / 6."""
    more = op.add(op.mul(op.mul(sine, sine), 1 / 6), 1.0)
    return op.add(begun, op.mul(sine, more))


def _celu(op: "Builder", x: Value, *, alpha: float) -> Value:
    return op.add(op.elementwise("Max", x, 0.0), _fallen(op, x, 1 / alpha, alpha))


def _elu(op: "Builder", x: Value, *, alpha: float) -> Value:
    return op.add(op.elementwise("Max", x, 0.0), _fallen(op, x, 1.0, alpha))


def _selu(op: "Builder", x: Value, *, alpha: float, gamma: float) -> Value:
    return op.mul(_elu(op, x, alpha=alpha), gamma)


def _fallen(op: "Builder", x: Value, inner: float, outer: float) -> Value:
    """Return `outer * (exp(inner * x) - 1)` where x is negative, else zero."""
    below = op.elementwise("Min", x, 0.0)
    return op.mul(op.sub(op.unary("Exp", op.mul(below, inner)), 1.0), outer)


def _leaky_relu(op: "Builder", x: Value, *, alpha: float) -> Value:
    return op.where(op.elementwise("Less", x, 0.0), op.mul(x, alpha), x)


def _hard_sigmoid(op: "Builder", x: Value, *, alpha: float, beta: float) -> Value:
    line = op.add(op.mul(x, alpha), beta)
    return op.elementwise("Max", op.elementwise("Min", line, 1.0), 0.0)


def _shrink(op: "Builder", x: Value, *, bias: float, lambd: float) -> Value:
    above = op.where(op.elementwise("Greater", x, lambd), op.sub(x, bias), 0.0)
    return op.where(op.elementwise("Less", x, -lambd), op.add(x, bias), above)


def _thresholded_relu(op: "Builder", x: Value, *, alpha: float) -> Value:
    return op.where(op.elementwise("Greater", x, alpha), x, 0.0)


def _softplus(op: "Builder", x: Value) -> Value:
    """`max(x, 0) + log(1 + u)`, u = exp(-|x|); the kernel's log(1 + exp(x)) overflows."""
    u = op.unary("Exp", op.unary("Neg", op.unary("Abs", x)))
    above = op.add(u, 1.0)
    grown = op.sub(above, 1.0)
    is_lost = op.elementwise("Equal", grown, 0.0)
    exact = op.div(op.mul(op.unary("Log", above), u), op.where(is_lost, 1.0, grown))
    return op.add(op.elementwise("Max", x, 0.0), op.where(is_lost, u, exact))


def _erf(op: "Builder", x: Value) -> Value:
    """Erf by Gauss-Legendre quadrature of exp(-t^2), exact to the last bits for |x| <= 6."""
    if x.rank == 0:
        return op.reshape(_erf(op, op.reshape(x, (1,))), ())
    points, weights = np.polynomial.legendre.leggauss(POINTS)
    x = op.elementwise("Max", op.elementwise("Min", x, FAR_ERF), -FAR_ERF)
    at = op.mul(op.unsqueeze(x, [-1]), op.constant((points + 1) / 2, "float64"))
    bell = op.unary("Exp", op.unary("Neg", op.mul(at, at)))
    column = op.constant(weights[:, None] / pi**0.5, "float64")
    return op.mul(x, op.squeeze(op.matmul(bell, column), [-1]))


def _conv(
    op: "Builder", x: Value, w: Value, bias: Value | None = None, *, group: int = 1,
    strides: Sequence[int] = (), dilations: Sequence[int] = (), pads: Sequence[int] = (),
    kernel_shape: Sequence[int] = (), auto_pad: str = "NOTSET",
) -> Value | None:  # fmt: skip
    """Conv as a matrix product: the elements of each window (im2col) times the kernel."""
    del kernel_shape  # w.shape has it
    rank, sizes = w.rank - 2, w.shape
    known = [n for n in sizes if isinstance(n, int)]
    taps = prod(known[2:])
    if len(known) < len(sizes) or auto_pad not in ("NOTSET", "VALID") or taps > MOST_TAPS:
        return None
    steps, gaps = strides or [1] * rank, dilations or [1] * rank
    if any(pads):
        x = op.pad(x, [0, 0, *pads[:rank]], [0, 0, *pads[rank:]])
    parts = []
    for place in product(*map(range, known[2:])):
        starts = [i * d for i, d in zip(place, gaps, strict=True)]
        left = [(k - 1 - i) * d for k, i, d in zip(known[2:], place, gaps, strict=True)]
        cut = op.slice(x, list(range(2, x.rank)), starts, [-n if n else END for n in left], steps)
        parts.append(op.plain(op.transpose(cut, [0, *range(2, x.rank), 1])))
    filters, each = known[0] // group, known[1]
    if each == 1 and group > MOST_GROUPS and filters == 1:
        kernel = op.reshape(op.transpose(w, [*range(2, w.rank), 1, 0]), (taps, known[0]))
        products = [
            op.mul(part, op.slice(kernel, [0], [i], [i + 1])) for i, part in enumerate(parts)
        ]
        made = op.elementwise("Sum", *products)
    elif group > MOST_GROUPS:
        return None
    else:
        made = op.concat([
            op.matmul(
                op.concat([op.slice(p, [-1], [g * each], [(g + 1) * each]) for p in parts], -1),
                op.reshape(
                    op.transpose(
                        op.slice(w, [0], [g * filters], [(g + 1) * filters]),
                        [*range(2, w.rank), 1, 0],
                    ),
                    (taps * each, filters),
                ),
            )
            for g in range(group)
        ], -1)  # fmt: skip
    if bias is not None:
        made = op.add(made, bias)
    return op.transpose(made, [0, made.rank - 1, *range(1, made.rank - 1)])


# A form that returns None does not support these sizes; the operator is computed in float32.
FORMS: dict[str, Form] = {
    "Conv": _conv,
    "Acos": _acos, "Acosh": _acosh, "Asin": _asin, "Asinh": _asinh, "Atan": _atan,
    "Atanh": _atanh, "Celu": _celu, "Cosh": _cosh, "Elu": _elu, "Erf": _erf,
    "HardSigmoid": _hard_sigmoid, "LeakyRelu": _leaky_relu, "Selu": _selu, "Shrink": _shrink,
    "Sinh": _sinh, "Softplus": _softplus, "Tan": _tan,
    "ThresholdedRelu": _thresholded_relu,
}  # fmt: skip
