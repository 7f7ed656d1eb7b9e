"""Fourier transforms, as products with matrices of sines and cosines or by ONNX's DFT; spectra.

A complex tensor is a pair of real ones. Matrices are exact to the last bits and fast while they are
small; longer transforms are made of shorter ones. What is of a length that only a run knows, or of
a large prime one, is ONNX's operator's, which onnxruntime computes with less care.
Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels
"""

from dataclasses import replace
from math import cos, log1p, pi, sqrt

import numpy as np

from converter.lower.graph import Attribute, Dim
from converter.lower.keras.operations.signals import angles
from converter.lower.tf import sizes
from converter.lower.tf.complexes import WHOLES, multiplied, pair, zeros_like
from converter.lower.tf.context import Context
from converter.lower.tf.table import Gap, tf_op
from converter.lower.tf.things import Complex, Thing
from converter.lower.values import Value

MOST = 1 << 18  # elements of a matrix
MOST_OF_PRIME = 1 << 22  # where nothing else is as exact
AXIS_IS_INPUT = 20  # opset since when DFT is given its axis as a tensor


# -- one axis, the last ----------------------------------------------------------------------------


def _fitted(op: Context, x: Value, length: Dim, computed: Value | None) -> Value:
    """Return x cut or filled up with zeros to a length along its last axis."""
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


def _transformed(op: Context, x: Complex, *, inverse: bool) -> Complex:
    """Return the transform of a complex tensor along its last axis."""
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
        return _of(
            op.sub(real, _times(op, x.imaginary, sines)),
            op.add(imaginary, _times(op, x.real, sines)),
        )
    both = op.concat([op.unsqueeze(x.real, [-1]), op.unsqueeze(x.imaginary, [-1])], -1)
    return _parts(op, _dft(op, both, size, inverse=inverse, onesided=False))


def _factor(size: int) -> int:
    """Return the divisor of a number that is nearest to its root, from below."""
    return next(n for n in range(int(sqrt(size)), 0, -1) if size % n == 0)


def _by_factors(op: Context, x: Complex, a: int, b: int, *, inverse: bool) -> Complex:
    """Return a transform of a * b elements, made of transforms of a and of b (Cooley and Tukey)."""
    batch = [0] * (x.rank - 1)  # as many as there are

    def shaped(value: Value, *last: int) -> Value:
        vector = op.constant([*batch, *last], "int64")
        shape = (*value.shape[: x.rank - 1], *last)
        return op.emit("Reshape", value, vector, dtype=value.dtype, shape=shape)

    cut = _of(shaped(x.real, a, b), shaped(x.imaginary, a, b))
    first = _along(op, cut, -2, inverse=inverse)
    turn = angles(a, b, a * b) * (1 if inverse else -1)
    kind = x.real.dtype
    twiddles = _of(op.constant(np.cos(turn), kind), op.constant(np.sin(turn), kind))
    made = _transformed(op, multiplied(op, first, twiddles, op.mul), inverse=inverse)
    order = [*range(x.rank - 1), x.rank, x.rank - 1]
    real, imaginary = (
        shaped(op.plain(op.transpose(v, order)), a * b) for v in (made.real, made.imaginary)
    )
    return _of(real, imaginary)


def _of_real(op: Context, x: Value) -> Complex:
    """Return the first half of the transform of real numbers along the last axis."""
    size = x.shape[-1]
    if isinstance(size, int) and size * (size // 2 + 1) > MOST and _factor(size) > 1:
        whole = _transformed(op, _of(x, zeros_like(op, x)), inverse=False)
        real, imaginary = (
            op.slice(v, [-1], [0], [size // 2 + 1]) for v in (whole.real, whole.imaginary)
        )
        return _of(real, imaginary)
    if isinstance(size, int) and size * (size // 2 + 1) <= MOST_OF_PRIME:
        turn = angles(size, size // 2 + 1, size)
        cosines = op.constant(np.cos(turn), x.dtype)
        sines = op.constant(-np.sin(turn), x.dtype)
        return _of(_times(op, x, cosines), _times(op, x, sines))
    count = sizes.add(sizes.floordiv(size, 2), 1)
    return _parts(op, _dft(op, op.unsqueeze(x, [-1]), count, inverse=False, onesided=True))


def _to_real(op: Context, x: Complex, length: int) -> Value:
    """Return the real numbers of a length that a first half of a transform is of."""
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
        # What should be real is taken to be.
        return _transformed(op, _of(mirrored[0], mirrored[1]), inverse=True).real
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


def _times(op: Context, x: Value, matrix: Value) -> Value:
    if x.rank > 1:
        return op.matmul(x, matrix)
    return op.squeeze(op.matmul(op.unsqueeze(x, [0]), matrix), [0])


def _of(real: Value, imaginary: Value) -> Complex:
    return Complex(real, imaginary, WHOLES[real.dtype])


def _dft(op: Context, x: Value, count: Dim, *, inverse: bool, onesided: bool) -> Value:
    """Return ONNX's transform of [..., n, 1 or 2] along the axis before the last."""
    attributes: dict[str, Attribute] = {"inverse": int(inverse), "onesided": int(onesided)}
    is_new = x.rank == 2  # the operator wants batches
    x = op.unsqueeze(x, [0]) if is_new else x
    inputs: list[Value | None] = [x]
    if op.graph.opset >= AXIS_IS_INPUT:
        inputs += [None, op.constant(x.rank - 2, "int64")]
    else:
        attributes["axis"] = x.rank - 2
    shape = (*x.shape[:-2], count, 2)
    made = op.emit("DFT", *inputs, dtype=x.dtype, shape=shape, **attributes)
    return op.squeeze(made, [0]) if is_new else made


def _parts(op: Context, x: Value) -> Complex:
    real, imaginary = (op.squeeze(op.slice(x, [-1], [i], [i + 1]), [-1]) for i in (0, 1))
    return _of(real, imaginary)


def _along(op: Context, x: Complex, axis: int, *, inverse: bool) -> Complex:
    """Return the transform of a complex tensor along any axis."""
    axis = x.real.axis(axis)
    rank = x.real.rank
    if axis == rank - 1:
        return _transformed(op, x, inverse=inverse)
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    turned = _of(op.transpose(x.real, order), op.transpose(x.imaginary, order))
    made = _transformed(op, turned, inverse=inverse)
    return _of(op.transpose(made.real, order), op.transpose(made.imaginary, order))


# -- the ops ---------------------------------------------------------------------------------------


def _complex(name: str, axes: int, *, inverse: bool) -> None:
    def handler(op: Context, input: Thing, /) -> Complex:
        found = pair(input)
        for axis in range(axes):
            found = _along(op, found, -1 - axis, inverse=inverse)
        return found

    kind = "inverse Fourier" if inverse else "Fourier"
    handler.__doc__ = f"The {kind} transform along the last {axes} axes."
    tf_op(name, any_input=True)(handler)


for _name, _axes in (("", 1), ("2D", 2), ("3D", 3)):
    _complex(f"FFT{_name}", _axes, inverse=False)
    _complex(f"IFFT{_name}", _axes, inverse=True)


def _lengths(op: Context, fft_length: Value, axes: int) -> list[Dim]:
    dims = op.dims(fft_length)
    if len(dims) != axes:
        raise Gap(f"{len(dims)} lengths for {axes} axes")
    return dims


def _swapped(op: Context, x: Value, axis: int) -> Value:
    order = list(range(x.rank))
    order[axis], order[-1] = order[-1], order[axis]
    return op.transpose(x, order)


def _fitted_along(op: Context, x: Value, axis: int, lengths: Value, dims: list[Dim]) -> Value:
    number = len(dims) + axis
    computed = op.cast(op.slice(lengths, [0], [number], [number + 1]), "int64")
    if axis == -1:
        return _fitted(op, x, dims[number], computed)
    return _swapped(op, _fitted(op, _swapped(op, x, axis), dims[number], computed), axis)


def _from_real(name: str, axes: int) -> None:
    def handler(op: Context, input: Value, fft_length: Value, /) -> Complex:
        dims, x = _lengths(op, fft_length, axes), input
        for axis in range(1, axes + 1):
            x = _fitted_along(op, x, -axis, fft_length, dims)
        found = _of_real(op, x)
        for axis in range(2, axes + 1):
            found = _along(op, found, -axis, inverse=False)
        return found

    handler.__doc__ = f"The first half of the Fourier transform of real numbers, {axes} axes."
    tf_op(name, any_input=False)(handler)


def _into_real(name: str, axes: int) -> None:
    def handler(op: Context, input: Thing, fft_length: Value, /) -> Value:
        found = pair(input)
        lengths = op.ints(fft_length, "lengths of a transform")
        halves = [*lengths[:-1], lengths[-1] // 2 + 1]
        vector = op.constant(halves, "int64")
        parts = []
        for part in (found.real, found.imaginary):
            fitted = part
            for axis in range(1, axes + 1):
                fitted = _fitted_along(op, fitted, -axis, vector, list(halves))
            parts.append(fitted)
        found = _of(parts[0], parts[1])
        for axis in range(axes, 1, -1):
            found = _along(op, found, -axis, inverse=True)
        return _to_real(op, found, lengths[-1])

    handler.__doc__ = f"The real numbers that half a Fourier transform of {axes} axes is of."
    tf_op(name, any_input=True)(handler)


for _name, _axes in (("", 1), ("2D", 2), ("3D", 3)):
    _from_real(f"RFFT{_name}", _axes)
    _into_real(f"IRFFT{_name}", _axes)


# -- spectra ---------------------------------------------------------------------------------------


@tf_op("AudioSpectrogram")
def audio_spectrogram(
    op: Context, input: Value, /, *,
    window_size: int, stride: int, magnitude_squared: bool = False,
) -> Value:  # fmt: skip
    """How loud each frequency is in each piece of a signal: [channels, pieces, frequencies]."""
    length = 1 << (window_size - 1).bit_length() if window_size > 1 else 1
    if window_size * length > 2 * MOST_OF_PRIME:
        raise Gap(f"a window of {window_size}")
    steps = np.arange(window_size)
    window = 0.5 - 0.5 * np.cos(2 * pi * steps / window_size)
    signal = op.transpose(input, [1, 0])  # [channels, samples]
    count = _frames(signal.shape[1], window_size, stride)
    turn = angles(window_size, length // 2 + 1, length)
    # A window at a time is a convolution with waves in it.
    waves = np.concatenate([np.cos(turn), np.sin(turn)], 1) * window[:, None]
    kernel = op.constant(waves.T[:, None].astype("f4"))
    bins = length // 2 + 1
    image = op.unsqueeze(signal, [1])
    made = op.emit(
        "Conv", image, kernel, dtype="float32", shape=(signal.shape[0], 2 * bins, count),
        strides=[stride], kernel_shape=[window_size],
    )  # fmt: skip
    real, imaginary = op.split(made, 1, [bins, bins])
    power = op.transpose(op.add(op.mul(real, real), op.mul(imaginary, imaginary)), [0, 2, 1])
    return power if magnitude_squared else op.unary("Sqrt", power)


def _frames(size: Dim, window: int, stride: int) -> Dim:
    if isinstance(size, int):
        return (size - window) // stride + 1 if size >= window else 0
    return sizes.add(sizes.floordiv(sizes.sub(size, window), stride), 1)


@tf_op("Mfcc")
def mfcc(
    op: Context, spectrogram: Value, sample_rate: Value, /, *,
    upper_frequency_limit: float = 4000.0, lower_frequency_limit: float = 20.0,
    filterbank_channel_count: int = 40, dct_coefficient_count: int = 13,
) -> Value:  # fmt: skip
    """The shape of a spectrum on the mel scale, as a few waves: [channels, pieces, waves]."""
    bins = spectrogram.shape[-1]
    if not isinstance(bins, int):
        raise Gap("a spectrum of unknown size")
    rate = op.int(sample_rate, "a sample rate")
    bank = _filterbank(
        bins, rate, filterbank_channel_count, lower_frequency_limit, upper_frequency_limit
    )
    # The kernel adds up in float64.
    loud = op.unary("Sqrt", op.cast(spectrogram, "float64"))
    shares = op.matmul(loud, op.constant(bank, "float64"))
    logs = op.unary("Log", op.elementwise("Max", shares, 1e-12))
    return op.cast(op.matmul(logs, op.constant(
        _waves(filterbank_channel_count, dct_coefficient_count), "float64"
    )), "float32")  # fmt: skip


def _mel(frequency: float) -> float:
    return 1127.0 * log1p(frequency / 700.0)


def _filterbank(bins: int, rate: int, count: int, lowest: float, highest: float) -> np.ndarray:
    """Return how much of each frequency is in each channel.

    Source: MfccMelFilterbank::Initialize,
    https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/kernels/mfcc_mel_filterbank.cc
    """
    low, high = _mel(lowest), _mel(highest)
    spacing = (high - low) / (count + 1)
    centres = [low + spacing * (i + 1) for i in range(count + 1)]
    hertz = 0.5 * rate / (bins - 1)
    start, end = int(1.5 + lowest / hertz), int(highest / hertz)
    matrix = np.zeros((bins, count))
    channel = 0
    for i in range(max(start, 0), min(end, bins - 1) + 1):
        mel = _mel(i * hertz)
        while channel < count and centres[channel] < mel:
            channel += 1
        below = channel - 1
        if below >= 0:
            share = (centres[channel] - mel) / (centres[channel] - centres[below])
            matrix[i, below] += share
        else:
            share = (centres[0] - mel) / (centres[0] - low)
        if channel < count:
            matrix[i, channel] += 1 - share
    return matrix


def _waves(length: int, count: int) -> np.ndarray:
    factor = sqrt(2.0 / length)
    return np.array(
        [[factor * cos(i * pi / length * (j + 0.5)) for i in range(count)] for j in range(length)]
    )
