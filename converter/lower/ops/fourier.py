"""Fourier transforms, by products with matrices of sines and cosines or by ONNX's DFT.

A complex tensor is a pair of real ones. Matrix products are exact to the last bits, and fast for
short lengths; longer transforms are composed of shorter ones (Cooley-Tukey). Unknown lengths and
large primes use ONNX's DFT, which onnxruntime computes less accurately.
"""

from dataclasses import replace
from math import sqrt

import numpy as np

from converter.lower import dims
from converter.lower.builder import Builder
from converter.lower.graph import Attribute, Dim
from converter.lower.ops.complex import Complex, join, multiply, zeros_like
from converter.lower.values import Value

MOST = 1 << 18  # elements of a matrix
MOST_OF_PRIME = 1 << 22  # elements of a matrix for a prime length, which has no factors
AXIS_IS_INPUT = 20  # first opset in which the axis of DFT is an input


def angles(rows: int, columns: int, size: int) -> np.ndarray:
    """Return the matrix `2 * pi * j * k / size` for rows j and columns k."""
    return 2 * np.pi * (np.outer(np.arange(rows), np.arange(columns)) % size) / size


def fit_length(op: Builder, x: Value, length: Dim, computed: Value | None) -> Value:
    """Slice x or pad it with zeros to a length along its last axis."""
    own = x.shape[-1]
    if length is not None and own == length:
        return x
    rest = [0] * (x.rank - 1)
    if isinstance(own, int) and isinstance(length, int):
        if own > length:
            return op.slice(x, [-1], [0], [length])
        return op.pad(x, [0] * x.rank, [*rest, length - own])
    wanted = op.constant([length], "int64") if isinstance(length, int) else computed
    assert wanted is not None
    shape = (*x.shape[:-1], None)
    ends = op.emit(
        "Slice", x, op.constant([0], "int64"), wanted, op.constant([x.rank - 1], "int64"),
        dtype=x.dtype, shape=shape,
    )  # fmt: skip
    zeros = op.constant([0] * (2 * x.rank - 1), "int64")
    amounts = op.concat([zeros, op.sub(wanted, op.size(ends, x.rank - 1))], 0)
    return op.emit("Pad", ends, amounts, dtype=x.dtype, shape=(*x.shape[:-1], length))


def transform(op: Builder, x: Complex, *, inverse: bool) -> Complex:
    """Return the Fourier transform of a complex tensor along its last axis."""
    size = x.real.shape[-1]
    factor = _factor(size) if isinstance(size, int) else 1
    if isinstance(size, int) and factor > 1 and size * size > MOST:
        return _by_factors(op, x, factor, size // factor, inverse=inverse)
    if isinstance(size, int) and size * size <= MOST_OF_PRIME:
        turn = angles(size, size, size)
        scale, sign = (1 / size, 1) if inverse else (1, -1)
        cosines = op.constant(np.cos(turn) * scale, x.real.dtype)
        sines = op.constant(np.sin(turn) * (sign * scale), x.real.dtype)
        real, imaginary = _times(op, x.real, cosines), _times(op, x.imaginary, cosines)
        return join(
            op.sub(real, _times(op, x.imaginary, sines)),
            op.add(imaginary, _times(op, x.real, sines)),
        )
    both = op.concat([op.unsqueeze(x.real, [-1]), op.unsqueeze(x.imaginary, [-1])], -1)
    return _parts(op, _dft(op, both, size, inverse=inverse, onesided=False))


def _factor(size: int) -> int:
    """Return the largest divisor of a number that does not exceed its square root."""
    return next(n for n in range(int(sqrt(size)), 0, -1) if size % n == 0)


def _by_factors(op: Builder, x: Complex, a: int, b: int, *, inverse: bool) -> Complex:
    """Return a transform of a * b elements by transforms of a and of b elements (Cooley-Tukey)."""
    batch = [0] * (x.rank - 1)  # in a Reshape, 0 copies the size

    def shaped(value: Value, *last: int) -> Value:
        vector = op.constant([*batch, *last], "int64")
        shape = (*value.shape[: x.rank - 1], *last)
        return op.emit("Reshape", value, vector, dtype=value.dtype, shape=shape)

    cut = join(shaped(x.real, a, b), shaped(x.imaginary, a, b))
    first = along(op, cut, -2, inverse=inverse)
    turn = angles(a, b, a * b) * (1 if inverse else -1)
    kind = x.real.dtype
    twiddles = join(op.constant(np.cos(turn), kind), op.constant(np.sin(turn), kind))
    made = transform(op, multiply(op, first, twiddles, op.mul), inverse=inverse)
    order = [*range(x.rank - 1), x.rank, x.rank - 1]
    real, imaginary = (
        shaped(op.plain(op.transpose(v, order)), a * b) for v in (made.real, made.imaginary)
    )
    return join(real, imaginary)


def of_real(op: Builder, x: Value) -> Complex:
    """Return the one-sided transform of a real tensor along its last axis (rfft)."""
    size = x.shape[-1]
    if isinstance(size, int) and size * (size // 2 + 1) > MOST and _factor(size) > 1:
        whole = transform(op, join(x, zeros_like(op, x)), inverse=False)
        real, imaginary = (
            op.slice(v, [-1], [0], [size // 2 + 1]) for v in (whole.real, whole.imaginary)
        )
        return join(real, imaginary)
    if isinstance(size, int) and size * (size // 2 + 1) <= MOST_OF_PRIME:
        turn = angles(size, size // 2 + 1, size)
        cosines = op.constant(np.cos(turn), x.dtype)
        sines = op.constant(-np.sin(turn), x.dtype)
        return join(_times(op, x, cosines), _times(op, x, sines))
    count = dims.add(dims.floordiv(size, 2), 1)
    return _parts(op, _dft(op, op.unsqueeze(x, [-1]), count, inverse=False, onesided=True))


def to_real(op: Builder, x: Complex, length: int) -> Value:
    """Return the real tensor of a length from its one-sided transform (irfft)."""
    count = x.real.shape[-1]
    assert isinstance(count, int)
    if count * length > MOST:
        # The second half mirrors the first.
        inner = (length - 1) // 2
        mirrored = []
        for part, sign in ((x.real, 1), (x.imaginary, -1)):
            back = op.slice(part, [-1], [inner], [0], [-1])
            back = replace(back, shape=(*part.shape[:-1], inner))
            mirrored.append(op.concat([part, back if sign > 0 else op.unary("Neg", back)], -1))
        # The imaginary part, which should be zero, is dropped.
        return transform(op, join(mirrored[0], mirrored[1]), inverse=True).real
    turn = angles(count, length, length)
    twice = np.full(count, 2.0)
    twice[0] = 1
    if length % 2 == 0:
        twice[-1] = 1
    waves = [
        _times(op, part, op.constant(matrix * twice[:, None] / length, part.dtype))
        for part, matrix in ((x.real, np.cos(turn)), (x.imaginary, -np.sin(turn)))
    ]
    return op.add(*waves)


def _times(op: Builder, x: Value, matrix: Value) -> Value:
    if x.rank > 1:
        return op.matmul(x, matrix)
    return op.squeeze(op.matmul(op.unsqueeze(x, [0]), matrix), [0])


def _dft(op: Builder, x: Value, count: Dim, *, inverse: bool, onesided: bool) -> Value:
    """Return ONNX's DFT of [..., n, 1 or 2] along the axis before the last."""
    attributes: dict[str, Attribute] = {"inverse": int(inverse), "onesided": int(onesided)}
    is_new = x.rank == 2  # the operator requires a batch axis
    x = op.unsqueeze(x, [0]) if is_new else x
    inputs: list[Value | None] = [x]
    if op.graph.opset >= AXIS_IS_INPUT:
        inputs += [None, op.constant(x.rank - 2, "int64")]
    else:
        attributes["axis"] = x.rank - 2
    shape = (*x.shape[:-2], count, 2)
    made = op.emit("DFT", *inputs, dtype=x.dtype, shape=shape, **attributes)
    return op.squeeze(made, [0]) if is_new else made


def _parts(op: Builder, x: Value) -> Complex:
    real, imaginary = (op.squeeze(op.slice(x, [-1], [i], [i + 1]), [-1]) for i in (0, 1))
    return join(real, imaginary)


def along(op: Builder, x: Complex, axis: int, *, inverse: bool) -> Complex:
    """Return the Fourier transform of a complex tensor along any axis."""
    axis = x.real.axis(axis)
    rank = x.real.rank
    if axis == rank - 1:
        return transform(op, x, inverse=inverse)
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    turned = join(op.transpose(x.real, order), op.transpose(x.imaginary, order))
    made = transform(op, turned, inverse=inverse)
    return join(op.transpose(made.real, order), op.transpose(made.imaginary, order))
