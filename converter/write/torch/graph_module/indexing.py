"""Operators that read and write elements by their indices."""

from typing import Any

from converter.write.torch.graph_module.operators import (
    Known,
    NotSupportedError,
    Tensor,
    from_numpy,
    integers,
    operator,
    torch,
)

REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _from_start(indices: Tensor, size: Any) -> Tensor:
    """Return indices counted from the start: negative ones count from the end."""
    indices = indices.to(torch.int64)
    return torch.where(indices < 0, indices + size, indices)


@operator("Gather")
def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """Return slices along an axis."""
    axis = axis % x.ndim
    found = _from_start(indices, x.shape[axis])
    picked = x.index_select(axis, found.reshape(-1))
    return picked.reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


@operator("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """Return an element for each index."""
    return torch.gather(x, axis, _from_start(indices, x.shape[axis]))


@operator("GatherND")
def gather_slices(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    """Return the slice that each row of indices names."""
    depth = int(indices.shape[-1])
    batches: list[Tensor] = []
    for axis in range(batch_dims):
        shape = [1] * (indices.ndim - 1)
        shape[axis] = -1
        batches.append(torch.arange(x.shape[axis]).reshape(shape))
    parts = [_from_start(indices[..., i], x.shape[batch_dims + i]) for i in range(depth)]
    return x[(*batches, *parts)]


@operator("ScatterElements")
def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """Write or combine an element for each index."""
    places = _from_start(indices, x.shape[axis])
    if reduction == "none":
        return torch.scatter(x, axis, places, updates)
    return torch.scatter_reduce(x, axis, places, updates, REDUCTIONS[reduction])


@operator("ScatterND")
def scatter_slices(
    x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none"
) -> Tensor:
    """Write or combine the slice that each row of indices names."""
    depth = int(indices.shape[-1])
    if not depth:
        raise NotSupportedError("ScatterND of whole tensors")
    parts = tuple(_from_start(indices[..., i], x.shape[i]) for i in range(depth))
    if reduction == "none":
        return x.index_put(parts, updates)
    flat = torch.zeros((), dtype=torch.int64)
    for part, size in zip(parts, x.shape, strict=False):
        flat = flat * size + part
    rest = x.shape[depth:]
    inner = x.reshape([-1, *rest])
    chosen = flat.reshape([-1, *[1] * len(rest)]).expand([-1, *rest])
    given = updates.reshape([-1, *rest])
    return torch.scatter_reduce(inner, 0, chosen, given, REDUCTIONS[reduction]).reshape(x.shape)


@operator("Slice")
def cut(
    x: Tensor, starts: Known, ends: Known, axes: Known | None = None, steps: Known | None = None
) -> Tensor:
    """Return a part of each axis; negative steps go backwards."""
    count = starts.size
    along = [*range(count)] if axes is None else integers(axes)
    strides = [1] * count if steps is None else integers(steps)
    for axis, start, end, step in zip(
        along, integers(starts), integers(ends), strides, strict=True
    ):
        axis = axis % x.ndim
        if step < 0:
            size = x.shape[axis]
            start, end = (size - 1 - _bounded(n, size) for n in (start, end))
            x, step = x.flip(axis), -step
        x = torch.ops.aten.slice(x, axis, start, end, step)
    return x


def _bounded(index: Any, size: Any) -> Any:
    """Return an index for steps backwards, counted from the start: from -1 to size - 1."""
    if isinstance(index, int) and index < 0:
        index = index + size if index > -(1 << 30) else -1
    return torch.sym_max(torch.sym_min(index, size - 1), -1)


@operator("Compress")
def keep_where(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    """Return the slices along an axis, or the elements, for which a condition holds."""
    if axis is None:
        x, axis = x.reshape(-1), 0
    (places,) = torch.nonzero(condition, as_tuple=True)
    return x.index_select(axis, places)


@operator("NonZero")
def find_nonzero(x: Tensor) -> Tensor:
    """Return the indices of elements that are not 0, one row an axis."""
    return torch.nonzero(x).transpose(0, 1)


@operator("Unique")
def find_unique(
    x: Tensor, *, axis: int | None = None, sorted: int = 1, outputs: int = 1
) -> list[Tensor]:
    """Return the values that there are, the first place of each, and where each element went."""
    if not sorted or axis is not None:
        raise NotSupportedError("Unique of slices, or in the order of appearance")
    values, inverse, counts = torch.unique(x.reshape(-1), return_inverse=True, return_counts=True)
    places = torch.arange(inverse.shape[0])
    first = torch.full_like(counts, x.numel()).scatter_reduce(0, inverse, places, "amin")
    return [values, first, inverse, counts][:outputs]


@operator("OneHot")
def one_hot(indices: Tensor, depth: Known, values: Tensor, *, axis: int = -1) -> Tensor:
    """Return the second value at each index along a new axis, and the first elsewhere."""
    classes = integers(depth)[0]
    rank = indices.ndim + 1
    shape = [1] * rank
    shape[axis % rank] = -1
    found = _from_start(indices, classes).unsqueeze(axis)
    is_hot = found == torch.arange(classes).reshape(shape)
    return torch.where(is_hot, values[1], values[0])


@operator("TopK")
def find_largest(
    x: Tensor, k: Known, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Tensor, Tensor]:
    """Return the k largest or least values, and their indices; of equal ones the first."""
    del sorted  # they always are
    values, places = torch.sort(x, dim=axis, descending=bool(largest), stable=True)
    count = integers(k)[0]
    return values.narrow(axis, 0, count), places.narrow(axis, 0, count)


@operator("ReverseSequence")
def reverse_sequences(
    x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0
) -> Tensor:
    """Turn the first elements of each sequence around, as many as its length says."""
    moved = x.movedim((batch_axis, time_axis), (0, 1))
    steps = torch.arange(moved.shape[1])[None]
    turned = torch.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)
    rows = torch.arange(moved.shape[0])[:, None]
    return moved[rows, turned].movedim((0, 1), (batch_axis, time_axis))


@operator("CumSum")
def add_up(x: Tensor, axis: Known, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """Return running sums, perhaps from the end, perhaps without the element itself."""
    along = integers(axis)[0]
    turned = x.flip(along) if reverse else x
    sums = torch.cumsum(turned, along, dtype=x.dtype)
    if exclusive:
        sums = sums - turned
    return sums.flip(along) if reverse else sums


@operator("LabelEncoder")
def look_up(x: Tensor, *, keys_tensor: Known | None = None, values_tensor: Known | None = None,
            default_tensor: Known | None = None, **others: Any) -> Tensor:  # fmt: skip
    """Return the value of each key, of numbers."""
    if keys_tensor is None or values_tensor is None or default_tensor is None:
        raise NotSupportedError(f"LabelEncoder with {', '.join(others)}")
    keys, values, default = (from_numpy(t) for t in (keys_tensor, values_tensor, default_tensor))
    order = torch.argsort(keys)
    place = torch.searchsorted(keys[order], x).clamp(max=keys.shape[0] - 1)
    found = order[place]
    return torch.where(keys[found] == x, values[found], default)
