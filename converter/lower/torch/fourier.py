"""Fourier transforms along axes, those of torch.fft.

Spec: https://docs.pytorch.org/docs/2.13/fft.html
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal, TypeAlias

import numpy as np

from converter.lower import dims
from converter.lower.graph import Dim
from converter.lower.ops import fourier
from converter.lower.table import Variant
from converter.lower.torch.complex_tensors import Pair
from converter.lower.torch.complexes import conj, of_complex, pair
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Int, Ints, Size, integer
from converter.lower.torch.promotion import DEFAULT, floating
from converter.lower.torch.shaping import roll
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

MOST = 1 << 20  # elements along an axis that is transformed
Axes: TypeAlias = Sequence[int]
Norm: TypeAlias = str | None
# By which power of its length a transform is multiplied, and an inverse one divided.
POWERS: dict[Norm, float] = {None: 0.0, "backward": 0.0, "ortho": -0.5, "forward": -1.0}
NUMBERED = (None, "ortho", "forward")  # as core ATen numbers them
Kind = Literal["r2c", "c2c", "c2r"]


# -- along axes ------------------------------------------------------------------------------------


def _swap(x: Value, axis: int) -> Value:
    order = list(range(x.rank))
    order[axis], order[-1] = order[-1], order[axis]
    return x.transposed(order)


def fit_length_along(op: Context, x: Value, axis: int, length: Int) -> Value:
    """Return x cut or filled up with zeros to a length along an axis."""
    if op.axis_of(x, axis) == length:
        return x
    computed = op.vector([length]) if isinstance(length, Size) else None

    def one(part: Value) -> Value:
        found = fourier.fit_length(op, _swap(part, axis), length, computed)
        return _swap(op.shaped(found, (*found.shape[:-1], length)), axis)

    return x.each(one) if isinstance(x, Pair) else one(x)


def _scale(op: Context, x: Value, count: Dim, norm: Norm, *, inverse: bool) -> Value:
    """Scale a transform of a number of elements; the inverse one already divides by it."""
    if norm not in POWERS:
        raise Unsupported(f"norm = {norm!r}")
    power = -POWERS[norm] if inverse else POWERS[norm]
    if power == 0:
        return x
    kind = (x.real if isinstance(x, Pair) else x).dtype
    if isinstance(count, int):
        factor = op.constant(float(count) ** power, kind)
    else:
        factor = op.elementwise("Pow", op.scalar_of(count, kind), op.constant(power, kind))
    if isinstance(x, Pair):
        return x.each(lambda part: op.mul(part, factor))
    return op.mul(x, factor)


def take_half(op: Context, x: Value, axis: int) -> Pair:
    """Return the first half of the transform of real numbers along an axis."""
    half = dims.add(op.floordiv(op.axis_of(x, axis), 2), 1)
    found = Pair.joined(fourier.of_real(op, _swap(op.named(x), axis)))
    return found.each(
        lambda part: _swap(op.shaped(part, (*part.shape[:-1], half)), axis)
    )  # fmt: skip


def along(op: Context, x: Pair, axis: int, *, inverse: bool) -> Pair:
    """Return the transform of a complex tensor along an axis."""
    return Pair.joined(fourier.along(op, x.split, axis, inverse=inverse))


def whole_of(op: Context, x: Pair, axis: int, length: Int) -> Value:
    """Return the real tensor of a length, from the first half of its transform."""
    if not isinstance(length, int):
        raise Unsupported("an inverse transform of a length that depends on the inputs")
    half = fit_length_along(op, x, axis, length // 2 + 1)
    assert isinstance(half, Pair)
    moved = half.each(lambda part: _swap(part, axis))
    return _swap(fourier.to_real(op, moved.split, length), axis)


def _real(op: Context, x: Value) -> Value:
    """Return what is transformed as floating point numbers."""
    return x if isinstance(x, Pair) else op.cast(x, floating(x.dtype))


def transform(
    op: Context, x: Value, kind: Kind, axes: Axes, lengths: "Ints | None", norm: Norm, *,
    inverse: bool = False,
) -> Value:  # fmt: skip
    """Return the transform of some kind along axes, the last of which is the halved one."""
    x = op.named(_real(op, x))
    places = [x.axis(axis) for axis in axes]
    if any(not 0 <= axis < x.rank for axis in places) or not places:
        raise Unsupported(f"a transform along axes {list(axes)}")
    counts: list[Dim] = [x.shape[axis] for axis in places]
    if lengths is not None:
        counts = [x.shape[a] if n == -1 else n for a, n in zip(places, lengths, strict=True)]
    elif kind == "c2r":
        counts[-1] = dims.mul(dims.sub(counts[-1], 1), 2)
    if any(isinstance(n, int) and n > MOST for n in counts):
        raise Unsupported(f"a transform of more than {MOST} elements")
    if kind == "c2r":
        found = pair(op, x, "float64" if x.dtype == "float64" else "float32")
        for axis, n in zip(places[:-1], counts[:-1], strict=True):
            found = _axis(op, found, axis, n, inverse=True)
        made: Value = whole_of(op, found, places[-1], integer(counts[-1]))
    elif kind == "r2c":
        if isinstance(x, Pair):
            raise Unsupported("of complex numbers")
        for axis, n in zip(places, counts, strict=True):
            x = fit_length_along(op, x, axis, integer(n))
        half = take_half(op, x, places[-1])
        for axis in places[:-1]:
            half = along(op, half, axis, inverse=inverse)
        made = half
    else:
        found = pair(op, x, "float64" if x.dtype == "float64" else "float32")
        for axis, n in zip(places, counts, strict=True):
            found = _axis(op, found, axis, n, inverse=inverse)
        made = found
    return _scale(op, made, dims.product(counts), norm, inverse=inverse or kind == "c2r")


def _axis(op: Context, x: Pair, axis: int, n: Dim, *, inverse: bool) -> Pair:
    fitted = fit_length_along(op, x, axis, integer(n))
    assert isinstance(fitted, Pair)
    return along(op, fitted, axis, inverse=inverse)


# Name -> what is transformed to what, and what that is.
FORMS: dict[str, tuple[Kind, bool, str]] = {
    "fft": ("c2c", False, "Fourier transform"),
    "ifft": ("c2c", True, "inverse Fourier transform"),
    "rfft": ("r2c", False, "first half of the Fourier transform of real numbers"),
    "irfft": ("c2r", True, "real numbers that half a Fourier transform is of,"),
}


def _forms(ending: str, where: str) -> list[Variant]:
    return [
        Variant(f"fft_{name}{ending}", f"The {what} along {where}.", kind=kind, inverse=inverse)
        for name, (kind, inverse, what) in FORMS.items()
    ]


@aten(*_forms("", "an axis"))
def transform_axis(
    op: Context, self: Value, n: Int | None = None, dim: int = -1, norm: Norm = None, *,
    kind: Kind, inverse: bool,
) -> Value:  # fmt: skip
    """A Fourier transform along an axis."""
    return transform(op, self, kind, [dim], None if n is None else [n], norm, inverse=inverse)


@aten(*_forms("2", "two axes"))
def transform_plane(
    op: Context, self: Value, s: Ints | None = None, dim: Axes = (-2, -1), norm: Norm = None, *,
    kind: Kind, inverse: bool,
) -> Value:  # fmt: skip
    """A Fourier transform along two axes."""
    return transform(op, self, kind, list(dim), s, norm, inverse=inverse)


@aten(*_forms("n", "several axes"))
def transform_axes(
    op: Context, self: Value, s: Ints | None = None, dim: Axes | None = None, norm: Norm = None, *,
    kind: Kind, inverse: bool,
) -> Value:  # fmt: skip
    """A Fourier transform along several axes, by default all, or the last of as many as sizes."""
    return transform(op, self, kind, _axes(self, dim, s), s, norm, inverse=inverse)


for _name, (_kind, _inverse, _) in FORMS.items():
    for _ending, _function in (("", transform_axis), ("2", transform_plane), ("n", transform_axes)):
        of_complex(f"fft_{_name}{_ending}")(partial(_function, kind=_kind, inverse=_inverse))


# A transform of what is Hermitian is the inverse one of its conjugate, which scales the other way.
SCALED: dict[Norm, Norm] = {
    None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho",
}  # fmt: skip


def _hermitian(op: Context, x: Value, axes: Axes, lengths: Ints | None, norm: Norm) -> Value:
    """Return the real transform of half of what is Hermitian."""
    return transform(op, conj(op, x), "c2r", axes, lengths, SCALED[norm])


def _axes(x: Value, dim: Axes | None, lengths: Ints | None) -> Axes:
    if dim is not None:
        return dim
    return list(range(x.rank))[-len(lengths) if lengths is not None else 0 :]


@of_complex("fft_hfft")
@aten("fft_hfft")
def hfft(
    op: Context, self: Value, n: Int | None = None, dim: int = -1, norm: str | None = None
) -> Value:
    """The Fourier transform of half of a Hermitian signal, which is real."""
    return _hermitian(op, self, [dim], None if n is None else [n], norm)


@of_complex("fft_hfft2")
@aten("fft_hfft2")
def hfft2(
    op: Context, self: Value, s: Ints | None = None, dim: Axes = (-2, -1),
    norm: str | None = None,
) -> Value:  # fmt: skip
    """The Fourier transform of half of a Hermitian signal of two axes."""
    return _hermitian(op, self, dim, s, norm)


@of_complex("fft_hfftn")
@aten("fft_hfftn")
def hfftn(
    op: Context, self: Value, s: Ints | None = None, dim: Axes | None = None,
    norm: str | None = None,
) -> Value:  # fmt: skip
    """The Fourier transform of half of a Hermitian signal of several axes."""
    return _hermitian(op, self, _axes(self, dim, s), s, norm)


@aten("fft_ihfft")
def ihfft(
    op: Context, self: Value, n: Int | None = None, dim: int = -1, norm: str | None = None
) -> Value:
    """Half of the Hermitian signal whose Fourier transform is this."""
    return conj(op, transform(op, self, "r2c", [dim], None if n is None else [n], SCALED[norm]))


def _normalize_core(op: Context, made: Value, counts: Sequence[Dim], normalization: int) -> Value:
    """Scale what divides by nothing, as core ATen says."""
    if not 0 <= normalization <= 2:
        raise Unsupported(f"normalization = {normalization}")
    norm = NUMBERED[normalization]
    return _scale(op, made, dims.product(tuple(counts)), norm, inverse=False)


@aten("_fft_r2c")
def fft_r2c(op: Context, self: Value, dim: Axes, normalization: int, onesided: bool) -> Value:
    """The Fourier transform of real numbers along axes: all of it, or the first half."""
    x = op.named(self)
    counts = [x.shape[x.axis(axis)] for axis in dim]
    if onesided:
        made = transform(op, x, "r2c", dim, None, None)
    else:
        made = transform(op, x, "c2c", dim, None, None)
    return _normalize_core(op, made, counts, normalization)


@of_complex("_fft_c2c")
@aten("_fft_c2c")
def fft_c2c(op: Context, self: Value, dim: Axes, normalization: int, forward: bool) -> Value:
    """The Fourier transform along axes, or its inverse."""
    x = op.named(self)
    counts = [x.shape[x.axis(axis)] for axis in dim]
    norm = None if forward else "forward"  # which leaves an inverse as it is
    made = transform(op, x, "c2c", dim, None, norm, inverse=not forward)
    return _normalize_core(op, made, counts, normalization)


@of_complex("_fft_c2r")
@aten("_fft_c2r")
def fft_c2r(op: Context, self: Value, dim: Axes, normalization: int, last_dim_size: Int) -> Value:
    """The real inverse of half a Fourier transform along axes."""
    x = op.named(self)
    counts: list[Dim] = [*(x.shape[x.axis(axis)] for axis in dim[:-1]), last_dim_size]
    lengths = [integer(n) for n in counts]
    made = transform(op, x, "c2r", dim, lengths, "forward", inverse=True)
    return _normalize_core(op, made, counts, normalization)


@aten(
    Variant("fft_fftshift", "Frequencies with zero moved to the middle.", back=False),
    Variant("fft_ifftshift", "Frequencies with zero moved back to the front.", back=True),
)
def shift_frequencies(
    op: Context, self: Value, dim: Axes | int | None = None, *, back: bool
) -> Value:
    """Frequencies rolled by half of each axis."""
    x = op.named(self)
    axes = range(x.rank) if dim is None else [dim] if isinstance(dim, int) else dim
    sizes = [x.shape[x.axis(a)] for a in axes]
    halves = [op.floordiv(n, 2) for n in sizes]
    if back:
        halves = [dims.sub(n, half) for n, half in zip(sizes, halves, strict=True)]
    shifts = [integer(n) for n in halves]

    def one(part: Value) -> Value:
        return roll(op, part, shifts, list(axes))

    return x.each(one) if isinstance(x, Pair) else one(x)


@aten("fft_fftfreq")
def fftfreq(op: Context, n: int, d: float = 1.0, dtype: str | None = None) -> Value:
    """Frequencies of a Fourier transform of n elements, d apart."""
    if n > MOST:
        raise Unsupported(f"{n} frequencies")
    return op.constant(np.fft.fftfreq(n, d), dtype or DEFAULT)


@aten("fft_rfftfreq")
def rfftfreq(op: Context, n: int, d: float = 1.0, dtype: str | None = None) -> Value:
    """Frequencies of the first half of a Fourier transform of n elements, d apart."""
    if n > MOST:
        raise Unsupported(f"{n} frequencies")
    return op.constant(np.fft.rfftfreq(n, d), dtype or DEFAULT)
