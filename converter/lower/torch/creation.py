"""Tensors created from numbers and sizes."""

from collections.abc import Sequence

import numpy as np

from converter.lower import dims
from converter.lower.graph import Dim
from converter.lower.ops import index
from converter.lower.torch.context import MOST_STORED, Context
from converter.lower.torch.program_values import Int, Ints, Number, Scalar, Size
from converter.lower.torch.promotion import DEFAULT, kind, number_type
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

MOST = 1 << 22  # elements of what is computed beforehand


@aten("zeros", "empty.memory_format")
def zeros(op: Context, size: Ints, dtype: str | None = None) -> Value:
    """Zeros."""
    return op.filled(size, 0, dtype or DEFAULT)


@aten("ones")
def ones(op: Context, size: Ints, dtype: str | None = None) -> Value:
    """Ones."""
    return op.filled(size, 1, dtype or DEFAULT)


@aten("full")
def full(op: Context, size: Ints, fill_value: Scalar, dtype: str | None = None) -> Value:
    """A tensor filled with a number."""
    return op.filled(size, fill_value, dtype or number_type(fill_value))


@aten("zeros_like", "empty_like")
def zeros_like(op: Context, self: Value, dtype: str | None = None) -> Value:
    """Zeros of the shape of a tensor."""
    return op.filled(op.named(self).shape, 0, dtype or self.dtype)


@aten("ones_like")
def ones_like(op: Context, self: Value, dtype: str | None = None) -> Value:
    """Ones of the shape of a tensor."""
    return op.filled(op.named(self).shape, 1, dtype or self.dtype)


@aten("full_like")
def full_like(op: Context, self: Value, fill_value: Scalar, dtype: str | None = None) -> Value:
    """A number, filled into the shape of a tensor."""
    return op.filled(op.named(self).shape, fill_value, dtype or self.dtype)


@aten("new_zeros", "new_empty")
def new_zeros(op: Context, self: Value, size: Ints, dtype: str | None = None) -> Value:
    """Zeros of the dtype of a tensor."""
    return op.filled(size, 0, dtype or self.dtype)


@aten("new_ones")
def new_ones(op: Context, self: Value, size: Ints, dtype: str | None = None) -> Value:
    """Ones of the dtype of a tensor."""
    return op.filled(size, 1, dtype or self.dtype)


@aten("new_full")
def new_full(
    op: Context, self: Value, size: Ints, fill_value: Scalar, dtype: str | None = None
) -> Value:
    """A tensor filled with a number, of the dtype of a tensor."""
    return op.filled(size, fill_value, dtype or self.dtype)


@aten("new_empty_strided")
def new_empty_strided(
    op: Context, self: Value, size: Ints, stride: Ints, dtype: str | None = None
) -> Value:
    """Zeros of the dtype of a tensor."""
    del stride
    return op.filled(size, 0, dtype or self.dtype)


@aten("empty_strided", "empty_permuted")
def empty_strided(
    op: Context, size: Ints, stride: Ints = (), physical_layout: Ints = (),
    dtype: str | None = None,
) -> Value:  # fmt: skip
    """Zeros, where torch leaves memory uninitialized."""
    del stride, physical_layout
    return op.filled(size, 0, dtype or DEFAULT)


@aten("fill.Scalar", "fill.Tensor")
def fill(op: Context, self: Value, value: Value | Scalar) -> Value:
    """The tensor filled with a number."""
    shape = op.named(self).shape
    if isinstance(value, Value):
        return op.expand(op.cast(value, self.dtype), shape)
    return op.filled(shape, value, self.dtype)


@aten("zero")
def zero(op: Context, self: Value) -> Value:
    """The tensor filled with zeros."""
    return op.filled(op.named(self).shape, 0, self.dtype)


@aten("scalar_tensor")
def scalar_tensor(op: Context, s: Scalar, dtype: str | None = None) -> Value:
    """A number as a tensor."""
    return op.scalar(s, dtype or (DEFAULT if not isinstance(s, bool) else "bool"))


@aten("arange")
def arange(op: Context, end: Scalar, dtype: str | None = None) -> Value:
    """0, 1, ... up to a bound."""
    return arange_step(op, 0, end, 1, dtype)


@aten("arange.start")
def arange_start(op: Context, start: Scalar, end: Scalar, dtype: str | None = None) -> Value:
    """0, 1, … or other steps from a start up to (not including) an end."""
    return arange_step(op, start, end, 1, dtype)


@aten("range", "range.step")
def range_with_end(
    op: Context, start: Scalar, end: Scalar, step: Scalar = 1, dtype: str | None = None
) -> Value:
    """Equal steps from a start up to an end, which is included."""
    first, last, width = (n if isinstance(n, int | float) else None for n in (start, end, step))
    if first is None or last is None or width is None:
        raise Unsupported("bounds that depend on the inputs")
    count = int((last - first) / width) + 1
    if count > MOST:
        raise Unsupported(f"a range of {count} numbers")
    return op.constant(first + np.arange(count) * width, dtype or DEFAULT)


@aten("arange.start_step")
def arange_step(
    op: Context, start: Scalar, end: Scalar, step: Scalar = 1, dtype: str | None = None
) -> Value:
    """Equal steps from a start up to (not including) an end."""
    kinds = [number_type(n) for n in (start, end, step)]
    to = dtype or (DEFAULT if any(kind(k) == 2 for k in kinds) else "int64")
    if _is_short(start, end, step):
        return op.constant(np.arange(start, end, step).astype(np.float64), to)  # type: ignore[arg-type]
    if isinstance(start, int | Size) and isinstance(end, int | Size) and isinstance(step, int):
        count: Dim = op.ceildiv(dims.sub(end, start), step)
        bounds = [op.scalar(n, "int64") for n in (start, end, step)]
        made = op.emit("Range", *bounds, dtype="int64", shape=(count,))
        return op.cast(made, to)
    inner = "int64" if kind(to) < 2 else to
    bounds = [op.scalar(n, inner) for n in (start, end, step)]
    return op.cast(op.emit("Range", *bounds, dtype=inner, shape=(None,)), to)


def _is_short(start: Scalar, end: Scalar, step: Scalar) -> bool:
    """Return whether a range is of known numbers, and not too many to be stored."""
    if not isinstance(start, int | float) or not isinstance(end, int | float):
        return False
    if not isinstance(step, int | float) or step == 0:
        return False
    return abs(end - start) <= MOST_STORED * abs(step)


@aten("linspace", "linspace.Tensor_Tensor", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor")
def linspace(
    op: Context, start: Value | Scalar, end: Value | Scalar, steps: Int, dtype: str | None = None
) -> Value:
    """A number of equally spaced values, including both bounds."""
    to = dtype or DEFAULT
    inner = "float64" if kind(to) < 2 or to == "float64" else "float32"
    return op.cast(_spaced(op, start, end, steps, inner), to)


def _spaced(
    op: Context, start: Value | Scalar, end: Value | Scalar, steps: Int, dtype: str
) -> Value:
    """Return equally spaced values; as torch has it, the second half is counted from the end."""
    if isinstance(steps, int) and steps < 0:
        raise Unsupported(f"{steps} values")
    if isinstance(start, int | float) and isinstance(end, int | float):
        found = _known_spaced(start, end, steps)
        if found is not None:
            return op.constant(found, dtype)
    first, last = (
        op.cast(n, dtype) if isinstance(n, Value) else op.scalar(n, dtype) for n in (start, end)
    )
    count, at = op.scalar(steps, dtype), op.range(steps, dtype)
    gaps = op.sub(count, 1.0)
    width = op.div(op.sub(last, first), op.elementwise("Max", gaps, 1.0))
    is_early = op.elementwise("Less", op.mul(at, 2.0), op.elementwise("Max", gaps, 1.0))
    down = op.sub(last, op.mul(op.sub(gaps, at), width))
    return op.where(is_early, op.add(first, op.mul(at, width)), down)


def _known_spaced(start: float, end: float, steps: Int) -> "np.ndarray | None":
    """Return equally spaced numbers that are known, and not too many to be stored; or None."""
    if not isinstance(steps, int) or steps > MOST_STORED:
        return None
    width, places = (end - start) / max(steps - 1, 1), np.arange(steps)
    down = end - (steps - 1 - places) * width
    return np.where(2 * places < max(steps - 1, 1), start + places * width, down)


@aten("logspace", "logspace.Tensor_Tensor", "logspace.Tensor_Scalar", "logspace.Scalar_Tensor")
def logspace(
    op: Context, start: Value | Scalar, end: Value | Scalar, steps: Int, base: float = 10.0,
    dtype: str | None = None,
) -> Value:  # fmt: skip
    """Powers of a base with equally spaced exponents."""
    exponents = _spaced(op, start, end, steps, "float64")
    found = op.elementwise("Pow", op.constant(float(base), "float64"), exponents)
    return op.cast(found, dtype or DEFAULT)


@aten("eye")
def eye(op: Context, n: Int, dtype: str | None = None) -> Value:
    """A square identity matrix."""
    return eye_m(op, n, n, dtype)


@aten("eye.m")
def eye_m(op: Context, n: Int, m: Int, dtype: str | None = None) -> Value:
    """A matrix with ones on the diagonal."""
    rows, columns = op.unsqueeze(op.range(n), [1]), op.unsqueeze(op.range(m), [0])
    return op.cast(op.elementwise("Equal", rows, columns), dtype or DEFAULT)


@aten("tril")
def tril(op: Context, self: Value, diagonal: Int = 0) -> Value:
    """The elements on and below a diagonal; zeros above."""
    return _triangle(op, self, diagonal, upper=0)


@aten("triu")
def triu(op: Context, self: Value, diagonal: Int = 0) -> Value:
    """The elements on and above a diagonal; zeros below."""
    return _triangle(op, self, diagonal, upper=1)


def _triangle(op: Context, x: Value, diagonal: Int, *, upper: int) -> Value:
    inputs = [op.outer(x), op.scalar(diagonal, "int64")]
    return op.node("Trilu", inputs, [(x.dtype, x.shape)], attributes={"upper": upper})[0]


def _check_matrix(rows: int, columns: int) -> None:
    if rows * columns > MOST:
        raise Unsupported(f"places in a matrix of {rows} by {columns}")


@aten("tril_indices")
def tril_indices(
    op: Context, row: int, col: int, offset: int = 0, dtype: str | None = None
) -> Value:
    """Indices of the elements on and below a diagonal."""
    _check_matrix(row, col)
    return op.constant(np.stack(np.tril_indices(row, offset, col)), dtype or "int64")


@aten("triu_indices")
def triu_indices(
    op: Context, row: int, col: int, offset: int = 0, dtype: str | None = None
) -> Value:
    """Indices of the elements on and above a diagonal."""
    _check_matrix(row, col)
    return op.constant(np.stack(np.triu_indices(row, offset, col)), dtype or "int64")


@aten("_dim_arange")
def dim_arange(op: Context, like: Value, dim: int) -> Value:
    """0, 1, ... up to the size of an axis."""
    return op.range(op.axis_of(like, dim))


@aten("_shape_as_tensor")
def shape_as_tensor(op: Context, self: Value) -> Value:
    """The sizes of all axes."""
    return op.vector(op.named(self).shape)


@aten("one_hot")
def one_hot(op: Context, self: Value, num_classes: Int = -1) -> Value:
    """One-hot vectors of class indices."""
    if isinstance(num_classes, int) and num_classes < 0:
        most = op.reduce("ReduceMax", self, list(range(self.rank)))
        classes = op.emit("Range", op.constant(0, "int64"), op.add(most, 1),
                          op.constant(1, "int64"), dtype="int64", shape=(None,))  # fmt: skip
        return op.cast(index.one_hot(op, self, op.named(classes)), "int64")
    return op.cast(index.one_hot(op, self, op.range(num_classes)), "int64")


@aten("tensor", "as_tensor")
def tensor(op: Context, data: Scalar | Sequence[object], dtype: str | None = None) -> Value:
    """A tensor of given numbers."""
    if isinstance(data, Size | Number):
        return op.scalar(data, dtype or number_type(data))
    found = np.asarray(data)
    usual = {"f": DEFAULT, "i": "int64", "b": "bool"}.get(found.dtype.kind)
    if usual is None:
        raise Unsupported("a tensor of what are no numbers")
    return op.constant(found, dtype or (usual if found.size else DEFAULT))


@aten("diag_embed")
def diag_embed(op: Context, self: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    """Matrices with vectors on a diagonal, and zeros."""
    x = op.named(self)
    rank = x.rank + 1
    n = dims.add(x.shape[-1], abs(offset))
    # Element j of the vector, moved along by the offset, is in the column or the row j.
    moved = op.pad(x, [0] * (x.rank - 1) + [abs(offset)], [0] * x.rank) if offset else x
    moved = op.shaped(moved, (*x.shape[:-1], n))
    rows, columns = op.unsqueeze(op.range(n), [1]), op.unsqueeze(op.range(n), [0])
    here = op.elementwise("Equal", op.add(rows, offset) if offset else rows, columns)
    wide = op.unsqueeze(moved, [-2] if offset >= 0 else [-1])
    made = op.where(here, wide, op.constant(0, x.dtype))
    first, second = dim1 % rank, dim2 % rank
    rest = iter(range(rank - 2))
    order = [
        rank - 2 if i == first else rank - 1 if i == second else next(rest) for i in range(rank)
    ]
    return made.transposed(order)
