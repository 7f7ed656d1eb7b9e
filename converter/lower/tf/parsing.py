"""Parsing of serialized examples: the parsed features become the inputs of the graph.

A feature of fixed shape is one input tensor. A feature of variable length is two: the concatenated
values of all examples, and the number of values of each; for a single example, the values alone.
So every input corresponds to valid examples. Sparse and ragged tensors are computed from both.
Spec: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/ops/parsing_ops.cc
"""

from collections.abc import Sequence

import numpy as np

from converter.lower.encoded import (
    CSV,
    DENSE,
    EXAMPLE,
    FIELD,
    LENGTHS,
    PADDED,
    VALUES,
    Default,
    Part,
    default_of,
)  # fmt: skip
from converter.lower.graph import Shape
from converter.lower.tf import extents, ragged
from converter.lower.tf.context import Context
from converter.lower.tf.coordinates import stack_indices
from converter.lower.tf.decoded import Origin
from converter.lower.tf.session import Session
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value

KINDS = ("float32", "int64", "string")  # dtypes of features


def _keys(op: Context, value: Value) -> list[str]:
    """Return the feature keys in a tensor.

    Raises:
        Unsupported: The keys are computed.
    """
    found = op.static(value)
    if found is None:
        raise Unsupported("keys of features that are computed")
    return [str(k.decode() if isinstance(k, bytes) else k) for k in found.reshape(-1)]


def _check(key: str, dtype: str) -> None:
    if dtype not in KINDS:
        raise Unsupported(f"feature {key!r} of {dtype}")


def _said(op: Context, default: Value) -> "Default | None":
    """Return the default of a missing value; None if the feature is required."""
    known = op.static(default)
    if known is not None:
        return default_of(known) if known.size else None
    return None if 0 in default.shape else []  # the default is computed


def _dense(
    op: Session, origin: Origin, key: str, dtype: str, shape: Shape | None, default: Value
) -> Value:
    """Return a feature of fixed shape, or one whose first axis is padded to the longest."""
    _check(key, dtype)
    if shape is None or None in shape[1:]:
        raise Unsupported(f"feature {key!r} of unknown shape")
    said = _said(op, default)
    if not shape or shape[0] is not None:
        part = Part(DENSE, key, dtype, (*origin.shape, *shape), default=said)
    else:
        if said is None:  # TensorFlow's default padding
            said = [""] if dtype == "string" else [0]
        steps = (*origin.shape, op.decoded.axis(origin, key, "steps"), *shape[1:])
        part = Part(PADDED, key, dtype, steps, default=said)
    return op.decoded.part(origin, EXAMPLE, part)


def _parse_list(op: Session, origin: Origin, key: str, dtype: str) -> tuple[Value, Value | None]:
    """Return the values of a feature of variable length, and its lengths (None for one example)."""
    _check(key, dtype)
    if origin.index is not None:
        raise Unsupported(f"feature {key!r} of any length, of examples that are parsed one by one")
    several = bool(origin.shape)
    part = Part(VALUES, key, dtype, (op.decoded.axis(origin, key, "count"),))
    values = op.decoded.part(origin, EXAMPLE, part, called=f"{key}/values" if several else key)
    if not several:
        return values, None
    part = Part(LENGTHS, key, "int64", origin.shape)
    return values, op.decoded.part(origin, EXAMPLE, part, called=f"{key}/lengths")


def _sparse(op: Session, origin: Origin, key: str, dtype: str) -> tuple[Value, Value, Value]:
    """Return indices, values and dense shape of a feature of variable length."""
    values, lengths = _parse_list(op, origin, key, dtype)
    count = extents.of(op, values, 0)
    if lengths is None:
        return op.unsqueeze(extents.count_to(op, count), [1]), values, count.vector
    splits = ragged.sum_lengths(op, lengths)
    rows = ragged.rows_of(op, splits, count)
    places = stack_indices(op, [rows, ragged.within(op, splits, rows, count)])
    sides = [extents.of(op, lengths, 0), ragged.longest(op, lengths)]
    return places, values, extents.vector(op, sides)


def _ragged(op: Session, origin: Origin, key: str, dtype: str, splits: str) -> tuple[Value, Value]:
    """Return the values of a feature of variable length, and its row splits."""
    values, lengths = _parse_list(op, origin, key, dtype)
    if lengths is None:
        return values, op.constant(np.zeros(0, splits))
    return values, op.cast(ragged.sum_lengths(op, lengths), splits)


def _parse_examples(
    op: Session, serialized: Value, sparse: Sequence[str], dense: Sequence[str],
    defaults: Sequence[Value], shapes: Sequence[Shape | None], kinds: Sequence[str],
    types: Sequence[str],
) -> list[Value]:  # fmt: skip
    """Return indices, values and shapes of all sparse features, then the dense features."""
    if serialized.rank > 1:
        raise Unsupported(f"examples in {serialized.rank} axes")
    origin = op.decoded.origin(serialized, "parsing")
    if not (len(sparse) == len(kinds) and len(dense) == len(types) == len(shapes) == len(defaults)):
        raise Unsupported("keys of features that go with no types or shapes")
    found = [_sparse(op, origin, k, t) for k, t in zip(sparse, kinds, strict=True)]
    made = [values for i in range(3) for values in (one[i] for one in found)]
    rows = zip(dense, types, shapes, defaults, strict=True)
    return [*made, *(_dense(op, origin, *row) for row in rows)]


@tf_op(
    "ParseExample",
    outputs=(
        "sparse_indices*Nsparse", "sparse_values*sparse_types", "sparse_shapes*Nsparse",
        "dense_values*Tdense",
    ),
)  # fmt: skip
def parse_example(
    op: Session, serialized: Value, names: Value, /, *rest: Value,
    Nsparse: int, Ndense: int, sparse_types: Sequence[str], Tdense: Sequence[str],  # noqa: N803
    dense_shapes: Sequence[Shape | None],
) -> list[Value]:  # fmt: skip
    """ParseExample of a graph input: its parsed features become the inputs."""
    del names  # used in TensorFlow's error messages only
    keys = [key for value in rest[: Nsparse + Ndense] for key in _keys(op, value)]
    defaults = rest[Nsparse + Ndense :]
    sparse, dense = keys[:Nsparse], keys[Nsparse:]
    return _parse_examples(
        op, serialized, sparse, dense, defaults, dense_shapes, sparse_types, Tdense
    )


@tf_op(
    "ParseExampleV2",
    outputs=(
        "sparse_indices*num_sparse", "sparse_values*sparse_types", "sparse_shapes*num_sparse",
        "dense_values*Tdense", "ragged_values*ragged_value_types",
        "ragged_row_splits*ragged_split_types",
    ),
)  # fmt: skip
def parse_example_v2(
    op: Session, serialized: Value, names: Value, sparse_keys: Value, dense_keys: Value,
    ragged_keys: Value, /, *dense_defaults: Value,
    num_sparse: int, sparse_types: Sequence[str], Tdense: Sequence[str],  # noqa: N803
    dense_shapes: Sequence[Shape | None], ragged_value_types: Sequence[str] = (),
    ragged_split_types: Sequence[str] = (),
) -> list[Value]:  # fmt: skip
    """ParseExample of a graph input: its parsed features become the inputs."""
    del names, num_sparse
    found = _parse_examples(
        op, serialized, _keys(op, sparse_keys), _keys(op, dense_keys), dense_defaults,
        dense_shapes, sparse_types, Tdense,
    )  # fmt: skip
    origin = op.decoded.origin(serialized, "parsing")
    rows = zip(_keys(op, ragged_keys), ragged_value_types, ragged_split_types, strict=True)
    rest = [_ragged(op, origin, *row) for row in rows]
    return [*found, *(values for values, _ in rest), *(begins for _, begins in rest)]


@tf_op(
    "ParseSingleExample",
    outputs=(
        "sparse_indices*num_sparse", "sparse_values*sparse_types", "sparse_shapes*num_sparse",
        "dense_values*Tdense",
    ),
)  # fmt: skip
def parse_single_example(
    op: Session, serialized: Value, /, *dense_defaults: Value,
    num_sparse: int, sparse_keys: Sequence[str], dense_keys: Sequence[str],
    sparse_types: Sequence[str], Tdense: Sequence[str],  # noqa: N803
    dense_shapes: Sequence[Shape | None],
) -> list[Value]:  # fmt: skip
    """ParseSingleExample of a graph input: its parsed features become the inputs."""
    del num_sparse
    return _parse_examples(
        op, serialized, sparse_keys, dense_keys, dense_defaults, dense_shapes, sparse_types, Tdense
    )


# -- CSV -------------------------------------------------------------------------------------------


@tf_op("DecodeCSV", outputs=("output*OUT_TYPE",))
def decode_csv(
    op: Session, records: Value, /, *record_defaults: Value, OUT_TYPE: Sequence[str],  # noqa: N803
    field_delim: str = ",", use_quote_delim: bool = True, na_value: str = "",
    select_cols: Sequence[int] = (),
) -> list[Value]:  # fmt: skip
    """DecodeCSV of a graph input: its parsed fields become the inputs."""
    origin = op.decoded.origin(records, "parsing")
    if origin.index is not None or len(origin.shape) > 2:
        raise Unsupported("lines of CSV in a loop, or in many axes")
    origin = op.decoded.whole(origin)
    columns = [*select_cols] or [*range(len(OUT_TYPE))]
    settings: dict[str, str | int | bool] = {
        "field_delim": field_delim, "use_quote_delim": use_quote_delim, "na_value": na_value,
        "columns": max(columns, default=0) + 1,
    }  # fmt: skip
    found = []
    for column, dtype, default in zip(columns, OUT_TYPE, record_defaults, strict=True):
        said = _said(op, default)
        part = Part(FIELD, str(column), dtype, origin.shape, default=said)
        called = f"{origin.name}/{column}"
        field = op.decoded.part(origin, CSV, part, settings=settings, called=called)
        found.append(extents.reshape_to(op, field, extents.of_all(op, records)))
    return found
