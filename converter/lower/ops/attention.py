"""Scaled dot-product attention: softmax(query @ key.T * scale + bias) @ value, and its masks.

Tensors are [..., heads, length, width]. A mask is true where a query attends to a key.
"""

from dataclasses import replace
from math import inf

from converter.lower import dims
from converter.lower.builder import Builder
from converter.lower.graph import Dim
from converter.lower.known_values import count, size
from converter.lower.ops.activation import safe_softmax
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

HALVES = ("float16", "bfloat16")


def attend(
    op: Builder, query: Value, key: Value, value: Value, *, scale: float,
    bias: Value | None = None, mask: Value | None = None, is_causal: bool = False,
    hidden: float = -inf,
) -> Value:  # fmt: skip
    """Return scaled dot-product attention; scores of float16 and bfloat16 are in float32.

    Args:
        op: Builder.
        query: [..., L, E].
        key: [..., S, E].
        value: [..., S, V].
        scale: Factor of the products.
        bias: Addend of the scores, which are [..., L, S].
        mask: Keys that each query attends to; broadcast against the scores.
        is_causal: Whether query i attends only to keys 0 to i.
        hidden: Score of a masked key. With minus infinity, a query with all keys masked yields
            zeros; with a finite score, the mean of all values.
    """
    single = "float32" if query.dtype in HALVES else query.dtype
    q, k = op.cast(query, single), op.cast(key, single)
    swapped = [*range(k.rank - 2), k.rank - 1, k.rank - 2]
    scores = op.matmul(op.mul(q, scale), op.transpose(k, swapped))
    if bias is not None:
        scores = op.add(scores, op.cast(bias, single))
    seen = both(op, mask, causal_mask(op, query, key) if is_causal else None)
    if seen is not None:
        scores = op.where(seen, scores, op.constant(hidden, single))
    may_see_none = hidden == -inf and (bias is not None or mask is not None)
    weights = safe_softmax(op, scores) if may_see_none else op.softmax(scores)
    return op.matmul(op.cast(weights, value.dtype), value)


def repeat_heads(op: Builder, x: Value, heads: Dim) -> Value:
    """Repeat each head of keys or values [..., heads, S, E] to match the heads of the queries.

    Raises:
        Unsupported: The number of query heads is not a static multiple of the number of heads.
    """
    own = x.shape[-3]
    times = dims.divide_exactly(heads, own)
    if own in (heads, 1):  # a single head is broadcast
        return x
    if not isinstance(times, int):
        raise Unsupported(f"{heads} heads of queries for {own} of keys")
    at = count(op, size(op, x, -3) * times) // times
    repeated = op.gather(x, at.value, -3)
    return replace(repeated, shape=(*x.shape[:-3], heads, *x.shape[-2:]))


# -- masks -----------------------------------------------------------------------------------------


def both(op: Builder, *masks: Value | None) -> Value | None:
    """Return the conjunction of masks; None if all of them are None."""
    result: Value | None = None
    for mask in masks:
        if mask is not None:
            result = mask if result is None else op.elementwise("And", result, mask)
    return result


def causal_mask(op: Builder, query: Value, key: Value, axis: int = -2) -> Value:
    """Return a mask [L, S]: the index of a query along an axis is at least that of a key."""
    rows, columns = (count(op, size(op, x, axis)) for x in (query, key))
    shape = (query.shape[axis], key.shape[axis])
    return replace((rows.column() >= columns).value, shape=shape)


def window_mask(op: Builder, query: Value, key: Value, width: int, axis: int = -2) -> Value:
    """Return a mask [L, S]: the indices of a query and a key differ by less than a width."""
    rows, columns = (count(op, size(op, x, axis)) for x in (query, key))
    shape = (query.shape[axis], key.shape[axis])
    return replace(((rows.column() - columns).size() < width).value, shape=shape)
