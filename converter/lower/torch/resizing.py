"""Resizing by nearest, linear and cubic interpolation, and sampling at given points.

torch divides by the scale that it is given, where it is given one, and else by the quotient of the
sizes. Of sizes that are not known, only whole scales are followed.
Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/UpSample.h
"""

import math
from collections.abc import Sequence

import numpy as np

from converter.lower import dims
from converter.lower.graph import Attribute, Dim
from converter.lower.ops import resize_computed as resize
from converter.lower.table import Variant
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Floats, Int, Ints, as_list, integer
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

CUBIC = -0.75
SMOOTH = -0.5  # of what is averaged
RANKS = (1, 2, 3)
MOST_EXACT = 1 << 8  # of which float32 represents the products with any usual size


def resize_images(
    op: Context, x: Value, size: Ints | None, scales: Sequence[float | None] | None, how: str, *,
    align: bool = False, antialias: bool = False,
) -> Value:  # fmt: skip
    """Resize images [N, C, *spatial].

    Args:
        op: Builder.
        x: The images.
        size: Size of the result; None where the scales determine it.
        scales: Scale of each axis; None for those that are not given.
        how: ``nearest``, ``exact`` (the nearest of pixels' centres), ``linear`` or ``cubic``.
        align: Whether the corners of both are at the same points.
        antialias: Whether what shrinks is averaged.
    """
    x = op.named(x)
    rank = x.rank - 2
    spatial = x.shape[2:]
    given = list(scales) if scales is not None and len(scales) else [None] * rank
    if size is None or not len(size):
        target = [_grow(op, n, s) for n, s in zip(spatial, given, strict=True)]
    else:
        target = list(size)
    if how in ("nearest", "exact"):
        x, given = _take_nearest(op, x, target, given, is_centred=how == "exact")
        spatial = x.shape[2:]
        if tuple(spatial) == tuple(target):
            return x
    attributes = _modes(how, align=align)
    if antialias:
        if align:
            raise Unsupported("averages of images whose corners are at the same points")
        attributes |= {"antialias": 1, "exclude_outside": 1}
        if how == "cubic":
            attributes["cubic_coeff_a"] = SMOOTH
    shape = (*x.shape[:2], *target)
    vectors: list[Value | None]
    exact = [_says(n, s, t) for n, s, t in zip(spatial, given, target, strict=True)]
    if not align and all(s is not None for s in exact):
        vectors = [op.constant([1.0, 1.0, *(float(s or 0) for s in exact)], "float32"), None]
    else:
        if not align and any(
            s is not None and not _is_quotient(n, s, t)
            for n, s, t in zip(spatial, given, target, strict=True)
        ):
            raise Unsupported("a scale that is not the quotient of the sizes")
        vectors = [None, op.vector(shape)]
    inputs = [op.outer(x), None, *vectors]
    return op.node("Resize", inputs, [(x.dtype, shape)], attributes=attributes)[0]


def _take_nearest(
    op: Context, x: Value, target: Sequence[Dim], scales: Sequence[float | None], *,
    is_centred: bool,
) -> tuple[Value, list[float | None]]:  # fmt: skip
    """Resize the axes for which ONNX's Resize takes other pixels; their scales become None."""
    left = list(scales)
    for axis, (wanted, scale) in enumerate(zip(target, scales, strict=True), 2):
        n = x.shape[axis]
        if isinstance(n, int) and isinstance(wanted, int):
            same = resize.is_nearest_of_onnx(n, wanted, is_centred=is_centred, scale=scale)
        else:
            same = (
                dims.divide_exactly(wanted, n) is not None
                or dims.divide_exactly(n, wanted) is not None
            )
        if not same:
            size = wanted if isinstance(wanted, int) else op.scalar_of(wanted, "int64")
            taken = resize.nearest(op, x, axis, size, is_centred=is_centred, scale=scale)
            x = op.shaped(taken, (*x.shape[:axis], wanted, *x.shape[axis + 1 :]))
            left[axis - 2] = None
    return x, left


def _grow(op: Context, n: Dim, scale: float | None) -> Dim:
    if scale is None:
        raise Unsupported("an image without a size")
    if isinstance(n, int):
        return math.floor(n * scale)
    if _is_exact(scale):
        above, below = float(scale).as_integer_ratio()
        return op.floordiv(dims.mul(n, above), below)
    if float(1 / scale).is_integer():
        return op.floordiv(n, int(1 / scale))
    raise Unsupported("an axis of a dynamic size times a fraction")


def _says(n: Dim, scale: float | None, target: Dim) -> float | None:
    """Return a scale from which ONNX computes the same size, or None."""
    if scale is None:
        if isinstance(n, int):
            return None
        found = dims.divide_exactly(target, n)
        return float(found) if isinstance(found, int) else None
    if isinstance(n, int):
        return scale if math.floor(n * float(np.float32(scale))) == target else None
    if not _is_exact(scale):
        return None
    above, below = float(scale).as_integer_ratio()
    return scale if dims.floordiv(dims.mul(n, above), below) == target else None


def _is_exact(scale: float) -> bool:
    """Return whether a size times a scale is exact in float32, too, before it is rounded down."""
    return max(float(scale).as_integer_ratio()) <= MOST_EXACT


def _is_quotient(n: Dim, scale: float, target: Dim) -> bool:
    if isinstance(n, int) and isinstance(target, int):
        return abs(target / n - scale) <= 1e-6 * scale
    return float(scale).is_integer() and dims.mul(n, int(scale)) == target


def _modes(how: str, *, align: bool) -> dict[str, Attribute]:
    if how == "nearest":
        return {
            "mode": "nearest", "nearest_mode": "floor",
            "coordinate_transformation_mode": "asymmetric",
        }  # fmt: skip
    if how == "exact":
        return {
            "mode": "nearest", "nearest_mode": "round_prefer_ceil",
            "coordinate_transformation_mode": "half_pixel",
        }  # fmt: skip
    corners = "align_corners" if align else "half_pixel"
    found: dict[str, Attribute] = {"mode": how, "coordinate_transformation_mode": corners}
    return {**found, "cubic_coeff_a": CUBIC} if how == "cubic" else found


@aten(
    *(Variant(f"upsample_nearest{n}d.vec", "Nearest pixel.", how="nearest") for n in RANKS),
    *(
        Variant(f"_upsample_nearest_exact{n}d.vec", "Nearest pixel by centers.", how="exact")
        for n in RANKS
    ),
)
def resize_to_pixels(
    op: Context, input: Value, output_size: Ints | None, scale_factors: Floats | None, *, how: str
) -> Value:
    """Images resized by nearest-neighbor interpolation."""
    return resize_images(op, input, output_size, scale_factors, how)


@aten("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec")
def resize_linearly(
    op: Context, input: Value, output_size: Ints | None, align_corners: bool,
    scale_factors: Floats | None,
) -> Value:  # fmt: skip
    """Linear interpolation."""
    return resize_images(op, input, output_size, scale_factors, "linear", align=align_corners)


@aten("upsample_nearest1d")
def nearest1d(op: Context, self: Value, output_size: Ints, scales: float | None = None) -> Value:
    """Nearest-neighbor interpolation along one axis."""
    return resize_images(op, self, output_size, [scales], "nearest")


@aten("upsample_nearest2d")
def nearest2d(
    op: Context, self: Value, output_size: Ints, scales_h: float | None = None,
    scales_w: float | None = None,
) -> Value:  # fmt: skip
    """Nearest-neighbor interpolation of images."""
    return resize_images(op, self, output_size, [scales_h, scales_w], "nearest")


@aten("upsample_nearest3d")
def nearest3d(
    op: Context, self: Value, output_size: Ints, scales_d: float | None = None,
    scales_h: float | None = None, scales_w: float | None = None,
) -> Value:  # fmt: skip
    """Nearest-neighbor interpolation of volumes."""
    return resize_images(op, self, output_size, [scales_d, scales_h, scales_w], "nearest")


@aten("_upsample_nearest_exact1d")
def exact1d(op: Context, self: Value, output_size: Ints, scales: float | None = None) -> Value:
    """Nearest-neighbor interpolation along one axis, by centers."""
    return resize_images(op, self, output_size, [scales], "exact")


@aten("_upsample_nearest_exact2d")
def exact2d(
    op: Context, self: Value, output_size: Ints, scales_h: float | None = None,
    scales_w: float | None = None,
) -> Value:  # fmt: skip
    """Nearest-neighbor interpolation of images, by centers."""
    return resize_images(op, self, output_size, [scales_h, scales_w], "exact")


@aten("_upsample_nearest_exact3d")
def exact3d(
    op: Context, self: Value, output_size: Ints, scales_d: float | None = None,
    scales_h: float | None = None, scales_w: float | None = None,
) -> Value:  # fmt: skip
    """Nearest-neighbor interpolation of volumes, by centers."""
    return resize_images(op, self, output_size, [scales_d, scales_h, scales_w], "exact")


@aten("upsample_linear1d")
def linear1d(
    op: Context, self: Value, output_size: Ints, align_corners: bool, scales: float | None = None
) -> Value:
    """Linear interpolation along one axis."""
    return resize_images(op, self, output_size, [scales], "linear", align=align_corners)


@aten("upsample_bilinear2d")
def bilinear2d(
    op: Context, self: Value, output_size: Ints, align_corners: bool,
    scales_h: float | None = None, scales_w: float | None = None,
) -> Value:  # fmt: skip
    """Linear interpolation of images."""
    return resize_images(op, self, output_size, [scales_h, scales_w], "linear", align=align_corners)


@aten("upsample_trilinear3d")
def trilinear3d(
    op: Context, self: Value, output_size: Ints, align_corners: bool,
    scales_d: float | None = None, scales_h: float | None = None, scales_w: float | None = None,
) -> Value:  # fmt: skip
    """Linear interpolation of volumes."""
    scales = [scales_d, scales_h, scales_w]
    return resize_images(op, self, output_size, scales, "linear", align=align_corners)


@aten(
    Variant("_upsample_bilinear2d_aa", "Linear, with antialiasing.", how="linear"),
    Variant("_upsample_bicubic2d_aa", "Cubic, with antialiasing.", how="cubic"),
)
def resize_smoothly(
    op: Context, self: Value, output_size: Ints, align_corners: bool, scales_h: float | None = None,
    scales_w: float | None = None, *, how: str,
) -> Value:  # fmt: skip
    """Images resized with antialiasing."""
    scales = [scales_h, scales_w]
    return resize_images(op, self, output_size, scales, how, align=align_corners, antialias=True)


@aten(
    Variant("_upsample_bilinear2d_aa.vec", "Linear, with antialiasing.", how="linear"),
    Variant("_upsample_bicubic2d_aa.vec", "Cubic, with antialiasing.", how="cubic"),
)
def resize_smoothly_by_factors(
    op: Context, input: Value, output_size: Ints | None, align_corners: bool, scale_factors: Floats
    | None, *, how: str,
) -> Value:  # fmt: skip
    """Images resized to a size or by factors, with antialiasing."""
    return resize_images(
        op, input, output_size, scale_factors, how, align=align_corners, antialias=True
    )


@aten("upsample_bicubic2d.vec")
def bicubic2d_vec(
    op: Context, input: Value, output_size: Ints | None, align_corners: bool,
    scale_factors: Floats | None,
) -> Value:  # fmt: skip
    """Cubic interpolation of images."""
    return resize_images(op, input, output_size, scale_factors, "cubic", align=align_corners)


@aten("upsample_bicubic2d")
def bicubic2d(
    op: Context, self: Value, output_size: Ints, align_corners: bool,
    scales_h: float | None = None, scales_w: float | None = None,
) -> Value:  # fmt: skip
    """Cubic interpolation of images."""
    return resize_images(op, self, output_size, [scales_h, scales_w], "cubic", align=align_corners)


# -- programs written before torch 1.5 -------------------------------------------------------------

HOW = {
    "nearest": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear",
    "bicubic": "cubic", "nearest-exact": "exact",
}  # fmt: skip


@aten(
    "__interpolate", "__interpolate.scale_list", "__interpolate.size_list",
    "__interpolate.size_list_scale_list",
)  # fmt: skip
def interpolate(
    op: Context, input: Value, size: Int | Ints | None = None,
    scale_factor: float | Floats | None = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Value:  # fmt: skip
    """Images resized by any interpolation."""
    if mode not in HOW:
        raise Unsupported(f"mode = {mode!r}")
    rank = input.rank - 2
    target = None if size is None else as_list(size, rank)
    scales: Sequence[float | None] | None = None
    if scale_factor is not None:
        given = [scale_factor] * rank if isinstance(scale_factor, int | float) else scale_factor
        scales = [float(n) for n in given]
    if recompute_scale_factor and scales is not None:
        shape = op.named(input).shape[2:]
        target = [integer(_grow(op, n, s)) for n, s in zip(shape, scales, strict=True)]
        scales = None
    return resize_images(
        op, input, target, scales, HOW[mode], align=bool(align_corners), antialias=antialias
    )  # fmt: skip


@aten("__upsample", "__upsample.size_list")
def upsample(
    op: Context, input: Value, size: Int | Ints | None = None, scale_factor: int | None = None,
    mode: str = "nearest", align_corners: bool | None = None,
) -> Value:  # fmt: skip
    """Images resized by any interpolation."""
    return interpolate(op, input, size, scale_factor, mode, align_corners)


@aten("__upsample_nearest", "__upsample_nearest.size_list")
def upsample_nearest(
    op: Context, input: Value, size: Int | Ints | None = None, scale_factor: int | None = None
) -> Value:
    """Images resized by nearest-neighbor interpolation."""
    return interpolate(op, input, size, scale_factor)


@aten(
    "__upsample_bilinear", "__upsample_bilinear.scale_list", "__upsample_bilinear.size_list",
    "__upsample_bilinear.size_list_scale_list",
)  # fmt: skip
def upsample_bilinear(
    op: Context, input: Value, size: Int | Ints | None = None,
    scale_factor: int | Floats | None = None,
) -> Value:  # fmt: skip
    """Images resized by linear interpolation with aligned corners."""
    return interpolate(op, input, size, scale_factor, "bilinear", align_corners=True)


# -- points ----------------------------------------------------------------------------------------


@aten("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(
    op: Context, input: Value, grid: Value, interpolation_mode: int, padding_mode: int,
    align_corners: bool,
) -> Value:  # fmt: skip
    """Images sampled at coordinates between -1 and 1."""
    newer = op.graph.opset >= 20
    if input.rank != 4 and not newer:
        raise Unsupported("volumes sampled at points, which takes opset=20")
    modes = ("linear", "nearest", "cubic") if newer else ("bilinear", "nearest", "bicubic")
    attributes: dict[str, Attribute] = {
        "mode": modes[interpolation_mode],
        "padding_mode": ("zeros", "border", "reflection")[padding_mode],
        "align_corners": int(align_corners),
    }
    shape = (*input.shape[:2], *grid.shape[1:-1])
    inputs = [op.outer(input), op.outer(grid)]
    return op.node("GridSample", inputs, [(input.dtype, shape)], attributes=attributes)[0]


@aten("affine_grid_generator")
def affine_grid_generator(op: Context, theta: Value, size: Ints, align_corners: bool) -> Value:
    """Sampling coordinates of affine transforms."""
    if len(size) != 4:
        raise Unsupported(f"a grid of {len(size) - 2} axes")
    height, width = size[2], size[3]
    rows, columns = (_points(op, n, theta.dtype, align=align_corners) for n in (height, width))
    x = op.expand(op.unsqueeze(columns, [0]), (height, width))
    y = op.expand(op.unsqueeze(rows, [1]), (height, width))
    ones = op.filled((height, width), 1, theta.dtype)
    base = op.concat([op.unsqueeze(v, [-1]) for v in (x, y, ones)], 2)
    flat = op.reshape(op.shaped(base, (height, width, 3)), (dims.mul(height, width), 3))
    made = op.matmul(op.unsqueeze(flat, [0]), theta.transposed([0, 2, 1]))
    return op.reshape(made, (theta.shape[0], height, width, 2))


def _points(op: Context, n: Dim, dtype: str, *, align: bool) -> Value:
    """Return the coordinates of the pixels of an axis, between -1 and 1."""
    places = op.mul(op.range(n, dtype), 2.0)
    count = op.scalar_of(n, dtype)
    if align:
        last = op.elementwise("Max", op.sub(count, 1.0), op.constant(1.0, dtype))
        return op.sub(op.div(places, last), 1.0)
    return op.sub(op.div(op.add(places, 1.0), count), 1.0)
