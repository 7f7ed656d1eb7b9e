"""Scatter ops on tensors and variables; DynamicStitch and DynamicPartition."""

from collections.abc import Callable
from functools import partial

import numpy as np

from converter.lower.ops.scatter import scatter_nd
from converter.lower.table import Variant
from converter.lower.tf import extents
from converter.lower.tf.arrays import blank, concatenate
from converter.lower.tf.context import Context
from converter.lower.tf.extents import Extent
from converter.lower.tf.program_values import ProgramValue, Variable
from converter.lower.tf.session import Session
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value


def put(op: Context, x: Value, indices: Value, updates: Value, reduction: str = "none") -> Value:
    """Scatter updates [..., rest] into a tensor at indices [..., axes].

    Args:
        op: The builder.
        x: The tensor.
        indices: Indices, none negative.
        updates: Values to scatter.
        reduction: Reduction with the previous values: none, add, sub, mul, max or min.

    Raises:
        Unsupported: The number of indexed axes is unknown.
    """
    depth = indices.shape[-1]
    if not isinstance(depth, int) or depth < 1:
        raise Unsupported("indices whose depth is not known, or zero")
    if reduction == "sub":
        updates, reduction = negative(op, updates), "add"
    return scatter_nd(op, x, indices, updates, reduction)


def negative(op: Context, x: Value) -> Value:
    """Return `-x`, with wrap-around for unsigned integers."""
    if x.dtype.startswith("uint"):
        return op.sub(op.constant(0, x.dtype), x)
    return op.unary("Neg", x)


def _policy(policy: str) -> None:
    if policy not in ("", "DEFAULT", "ERROR"):
        raise Unsupported(f"bad_indices_policy {policy}")


# -- into tensors ----------------------------------------------------------------------------------


@tf_op(
    Variant("TensorScatterUpdate", "A tensor with updates at indices.", reduction="none"),
    Variant("TensorScatterAdd", "A tensor with updates added.", reduction="add"),
    Variant("TensorScatterSub", "A tensor with updates subtracted.", reduction="sub"),
    Variant("TensorScatterMax", "A tensor, and the maximum at indices.", reduction="max"),
    Variant("TensorScatterMin", "A tensor, and the minimum at indices.", reduction="min"),
)
def scatter_into(
    op: Context, tensor: Value, indices: Value, updates: Value, /, *, reduction: str,
    bad_indices_policy: str = "",
) -> Value:  # fmt: skip
    """A tensor with updates at the given indices."""
    _policy(bad_indices_policy)
    return put(op, tensor, indices, updates, reduction)


@tf_op("ScatterNdNonAliasingAdd")
def scatter_nd_added(
    op: Context, input: Value, indices: Value, updates: Value, /, *, bad_indices_policy: str = ""
) -> Value:
    """A tensor with updates added at indices."""
    _policy(bad_indices_policy)
    return _add(op, input, indices, updates)


def _add(op: Context, x: Value, indices: Value, updates: Value) -> Value:
    if x.dtype == "bool":  # the sum of booleans is their disjunction
        wide = put(op, op.cast(x, "int32"), indices, op.cast(updates, "int32"), "max")
        return op.cast(wide, "bool")
    if x.dtype == "string":
        known = op.static(indices)
        if known is None or len({tuple(p) for p in known.reshape(-1, known.shape[-1])}) != (
            known.size // known.shape[-1]
        ):
            raise Unsupported("strings at indices that may be the same")
        return put(op, x, indices, updates)
    return put(op, x, indices, updates, "add")


@tf_op("ScatterNd")
def scatter_into_zeros(
    op: Context, indices: Value, updates: Value, shape: Value, /, *, bad_indices_policy: str = ""
) -> Value:
    """Zeros of a shape, with updates added at indices."""
    _policy(bad_indices_policy)
    zeros = extents.fill(op, blank(op, updates.dtype), extents.elements(op, shape))
    return _add(op, zeros, indices, updates)


@tf_op("SparseToDense")
def sparse_to_dense(
    op: Context, sparse_indices: Value, output_shape: Value, sparse_values: Value,
    default_value: Value, /,
) -> Value:  # fmt: skip
    """A sparse tensor converted to a dense one, filled with a default value."""
    depth = sparse_indices.shape[1] if sparse_indices.rank > 1 else 1
    if isinstance(depth, int):
        sides = extents.list_elements(op, output_shape, depth)
    else:
        sides = extents.elements(op, output_shape)
    dense = extents.fill(op, default_value, sides)
    places = sparse_indices
    if places.rank == 0:
        places = op.unsqueeze(places, [0, 1])
    elif places.rank == 1:
        places = op.unsqueeze(places, [1])
    values = sparse_values
    if values.rank == 0:
        values = extents.fill(op, values, [extents.of(op, places, 0)])
    return put(op, dense, places, values)


# -- rows ------------------------------------------------------------------------------------------


def rows(op: Context, x: Value, indices: Value, updates: Value, reduction: str = "none") -> Value:
    """Scatter rows into a tensor: indices [...], updates [..., rest] or a scalar."""
    count = extents.product(op, extents.of_all(op, indices))
    rest = extents.of_all(op, x)[1:]
    places = extents.reshape_to(op, indices, [count, extents.number(op, 1)])
    if updates.rank == 0 and (indices.rank or rest):
        wide = extents.fill(op, updates, [count, *rest])
    else:
        wide = extents.reshape_to(op, updates, [count, *rest])
    return put(op, x, places, wide, reduction)


@tf_op(
    Variant("InplaceUpdate", "A tensor with rows put at indices.", reduction="none"),
    Variant("InplaceAdd", "A tensor with rows added at indices.", reduction="add"),
    Variant("InplaceSub", "A tensor with rows subtracted at indices.", reduction="sub"),
)
def change_rows(op: Context, x: Value, i: Value, v: Value, /, *, reduction: str) -> Value:
    """A tensor with rows updated at indices."""
    return rows(op, x, i, v, reduction)


# -- into variables --------------------------------------------------------------------------------


def divide_rows(op: Context, x: Value, indices: Value, updates: Value) -> Value:
    """Divide rows of a tensor by updates.

    Raises:
        Unsupported: The dtype is integer.
    """
    if not x.is_float:
        raise Unsupported(f"a division of {x.dtype}")
    ones = extents.fill(op, op.constant(1, x.dtype), extents.of_all(op, x))
    return op.div(x, rows(op, ones, indices, updates, "mul"))


Change = Callable[[Context, Value, Value, Value], Value]
REDUCTIONS = {
    "Update": "none", "Add": "add", "Sub": "sub", "Mul": "mul", "Max": "max", "Min": "min",
}  # fmt: skip
CHANGES_OF_ROWS: dict[str, Change] = {
    **{name: partial(rows, reduction=reduction) for name, reduction in REDUCTIONS.items()},
    "Div": divide_rows,
}
CHANGES_OF_ELEMENTS: dict[str, Change] = {
    f"Nd{name}": partial(put, reduction=REDUCTIONS[name])
    for name in ("Update", "Add", "Sub", "Max", "Min")
}


def _change(
    op: Session, operand: ProgramValue, indices: Value, updates: Value, change: Change
) -> ProgramValue:
    if isinstance(operand, Value):  # a variable of a frozen graph
        return change(op, operand, indices, updates)
    if not isinstance(operand, Variable):
        raise Unsupported(f"a {type(operand).__name__.lower()} in place of a variable")
    before = op.state.read(operand)
    op.state.assign(operand, change(op, before, indices, updates))
    return operand


@tf_op(*(Variant(f"Scatter{n}", change=c) for n, c in CHANGES_OF_ROWS.items()), any_input=True)
def scatter_rows(
    op: Session, ref: ProgramValue, indices: Value, updates: Value, /, *, change: Change
) -> ProgramValue:
    """Update rows of a variable."""
    return _change(op, ref, indices, updates, change)


@tf_op(
    *(Variant(f"ResourceScatter{n}", change=c) for n, c in CHANGES_OF_ROWS.items()), any_input=True
)
def scatter_rows_of_resource(
    op: Session, resource: ProgramValue, indices: Value, updates: Value, /, *, change: Change
) -> list[ProgramValue]:
    """Update rows of a variable."""
    _change(op, resource, indices, updates, change)
    return []


@tf_op(*(Variant(f"Scatter{n}", change=c) for n, c in CHANGES_OF_ELEMENTS.items()), any_input=True)
def scatter_elements(
    op: Session, ref: ProgramValue, indices: Value, updates: Value, /, *, change: Change,
    bad_indices_policy: str = "",
) -> ProgramValue:  # fmt: skip
    """Update elements of a variable."""
    _policy(bad_indices_policy)
    return _change(op, ref, indices, updates, change)


@tf_op(
    *(Variant(f"ResourceScatter{n}", change=c) for n, c in CHANGES_OF_ELEMENTS.items()),
    any_input=True,
)
def scatter_elements_of_resource(
    op: Session, resource: ProgramValue, indices: Value, updates: Value, /, *, change: Change,
    bad_indices_policy: str = "",
) -> list[ProgramValue]:  # fmt: skip
    """Update elements of a variable."""
    _policy(bad_indices_policy)
    _change(op, resource, indices, updates, change)
    return []


# -- dynamic stitch and partition ------------------------------------------------------------------


@tf_op("DynamicStitch", "ParallelDynamicStitch")
def dynamic_stitch(op: Context, *inputs: Value) -> Value:
    """The slices of several tensors merged by index; of a duplicate index the last one."""
    count = len(inputs) // 2
    indices, data = inputs[:count], inputs[count:]
    rank = indices[0].rank
    rest = extents.of_all(op, data[0])[rank:]
    known = [op.static(v) for v in indices]
    if all(v is not None for v in known):
        flat = np.concatenate([v.reshape(-1) for v in known if v is not None])
        return _stitch(op, data, indices, rest, flat)
    lines = [_flat(op, i, [], i.rank) for i in indices]
    places = op.cast(concatenate(op, lines, 0), "int64")
    values = concatenate(
        op, [_flat(op, v, rest, i.rank) for v, i in zip(data, indices, strict=True)], 0
    )
    # Of duplicate indices the last counts: the maximum of the positions.
    least = op.concat([places, op.constant([-1], "int64")], 0)
    last = op.reduce("ReduceMax", least, [0], keepdims=True)
    size = Extent(None, lambda: op.add(last, op.constant(1, "int64")))
    zeros = extents.fill(op, op.constant(0, "int64"), [size])
    order = extents.count_to(op, extents.of(op, places, 0))
    which = op.emit(
        "ScatterElements", zeros, places, order, dtype="int64", shape=(None,), axis=0,
        reduction="max",
    )  # fmt: skip
    return op.gather(values, which)


def _flat(op: Context, value: Value, rest: list[Extent], axes: int) -> Value:
    """Flatten the first `axes` axes to one, before the axes `rest`."""
    if axes == 1:
        return value
    first = extents.product(op, extents.of_all(op, value)[:axes])
    return extents.reshape_to(op, value, [first, *rest])


def _stitch(
    op: Context, data: tuple[Value, ...], indices: tuple[Value, ...], rest: list[Extent],
    numbers: np.ndarray,
) -> Value:  # fmt: skip
    """Stitch by static indices: concatenate and gather."""
    parts = [_flat(op, v, rest, i.rank) for v, i in zip(data, indices, strict=True)]
    whole = concatenate(op, parts, 0)
    size = int(numbers.max(initial=-1)) + 1
    which = np.zeros(size, np.int64)
    which[numbers] = np.arange(numbers.size)
    if size == numbers.size and (which == np.arange(size)).all():
        return whole
    return op.gather(whole, op.constant(which))


@tf_op("DynamicPartition")
def dynamic_partition(
    op: Context, data: Value, partitions: Value, /, *, num_partitions: int
) -> list[Value]:
    """The slices of a tensor, distributed to `num_partitions` tensors by index."""
    rest = extents.of_all(op, data)[partitions.rank :]
    if partitions.rank == 0:
        data, partitions = op.unsqueeze(data, [0]), op.unsqueeze(partitions, [0])
    values = _flat(op, data, rest, partitions.rank)
    numbers = _flat(op, partitions, [], partitions.rank)
    found = []
    for number in range(num_partitions):
        mask = op.elementwise("Equal", numbers, op.constant(number, numbers.dtype))
        shape = (None, *values.shape[1:])
        found.append(op.emit("Compress", values, mask, dtype=data.dtype, shape=shape, axis=0))
    return found
