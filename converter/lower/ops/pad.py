"""Padding: constant, reflect, and symmetric (which repeats the edge)."""

from collections.abc import Sequence
from typing import Any

from converter.lower.builder import END, Builder
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


def reverse_axes(op: Builder, x: Value, axes: Sequence[int]) -> Value:
    """Reverse the elements along axes."""
    count = len(axes)
    return op.slice(x, axes, [-1] * count, [-END] * count, [-1] * count) if axes else x


def pad_ends(
    op: Builder, x: Value, widths: Sequence[tuple[int, int]], mode: str, number: Any = None
) -> Value:
    """Pad the ends of each axis in a mode: constant, reflect or symmetric."""
    before, after = [low for low, _ in widths], [high for _, high in widths]
    mode = mode.lower()
    if mode == "symmetric":
        return _mirror(op, x, widths)
    if mode not in ("constant", "reflect"):
        raise Unsupported(f"padding mode {mode!r}")
    if x.dtype in ("bool", "int16", "uint16"):  # onnxruntime has no Pad kernel for these
        filled = None if number is None else int(number)
        return op.cast(op.pad(op.cast(x, "int32"), before, after, mode=mode, value=filled), x.dtype)
    return op.pad(x, before, after, mode=mode, value=number)


def _mirror(op: Builder, x: Value, widths: Sequence[tuple[int, int]]) -> Value:
    for axis, (low, high) in enumerate(widths):
        parts = [x]
        if low:
            parts.insert(0, reverse_axes(op, op.slice(x, [axis], [0], [low]), [axis]))
        if high:
            parts.append(reverse_axes(op, op.slice(x, [axis], [-high], [END]), [axis]))
        x = op.concat(parts, axis)
    return x
