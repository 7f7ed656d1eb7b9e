"""Pooling by windows of a fixed size, and by a fixed number of windows (adaptive pooling).

Of m windows over an axis of n elements, the i-th spans floor(i n / m) to ceil((i + 1) n / m): the
windows have one of two lengths and may overlap. Keras, torch and TensorFlow Addons agree on this.
"""

from collections.abc import Sequence
from math import inf
from typing import Any

from converter.lower.builder import Builder
from converter.lower.graph import Attribute, Dim
from converter.lower.known_values import Numbers, count
from converter.lower.ops import reduce
from converter.lower.ops.conv import as_given, channels_first, numbers, same_padding
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

MOST = 1 << 22  # elements of a constant that assigns elements to windows


def window_edges(op: Builder, size: Numbers, windows: Numbers) -> tuple[Numbers, Numbers]:
    """Return the start and the (exclusive) end of each window of an axis.

    Raises:
        Unsupported: The constant for the windows would have too many elements.
    """
    n, m = (1 if v.known is None else int(v.known) for v in (size, windows))
    if n * m > MOST:
        raise Unsupported(f"adaptive pooling of {n} to {m}")
    number = count(op, windows)
    return number * size // windows, ((number + 1) * size + windows - 1) // windows


def adaptive_mean(
    op: Builder, x: Value, axis: int, size: Numbers, windows: Numbers, dim: Dim
) -> Value:
    """Return the mean of each window along an axis; arguments as in `adaptive_max`."""
    starts, ends = window_edges(op, size, windows)
    at = count(op, size).column()
    lengths = (ends - starts).to("float64")
    inside = (at >= starts) & (at < ends)
    weights = inside.choose(1.0 / lengths, 0.0 * lengths).to(x.dtype).value
    order = [*(i for i in range(x.rank) if i != axis), axis]
    last = op.plain(op.transpose(x, order))
    shape = (*last.shape[:-1], dim)
    if 0 in shape:  # the runtime multiplies no empty batches of more than one axis
        wide = op.reduce("ReduceSum", last, [-1], keepdims=True)
        made = op.mul(wide, op.reduce("ReduceSum", weights, [0]))
    else:
        made = op.emit("MatMul", last, weights, dtype=x.dtype, shape=shape)
    return op.transpose(made, [order.index(i) for i in range(x.rank)])


def adaptive_max(
    op: Builder, x: Value, axis: int, size: Numbers, windows: Numbers, dim: Dim
) -> tuple[Value, Value]:
    """Return the maximum of each window along an axis, and its first index (int64).

    Args:
        op: Builder.
        x: Tensor of any rank.
        axis: Axis, not negative.
        size: Size of the axis.
        windows: Number of windows.
        dim: Number of windows as a dimension of the result's shape.
    """
    starts, ends = window_edges(op, size, windows)
    longest = (size + windows - 1) // windows + 1
    # Shorter windows repeat their last element; ArgMax returns the first of equal elements.
    members = (starts.column() + count(op, longest)).least(ends.column() - 1)
    shape = (*x.shape[:axis], dim, None, *x.shape[axis + 1 :])
    gathered = op.emit("Gather", x, members.value, dtype=x.dtype, shape=shape, axis=axis)
    values = reduce.reduce_axes(op, "ReduceMax", gathered, [axis + 1])
    found = reduce.index_of_extreme(op, "ArgMax", gathered, axis + 1, finds_nan=True)
    behind = list(range(1, x.rank - axis))
    return values, op.add(found, op.unsqueeze(starts.value, behind) if behind else starts.value)


def adaptive_max_of_image(
    op: Builder, x: Value, sizes: Sequence[Numbers], windows: Sequence[Numbers], dims: Sequence[Dim]
) -> tuple[Value, Value]:
    """Return the maximum of each window over the last axes, and its index in the flat image."""
    index: Value | None = None
    stride: Numbers | None = None
    for i in reversed(range(len(sizes))):
        axis = x.rank - len(sizes) + i
        x, found = adaptive_max(op, x, axis, sizes[i], windows[i], dims[i])
        if index is None or stride is None:
            index, stride = found, sizes[i]
            continue
        inner = op.emit("GatherElements", index, found, dtype="int64", shape=x.shape, axis=axis)
        index = op.add(op.mul(found, stride.value), inner)
        stride = stride * sizes[i]
    assert index is not None
    return x, index


def pool(
    op: Builder, x: Value, op_type: str, *, pool_size: Any, strides: Any, padding: str,
    data_format: str | None,
) -> Value:  # fmt: skip
    """Pool windows of an image; padding affects neither a maximum nor a mean."""
    rank = x.rank - 2
    sizes = numbers(pool_size, rank)
    steps = sizes if strides is None else numbers(strides, rank)
    image = channels_first(op, x, data_format)
    if padding not in ("same", "valid"):
        raise Unsupported(f"padding {padding!r}")
    out: list[Dim] = []
    for n, k, s in zip(image.shape[2:], sizes, steps, strict=True):
        whole = n - k + 1 if isinstance(n, int) and padding == "valid" else n
        out.append(-(-whole // s) if isinstance(whole, int) else None)
    how = _padding(image.shape[2:], sizes, steps) if padding == "same" else {"auto_pad": "VALID"}
    if op_type == "MaxPool" and image.is_float and isinstance(how.get("pads"), list):
        before, after = _pads(image.shape[2:], sizes, steps)
        image = op.pad(image, [0, 0, *before], [0, 0, *after], value=-inf)
        how = {"auto_pad": "VALID"}
    result = op.emit(
        op_type, image, dtype=x.dtype, shape=(*image.shape[:2], *out), kernel_shape=sizes,
        strides=steps, **how,
    )  # fmt: skip
    return as_given(op, result, data_format)


def _padding(spatial: Sequence[Dim], sizes: list[int], steps: list[int]) -> dict[str, Attribute]:
    """Return the attributes for SAME padding of an image.

    SAME_UPPER is preferred to explicit pads: onnxruntime (1.31) fuses a preceding Pad with zeros
    into explicit pads, although pooling ignores padded elements and does not take them as zeros.
    Where strides are larger than windows, its SAME_UPPER cuts off elements between the windows, so
    pads are explicit; `pool` then pads the input of MaxPool with minus infinity instead.
    https://github.com/microsoft/onnxruntime/blob/002469275374731e5990f57a279ca6f891266988/onnxruntime/core/optimizer/pad_fusion.cc
    """
    if all(size == 1 for size in sizes):
        return {"auto_pad": "VALID"}
    if all(step <= size for size, step in zip(sizes, steps, strict=True)):
        return {"auto_pad": "SAME_UPPER"}
    pads = _pads(spatial, sizes, steps)
    numbered: dict[str, Attribute] = {"pads": [*pads[0], *pads[1]]}
    return numbered if any(map(any, pads)) else {"auto_pad": "VALID"}


def _pads(
    spatial: Sequence[Dim], sizes: list[int], steps: list[int]
) -> tuple[list[int], list[int]]:
    pads = same_padding(spatial, sizes, steps, [1] * len(sizes))
    if pads is None:
        raise Unsupported("strides larger than windows with padding same, for an unknown size")
    return pads
