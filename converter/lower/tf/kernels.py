"""Operators in the dtypes that onnxruntime has kernels for, and what is asked of others cast.

Integers go to a wider type and back, which is exact: sums and products wrap around as TensorFlow's
do, extremes and comparisons keep the order. Floating point numbers need nothing here: the builder
itself casts bfloat16, and spells out what has no kernel of float64.
Which there are was asked of onnxruntime 1.31, CPU, at opset 18.
"""

from collections.abc import Sequence

from converter.lower.builder import Builder
from converter.lower.values import Value

FLOATS = ("float32", "float64", "float16", "bfloat16")
SIGN = -(1 << 63)  # as a mask of int64

# Operator -> integers (and booleans) that have no kernel -> the type to compute them in.
_SMALL = {"int8": "int32", "uint8": "int32", "int16": "int32", "uint16": "int32"}
_RUNNING = {**_SMALL, "uint32": "int64", "uint64": "int64"}
# onnxruntime adds integers up as float64, and does not wrap around: int64 has room for overflow.
_SUMS = dict.fromkeys(("int8", "uint8", "int16", "uint16", "int32", "uint32", "uint64"), "int64")
_WIDE = {"int16": "int32", "uint16": "int32"}
_EXTREMES = {**_WIDE, "uint32": "int64", "bool": "int32"}
_MOVED = {**_WIDE, "uint64": "int64"}
LACKING = {
    "Max": _WIDE, "Min": _WIDE, "Clip": _WIDE, "Where": _MOVED, "Pad": _WIDE,
    "Neg": {"uint8": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64"},
    "Relu": {"uint8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64"},
    "ReduceSum": _SUMS, "ReduceProd": _SUMS, "CumSum": _RUNNING, "Einsum": _RUNNING,
    "MatMul": _SMALL,
    "ReduceMax": _EXTREMES, "ReduceMin": _EXTREMES, "ArgMax": _EXTREMES, "ArgMin": _EXTREMES,
    "TopK": {"uint16": "int32", "uint32": "int64", "bool": "int32"},
    "Trilu": _RUNNING,
    "Range": {"int8": "int32", "uint8": "int32", "uint16": "int32", "uint32": "int64",
              "uint64": "int64", "float16": "float32"},
    "IsInf": {"float16": "float32"},
}  # fmt: skip


def computed_in(op_type: str, dtype: str) -> str:
    """Return the dtype that an operator is to compute in where its operands are of this one."""
    return LACKING.get(op_type, {}).get(dtype, dtype)


def apply(op: Builder, op_type: str, *values: Value) -> Value:
    """Apply an operation to elements of several values, all of one dtype, which are broadcast."""
    dtype = values[0].dtype
    kind = computed_in(op_type, dtype)
    wide = [op.cast(v, kind) for v in values]
    return op.cast(op.elementwise(op_type, *wide), dtype)


def where(op: Builder, condition: Value, a: Value, b: Value) -> Value:
    """Return a where the condition holds, else b, of any dtype."""
    dtype = a.dtype
    kind = computed_in("Where", dtype)
    return op.cast(op.where(condition, op.cast(a, kind), op.cast(b, kind)), dtype)


def zero(op: Builder, like: Value) -> Value:
    """Return a zero of a value's dtype."""
    return op.constant(0, like.dtype)


def reduce(op: Builder, op_type: str, x: Value, axes: Sequence[int], *, keepdims: bool) -> Value:
    """Reduce a value of any dtype over axes."""
    if x.dtype == "uint64" and op_type in ("ReduceMax", "ReduceMin"):
        return unsigned(op, op.reduce(op_type, signed(op, x), axes, keepdims=keepdims))
    wide = op.cast(x, computed_in(op_type, x.dtype))
    return op.cast(op.reduce(op_type, wide, axes, keepdims=keepdims), x.dtype)


def signed(op: Builder, x: Value) -> Value:
    """Return uint64 as int64 in the same order."""
    return op.elementwise("BitwiseXor", op.cast(x, "int64"), op.constant(SIGN, "int64"))


def unsigned(op: Builder, x: Value) -> Value:
    """Return what `signed` made as it was."""
    return op.cast(op.elementwise("BitwiseXor", x, op.constant(SIGN, "int64")), "uint64")


# TensorFlow's names for integers that stand for something else.
QUANTISED = {
    "quint8": "uint8", "qint8": "int8", "quint16": "uint16", "qint16": "int16", "qint32": "int32",
}  # fmt: skip
