"""TensorFlow's functions that code calls and no TFOpLambda names: old ones, and makers of tensors.

Where TensorFlow 0 took the arguments of a function in another order, their kinds tell which it is.
Spec: https://www.tensorflow.org/versions/r1.15/api_docs/python/tf
"""

from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.graph import Attribute
from converter.lower.keras.core import einsum_shape
from converter.lower.keras.lambda_tensors import function, parts
from converter.lower.keras.operations.operands import tensor
from converter.lower.keras.table import (
    BACKEND_FUNCTIONS,
    OPERATIONS,
    TF_CALLED,
    Unsupported,
    operation,
)
from converter.lower.keras.tensorflow_ops.operands import known_axis, same_dtype
from converter.lower.ops import random
from converter.lower.ops.einsum import contract
from converter.lower.table import Variant
from converter.lower.values import Value

# -- by older names --------------------------------------------------------------------------------

# fmt: off
UNARY = {"neg": "negative", "inv": "reciprocal", "swish": "silu", "complex_abs": "abs"}
BINARY = {"sub": "subtract", "mul": "multiply", "mod": "floormod"}
CASTS = {
    "to_float": "float32", "to_double": "float64", "to_int32": "int32", "to_int64": "int64",
}
# fmt: on


@operation(
    TF_CALLED,
    *(Variant(name, f"{today}(x).", today=today) for (name, today) in UNARY.items()),
)
def function_of_one(op: Builder, x: Any, *, today: str) -> Any:
    """A function of one tensor under its old name."""
    return function(op, today, x)


@operation(
    TF_CALLED,
    *(Variant(name, f"{today}(x, y).", today=today) for (name, today) in BINARY.items()),
)
def function_of_two(op: Builder, x: Any, y: Any, *, today: str) -> Any:
    """A function of two tensors under its old name."""
    return function(op, today, x, y)


@operation(
    TF_CALLED,
    *(Variant(name, f"x as {dtype}.", dtype=dtype) for (name, dtype) in CASTS.items()),
)
def cast_to(op: Builder, x: Any, *, dtype: str) -> Value:
    """The tensor cast to the dtype that the function is named after."""
    return tensor(op, x, dtype)


@operation(TF_CALLED, "batch_matmul")
def batch_matmul(op: Builder, x: Any, y: Any, adj_x: bool = False, adj_y: bool = False) -> Value:
    """The matrix product."""
    return function(op, "matmul", x, y, adj_x, adj_y)


@operation(TF_CALLED, "pack")
def pack(op: Builder, values: Any, axis: int = 0) -> Value:
    """Tensors stacked along a new axis."""
    return function(op, "stack", values, axis)


@operation(TF_CALLED, "unpack")
def unpack(op: Builder, value: Any, num: int | None = None, axis: int = 0) -> list[Value]:
    """The slices of a tensor along an axis."""
    return parts(op, "unstack", value, num, axis)


@operation(TF_CALLED, "select")
def select(op: Builder, condition: Any, t: Any, e: Any) -> Value:
    """`t` where the condition is true, else `e`."""
    return function(op, "where", condition, t, e)


@operation(TF_CALLED, "concat")
def concat(op: Builder, values: Any, axis: Any = None, *, concat_dim: Any = None) -> Value:
    """Tensors concatenated along an axis, which is the first argument in TensorFlow 0."""
    if isinstance(values, int) and isinstance(axis, list | tuple):
        values, axis = axis, values
    place = concat_dim if axis is None else axis
    if place is None or not isinstance(values, list | tuple):
        raise Unsupported("concat of what are no tensors")
    return function(op, "concat", list(values), place)


@operation(TF_CALLED, "split")
def split(
    op: Builder, value: Any, num_or_size_splits: Any = None, axis: Any = 0, num: int | None = None,
    *, split_dim: int | None = None, num_split: int | None = None,
) -> list[Value]:  # fmt: skip
    """A tensor split along an axis, which is the first argument in TensorFlow 0."""
    if isinstance(value, int) and isinstance(axis, Value):
        value, num_or_size_splits, axis = axis, num_or_size_splits, value
    sizes = num_split if num_or_size_splits is None else num_or_size_splits
    place = axis if split_dim is None else split_dim
    if not isinstance(value, Value) or sizes is None:
        raise Unsupported("split of what is no tensor")
    size = value.shape[value.axis(known_axis(op, place))]
    if isinstance(sizes, int) and isinstance(size, int) and (sizes < 1 or size % sizes):
        raise Unsupported(f"an axis of {size} cut in {sizes} equal parts")
    return parts(op, "split", value, sizes, place, num)


# -- tensors of numbers ----------------------------------------------------------------------------


@operation(TF_CALLED, "constant", "Variable")
def constant(op: Builder, value: Any, dtype: str | None = None, shape: Any = None) -> Value:
    """A constant, or the initial value of a variable."""
    made = tensor(op, value, dtype)
    return made if shape is None else op.expand(made, tuple(shape))


@operation(TF_CALLED, "convert_to_tensor")
def convert_to_tensor(
    op: Builder, value: Any, dtype: str | None = None, dtype_hint: Any = None
) -> Value:
    """A tensor, or a constant as one."""
    del dtype_hint
    return tensor(op, value, dtype)


@operation(TF_CALLED, "ensure_shape")
def ensure_shape(op: Builder, x: Any, shape: Any) -> Value:
    """The tensor, which TensorFlow refuses if it has another shape."""
    del shape
    return tensor(op, x)


@operation(TF_CALLED, "identity_n", "tuple")
def identity_n(op: Builder, input: Any) -> list[Value]:
    """The tensors unchanged."""
    return [tensor(op, part) for part in input]


@operation(TF_CALLED, "eye")
def eye(
    op: Builder, num_rows: int, num_columns: int | None = None, batch_shape: Any = None,
    dtype: str = "float32",
) -> Value:  # fmt: skip
    """The identity matrix."""
    if batch_shape is not None or not isinstance(num_rows, int):
        raise Unsupported("identity matrices whose number or size is computed")
    return op.constant(np.eye(num_rows, num_columns), dtype)


@operation(TF_CALLED, "einsum")
def einsum(op: Builder, equation: Any, *inputs: Any) -> Value:
    """An einsum."""
    if not isinstance(equation, str) or not inputs:
        raise Unsupported("einsum without an equation")
    operands = same_dtype(op, *inputs)
    shape = einsum_shape(equation.replace(" ", ""), *operands)
    return contract(op, equation.replace(" ", ""), *operands, shape=shape)


@operation(TF_CALLED, "meshgrid")
def meshgrid(op: Builder, *vectors: Any, indexing: str = "xy") -> list[Value]:
    """Coordinate grids of vectors."""
    made: list[Value] = OPERATIONS["Meshgrid"].handler(
        op, *same_dtype(op, *vectors), indexing=indexing
    )
    return made


@operation(TF_CALLED, "lrn")
def lrn(
    op: Builder, input: Any, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0,
    beta: float = 0.5,
) -> Value:  # fmt: skip
    """Local response normalization over neighbouring channels."""
    return function(op, "local_response_normalization", input, depth_radius, bias, alpha, beta)


@operation(TF_CALLED, "l2_loss")
def l2_loss(op: Builder, t: Any) -> Value:
    """`sum(x * x) / 2`."""
    value = tensor(op, t)
    return op.mul(op.reduce("ReduceSum", op.mul(value, value), list(range(value.rank))), 0.5)


# -- random numbers --------------------------------------------------------------------------------


def draw(op: Builder, op_type: str, shape: Any, dtype: str, **how: Attribute) -> Value:
    """Return numbers that ONNX draws: others than TensorFlow's, of the same distribution."""
    if dtype not in random.DRAWN:
        raise Unsupported(f"random numbers of {dtype}")
    like = function(op, "fill", shape, op.constant(0, dtype))
    random.record(op, op_type)
    return random.draw(op, op_type, like.shape, lambda: op.sizes_of(like, like.shape), dtype, how)


@operation(TF_CALLED, "random_normal", "random.normal")
@operation(BACKEND_FUNCTIONS, "random_normal")
def random_normal(
    op: Builder, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: str | None = None,
    seed: Any = None, *, std: Any = None,
) -> Value:  # fmt: skip
    """Normally distributed values, other than TensorFlow draws."""
    del seed
    numbers = draw(op, "RandomNormal", shape, dtype or "float32", mean=0.0, scale=1.0)
    spread = stddev if std is None else std
    wide = numbers if spread == 1.0 else op.mul(*same_dtype(op, numbers, spread))
    return wide if mean == 0.0 else op.add(*same_dtype(op, wide, mean))


@operation(TF_CALLED, "random_uniform", "random.uniform")
@operation(BACKEND_FUNCTIONS, "random_uniform")
def random_uniform(
    op: Builder, shape: Any, minval: Any = 0.0, maxval: Any = 1.0, dtype: str | None = None,
    seed: Any = None,
) -> Value:  # fmt: skip
    """Uniform values between two bounds, other than TensorFlow draws."""
    del seed
    low, high = (0.0 if minval is None else minval), (1.0 if maxval is None else maxval)
    if isinstance(low, Value) or isinstance(high, Value):
        raise Unsupported("random numbers between bounds that are computed")
    return draw(op, "RandomUniform", shape, dtype or "float32", low=float(low), high=float(high))


@operation(BACKEND_FUNCTIONS, "random_binomial", "random_bernoulli")
def random_binomial(
    op: Builder, shape: Any, p: float = 0.0, dtype: str | None = None, seed: Any = None
) -> Value:
    """Bernoulli values, other than TensorFlow draws."""
    del seed
    shares = draw(op, "RandomUniform", shape, "float32", low=0.0, high=1.0)
    return op.cast(op.elementwise("LessOrEqual", shares, p), dtype or "float32")


def drop_elements(op: Builder, x: Any, rate: Any, noise_shape: Any) -> Value:
    """Return x / (1 - rate), with zeros as often as the rate says: where it is called, always."""
    value = tensor(op, x)
    if noise_shape is not None or not isinstance(rate, int | float) or not 0 <= rate < 1:
        raise Unsupported("dropout of a rate or a shape that is computed")
    if rate == 0:
        return value
    shares = draw(op, "RandomUniform", function(op, "shape", value), "float32", low=0.0, high=1.0)
    kept = op.elementwise("GreaterOrEqual", shares, rate)
    return op.where(kept, op.div(value, 1.0 - rate), op.constant(0.0, value.dtype))


@operation(BACKEND_FUNCTIONS, "dropout")
def dropout(op: Builder, x: Any, level: Any, noise_shape: Any = None, seed: Any = None) -> Value:
    """Dropout, also at inference; other elements are dropped than by TensorFlow."""
    del seed
    return drop_elements(op, x, level, noise_shape)


@operation(TF_CALLED, "dropout")
def dropout_of_tensorflow(
    op: Builder, x: Any, part: Any = None, noise_shape: Any = None, seed: Any = None, *,
    rate: Any = None, keep_prob: Any = None, tensorflow: int | None = None,
) -> Value:  # fmt: skip
    """Dropout by a rate of elements to keep (TensorFlow 1) or to drop (TensorFlow 2)."""
    del seed
    if rate is None and keep_prob is None:
        if tensorflow is None:
            raise Unsupported("dropout, whose arguments differ between TensorFlow 1 and 2")
        rate, keep_prob = (part, None) if tensorflow >= 2 else (None, part)
    if rate is None and isinstance(keep_prob, int | float):
        rate = 1 - keep_prob
    return drop_elements(op, x, rate, noise_shape)
