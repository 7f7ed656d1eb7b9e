"""Resizing of an axis of images where ONNX's Resize differs from the frameworks.

The graph gathers pixels or multiplies by computed weights; sizes may be unknown until run time. All
coordinates and weights are float32, as in TensorFlow and torch.
"""

from collections.abc import Callable, Sequence
from math import pi
from typing import TypeAlias

import numpy as np

from converter.lower.builder import END, Builder
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

Size: TypeAlias = "int | Value"  # a static size, or a value of any integer dtype
Kernel: TypeAlias = "Callable[[Builder, Value], Value]"
F = np.float32
LEAST = 1e-30  # smaller sums of weights count as zero


def axis_size(op: Builder, image: Value, axis: int) -> Size:
    """Return the size of an axis: an integer, or a computed value where it is not static."""
    size = image.shape[axis]
    return size if isinstance(size, int) else op.squeeze(op.size(image, axis), [0])


def multiply_size(op: Builder, size: Size, factor: int) -> Size:
    """Multiply a size by an integer."""
    return size * factor if isinstance(size, int) else op.mul(size, factor)


def as_tensor(op: Builder, size: Size) -> Value:
    """Return a size as an int64 scalar."""
    if isinstance(size, int):
        return op.constant(size, "int64")
    return op.cast(op.reshape(size, ()) if size.rank else size, "int64")


def of_aspect(op: Builder, image: Value, sizes: Sequence[Size]) -> list[Size]:
    """Return the largest sizes within these that keep the aspect ratio of an image."""
    now = [axis_size(op, image, axis) for axis in (2, 3)]
    known = [n for n in (*now, *sizes) if isinstance(n, int)]
    if len(known) == 4:
        height, width, most_height, most_width = map(F, known)
        scale = min(most_height / height, most_width / width)
        return [int(np.rint(scale * n)) for n in (height, width)]
    scales = [
        op.div(_floating(op, wanted), _floating(op, n))
        for wanted, n in zip(sizes, now, strict=True)
    ]
    whole = op.elementwise("Min", *scales)
    return [op.cast(op.unary("Round", op.mul(whole, _floating(op, n))), "int64") for n in now]


def nearest_indices(
    size: int, wanted: int, *, is_centred: bool, scale: float | None = None
) -> np.ndarray:
    """Return the index (int64) of the nearest source pixel for each pixel, as in the frameworks.

    Args:
        size: Size of the axis.
        wanted: New size of the axis.
        is_centred: Whether coordinates are those of pixel centers.
        scale: Scale factor; the ratio of the sizes by default.
    """
    step = F(size) / F(wanted) if scale is None else F(1 / scale)
    places = np.arange(wanted, dtype=F) + F(0.5 if is_centred else 0)
    found: np.ndarray = np.minimum(np.floor(places * step).astype(np.int64), size - 1)
    return found


def is_nearest_of_onnx(
    size: int, wanted: int, *, is_centred: bool, scale: float | None = None
) -> bool:
    """Return whether ONNX's Resize, which divides by the scale, selects the same pixels."""
    factor = F(wanted) / F(size) if scale is None else F(scale)
    places = (np.arange(wanted, dtype=F) + F(0.5 if is_centred else 0)) / factor
    theirs = np.clip(np.floor(places).astype(np.int64), 0, size - 1)
    ours = nearest_indices(size, wanted, is_centred=is_centred, scale=scale)
    return bool((theirs == ours).all())


def nearest(
    op: Builder, image: Value, axis: int, wanted: Size, *, is_centred: bool = True,
    by_corners: bool = False, scale: float | None = None,
) -> Value:  # fmt: skip
    """Resize an axis to the nearest pixels: index `min(floor((i + 0.5) * (n / wanted)), n - 1)`.

    ONNX's Resize divides by the scale instead, and selects other pixels for some sizes.
    """
    size = axis_size(op, image, axis)
    if isinstance(size, int) and isinstance(wanted, int) and not by_corners:
        found = nearest_indices(size, wanted, is_centred=is_centred, scale=scale)
        return op.gather(image, op.constant(found), axis)
    rows = _count(op, wanted)
    places = op.add(rows, 0.5) if is_centred else rows
    if scale is None:
        at = op.mul(places, step(op, size, wanted, by_corners=by_corners))
    else:
        at = op.mul(places, float(F(1 / scale)))
    whole = op.unary("Floor", at)
    if by_corners:  # round half up
        half = op.cast(op.elementwise("GreaterOrEqual", op.sub(at, whole), 0.5), "float32")
        whole = op.add(whole, half)
    most = op.sub(as_tensor(op, size), 1)
    return op.gather(image, op.elementwise("Min", op.cast(whole, "int64"), most), axis)


def step(op: Builder, size: Size, wanted: Size, *, by_corners: bool = False) -> Value:
    """Return the distance in the source between neighbouring pixels of the result."""
    n, m = _floating(op, size), _floating(op, wanted)
    scale = op.div(n, m)
    if not by_corners:
        return scale
    some = op.elementwise("Greater", m, 1.0)
    return op.where(some, op.div(op.sub(n, 1.0), op.sub(m, 1.0)), scale)


def weights(
    op: Builder, size: Size, wanted: Size, method: str, *, antialias: bool,
    scale: Value | None = None, translation: Value | None = None,
) -> Value:  # fmt: skip
    """Return the matrix [wanted, size] that resizes an axis.

    Args:
        op: Builder.
        size: Size of the axis.
        wanted: New size of the axis.
        method: Name of the interpolation method.
        antialias: Whether kernels are widened for downsampling.
        scale: Scale factor (float32 scalar), where it is not the ratio of the sizes.
        translation: Offset of the result.

    Raises:
        Unsupported: The method is not supported.
    """
    rows = op.unsqueeze(_count(op, wanted), [1])
    columns = op.unsqueeze(_count(op, size), [0])
    n, m = _floating(op, size), _floating(op, wanted)
    if method == "area":
        return _normalize(op, _area(op, rows, columns, op.div(n, m)))
    if method == "bicubic" and not antialias and scale is None:
        # TensorFlow reads the weights from a table of 1024 rows: offsets are rounded to 1/1024.
        at = op.sub(op.mul(op.add(rows, 0.5), op.div(n, m)), 0.5)
        first = op.unary("Floor", at)
        offset = op.unary("Round", op.mul(op.sub(at, first), 1024.0))
        away = op.sub(op.sub(columns, first), op.div(offset, 1024.0))
        return _normalize(op, _keys(op, op.unary("Abs", away)))
    if method not in KERNELS:
        raise Unsupported(f"interpolation {method!r}")
    inverse = op.div(op.constant(1.0), op.div(m, n) if scale is None else scale)
    at = op.mul(op.add(rows, 0.5), inverse)
    if translation is not None:
        at = op.sub(at, op.mul(inverse, translation))
    away = op.unary("Abs", op.sub(op.add(columns, 0.5), at))
    if antialias:
        away = op.mul(away, op.div(op.constant(1.0), op.elementwise("Max", inverse, 1.0)))
    found = _normalize(op, KERNELS[method](op, away))
    if scale is None:
        return found
    # Pixels whose coordinates are outside the source are zero.
    inside = op.elementwise(
        "And", op.elementwise("GreaterOrEqual", at, 0.0), op.elementwise("LessOrEqual", at, n)
    )
    return op.where(inside, found, 0.0)


def cubic_at_edges(op: Builder, size: Size, wanted: Size, *, by_corners: bool) -> Value:
    """Return the matrix of legacy ResizeBicubic, which clamps coordinates to the edges."""
    at = op.mul(_count(op, wanted), step(op, size, wanted, by_corners=by_corners))
    first = op.unary("Floor", at)
    near = op.div(op.unary("Round", op.mul(op.sub(at, first), 1024.0)), 1024.0)
    columns = op.unsqueeze(_count(op, size), [0])
    last = op.sub(_floating(op, size), 1.0)
    far = op.sub(1.0, near)
    taps = [op.add(near, 1.0), near, far, op.add(far, 1.0)]
    parts = []
    for i, distance in enumerate(taps, -1):
        place = op.elementwise("Min", op.elementwise("Max", op.add(first, float(i)), 0.0), last)
        hit = op.cast(op.elementwise("Equal", columns, op.unsqueeze(place, [1])), "float32")
        parts.append(op.mul(hit, op.unsqueeze(_steep(op, distance), [1])))
    return op.elementwise("Sum", *parts)


def _floating(op: Builder, size: Size) -> Value:
    if isinstance(size, int):
        return op.constant(float(size), "float32")
    return op.cast(as_tensor(op, size), "float32")


def _count(op: Builder, size: Size) -> Value:
    """Return the integers below a size, as float32."""
    if isinstance(size, int):
        return op.constant(list(map(float, range(size))), "float32")
    bounds = [op.constant(0, "int64"), as_tensor(op, size), op.constant(1, "int64")]
    return op.cast(op.emit("Range", *bounds, dtype="int64", shape=(None,)), "float32")


def _area(op: Builder, rows: Value, columns: Value, scale: Value) -> Value:
    """Return the overlap of each target pixel with each source pixel."""
    low, high = op.mul(rows, scale), op.mul(op.add(rows, 1.0), scale)
    end = op.elementwise("Min", high, op.add(columns, 1.0))
    start = op.elementwise("Max", low, columns)
    return op.elementwise("Max", op.sub(end, start), 0.0)


def _normalize(op: Builder, matrix: Value) -> Value:
    """Scale rows to a sum of 1, with sums from left to right and a reciprocal as in TensorFlow."""
    axis = op.constant(1, "int64")
    sums = op.emit("CumSum", matrix, axis, dtype=matrix.dtype, shape=matrix.shape)
    whole = op.slice(sums, [1], [-1], [END])
    some = op.elementwise("Greater", op.unary("Abs", whole), LEAST)
    scale = op.div(1.0, op.where(some, whole, 1.0))
    return op.where(some, op.mul(matrix, scale), 0.0)


# -- kernels: functions from a non-negative distance to a weight -----------------------------------


def _triangle(op: Builder, x: Value) -> Value:
    return op.elementwise("Max", op.sub(1.0, x), 0.0)


def _cubic(*, near: tuple[float, ...], far: tuple[float, ...]) -> Kernel:
    """Return a kernel of two polynomials, for distances below 1 and 2; the highest power first."""

    def kernel(op: Builder, x: Value) -> Value:
        inner, outer = _polynomial(op, x, near), _polynomial(op, x, far)
        some = op.where(op.elementwise("Less", x, 1.0), inner, outer)
        return op.where(op.elementwise("Less", x, 2.0), some, 0.0)

    return kernel


def _polynomial(op: Builder, x: Value, factors: tuple[float, ...]) -> Value:
    result = op.constant(factors[0], "float32")
    for factor in factors[1:]:
        result = op.add(op.mul(x, result), factor)
    return result


_keys = _cubic(near=(1.5, -2.5, 0.0, 1.0), far=(-0.5, 2.5, -4.0, 2.0))
_steep = _cubic(near=(1.25, -2.25, 0.0, 1.0), far=(-0.75, 3.75, -6.0, 3.0))
_mitchell = _cubic(near=(7 / 6, -2.0, 0.0, 8 / 9), far=(-7 / 18, 2.0, -10 / 3, 16 / 9))


def _gaussian(op: Builder, x: Value) -> Value:
    weight = op.unary("Exp", op.mul(op.mul(x, x), -2.0))
    return op.where(op.elementwise("Less", x, 1.5), weight, 0.0)


def _lanczos(radius: float) -> Kernel:
    def kernel(op: Builder, x: Value) -> Value:
        angle = op.mul(op.elementwise("Max", x, 1e-3), pi)
        sines = op.mul(op.unary("Sin", angle), op.unary("Sin", op.div(angle, radius)))
        weight = op.div(op.mul(sines, radius), op.mul(angle, angle))
        weight = op.where(op.elementwise("Greater", x, 1e-3), weight, 1.0)
        return op.where(op.elementwise("Greater", x, radius), 0.0, weight)

    return kernel


# fmt: off
KERNELS: dict[str, Kernel] = {
    "bilinear":      _triangle,
    "bicubic":       _keys,
    "mitchellcubic": _mitchell,
    "gaussian":      _gaussian,
    "lanczos1":      _lanczos(1.0),
    "lanczos3":      _lanczos(3.0),
    "lanczos5":      _lanczos(5.0),
}
# fmt: on
