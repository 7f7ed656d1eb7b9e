"""Resizing by interpolation, along one axis after the other.

Spec: https://onnx.ai/onnx/operators/onnx__Resize.html
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from converter.write.torch.graph_module.operators import (
    Known,
    NotSupportedError,
    Tensor,
    integers,
    operator,
    torch,
)


class Axis(NamedTuple):
    """An axis that is resized: its sizes before and after, and the scale between them."""

    size: Any
    wanted: Any
    scale: Any


# fmt: off
COORDINATES: dict[str, Callable[[Tensor, Axis], Tensor]] = {
    "asymmetric": lambda i, a: i / a.scale,
    "half_pixel": lambda i, a: (i + 0.5) / a.scale - 0.5,
    "pytorch_half_pixel": lambda i, a: (i + 0.5) / a.scale - 0.5 if a.wanted > 1 else i * 0,
    "align_corners": lambda i, a: i * (a.size - 1) / (a.scale * a.size - 1)
                                  if a.wanted != 1 else i * 0,
    "half_pixel_symmetric": lambda i, a: a.size / 2 * (1 - a.wanted / (a.scale * a.size))
                                         + (i + 0.5) / a.scale - 0.5,
}
ROUNDING: dict[str, Callable[[Tensor], Tensor]] = {
    "round_prefer_floor": lambda x: torch.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: torch.floor(x + 0.5),
    "floor": torch.floor,
    "ceil": torch.ceil,
}
# fmt: on


@operator("Resize")
def resize(
    x: Tensor, roi: Tensor | None = None, scales: Known | None = None, sizes: Known | None = None,
    *, mode: str = "nearest", coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor", cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0, extrapolation_value: float = 0.0, antialias: int = 0,
    axes: list[int] | None = None, keep_aspect_ratio_policy: str = "stretch",
) -> Tensor:  # fmt: skip
    """Resize axes to sizes, or by scales."""
    del roi, extrapolation_value
    if antialias or coordinate_transformation_mode not in COORDINATES:
        what = "antialias" if antialias else coordinate_transformation_mode
        raise NotSupportedError(f"Resize with {what}")
    if keep_aspect_ratio_policy != "stretch":
        raise NotSupportedError(f"Resize with {keep_aspect_ratio_policy}")
    along = axes or [*range(x.ndim)]
    dtype = x.dtype
    for i, axis in enumerate(along):
        size = x.shape[axis]
        if sizes is not None and sizes.size:
            wanted = integers(sizes)[i]
            if isinstance(wanted, int) and isinstance(size, int) and wanted == size:
                continue
            scale = wanted / size
        else:
            assert scales is not None
            scale = scales.reshape(-1)[i]
            if isinstance(scale, float) and float(scale) == 1:
                continue
            scale = float(scale) if not isinstance(scale, torch.SymFloat) else scale
            if scale == 1:
                continue
            wanted = torch.sym_int(size * scale)
        places = torch.arange(wanted, dtype=torch.float32)
        places = COORDINATES[coordinate_transformation_mode](places, Axis(size, wanted, scale))
        if mode == "nearest":
            found = ROUNDING[nearest_mode](places)
            x = _pick(x, axis, found)
        elif mode == "linear":
            low = torch.floor(places)
            x = _mix(x, axis, [(low, 1 - (places - low)), (low + 1, places - low)])
        else:
            x = _mix(x, axis, _cubic_taps(places, size, cubic_coeff_a, bool(exclude_outside)))
    return x.to(dtype)


def _pick(x: Tensor, axis: int, places: Tensor) -> Tensor:
    """Return the elements at places along an axis, the nearest one outside of it."""
    return x.index_select(axis, torch.clamp(places, 0, x.shape[axis] - 1).to(torch.int64))


def _mix(x: Tensor, axis: int, taps: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Return sums of elements at places, multiplied by weights."""
    shape = [1] * x.ndim
    shape[axis] = -1
    parts = [_pick(x, axis, places) * weights.reshape(shape) for places, weights in taps]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _cubic_taps(
    places: Tensor, size: Any, a: float, exclude_outside: bool
) -> list[tuple[Tensor, Tensor]]:
    """Return the four elements around each place, and their weights (Keys' cubic convolution)."""
    first = torch.floor(places)
    part = places - first
    taps = []
    for offset in (-1, 0, 1, 2):
        d = torch.abs(part - offset)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        weight = torch.where(d <= 1, near, far)
        at = first + offset
        if exclude_outside:
            weight = torch.where((at >= 0) & (at < size), weight, torch.zeros_like(weight))
        taps.append((at, weight))
    if exclude_outside:
        total = taps[0][1] + taps[1][1] + taps[2][1] + taps[3][1]
        taps = [(at, weight / total) for at, weight in taps]
    return taps
