"""Padding of both ends of axes: a constant, the edge, mirrored elements, or those of the other end.

The modes are numpy.pad's: https://numpy.org/doc/stable/reference/generated/numpy.pad.html
"""

from collections.abc import Sequence

from converter.lower.builder import END, Builder
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


def reverse_axes(op: Builder, x: Value, axes: Sequence[int]) -> Value:
    """Reverse the elements along axes."""
    count = len(axes)
    return op.slice(x, axes, [-1] * count, [-END] * count, [-1] * count) if axes else x


def pad_ends(
    op: Builder, x: Value, widths: Sequence[tuple[int, int]], mode: str,
    number: float | Value | None = None,
) -> Value:  # fmt: skip
    """Pad the ends of each axis.

    Args:
        op: Builder.
        x: Tensor.
        widths: Number of elements before and after each axis.
        mode: ``constant``, ``edge``, ``reflect``, ``symmetric`` or ``wrap``.
        number: The constant, zero by default.

    Raises:
        Unsupported: There is no such mode.
    """
    is_moved = x.dtype == "string" and mode == "reflect"  # which onnxruntime cannot pad
    if mode in ("constant", "edge", "reflect") and not is_moved:
        before, after = [low for low, _ in widths], [high for _, high in widths]
        return op.pad(x, before, after, mode=mode, value=number)
    if mode not in ("reflect", "symmetric", "wrap"):
        raise Unsupported(f"padding mode {mode!r}")
    for axis, (low, high) in enumerate(widths):
        if mode == "wrap":
            first, last = _wrapped(op, x, axis, low, high)
        else:
            first, last = _mirrored(op, x, axis, low, high, edge=int(mode == "reflect"))
        x = op.concat([*([first] if low else []), x, *([last] if high else [])], axis)
    return x


def _wrapped(op: Builder, x: Value, axis: int, low: int, high: int) -> tuple[Value, Value]:
    """Return the elements before and after an axis that is padded with its own repetition."""
    n = x.shape[axis]
    if isinstance(n, int) and max(low, high) > n:
        raise Unsupported(f"padding mode 'wrap' by {max(low, high)} elements of {n}")
    return op.slice(x, [axis], [-low], [END]), op.slice(x, [axis], [0], [high])


def _mirrored(
    op: Builder, x: Value, axis: int, low: int, high: int, *, edge: int
) -> tuple[Value, Value]:
    """Return the elements mirrored at both ends of an axis; the first ``edge`` are left out."""
    stop = 0 if edge else -END
    before = op.slice(x, [axis], [low - 1 + edge], [stop], [-1])
    return before, op.slice(x, [axis], [-1 - edge], [-1 - edge - high], [-1])
