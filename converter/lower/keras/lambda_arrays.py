"""keras.backend's functions of arrays: shapes, joining and cutting, new tensors, products.

Spec: https://github.com/keras-team/keras/blob/2.2.4/keras/backend/tensorflow_backend.py
"""

from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.keras.lambda_backend import FLOATX
from converter.lower.keras.lambda_tensors import function, parts
from converter.lower.keras.operations.operands import tensor
from converter.lower.keras.table import BACKEND_FUNCTIONS, Unsupported, operation
from converter.lower.keras.tensorflow_ops.operands import same_dtype
from converter.lower.table import Variant
from converter.lower.values import Value, total

# -- shapes ----------------------------------------------------------------------------------------


@operation(BACKEND_FUNCTIONS, "reshape")
def reshape(op: Builder, x: Any, shape: Any) -> Value:
    """The tensor in another shape, which may be computed."""
    return function(op, "reshape", x, shape)


@operation(BACKEND_FUNCTIONS, "flatten")
def flatten(op: Builder, x: Any) -> Value:
    """The flattened tensor."""
    return function(op, "reshape", x, [-1])


@operation(BACKEND_FUNCTIONS, "expand_dims")
def expand_dims(op: Builder, x: Any, axis: int = -1, *, dim: int | None = None) -> Value:
    """The tensor with a new axis of size 1."""
    return function(op, "expand_dims", x, axis if dim is None else dim)


@operation(BACKEND_FUNCTIONS, "squeeze")
def squeeze(op: Builder, x: Any, axis: Any) -> Value:
    """The tensor without an axis of size 1."""
    return function(op, "squeeze", x, axis)


@operation(BACKEND_FUNCTIONS, "permute_dimensions")
def permute_dimensions(op: Builder, x: Any, pattern: Any) -> Value:
    """The tensor with axes permuted."""
    return function(op, "transpose", x, list(pattern))


@operation(BACKEND_FUNCTIONS, "transpose")
def transpose(op: Builder, x: Any) -> Value:
    """The tensor with axes in reverse order."""
    return function(op, "transpose", x)


@operation(BACKEND_FUNCTIONS, "concatenate")
def concatenate(op: Builder, tensors: Any, axis: int = -1) -> Value:
    """Tensors concatenated along an axis."""
    return function(op, "concat", list(tensors), axis)


@operation(BACKEND_FUNCTIONS, "stack", "pack")
def stack(op: Builder, x: Any, axis: int = 0) -> Value:
    """Tensors stacked along a new axis."""
    return function(op, "stack", list(x), axis)


@operation(BACKEND_FUNCTIONS, "repeat")
def repeat(op: Builder, x: Any, n: int) -> Value:
    """The tensor repeated along a new axis 1."""
    value = tensor(op, x)
    if value.rank != 2:
        raise Unsupported("repeat of a tensor that has not two axes")
    return function(op, "tile", op.unsqueeze(value, [1]), [1, n, 1])


@operation(BACKEND_FUNCTIONS, "repeat_elements")
def repeat_elements(op: Builder, x: Any, rep: int, axis: int) -> Value:
    """The tensor with each element repeated along an axis."""
    return function(op, "repeat", x, rep, axis)


@operation(BACKEND_FUNCTIONS, "tile")
def tile(op: Builder, x: Any, n: Any) -> Value:
    """The tensor tiled along its axes."""
    value = tensor(op, x)
    if isinstance(n, int):
        n = [n] * value.rank
    more = value.rank - len(n) if isinstance(n, list | tuple) else 0
    n = [1] * more + list(n) if more > 0 else n
    return function(op, "tile", value, n)


@operation(BACKEND_FUNCTIONS, "reverse")
def reverse(op: Builder, x: Any, axes: Any) -> Value:
    """The tensor with axes flipped."""
    return function(op, "reverse", x, [axes] if isinstance(axes, int) else list(axes))


@operation(BACKEND_FUNCTIONS, "slice")
def slice_(op: Builder, x: Any, start: Any, size: Any) -> Value:
    """A slice by start indices and sizes."""
    return function(op, "slice", x, start, size)


@operation(BACKEND_FUNCTIONS, "gather")
def gather(op: Builder, reference: Any, indices: Any) -> Value:
    """Elements along the first axis, by index."""
    return function(op, "gather", reference, indices)


@operation(BACKEND_FUNCTIONS, "one_hot")
def one_hot(op: Builder, indices: Any, num_classes: int) -> Value:
    """One-hot vectors of indices."""
    return function(op, "one_hot", indices, num_classes)


@operation(BACKEND_FUNCTIONS, "unstack")
def unstack(op: Builder, value: Any, num: int | None = None, axis: int = 0) -> list[Value]:
    """The slices of a tensor along an axis."""
    return parts(op, "unstack", value, num, axis)


# -- new tensors -----------------------------------------------------------------------------------


@operation(BACKEND_FUNCTIONS, "constant", "variable")
def constant(
    op: Builder, value: Any, dtype: str | None = None, shape: Any = None, name: Any = None,
    constraint: Any = None,
) -> Value:  # fmt: skip
    """A constant, or the initial value of a variable."""
    del name, constraint
    made = tensor(op, value, dtype or FLOATX)
    return made if shape is None else op.expand(made, tuple(shape))


@operation(
    BACKEND_FUNCTIONS,
    Variant("zeros", "Zeros of a shape.", theirs="zeros"),
    Variant("ones", "Ones of a shape.", theirs="ones"),
)
def filled(
    op: Builder, shape: Any, dtype: str | None = None, name: Any = None, *, theirs: str
) -> Value:  # fmt: skip
    """A tensor filled with a number."""
    del name
    return function(op, theirs, shape, dtype or FLOATX)


@operation(
    BACKEND_FUNCTIONS,
    Variant("zeros_like", "Zeros of the shape of x.", theirs="zeros_like"),
    Variant("ones_like", "Ones of the shape of x.", theirs="ones_like"),
)
def filled_like(
    op: Builder, x: Any, dtype: str | None = None, name: Any = None, *, theirs: str
) -> Value:  # fmt: skip
    """A tensor filled with a number, of the shape of another."""
    del name
    return function(op, theirs, x, dtype)


@operation(BACKEND_FUNCTIONS, "arange")
def arange(op: Builder, start: Any, stop: Any = None, step: Any = 1, dtype: str = "int32") -> Value:
    """Numbers from start up to (not including) stop."""
    known = all(isinstance(n, int | None) for n in (start, stop)) and stop is None
    if known and start < 0:
        start = 0
    return function(op, "range", start, stop, step, dtype)


@operation(BACKEND_FUNCTIONS, "eye")
def eye(op: Builder, size: Any, dtype: str | None = None, name: Any = None) -> Value:
    """The identity matrix."""
    del name
    shape = [size, size] if isinstance(size, int) else list(size)
    return op.constant(np.eye(shape[0], shape[-1]), dtype or FLOATX)


# -- products --------------------------------------------------------------------------------------


@operation(BACKEND_FUNCTIONS, "dot")
def dot(op: Builder, x: Any, y: Any) -> Value:
    """The product over the last axis of x and the last but one of y, or its only one."""
    a, b = same_dtype(op, x, y)
    if a.rank >= 2 and b.rank == 2:
        return op.matmul(a, b)
    return function(op, "tensordot", a, b, [[a.rank - 1], [max(b.rank - 2, 0)]])


@operation(BACKEND_FUNCTIONS, "batch_dot")
def batch_dot(op: Builder, x: Any, y: Any, axes: Any = None) -> Value:
    """The product over an axis of each sample of x and y.

    Axes left of x precede axes left of y; a single number is an axis.
    """
    a, b = same_dtype(op, x, y)
    if min(a.rank, b.rank) < 2:
        raise Unsupported("batch_dot of a tensor without axes besides the batch")
    if axes is None:
        pair = [a.rank - 1, b.rank - 1 if b.rank == 2 else b.rank - 2]
    else:
        pair = [axes, axes] if isinstance(axes, int) else list(axes)
    if len(pair) != 2 or not all(isinstance(n, int) for n in pair):
        raise Unsupported("axes of batch_dot that are no numbers")
    first, second = a.axis(pair[0]), b.axis(pair[1])
    if 0 in (first, second):
        raise Unsupported("batch_dot over the batch")
    left = [i for i in range(1, a.rank) if i != first]
    right = [i for i in range(1, b.rank) if i != second]
    rows = _in_three(op, op.transpose(a, [0, *left, first]), one_first=False)
    columns = _in_three(op, op.transpose(b, [0, second, *right]), one_first=True)
    made = op.matmul(rows, columns)
    shape = (a.shape[0], *(a.shape[i] for i in left), *(b.shape[i] for i in right))
    if len(shape) == 1:
        shape = (*shape, 1)
    if len(left) == 1 and len(right) == 1:
        return made
    if sum(not isinstance(n, int) for n in shape) > 1:
        raise Unsupported("batch_dot over axes of unknown size")
    return op.reshape(made, shape)


def _in_three(op: Builder, x: Value, *, one_first: bool) -> Value:
    """Return a value as matrices, one for each sample, whose last or first axis is kept."""
    if x.rank == 3:
        return x
    if x.rank == 2:
        return op.unsqueeze(x, [2 if one_first else 1])
    rest = x.shape[2:] if one_first else x.shape[1:-1]
    kept = x.shape[1] if one_first else x.shape[-1]
    size = total(rest)
    if size is None or not isinstance(kept, int):
        raise Unsupported("batch_dot over axes of unknown size")
    shape = (x.shape[0], kept, size) if one_first else (x.shape[0], size, kept)
    return op.reshape(x, shape)


@operation(BACKEND_FUNCTIONS, "bias_add")
def bias_add(op: Builder, x: Any, bias: Any, data_format: str | None = None) -> Value:
    """A number added to each channel."""
    form = "NC" if data_format == "channels_first" else "NHWC"
    return function(op, "bias_add", x, bias, form)
