"""Lookup tables: their entries after the model is loaded become constants of the lookup.

ONNX's LabelEncoder maps between strings, int64 and float32. Other values are gathered by the row
index that LabelEncoder returns; keys that are row indices themselves need no LabelEncoder.
Spec: https://onnx.ai/onnx/operators/onnx_aionnxml_LabelEncoder.html
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from converter.lower.graph import Attribute, Shape
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node
from converter.lower.tf.program_values import Entries, ProgramValue, Table
from converter.lower.tf.session import Session
from converter.lower.tf.state import as_text
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value

ML = "ai.onnx.ml"
DENSE = 256  # minimum number of keys 0, 1, ... that are used as row indices
MOST_FILE = 1 << 28  # maximum bytes of a vocabulary file
WHOLE_LINE, LINE_NUMBER = -2, -1  # special column indices of a vocabulary file

# dtype -> dtype of LabelEncoder that represents all its values
ENCODED = {
    "string": "string", "float32": "float", "float16": "float", "bfloat16": "float",
    "int64": "int64", "int32": "int64", "int16": "int64", "int8": "int64", "uint8": "int64",
    "uint16": "int64", "uint32": "int64", "bool": "int64",
}  # fmt: skip
KEYS = {k: v for k, v in ENCODED.items() if k in ("string", "float32", "int64", "int32")}


# -- handles ---------------------------------------------------------------------------------------


def _handle(op: Context, node: Node) -> Table:
    kinds = node.attribute("key_dtype"), node.attribute("value_dtype")
    return Table(op.place, *kinds, node.attribute("shared_name", ""))


@tf_op(
    "HashTable", "HashTableV2", "MutableHashTable", "MutableHashTableV2", "AnonymousHashTable",
    "AnonymousMutableHashTable",
)  # fmt: skip
def hash_table(op: Context, *, use_node_name_sharing: bool = False, node: Node) -> Table:
    """The handle of a lookup table."""
    del use_node_name_sharing
    return _handle(op, node)


@tf_op(
    "MutableHashTableOfTensors", "MutableHashTableOfTensorsV2",
    "AnonymousMutableHashTableOfTensors",
)  # fmt: skip
def table_of_tensors(
    op: Context, *, use_node_name_sharing: bool = False, value_shape: Any = None, node: Node
) -> Table:
    """The handle of a lookup table whose values are tensors."""
    del use_node_name_sharing, value_shape
    return _handle(op, node)


@tf_op("MutableDenseHashTable", "MutableDenseHashTableV2", "AnonymousMutableDenseHashTable")
def dense_table(
    op: Context, empty_key: Value, deleted_key: Value | None = None, /, *,
    use_node_name_sharing: bool = False, value_shape: Any = None, initial_num_buckets: int = 131072,
    max_load_factor: float = 0.8, node: Node,
) -> Table:  # fmt: skip
    """The handle of a dense lookup table."""
    del empty_key, deleted_key, use_node_name_sharing, value_shape, initial_num_buckets
    del max_load_factor
    return _handle(op, node)


def _table(operand: ProgramValue) -> Table:
    if not isinstance(operand, Table):
        raise Unsupported(f"a {type(operand).__name__.lower()} in place of a table")
    return operand


# -- filling ---------------------------------------------------------------------------------------


@tf_op("InitializeTable", "InitializeTableV2", any_input=True)
def initialize(
    op: Session, table_handle: ProgramValue, keys: ProgramValue, values: ProgramValue, /
) -> list[ProgramValue]:
    """Set the entries of a table."""
    entries = Entries(_whole(op, keys), _whole(op, values))
    op.state.fill(_table(table_handle), entries)
    return []


@tf_op("LookupTableImport", "LookupTableImportV2", any_input=True)
def import_table(
    op: Session, table_handle: ProgramValue, keys: ProgramValue, values: ProgramValue, /
) -> list[ProgramValue]:
    """Replace the entries of a table."""
    return initialize(op, table_handle, keys, values)


@tf_op("LookupTableInsert", "LookupTableInsertV2", any_input=True)
def insert(
    op: Session, table_handle: ProgramValue, keys: ProgramValue, values: ProgramValue, /
) -> list[ProgramValue]:
    """Insert entries into a table; the value of an existing key is replaced."""
    table = _table(table_handle)
    new_keys, new_values = _whole(op, keys), _whole(op, values)
    new_keys = new_keys.reshape(-1)
    new_values = new_values.reshape(len(new_keys), *new_values.shape[1:])
    try:
        before = op.state.entries(table)
    except Unsupported:
        before = Entries(new_keys[:0], new_values[:0])
    op.state.fill(table, Entries(
        np.concatenate([before.keys, new_keys]), np.concatenate([before.values, new_values]),
    ))  # fmt: skip
    return []


@tf_op("LookupTableRemoveV2", any_input=True)
def remove(op: Session, table_handle: ProgramValue, keys: ProgramValue, /) -> list[ProgramValue]:
    """Remove entries from a table."""
    table = _table(table_handle)
    gone = set(_whole(op, keys).reshape(-1).tolist())
    before = op.state.entries(table)
    left = [i for i, key in enumerate(before.keys.reshape(-1).tolist()) if key not in gone]
    op.state.fill(table, Entries(before.keys.reshape(-1)[left], before.values[left]))
    return []


def _whole(op: Context, operand: ProgramValue) -> np.ndarray:
    """Return the elements of a constant tensor of any size.

    Raises:
        Unsupported: The elements are not computed from constants alone.
    """
    if not isinstance(operand, Value):
        raise Unsupported(f"entries of a {type(operand).__name__.lower()}")
    found = op.static(operand)
    if found is not None:
        return found
    if operand.is_constant and operand.name in op.weights:
        return op.weights[operand.name].numpy()
    node = next((n for n in reversed(op.graph.nodes) if operand.name in n.outputs), None)
    if node is not None:
        inputs = [op.graph.initializers.get(name) for name in node.inputs]
        if node.op_type == "Range" and all(isinstance(v, np.ndarray) for v in inputs):
            start, limit, step = (v.item() for v in inputs if isinstance(v, np.ndarray))
            return np.arange(start, limit, step).astype(operand.dtype)
        if node.op_type in ("Cast", "Identity", "Reshape"):
            spec = op.graph.specs[node.inputs[0]]
            before = Value(node.inputs[0], spec.dtype, spec.shape, tuple(range(len(spec.shape))))
            kind = object if operand.dtype == "string" else operand.dtype
            return _whole(op, before).astype(kind).reshape(-1)
    raise Unsupported("entries that are computed")


@tf_op("InitializeTableFromTextFile", "InitializeTableFromTextFileV2", any_input=True)
def initialize_from_file(
    op: Session, table_handle: ProgramValue, filename: ProgramValue, /, *, key_index: int,
    value_index: int,
    vocab_size: int = -1, delimiter: str = "\t", offset: int = 0,
) -> list[ProgramValue]:  # fmt: skip
    """Set the entries of a table from the lines of an asset file of the model."""
    table = _table(table_handle)
    name = op.static(filename) if isinstance(filename, Value) else None
    if name is None or name.size != 1:
        raise Unsupported("a file whose name is computed")
    content = op.state.asset(str(name.reshape(-1)[0]))
    if len(content) > MOST_FILE:
        raise Unsupported(f"a file of {len(content)} bytes")
    lines = _lines(content)
    if vocab_size >= 0:
        if len(lines) < vocab_size:
            raise Unsupported(f"{vocab_size} lines of a file of {len(lines)}")
        lines = lines[:vocab_size]
    keys = _column(lines, key_index, delimiter, table.key_dtype, offset)
    values = _column(lines, value_index, delimiter, table.value_dtype, offset)
    op.state.fill(table, Entries(keys, values))
    return []


def _lines(content: bytes) -> list[bytes]:
    """Return the lines of a file without carriage returns, as TensorFlow reads them."""
    lines = content.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    return [line.replace(b"\r", b"") for line in lines]


def _column(
    lines: Sequence[bytes], index: int, delimiter: str, dtype: str, offset: int
) -> np.ndarray:
    if index == LINE_NUMBER:
        return np.arange(offset, offset + len(lines), dtype=np.int64).astype(dtype)
    if index == WHOLE_LINE:
        texts = list(lines)
    else:
        separator = delimiter.encode("utf-8", "surrogateescape")
        texts = [line.split(separator)[index] for line in lines]
    if dtype == "string":
        made = np.empty(len(texts), object)
        made[:] = [as_text(t) for t in texts]
        return made
    kind = float if "float" in dtype else int
    return np.array([kind(t) for t in texts], dtype)


# -- lookup ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Content:
    """The entries of a table, with unique keys."""

    keys: np.ndarray
    values: np.ndarray


def content(op: Session, operand: ProgramValue) -> Content:
    """Return the entries of a table; of a duplicate key the last value."""
    table = _table(operand)
    entries = op.state.entries(table)
    keys = entries.keys.reshape(-1)
    values = entries.values
    last = {key: number for number, key in enumerate(keys.tolist())}
    if len(last) < len(keys):
        rows = np.fromiter(last.values(), np.int64)
        return Content(keys[rows], values[rows])
    return Content(keys, values)


@tf_op("LookupTableFind", "LookupTableFindV2", any_input=True)
def find(
    op: Session, table_handle: ProgramValue, keys: ProgramValue, default_value: ProgramValue, /
) -> Value:
    """The values of keys in a table, and a default for missing keys."""
    table = _table(table_handle)
    held = content(op, table_handle)
    if not isinstance(keys, Value) or not isinstance(default_value, Value):
        raise Unsupported("keys that are no tensor")
    if not len(held.keys):
        shape = op.emit("Shape", keys, dtype="int64", shape=(keys.rank,))
        only = op.reshape(default_value, (1,) * keys.rank)
        return op.emit("Expand", only, shape, dtype=only.dtype, shape=keys.shape)
    # A dense table stores a scalar as a vector of one.
    held = Content(held.keys, held.values.reshape(len(held.keys), *_numbers(default_value.shape)))
    default = op.static(default_value)
    if (
        default is not None and held.values.ndim == 1 and table.value_dtype in ENCODED
        and not _are_rows(held.keys)
    ):  # fmt: skip
        value = as_text(default.reshape(-1)[0]) if table.value_dtype == "string" else default
        return _encode(op, keys, held.keys, held.values, table.value_dtype, np.asarray(value))
    count = len(held.keys)
    if _are_rows(held.keys):
        rows = _look_up_rows(op, keys, count)
    else:
        rows = _encode(op, keys, held.keys, np.arange(count), "int64", np.asarray(count))
    known = op.constant(held.values, table.value_dtype)
    last = op.reshape(default_value, (1, *held.values.shape[1:]))
    return op.gather(op.concat([known, last], 0), rows)


def _numbers(shape: Shape) -> list[int]:
    if not all(isinstance(n, int) for n in shape):
        raise Unsupported("a default value whose shape is not known")
    return [int(str(n)) for n in shape]


def _are_rows(keys: np.ndarray) -> bool:
    """Return whether keys are 0, 1, ..., and at least DENSE of them."""
    return (
        keys.dtype.kind in "iu"
        and len(keys) >= DENSE
        and bool((keys == np.arange(len(keys))).all())
    )


def _look_up_rows(op: Context, keys: Value, count: int) -> Value:
    """Return the row indices of keys; `count`, the row of the default, for missing keys."""
    wide = op.cast(keys, "int64")
    end = op.constant(count, "int64")
    below = op.elementwise("Less", wide, op.constant(0, "int64"))
    return op.where(below, end, op.elementwise("Min", wide, end))


def _encode(
    op: Context, x: Value, keys: np.ndarray, values: np.ndarray, dtype: str, default: np.ndarray
) -> Value:
    kind = KEYS.get(x.dtype)
    if kind is None:
        raise Unsupported(f"keys of {x.dtype}")
    given = op.cast(x, "int64") if kind == "int64" else x
    made = ENCODED[dtype]
    attributes: dict[str, Attribute] = {
        f"keys_{kind}s": _list_elements(keys, kind),
        f"values_{made}s": _list_elements(values, made),
        f"default_{made}": _list_elements(default.reshape(-1), made)[0],
    }
    result = {"string": "string", "float": "float32", "int64": "int64"}[made]
    (found,) = op.node(
        "LabelEncoder", [given], [(result, x.shape)], attributes=attributes, stored=x.stored,
        domain=ML,
    )  # fmt: skip
    return op.cast(found, dtype)


def _list_elements(array: np.ndarray, kind: str) -> list[Any]:
    if kind == "string":
        return [as_text(t) for t in array.tolist()]
    return [(float if kind == "float" else int)(n) for n in array.tolist()]


@tf_op("LookupTableSize", "LookupTableSizeV2", any_input=True)
def size(op: Session, table_handle: ProgramValue, /) -> Value:
    """The number of entries of a table."""
    return op.constant(len(content(op, table_handle).keys), "int64")


@tf_op("LookupTableExport", "LookupTableExportV2", outputs=("keys", "values"), any_input=True)
def export(op: Session, table_handle: ProgramValue, /) -> list[Value]:
    """The keys and values of a table."""
    table = _table(table_handle)
    held = content(op, table_handle)
    return [op.constant(held.keys, table.key_dtype), op.constant(held.values, table.value_dtype)]
