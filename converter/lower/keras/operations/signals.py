"""Fourier transforms along the last axis, as products with matrices of sines and cosines.

A size has to be known; then the matrices are constants. A complex tensor is a pair of real ones.
Spec: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/ops/math.py
"""

from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.keras.operations.operands import as_float, known_size, tensor
from converter.lower.keras.table import OPERATIONS, Unsupported, operation
from converter.lower.ops.fourier import angles
from converter.lower.ops.pad import pad_ends
from converter.lower.values import Value

Complex = tuple[Value, Value]


def transform_axis(op: Builder, x: Complex, axis: int, *, inverse: bool = False) -> Complex:
    """Return the Fourier transform of a pair along one of its last two axes."""
    real, imaginary = x
    size = known_size(real, axis, "a Fourier transform")
    turn = angles(size, size, size)
    scale = 1 / size if inverse else 1
    cosines = op.constant(np.cos(turn) * scale, real.dtype)
    sines = op.constant(np.sin(turn) * (-scale if inverse else scale), real.dtype)

    def product(value: Value, matrix: Value) -> Value:
        first = real.axis(axis) == real.rank - 2
        return op.matmul(matrix, value) if first else op.matmul(value, matrix)

    return (
        op.add(product(real, cosines), product(imaginary, sines)),
        op.sub(product(imaginary, cosines), product(real, sines)),
    )


def _pair(op: Builder, x: Any) -> Complex:
    real, imaginary = (as_float(op, part) for part in x)
    return real, imaginary


def _by_rows(op: Builder, x: Value) -> tuple[Value, bool]:
    """Return a value of two axes at least, and whether one of them is new."""
    return (op.unsqueeze(x, [0]), True) if x.rank == 1 else (x, False)


@operation(OPERATIONS, "FFT")
def fft(op: Builder, x: Any) -> list[Value]:
    """The Fourier transform along the last axis."""
    real, imaginary = _pair(op, x)
    (real, new), (imaginary, _) = _by_rows(op, real), _by_rows(op, imaginary)
    found = transform_axis(op, (real, imaginary), -1)
    return [op.squeeze(v, [0]) if new else v for v in found]


@operation(OPERATIONS, "FFT2")
def fft2(op: Builder, x: Any) -> list[Value]:
    """The Fourier transform along the last two axes."""
    return list(transform_axis(op, transform_axis(op, _pair(op, x), -1), -2))


@operation(OPERATIONS, "IFFT2")
def ifft2(op: Builder, x: Any) -> list[Value]:
    """The inverse Fourier transform along the last two axes."""
    once = transform_axis(op, _pair(op, x), -1, inverse=True)
    return list(transform_axis(op, once, -2, inverse=True))


def real_transform(op: Builder, x: Value, window: np.ndarray, size: int) -> list[Value]:
    """Return real and imaginary part of the transform of windowed pieces: [..., length]."""
    turn = angles(len(window), size // 2 + 1, size)
    cosines = op.constant(np.cos(turn) * window[:, None], x.dtype)
    sines = op.constant(-np.sin(turn) * window[:, None], x.dtype)
    value, new = _by_rows(op, x)
    found = [op.matmul(value, matrix) for matrix in (cosines, sines)]
    return [op.squeeze(v, [0]) if new else v for v in found]


@operation(OPERATIONS, "RFFT")
def rfft(op: Builder, x: Any, *, fft_length: int | None = None) -> list[Value]:
    """The first half of the Fourier transform of real numbers along the last axis."""
    value = as_float(op, x)
    own = known_size(value, -1, "a Fourier transform")
    size = own if fft_length is None else fft_length
    value = op.slice(value, [-1], [0], [size]) if own > size else value
    return real_transform(op, value, np.ones(min(own, size)), size)


@operation(OPERATIONS, "IRFFT")
def irfft(op: Builder, x: Any, *, fft_length: int | None = None) -> Value:
    """The real inverse of half a Fourier transform along the last axis."""
    parts = list(_pair(op, x))
    own = known_size(parts[0], -1, "a Fourier transform")
    size = 2 * (own - 1) if fft_length is None else fft_length
    used = size // 2 + 1
    if own > used:
        parts = [op.slice(v, [-1], [0], [used]) for v in parts]
    turn = angles(min(own, used), size, size)
    # All but the first, and the one in the middle, count twice, for their mirror image.
    twice = np.full(len(turn), 2.0)
    twice[0] = 1
    if size % 2 == 0 and len(turn) == used:
        twice[-1] = 1
    matrices = (np.cos(turn), -np.sin(turn))
    rows = [_by_rows(op, v) for v in parts]
    waves = [
        op.matmul(v, op.constant(m * twice[:, None] / size, v.dtype))
        for (v, _), m in zip(rows, matrices, strict=True)
    ]
    result = op.add(*waves)
    return op.squeeze(result, [0]) if rows[0][1] else result


@operation(OPERATIONS, "STFT")
def stft(
    op: Builder, x: Any, *,
    sequence_length: int, sequence_stride: int, fft_length: int, window: Any = "hann",
    center: bool = True,
) -> list[Value]:  # fmt: skip
    """The short-time Fourier transform along the last axis."""
    value = tensor(op, x)
    if center:
        half = fft_length // 2
        value = pad_ends(op, value, [(0, 0)] * (value.rank - 1) + [(half, half)], "reflect")
    size = known_size(value, -1, "a Fourier transform")
    left = (fft_length - sequence_length) // 2
    right = fft_length - sequence_length - left
    shares = np.pad(_window(window, sequence_length), (left, right))
    if window is None:
        shares = np.ones(fft_length)
    starts = np.arange(0, size - fft_length + 1, sequence_stride)
    places = np.add.outer(starts, np.arange(fft_length))
    pieces = op.gather(value, op.constant(places, "int64"), -1)
    return real_transform(op, pieces, shares, fft_length)


def _window(window: Any, length: int) -> np.ndarray:
    wave = np.cos(2 * np.pi * np.arange(length) / length)
    if window is None:
        return np.ones(length)
    if isinstance(window, str):
        if window not in ("hann", "hamming"):
            raise Unsupported(f"window {window!r}")
        return 0.5 - 0.5 * wave if window == "hann" else 0.54 - 0.46 * wave
    return np.asarray(window, np.float64)
