"""Functions over axes: sums and extremes, statistics, cumulative sums, order."""

from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.operations import products as p
from converter.lower.keras.operations.operands import all_axes, tensor
from converter.lower.keras.table import TF_FUNCTIONS, operation
from converter.lower.keras.tensorflow_ops.operands import axes, integers, known_axes
from converter.lower.keras.tensorflow_rows import call_op, call_op_of_several
from converter.lower.ops import reduce
from converter.lower.ops.sort import sort as sort_along
from converter.lower.table import Variant
from converter.lower.values import Value


def _count_nonzero(op: Builder, x: Value, axis: Value, keepdims: bool) -> Value:
    over = all_axes(x, known_axes(op, axis))
    return reduce.count_nonzero(op, x, over, "int64", keepdims=keepdims)


def _variance(op: Builder, x: Value, axis: Value, keepdims: bool) -> Value:
    mean = call_op(op, "Mean", x, axis, keep_dims=True)
    away = call_op(op, "SquaredDifference", x, mean)
    return call_op(op, "Mean", away, axis, keep_dims=keepdims)


def _deviation(op: Builder, x: Value, axis: Value, keepdims: bool) -> Value:
    return op.unary("Sqrt", _variance(op, x, axis, keepdims))


def _logsumexp(op: Builder, x: Value, axis: Value, keepdims: bool) -> Value:
    return reduce.logsumexp(op, x, all_axes(x, known_axes(op, axis)), keepdims=keepdims)


# fmt: off
OPS = {
    "reduce_sum": "Sum", "reduce_prod": "Prod", "reduce_max": "Max", "reduce_min": "Min",
    "reduce_mean": "Mean", "reduce_euclidean_norm": "EuclideanNorm", "reduce_all": "All",
    "reduce_any": "Any",
}
COMPUTED = {
    "count_nonzero": _count_nonzero, "reduce_variance": _variance, "reduce_std": _deviation,
    "reduce_logsumexp": _logsumexp,
}
# fmt: on


@operation(
    TF_FUNCTIONS,
    *(Variant(name, f"{name} over axes.", compute=op_type) for name, op_type in OPS.items()),
    *(Variant(name, f"{name} over axes.", compute=found) for name, found in COMPUTED.items()),
)
def reduction(
    op: Builder, input_tensor: Any, axis: Any = None, keepdims: bool | None = False, *,
    compute: Any, keep_dims: bool | None = None, reduction_indices: Any = None,
    dtype: str | None = None,
) -> Value:  # fmt: skip
    """A reduction over axes."""
    x, keep = tensor(op, input_tensor), bool(keepdims or keep_dims)
    over = axes(op, reduction_indices if axis is None else axis, x)
    if isinstance(compute, str):
        value = call_op(op, compute, x, over, keep_dims=keep)
    else:
        value = compute(op, x, over, keep)
    return op.cast(value, dtype) if dtype else value


@operation(
    TF_FUNCTIONS,
    Variant("argmax", "The index of the maximum along an axis.", op_type="ArgMax"),
    Variant("argmin", "The index of the minimum along an axis.", op_type="ArgMin"),
)
def index_of_extreme(
    op: Builder, input: Any, axis: Any = None, output_type: str = "int64", *, op_type: str,
    dimension: Any = None,
) -> Value:  # fmt: skip
    """The index of the maximum or minimum along an axis."""
    along = dimension if axis is None else axis
    over = integers(op, 0 if along is None else along)
    return call_op(op, op_type, tensor(op, input), over, output_type=output_type)


@operation(
    TF_FUNCTIONS,
    Variant("cumsum", "The cumulative sum along an axis.", op_type="Cumsum"),
    Variant("cumprod", "The cumulative product along an axis.", op_type="Cumprod"),
)
def cumulate(
    op: Builder, x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, *,
    op_type: str,
) -> Value:  # fmt: skip
    """The cumulative sum or product along an axis, from either end."""
    over = integers(op, axis)
    return call_op(op, op_type, tensor(op, x), over, exclusive=exclusive, reverse=reverse)


@operation(TF_FUNCTIONS, "top_k")
def top_k(
    op: Builder, input: Any, k: Any = 1, sorted: bool = True, index_type: str = "int32"
) -> list[Value]:
    """The k largest elements along the last axis, and their indices."""
    x, count = tensor(op, input), integers(op, k)
    return call_op_of_several(op, "TopKV2", x, count, sorted=sorted, index_type=index_type)


@operation(TF_FUNCTIONS, "in_top_k")
def in_top_k(op: Builder, targets: Any, predictions: Any, k: int) -> Value:
    """Whether fewer than k predictions are larger than that of the target."""
    given = tensor(op, predictions), tensor(op, targets), integers(op, k)
    return call_op(op, "InTopKV2", *given)


@operation(TF_FUNCTIONS, "sort")
def sort(op: Builder, values: Any, axis: int = -1, direction: str = "ASCENDING") -> Value:
    """Elements sorted along an axis."""
    return sort_along(op, tensor(op, values), axis, descending=direction == "DESCENDING")[0]


@operation(TF_FUNCTIONS, "argsort")
def argsort(
    op: Builder, values: Any, axis: int = -1, direction: str = "ASCENDING", stable: bool = False
) -> Value:
    """Indices that sort the elements along an axis."""
    del stable  # of equal ones the first comes first in any case
    found = sort_along(op, tensor(op, values), axis, descending=direction == "DESCENDING")[1]
    return op.cast(found, "int32")


@operation(TF_FUNCTIONS, "l2_normalize")
def l2_normalize(
    op: Builder, x: Any, axis: Any = None, epsilon: float = 1e-12, *, dim: Any = None
) -> Value:
    """`x / sqrt(max(sum(x * x), epsilon))` over axes."""
    value = tensor(op, x)
    over = axes(op, dim if axis is None else axis, value)
    power = call_op(op, "Sum", op.mul(value, value), over, keep_dims=True)
    least = op.elementwise("Max", power, op.constant(epsilon, value.dtype))
    return op.mul(value, call_op(op, "Rsqrt", least))


@operation(TF_FUNCTIONS, "norm")
def norm(
    op: Builder, tensor_: Any, ord: Any = "euclidean", axis: Any = None,
    keepdims: bool | None = False, *, keep_dims: bool | None = None,
) -> Value:  # fmt: skip
    """A norm of vectors, Euclidean by default."""
    value = tensor(op, tensor_)
    over = all_axes(value, known_axes(op, axis))
    kind = None if ord in ("euclidean", "fro") else ord
    return p.norm(op, value, ord=kind, axis=over, keepdims=bool(keepdims or keep_dims))


@operation(TF_FUNCTIONS, "moments")
def moments(
    op: Builder, x: Any, axes: Any, shift: Any = None, keepdims: bool | None = False, *,
    keep_dims: bool | None = None,
) -> list[Value]:  # fmt: skip
    """Mean and variance over axes."""
    del shift  # unused by TensorFlow too
    value, keep, over = tensor(op, x), bool(keepdims or keep_dims), integers(op, axes)
    wide = op.cast(value, "float32") if value.dtype in ("float16", "bfloat16") else value
    found = call_op(op, "Mean", wide, over, keep_dims=keep), _variance(op, wide, over, keep)
    return [op.cast(v, value.dtype) for v in found]
