"""Operators on values that are known while a module is traced, mostly sizes, which may be symbolic.

They are arrays of NumPy's; symbolic sizes are objects in one.
"""

import math
from typing import Any

import numpy as np

from converter.write.torch.graph_module.dtypes import NUMPY_DTYPES
from converter.write.torch.graph_module.operators import (
    Known,
    SymbolicError,
    from_numpy,
    integers,
    on_known,
    torch,
)

# fmt: off
ARITHMETIC = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Neg": np.negative,
    "Equal": np.equal, "Less": np.less, "Greater": np.greater, "LessOrEqual": np.less_equal,
    "GreaterOrEqual": np.greater_equal, "And": np.logical_and, "Or": np.logical_or,
    "Not": np.logical_not, "Abs": np.abs, "Identity": np.asarray,
}
# fmt: on


def _enter(name: str, function: Any) -> None:
    @on_known(name)
    def compute(*operands: Known) -> Known:
        return _with_dtype(function(*operands), operands[0])


for _name, _function in ARITHMETIC.items():
    _enter(_name, _function)


def _with_dtype(result: Any, like: Known) -> Known:
    """Return a result as an array, without objects where all of them are numbers."""
    array = np.asarray(result)
    if array.dtype != object or any(
        isinstance(v, (torch.SymInt, torch.SymFloat, torch.SymBool)) for v in array.flat
    ):
        return array
    kinds = {type(v) for v in array.flat}
    plain = bool if kinds <= {bool} else np.float32 if float in kinds else np.int64
    return array.astype(like.dtype if like.dtype != object and not array.size else plain)


def require_numbers(shape: Known) -> list[int]:
    """Return a shape whose sizes are numbers.

    Raises:
        SymbolicError: One is symbolic.
    """
    sizes = integers(shape)
    if any(isinstance(n, torch.SymInt) for n in sizes):
        raise SymbolicError
    return sizes


@on_known("Div")
def divide(a: Known, b: Known) -> Known:
    """Divide; integers are rounded towards zero, and sizes are not negative."""
    if a.dtype.kind == "f" or b.dtype.kind == "f":
        return np.asarray(a / b)
    if a.dtype == object or b.dtype == object:
        is_real = any(isinstance(v, (float, torch.SymFloat)) for v in (*a.flat, *b.flat))
        return _with_dtype(a / b if is_real else a // b, a)
    return np.asarray(np.trunc(a / b).astype(a.dtype))


@on_known("Mod")
def take_remainder(a: Known, b: Known, *, fmod: int = 0) -> Known:
    """Return the remainder, which has the sign of the divisor."""
    return _with_dtype(np.fmod(a, b) if fmod else a % b, a)


@on_known("Min")
def find_least(*operands: Known) -> Known:
    """Return the least of each."""
    return _fold(torch.sym_min, np.minimum, operands)


@on_known("Max")
def find_largest(*operands: Known) -> Known:
    """Return the largest of each."""
    return _fold(torch.sym_max, np.maximum, operands)


def _fold(symbolic: Any, plain: Any, operands: tuple[Known, ...]) -> Known:
    result = operands[0]
    for other in operands[1:]:
        is_symbolic = object in (result.dtype, other.dtype)
        function = np.frompyfunc(symbolic, 2, 1) if is_symbolic else plain
        result = _with_dtype(function(result, other), result)
    return result


@on_known("Where")
def choose(condition: Known, x: Known, y: Known) -> Known:
    """Return x where a condition holds, else y."""
    return _with_dtype(np.where(condition.astype(bool), x, y), x)


@on_known("Cast")
def cast(x: Known, *, to: int, saturate: int = 1) -> Known:
    """Return numbers of another dtype; sizes are integers of any width."""
    del saturate
    dtype = NUMPY_DTYPES[to]
    if x.dtype != object:
        return x.astype(dtype)
    if dtype.kind == "f":
        return _with_dtype(np.frompyfunc(torch.sym_float, 1, 1)(x), x)
    if dtype.kind == "b":
        return x.astype(bool)
    return _with_dtype(np.frompyfunc(torch.sym_int, 1, 1)(x), x)


@on_known("Floor")
def round_down(x: Known) -> Known:
    """Round towards minus infinity."""
    if x.dtype != object:
        return np.asarray(np.floor(x))
    made = np.frompyfunc(lambda v: torch.sym_float(math.floor(v)), 1, 1)(x)
    return _with_dtype(made, x)


@on_known("Ceil")
def round_up(x: Known) -> Known:
    """Round towards plus infinity."""
    if x.dtype != object:
        return np.asarray(np.ceil(x))
    made = np.frompyfunc(lambda v: torch.sym_float(-math.floor(-v)), 1, 1)(x)
    return _with_dtype(made, x)


@on_known("Gather")
def gather(x: Known, indices: Known, *, axis: int = 0) -> Known:
    """Return elements along an axis."""
    return np.asarray(np.take(x, indices.astype(np.int64), axis)) if x.size else x[indices]


@on_known("Concat")
def concatenate(*operands: Known, axis: int) -> Known:
    """Join along an axis."""
    return np.concatenate(operands, axis)


@on_known("Slice")
def cut(
    x: Known, starts: Known, ends: Known, axes: Known | None = None, steps: Known | None = None
) -> Known:
    """Return a part of each axis."""
    places = range(len(starts)) if axes is None else axes.tolist()
    strides = [1] * len(starts) if steps is None else steps.tolist()
    index: list[Any] = [slice(None)] * x.ndim
    for axis, start, end, step in zip(places, starts, ends, strides, strict=True):
        # The least of integers is "to the very beginning", backwards.
        last = None if step < 0 and end < -x.shape[axis] else end
        index[axis] = slice(start, last, step)
    return np.asarray(x[tuple(index)])


@on_known("Unsqueeze")
def insert_axes(x: Known, axes: Known) -> Known:
    """Insert axes of one element."""
    return np.expand_dims(x, tuple(axes.tolist()))


@on_known("Squeeze")
def remove_axes(x: Known, axes: Known | None = None) -> Known:
    """Remove axes of one element."""
    return np.squeeze(x, None if axes is None else tuple(axes.tolist()))


@on_known("Reshape")
def reshape(x: Known, shape: Known, *, allowzero: int = 0) -> Known:
    """Return the same elements in another shape; 0 keeps an axis."""
    sizes = require_numbers(shape)
    return x.reshape([x.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(sizes)])


@on_known("Expand")
def expand(x: Known, shape: Known) -> Known:
    """Broadcast to a shape, in both directions."""
    sizes = require_numbers(shape)
    return np.asarray(np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(sizes))))


@on_known("Transpose")
def transpose(x: Known, *, perm: list[int] | None = None) -> Known:
    """Permute axes."""
    return x.transpose(perm)


@on_known("Shape")
def find_shape(x: Known, *, start: int = 0, end: int | None = None) -> Known:
    """Return the sizes of a known value."""
    return np.array(x.shape[start:end], np.int64)


@on_known("Size")
def count_elements(x: Known) -> Known:
    """Return the number of elements of a known value."""
    return np.array(x.size, np.int64)


@on_known("Range")
def count_up(start: Known, limit: Known, delta: Known) -> Known | Any:
    """Return the numbers from start to limit; a tensor if their number is symbolic."""
    if object in (start.dtype, limit.dtype, delta.dtype):
        ends = (v.item() for v in (start, limit, delta))
        return torch.arange(*ends)
    return np.arange(start.item(), limit.item(), delta.item()).astype(start.dtype)


@on_known("ConstantOfShape")
def fill_shape(shape: Known, *, value: Known | None = None) -> Known | Any:
    """Return a tensor of one value, known if its shape is a small plain one."""
    filled = np.zeros(1, np.float32) if value is None else value
    if shape.dtype != object and np.prod(shape, dtype=object) <= 64:
        return np.full(tuple(shape), filled.item(), filled.dtype)
    return from_numpy(filled).reshape(()).expand(integers(shape)).clone()


@on_known("Split")
def split(
    x: Known, sizes: Known | None = None, *, axis: int = 0, num_outputs: int | None = None
) -> list[Known]:
    """Cut along an axis, into parts of sizes or into as many equal ones."""
    if sizes is None:
        assert num_outputs is not None
        part = -(-x.shape[axis] // num_outputs)
        return np.split(x, range(part, part * num_outputs, part), axis)
    return np.split(x, np.cumsum(sizes.astype(np.int64))[:-1], axis)


@on_known("ReduceProd")
def multiply_all(x: Known, axes: Known | None = None, **settings: int) -> Known:
    """Return the product."""
    return _reduce(np.multiply, x, axes, **settings)


@on_known("ReduceSum")
def add_all(x: Known, axes: Known | None = None, **settings: int) -> Known:
    """Return the sum."""
    return _reduce(np.add, x, axes, **settings)


@on_known("ReduceMax")
def find_largest_of_all(x: Known, axes: Known | None = None, **settings: int) -> Known:
    """Return the largest."""
    function = np.frompyfunc(torch.sym_max, 2, 1) if x.dtype == object else np.maximum
    return _reduce(function, x, axes, **settings)


def _reduce(
    function: Any, x: Known, axes: Known | None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Known:
    axes = None if axes is None else np.asarray(axes)  # before opset 18 an attribute
    if (axes is None or not axes.size) and noop_with_empty_axes:
        return x
    along = tuple(range(x.ndim)) if axes is None or not axes.size else tuple(axes.tolist())
    result = x
    for axis in sorted((a % x.ndim for a in along), reverse=True):
        result = np.asarray(function.reduce(result, axis))
        result = np.expand_dims(result, axis) if keepdims else result
    return _with_dtype(result, x)
