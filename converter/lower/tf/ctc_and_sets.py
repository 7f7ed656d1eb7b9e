"""Set operations and the CTC decoder: rows are filtered and returned as sparse tensors."""

from converter.lower.legalize import LACKING
from converter.lower.tf.context import Context
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value

SETS = ("result_indices", "result_values", "result_shape")
DECODED = ("decoded_indices", "decoded_values", "decoded_shape", "log_probability")


def kept(op: Context, rows: Value, keep: Value) -> tuple[Value, Value, Value]:
    """Return the kept elements of rows as a sparse tensor; each row is packed to the left.

    Args:
        op: The builder.
        rows: Values [..., n].
        keep: Booleans of the same shape.

    Returns:
        Indices [k, rank], values [k], and the dense shape, whose last size is the longest row's.
    """
    numbers = op.cast(keep, "int64")
    last = op.constant(rows.rank - 1, "int64")
    so_far = op.emit("CumSum", numbers, last, dtype="int64", shape=rows.shape)
    found = op.emit("NonZero", keep, dtype="int64", shape=(rows.rank, None))
    where = op.transpose(found, [1, 0])  # [k, rank]
    values = op.emit("GatherND", rows, where, dtype=rows.dtype, shape=(None,))
    place = op.sub(op.emit("GatherND", so_far, where, dtype="int64", shape=(None,)), 1)
    front = op.slice(where, [1], [0], [rows.rank - 1])
    column = op.unsqueeze(place, [1])
    indices = op.concat([front, column], 1) if rows.rank > 1 else column
    counts = op.reduce("ReduceSum", numbers, [rows.rank - 1])
    if counts.rank:
        counts = op.reduce("ReduceMax", counts, list(range(counts.rank)))
    sides = [op.size(rows, i) for i in range(rows.rank - 1)]
    return indices, values, op.concat([*sides, op.unsqueeze(counts, [0])], 0)


# -- sets ------------------------------------------------------------------------------------------


@tf_op("DenseToDenseSetOperation", outputs=SETS)
def set_operation(
    op: Context, set1: Value, set2: Value, /, *, set_operation: str, validate_indices: bool = True
) -> list[Value]:
    """Difference, intersection or union of the rows of two tensors as sets, sorted."""
    del validate_indices
    if set1.dtype == "string":
        raise Unsupported("sets of texts, which ONNX does not sort")
    kind = LACKING["TopK"].get(set1.dtype, set1.dtype)
    a, b = op.cast(set1, kind), op.cast(set2, kind)
    if set_operation == "b-a":
        a, b = b, a
    if a.rank != b.rank:
        raise Unsupported("sets of different ranks")
    if set_operation == "union":
        a = op.concat([a, b], a.rank - 1)
    rows = _sort(op, a)
    keep = _first(op, rows)
    if set_operation != "union":
        among = _among(op, rows, b)
        is_wanted = among if set_operation == "intersection" else op.unary("Not", among)
        if set_operation not in ("intersection", "a-b", "b-a"):
            raise Unsupported(f"set operation {set_operation!r}")
        keep = op.elementwise("And", keep, is_wanted)
    indices, values, shape = kept(op, rows, keep)
    return [indices, op.cast(values, set1.dtype), shape]


def _sort(op: Context, x: Value) -> Value:
    """Sort rows in ascending order."""
    count = op.size(x, x.rank - 1)
    found = op.node(
        "TopK", [op.plain(x), count], [(x.dtype, x.shape), ("int64", x.shape)],
        attributes={"axis": x.rank - 1, "largest": 0, "sorted": 1},
    )  # fmt: skip
    return found[0]


def _first(op: Context, x: Value) -> Value:
    """Return whether each element differs from the preceding one in its row."""
    axis = x.rank - 1
    later, before = op.slice(x, [axis], [1], [1 << 31]), op.slice(x, [axis], [0], [-1])
    differs = op.unary("Not", op.elementwise("Equal", later, before))
    start = op.slice(x, [axis], [0], [1])
    begins = op.elementwise("Equal", start, start)
    return op.concat([begins, differs], axis)


def _among(op: Context, x: Value, others: Value) -> Value:
    """Return whether each element occurs in the same row of `others`."""
    rank = x.rank
    equal = op.elementwise("Equal", op.unsqueeze(x, [rank]), op.unsqueeze(others, [rank - 1]))
    count = op.reduce("ReduceSum", op.cast(equal, "int32"), [rank])
    return op.elementwise("Greater", count, 0)


# -- labels ----------------------------------------------------------------------------------------


@tf_op("CTCGreedyDecoder", outputs=DECODED)
def ctc_greedy_decoder(
    op: Context, inputs: Value, sequence_length: Value, /, *,
    merge_repeated: bool = False, blank_index: int = -1,
) -> list[Value]:  # fmt: skip
    """The most likely label of each step, without blanks and, optionally, repeated labels."""
    classes = inputs.shape[2]
    if not isinstance(classes, int):
        raise Unsupported("an unknown number of labels")
    blank = blank_index + classes if blank_index < 0 else blank_index
    steps = op.transpose(inputs, [1, 0, 2])  # [batch, time, classes]
    shape = steps.shape[:2]
    single = op.cast(steps, "float32") if inputs.dtype == "float64" else steps
    labels = op.emit("ArgMax", single, dtype="int64", shape=shape, axis=2, keepdims=0)
    time = op.size(steps, 1)
    line = op.emit(
        "Range", op.constant(0, "int64"), op.squeeze(time, [0]), op.constant(1, "int64"),
        dtype="int64", shape=(shape[1],),
    )  # fmt: skip
    lengths = op.unsqueeze(op.cast(sequence_length, "int64"), [1])
    inside = op.elementwise("Less", op.unsqueeze(line, [0]), lengths)
    keep = op.elementwise("And", inside, op.unary("Not", op.elementwise("Equal", labels, blank)))
    if merge_repeated:
        keep = op.elementwise("And", keep, _first(op, labels))
    indices, values, whole = kept(op, labels, keep)
    best = op.reduce("ReduceMax", steps, [2])
    total = op.reduce("ReduceSum", op.where(inside, best, 0.0), [1], keepdims=True)
    return [indices, values, whole, op.unary("Neg", total)]
