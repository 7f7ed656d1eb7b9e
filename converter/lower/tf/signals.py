"""Fourier transforms, spectrograms and MFCCs.

Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels
"""

from math import cos, log1p, pi, sqrt

import numpy as np

from converter.lower import dims
from converter.lower.graph import Dim
from converter.lower.ops.complex import join
from converter.lower.ops.fourier import (
    MOST_OF_PRIME,
    along,
    angles,
    fit_length,
    of_real,
    to_real,
)
from converter.lower.table import Variant
from converter.lower.tf.complexes import pair
from converter.lower.tf.context import Context
from converter.lower.tf.program_values import Complex, ProgramValue
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value
from formats.core.plurals import count

# -- Fourier transforms ----------------------------------------------------------------------------


@tf_op(
    *(
        Variant(name, f"The Fourier transform along the last {axes} axes.", axes=axes)
        for name, axes in (("FFT", 1), ("FFT2D", 2), ("FFT3D", 3))
    ),
    *(
        Variant(name, f"Its inverse along the last {axes} axes.", axes=axes, inverse=True)
        for name, axes in (("IFFT", 1), ("IFFT2D", 2), ("IFFT3D", 3))
    ),
    any_input=True,
)
def fft(op: Context, input: ProgramValue, /, *, axes: int, inverse: bool = False) -> Complex:
    """The Fourier transform along the last axes, or its inverse."""
    found = pair(input)
    for axis in range(axes):
        found = along(op, found, -1 - axis, inverse=inverse)
    return found


def _lengths(op: Context, fft_length: Value, axes: int) -> list[Dim]:
    dims = op.dims(fft_length)
    if len(dims) != axes:
        raise Unsupported(f"{count('length', len(dims))} for {axes} axes")
    return dims


def _swap(op: Context, x: Value, axis: int) -> Value:
    order = list(range(x.rank))
    order[axis], order[-1] = order[-1], order[axis]
    return op.transpose(x, order)


def _fit_along(op: Context, x: Value, axis: int, lengths: Value, dims: list[Dim]) -> Value:
    number = len(dims) + axis
    computed = op.cast(op.slice(lengths, [0], [number], [number + 1]), "int64")
    if axis == -1:
        return fit_length(op, x, dims[number], computed)
    return _swap(op, fit_length(op, _swap(op, x, axis), dims[number], computed), axis)


@tf_op(
    Variant("RFFT", "Half the Fourier transform of a real tensor over 1 axes.", axes=1),
    Variant("RFFT2D", "Half the Fourier transform of a real tensor over 2 axes.", axes=2),
    Variant("RFFT3D", "Half the Fourier transform of a real tensor over 3 axes.", axes=3),
    any_input=False,
)
def rfft(op: Context, input: Value, fft_length: Value, /, *, axes: int) -> Complex:
    """The first half of the Fourier transform of a real tensor."""
    dims, x = _lengths(op, fft_length, axes), input
    for axis in range(1, axes + 1):
        x = _fit_along(op, x, -axis, fft_length, dims)
    found = of_real(op, x)
    for axis in range(2, axes + 1):
        found = along(op, found, -axis, inverse=False)
    return found


@tf_op(
    Variant("IRFFT", "The real inverse of half a transform over 1 axes.", axes=1),
    Variant("IRFFT2D", "The real inverse of half a transform over 2 axes.", axes=2),
    Variant("IRFFT3D", "The real inverse of half a transform over 3 axes.", axes=3),
    any_input=True,
)
def irfft(op: Context, input: ProgramValue, fft_length: Value, /, *, axes: int) -> Value:
    """The inverse of RFFT: a real tensor from half of its Fourier transform."""
    found = pair(input)
    lengths = op.ints(fft_length, "lengths of a transform")
    halves = [*lengths[:-1], lengths[-1] // 2 + 1]
    vector = op.constant(halves, "int64")
    parts = []
    for part in (found.real, found.imaginary):
        cut = part
        for axis in range(1, axes + 1):
            cut = _fit_along(op, cut, -axis, vector, list(halves))
        parts.append(cut)
    found = join(parts[0], parts[1])
    for axis in range(axes, 1, -1):
        found = along(op, found, -axis, inverse=True)
    return to_real(op, found, lengths[-1])


# -- spectrograms ----------------------------------------------------------------------------------


@tf_op("AudioSpectrogram")
def audio_spectrogram(
    op: Context, input: Value, /, *,
    window_size: int, stride: int, magnitude_squared: bool = False,
) -> Value:  # fmt: skip
    """Magnitudes of the frequencies in windows of a signal: [channels, windows, frequencies]."""
    length = 1 << (window_size - 1).bit_length() if window_size > 1 else 1
    if window_size * length > 2 * MOST_OF_PRIME:
        raise Unsupported(f"a window of {window_size}")
    steps = np.arange(window_size)
    window = 0.5 - 0.5 * np.cos(2 * pi * steps / window_size)
    signal = op.transpose(input, [1, 0])  # [channels, samples]
    count = _frames(signal.shape[1], window_size, stride)
    turn = angles(window_size, length // 2 + 1, length)
    # The transform of each window is a convolution with cosines and sines.
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
    return dims.add(dims.floordiv(dims.sub(size, window), stride), 1)


@tf_op("Mfcc")
def mfcc(
    op: Context, spectrogram: Value, sample_rate: Value, /, *,
    upper_frequency_limit: float = 4000.0, lower_frequency_limit: float = 20.0,
    filterbank_channel_count: int = 40, dct_coefficient_count: int = 13,
) -> Value:  # fmt: skip
    """Mel-frequency cepstral coefficients of a spectrogram: [channels, windows, coefficients]."""
    bins = spectrogram.shape[-1]
    if not isinstance(bins, int):
        raise Unsupported("a spectrum of unknown size")
    rate = op.static(sample_rate)
    limits = filterbank_channel_count, lower_frequency_limit, upper_frequency_limit
    if rate is None:
        bank = _filterbank_at(op, bins, sample_rate, *limits)
    else:
        bank = op.constant(_filterbank(bins, int(rate), *limits), "float64")
    # The kernel accumulates in float64.
    loud = op.unary("Sqrt", op.cast(spectrogram, "float64"))
    shares = op.matmul(loud, bank)
    logs = op.unary("Log", op.elementwise("Max", shares, 1e-12))
    return op.cast(op.matmul(logs, op.constant(
        _waves(filterbank_channel_count, dct_coefficient_count), "float64"
    )), "float32")  # fmt: skip


def _mel(frequency: float) -> float:
    return 1127.0 * log1p(frequency / 700.0)


def _filterbank(bins: int, rate: int, count: int, lowest: float, highest: float) -> np.ndarray:
    """Return the weight of each frequency in each mel channel: [bins, count].

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


def _filterbank_at(
    op: Context, bins: int, rate: Value, count: int, lowest: float, highest: float
) -> Value:
    """Return `_filterbank` for a computed sample rate: a triangle per channel on the mel scale."""
    low, high = _mel(lowest), _mel(highest)
    spacing = (high - low) / (count + 1)
    left = np.array([low + spacing * i for i in range(count)])
    hertz = op.mul(op.cast(op.squeeze(rate, range(rate.rank)), "float64"), 0.5 / (bins - 1))
    steps = op.constant(np.arange(bins, dtype=np.float64)[:, None])
    mel = op.mul(op.unary("Log", op.add(op.mul(steps, op.div(hertz, 700.0)), 1.0)), 1127.0)
    rising = op.div(op.sub(mel, op.constant(left)), spacing)
    falling = op.div(op.sub(op.constant(left + 2 * spacing), mel), spacing)
    shares = op.elementwise("Max", op.elementwise("Min", rising, falling), 0.0)
    number = op.div(op.constant(lowest, "float64"), hertz)
    start = op.unary("Floor", op.add(number, 1.5))
    end = op.unary("Floor", op.div(op.constant(highest, "float64"), hertz))
    outside = op.elementwise(
        "Or", op.elementwise("Less", steps, start), op.elementwise("Greater", steps, end)
    )
    return op.where(outside, op.constant(0, "float64"), shares)


def _waves(length: int, count: int) -> np.ndarray:
    factor = sqrt(2.0 / length)
    return np.array(
        [[factor * cos(i * pi / length * (j + 0.5)) for i in range(count)] for j in range(length)]
    )
