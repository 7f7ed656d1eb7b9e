"""Preprocessing of numbers: rescaling, normalization, discretization, category encoding.

Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/preprocessing
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.keras.core import plain_numbers
from converter.lower.keras.images import cast_to_compute
from converter.lower.keras.table import Masked, Roles, Unsupported, keras_layer
from converter.lower.values import Value

EPSILON = 1e-7  # keras.backend.epsilon(), unless a user's own configuration of Keras differs


def dtype_named(policy: Any, default: str) -> str:
    """Return the compute dtype of a layer's dtype policy, which may be an integer dtype."""
    if isinstance(policy, Mapping):
        inner = policy.get("config")
        policy = inner.get("name") if isinstance(inner, Mapping) else None
    return policy.removeprefix("mixed_") if isinstance(policy, str) else default


@keras_layer("Rescaling")
def rescaling(
    op: Builder, w: Roles, x: Value, /, *,
    scale: Any, offset: Any = 0.0, mask: Value | None = None, passes_mask: bool = True,
) -> Masked:  # fmt: skip
    """`x * scale + offset`."""
    given = cast_to_compute(op, w, x)
    factor = op.constant(np.asarray(plain_numbers(scale), np.float64), given.dtype)
    result = op.mul(given, factor)
    moved = np.asarray(plain_numbers(offset), np.float64)
    if moved.any():
        result = op.add(result, op.constant(moved, given.dtype))
    return Masked(result, mask if passes_mask else None)


@keras_layer("Normalization")
def normalization(
    op: Builder, w: Roles, x: Value, /, *,
    axis: Any = -1, mean: Any = None, variance: Any = None, invert: bool = False,
    mask: Value | None = None, passes_mask: bool = True,
) -> Masked:  # fmt: skip
    """(x - mean) / max(sqrt(variance), epsilon), or its inverse."""
    w.leave("count")
    given = cast_to_compute(op, w, x)
    axes = [] if axis is None else [axis] if isinstance(axis, int) else list(axis)
    kept = sorted(x.axis(a) for a in axes)
    shape = [x.shape[i] if i in kept else 1 for i in range(x.rank)]

    def parameter(role: str, value: Any) -> Value:
        if value is None:
            return op.reshape(op.cast(w.exact(role), given.dtype), shape)
        array = np.asarray(plain_numbers(value), np.float64)
        # What has fewer axes than are kept belongs to the last of those.
        wide: list[int] = [1] * x.rank
        for place, n in zip(reversed(kept), reversed(array.shape), strict=False):
            wide[place] = n
        return op.constant(array.reshape(wide), given.dtype)

    center = parameter("mean", mean)
    spread = op.unary("Sqrt", parameter("variance", variance))
    spread = op.elementwise("Max", spread, op.constant(EPSILON, given.dtype))
    if invert:
        result = op.add(op.mul(given, spread), center)
    else:
        result = op.div(op.sub(given, center), spread)
    return Masked(result, mask if passes_mask else None)


@keras_layer("Discretization")
def discretization(
    op: Builder, w: Roles, x: Value, /, *,
    bin_boundaries: Any = None, num_bins: int | None = None, epsilon: float = 0.01,
    output_mode: str = "int", sparse: bool = False, dtype: Any = None,
    int_dtype: str = "int32",
) -> Value:  # fmt: skip
    """The index of the bin of each element, or its encoding."""
    del w, num_bins, epsilon
    if bin_boundaries is None:
        raise Unsupported("bins that the configuration does not have")
    bounds = np.asarray(plain_numbers(bin_boundaries), np.float32).astype(np.float64)
    wide = op.unsqueeze(op.cast(x, "float64"), [x.rank])
    # TensorFlow's bins begin with their lower bound; no number is in the last one.
    below = op.elementwise("Less", wide, op.constant(bounds, "float64"))
    bins = op.reduce("ReduceSum", op.cast(op.unary("Not", below), "int64"), [x.rank])
    dense(sparse)
    if output_mode == "int":
        return op.cast(bins, dtype_named(dtype, "int64") if int_dtype == "policy" else int_dtype)
    return encode(op, bins, output_mode, len(bounds) + 1, dtype_named(dtype, "float32"))


@keras_layer("CategoryEncoding")
def category_encoding(
    op: Builder, w: Roles, x: Value, /, *,
    num_tokens: int, output_mode: str = "multi_hot", sparse: bool = False, dtype: Any = None,
    count_weights: Value | None = None,
) -> Value:  # fmt: skip
    """Integers as one-hot vectors, multi-hot vectors or counts."""
    del w
    dense(sparse)
    kind = dtype_named(dtype, "float32")
    weights = None if count_weights is None else op.cast(count_weights, kind)
    return encode(op, x, output_mode, num_tokens, kind, weights)


def dense(sparse: bool) -> None:
    """Refuse sparse tensors, which ONNX's operators do not take."""
    if sparse:
        raise Unsupported("sparse output")


def encode(
    op: Builder, x: Value, mode: str, depth: int, dtype: str, weights: Value | None = None
) -> Value:
    """Encode categories.

    Args:
        op: Builder.
        x: Indices of categories; those outside of ``depth`` are ignored.
        mode: ``int``, ``one_hot``, ``multi_hot`` (also ``binary``) or ``count``.
        depth: How many categories there are.
        dtype: Dtype of the result.
        weights: Weight of each element, where elements are counted.
    """
    if mode == "int":
        return op.cast(x, dtype)
    numbers = op.cast(x, "int64")
    if mode == "one_hot" and x.rank > 1 and x.shape[-1] == 1:
        numbers = op.squeeze(numbers, [-1])
    every = op.constant(np.arange(depth), "int64")
    hits = op.elementwise("Equal", op.unsqueeze(numbers, [numbers.rank]), every)
    if mode == "one_hot":
        return op.cast(hits, dtype)
    # Keras counts along the axis after the batch, of vectors along the only one.
    axis = 1 if x.rank > 1 else 0
    if mode in ("multi_hot", "binary"):
        return op.cast(op.reduce("ReduceMax", op.cast(hits, "float32"), [axis]), dtype)
    if mode != "count":
        raise Unsupported(f"output_mode {mode!r}")
    if weights is None:
        return op.cast(op.reduce("ReduceSum", op.cast(hits, "float32"), [axis]), dtype)
    counted = op.mul(op.cast(hits, weights.dtype), op.unsqueeze(weights, [weights.rank]))
    return op.reduce("ReduceSum", counted, [axis])
