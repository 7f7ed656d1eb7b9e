"""Padding: by a number, by mirrored or repeated edges, and around.

torch names both ends of the last axis first. A negative number takes away.
"""

from converter.lower import dims
from converter.lower.ops.pad import pad_ends
from converter.lower.table import Variant
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Ints, Scalar
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value
from formats.core.plurals import count

MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _ends(x: Value, pad: Ints) -> list[tuple[int, int]]:
    """Return padding before and after each axis."""
    widths = [(0, 0)] * x.rank
    if len(pad) % 2 or len(pad) // 2 > x.rank:
        raise Unsupported(f"padding of {count('number', len(pad))}")
    for i in range(len(pad) // 2):
        low, high = pad[2 * i], pad[2 * i + 1]
        if not isinstance(low, int) or not isinstance(high, int):
            raise Unsupported("padding that depends on the inputs' shapes")
        widths[-1 - i] = (low, high)
    return widths


def pad_axes(op: Context, x: Value, pad: Ints, mode: str, value: float | None) -> Value:
    """Return a tensor with more, or less, at both ends of its last axes.

    Raises:
        Unsupported: There is no such mode.
    """
    x = op.named(x)
    if mode not in MODES:
        raise Unsupported(f"mode = {mode!r}")
    if any(not isinstance(n, int) for n in pad):
        return _pad_symbolic(op, x, pad, MODES[mode], value or 0.0)
    if mode in ("reflect", "replicate") and any(isinstance(n, int) and n < 0 for n in pad):
        # The edge is that of the whole tensor: cropping comes last.
        whole = pad_axes(op, x, [max(n, 0) for n in pad if isinstance(n, int)], mode, value)
        return pad_axes(
            op, whole, [min(n, 0) for n in pad if isinstance(n, int)], "constant", value
        )
    widths = _ends(x, pad)
    for axis, (low, high) in enumerate(widths):
        if low < 0 or high < 0:
            n = x.shape[axis]
            x = op.cut(x, axis, max(-low, 0), dims.sub(n, max(-high, 0)))
    more = [(max(low, 0), max(high, 0)) for low, high in widths]
    shape = tuple(dims.add(n, low + high) for n, (low, high) in zip(x.shape, more, strict=True))
    return op.shaped(pad_ends(op, x, more, MODES[mode], value), shape)


def _pad_symbolic(op: Context, x: Value, pad: Ints, mode: str, value: float) -> Value:
    """Return a tensor padded by sizes that have names; none of them may be negative."""
    if len(pad) % 2 or any(isinstance(n, int) and n < 0 for n in pad):
        raise Unsupported("padding that depends on the inputs' shapes, and takes away")
    count = len(pad) // 2
    low, high = (
        [*[0] * (x.rank - count), *(pad[2 * i + k] for i in reversed(range(count)))] for k in (0, 1)
    )
    if mode == "wrap":
        for axis in range(x.rank - count, x.rank):
            n = x.shape[axis]
            before = op.cut(x, axis, dims.sub(n, low[axis]), n)
            x = op.concat([before, x, op.cut(x, axis, 0, high[axis])], axis)
        return x
    shape = tuple(dims.add(n, dims.add(a, b)) for n, a, b in zip(x.shape, low, high, strict=True))
    fill = op.constant(value, x.dtype) if mode == "constant" else None
    inputs = [op.outer(x), op.vector([*low, *high]), fill]
    return op.node("Pad", inputs, [(x.dtype, shape)], attributes={"mode": mode})[0]


@aten("constant_pad_nd")
def constant_pad_nd(op: Context, self: Value, pad: Ints, value: Scalar = 0) -> Value:
    """Padding of the last axes by a constant."""
    if not isinstance(value, int | float):
        raise Unsupported("padding by a number that is computed from the inputs")
    return pad_axes(op, self, pad, "constant", value)


@aten("pad")
def pad(
    op: Context, self: Value, pad: Ints, mode: str = "constant", value: float | None = None
) -> Value:
    """Padding of the last axes."""
    return pad_axes(op, self, pad, mode, value)


@aten(
    Variant(
        ("reflection_pad1d", "reflection_pad2d", "reflection_pad3d"),
        "Padding of the last axes by reflection, without the edge.",
        mode="reflect",
    ),
    Variant(
        ("replication_pad1d", "replication_pad2d", "replication_pad3d"),
        "Padding of the last axes by their edges.",
        mode="replicate",
    ),
)
def pad_by_mode(op: Context, self: Value, padding: Ints, *, mode: str) -> Value:
    """Padding of the last axes."""
    return pad_axes(op, self, padding, mode, None)


@aten("_pad_circular")
def pad_circular(op: Context, self: Value, pad: Ints) -> Value:
    """Circular padding of the last axes."""
    return pad_axes(op, self, pad, "circular", None)


@aten("_pad_enum")
def pad_enum(op: Context, self: Value, pad: Ints, mode: int, value: float | None = None) -> Value:
    """Padding of the last axes."""
    return pad_axes(op, self, pad, ("reflect", "replicate", "circular", "constant")[mode], value)
