"""Functions that take elements by their indices, or put them there."""

from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.operations.operands import known_size, tensor
from converter.lower.keras.table import TF_FUNCTIONS, Unsupported, operation
from converter.lower.keras.tensorflow_ops.operands import integers, same_dtype, vector
from converter.lower.keras.tensorflow_rows import call_op
from converter.lower.ops import sort
from converter.lower.table import Variant
from converter.lower.values import Value


@operation(TF_FUNCTIONS, "getitem")
def get_item(op: Builder, tensor_: Any, slice_spec: Any) -> Value:
    """tensor[slice_spec], of integers, slices, an ellipsis, new axes; bounds may be computed.

    A tensor of booleans takes the rows where it holds.
    """
    if isinstance(slice_spec, Value) and slice_spec.dtype == "bool":
        return boolean_mask(op, tensor_, slice_spec)
    parts = slice_spec if isinstance(slice_spec, list | tuple) else [slice_spec]
    begin: list[Any] = []
    end: list[Any] = []
    strides: list[Any] = []
    masks = dict.fromkeys(("begin", "end", "ellipsis", "new_axis", "shrink_axis"), 0)
    for k, part in enumerate(parts):
        one = _slice_of(part)
        low, high, step = (one.start, one.stop, one.step) if isinstance(one, slice) else (0, 0, 1)
        if one is ...:
            masks["ellipsis"] |= 1 << k
        elif one is None:
            masks["new_axis"] |= 1 << k
        elif isinstance(one, slice):
            masks["begin"] |= (low is None) << k
            masks["end"] |= (high is None) << k
        else:
            masks["shrink_axis"] |= 1 << k
            low = high = one
        begin.append(0 if low is None else low)
        end.append(0 if high is None else high)
        strides.append(1 if step is None else step)
    bounds = (vector(op, v) for v in (begin, end, strides))
    named = {f"{name}_mask": mask for name, mask in masks.items()}
    return call_op(op, "StridedSlice", tensor(op, tensor_), *bounds, **named)


def _slice_of(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    if part.get("class_name") == "__ellipsis__":
        return ...
    return slice(part.get("start"), part.get("stop"), part.get("step"))


@operation(TF_FUNCTIONS, "slice")
def slice_(op: Builder, input_: Any, begin: Any, size: Any) -> Value:
    """A slice by start indices and sizes; -1 takes the rest."""
    return call_op(op, "Slice", tensor(op, input_), vector(op, begin), vector(op, size))


@operation(TF_FUNCTIONS, "strided_slice")
def strided_slice(
    op: Builder, input_: Any, begin: Any, end: Any, strides: Any = None, begin_mask: int = 0,
    end_mask: int = 0, ellipsis_mask: int = 0, new_axis_mask: int = 0, shrink_axis_mask: int = 0,
    var: Any = None,
) -> Value:  # fmt: skip
    """A strided slice; masks mark special bounds bit by bit."""
    del var
    low, high = vector(op, begin), vector(op, end)
    steps = [1] * known_size(low, 0, "slicing") if strides is None else strides
    return call_op(
        op, "StridedSlice", tensor(op, input_), low, high, vector(op, steps),
        begin_mask=begin_mask, end_mask=end_mask, ellipsis_mask=ellipsis_mask,
        new_axis_mask=new_axis_mask, shrink_axis_mask=shrink_axis_mask,
    )  # fmt: skip


@operation(TF_FUNCTIONS, "gather")
def gather(
    op: Builder, params: Any, indices: Any, validate_indices: Any = None, axis: Any = None,
    batch_dims: int = 0,
) -> Value:  # fmt: skip
    """Slices along an axis by index, also for each element of a batch."""
    del validate_indices
    numbers = tensor(op, indices)
    batch = batch_dims + numbers.rank if batch_dims < 0 else batch_dims
    along = integers(op, batch if axis is None else axis)
    return call_op(op, "GatherV2", tensor(op, params), numbers, along, batch_dims=batch)


@operation(TF_FUNCTIONS, "gather_nd")
def gather_nd(
    op: Builder, params: Any, indices: Any, batch_dims: int = 0, bad_indices_policy: str = ""
) -> Value:
    """Elements or slices by multi-dimensional index."""
    del bad_indices_policy
    value, places = tensor(op, params), op.cast(tensor(op, indices), "int64")
    depth = known_size(places, -1, "gathering")
    shape = (*places.shape[:-1], *value.shape[batch_dims + depth :])
    return op.emit("GatherND", value, places, dtype=value.dtype, shape=shape, batch_dims=batch_dims)


@operation(TF_FUNCTIONS, "embedding_lookup")
def embedding_lookup(
    op: Builder, params: Any, ids: Any, max_norm: Any = None, partition_strategy: str = "mod",
    validate_indices: Any = None,
) -> Value:  # fmt: skip
    """Rows by index."""
    del partition_strategy
    if max_norm is not None:
        raise Unsupported("max_norm")
    return gather(op, params, ids, validate_indices, 0)


@operation(
    TF_FUNCTIONS,
    Variant("tensor_scatter_nd_update", "A tensor with updates at indices.", how="Update"),
    Variant("tensor_scatter_nd_add", "A tensor with updates added.", how="Add"),
    Variant("tensor_scatter_nd_max", "A tensor with maxima at indices.", how="Max"),
    Variant("tensor_scatter_nd_min", "A tensor with minima at indices.", how="Min"),
    Variant("tensor_scatter_nd_sub", "A tensor with updates subtracted.", how="Sub"),
)
def scatter_into(
    op: Builder, tensor_: Any, indices: Any, updates: Any, *, how: str,
    bad_indices_policy: str = "",
) -> Value:  # fmt: skip
    """A tensor with updates at the given indices."""
    del bad_indices_policy  # what to do where there is no such index
    values = same_dtype(op, tensor(op, tensor_), updates)
    return call_op(op, f"TensorScatter{how}", values[0], tensor(op, indices), values[1])


@operation(TF_FUNCTIONS, "scatter_nd")
def scatter_nd(
    op: Builder, indices: Any, updates: Any, shape: Any, bad_indices_policy: str = ""
) -> Value:
    """Zeros of a shape, with values added at indices."""
    del bad_indices_policy
    given = tensor(op, indices), tensor(op, updates), vector(op, shape)
    return call_op(op, "ScatterNd", *given)


@operation(TF_FUNCTIONS, "searchsorted")
def searchsorted(
    op: Builder, sorted_sequence: Any, values: Any, side: str = "left", out_type: str = "int32"
) -> Value:
    """The index at which each value would be inserted into sorted sequences, row by row."""
    rising, value = same_dtype(op, sorted_sequence, values)
    found = sort.count_before(op, rising, value, or_equal=side == "right")
    return op.cast(found, out_type)


@operation(TF_FUNCTIONS, "boolean_mask")
def boolean_mask(op: Builder, tensor_: Any, mask: Any, axis: int | None = None) -> Value:
    """The slices of a tensor along an axis where a mask is true."""
    value, where = tensor(op, tensor_), op.plain(tensor(op, mask, "bool"))
    place = axis or 0
    count = where.rank
    if count > 1:
        if place:
            raise Unsupported("a mask of several axes that are not the first")
        value = op.reshape(value, (None, *value.shape[count:]))
        where = op.reshape(where, (None,))
    shape = (*value.shape[:place], None, *value.shape[place + 1 :])
    return op.emit("Compress", value, where, dtype=value.dtype, shape=shape, axis=place)
