"""Functions of arrays: shapes, order of axes, joining and cutting, padding, making."""

from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.operations import shaping as s
from converter.lower.keras.operations.operands import known_size, tensor
from converter.lower.keras.table import TF_FUNCTIONS, Unsupported, operation
from converter.lower.keras.tensorflow_ops.operands import (
    as_list,
    integers,
    known_axes,
    same_dtype,
    vector,
)
from converter.lower.keras.tensorflow_rows import call_op, call_op_of_several
from converter.lower.values import Value, total

# -- shapes ----------------------------------------------------------------------------------------


@operation(TF_FUNCTIONS, "shape")
def shape_of(op: Builder, input: Any, out_type: str = "int32", *, optimize: bool = True) -> Value:
    """The sizes of the dimensions of a tensor."""
    del optimize
    return call_op(op, "Shape", tensor(op, input), out_type=out_type)


@operation(TF_FUNCTIONS, "size")
def size(op: Builder, input: Any, out_type: str = "int32") -> Value:
    """The number of elements."""
    return call_op(op, "Size", tensor(op, input), out_type=out_type)


@operation(TF_FUNCTIONS, "rank")
def rank(op: Builder, input: Any) -> Value:
    """The number of dimensions."""
    return call_op(op, "Rank", tensor(op, input))


@operation(TF_FUNCTIONS, "reshape")
def reshape(op: Builder, tensor_: Any, shape: Any) -> Value:
    """A tensor in another shape, which may be computed."""
    return call_op(op, "Reshape", tensor(op, tensor_), vector(op, shape))


@operation(TF_FUNCTIONS, "keras.backend.batch_flatten")
def batch_flatten(op: Builder, x: Any) -> Value:
    """A tensor in two dimensions, of which the first is the batch."""
    value = tensor(op, x)
    return op.reshape(value, (value.shape[0], total(value.shape[1:])))


@operation(TF_FUNCTIONS, "broadcast_to")
def broadcast_to(op: Builder, input: Any, shape: Any) -> Value:
    """A tensor broadcast to a shape, which may be computed."""
    return call_op(op, "BroadcastTo", tensor(op, input), vector(op, shape))


@operation(TF_FUNCTIONS, "expand_dims")
def expand_dims(op: Builder, input: Any, axis: Any = None, *, dim: Any = None) -> Value:
    """A tensor with a new dimension of size 1."""
    return call_op(op, "ExpandDims", tensor(op, input), integers(op, dim if axis is None else axis))


@operation(TF_FUNCTIONS, "squeeze")
def squeeze(op: Builder, input: Any, axis: Any = None, *, squeeze_dims: Any = None) -> Value:
    """A tensor without dimensions of size 1: those given, or all."""
    named = known_axes(op, squeeze_dims if axis is None else axis)
    dims = [named] if isinstance(named, int) else list(named or ())
    return call_op(op, "Squeeze", tensor(op, input), squeeze_dims=dims)


@operation(TF_FUNCTIONS, "transpose")
def transpose(op: Builder, a: Any, perm: Any = None, conjugate: bool = False) -> Value:
    """A tensor with axes permuted, reversed by default."""
    del conjugate  # there are no complex numbers here
    x = tensor(op, a)
    return call_op(op, "Transpose", x, vector(op, [*range(x.rank)][::-1] if perm is None else perm))


# -- joining and cutting ---------------------------------------------------------------------------


@operation(TF_FUNCTIONS, "concat")
def concat(op: Builder, values: Any, axis: Any) -> Value:
    """Tensors concatenated along an axis."""
    return call_op(op, "ConcatV2", *same_dtype(op, *as_list(values)), integers(op, axis))


@operation(TF_FUNCTIONS, "stack")
def stack(op: Builder, values: Any, axis: int = 0) -> Value:
    """Tensors stacked along a new axis."""
    return call_op(op, "Pack", *same_dtype(op, *as_list(values)), axis=axis)


@operation(TF_FUNCTIONS, "unstack")
def unstack(op: Builder, value: Any, num: int | None = None, axis: int = 0) -> list[Value]:
    """The slices of a tensor along an axis, without it."""
    x = tensor(op, value)
    count = known_size(x, axis, "unstacking") if num is None else num
    return call_op_of_several(op, "Unpack", x, num=count, axis=axis)


@operation(TF_FUNCTIONS, "split")
def split(
    op: Builder, value: Any, num_or_size_splits: Any, axis: Any = 0, num: int | None = None
) -> list[Value]:
    """A tensor split along an axis, into equal parts or parts of given sizes."""
    x, along = tensor(op, value), integers(op, axis)
    if isinstance(num_or_size_splits, int):
        return call_op_of_several(op, "Split", along, x, num_split=num_or_size_splits)
    sizes = vector(op, num_or_size_splits)
    count = known_size(sizes, 0, "cutting") if num is None else num
    return call_op_of_several(op, "SplitV", x, sizes, along, num_split=count)


@operation(TF_FUNCTIONS, "tile")
def tile(op: Builder, input: Any, multiples: Any) -> Value:
    """A tensor tiled along its axes."""
    return call_op(op, "Tile", tensor(op, input), vector(op, multiples))


@operation(TF_FUNCTIONS, "repeat")
def repeat(op: Builder, input: Any, repeats: Any, axis: int | None = None) -> Value:
    """A tensor with each element repeated along an axis."""
    counts = known_axes(op, repeats)
    if counts is None:
        raise Unsupported("repeats")
    return s.repeat(op, input, repeats=counts, axis=axis)


@operation(TF_FUNCTIONS, "pad")
def pad(
    op: Builder, tensor_: Any, paddings: Any, mode: str = "CONSTANT", constant_values: Any = 0
) -> Value:
    """A tensor padded by a number or by reflection."""
    x, widths = tensor(op, tensor_), integers(op, paddings)
    if mode.upper() != "CONSTANT":
        return call_op(op, "MirrorPad", x, widths, mode=mode.upper())
    return call_op(op, "PadV2", x, widths, tensor(op, constant_values, x.dtype))


@operation(TF_FUNCTIONS, "reverse")
def reverse(op: Builder, tensor_: Any, axis: Any) -> Value:
    """A tensor with axes reversed."""
    return call_op(op, "ReverseV2", tensor(op, tensor_), vector(op, axis))


@operation(TF_FUNCTIONS, "roll")
def roll(op: Builder, input: Any, shift: Any, axis: Any) -> Value:
    """A tensor with elements rolled along axes."""
    return call_op(op, "Roll", tensor(op, input), integers(op, shift), integers(op, axis))


# -- making ----------------------------------------------------------------------------------------


@operation(TF_FUNCTIONS, "fill")
def fill(op: Builder, dims: Any, value: Any) -> Value:
    """A tensor filled with a number, of a shape that may be computed."""
    return call_op(op, "Fill", vector(op, dims), tensor(op, value))


@operation(TF_FUNCTIONS, "zeros")
def zeros(op: Builder, shape: Any, dtype: str = "float32") -> Value:
    """Zeros of a shape that may be computed."""
    return fill(op, shape, op.constant(0, dtype))


@operation(TF_FUNCTIONS, "ones")
def ones(op: Builder, shape: Any, dtype: str = "float32") -> Value:
    """Ones of a shape that may be computed."""
    return fill(op, shape, op.constant(1, dtype))


@operation(TF_FUNCTIONS, "zeros_like")
def zeros_like(
    op: Builder, input: Any, dtype: str | None = None, *, optimize: bool = True
) -> Value:
    """Zeros of the shape of a tensor."""
    del optimize
    return call_op(op, "ZerosLike", tensor(op, input, dtype))


@operation(TF_FUNCTIONS, "ones_like")
def ones_like(op: Builder, input: Any, dtype: str | None = None, *, optimize: bool = True) -> Value:
    """Ones of the shape of a tensor."""
    del optimize
    return call_op(op, "OnesLike", tensor(op, input, dtype))


@operation(TF_FUNCTIONS, "one_hot")
def one_hot(
    op: Builder, indices: Any, depth: Any, on_value: Any = None, off_value: Any = None,
    axis: int | None = None, dtype: str | None = None,
) -> Value:  # fmt: skip
    """One-hot vectors of indices, with given on and off values."""
    if dtype is None and on_value is None and off_value is None:
        dtype = "float32"
    values = same_dtype(op, *(
        v if isinstance(v, Value) else tensor(op, v, dtype)
        for v in (1 if on_value is None else on_value, 0 if off_value is None else off_value)
    ))  # fmt: skip
    place = -1 if axis is None else axis
    return call_op(op, "OneHot", tensor(op, indices), integers(op, depth), *values, axis=place)


@operation(TF_FUNCTIONS, "range")
def range_(
    op: Builder, start: Any, limit: Any = None, delta: Any = 1, dtype: str | None = None
) -> Value:
    """Numbers from start up to (not including) a limit."""
    start, limit = (0, start) if limit is None else (start, limit)
    bounds = (start, limit, delta) if dtype is None else (
        tensor(op, v, dtype) for v in (start, limit, delta)
    )  # fmt: skip
    return call_op(op, "Range", *(op.reshape(v, ()) for v in same_dtype(op, *bounds)))


@operation(TF_FUNCTIONS, "linspace")
def linspace(op: Builder, start: Any, stop: Any, num: int, axis: int = 0) -> Value:
    """A number of equally spaced values from start to stop."""
    found: Value = s.linspace(op, start, stop, num=num, axis=axis)
    return found


@operation(TF_FUNCTIONS, "sequence_mask")
def sequence_mask(op: Builder, lengths: Any, maxlen: Any = None, dtype: str = "bool") -> Value:
    """Whether each index is less than the length of its sequence."""
    ends = op.unsqueeze(op.cast(tensor(op, lengths), "int64"), [-1])
    if maxlen is None:
        maxlen = op.reduce("ReduceMax", ends, list(range(ends.rank)))
    indices = range_(op, 0, tensor(op, maxlen, "int64"), 1, "int64")
    return op.cast(op.elementwise("Less", indices, ends), dtype)
