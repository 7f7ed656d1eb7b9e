"""Gradients along axes by differences of neighbours, of points at equal or other distances.

Spec: https://docs.pytorch.org/docs/2.13/generated/torch.gradient.html
"""

from collections.abc import Sequence

from converter.lower.torch.arithmetic import div
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Scalar
from converter.lower.torch.promotion import kind
from converter.lower.torch.reductions import Axes, axes_of
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


def _slope(op: Context, x: Value, axis: int, width: Scalar, order: int) -> Value:
    """Return differences of neighbours: central ones, and one-sided ones at the ends."""
    count = op.named(x).shape[axis]
    if not isinstance(count, int) or count <= order:
        raise Unsupported(f"slopes along an axis of {count}")

    def one(i: int) -> Value:
        return op.cut(x, axis, i % count, i % count + 1)

    def weighted(*terms: tuple[float, int]) -> Value:
        parts = [op.mul(one(i), factor) for factor, i in terms]
        found = parts[0]
        for part in parts[1:]:
            found = op.add(found, part)
        return found

    if order == 1:
        first, last = op.sub(one(1), one(0)), op.sub(one(-1), one(-2))
    else:
        first = op.mul(weighted((-3.0, 0), (4.0, 1), (-1.0, 2)), 0.5)
        last = op.mul(weighted((1.0, -3), (-4.0, -2), (3.0, -1)), 0.5)
    parts = [first, last]
    if count > 2:
        centre = op.sub(op.cut(x, axis, 2, count), op.cut(x, axis, 0, count - 2))
        parts.insert(1, op.mul(centre, 0.5))
    return div(op, op.concat(parts, axis), width)


@aten("gradient.array", "gradient.scalararray", "gradient.scalarint", "gradient.scalarrayarray",
      "gradient.scalarrayint")  # fmt: skip
def gradient(
    op: Context, self: Value, spacing: Scalar | Sequence[Scalar] | None = None, dim: Axes = None,
    edge_order: int = 1,
) -> list[Value]:  # fmt: skip
    """Gradients along axes, of equally spaced points."""
    if kind(self.dtype) != 2:
        raise Unsupported(f"slopes of {self.dtype}")
    axes = axes_of(self, dim)
    if isinstance(spacing, list | tuple):
        widths: list[Scalar] = list(spacing)
    else:
        widths = [1 if spacing is None else spacing] * len(axes)  # type: ignore[list-item]
    pairs = zip(axes, widths, strict=True)
    return [_slope(op, self, axis, width, edge_order) for axis, width in pairs]


def _slope_between(op: Context, x: Value, axis: int, points: Value, order: int) -> Value:
    """Return gradients along an axis from the points at which the values are."""
    count = op.named(x).shape[axis]
    if not isinstance(count, int) or count <= max(order, 2):
        raise Unsupported(f"slopes along an axis of {count}, between points in a tensor")
    places = op.reshape(
        op.cast(points, x.dtype), [count if i == axis else 1 for i in range(x.rank)]
    )

    def rises(v: Value) -> Value:
        return op.sub(op.cut(v, axis, 1, count), op.cut(v, axis, 0, count - 1))

    widths = rises(places)
    slopes = op.div(rises(x), widths)

    def parts(v: Value, start: int, end: int) -> Value:
        return op.cut(v, axis, start, end)

    def pair(start: int, end: int) -> tuple[Value, Value, Value, Value]:
        """Return the widths on both sides of points, and the slopes there."""
        after = start + 1, end + 1
        return (
            parts(widths, start, end), parts(widths, *after),
            parts(slopes, start, end), parts(slopes, *after),
        )  # fmt: skip

    before, behind, left, right = pair(0, count - 2)
    weighted = op.add(op.mul(left, behind), op.mul(right, before))
    centre = op.div(weighted, op.add(before, behind))
    if order == 1:
        first, last = parts(slopes, 0, 1), parts(slopes, count - 2, count - 1)
    else:  # of the parabola through three points
        before, behind, left, right = pair(0, 1)
        bend = op.div(op.sub(right, left), op.add(before, behind))
        first = op.sub(left, op.mul(bend, before))
        before, behind, left, right = pair(count - 3, count - 2)
        bend = op.div(op.sub(right, left), op.add(before, behind))
        last = op.add(right, op.mul(bend, behind))
    return op.concat([first, centre, last], axis)


@aten("gradient.tensorarray", "gradient.tensorarrayint")
def gradient_between(
    op: Context, self: Value, spacing: Sequence[Value], dim: Axes = None, edge_order: int = 1
) -> list[Value]:
    """Gradients along axes, of points in vectors."""
    if kind(self.dtype) != 2:
        raise Unsupported(f"slopes of {self.dtype}")
    pairs = zip(axes_of(self, dim), spacing, strict=True)
    return [_slope_between(op, self, axis, points, edge_order) for axis, points in pairs]
