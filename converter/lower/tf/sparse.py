"""Sparse tensors: indices [n, axes], values [n] and a dense shape.

Indices are sorted and joined as flat indices (`coordinates`). The order of the elements is
TensorFlow's: an op sorts them only if TensorFlow's kernel does.
"""

from collections.abc import Sequence

from converter.lower.builder import END
from converter.lower.ops.sort import find_unique
from converter.lower.table import Variant
from converter.lower.tf import contents, coordinates, extents, segments
from converter.lower.tf.arrays import concatenate
from converter.lower.tf.context import Context
from converter.lower.tf.coordinates import flatten_indices, sort_keys, stack_indices
from converter.lower.tf.extents import Extent
from converter.lower.tf.scatter import put
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value


def _sides(op: Context, shape: Value, indices: Value) -> list[Extent]:
    """Return the sizes in a shape vector; the width of the indices may give their number."""
    depth = indices.shape[1]
    return (
        extents.list_elements(op, shape, depth)
        if isinstance(depth, int)
        else extents.elements(op, shape)
    )


def _vector(op: Context, sides: Sequence[Extent]) -> Value:
    """Return sizes as a shape vector, whose known elements are remembered."""
    made = extents.vector(op, sides)
    return op.remember(made, contents.objects([s.dim for s in sides]))


def _kept(op: Context, x: Value, mask: Value) -> Value:
    shape = (None, *x.shape[1:])
    return op.emit("Compress", x, mask, dtype=x.dtype, shape=shape, axis=0)


# -- order and shape -------------------------------------------------------------------------------


@tf_op("SparseReorder", outputs=("output_indices", "output_values"))
def reorder(
    op: Context, input_indices: Value, input_values: Value, input_shape: Value, /
) -> list[Value]:
    """A sparse tensor with sorted indices."""
    sides = _sides(op, input_shape, input_indices)
    return _order(op, input_indices, input_values, sides)


def _order(op: Context, indices: Value, values: Value, sides: Sequence[Extent]) -> list[Value]:
    _, order = sort_keys(op, flatten_indices(op, indices, sides))
    return [op.gather(indices, order), op.gather(values, order)]


@tf_op("SparseReshape", outputs=("output_indices", "output_shape"))
def reshape(
    op: Context, input_indices: Value, input_shape: Value, new_shape: Value, /
) -> list[Value]:
    """A sparse tensor in another shape, whose rank may be computed."""
    if not all(_is_counted(op, v) for v in (input_shape, new_shape)):
        return _reshape(op, input_indices, input_shape, new_shape)
    sides = _sides(op, input_shape, input_indices)
    whole = extents.product(op, sides)
    new = [_left(op, n, whole, new_shape) for n in extents.elements(op, new_shape)]
    numbers = flatten_indices(op, input_indices, sides)
    columns = coordinates.places(op, numbers, new)
    return [stack_indices(op, columns), _vector(op, new)]


def _is_counted(op: Context, shape: Value) -> bool:
    return op.elements(shape) is not None or isinstance(shape.shape[0], int)


def _reshape(op: Context, indices: Value, old: Value, new: Value) -> list[Value]:
    """Return the indices in a new shape, and the shape, if a rank is unknown."""
    old, new = op.cast(old, "int64"), op.cast(new, "int64")
    whole = op.reduce("ReduceProd", old, [0], keepdims=True)
    known = op.reduce("ReduceProd", new, [0], keepdims=True)  # -1 is one of its factors
    zero, one = op.constant([0], "int64"), op.constant([1], "int64")
    left = op.div(whole, op.where(op.elementwise("Less", known, zero), known, one))
    sides = op.where(op.elementwise("Less", new, zero), op.unary("Neg", left), new)
    numbers = op.reduce("ReduceSum", op.mul(indices, _steps(op, old)), [1], keepdims=True)
    places = op.elementwise("Mod", op.div(numbers, _steps(op, sides)), sides)
    return [places, sides]


def _steps(op: Context, shape: Value) -> Value:
    """Return the strides of a shape, in elements."""
    line = extents.count_to(op, extents.of(op, shape, 0))
    is_after = op.elementwise("Less", op.unsqueeze(line, [1]), line)
    return op.reduce("ReduceProd", op.where(is_after, shape, op.constant(1, "int64")), [1])


def _left(op: Context, side: Extent, whole: Extent, shape: Value) -> Extent:
    """Return a size of a new shape; -1 is inferred from the other sizes."""
    if isinstance(side.dim, str) or (isinstance(side.dim, int) and side.dim >= 0):
        return side

    def rest() -> Value:
        wide = op.cast(shape, "int64")
        known = op.reduce("ReduceProd", wide, [0], keepdims=True)
        return op.div(whole.vector, op.unary("Neg", known))  # -1 is one of its factors

    if isinstance(side.dim, int):
        others: Extent = extents.number(op, 1)
        for other in extents.elements(op, shape):
            if other.dim != -1:
                others = extents.mul(op, others, other)
        return extents.div(op, whole, others)

    def chosen() -> Value:
        negative = op.elementwise("Less", side.vector, op.constant([0], "int64"))
        return op.where(negative, rest(), side.vector)

    return Extent(None, chosen)


@tf_op(
    "SparseFillEmptyRows",
    outputs=("output_indices", "output_values", "empty_row_indicator", "reverse_index_map"),
)
def fill_empty_rows(
    op: Context, indices: Value, values: Value, dense_shape: Value, default_value: Value, /
) -> list[Value]:
    """A sparse matrix with a default value in the first column of each empty row."""
    sides = _sides(op, dense_shape, indices)
    lines = op.reshape(op.slice(indices, [1], [0], [1]), (indices.shape[0],))
    mask = _empty(op, lines, sides[0])
    missing = op.squeeze(op.emit("NonZero", mask, dtype="int64", shape=(1, None)), [0])
    count = extents.of(op, missing, 0)
    columns = [missing] + [extents.fill(op, op.constant(0, "int64"), [count])] * (len(sides) - 1)
    places = concatenate(op, [indices, stack_indices(op, columns)], 0)
    filled = concatenate(op, [values, extents.fill(op, default_value, [count])], 0)
    # Sort stably by row alone, so that the order within a row is kept.
    _, order = sort_keys(op, concatenate(op, [lines, missing], 0))
    back = coordinates.inverse_of(op, order)
    axis, zero = op.constant([0], "int64"), op.constant([0], "int64")
    reverse = op.emit(
        "Slice", back, zero, op.size(indices, 0), axis, dtype="int64", shape=(indices.shape[0],)
    )
    return [op.gather(places, order), op.gather(filled, order), mask, reverse]


def _empty(op: Context, rows: Value, count: Extent) -> Value:
    """Return the mask of empty rows."""
    zeros = extents.fill(op, op.constant(0, "int32"), [count])
    ones = extents.fill(op, op.constant(1, "int32"), [extents.of(op, rows, 0)])
    marked = op.emit(
        "ScatterElements", zeros, rows, ones, dtype="int32", shape=(count.dim,), axis=0
    )
    return op.elementwise("Equal", marked, op.constant(0, "int32"))


@tf_op("SparseConcat", outputs=("output_indices", "output_values", "output_shape"))
def concat(op: Context, *inputs: Value, concat_dim: int) -> list[Value]:
    """Sparse tensors concatenated along an axis."""
    count = len(inputs) // 3
    indices, values, shapes = inputs[:count], inputs[count : 2 * count], inputs[2 * count :]
    sides = [_sides(op, s, i) for s, i in zip(shapes, indices, strict=True)]
    rank = len(sides[0])
    axis = concat_dim % rank
    start, moved = extents.number(op, 0), []
    for place, shape in zip(indices, sides, strict=True):
        zero = extents.number(op, 0)
        offsets = extents.vector(op, [start if i == axis else zero for i in range(rank)])
        moved.append(place if start.dim == 0 else op.add(place, offsets))
        start = extents.add(op, start, shape[axis])
    whole = [start if i == axis else side for i, side in enumerate(sides[0])]
    found = _order(op, concatenate(op, moved, 0), concatenate(op, values, 0), whole)
    return [*found, _vector(op, whole)]


@tf_op("SparseSlice", outputs=("output_indices", "output_values", "output_shape"))
def slice_of(
    op: Context, indices: Value, values: Value, shape: Value, start: Value, size: Value, /
) -> list[Value]:
    """A slice of a sparse tensor."""
    sides = _sides(op, shape, indices)
    rank = len(sides)
    starts, counts = (extents.list_elements(op, v, rank) for v in (start, size))
    ends = [
        extents.least(op, side, extents.add(op, s, n))
        for side, s, n in zip(sides, starts, counts, strict=True)
    ]
    first, last = extents.vector(op, starts), extents.vector(op, ends)
    inside = _inside(op, indices, first, last)
    lengths = [
        extents.most(op, extents.sub(op, e, s), extents.number(op, 0))
        for s, e in zip(starts, ends, strict=True)
    ]
    places = op.sub(_kept(op, indices, inside), first)
    return [places, _kept(op, values, inside), _vector(op, lengths)]


def _inside(op: Context, indices: Value, first: Value, last: Value) -> Value:
    """Return the mask of indices from `first` to before `last` along all axes."""
    after = op.unary("Not", op.elementwise("Less", indices, first))
    both = op.cast(op.elementwise("And", after, op.elementwise("Less", indices, last)), "int32")
    return op.cast(op.reduce("ReduceMin", both, [1]), "bool")


@tf_op(
    "SparseSplit",
    outputs=(
        "output_indices*num_split", "output_values*num_split", "output_shape*num_split",
    ),
)  # fmt: skip
def split(
    op: Context, split_dim: Value, indices: Value, values: Value, shape: Value, /, *, num_split: int
) -> list[Value]:
    """A sparse tensor split along an axis; the first parts are one larger if uneven."""
    sides = _sides(op, shape, indices)
    rank = len(sides)
    axis = op.int(split_dim, "an axis") % rank
    many = extents.number(op, num_split)
    each = extents.div(op, sides[axis], many)
    more = extents.sub(op, sides[axis], extents.mul(op, each, many))
    zero, one = extents.number(op, 0), extents.number(op, 1)
    begin = zero
    found: list[list[Value]] = []
    for i in range(num_split):
        left = extents.most(op, extents.sub(op, more, extents.number(op, i)), zero)
        length = extents.add(op, each, extents.least(op, left, one))
        end = extents.add(op, begin, length)
        first = [begin if k == axis else zero for k in range(rank)]
        last = [end if k == axis else side for k, side in enumerate(sides)]
        low = extents.vector(op, first)
        inside = _inside(op, indices, low, extents.vector(op, last))
        shape_of = [length if k == axis else side for k, side in enumerate(sides)]
        places = op.sub(_kept(op, indices, inside), low)
        found.append([places, _kept(op, values, inside), _vector(op, shape_of)])
        begin = end
    return [part[k] for k in range(3) for part in found]


# -- with dense tensors ----------------------------------------------------------------------------


@tf_op("SparseTensorDenseMatMul")
def matmul(
    op: Context, a_indices: Value, a_values: Value, a_shape: Value, b: Value, /, *,
    adjoint_a: bool = False, adjoint_b: bool = False,
) -> Value:  # fmt: skip
    """The product of a sparse and a dense matrix."""
    sides = _sides(op, a_shape, a_indices)
    into, of = (1, 0) if adjoint_a else (0, 1)
    right = op.transpose(b, [1, 0]) if adjoint_b else b
    lines = op.reshape(op.slice(a_indices, [1], [of], [of + 1]), (a_indices.shape[0],))
    rows = op.mul(op.gather(right, lines), op.unsqueeze(a_values, [1]))
    target = op.slice(a_indices, [1], [into], [into + 1])
    kind = "float32" if b.dtype in ("float16", "bfloat16") else b.dtype
    width = extents.of(op, right, 1)
    zeros = extents.fill(op, op.constant(0, kind), [sides[into], width])
    return op.cast(put(op, zeros, target, op.cast(rows, kind), "add"), b.dtype)


@tf_op("SparseTensorDenseAdd")
def dense_add(op: Context, a_indices: Value, a_values: Value, a_shape: Value, b: Value, /) -> Value:
    """The sum of a sparse and a dense tensor."""
    del a_shape  # equals the shape of `b`
    return put(op, b, a_indices, a_values, "add")


def _at(op: Context, indices: Value, sides: Sequence[Extent], dense: Value) -> Value:
    """Return the elements at indices of a dense tensor that is broadcast to a shape."""
    if dense.rank == 0:
        return dense
    rank = len(sides)
    places = op.slice(indices, [1], [rank - dense.rank], [END]) if dense.rank < rank else indices
    if any(n == 1 for n in dense.shape) or any(not isinstance(n, int) for n in dense.shape):
        last = op.sub(extents.vector(op, extents.of_all(op, dense)), op.constant(1, "int64"))
        places = op.elementwise("Min", places, last)
    shape = (indices.shape[0],)
    return op.emit("GatherND", dense, places, dtype=dense.dtype, shape=shape)


@tf_op(
    Variant(
        "SparseDenseCwiseMul", "A sparse tensor's values, times a dense one's there.", op_type="Mul"
    ),
    Variant(
        "SparseDenseCwiseDiv", "A sparse tensor's values, by a dense one's there.", op_type="Div"
    ),
    Variant(
        "SparseDenseCwiseAdd", "A sparse tensor's values, and a dense one's there.", op_type="Add"
    ),
)
def combine_with_dense(
    op: Context, sp_indices: Value, sp_values: Value, sp_shape: Value, dense: Value, /, *,
    op_type: str,
) -> Value:  # fmt: skip
    """The values of a sparse tensor combined with those of a dense one at the same indices."""
    sides = _sides(op, sp_shape, sp_indices)
    found = _at(op, sp_indices, sides, dense)
    return op.elementwise(op_type, sp_values, found)


# -- of two sparse tensors -------------------------------------------------------------------------


def _union(
    op: Context, indices: Sequence[Value], sides: Sequence[Extent]
) -> tuple[Value, list[Value], Extent]:
    """Return the sorted union of indices, the positions of each tensor's in it, and its size."""
    keys = [flatten_indices(op, i, sides) for i in indices]
    found, _, which, _ = find_unique(op, concatenate(op, keys, 0), in_order=True)
    axis = op.constant([0], "int64")
    begin, parts = op.constant([0], "int64"), []
    for key in keys:
        end = op.add(begin, op.size(key, 0))
        parts.append(op.emit("Slice", which, begin, end, axis, dtype="int64", shape=key.shape))
        begin = end
    places = stack_indices(op, coordinates.places(op, found, sides))
    return places, parts, extents.of(op, found, 0)


@tf_op("SparseAdd", outputs=("sum_indices", "sum_values", "sum_shape"))
def add(
    op: Context, a_indices: Value, a_values: Value, a_shape: Value, b_indices: Value,
    b_values: Value, b_shape: Value, thresh: Value, /,
) -> list[Value]:  # fmt: skip
    """The sum of two sparse tensors, without values whose magnitude is below a threshold."""
    del b_shape
    sides = _sides(op, a_shape, a_indices)
    places, (first, second), count = _union(op, [a_indices, b_indices], sides)
    values = concatenate(op, [a_values, b_values], 0)
    ids = concatenate(op, [first, second], 0)
    total = segments.reduce_by_segment(op, "Sum", values, ids, count)
    known = op.static(thresh)
    if known is not None and known <= 0:
        return [places, total, _vector(op, sides)]
    size = op.unary("Abs", total)
    enough = op.unary("Not", op.elementwise("Less", op.cast(size, thresh.dtype), thresh))
    return [_kept(op, places, enough), _kept(op, total, enough), _vector(op, sides)]


@tf_op(
    Variant(
        "SparseSparseMaximum", "The larger of two sparse tensors, place by place.", op_type="Max"
    ),
    Variant(
        "SparseSparseMinimum", "The smaller of two sparse tensors, place by place.", op_type="Min"
    ),
    outputs=("output_indices", "output_values"),
)
def extreme_of_two(
    op: Context, a_indices: Value, a_values: Value, a_shape: Value, b_indices: Value,
    b_values: Value, b_shape: Value, /, *, op_type: str,
) -> list[Value]:  # fmt: skip
    """The elementwise maximum or minimum of two sparse tensors."""
    del b_shape
    sides = _sides(op, a_shape, a_indices)
    places, parts, count = _union(op, [a_indices, b_indices], sides)
    both = [
        segments.reduce_by_segment(op, "Sum", v, i, count)
        for v, i in zip((a_values, b_values), parts, strict=True)
    ]
    return [places, op.elementwise(op_type, *both)]


# -- over axes -------------------------------------------------------------------------------------


def _axes(op: Context, axes: Value, rank: int) -> list[int]:
    found = [a % rank for a in op.ints(axes, "axes")]
    return sorted(set(found)) or list(range(rank))


def _columns(op: Context, indices: Value, kept: Sequence[int]) -> Value:
    return op.gather(indices, op.constant(list(kept), "int64"), 1)


@tf_op(
    Variant("SparseReduceSum", "The sum of a sparse tensor over axes, as a dense one.", kind="Sum"),
    Variant(
        "SparseReduceMax", "The largest of a sparse tensor over axes, as a dense one.", kind="Max"
    ),
)
def reduce_sparse(
    op: Context, input_indices: Value, input_values: Value, input_shape: Value,
    reduction_axes: Value, /, *, kind: str, keep_dims: bool = False,
) -> Value:  # fmt: skip
    """The reduction of a sparse tensor over axes, as a dense tensor."""
    sides = _sides(op, input_shape, input_indices)
    gone = _axes(op, reduction_axes, len(sides))
    kept = [i for i in range(len(sides)) if i not in gone]
    result = [sides[i] for i in kept]
    shape = [extents.number(op, 1) if i in gone else s for i, s in enumerate(sides)]
    if kept:
        ids = flatten_indices(op, _columns(op, input_indices, kept), result)
    else:
        ids = extents.fill(op, op.constant(0, "int64"), [extents.of(op, input_values, 0)])
    count = extents.product(op, result)
    made = segments.reduce_by_segment(op, kind, input_values, ids, count)
    if kind == "Max":  # an empty slice is zero
        there = op.cast(segments.counts(op, ids, count, "int32"), "bool")
        made = op.where(there, made, op.constant(0, made.dtype))
    return extents.reshape_to(op, made, shape if keep_dims else result)


@tf_op("SparseSoftmax")
def softmax(op: Context, sp_indices: Value, sp_values: Value, sp_shape: Value, /) -> Value:
    """Softmax along the last axis, over the stored values only."""
    sides = _sides(op, sp_shape, sp_indices)
    rows = sides[:-1]
    if not rows:
        raise Unsupported("a softmax of a vector")
    ids = flatten_indices(op, _columns(op, sp_indices, range(len(rows))), rows)
    count = extents.product(op, rows)
    largest = segments.reduce_by_segment(op, "Max", sp_values, ids, count)
    powers = op.unary("Exp", op.sub(sp_values, op.gather(largest, ids)))
    total = segments.reduce_by_segment(op, "Sum", powers, ids, count)
    return op.div(powers, op.gather(total, ids))


# -- counts ----------------------------------------------------------------------------------------


def bins(
    op: Context, rows: Value | None, values: Value, weights: Value, size: Value,
    count: Extent | None, *, binary: bool,
) -> Value:  # fmt: skip
    """Return the number of occurrences, or sum of weights, of each integer below a size per row.

    Args:
        op: The builder.
        rows: Row index of each value, or None for a single vector.
        values: Integers [n]; those that are too large are not counted.
        weights: Weight of each value, or an empty tensor.
        size: Number of bins.
        count: Number of rows.
        binary: Whether occurrence is returned (0 or 1) instead of the number.

    Raises:
        Unsupported: It is not known whether there are weights.
    """
    if not all(isinstance(n, int) for n in weights.shape):
        raise Unsupported("weights of which it is not known whether there are any")
    limit = extents.elements(op, size)[0]
    wide = extents.add(op, limit, extents.number(op, 1))
    # Values that are too large go to an extra column, which is dropped.
    ids = op.elementwise("Min", op.cast(values, "int64"), op.squeeze(limit.vector, [0]))
    lines = count if count is not None else extents.number(op, 1)
    if rows is not None:
        ids = op.add(op.mul(rows, wide.vector), ids)
    total = extents.mul(op, lines, wide)
    dtype = weights.dtype
    if 0 in weights.shape or binary:
        made = segments.counts(op, ids, total, dtype)
    else:
        made = segments.reduce_by_segment(op, "Sum", weights, ids, total)
    if binary:
        made = op.elementwise("Min", made, op.constant(1, dtype))
    table = extents.reshape_to(op, made, [lines, wide] if count is not None else [wide])
    axis = table.rank - 1
    zero, axes = op.constant([0], "int64"), op.constant([axis], "int64")
    shape = (*table.shape[:axis], limit.dim)
    return op.emit("Slice", table, zero, limit.vector, axes, dtype=dtype, shape=shape)


@tf_op("SparseBincount")
def sparse_bincount(
    op: Context, indices: Value, values: Value, dense_shape: Value, size: Value, weights: Value, /,
    *, binary_output: bool = False,
) -> Value:  # fmt: skip
    """The number of occurrences of each integer below `size`, in a sparse vector or matrix rows."""
    sides = _sides(op, dense_shape, indices)
    if len(sides) == 1:
        return bins(op, None, values, weights, size, None, binary=binary_output)
    rows = op.reshape(op.slice(indices, [1], [0], [1]), (indices.shape[0],))
    return bins(op, rows, values, weights, size, sides[0], binary=binary_output)
