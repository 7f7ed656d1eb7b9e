"""Extraction of windows (unfold, im2col), and its adjoint (col2im).

Spec: https://docs.pytorch.org/docs/2.13/generated/torch.nn.Unfold.html
"""

from math import prod

import numpy as np

from converter.lower import dims
from converter.lower.graph import Attribute, Dim
from converter.lower.ops.scatter import scatter_elements
from converter.lower.torch.context import Context
from converter.lower.torch.convolution import windows
from converter.lower.torch.program_values import Int, Ints, numbers
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

MOST = 1 << 20  # indices in a constant


def _places(op: Context, count: Dim, size: int, step: int, spread: int = 1) -> Value:
    """Return the indices of the elements of each window: [count, size]."""
    starts = op.unsqueeze(op.mul(op.range(count), step), [1])
    inside = op.unsqueeze(op.mul(op.range(size), spread), [0])
    return op.shaped(op.add(starts, inside), (count, size))


@aten("unfold", "unfold_copy")
def unfold(op: Context, self: Value, dimension: int, size: int, step: int) -> Value:
    """Windows of an axis, along a new last axis."""
    x = op.named(self)
    if x.rank == 0:
        return op.unsqueeze(x, [0])
    axis = x.axis(dimension)
    count = windows(op, x.shape[axis], size, step, 1, 0)
    made = op.gather(op.outer(x), _places(op, count, size, step), axis)
    rest = [i for i in range(made.rank) if i != axis + 1]
    return made.transposed([*rest, axis + 1])


@aten("im2col")
def im2col(
    op: Context, self: Value, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> Value:
    """Windows of images as columns."""
    size, spread = numbers(kernel_size, 2, "a window's size"), numbers(dilation, 2, "a dilation")
    around, step = numbers(padding, 2, "padding"), numbers(stride, 2, "a step")
    x = op.named(op.unsqueeze(self, [0]) if self.rank == 3 else self)
    counts = [
        windows(op, n, k, s, d, 2 * p)
        for n, k, s, d, p in zip(x.shape[2:], size, step, spread, around, strict=True)
    ]
    wide = op.pad(x, [0, 0, *around], [0, 0, *around])
    rows = op.gather(op.outer(wide), _places(op, counts[0], size[0], step[0], spread[0]), 2)
    both = op.gather(rows, _places(op, counts[1], size[1], step[1], spread[1]), 4)
    turned = both.transposed([0, 1, 3, 5, 2, 4])
    shape = (x.shape[0], dims.mul(x.shape[1], size[0] * size[1]), dims.mul(*counts))
    made = op.reshape(op.shaped(turned, (*x.shape[:2], *size, *counts)), shape)
    return op.squeeze(made, [0]) if self.rank == 3 else made


@aten("col2im")
def col2im(
    op: Context, self: Value, output_size: Ints, kernel_size: Ints, dilation: Ints, padding: Ints,
    stride: Ints,
) -> Value:  # fmt: skip
    """Images from columns of windows; overlapping elements are summed."""
    size, around = numbers(kernel_size, 2, "a window's size"), numbers(padding, 2, "padding")
    x = op.named(op.unsqueeze(self, [0]) if self.rank == 2 else self)
    channels = dims.divide_exactly(x.shape[1], size[0] * size[1])
    if channels is None:
        raise Unsupported(f"{x.shape[1]} channels of windows of {size}")
    attributes: dict[str, Attribute] = {
        "dilations": numbers(dilation, 2, "a dilation"), "pads": around * 2,
        "strides": numbers(stride, 2, "a step"),
    }  # fmt: skip
    inputs = [op.outer(x), op.vector(output_size), op.constant(size, "int64")]
    shape = (x.shape[0], channels, *output_size)
    (made,) = op.node("Col2Im", inputs, [(x.dtype, shape)], attributes=attributes)
    return op.squeeze(made, [0]) if self.rank == 2 else made


@aten("as_strided.in_order", "as_strided_copy.in_order")
def as_strided(
    op: Context, self: Value, size: Ints, stride: Ints, storage_offset: Int | None = None
) -> Value:
    """A strided view of a contiguous tensor."""
    x = op.named(self)
    apart: Dim = 1
    same = True
    for n, step in zip(reversed(size), reversed(stride), strict=True):
        same = same and (n == 1 or step == apart)
        apart = dims.mul(apart, n)
    whole = dims.product(x.shape)
    if same and not storage_offset and apart == whole:
        return op.reshape(x, size)
    places = _strided_indices(op, size, stride, storage_offset)
    return op.gather(op.reshape(x, (whole,)), places, 0)


def _strided_indices(op: Context, size: Ints, stride: Ints, storage_offset: Int | None) -> Value:
    """Return where the elements of a strided view are in the storage.

    Raises:
        Unsupported: There are too many to be stored.
    """
    if not all(isinstance(n, int) for n in (*size, *stride, storage_offset or 0)):
        found = op.scalar(storage_offset or 0, "int64")
        for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
            along = op.mul(op.range(n), op.scalar(step, "int64"))
            behind = list(range(1, len(size) - axis))
            found = op.add(found, op.unsqueeze(along, behind) if behind else along)
        return op.shaped(found, tuple(size))
    if (count := prod(int(n) for n in size)) > MOST:
        raise Unsupported(f"a view of {count} elements")
    places = np.full([int(n) for n in size], storage_offset or 0, np.int64)
    for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
        places += np.arange(n).reshape([-1 if i == axis else 1 for i in range(len(size))]) * step
    return op.constant(places, "int64")


@aten("as_strided_scatter.in_order")
def as_strided_scatter(
    op: Context, self: Value, src: Value, size: Ints, stride: Ints,
    storage_offset: Int | None = None,
) -> Value:  # fmt: skip
    """A contiguous tensor, with the elements of a strided view of it replaced."""
    x = op.named(self)
    count = dims.product(size)
    at = op.reshape(_strided_indices(op, size, stride, storage_offset), (count,))
    whole, source = op.reshape(x, (dims.product(x.shape),)), op.reshape(src, (count,))
    return op.reshape(scatter_elements(op, whole, 0, at, source), x.shape)
