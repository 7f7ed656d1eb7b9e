"""Resizing of images as in TensorFlow: by ONNX's Resize where the results are equal.

Where they are not, each axis is multiplied by a matrix of weights, a constant where sizes are
static and else computed by the graph. Images are channels-first here. Weights are computed in
float32, as in TensorFlow.
Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels/image
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, floor, log2

import numpy as np

from converter.lower.builder import Builder
from converter.lower.graph import Attribute
from converter.lower.ops import resize_computed as computed
from converter.lower.ops.resize_computed import Size
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

Kernel = Callable[[float], float]
F = np.float32

BLURRING = ("gaussian", "mitchellcubic")  # methods that also change images of the target size
LINEAR: dict[str, Attribute] = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
CUBIC: dict[str, Attribute] = {
    "mode": "cubic", "coordinate_transformation_mode": "half_pixel", "cubic_coeff_a": -0.5,
    "exclude_outside": 1,
}  # fmt: skip
REPEAT: dict[str, Attribute] = {
    "mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor",
}  # fmt: skip


def scale_up(op: Builder, image: Value, factors: Sequence[int], method: str) -> Value:
    """Upsample each spatial axis by an integer factor.

    Raises:
        Unsupported: The method is not supported.
    """
    if method in ("nearest", "bilinear"):
        return by_scales(op, image, factors, REPEAT if method == "nearest" else LINEAR)
    are_known = all(isinstance(n, int) for n in image.shape[2:])
    # TensorFlow's table of cubic weights has 1024 rows; it is exact only for powers of two.
    if method == "bicubic" and not are_known and all(log2(f).is_integer() for f in factors):
        return by_scales(op, image, factors, CUBIC)
    sizes = [
        computed.multiply_size(op, computed.axis_size(op, image, axis), factor)
        for axis, factor in enumerate(factors, 2)
    ]
    return resize(op, image, sizes, method)


def resize(
    op: Builder, image: Value, sizes: Sequence[Size], method: str, *, antialias: bool = False
) -> Value:
    """Resize the spatial axes to these sizes.

    Raises:
        Unsupported: The method is not supported.
    """
    if list(image.shape[2:]) == list(sizes) and method not in BLURRING:
        return image
    if method == "bilinear" and not antialias:
        return by_sizes(op, image, sizes, LINEAR)
    known = image.shape[2:]
    for axis, (n, wanted) in enumerate(zip(known, sizes, strict=True), 2):
        if n == wanted and method not in BLURRING:
            continue
        if not isinstance(n, int) or not isinstance(wanted, int):
            if method == "nearest":
                image = computed.nearest(op, image, axis, wanted)
                continue
            size = computed.axis_size(op, image, axis)
            factor = computed.weights(op, size, wanted, method, antialias=antialias)
            image = apply_weights(op, image, axis, op.cast(factor, image.dtype))
        elif method == "nearest":
            rows = [min(floor((i + F(0.5)) * (F(n) / F(wanted))), n - 1) for i in range(wanted)]
            image = op.gather(image, op.constant(rows, "int64"), axis)
        else:
            matrix = weights(n, wanted, method, antialias=antialias)
            image = apply_weights(op, image, axis, op.constant(matrix.astype(F), image.dtype))
    return image


def interpolate(op: Builder, image: Value, sizes: Sequence[int]) -> Value:
    """Resize linearly in the order of TensorFlow's kernel, so that later rounding agrees.

    All spatial sizes must be static.
    """
    for axis in reversed(range(2, image.rank)):
        count, wanted = image.shape[axis], sizes[axis - 2]
        assert isinstance(count, int)
        at = (np.arange(wanted, dtype=F) + F(0.5)) * step(count, wanted) - F(0.5)
        low, high = (
            op.gather(image, op.constant(indices.clip(0, count - 1), "int64"), axis)
            for indices in (np.floor(at), np.ceil(at))
        )
        share = (at - np.floor(at)).reshape(-1, *[1] * (image.rank - 1 - axis))
        image = op.add(low, op.mul(op.sub(high, low), op.constant(share, image.dtype)))
    return image


def _pairs(image: Value, factors: Sequence[int]) -> list[tuple[object, int]]:
    return list(zip(image.shape[2:], factors, strict=True))


def by_scales(
    op: Builder, image: Value, factors: Sequence[int], how: dict[str, Attribute]
) -> Value:
    """Upsample each spatial axis by an integer factor, by ONNX's Resize."""
    scales = op.constant([1.0, 1.0, *map(float, factors)], "float32")
    out = [n * f if isinstance(n, int) else None for n, f in _pairs(image, factors)]
    shape = (*image.shape[:2], *out)
    return op.emit("Resize", image, None, scales, dtype=image.dtype, shape=shape, **how)


def by_sizes(op: Builder, image: Value, sizes: Sequence[Size], how: dict[str, Attribute]) -> Value:
    """Resize the spatial axes to these sizes, by ONNX's Resize."""
    # Sizes of all axes: with those of some axes only, onnxruntime 1.31 moves transposes wrongly.
    shape = (*image.shape[:2], *(n if isinstance(n, int) else None for n in sizes))
    if all(isinstance(n, int) for n in sizes):
        wanted = op.sizes_of(image, shape)
    else:
        spatial = [op.unsqueeze(computed.as_tensor(op, n), [0]) for n in sizes]
        wanted = op.concat([op.size(image, 0), op.size(image, 1), *spatial], 0)
    return op.emit("Resize", image, None, None, wanted, dtype=image.dtype, shape=shape, **how)


def apply_weights(op: Builder, image: Value, axis: int, factor: Value) -> Value:
    """Multiply an image by a matrix along one of its last two axes."""
    if axis == image.rank - 2:
        return op.matmul(factor, image)
    return op.matmul(image, op.transpose(factor, [1, 0]))


def weights(size: int, wanted: int, method: str, *, antialias: bool = False) -> np.ndarray:
    """Return the matrix [wanted, size] that resizes an axis.

    Raises:
        Unsupported: The method is not supported.
    """
    if method == "area":
        return area(size, wanted)
    if method == "bicubic" and not antialias:
        return cubic_by_table(size, wanted)
    if method not in KERNELS:
        raise Unsupported(f"interpolation {method!r}")
    radius, kernel = KERNELS[method]
    return spans(size, wanted, radius, kernel, antialias=antialias)


def spans(
    size: int, wanted: int, radius: float, kernel: Kernel, *, antialias: bool,
    scale: float | None = None, translation: float = 0.0,
) -> np.ndarray:  # fmt: skip
    """Return the weights of ScaleAndTranslate, the op behind most methods of tf.image.resize."""
    inverse = F(1.0) / (F(wanted) / F(size) if scale is None else F(scale))
    away = -inverse * F(translation)
    spread = max(inverse, F(1.0)) if antialias else F(1.0)
    matrix = np.zeros((wanted, size), F)
    for row in range(wanted):
        at = F(F(F(row) + F(0.5)) * inverse) + away
        if at < 0 or at > size:
            continue
        first = min(max(ceil(F(at - F(radius) * spread - F(0.5))), 0), size - 1)
        last = min(max(floor(F(at + F(radius) * spread - F(0.5))), 0), size - 1)
        for column in range(first, last + 1):
            distance = F(F(column) + F(0.5) - at)
            matrix[row, column] = kernel(float(abs(distance * (F(1.0) / spread))))
    return _normalize(matrix)


def cubic_by_table(
    size: int, wanted: int, *, is_centred: bool = True, by_corners: bool = False
) -> np.ndarray:
    """Return the weights of ResizeBicubic, which looks them up in a table of 1024 rows.

    Args:
        size: Size of the axis.
        wanted: New size of the axis.
        is_centred: Whether coordinates are those of pixel centers (half_pixel_centers); else the
            weights differ, and coordinates outside the image are clamped to its edge.
        by_corners: Whether the first and last pixels are aligned (align_corners).
    """
    a = -0.5 if is_centred else -0.75
    scale = step(size, wanted, by_corners=by_corners)
    matrix = np.zeros((wanted, size), F)
    for row in range(wanted):
        at = F(F(row) + F(0.5)) * scale - F(0.5) if is_centred else F(row) * scale
        first = floor(at)
        offset = int(np.rint(F(at - F(first)) * F(1024)))
        near, far = offset / 1024, (1024 - offset) / 1024
        taps = (_keys(near + 1, a), _keys(near, a), _keys(far, a), _keys(far + 1, a))
        for column, weight in enumerate(taps, first - 1):
            if not is_centred:
                matrix[row, min(max(column, 0), size - 1)] += F(weight)
            elif 0 <= column < size:
                matrix[row, column] = weight
    return _normalize(matrix) if is_centred else matrix


def step(size: int, wanted: int, *, by_corners: bool = False) -> np.float32:
    """Return the distance in the source between neighbouring pixels of the result."""
    if by_corners and wanted > 1:
        return F(F(size - 1) / F(wanted - 1))
    return F(F(size) / F(wanted))


def area(size: int, wanted: int, *, by_corners: bool = False) -> np.ndarray:
    """Return the weights of area interpolation: the overlap of source and target pixels."""
    scale = float(step(size, wanted, by_corners=True)) if by_corners else size / wanted
    matrix = np.zeros((wanted, size))
    for row in range(wanted):
        low, high = row * scale, (row + 1) * scale
        for column in range(floor(low), ceil(high)):
            share = min(high, column + 1) - max(low, column)
            matrix[row, min(column, size - 1)] += share
    return _normalize(matrix)


def _normalize(matrix: np.ndarray) -> np.ndarray:
    """Scale rows to a sum of 1, with sums from left to right and a reciprocal as in TensorFlow."""
    sums = matrix.cumsum(axis=1, dtype=matrix.dtype)[:, -1:]
    scale = np.divide(1, sums, out=np.zeros_like(sums), where=abs(sums) > 1e-30)
    return np.asarray(matrix * scale)


def _triangle(x: float) -> float:
    return max(0.0, 1.0 - x)


def _keys(x: float, a: float = -0.5) -> float:
    if x >= 2.0:
        return 0.0
    if x >= 1.0:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return ((a + 2) * x - (a + 3)) * x * x + 1.0


def _box(x: float) -> float:
    return 1.0 if x < 0.5 else 0.5 * (x == 0.5)


def _mitchell(x: float) -> float:
    if x >= 2.0:
        return 0.0
    if x >= 1.0:
        return (((-7.0 / 18.0) * x + 2.0) * x - 10.0 / 3.0) * x + 16.0 / 9.0
    return (((7.0 / 6.0) * x - 2.0) * x) * x + 8.0 / 9.0


def _gaussian(x: float) -> float:
    return float(np.exp(-x * x / (2 * 0.5 * 0.5))) if x < 1.5 else 0.0


def _lanczos(radius: float, x: float) -> float:
    if x > radius:
        return 0.0
    if x <= 1e-3:
        return 1.0
    top = radius * np.sin(np.pi * x) * np.sin(np.pi * x / radius)
    return float(top / (np.pi**2 * x * x))


# fmt: off
KERNELS: dict[str, tuple[float, Kernel]] = {
    "bilinear":      (1.0, _triangle),
    "bicubic":       (2.0, _keys),
    "mitchellcubic": (2.0, _mitchell),
    "gaussian":      (1.5, _gaussian),
    "box":           (0.5, _box),
    "lanczos1":      (1.0, partial(_lanczos, 1.0)),
    "lanczos3":      (3.0, partial(_lanczos, 3.0)),
    "lanczos5":      (5.0, partial(_lanczos, 5.0)),
}
# fmt: on
