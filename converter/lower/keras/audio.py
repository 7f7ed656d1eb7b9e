"""Spectra of signals.

Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/preprocessing
"""

from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.keras.preprocessing import EPSILON
from converter.lower.keras.table import Roles, Unsupported, keras_layer
from converter.lower.ops.conv import convolve
from converter.lower.ops.elementwise import atan2
from converter.lower.ops.norm import wide
from converter.lower.values import Value

F = np.float32
# HTK's mel scale, as tf.signal has it.
BREAK_FREQUENCY, HIGH_FREQUENCY_Q = 700.0, 1127.0


@keras_layer("STFTSpectrogram")
def stft_spectrogram(
    op: Builder, w: Roles, x: Value, /, *,
    mode: str = "log", frame_length: int = 256, frame_step: int | None = None,
    fft_length: int | None = None, window: Any = "hann", periodic: bool = False,
    scaling: str | None = "density", padding: str = "valid", expand_dims: bool = False,
    data_format: str | None = "channels_last",
) -> Value:  # fmt: skip
    """The short-time Fourier transform of each channel, as convolutions, in any of its modes."""
    del fft_length, window, periodic, scaling  # they are in the kernels
    first = data_format == "channels_first"
    channels = x.shape[1 if first else -1]
    if not isinstance(channels, int):
        raise Unsupported("channels of unknown number")
    signal = x if first else op.transpose(x, [0, 2, 1])
    alone = op.reshape(signal, (None, 1, signal.shape[2]))

    def convolved(role: str) -> Value:
        """Return [batch, channels, frequencies, frames]."""
        found = convolve(
            op, alone, w[role], None, strides=frame_step or frame_length // 2, padding=padding,
            data_format="channels_first", dilations=1,
        )  # fmt: skip
        return op.reshape(found, (x.shape[0], channels, *found.shape[1:]))

    real = convolved("real_kernel") if mode != "imag" else None
    imaginary = convolved("imag_kernel") if mode != "real" else None
    if real is None or imaginary is None:
        result = real if imaginary is None else imaginary
        assert result is not None
    elif mode == "angle":
        result = atan2(op, imaginary, real)
    elif mode == "stft":
        result = op.concat([real, imaginary], 2)
    else:
        result = op.add(op.mul(real, real), op.mul(imaginary, imaginary))
        result = _of_power(op, result, mode)
    if expand_dims:
        return op.transpose(result, [0, 1, 3, 2] if first else [0, 3, 2, 1])
    count = result.shape[2]
    rows = channels * count if isinstance(count, int) else None
    flat = op.reshape(result, (result.shape[0], rows, result.shape[3]))
    return flat if first else op.transpose(flat, [0, 2, 1])


def _of_power(op: Builder, power: Value, mode: str) -> Value:
    if mode == "psd":
        inner = op.slice(power, [2], [1], [-1])
        return op.add(power, op.pad(inner, [0, 0, 1, 0], [0, 0, 1, 0]))
    least = op.constant(EPSILON, power.dtype)
    magnitude = op.unary("Sqrt", op.elementwise("Max", power, least))
    if mode == "magnitude":
        return magnitude
    if mode != "log":
        raise Unsupported(f"mode {mode!r}")
    return op.unary("Log", op.elementwise("Max", magnitude, least))


@keras_layer("MelSpectrogram")
def mel_spectrogram(
    op: Builder, w: Roles, x: Value, /, *,
    fft_length: int = 2048, sequence_stride: int = 512, sequence_length: int | None = None,
    window: Any = "hann", sampling_rate: int = 16000, num_mel_bins: int = 128,
    min_freq: float = 20.0, max_freq: float | None = None, power_to_db: bool = True,
    top_db: float = 80.0, mag_exp: float = 2.0, min_power: float = 1e-10,
    ref_power: float = 1.0,
) -> Value:  # fmt: skip
    """The mel spectrogram of a signal, in decibels."""
    del w
    if x.rank != 2:
        raise Unsupported(f"a signal of {x.rank} axes")
    signal = wide(op, x)
    half = fft_length // 2
    padded = op.pad(signal, [0, half], [0, half], mode="reflect")
    power = _power(op, padded, fft_length, sequence_stride, sequence_length, window)
    spectrum = op.elementwise("Pow", op.unary("Sqrt", power), float(mag_exp))
    highest = max_freq or int(sampling_rate / 2)
    matrix = mel_matrix(num_mel_bins, half + 1, sampling_rate, min_freq, highest)
    mel = op.matmul(spectrum, op.constant(matrix, signal.dtype))
    if power_to_db:
        mel = _decibels(op, mel, min_power, abs(ref_power), top_db)
    return op.cast(op.transpose(mel, [0, 2, 1]), x.dtype)


def _power(
    op: Builder, signal: Value, length: int, stride: int, window_length: int | None, window: Any
) -> Value:
    """Return the power of each frequency in each frame: [batch, frames, frequencies]."""
    inside = window_length or length
    before = (length - inside) // 2
    shape = np.pad(_window(window, inside), (before, length - inside - before))
    n = signal.shape[1]
    frames = (n - length) // stride + 1 if isinstance(n, int) else None
    found = op.emit(
        "STFT", op.unsqueeze(signal, [2]), op.constant(stride, "int64"),
        op.constant(shape, signal.dtype), op.constant(length, "int64"),
        dtype=signal.dtype, shape=(signal.shape[0], frames, length // 2 + 1, 2), onesided=1,
    )  # fmt: skip
    return op.reduce("ReduceSum", op.mul(found, found), [3])


def _window(window: Any, length: int) -> np.ndarray:
    if window is None:
        return np.ones(length)
    if isinstance(window, list):
        return np.asarray(window, np.float64)
    weights = {"hann": (0.5, 0.5), "hamming": (0.54, 0.46)}
    if window not in weights:
        raise Unsupported(f"window {window!r:.40}")
    level, wave = weights[window]
    return np.asarray(level - wave * np.cos(2 * np.pi * np.arange(length) / length))


def _decibels(op: Builder, x: Value, least: float, reference: float, top: float) -> Value:
    tens = op.unary("Log", op.elementwise("Max", x, op.constant(least, x.dtype)))
    level = op.mul(tens, 10.0 / float(np.log(10.0)))
    level = op.sub(level, 10.0 * float(np.log10(max(reference, least))))
    # The loudest of the whole batch.
    peak = op.reduce("ReduceMax", level, list(range(x.rank)), keepdims=True)
    return op.elementwise("Max", level, op.sub(peak, top))


def mel_matrix(
    bands: int, frequencies: int, sampling_rate: float, lowest: float, highest: float
) -> np.ndarray:
    """Return the share of each frequency in each band: triangles on the mel scale."""

    def mel(hertz: np.ndarray) -> np.ndarray:
        return (F(HIGH_FREQUENCY_Q) * np.log(F(1.0) + hertz / F(BREAK_FREQUENCY))).astype(F)

    every = mel(np.linspace(0.0, sampling_rate / 2.0, frequencies, dtype=F)[1:])[:, None]
    ends = mel(np.asarray([lowest, highest], F))
    edges = np.linspace(ends[0], ends[1], bands + 2, dtype=F)
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (every - low) / (middle - low), (high - every) / (high - middle)
    triangles = np.maximum(F(0), np.minimum(rising, falling))
    return np.asarray(np.pad(triangles, ((1, 0), (0, 0))))
