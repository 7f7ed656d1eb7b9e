"""Functions of each element: arithmetic, comparisons, activations, dtypes."""

from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.operations import elementwise as e
from converter.lower.keras.operations.operands import tensor
from converter.lower.keras.table import TF_FUNCTIONS, operation
from converter.lower.keras.tensorflow_ops.operands import as_list, same_dtype
from converter.lower.keras.tensorflow_rows import call_op
from converter.lower.ops import activation
from converter.lower.table import Variant
from converter.lower.values import Value

# fmt: off
UNARY = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh",
    "atan": "Atan", "atanh": "Atanh", "bitwise.invert": "Invert", "ceil": "Ceil", "cos": "Cos",
    "cosh": "Cosh", "elu": "Elu", "erf": "Erf", "erfc": "Erfc", "erfinv": "Erfinv", "exp": "Exp",
    "expm1": "Expm1", "floor": "Floor", "identity": "Identity", "is_finite": "IsFinite",
    "is_inf": "IsInf", "is_nan": "IsNan", "log": "Log", "log1p": "Log1p",
    "logical_not": "LogicalNot", "negative": "Neg", "reciprocal": "Reciprocal", "relu": "Relu",
    "relu6": "Relu6", "rint": "Rint", "round": "Round", "rsqrt": "Rsqrt", "selu": "Selu",
    "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "sinh": "Sinh", "softplus": "Softplus",
    "softsign": "Softsign", "sqrt": "Sqrt", "square": "Square", "stop_gradient": "StopGradient",
    "tan": "Tan", "tanh": "Tanh",
}
BINARY = {
    "add": "AddV2", "bitwise.bitwise_and": "BitwiseAnd",
    "bitwise.bitwise_or": "BitwiseOr", "bitwise.bitwise_xor": "BitwiseXor",
    "bitwise.left_shift": "LeftShift", "bitwise.right_shift": "RightShift",
    "divide_no_nan": "DivNoNan", "equal": "Equal", "floor_div": "FloorDiv", "floordiv": "FloorDiv",
    "floormod": "FloorMod", "greater": "Greater", "greater_equal": "GreaterEqual", "less": "Less",
    "less_equal": "LessEqual", "logical_and": "LogicalAnd", "logical_or": "LogicalOr",
    "logical_xor": "NotEqual", "maximum": "Maximum", "minimum": "Minimum", "multiply": "Mul",
    "multiply_no_nan": "MulNoNan", "not_equal": "NotEqual", "pow": "Pow",
    "squared_difference": "SquaredDifference", "subtract": "Sub", "xdivy": "Xdivy",
    "xlogy": "Xlogy",
}
# fmt: on


@operation(
    TF_FUNCTIONS,
    *(Variant(name, f"{name}(x).", op_type=op_type) for name, op_type in UNARY.items()),
)
def unary(op: Builder, x: Any, *, op_type: str) -> Value:
    """An element-wise function."""
    return call_op(op, op_type, tensor(op, x))


@operation(
    TF_FUNCTIONS,
    *(Variant(name, f"{name}(x, y).", op_type=op_type) for name, op_type in BINARY.items()),
)
def binary(op: Builder, x: Any, y: Any, *, op_type: str) -> Value:
    """An element-wise function of two tensors."""
    return call_op(op, op_type, *same_dtype(op, x, y))


@operation(TF_FUNCTIONS, "divide", "truediv")
def true_divide(op: Builder, x: Any, y: Any) -> Value:
    """`x / y`; integers are divided in floating point."""
    a, b = same_dtype(op, x, y)
    if not a.is_float:
        dtype = "float32" if a.dtype in ("int8", "uint8", "int16", "uint16") else "float64"
        a, b = op.cast(a, dtype), op.cast(b, dtype)
    return call_op(op, "RealDiv", a, b)


@operation(TF_FUNCTIONS, "div")
def divide_as_python_2(op: Builder, x: Any, y: Any) -> Value:
    """`x / y`; integers are rounded down."""
    a, b = same_dtype(op, x, y)
    return call_op(op, "RealDiv" if a.is_float else "FloorDiv", a, b)


@operation(TF_FUNCTIONS, "atan2")
def atan2(op: Builder, y: Any, x: Any) -> Value:
    """The angle of the point (x, y), in all four quadrants."""
    return call_op(op, "Atan2", *same_dtype(op, y, x))


@operation(TF_FUNCTIONS, "scalar_mul")
def scalar_mul(op: Builder, scalar: Any, x: Any) -> Value:
    """`scalar * x`."""
    return call_op(op, "Mul", *same_dtype(op, scalar, x))


@operation(TF_FUNCTIONS, "reciprocal_no_nan")
def reciprocal_no_nan(op: Builder, x: Any) -> Value:
    """`1 / x`; 0 where x is 0."""
    return binary(op, op.constant(1, tensor(op, x).dtype), x, op_type="DivNoNan")


@operation(TF_FUNCTIONS, "debugging.check_numerics")
def check_numerics(op: Builder, tensor_: Any, message: str) -> Value:
    """The tensor, which TensorFlow refuses if any element is infinite or NaN."""
    del message
    return tensor(op, tensor_)


@operation(TF_FUNCTIONS, "add_n", "accumulate_n")
def add_n(op: Builder, inputs: Any) -> Value:
    """The sum of tensors."""
    return call_op(op, "AddN", *same_dtype(op, *as_list(inputs)))


@operation(TF_FUNCTIONS, "clip_by_value")
def clip_by_value(op: Builder, t: Any, clip_value_min: Any, clip_value_max: Any) -> Value:
    """The tensor clipped to two bounds."""
    return call_op(op, "ClipByValue", *same_dtype(op, t, clip_value_min, clip_value_max))


@operation(TF_FUNCTIONS, "cast")
def cast(op: Builder, x: Any, dtype: str) -> Value:
    """The tensor cast to a dtype."""
    return call_op(op, "Cast", tensor(op, x), DstT=dtype)


@operation(TF_FUNCTIONS, "saturate_cast")
def saturate_cast(op: Builder, value: Any, dtype: str) -> Value:
    """The tensor cast to a dtype, clipped to its range."""
    return e.saturate_cast(op, value, dtype=dtype)


@operation(TF_FUNCTIONS, "where")
def where(op: Builder, condition: Any, x: Any = None, y: Any = None) -> Value:
    """`x` where the condition is true, else `y`; the indices of true elements without both."""
    holds = tensor(op, condition, "bool")
    values = [] if x is None and y is None else same_dtype(op, x, y)
    return call_op(op, "SelectV2" if values else "Where", holds, *values)


# -- activations -----------------------------------------------------------------------------------


@operation(TF_FUNCTIONS, "log_sigmoid")
def log_sigmoid(op: Builder, x: Any) -> Value:
    """log(sigmoid(x))."""
    return activation.log_sigmoid(op, tensor(op, x))


@operation(TF_FUNCTIONS, "leaky_relu")
def leaky_relu(op: Builder, features: Any, alpha: float = 0.2) -> Value:
    """`x if x > 0 else alpha * x`."""
    return call_op(op, "LeakyRelu", tensor(op, features), alpha=alpha)


@operation(TF_FUNCTIONS, "gelu")
def gelu(op: Builder, features: Any, approximate: bool = False) -> Value:
    """`x * P(X <= x)` for standard normal X, exactly or approximated by tanh."""
    return activation.gelu(op, tensor(op, features), approximate)


@operation(TF_FUNCTIONS, "silu")
def silu(op: Builder, features: Any, beta: Any = 1.0) -> Value:
    """`x * sigmoid(beta * x)`."""
    x, factor = same_dtype(op, features, beta)
    return op.mul(x, op.unary("Sigmoid", op.mul(x, factor) if beta != 1 else x))


@operation(TF_FUNCTIONS, "crelu")
def crelu(op: Builder, features: Any, axis: int = -1) -> Value:
    """`relu(x)` and `relu(-x)`, concatenated along an axis."""
    x = tensor(op, features)
    return op.concat([op.unary("Relu", x), op.unary("Relu", op.unary("Neg", x))], axis)


@operation(
    TF_FUNCTIONS,
    Variant("softmax", "softmax along an axis.", op_type="Softmax"),
    Variant("log_softmax", "log_softmax along an axis.", op_type="LogSoftmax"),
)
def softmax_along(
    op: Builder, logits: Any, axis: int | None = None, *, op_type: str, dim: int | None = None,
) -> Value:  # fmt: skip
    """Softmax, or its logarithm, along an axis."""
    place = dim if axis is None else axis
    return op.softmax(tensor(op, logits), -1 if place is None else place, op_type)
