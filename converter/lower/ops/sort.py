"""Sorting: top-k, quantiles, search in sorted sequences, membership and unique elements."""

from collections.abc import Sequence
from math import inf, nan
from typing import NamedTuple

from converter.lower import dims
from converter.lower.builder import Builder
from converter.lower.graph import Attribute, Dim, Shape
from converter.lower.known_values import Numbers, size, whole
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38,
           "float64": 1.7976931348623157e308}  # fmt: skip


def top_k(
    op: Builder, x: Value, axis: int, count: Dim, vector: Value, *,
    largest: bool = True, in_order: bool = True, is_nan_largest: bool = False,
) -> tuple[Value, Value]:  # fmt: skip
    """Return the largest or smallest elements along an axis, and their indices (int64).

    With a NaN among the elements, onnxruntime's order is arbitrary, as is TensorFlow's.

    Args:
        op: Builder.
        x: Tensor of rank 1 or more; equal elements keep their order.
        axis: Axis.
        count: Number of elements, as far as it is known.
        vector: Number of elements as a vector of one element.
        largest: Whether to return the largest elements, in descending order.
        in_order: Whether the result must be sorted.
        is_nan_largest: Whether NaN is larger than infinity, as in torch.
    """
    axis = x.axis(axis)
    if is_nan_largest and x.is_float:
        largest_finite = op.constant(LARGEST[x.dtype], x.dtype)
        finite = op.elementwise("Min", x, largest_finite)
        keys = op.where(op.unary("IsNaN", x), op.constant(inf, x.dtype), finite)
        _, indices = top_k(op, keys, axis, count, vector, largest=largest, in_order=in_order)
        x, at = op.plain(x), op.plain(indices)
        return op.emit("GatherElements", x, at, dtype=x.dtype, shape=at.shape, axis=axis), indices
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    how = {"axis": x.stored.index(axis), "largest": int(largest), "sorted": int(in_order)}
    values, indices = op.node(
        "TopK", [x, vector], [(x.dtype, shape), ("int64", shape)], attributes=how, stored=x.stored
    )
    return values, indices


def sort(op: Builder, x: Value, axis: int, *, descending: bool = False) -> tuple[Value, Value]:
    """Sort elements along an axis; return them and their original indices (int64)."""
    return top_k(op, x, axis, x.shape[x.axis(axis)], op.size(x, x.axis(axis)), largest=descending)


def quantile(
    op: Builder, x: Value, shares: Numbers, axes: Sequence[int], *,
    method: str = "linear", keepdims: bool = False,
) -> Value:  # fmt: skip
    """Return quantiles of x over axes.

    Args:
        op: Builder.
        x: Floating-point tensor; a quantile over any NaN is NaN.
        shares: Probabilities from 0 to 1: a scalar, or a vector whose axis is first in the result.
        axes: Axes in ascending order.
        method: Interpolation between two elements: linear, lower, higher, nearest or midpoint.
        keepdims: Whether the axes are kept with size 1.

    Raises:
        Unsupported: The method is not supported.
    """
    kept = [i for i in range(x.rank) if i not in axes]
    line = op.transpose(x, [*kept, *axes])
    count = whole(op, 1)
    for i in axes:
        count = count * size(op, x, i)
    if len(axes) != 1:
        flat = None if count.known is None else int(count.known)
        line = op.reshape(line, (*(x.shape[i] for i in kept), flat))
    rising, last = sort(op, line, -1)[0], count - 1
    exact = last.to("float64") * shares.to("float64")
    low, high = exact.floor().to("int64"), exact.ceil().to("int64")

    def take(indices: Numbers) -> Value:
        return op.gather(rising, indices.most(0).least(last).value, -1)

    if method == "linear":
        lower = (high - 1).most(0)
        upper = (lower + 1).least(last)
        share = (upper.to("float64") - exact).to("float32").to(x.dtype).value
        found = op.add(op.mul(take(upper), op.sub(1.0, share)), op.mul(take(lower), share))
    elif method == "midpoint":
        found = op.mul(op.add(take(low), take(high)), 0.5)
    elif method in ("lower", "higher", "nearest"):
        nearest = exact.to_even().to("int64")
        found = take({"lower": low, "higher": high, "nearest": nearest}[method])
    else:
        raise Unsupported(f"method {method!r}")
    is_nan = op.reduce("ReduceMax", op.cast(op.unary("IsNaN", line), "int32"), [-1], keepdims=True)
    is_nan = is_nan if shares.rank else op.squeeze(is_nan, [-1])
    found = op.where(op.cast(is_nan, "bool"), op.constant(nan, x.dtype), found)
    if keepdims:
        found = op.unsqueeze(found, list(axes))  # before the axis of the shares is moved to front
    return op.transpose(found, [found.rank - 1, *range(found.rank - 1)]) if shares.rank else found


def count_before(op: Builder, rising: Value, x: Value, *, or_equal: bool) -> Value:
    """Count the elements of a sorted sequence that are less than each element of x (int32).

    Args:
        op: Builder.
        rising: Sorted sequences along the last axis; a vector applies to all of x.
        x: Tensor of the same dtype; with the same leading axes unless `rising` is a vector.
        or_equal: Whether equal elements count.
    """
    rows = rising if rising.rank == 1 else op.unsqueeze(rising, [-2])
    passed = op.elementwise("LessOrEqual" if or_equal else "Less", rows, op.unsqueeze(x, [-1]))
    return op.reduce("ReduceSum", op.cast(passed, "int32"), [-1])


def is_in(op: Builder, x: Value, others: Value) -> Value:
    """Return whether each element of x is in a vector of the same dtype."""
    same = op.elementwise("Equal", op.unsqueeze(x, [-1]), others)
    return op.reduce("ReduceMax", same, [-1])


def is_in_top_k(op: Builder, predictions: Value, targets: Value, k: Value) -> Value:
    """Return whether fewer than k predictions are larger than the prediction of the target.

    Args:
        op: Builder.
        predictions: Floating-point tensor [batch, classes]; false for rows that are not finite.
        targets: Indices [batch]; false for indices out of range.
        k: Scalar.
    """
    zero, indices = op.constant(0, "int64"), op.cast(targets, "int64")
    last = op.sub(op.size(predictions, 1), op.constant(1, "int64"))
    safe = op.elementwise("Min", op.elementwise("Max", indices, zero), last)
    places = op.unsqueeze(safe, [1])
    shape = (targets.shape[0], 1)
    own = op.emit(
        "GatherElements", predictions, places, dtype=predictions.dtype, shape=shape, axis=1
    )
    larger = op.cast(op.elementwise("Greater", predictions, own), "int64")
    fewer = op.elementwise("Less", op.reduce("ReduceSum", larger, [1]), op.cast(k, "int64"))
    # A non-finite element times 0 is NaN, and so is the sum.
    nothing = op.reduce("ReduceSum", op.mul(predictions, 0.0), [1])
    is_finite = op.elementwise("Equal", nothing, 0.0)
    is_inside = op.elementwise("Equal", safe, indices)
    return op.elementwise("And", op.elementwise("And", fewer, is_inside), is_finite)


# Dtype without a kernel for onnxruntime's Unique -> a dtype with one that holds the same values.
UNIQUE = {
    "bool": "int8", "uint8": "int64", "int16": "int64", "uint16": "int64", "int32": "int64",
    "uint32": "int64", "uint64": "int64", "float16": "float32", "bfloat16": "float32",
}  # fmt: skip


class Unique(NamedTuple):
    """The unique elements of a tensor, or its unique slices along an axis.

    Attributes:
        values: The unique elements or slices.
        first: Index of the first occurrence of each, in the flattened tensor or along the axis.
        inverse: Index among the unique ones of each element of the flattened tensor, or slice.
        counts: Number of occurrences of each. All indices and counts are int64 vectors.
    """

    values: Value
    first: Value
    inverse: Value
    counts: Value


def find_unique(
    op: Builder, x: Value, axis: int | None = None, *, in_order: bool = False
) -> Unique:
    """Find the unique elements of a tensor, or its unique slices along an axis.

    Args:
        op: Builder.
        x: Tensor of rank 1 or more.
        axis: Axis of the slices.
        in_order: Whether results are in ascending order, else in order of first occurrence.
    """
    dtype = UNIQUE.get(x.dtype, x.dtype)
    counted: tuple[str, Shape] = ("int64", (None,))
    shape: Shape = (None,)
    attributes: dict[str, Attribute] = {"sorted": int(in_order)}
    length = dims.product(x.shape)
    if axis is not None:
        attributes["axis"] = place = x.axis(axis)
        shape = (*x.shape[:place], None, *x.shape[place + 1 :])
        length = x.shape[place]
    found, *places = op.node(
        "Unique", [op.plain(op.cast(x, dtype))],
        [(dtype, shape), counted, ("int64", (length,)), counted], attributes=attributes,
    )  # fmt: skip
    return Unique(op.cast(found, x.dtype), *places)
