"""Windows along a signal: the Fourier transforms of all of them, and back.

A window at a time is a convolution with waves, and its inverse the transpose of one, while the
kernel is small; longer windows are cut out first, and transformed by `converter.lower.ops.fourier`.
Spec: https://docs.pytorch.org/docs/2.13/generated/torch.stft.html and torch.istft.html beside it
"""

from math import sqrt

import numpy as np

from converter.lower import dims
from converter.lower.graph import Dim
from converter.lower.ops.fourier import angles
from converter.lower.torch.complex_tensors import Pair
from converter.lower.torch.complexes import of_complex, pair, view_as_complex, view_as_real
from converter.lower.torch.context import Context
from converter.lower.torch.convolution import convolve, convolve_transposed, windows
from converter.lower.torch.fourier import along, fit_length_along, take_half, whole_of
from converter.lower.torch.padding import pad_axes
from converter.lower.torch.program_values import Int, integer
from converter.lower.torch.promotion import DEFAULT
from converter.lower.torch.table import aten
from converter.lower.torch.unfold import col2im
from converter.lower.torch.unfold import unfold as framed
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

MOST = 1 << 21  # elements of a convolution's kernel
MOST_WINDOW = 1 << 16  # elements of a window

# -- windows ---------------------------------------------------------------------------------------


def _cosines(count: int, periodic: bool, *shares: float) -> np.ndarray:
    """Return shares of cosines of no turn, one turn, two turns, with signs by turns."""
    if not 0 <= count <= MOST_WINDOW:
        raise Unsupported(f"a window of {count}")
    if count == 1:
        return np.ones(1)
    turn = 2 * np.pi * np.arange(count) / (count if periodic else max(count - 1, 1))
    found = np.zeros(count)
    for i, share in enumerate(shares):
        found += share * (-1) ** i * np.cos(i * turn)
    return found


@aten("hann_window", "hann_window.periodic")
def hann_window(
    op: Context, window_length: int, periodic: bool = True, dtype: str | None = None
) -> Value:
    """A Hann window."""
    return op.constant(_cosines(window_length, periodic, 0.5, 0.5), dtype or DEFAULT)


@aten(
    "hamming_window", "hamming_window.periodic", "hamming_window.periodic_alpha",
    "hamming_window.periodic_alpha_beta",
)  # fmt: skip
def hamming_window(
    op: Context, window_length: int, periodic: bool = True, alpha: float = 0.54,
    beta: float = 0.46, dtype: str | None = None,
) -> Value:  # fmt: skip
    """A Hamming window."""
    return op.constant(_cosines(window_length, periodic, alpha, beta), dtype or DEFAULT)


@aten("blackman_window", "blackman_window.periodic")
def blackman_window(
    op: Context, window_length: int, periodic: bool = True, dtype: str | None = None
) -> Value:
    """A Blackman window."""
    return op.constant(_cosines(window_length, periodic, 0.42, 0.5, 0.08), dtype or DEFAULT)


@aten("bartlett_window", "bartlett_window.periodic")
def bartlett_window(
    op: Context, window_length: int, periodic: bool = True, dtype: str | None = None
) -> Value:
    """A Bartlett (triangular) window."""
    rest = np.arange(_cosines(window_length, periodic).size)
    last = max(window_length if periodic else window_length - 1, 1)
    found = 1 - np.abs(2 * rest / last - 1) if window_length != 1 else np.ones(1)
    return op.constant(found, dtype or DEFAULT)


@aten("kaiser_window", "kaiser_window.periodic", "kaiser_window.beta")
def kaiser_window(
    op: Context, window_length: int, periodic: bool = True, beta: float = 12.0,
    dtype: str | None = None,
) -> Value:  # fmt: skip
    """A Kaiser window."""
    count = _cosines(window_length, periodic).size
    found = np.kaiser(count + 1, beta)[:-1] if periodic and count > 1 else np.kaiser(count, beta)
    return op.constant(found, dtype or DEFAULT)


# -- windows along a signal ------------------------------------------------------------------------


def _window(op: Context, window: Value | None, n_fft: int, win_length: int, kind: str) -> Value:
    """Return a window of n_fft elements: a shorter one is centred."""
    if not 0 < win_length <= n_fft <= MOST_WINDOW:
        raise Unsupported(f"windows of {win_length} in transforms of {n_fft}")
    if window is None:
        window = op.constant(np.ones(win_length), kind)
    if isinstance(window, Pair) or window.shape != (win_length,):
        raise Unsupported("a window that is complex, or of another length than is said")
    left = (n_fft - win_length) // 2
    found = op.pad(op.cast(window, kind), [left], [n_fft - win_length - left])
    known = op.array(window)
    if known is not None:  # so that a kernel with it is a constant
        found = op.constant(np.pad(known, (left, n_fft - win_length - left)), kind)
    return found


def _kernel(op: Context, waves: np.ndarray, window: Value) -> Value:
    """Return waves [count, n_fft] within a window as a kernel [count, 1, n_fft]."""
    known = op.array(window)
    if known is not None:
        return op.constant((waves * known)[:, None], window.dtype)
    return op.mul(op.constant(waves[:, None], window.dtype), window)


def _stft(
    op: Context, self: Value, n_fft: int, hop_length: int | None, win_length: int | None,
    window: Value | None, normalized: bool, onesided: bool | None, return_complex: bool | None,
    align_to_window: bool | None,
) -> Value:  # fmt: skip
    if isinstance(self, Pair):
        raise Unsupported("of complex numbers")
    if align_to_window:
        raise Unsupported("align_to_window")
    hop = hop_length if hop_length is not None else n_fft // 4
    if hop <= 0 or self.rank not in (1, 2):
        raise Unsupported(f"windows {hop} apart of a signal of {self.rank} axes")
    x = op.named(op.unsqueeze(self, [0]) if self.rank == 1 else self)  # [B, L]
    within = _window(op, window, n_fft, win_length or n_fft, x.dtype)
    bins = n_fft // 2 + 1 if onesided is not False else n_fft
    if 2 * bins * n_fft <= MOST:
        turn = angles(bins, n_fft, n_fft)
        kernel = _kernel(op, np.concatenate([np.cos(turn), -np.sin(turn)]), within)
        signal = op.unsqueeze(x, [1])
        made = convolve(
            op, signal, kernel, None, stride=(hop,), padding=(0,), dilation=(1,), groups=1, rank=1
        )
        found = Pair.of(*op.split(made, 1, [bins, bins]))  # [B, bins, frames]
    else:
        frames = op.mul(framed(op, x, -1, n_fft, hop), within)  # [B, frames, n_fft]
        count = windows(op, x.shape[-1], n_fft, hop, 1, 0)
        frames = op.shaped(op.plain(frames), (x.shape[0], count, n_fft))
        whole = take_half(op, frames, -1) if onesided is not False else (
            along(op, pair(op, frames, x.dtype), -1, inverse=False)
        )  # fmt: skip
        found = whole.transposed([0, 2, 1])
    if normalized:
        found = found.each(lambda part: op.mul(part, 1 / sqrt(n_fft)))
    if self.rank == 1:
        found = found.each(lambda part: op.squeeze(part, [0]))
    return found if return_complex else view_as_real(op, found)


@aten("stft")
def stft(
    op: Context, self: Value, n_fft: int, hop_length: int | None = None,
    win_length: int | None = None, window: Value | None = None, normalized: bool = False,
    onesided: bool | None = None, return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Value:  # fmt: skip
    """The short-time Fourier transform of a signal: [batch, frequencies, windows]."""
    return _stft(
        op, self, n_fft, hop_length, win_length, window, normalized, onesided, return_complex,
        align_to_window,
    )  # fmt: skip


@aten("stft.center")
def stft_center(
    op: Context, self: Value, n_fft: int, hop_length: int | None = None,
    win_length: int | None = None, window: Value | None = None, center: bool = True,
    pad_mode: str = "reflect", normalized: bool = False, onesided: bool | None = None,
    return_complex: bool | None = None, align_to_window: bool | None = None,
) -> Value:  # fmt: skip
    """The short-time Fourier transform of a signal, padded so that windows are centered."""
    if center and not isinstance(self, Pair):
        wide = op.unsqueeze(self, [0] * (3 - self.rank)) if self.rank == 2 else (
            op.unsqueeze(self, [0, 1])
        )  # fmt: skip
        around = pad_axes(op, wide, (n_fft // 2, n_fft // 2), pad_mode, None)
        self = op.squeeze(around, [0] if self.rank == 2 else [0, 1])
    return _stft(
        op, self, n_fft, hop_length, win_length, window, normalized, onesided, return_complex,
        align_to_window,
    )  # fmt: skip


@of_complex("istft")
@aten("istft")
def istft(
    op: Context, self: Value, n_fft: int, hop_length: int | None = None,
    win_length: int | None = None, window: Value | None = None, center: bool = True,
    normalized: bool = False, onesided: bool | None = None, length: Int | None = None,
    return_complex: bool = False,
) -> Value:  # fmt: skip
    """The inverse short-time Fourier transform."""
    if return_complex:
        raise Unsupported("a signal of complex numbers")
    given = self if isinstance(self, Pair) else view_as_complex(op, self)
    assert isinstance(given, Pair)
    hop = hop_length if hop_length is not None else n_fft // 4
    has_batch = given.rank == 3
    if hop <= 0 or given.rank not in (2, 3):
        raise Unsupported(f"windows {hop} apart, of {given.rank} axes")
    x = given if has_batch else given.each(lambda part: op.unsqueeze(part, [0]))
    named = op.named(x)
    assert isinstance(named, Pair)
    x = named  # [B, bins, frames]
    bins, count = x.shape[1], x.shape[2]
    half = onesided if onesided is not None else bins != n_fft
    if bins != (n_fft // 2 + 1 if half else n_fft):
        raise Unsupported(f"{bins} frequencies of windows of {n_fft}")
    within = _window(op, window, n_fft, win_length or n_fft, x.real.dtype)
    if not half:  # torch takes the second half to be what makes the signal real
        x = x.each(lambda part: op.cut(part, 1, 0, n_fft // 2 + 1))
    added = _overlap_add(op, x, within, n_fft, hop)
    if normalized:
        added = op.mul(added, sqrt(n_fft))
    whole = dims.add(dims.mul(dims.sub(count, 1), hop), n_fft)
    once = op.filled((1, 1, count), 1.0, within.dtype)
    squares = op.reshape(op.mul(within, within), (1, 1, n_fft))
    weight = op.squeeze(_spread(op, once, squares, hop), [1])
    start: Dim = n_fft // 2 if center else 0
    end = dims.sub(whole, n_fft // 2) if center else whole
    wanted = None if length is None else dims.add(start, length)
    inside = wanted is not None and op.least(wanted, end) == wanted
    last = wanted if inside else whole if wanted is not None else end
    made = op.div(*(op.cut(v, -1, start, last) for v in (added, weight)))
    if length is not None and not inside:
        made = fit_length_along(op, made, -1, length)
    return made if has_batch else op.squeeze(made, [0])


def _spread(op: Context, x: Value, kernel: Value, hop: int) -> Value:
    """Overlap-add the last axis with a kernel."""
    return convolve_transposed(
        op, x, kernel, None, stride=(hop,), padding=(0,), output_padding=(0,), groups=1,
        dilation=(1,), rank=1,
    )  # fmt: skip


def _overlap_add(op: Context, x: Pair, within: Value, n_fft: int, hop: int) -> Value:
    """Return inverse transforms of [B, bins, frames] within a window, added up: [B, L]."""
    bins = n_fft // 2 + 1
    if 2 * bins * n_fft <= MOST:
        turn = angles(bins, n_fft, n_fft)
        times = np.ones(bins)
        times[1 : (n_fft + 1) // 2] = 2  # the others count twice, for their mirror images
        waves = np.concatenate([np.cos(turn) * times[:, None], -np.sin(turn) * times[:, None]])
        kernel = _kernel(op, waves / n_fft, within)
        return op.squeeze(_spread(op, op.concat(list(x.parts), 1), kernel, hop), [1])
    turned = x.transposed([0, 2, 1])
    signals = whole_of(op, turned, -1, n_fft)
    columns = op.mul(signals, within).transposed([0, 2, 1])  # [B, n_fft, frames]
    whole = integer(dims.add(dims.mul(dims.sub(x.shape[2], 1), hop), n_fft))
    made = col2im(op, columns, [1, whole], [1, n_fft], [1, 1], [0, 0], [1, hop])
    return op.squeeze(made, [1, 2])
