"""Elementwise ops: arithmetic, comparison, selection, unary functions and casts.

Dtypes for which onnxruntime has no kernels are cast (`legalize`). TensorFlow's integer division
truncates, as in C, unless the name of the op says that it rounds down.
Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/kernels (cwise_ops)
"""

from functools import reduce
from typing import Any

import numpy as np

from converter.lower.ops import elementwise, special
from converter.lower.ops.sort import find_unique
from converter.lower.table import Variant
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import QUANTIZED, Node
from converter.lower.tf.program_values import Complex, ProgramValue
from converter.lower.tf.session import Session
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value, broadcast

# -- unary -----------------------------------------------------------------------------------------

# fmt: off
UNARY = {
    "Abs": "Abs",     "Acos": "Acos",   "Acosh": "Acosh", "Asin": "Asin", "Asinh": "Asinh",
    "Atan": "Atan",   "Atanh": "Atanh", "Ceil": "Ceil",   "Cos": "Cos",   "Cosh": "Cosh",
    "Erf": "Erf",     "Exp": "Exp",     "Floor": "Floor", "Inv": "Reciprocal",
    "Log": "Log",     "Neg": "Neg",     "Reciprocal": "Reciprocal",       "Rint": "Round",
    "Sin": "Sin",     "Sinh": "Sinh",   "Sqrt": "Sqrt",   "Tan": "Tan",
    "LogicalNot": "Not",                "IsNan": "IsNaN",
}
# fmt: on


@tf_op(
    *(
        Variant(name, f"{op_type.lower()}(x).", op_type=op_type)
        for (name, op_type) in UNARY.items()
    ),
)
def unary(op: Context, x: Value, /, *, op_type: str) -> Value:
    """Elementwise function that is a single ONNX node."""
    return op.unary(op_type, x)


@tf_op("Round")
def round_to_even(op: Context, x: Value, /) -> Value:
    """The nearest integer; ties round to even."""
    if not x.is_float:
        raise Unsupported("of integers, for which TensorFlow 2.21 returns zeros")
    return op.unary("Round", x)


@tf_op("Sign")
def sign(op: Context, x: Value, /) -> Value:
    """-1, 0 or 1; NaN for NaN."""
    found = op.unary("Sign", x)
    return op.where(op.unary("IsNaN", x), x, found) if x.is_float else found


@tf_op("Square")
def square(op: Context, x: Value, /) -> Value:
    """`x * x`."""
    return op.mul(x, x)


@tf_op("Rsqrt")
def rsqrt(op: Context, x: Value, /) -> Value:
    """`1 / sqrt(x)`."""
    return op.unary("Reciprocal", op.unary("Sqrt", x))


@tf_op("IsInf")
def is_inf(op: Context, x: Value, /) -> Value:
    """Whether `x` is infinite."""
    return op.unary("IsInf", op.cast(x, "float32") if x.dtype == "float16" else x)


@tf_op("IsFinite")
def is_finite(op: Context, x: Value, /) -> Value:
    """Whether `x` is neither infinite nor NaN."""
    # x - x is 0 for finite values, and NaN for all others.
    return op.unary("Not", op.unary("IsNaN", op.sub(x, x)))


# -- binary ----------------------------------------------------------------------------------------


@tf_op("Add", "AddV2")
def add(op: Context, x: Value, y: Value, /) -> Value:
    """`x + y`; for strings, their concatenation (from opset 20)."""
    if x.dtype != "string":
        return op.add(x, y)
    if op.graph.opset < 20:
        raise Unsupported("the concatenation of strings, which ONNX has from opset 20")
    return op.elementwise("StringConcat", x, y)


@tf_op(
    Variant("Sub", "x - y.", op_type="Sub"),
    Variant("Div", "x / y; for integers, truncated towards zero.", op_type="Div"),
    Variant("RealDiv", "x / y.", op_type="Div"),
    Variant("LogicalAnd", "Whether both hold.", op_type="And"),
    Variant("LogicalOr", "Whether either holds.", op_type="Or"),
    Variant("Greater", "x > y.", op_type="Greater"),
    Variant("GreaterEqual", "x >= y.", op_type="GreaterOrEqual"),
    Variant("Less", "x < y.", op_type="Less"),
    Variant("LessEqual", "x <= y.", op_type="LessOrEqual"),
)
def binary(op: Context, x: Value, y: Value, /, *, op_type: str) -> Value:
    """Elementwise function of two tensors that is a single ONNX node."""
    return op.elementwise(op_type, x, y)


@tf_op("Mul")
def mul(op: Context, x: Value, y: Value, /) -> Value:
    """`x * y`."""
    for factor, other in ((x, y), (y, x)):
        # A factor of 1, as in tf.nn.silu.
        if factor.is_constant and factor.rank == 0:
            number = op.static(factor)
            if number is not None and number == 1:
                return other
    return op.elementwise("Mul", x, y)


@tf_op("Mod", "TruncateMod")
def truncate_mod(op: Context, x: Value, y: Value, /) -> Value:
    """Remainder of `x / y`, with the sign of `x`."""
    return op.elementwise("Mod", x, y, fmod=1)


@tf_op("Maximum")
def maximum(op: Context, x: Value, y: Value, /) -> Value:
    """Elementwise maximum; NaN where either is NaN."""
    return op.elementwise("Max", x, y)


@tf_op("Minimum")
def minimum(op: Context, x: Value, y: Value, /) -> Value:
    """Elementwise minimum; NaN where either is NaN."""
    return op.elementwise("Min", x, y)


@tf_op("TruncateDiv")
def truncate_div(op: Context, x: Value, y: Value, /) -> Value:
    """`x / y`, truncated towards zero."""
    found = op.div(x, y)
    if not x.is_float:
        return found
    return op.mul(op.unary("Sign", found), op.unary("Floor", op.unary("Abs", found)))


@tf_op("FloorMod")
def floor_mod(op: Context, x: Value, y: Value, /) -> Value:
    """Remainder of `x / y`, with the sign of `y`."""
    return elementwise.floor_mod(op, x, y)


@tf_op("FloorDiv")
def floor_div(op: Context, x: Value, y: Value, /) -> Value:
    """`x / y`, rounded down."""
    if x.dtype == "float16":
        # TensorFlow rounds the quotient to float16; onnxruntime would drop such a pair of casts.
        exact = op.div(op.cast(x, "float32"), op.cast(y, "float32"))
        rounded = op.cast(op.cast(exact, "float16"), "float32")
        return op.cast(op.unary("Floor", rounded), "float16")
    if x.is_float:
        return op.unary("Floor", op.div(x, y))
    cut = op.div(x, y)
    if x.dtype.startswith("u"):
        return cut
    # Truncated minus one where the floored and the truncated remainder differ.
    rest, cut_rest = op.elementwise("Mod", x, y), op.elementwise("Mod", x, y, fmod=1)
    return op.where(op.elementwise("Equal", rest, cut_rest), cut, op.sub(cut, 1))


@tf_op("SquaredDifference")
def squared_difference(op: Context, x: Value, y: Value, /) -> Value:
    """`(x - y) * (x - y)`."""
    away = op.sub(x, y)
    return op.mul(away, away)


def _is_zero(op: Context, x: Value) -> Value:
    return op.elementwise("Equal", x, op.constant(0, x.dtype))


@tf_op("DivNoNan")
def div_no_nan(op: Context, x: Value, y: Value, /) -> Value:
    """`x / y`, and 0 where `y` is 0."""
    return op.where(_is_zero(op, y), op.constant(0, x.dtype), op.div(x, y))


@tf_op("MulNoNan")
def mul_no_nan(op: Context, x: Value, y: Value, /) -> Value:
    """`x * y`, and 0 where `y` is 0, whatever `x` is."""
    return op.where(_is_zero(op, y), op.constant(0, x.dtype), op.mul(x, y))


@tf_op("Xdivy")
def xdivy(op: Context, x: Value, y: Value, /) -> Value:
    """`x / y`, and 0 where `x` is 0."""
    return op.where(_is_zero(op, x), op.constant(0, x.dtype), op.div(x, y))


@tf_op("Xlogy")
def xlogy(op: Context, x: Value, y: Value, /) -> Value:
    """`x * log(y)`, and 0 where `x` is 0."""
    return op.where(_is_zero(op, x), op.constant(0, x.dtype), op.mul(x, op.unary("Log", y)))


@tf_op("Xlog1py")
def xlog1py(op: Context, x: Value, y: Value, /) -> Value:
    """`x * log(1 + y)`, and 0 where `x` is 0."""
    return op.where(_is_zero(op, x), op.constant(0, x.dtype), op.mul(x, special.log1p(op, y)))


@tf_op("Atan2")
def atan2(op: Context, y: Value, x: Value, /) -> Value:
    """Angle of the point (x, y), in all four quadrants; the signs of zeros count."""
    return elementwise.atan2(op, y, x)


@tf_op("Pow")
def power(op: Context, x: Value, y: Value, /) -> Value:
    """`x ** y`; for integers exactly, with overflow as in multiplication."""
    if x.is_float:
        return op.elementwise("Pow", x, y)
    known = op.static(y)
    if known is not None and known.size == 1 and known.ndim == 0 and 0 <= int(known) <= 64:
        return _whole_power(op, x, int(known))
    base, exponent = op.cast(x, "int64"), op.cast(y, "int64")
    # Exponents above 63 become 64 or 65 by parity: exact for 0, 1 and -1; all others overflow.
    two = op.constant(2, "int64")
    far = op.add(op.elementwise("Mod", exponent, two), op.constant(64, "int64"))
    exponent = op.where(op.elementwise("Less", exponent, 64), exponent, far)
    result = op.constant(1, "int64")
    for bit in range(7):
        is_set = op.elementwise("Equal", op.elementwise("Mod", exponent, two), 1)
        result = op.mul(result, op.where(is_set, base, op.constant(1, "int64")))
        if bit < 6:
            exponent, base = op.div(exponent, two), op.mul(base, base)
    return op.cast(result, x.dtype)


def _whole_power(op: Context, x: Value, exponent: int) -> Value:
    if exponent == 0:
        return op.add(op.mul(x, 0), 1)
    result: Value | None = None
    base = x
    while True:
        if exponent & 1:
            result = base if result is None else op.mul(result, base)
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        base = op.mul(base, base)


@tf_op("ApproximateEqual")
def approximate_equal(op: Context, x: Value, y: Value, /, *, tolerance: float = 1e-5) -> Value:
    """Whether `abs(x - y)` is less than a tolerance."""
    if not x.is_float:
        raise Unsupported(f"of {x.dtype}")
    return op.elementwise("Less", op.unary("Abs", op.sub(x, y)), tolerance)


@tf_op("AddN", "AccumulateNV2")
def add_n(op: Context, *inputs: Value, shape: Any = None) -> Value:
    """The sum of tensors."""
    del shape
    if len(inputs) > 2 and inputs[0].is_float and inputs[0].dtype != "bfloat16":
        return op.elementwise("Sum", *inputs)
    return reduce(op.add, inputs)


# -- equality --------------------------------------------------------------------------------------


@tf_op("Equal")
def equal(op: Context, x: Value, y: Value, /, *, incompatible_shape_error: bool = True) -> Value:
    """Whether `x` equals `y`."""
    if not incompatible_shape_error and not _go_together(x, y):
        return op.constant(value=False, dtype="bool")
    return same(op, x, y)


@tf_op("NotEqual")
def not_equal(
    op: Context, x: Value, y: Value, /, *, incompatible_shape_error: bool = True
) -> Value:
    """Whether `x` differs from `y`."""
    if not incompatible_shape_error and not _go_together(x, y):
        return op.constant(value=True, dtype="bool")
    return op.unary("Not", same(op, x, y))


def _go_together(x: Value, y: Value) -> bool:
    try:
        broadcast(x.shape, y.shape)
    except ValueError:
        return False
    return True


def same(op: Context, x: Value, y: Value) -> Value:
    """Return whether elements are equal, including strings.

    ONNX compares strings from opset 19 on. Before that, a LabelEncoder matches a known string, and
    Unique numbers the strings of two tensors.
    """
    if x.dtype != y.dtype:
        raise Unsupported(f"{x.dtype} compared with {y.dtype}")
    if x.dtype == "string" and (equal := _same_texts(op.static(x), op.static(y))) is not None:
        return op.constant(equal)
    if x.dtype != "string" or op.graph.opset >= 19:
        return op.elementwise("Equal", x, y)
    for text, other in ((x, y), (y, x)):
        known = op.static(text)
        if known is not None and known.size == 1 and text.rank <= other.rank:
            (found,) = op.node(
                "LabelEncoder", [other], [("int64", other.shape)], stored=other.stored,
                attributes={"keys_strings": [str(known.reshape(-1)[0])], "values_int64s": [1],
                            "default_int64": 0},
                domain="ai.onnx.ml",
            )  # fmt: skip
            return op.cast(found, "bool")
    flat = [op.emit("Reshape", v, op.constant([-1], "int64"), dtype="string", shape=(None,))
            for v in (x, y)]  # fmt: skip
    numbers = find_unique(op, op.concat(flat, 0)).inverse
    count = op.emit("Size", x, dtype="int64", shape=())
    middle, end = op.unsqueeze(count, [0]), op.constant([1 << 62], "int64")
    start, axis = op.constant([0], "int64"), op.constant([0], "int64")
    parts = []
    for value, low, high in ((x, start, middle), (y, middle, end)):
        part = op.emit("Slice", numbers, low, high, axis, dtype="int64", shape=(None,))
        shape = op.emit("Shape", value, dtype="int64", shape=(value.rank,))
        parts.append(op.emit("Reshape", part, shape, dtype="int64", shape=value.shape))
    return op.elementwise("Equal", *parts)


def _same_texts(x: np.ndarray | None, y: np.ndarray | None) -> np.ndarray | None:
    """Return whether known strings are equal; None where some are unknown."""
    if x is None or y is None:
        return None
    return np.array(np.equal(x, y), np.bool_)  # invalid UTF-8 is bytes and equals no string


# -- selection -------------------------------------------------------------------------------------


@tf_op("Select")
def select(op: Context, condition: Value, x: Value, y: Value, /) -> Value:
    """`x` where the condition holds, else `y`; a vector of conditions selects rows."""
    if 0 < condition.rank < x.rank:
        condition = op.unsqueeze(condition, list(range(condition.rank, x.rank)))
    return op.where(condition, x, y)


@tf_op("SelectV2")
def select_v2(op: Context, condition: Value, x: Value, y: Value, /) -> Value:
    """`x` where the condition holds, else `y`, all broadcast."""
    return op.where(condition, x, y)


@tf_op("ClipByValue")
def clip_by_value(op: Context, t: Value, low: Value, high: Value, /) -> Value:
    """`t` clipped to two bounds."""
    return op.elementwise("Max", op.elementwise("Min", t, high), low)


# -- dtypes ----------------------------------------------------------------------------------------


@tf_op("Cast", any_input=True)
def cast(op: Session, x: ProgramValue, /, *, node: Node, Truncate: bool = False) -> ProgramValue:  # noqa: N803
    """`x` in another dtype; floating-point numbers are truncated to integers."""
    wanted = node.attribute("DstT")
    if isinstance(x, Complex):
        if wanted in ("complex64", "complex128"):
            part = "float64" if wanted == "complex128" else "float32"
            return Complex(op.cast(x.real, part), op.cast(x.imaginary, part), wanted)
        if wanted == "bool":
            raise Unsupported("complex numbers as booleans")
        return convert(op, x.real, wanted)
    tensor = x if isinstance(x, Value) else op.walker.tensor(x)
    assert isinstance(tensor, Value)
    if wanted in ("complex64", "complex128"):
        real = op.cast(tensor, "float64" if wanted == "complex128" else "float32")
        return Complex(real, op.sub(real, real), wanted)
    if Truncate and tensor.is_float and wanted in ("float16", "bfloat16", "float32"):
        raise Unsupported("a cast that cuts digits off")
    return convert(op, tensor, wanted)


def convert(op: Context, x: Value, dtype: str) -> Value:
    """Cast a value to another dtype, as TensorFlow's CPU kernels do.

    Raises:
        Unsupported: The cast is from or to strings, or ONNX lacks the dtype.
    """
    dtype = QUANTIZED.get(dtype, dtype)
    if "string" in (x.dtype, dtype) and x.dtype != dtype:
        raise Unsupported(f"a cast from {x.dtype} to {dtype}")
    if dtype not in FROM_AND_TO:
        raise Unsupported(f"a cast to {dtype}")
    return op.cast(x, dtype)


FROM_AND_TO: frozenset[str] = frozenset((
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16",
    "bfloat16", "float32", "float64", "string", "float8_e4m3fn", "float8_e5m2",
))  # fmt: skip
