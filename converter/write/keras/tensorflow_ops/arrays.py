"""TensorFlow functions of arrays as operations of Keras 3: shapes, joining, slicing."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from converter.lower.keras.model import Reference
from converter.lower.keras.table import Unsupported
from converter.write.keras.tensorflow_ops.builder import KerasOps, as_int, as_list, function

# -- shapes ----------------------------------------------------------------------------------------


@function("reshape")
def reshape(op: KerasOps, tensor: Any, shape: Any) -> Any:
    """The same elements in another shape, of which one size may be computed: it follows."""
    if isinstance(shape, Reference):
        raise Unsupported("a shape that the model computes")
    sizes = [-1 if isinstance(n, Reference) else int(n) for n in shape]
    if sizes.count(-1) > 1:
        raise Unsupported("a shape with several sizes that the model computes")
    return op.call("numpy.Reshape", tensor, newshape=sizes)


@function("expand_dims")
def expand_dims(op: KerasOps, input: Any, axis: Any = None, dim: Any = None) -> Any:
    """A tensor with one more axis of one element."""
    return op.call("numpy.ExpandDims", input, axis=as_int(dim if axis is None else axis))


@function("squeeze")
def squeeze(op: KerasOps, input: Any, axis: Any = None, squeeze_dims: Any = None) -> Any:
    """A tensor without axes of one element, which are named."""
    axes = squeeze_dims if axis is None else axis
    if axes is None or not as_list(axes):
        raise Unsupported("squeeze without axes")
    rank, found = op.rank(input), input
    for place in sorted((n % rank for n in as_list(axes)), reverse=True):
        found = op.call("numpy.Squeeze", found, axis=place)
    return found


@function("transpose")
def transpose(op: KerasOps, a: Any, perm: Any = None, conjugate: bool = False) -> Any:
    """A tensor with its axes in another order, reversed by default."""
    del conjugate  # there are no complex numbers here
    return op.call("numpy.Transpose", a, axes=None if perm is None else as_list(perm))


@function("matrix_transpose")
def matrix_transpose(op: KerasOps, a: Any) -> Any:
    """A tensor with its last two axes exchanged."""
    return op.call("numpy.Swapaxes", a, axis1=-2, axis2=-1)


@function("keras.backend.batch_flatten")
def batch_flatten(op: KerasOps, x: Any) -> Any:
    """A tensor with one axis behind the batch, whose size is known."""
    sizes = [n for n in op.sizes(x)[1:] if n is not None]
    if len(sizes) + 1 < op.rank(x):
        raise Unsupported("sizes that are not known")
    return op.call("numpy.Reshape", x, newshape=[-1, prod(sizes)])


@function("broadcast_to")
def broadcast_to(op: KerasOps, input: Any, shape: Any) -> Any:
    """A tensor repeated along axes of one element."""
    return op.call("numpy.BroadcastTo", input, shape=as_list(shape))


# -- joining and cutting ---------------------------------------------------------------------------


def _several(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple) else [values]


@function("concat")
def concat(op: KerasOps, values: Any, axis: Any) -> Any:
    """Tensors one after another along an axis."""
    return op.call("numpy.Concatenate", op.same_dtype(*_several(values)), axis=as_int(axis))


@function("stack")
def stack(op: KerasOps, values: Any, axis: int = 0) -> Any:
    """Tensors one after another along a new axis."""
    parts = _several(values)
    if any(isinstance(part, int | float) for part in parts):
        raise Unsupported("numbers in a stack")
    return op.call("numpy.Stack", op.same_dtype(*parts), axis=axis)


@function("unstack")
def unstack(op: KerasOps, value: Any, num: int | None = None, axis: int = 0) -> Any:
    """The slices of a tensor along an axis, without it."""
    return op.call("core.Unstack", value, num=num, axis=axis)


@function("split")
def split(
    op: KerasOps, value: Any, num_or_size_splits: Any, axis: Any = 0, num: int | None = None
) -> Any:
    """A tensor cut along an axis, in equal parts or in parts of given sizes."""
    del num  # as many as there are sizes
    sizes = as_int(num_or_size_splits)
    if isinstance(sizes, list):
        if -1 in sizes[:-1]:
            raise Unsupported("a size of what is left")
        sizes = np.cumsum(sizes[:-1]).tolist()
    return op.call("numpy.Split", value, indices_or_sections=sizes, axis=as_int(axis))


@function("tile")
def tile(op: KerasOps, input: Any, multiples: Any) -> Any:
    """A tensor as a as_int, again and again along its axes."""
    return op.call("numpy.Tile", input, repeats=as_list(multiples))


@function("repeat")
def repeat(op: KerasOps, input: Any, repeats: Any, axis: int | None = None) -> Any:
    """A tensor, each element again and again along an axis."""
    return op.call("numpy.Repeat", input, repeats=as_int(repeats), axis=axis)


@function("pad")
def pad(
    op: KerasOps,
    tensor: Any,
    paddings: Any,
    mode: str = "CONSTANT",
    constant_values: Any = 0,
) -> Any:
    """A tensor with more elements at the ends of its axes: one number, or itself mirrored."""
    pairs = [[int(low), int(high)] for low, high in as_int(paddings)]
    kind = mode.lower()
    more = {"constant_values": constant_values} if kind == "constant" and constant_values else {}
    return op.call("numpy.Pad", tensor, keywords=more, pad_width=pairs, mode=kind)


@function("reverse")
def reverse(op: KerasOps, tensor: Any, axis: Any) -> Any:
    """A tensor with axes reversed."""
    return op.call("numpy.Flip", tensor, axis=as_int(axis))


@function("roll")
def roll(op: KerasOps, input: Any, shift: Any, axis: Any) -> Any:
    """A tensor moved along axes, what leaves at one end coming back at the other."""
    return op.call("numpy.Roll", input, shift=as_int(shift), axis=as_int(axis))


# -- parts -----------------------------------------------------------------------------------------


@function("getitem")
def get_item(op: KerasOps, tensor: Any, slice_spec: Any) -> Any:
    """tensor[slice_spec], of numbers, slices, an ellipsis, new axes."""
    parts = slice_spec if isinstance(slice_spec, list | tuple) else [slice_spec]
    return item(op, tensor, [_part(part) for part in parts])


def _part(part: Any) -> Any:
    if isinstance(part, dict):
        if part.get("class_name") == "__ellipsis__":
            return ...
        part = slice(part.get("start"), part.get("stop"), part.get("step"))
    if isinstance(part, slice):
        bounds = (part.start, part.stop, part.step)
        if any(isinstance(n, Reference) for n in bounds):
            raise Unsupported("bounds that are computed")
    elif part is not None and part is not ... and not isinstance(part, int):
        raise Unsupported("an index that is computed")
    return part


def item(op: KerasOps, x: Any, parts: Sequence[Any]) -> Any:
    """Index a tensor: ``x[parts]``."""
    return op.call("numpy.GetItem", x, list(parts))


@function("slice")
def slice_(op: KerasOps, input_: Any, begin: Any, size: Any) -> Any:
    """A part of so many elements from given places on; -1 takes the rest."""
    pairs = zip(as_list(begin), as_list(size), strict=True)
    return item(op, input_, [slice(a, None if n < 0 else a + n) for a, n in pairs])


@function("strided_slice")
def strided_slice(
    op: KerasOps, input_: Any, begin: Any, end: Any, strides: Any = None, begin_mask: int = 0,
    end_mask: int = 0, ellipsis_mask: int = 0, new_axis_mask: int = 0, shrink_axis_mask: int = 0,
    var: Any = None,
) -> Any:  # fmt: skip
    """A part of a tensor; masks say bit by bit what each bound is instead."""
    del var
    starts, ends = as_list(begin), as_list(end)
    steps = [1] * len(starts) if strides is None else as_list(strides)
    parts: list[Any] = []
    for k, (start, stop, step) in enumerate(zip(starts, ends, steps, strict=True)):
        bit = 1 << k
        if ellipsis_mask & bit:
            parts.append(...)
        elif new_axis_mask & bit:
            parts.append(None)
        elif shrink_axis_mask & bit:
            parts.append(start)
        else:
            low, high = (
                None if mask & bit else n for mask, n in ((begin_mask, start), (end_mask, stop))
            )
            parts.append(slice(low, high, step))
    return item(op, input_, parts)


@function("gather")
def gather(
    op: KerasOps, params: Any, indices: Any, validate_indices: Any = None, axis: Any = None,
    batch_dims: int = 0,
) -> Any:  # fmt: skip
    """Elements along an axis, by number."""
    del validate_indices
    if batch_dims:
        raise Unsupported("gathering by each sample's own numbers")
    numbers = op.constant(indices, "int32")
    return op.call("numpy.Take", params, numbers, axis=0 if axis is None else as_int(axis))


@function("embedding_lookup")
def embedding_lookup(
    op: KerasOps, params: Any, ids: Any, max_norm: Any = None, partition_strategy: str = "mod",
    validate_indices: Any = None,
) -> Any:  # fmt: skip
    """Rows by number."""
    del partition_strategy, validate_indices  # of rows in several tensors
    if max_norm is not None or not isinstance(params, Reference):
        raise Unsupported("max_norm, or rows that are constant")
    return op.call("numpy.Take", params, ids, axis=0)


@function("one_hot")
def one_hot(
    op: KerasOps, indices: Any, depth: Any, on_value: Any = None, off_value: Any = None,
    axis: int | None = None, dtype: str | None = None,
) -> Any:  # fmt: skip
    """One where a new axis has the number of the index, else zero."""
    if on_value not in (None, 1) or off_value not in (None, 0):
        raise Unsupported("other values than one and zero")
    if on_value is not None and not isinstance(on_value, float) and dtype is None:
        raise Unsupported("ones of an unknown dtype")
    place = -1 if axis is None else axis
    found = op.call("nn.OneHot", indices, num_classes=as_int(depth), axis=place, dtype="float32")
    return found if dtype in (None, "float32") else op.cast(found, str(dtype))


@function("band_part")
def band_part(op: KerasOps, input: Any, num_lower: Any, num_upper: Any) -> Any:
    """Matrices with zeros outside a band of so many diagonals; -1 keeps all of a side."""
    low, high = as_int(num_lower), as_int(num_upper)
    found = input if low < 0 else op.call("numpy.Triu", input, k=-low)
    found = found if high < 0 else op.call("numpy.Tril", found, k=high)
    return op.call("numpy.Copy", found) if found is input else found


@function("diag_part", "tensor_diag_part")
def diag_part(
    op: KerasOps, input: Any, name: Any = None, k: int = 0, padding_value: Any = 0,
    align: str = "RIGHT_LEFT",
) -> Any:  # fmt: skip
    """The diagonal of matrices."""
    del name, padding_value, align  # of one diagonal nothing is padded
    return op.call("numpy.Diagonal", input, offset=k, axis1=-2, axis2=-1)


def _scatter(name: str, reduction: str | None) -> None:
    def translate(
        op: KerasOps, tensor: Any, indices: Any, updates: Any, bad_indices_policy: str = ""
    ) -> Any:
        del bad_indices_policy
        places = op.constant(indices, "int32")
        values = op.constant(updates, op.dtype(tensor))
        return op.call("core.ScatterUpdate", tensor, places, values, reduction=reduction)

    function(name)(translate)


_scatter("tensor_scatter_nd_update", None)
_scatter("tensor_scatter_nd_add", "add")
_scatter("tensor_scatter_nd_max", "max")
_scatter("tensor_scatter_nd_min", "min")
