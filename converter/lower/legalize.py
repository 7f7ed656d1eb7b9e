"""The dtypes that onnxruntime has kernels for, by operator, and replacements for other dtypes.

Only this module knows which kernels the runtime lacks; every node of every front end passes it
(`Builder.node`). A node whose dtype has no kernel is computed in another dtype and cast back:

- integers in a wider type, which is exact: sums and products wrap around as in the frameworks;
- bfloat16 in float32, rounded once after each operation, as the frameworks' kernels do;
- float64 by other operators (`double.FORMS`), else in float32, which loses digits and is counted;
- uint64 as int64 with the sign bit flipped, where the operator only compares the values.

The kernels are those of onnxruntime 1.31, CPU, at opset 18. float16 counts as supported where
float32 is: onnxruntime inserts the casts.
"""

from collections.abc import Sequence
from typing import NamedTuple

from converter.lower.double import FORMS
from converter.lower.unsupported import Unsupported

LETTERS = {
    "float16": "e", "bfloat16": "g", "float32": "f", "float64": "d", "int8": "b", "uint8": "B",
    "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "l", "uint64": "L",
    "bool": "?", "string": "s",
}  # fmt: skip
ALL = "egfdbBhHiIlL?s"
NUMBERS = "efdbBhHiIlL"
INTEGERS = "bBhHiIlL"
INTEGRAL = frozenset(dtype for dtype, letter in LETTERS.items() if letter in INTEGERS)
# Supported dtypes (as letters) -> operators whose operands all have one dtype.
ALIKE: dict[str, Sequence[str]] = {
    NUMBERS: ("Abs", "Add", "Div", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mod", "Mul",
              "Shrink", "Sub"),
    NUMBERS + "?": ("Equal",),
    "g" + NUMBERS: ("Sign",),
    INTEGERS: ("BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"),
    ALL: ("Cast", "Concat", "Identity", "Shape", "Transpose"),
    NUMBERS + "?s": ("Size",),
    # Elu and some others have no float64 kernel, but expand to operators that have one.
    "efd": ("Ceil", "Cos", "Elu", "Exp", "Floor", "HardSigmoid", "IsNaN", "LeakyRelu", "Log",
            "LogSoftmax", "Reciprocal", "Round", "Selu", "Sigmoid", "Sin", "Softmax",
            "Softsign", "Sqrt", "Sum", "Tanh", "ThresholdedRelu"),
    "ef": ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "AveragePool", "Conv",
           "ConvTranspose", "Cosh", "Det", "Erf", "GlobalAveragePool", "GlobalMaxPool",
           "InstanceNormalization", "LRN", "LpPool", "Mean", "Sinh", "Tan"),
    "f": ("Celu", "Softplus"),
    "fd": ("IsInf",), "?": ("And", "Not", "Or", "Xor"), "BIL": ("BitShift",),
    "efdbBil": ("ArgMax", "ArgMin"), "efdbBiIlL": ("Clip", "Max", "Min"),
    "efdbB": ("DepthToSpace", "MaxPool", "SpaceToDepth"), "efdil": ("Einsum",),
    "efdiIlL": ("MatMul",), "efdbhil": ("Neg",), "efBil?": ("NonZero",), "fdhil": ("Range",),
    "efdbil": ("Relu",), "efdbls": ("Unique",),
}  # fmt: skip
# Operators whose operands differ -> the dtypes of each operand; T for the dtype that they share.
DIFFERENT = {
    "BatchNormalization": "efd efd efd efd efd", "Compress": "efdbBhHiIlL?s ?",
    "CumSum": "efdil il", "DFT": "efd il", "Expand": "efdbBhHiIlL?s l",
    "GRU": "T T T T i T", "LSTM": "T T T T i T T T", "RNN": "T T T T i T",
    "Gather": f"{ALL} il", "GatherElements": f"{ALL} il", "GatherND": f"{ALL} l",
    "GridSample": "ef ef", "NonMaxSuppression": "f f l f f", "OneHot": "efil efil efils",
    "Pad": "T l T il", "Pow": "efdil efdil",
    "ReduceMax": "efdbBil l", "ReduceMean": "efdil l", "ReduceMin": "efdbBil l",
    "ReduceProd": "efdil l", "ReduceSum": "efdil l",
    "Reshape": f"{ALL} l", "Resize": "efbBi efd f l", "ReverseSequence": "efdbBhHiIlL?s l",
    "ScatterElements": "T il T", "ScatterND": "T l T", "Slice": f"{ALL} il il il il",
    "Split": f"{ALL} l", "Squeeze": f"{ALL} l", "Unsqueeze": f"{ALL} l", "StringNormalizer": "s",
    "Tile": "efdbBhHiIlL?s l", "TopK": "efdbBhil l", "Trilu": "efdil? l", "Where": "? T T",
}  # fmt: skip
SHARED = {
    "GRU": "efd", "LSTM": "efd", "RNN": "ef", "Pad": "efdbBiIlL?", "ScatterElements": ALL,
    "ScatterND": ALL, "Where": "efdbBiIls",
}  # fmt: skip
_ALIKE = {op_type: letters for letters, op_types in ALIKE.items() for op_type in op_types}
# Operators whose widest floating-point kernel is float32.
SINGLE = frozenset((
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "AveragePool", "Celu", "Conv",
    "ConvTranspose", "Cosh", "Det", "Erf", "GRU", "GlobalAveragePool", "GlobalMaxPool",
    "GridSample", "InstanceNormalization", "LRN", "LSTM", "LpPool", "NonZero", "OneHot", "RNN",
    "Resize", "Sinh", "Tan",
))  # fmt: skip
# Operators that only move elements, in bfloat16 too; all others are computed in float32.
MOVES = frozenset((
    "Cast", "Concat", "Gather", "GatherElements", "GatherND", "Identity", "If", "Loop", "Reshape",
    "Scan", "ScatterND", "Shape", "Size", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze",
))  # fmt: skip
# Operators that only compare elements of their first operand, and return elements or indices.
ORDERED = frozenset(("ArgMax", "ArgMin", "ReduceMax", "ReduceMin", "TopK"))
# Operators whose outputs are indices or sizes, even where their dtype is that of the operands.
MAKES_INDICES = frozenset(("ArgMax", "ArgMin", "NonZero", "Shape", "Size"))

# Operator -> integer (or boolean) dtype without a kernel -> the dtype to compute it in.
_SMALL = {"int8": "int32", "uint8": "int32", "int16": "int32", "uint16": "int32"}
_RUNNING = {**_SMALL, "uint32": "int64", "uint64": "int64"}
# onnxruntime sums integers in float64, which does not wrap around; int64 has room for overflow.
_SUMS = dict.fromkeys(("int8", "uint8", "int16", "uint16", "int32", "uint32", "uint64"), "int64")
_WIDE = {"int16": "int32", "uint16": "int32"}
_EXTREMES = {**_WIDE, "uint32": "int64", "bool": "uint8"}
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
# Dtype -> wider dtypes to try in turn where LACKING has no entry. Each represents all values of the
# dtype (float32 for float64 excepted); int64 beyond 2**53 would not be exact as float64.
WIDER = {
    "bool": ("uint8", "int32", "int64", "float32"),
    "uint8": ("int32", "int64", "float32"), "int8": ("int32", "int64", "float32"),
    "int16": ("int32", "int64", "float32"), "uint16": ("int32", "int64", "float32"),
    "int32": ("int64", "float64"), "uint32": ("int64",), "float16": ("float32",),
    "float64": ("float32",),
}  # fmt: skip


class Replacement(NamedTuple):
    """Casts of the operands of one dtype to another, and of the outputs back.

    Attributes:
        dtype: Dtype without a kernel.
        wide: Dtype with a kernel.
        by_form: Whether `double.FORMS` computes the node instead.
        keeps_order: Whether uint64 is cast to int64 with its sign bit flipped, which keeps the
            order of the values.
    """

    dtype: str
    wide: str
    by_form: bool = False
    keeps_order: bool = False


def find_replacement(op_type: str, dtypes: Sequence[str | None]) -> Replacement | None:
    """Return the casts that a node needs; None where onnxruntime has a kernel.

    Args:
        op_type: ONNX's name of the operator.
        dtypes: Dtypes of the inputs; None for an optional input that is omitted.

    Raises:
        Unsupported: There is no kernel for these dtypes or for wider ones.
    """
    if "bfloat16" in dtypes and op_type not in MOVES:
        return Replacement("bfloat16", "float32")
    if "float64" in dtypes and (op_type in SINGLE or op_type in FORMS):
        return Replacement("float64", "float32", by_form=op_type in FORMS)
    if op_type == "Cast":
        return None
    if op_type in ORDERED and dtypes[0] == "uint64":
        return Replacement("uint64", "int64", keeps_order=True)
    exact = LACKING.get(op_type, {})
    for dtype in dtypes:
        if dtype in exact:
            return Replacement(str(dtype), exact[str(dtype)])
    if has_kernel(op_type, dtypes):
        return None
    for dtype in dict.fromkeys(dtypes):
        for wide in WIDER.get(str(dtype), ()):
            if has_kernel(op_type, [wide if d == dtype else d for d in dtypes]):
                return Replacement(str(dtype), wide)
    check_dtypes(op_type, dtypes)
    return None


def has_kernel(op_type: str, dtypes: Sequence[str | None]) -> bool:
    """Return whether onnxruntime has a kernel for inputs of these dtypes."""
    try:
        check_dtypes(op_type, dtypes)
    except Unsupported:
        return False
    return True


def check_dtypes(op_type: str, dtypes: Sequence[str | None]) -> None:
    """Check that onnxruntime has a kernel for inputs of these dtypes.

    Args:
        op_type: ONNX's name of the operator.
        dtypes: Dtypes of the inputs; None for an optional input that is omitted.

    Raises:
        Unsupported: There is no kernel.
    """
    if op_type in _ALIKE:
        patterns = ["T"] * len(dtypes)
        shared = _ALIKE[op_type]
    elif op_type in DIFFERENT:
        patterns = DIFFERENT[op_type].split(" ")
        shared = SHARED.get(op_type, "")
    else:
        return
    first = None
    for dtype, pattern in zip(dtypes, patterns, strict=False):
        if dtype is None:
            continue
        letter = LETTERS.get(dtype)
        if letter is None or letter not in (shared if pattern == "T" else pattern):
            raise Unsupported(f"ONNX's {op_type} of {dtype}")
        if pattern == "T":
            if first is not None and first != dtype:
                raise Unsupported(f"ONNX's {op_type} of {first} and {dtype}")
            first = dtype
