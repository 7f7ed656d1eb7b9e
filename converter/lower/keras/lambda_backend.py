"""keras.backend's functions, as the code of a Lambda calls them: with Keras 2's names and defaults.

Those of Keras 1 and of Keras 3's older ones are the same where they have the same name.
Spec: https://github.com/keras-team/keras/blob/2.2.4/keras/backend/tensorflow_backend.py
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.keras.activations import FUNCTIONS
from converter.lower.keras.lambda_tensors import function, sizes
from converter.lower.keras.lambda_values import Sizes
from converter.lower.keras.operations.operands import tensor
from converter.lower.keras.table import BACKEND_FUNCTIONS, Unsupported, operation
from converter.lower.keras.tensorflow_ops.operands import known_axes
from converter.lower.ops import activation as activations
from converter.lower.table import Variant
from converter.lower.values import Value, total

EPSILON = 1e-7  # keras.backend.epsilon() as it is unless someone sets it
FLOATX = "float32"

# -- what is known before anything runs ------------------------------------------------------------


@operation(
    BACKEND_FUNCTIONS,
    Variant("epsilon", "1e-7, the default.", value=EPSILON),
    Variant("floatx", "float32, the default.", value=FLOATX),
    Variant("learning_phase", "0: inference.", value=0),
)
def setting(op: Builder, *, value: Any) -> Any:
    """The static value of a tensor."""
    del op
    return value


@operation(BACKEND_FUNCTIONS, "image_data_format")
def image_data_format(op: Builder, *, data_format: str | None = None) -> str:
    """The data format of the model's layers; channels_last by default."""
    del op
    return data_format or "channels_last"


@operation(BACKEND_FUNCTIONS, "image_dim_ordering")
def image_dim_ordering(op: Builder, *, data_format: str | None = None) -> str:
    """The data format in the terms of Keras 1."""
    del op
    return "th" if data_format == "channels_first" else "tf"


@operation(BACKEND_FUNCTIONS, "backend")
def backend_name(op: Builder, *, backend: str | None = None) -> str:
    """The recorded backend, or tensorflow."""
    del op
    return backend or "tensorflow"


@operation(BACKEND_FUNCTIONS, "int_shape", "get_variable_shape")
def int_shape(op: Builder, x: Any) -> Sizes:
    """The static shape of a tensor."""
    return sizes(tensor(op, x))


@operation(BACKEND_FUNCTIONS, "ndim")
def ndim(op: Builder, x: Any) -> int:
    """The number of axes."""
    return tensor(op, x).rank


@operation(BACKEND_FUNCTIONS, "dtype")
def dtype_of(op: Builder, x: Any) -> str:
    """The dtype of a tensor."""
    return tensor(op, x).dtype


@operation(BACKEND_FUNCTIONS, "count_params")
def count_params(op: Builder, x: Any) -> int:
    """The number of elements."""
    found = total(tensor(op, x).shape)
    if found is None:
        raise Unsupported("the number of elements of a tensor of unknown size")
    return found


@operation(BACKEND_FUNCTIONS, "is_keras_tensor", "is_tensor")
def is_tensor(op: Builder, x: Any) -> bool:
    """Whether it is a tensor."""
    del op
    return isinstance(x, Value)


@operation(BACKEND_FUNCTIONS, "is_sparse", "is_placeholder")
def is_sparse(op: Builder, tensor: Any) -> bool:
    """False: there are no sparse tensors."""
    del op, tensor
    return False


# -- element by element ----------------------------------------------------------------------------

# fmt: off
UNARY = {
    "abs": "abs", "cos": "cos", "exp": "exp", "log": "log", "round": "round", "sigmoid": "sigmoid",
    "sign": "sign", "sin": "sin", "softplus": "softplus", "softsign": "softsign",
    "square": "square", "tanh": "tanh", "identity": "identity", "stop_gradient": "stop_gradient",
    "linear": "identity", "exponential": "exp", "selu": "selu", "shape": "shape",
    "gelu": "gelu", "swish": "silu", "silu": "silu", "batch_flatten": "keras.backend.batch_flatten",
}
BINARY = {
    "equal": "equal", "greater": "greater", "greater_equal": "greater_equal", "less": "less",
    "less_equal": "less_equal", "lesser": "less", "lesser_equal": "less_equal",
    "maximum": "maximum", "minimum": "minimum", "not_equal": "not_equal",
}
# fmt: on


@operation(
    BACKEND_FUNCTIONS,
    *(Variant(name, f"{theirs}(x).", theirs=theirs) for (name, theirs) in UNARY.items()),
)
def function_of_one(op: Builder, x: Any, *, theirs: str) -> Any:
    """TensorFlow's function of one tensor."""
    return function(op, theirs, x)


@operation(
    BACKEND_FUNCTIONS,
    *(Variant(name, f"{theirs}(x, y).", theirs=theirs) for (name, theirs) in BINARY.items()),
)
def function_of_two(op: Builder, x: Any, y: Any, *, theirs: str) -> Any:
    """TensorFlow's function of two tensors."""
    return function(op, theirs, x, y)


@operation(BACKEND_FUNCTIONS, "sqrt")
def sqrt(op: Builder, x: Any) -> Value:
    """`sqrt(max(x, 0))`."""
    value = tensor(op, x)
    return op.unary("Sqrt", op.elementwise("Max", value, op.constant(0, value.dtype)))


@operation(BACKEND_FUNCTIONS, "pow")
def pow_(op: Builder, x: Any, a: Any) -> Value:
    """`x ** a`."""
    return op.mul(x, x) if isinstance(x, Value) and a == 2 else function(op, "pow", x, a)


@operation(BACKEND_FUNCTIONS, "clip")
def clip(op: Builder, x: Any, min_value: Any, max_value: Any) -> Value:
    """The tensor clipped to two bounds."""
    if isinstance(min_value, int | float) and isinstance(max_value, int | float):
        max_value = max(max_value, min_value)
    low = -np.inf if min_value is None else min_value
    high = np.inf if max_value is None else max_value
    return function(op, "clip_by_value", x, low, high)


@operation(BACKEND_FUNCTIONS, "cast")
def cast(op: Builder, x: Any, dtype: str) -> Value:
    """The tensor cast to a dtype."""
    return tensor(op, x, dtype)


@operation(BACKEND_FUNCTIONS, "cast_to_floatx")
def cast_to_floatx(op: Builder, x: Any) -> Value:
    """The tensor cast to float32."""
    return tensor(op, x, FLOATX)


@operation(BACKEND_FUNCTIONS, "relu")
def relu(
    op: Builder, x: Any, alpha: float = 0.0, max_value: float | None = None, threshold: float = 0.0
) -> Value:
    """X above a threshold, held below another number; alpha * (x - threshold) below it."""
    return activations.relu(op, tensor(op, x), alpha, max_value, threshold)


@operation(BACKEND_FUNCTIONS, "elu")
def elu(op: Builder, x: Any, alpha: float = 1.0) -> Value:
    """`x if x > 0 else alpha * (exp(x) - 1)`."""
    return op.unary("Elu", tensor(op, x), alpha=float(alpha))


@operation(BACKEND_FUNCTIONS, "hard_sigmoid")
def hard_sigmoid(op: Builder, x: Any) -> Value:
    """`min(max(0.2 * x + 0.5, 0), 1)`, as before Keras 3."""
    return FUNCTIONS["keras2_hard_sigmoid"](op, tensor(op, x))


@operation(BACKEND_FUNCTIONS, "softmax")
def softmax(op: Builder, x: Any, axis: int = -1) -> Value:
    """Softmax along an axis."""
    return op.softmax(tensor(op, x), axis)


@operation(BACKEND_FUNCTIONS, "print_tensor")
def print_tensor(op: Builder, x: Any, message: str = "", summarize: int = 3) -> Value:
    """The tensor itself."""
    del message, summarize
    return tensor(op, x)


@operation(BACKEND_FUNCTIONS, "l2_normalize")
def l2_normalize(op: Builder, x: Any, axis: Any = None) -> Value:
    """`x / sqrt(max(sum(x * x), 1e-12))` over axes."""
    return function(op, "l2_normalize", x, axis)


# -- over axes -------------------------------------------------------------------------------------


Reduction = Callable[[Builder, Value, Any, bool], Value]


def _call_named(theirs: str, dtype: str | None = None) -> Reduction:
    def compute(op: Builder, x: Value, axis: Any, keepdims: bool) -> Value:
        value = op.cast(x, dtype) if dtype else x
        return function(op, theirs, value, axis, keepdims)

    return compute


def _mean(op: Builder, x: Value, axis: Any, keepdims: bool) -> Value:
    value = op.cast(x, FLOATX) if x.dtype == "bool" else x
    return function(op, "reduce_mean", value, axis, keepdims)


def _variance(op: Builder, x: Value, axis: Any, keepdims: bool) -> Value:
    value = op.cast(x, FLOATX) if x.dtype == "bool" else x
    return function(op, "reduce_variance", value, axis, keepdims)


def _deviation(op: Builder, x: Value, axis: Any, keepdims: bool) -> Value:
    return op.unary("Sqrt", _variance(op, x, axis, keepdims))


REDUCTIONS: dict[str, Reduction] = {
    "sum": _call_named("reduce_sum"), "prod": _call_named("reduce_prod"),
    "max": _call_named("reduce_max"), "min": _call_named("reduce_min"),
    "logsumexp": _call_named("reduce_logsumexp"), "any": _call_named("reduce_any", "bool"),
    "all": _call_named("reduce_all", "bool"), "mean": _mean, "var": _variance, "std": _deviation,
}  # fmt: skip


@operation(
    BACKEND_FUNCTIONS,
    *(Variant(name, f"{name} over axes.", compute=compute) for name, compute in REDUCTIONS.items()),
)
def reduction(
    op: Builder, x: Any, axis: Any = None, keepdims: bool = False, *, compute: Reduction
) -> Value:
    """A reduction over axes."""
    return compute(op, tensor(op, x), known_axes(op, axis), bool(keepdims))


@operation(BACKEND_FUNCTIONS, "argmax")
def argmax(op: Builder, x: Any, axis: int = -1) -> Value:
    """The index of the maximum along an axis."""
    return function(op, "argmax", x, axis)


@operation(BACKEND_FUNCTIONS, "argmin")
def argmin(op: Builder, x: Any, axis: int = -1) -> Value:
    """The index of the minimum along an axis."""
    return function(op, "argmin", x, axis)


@operation(BACKEND_FUNCTIONS, "cumsum")
def cumsum(op: Builder, x: Any, axis: int = 0) -> Value:
    """The cumulative sum along an axis."""
    return function(op, "cumsum", x, axis)


@operation(BACKEND_FUNCTIONS, "cumprod")
def cumprod(op: Builder, x: Any, axis: int = 0) -> Value:
    """The cumulative product along an axis."""
    return function(op, "cumprod", x, axis)


# -- statistics ------------------------------------------------------------------------------------


@operation(BACKEND_FUNCTIONS, "batch_normalization")
def batch_normalization(
    op: Builder, x: Any, mean: Any, var: Any, beta: Any, gamma: Any, axis: int = -1,
    epsilon: float = 1e-3,
) -> Value:  # fmt: skip
    """(x - mean) / sqrt(var + epsilon) * gamma + beta."""
    value = tensor(op, x)
    if value.axis(axis) != value.rank - 1 and any(
        isinstance(part, Value) and part.rank == 1 for part in (mean, var, beta, gamma)
    ):
        raise Unsupported("batch_normalization over an axis that is not the last")
    return function(op, "batch_normalization", value, mean, var, beta, gamma, epsilon)
