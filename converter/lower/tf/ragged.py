"""Ragged tensors: nested row splits and flat values."""

from collections.abc import Sequence

from converter.lower.builder import END
from converter.lower.tf import extents, sparse
from converter.lower.tf.context import Context
from converter.lower.tf.coordinates import stack_indices
from converter.lower.tf.extents import Extent
from converter.lower.tf.graphdef import Node
from converter.lower.tf.program_values import ProgramValue, RaggedRows, Record
from converter.lower.tf.scatter import put
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value


def _wide(op: Context, x: Value) -> Value:
    return op.cast(x, "int64")


def sum_lengths(op: Context, lengths: Value) -> Value:
    """Return the row splits of row lengths: [rows + 1]."""
    first = op.concat([op.constant([0], "int64"), lengths], 0)
    axis = op.constant(0, "int64")
    return op.emit("CumSum", first, axis, dtype="int64", shape=first.shape)


def last(op: Context, vector: Value) -> Extent:
    """Return the last element of a vector as a dimension."""
    return Extent(None, lambda: op.slice(vector, [0], [-1], [END]))


def rows_of(op: Context, splits: Value, count: Extent) -> Value:
    """Return the row index of each element, of row splits."""
    ends = op.slice(splits, [0], [1], [END])
    more = extents.add(op, count, extents.number(op, 1))
    zeros = extents.fill(op, op.constant(0, "int64"), [more])
    ones = extents.fill(op, op.constant(1, "int64"), [extents.of(op, ends, 0)])
    marks = op.emit(
        "ScatterElements", zeros, ends, ones, dtype="int64", shape=zeros.shape, axis=0,
        reduction="add",
    )  # fmt: skip
    axis = op.constant(0, "int64")
    ids = op.emit("CumSum", marks, axis, dtype="int64", shape=marks.shape)
    return _first(op, ids, count)


def _first(op: Context, x: Value, count: Extent) -> Value:
    zero, axis = op.constant([0], "int64"), op.constant([0], "int64")
    shape = (count.dim, *x.shape[1:])
    return op.emit("Slice", x, zero, count.vector, axis, dtype=x.dtype, shape=shape)


def lengths_of(op: Context, splits: Value) -> Value:
    """Return the row lengths of row splits."""
    return op.sub(op.slice(splits, [0], [1], [END]), op.slice(splits, [0], [0], [-1]))


def longest(op: Context, lengths: Value) -> Extent:
    """Return the length of the longest row."""

    def make() -> Value:
        some = op.concat([op.constant([0], "int64"), lengths], 0)  # there may be no rows
        return op.reduce("ReduceMax", some, [0], keepdims=True)

    return Extent(None, make)


def within(op: Context, splits: Value, rows: Value, count: Extent) -> Value:
    """Return the index of each element in its row."""
    return op.sub(extents.count_to(op, count), op.gather(splits, rows))


# -- ranges ----------------------------------------------------------------------------------------


@tf_op("RaggedRange", outputs=("rt_nested_splits", "rt_dense_values"))
def ragged_range(
    op: Context, starts: Value, limits: Value, deltas: Value, /, *, node: Node
) -> list[Value]:
    """A ragged tensor of ranges from `starts` to before `limits` in steps of `deltas`."""
    dtype = starts.dtype
    zero = op.constant(0, dtype)
    distance = op.sub(limits, starts)
    if starts.is_float:
        kind = "float32" if dtype == "bfloat16" else dtype
        steps = op.div(op.cast(distance, kind), op.cast(deltas, kind))
        steps = op.elementwise("Max", op.unary("Ceil", steps), op.constant(0, kind))
        lengths = _wide(op, steps)
    else:
        # Round the quotient up. If the signs differ, the range is empty.
        whole = op.div(distance, deltas)
        rest = op.sub(distance, op.mul(whole, deltas))
        some = op.unary("Not", op.elementwise("Equal", rest, zero))
        forward = op.elementwise("Equal", op.unary("Sign", distance), op.unary("Sign", deltas))
        steps = op.add(whole, op.cast(some, dtype))
        lengths = _wide(op, op.where(forward, steps, zero))
    if lengths.rank == 0:
        lengths = op.unsqueeze(lengths, [0])
    splits = sum_lengths(op, lengths)
    total = last(op, splits)
    rows = rows_of(op, splits, total)
    place = op.cast(within(op, splits, rows, total), dtype)
    begin, step = (op.gather(v, rows) if v.rank else v for v in (starts, deltas))
    values = op.add(begin, op.mul(place, step))
    return [op.cast(splits, node.attribute("Tsplits", "int64")), values]


# -- to dense and sparse ---------------------------------------------------------------------------


def _level(
    op: Context, partition: Value, kind: str, above: Extent | None, below: Extent
) -> tuple[Value, Value, Extent]:
    """Return the row index of each element, the row splits, and the number of rows.

    Args:
        op: The builder.
        partition: Row partition: row splits or row indices.
        kind: Type of the partition, ROW_SPLITS or VALUE_ROWIDS.
        above: Number of rows, if known from elsewhere.
        below: Number of elements.
    """
    partition = _wide(op, partition)
    if kind == "ROW_SPLITS":
        rows = rows_of(op, partition, below)
        count = extents.sub(op, extents.of(op, partition, 0), extents.number(op, 1))
        return rows, partition, count
    if kind == "VALUE_ROWIDS" and above is not None:
        zeros = extents.fill(op, op.constant(0, "int64"), [above])
        ones = extents.fill(op, op.constant(1, "int64"), [extents.of(op, partition, 0)])
        lengths = put(op, zeros, op.unsqueeze(partition, [1]), ones, "add")
        return partition, sum_lengths(op, lengths), above
    raise Unsupported(f"rows by {kind}")


def _nested(
    op: Context, partitions: Sequence[Value], kinds: Sequence[str], count: Extent,
    first: Extent | None,
) -> tuple[list[Value], list[Extent]]:  # fmt: skip
    """Return the indices of flat values along each ragged axis, and the size of each axis."""
    levels = []
    above = first
    for i, (partition, kind) in enumerate(zip(partitions, kinds, strict=True)):
        is_last = i == len(partitions) - 1
        if is_last:
            below = count
        elif kind == "ROW_SPLITS":
            below = last(op, _wide(op, partition))
        else:
            below = extents.of(op, partition, 0)
        rows, splits, many = _level(op, partition, kind, above, below)
        levels.append((rows, splits, below, many))
        above = below
    sides = [levels[0][3]]
    columns: list[Value] = []

    for rows, splits, below, _ in levels:
        sides.append(longest(op, lengths_of(op, splits)))
        place = within(op, splits, rows, below)
        columns = [op.gather(c, rows) for c in columns] if columns else [rows]
        columns.append(place)
    return columns, sides


@tf_op("RaggedTensorToSparse", outputs=("sparse_indices", "sparse_values", "sparse_dense_shape"))
def to_sparse(op: Context, *inputs: Value, RAGGED_RANK: int) -> list[Value]:  # noqa: N803
    """A ragged tensor converted to a sparse one."""
    del RAGGED_RANK  # equals the number of inputs
    *splits, values = inputs
    if values.rank != 1:
        raise Unsupported("ragged rows of rows that are not")
    count = extents.of(op, values, 0)
    columns, sides = _nested(op, splits, ["ROW_SPLITS"] * len(splits), count, None)
    return [stack_indices(op, columns), values, extents.vector(op, sides)]


@tf_op("RaggedTensorToTensor")
def to_tensor(
    op: Context, shape: Value, values: Value, default_value: Value, /, *partitions: Value,
    num_row_partition_tensors: int, row_partition_types: Sequence[str],
) -> Value:  # fmt: skip
    """A ragged tensor converted to a dense one, its rows padded or truncated."""
    del num_row_partition_tensors  # equals the number of inputs
    kinds = list(row_partition_types)
    first = None
    if kinds and kinds[0] == "FIRST_DIM_SIZE":
        first = extents.elements(op, partitions[0])[0]
        kinds, partitions = kinds[1:], partitions[1:]
    count = extents.of(op, values, 0)
    columns, sides = _nested(op, partitions, kinds, count, first)
    wanted: list[Extent] = []
    if shape.rank:
        wanted = extents.list_elements(op, shape, len(sides) + values.rank - 1)[: len(sides)]
    limited = False
    for i, one in enumerate(wanted):
        if isinstance(one.dim, int) and one.dim < 0:
            continue
        limited = True
        sides[i] = one if one.dim is not None else _chosen(op, one, sides[i])
    places = stack_indices(op, columns)
    if limited:
        ends = extents.vector(op, sides)
        fits = op.cast(op.elementwise("Less", places, ends), "int32")
        mask = op.cast(op.reduce("ReduceMin", fits, [1]), "bool")
        places, values = (
            op.emit("Compress", v, mask, dtype=v.dtype, shape=(None, *v.shape[1:]), axis=0)
            for v in (places, values)
        )
    whole = [*sides, *extents.of_all(op, values)[1:]]
    dense = op.emit(
        "Expand", default_value, extents.vector(op, whole), dtype=values.dtype,
        shape=extents.shape_of(whole),
    )  # fmt: skip
    return put(op, dense, places, values)


def _chosen(op: Context, wanted: Extent, found: Extent) -> Extent:
    def make() -> Value:
        unknown = op.elementwise("Less", wanted.vector, op.constant([0], "int64"))
        return op.where(unknown, found.vector, wanted.vector)

    return Extent(None, make)


# -- gather ----------------------------------------------------------------------------------------


@tf_op("RaggedGather", outputs=("output_nested_splits*OUTPUT_RAGGED_RANK", "output_dense_values"))
def gather(
    op: Context,
    *inputs: Value,
    OUTPUT_RAGGED_RANK: int,  # noqa: N803
    PARAMS_RAGGED_RANK: int,  # noqa: N803
) -> list[Value]:
    """Rows of a ragged tensor, by index."""
    splits, values, indices = (
        inputs[:PARAMS_RAGGED_RANK], inputs[PARAMS_RAGGED_RANK], inputs[PARAMS_RAGGED_RANK + 1],
    )  # fmt: skip
    if not indices.rank or PARAMS_RAGGED_RANK + indices.rank - 1 != OUTPUT_RAGGED_RANK:
        raise Unsupported("one row of a ragged tensor")
    dtype = splits[0].dtype
    found = []
    sides = extents.of_all(op, indices)
    for axis in range(1, indices.rank):  # further axes of the indices are uniform rows
        count = extents.product(op, sides[:axis])
        line = extents.count_to(op, extents.add(op, count, extents.number(op, 1)))
        found.append(op.cast(op.mul(line, sides[axis].vector), dtype))
    chosen = _wide(op, extents.reshape_to(op, indices, [extents.product(op, sides)]))
    for split in splits:
        wide = _wide(op, split)
        begins = op.gather(wide, chosen)
        ends = op.gather(wide, op.add(chosen, op.constant(1, "int64")))
        new = sum_lengths(op, op.sub(ends, begins))
        total = last(op, new)
        rows = rows_of(op, new, total)
        chosen = op.add(op.gather(begins, rows), within(op, new, rows, total))
        found.append(op.cast(new, dtype))
    return [*found, op.gather(values, chosen)]


@tf_op(
    "RaggedFillEmptyRows",
    outputs=("output_value_rowids", "output_values", "empty_row_indicator", "reverse_index_map"),
)
def fill_empty_rows(
    op: Context, value_rowids: Value, values: Value, nrows: Value, default_value: Value, /
) -> list[Value]:
    """A ragged tensor with a default value in each empty row."""
    shape = op.unsqueeze(nrows, [0])
    places = op.unsqueeze(value_rowids, [1])
    rows, *rest = sparse.fill_empty_rows(op, places, values, shape, default_value)
    return [op.squeeze(rows, [1]), *rest]


@tf_op("RaggedBincount")
def bincount(
    op: Context, splits: Value, values: Value, size: Value, weights: Value, /, *,
    binary_output: bool = False,
) -> Value:  # fmt: skip
    """The number of occurrences (or sum of weights) of each integer below `size` in each row."""
    rows = rows_of(op, splits, extents.of(op, values, 0))
    count = extents.sub(op, extents.of(op, splits, 0), extents.number(op, 1))
    return sparse.bins(op, rows, values, weights, size, count, binary=binary_output)


ROW = "row of a ragged tensor"

# -- single rows -----------------------------------------------------------------------------------


@tf_op("RaggedTensorToVariant")
def ragged_to_variant(
    op: Context,
    /,
    *nested: Value,
    batched_input: bool,
    RAGGED_RANK: int,  # noqa: N803
) -> RaggedRows:
    """The rows of a ragged tensor, over which ``tf.map_fn`` iterates."""
    del op
    if RAGGED_RANK != 1 or not batched_input:
        raise Unsupported(
            "a ragged tensor as an element of a list, but the rows of one ragged axis"
        )
    splits, values = nested
    return RaggedRows(splits, values)


def row(op: Context, rows: RaggedRows, index: Value) -> Value:
    """Return the values of one row."""
    place = op.reshape(_wide(op, index), (1,))
    after = op.add(place, op.constant([1], "int64"))
    splits = _wide(op, rows.splits)
    begin, end = op.gather(splits, place), op.gather(splits, after)
    shape = (None, *rows.values.shape[1:])
    axis = op.constant([0], "int64")
    return op.emit("Slice", rows.values, begin, end, axis, dtype=rows.values.dtype, shape=shape)


@tf_op(
    "RaggedTensorFromVariant", any_input=True,
    outputs=("output_nested_splits*output_ragged_rank", "output_dense_values"),
)  # fmt: skip
def ragged_from_variant(
    op: Context, encoded_ragged: ProgramValue, /, *, input_ragged_rank: int, output_ragged_rank: int
) -> Value:
    """The row of a ragged tensor that is an element of a list."""
    del op, input_ragged_rank
    row = encoded_ragged
    if not isinstance(row, Record) or row.kind != ROW or output_ragged_rank != 0:
        raise Unsupported("a ragged tensor made of a list's elements, but a row of one ragged axis")
    values = row.content["values"]
    assert isinstance(values, Value)
    return values
