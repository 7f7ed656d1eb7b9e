"""Operators that move elements: shapes, axes, joining, cutting, padding."""

from typing import Any

import numpy as np

from converter.write.torch.graph_module.operators import (
    Known,
    NotSupportedError,
    Tensor,
    from_numpy,
    integers,
    operator,
    torch,
)


def as_object_array(values: Any) -> Known:
    """Return sizes as a known value."""
    items = list(values)
    if all(isinstance(v, int) for v in items):
        return np.array(items, np.int64)
    made = np.empty(len(items), dtype=object)
    made[:] = items
    return made


@operator("Shape")
def find_shape(x: Tensor, *, start: int = 0, end: int | None = None) -> Known:
    """Return the sizes of a tensor, as a known value."""
    return as_object_array(tuple(x.shape)[start:end])


@operator("Size")
def count_elements(x: Tensor) -> Known:
    """Return the number of elements, as a known value."""
    return as_object_array([x.numel()]).reshape(())


@operator("Reshape")
def reshape(x: Tensor, shape: Known, *, allowzero: int = 0) -> Tensor:
    """Return the same elements in another shape; 0 keeps an axis, and -1 is what remains."""
    sizes = integers(shape)
    if not allowzero:
        kept = [isinstance(n, int) and n == 0 for n in sizes]
        sizes = [
            x.shape[i] if keep else n for i, (n, keep) in enumerate(zip(sizes, kept, strict=True))
        ]
    return x.reshape(sizes)


@operator("Flatten")
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    """Return a matrix: the axes before one, and all others."""
    at = axis % x.ndim if axis < 0 else axis
    rows = 1
    for n in x.shape[:at]:
        rows = rows * n
    columns = 1
    for n in x.shape[at:]:
        columns = columns * n
    return x.reshape(rows, columns)


@operator("Unsqueeze")
def insert_axes(x: Tensor, axes: Known) -> Tensor:
    """Insert axes of one element."""
    rank = x.ndim + axes.size
    for axis in sorted(a % rank for a in integers(axes)):
        x = x.unsqueeze(axis)
    return x


@operator("Squeeze")
def remove_axes(x: Tensor, axes: Known | None = None) -> Tensor:
    """Remove axes of one element."""
    if axes is None:
        return x.squeeze()
    for axis in sorted((a % x.ndim for a in integers(axes)), reverse=True):
        x = x.select(axis, 0) if not isinstance(x.shape[axis], int) else x.squeeze(axis)
    return x


@operator("Transpose")
def transpose(x: Tensor, *, perm: list[int] | None = None) -> Tensor:
    """Permute axes."""
    return x.permute(perm if perm is not None else [*range(x.ndim)][::-1])


@operator("Concat")
def concatenate(*operands: Tensor, axis: int) -> Tensor:
    """Join along an axis."""
    return torch.cat(operands, axis)


@operator("Split")
def split(
    x: Tensor, sizes: Known | None = None, *, axis: int = 0, num_outputs: int | None = None,
    outputs: int = 1,
) -> Any:  # fmt: skip
    """Cut along an axis, into parts of sizes or into as many equal ones."""
    if sizes is not None:
        return torch.split(x, integers(sizes), axis)
    count = num_outputs or outputs
    part = (x.shape[axis] + count - 1) // count
    return [x.narrow(axis, i * part, part) for i in range(count - 1)] + [
        x.narrow(axis, (count - 1) * part, x.shape[axis] - (count - 1) * part)
    ]


@operator("Expand")
def expand(x: Tensor, shape: Known) -> Tensor:
    """Broadcast to a shape, in both directions."""
    wanted = integers(shape)
    rank = max(x.ndim, len(wanted))
    own, wanted = [[1] * (rank - len(s)) + list(s) for s in (x.shape, wanted)]
    sizes = [n if isinstance(m, int) and m == 1 else m for n, m in zip(own, wanted, strict=True)]
    return x.expand(sizes)


@operator("Tile")
def tile(x: Tensor, repeats: Known) -> Tensor:
    """Repeat along each axis."""
    return x.repeat(integers(repeats)) if x.ndim else x


@operator("ConstantOfShape")
def fill_shape(shape: Known, *, value: Known | None = None) -> Tensor:
    """Return a tensor of one value."""
    filled = torch.zeros(1) if value is None else from_numpy(value)
    return torch.full(integers(shape), filled.item(), dtype=filled.dtype)


@operator("Range")
def count_up(start: Known, limit: Known, delta: Known) -> Tensor:
    """Return the numbers from start to limit."""
    dtype = next((v.dtype for v in (start, limit, delta) if v.dtype != object), np.dtype("int64"))
    ends = (v.item() for v in (start, limit, delta))
    return torch.arange(*ends, dtype=from_numpy(np.zeros(0, dtype)).dtype)


@operator("EyeLike")
def make_identity_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    """Return a matrix with ones on a diagonal."""
    from converter.write.torch.graph_module.dtypes import torch_dtype

    rows, columns = (torch.arange(n) for n in x.shape)
    made = rows[:, None] + k == columns[None]
    return made.to(x.dtype if dtype is None else torch_dtype(dtype))


@operator("Trilu")
def keep_triangle(x: Tensor, k: Known | None = None, *, upper: int = 1) -> Tensor:
    """Return a triangle of matrices, with zeros elsewhere."""
    diagonal = 0 if k is None else integers(k)[0]
    return torch.triu(x, diagonal) if upper else torch.tril(x, diagonal)


@operator("DepthToSpace")
def move_depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Move channels into blocks of rows and columns."""
    n, c, h, w = x.shape
    b = blocksize
    if mode == "DCR":
        blocks = x.reshape(n, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        blocks = x.reshape(n, c // (b * b), b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return blocks.reshape(n, c // (b * b), h * b, w * b)


@operator("SpaceToDepth")
def move_space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Move blocks of rows and columns into channels."""
    n, c, h, w = x.shape
    b = blocksize
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    blocks = x.reshape(n, c, h // b, b, w // b, b).permute(order)
    return blocks.reshape(n, c * b * b, h // b, w // b)


@operator("Pad")
def pad(
    x: Tensor, pads: Known, value: Known | None = None, axes: Known | None = None, *,
    mode: str = "constant",
) -> Tensor:  # fmt: skip
    """Pad each axis before and after; negative amounts cut it."""
    amounts = integers(pads)
    along = [*range(x.ndim)] if axes is None else [a % x.ndim for a in integers(axes)]
    filled = 0 if value is None else value.item()
    for i, axis in enumerate(along):
        before, after = amounts[i], amounts[i + len(along)]
        if mode == "constant":
            x = pad_constant(x, axis, before, after, filled)
        elif not all(isinstance(n, int) and n == 0 for n in (before, after)):
            x = _pad_from_itself(x, axis, before, after, mode)
    return x


def pad_constant(x: Tensor, axis: int, before: Any, after: Any, value: float) -> Tensor:
    """Pad an axis with a value; negative amounts cut it."""
    if all(isinstance(n, int) and n == 0 for n in (before, after)):
        return x
    return torch.constant_pad_nd(x, [0, 0] * (x.ndim - axis - 1) + [before, after], value)


def _pad_from_itself(x: Tensor, axis: int, before: Any, after: Any, mode: str) -> Tensor:
    """Pad an axis with its own elements: mirrored, repeated at the edge, or from the other end."""
    size = x.shape[axis]
    places = torch.arange(-before, size + after)
    if mode == "edge":
        found = torch.clamp(places, 0, size - 1)
    elif mode == "wrap":
        found = torch.remainder(places, size)
    elif mode == "reflect":
        period = torch.sym_max(2 * (size - 1), 1)
        turned = torch.remainder(places, period)
        found = torch.minimum(turned, period - turned) if size != 1 else turned * 0
    else:
        raise NotSupportedError(f"padding mode {mode}")
    return x.index_select(axis, found)
