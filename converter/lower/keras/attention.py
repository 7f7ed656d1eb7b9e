"""Attention layers: dot-product, additive, multi-head and grouped-query.

Masks are applied as each version of Keras does, which shows in rows that are fully masked: Keras 3
yields zeros where it computes the scores itself, and the mean of the values elsewhere.
Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/attention
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, TypeAlias

from converter.lower.builder import Builder
from converter.lower.graph import Dim
from converter.lower.keras.core import product
from converter.lower.keras.table import Masked, Roles, Unsupported, keras_layer
from converter.lower.ops.attention import (
    HALVES,
    attend,
    both,
    causal_mask,
    repeat_heads,
    window_mask,
)
from converter.lower.values import Value, total

Masks: TypeAlias = "Value | Sequence[Value | None] | None"
LOWEST = -3.38953e38 * 0.7  # what Keras gives scores that a mask hides, in float32

# -- masks -----------------------------------------------------------------------------------------


def mask_list(mask: Masks, count: int) -> list[Value | None]:
    """Return the masks of `count` inputs, None for an input without a mask."""
    found = [mask] if isinstance(mask, Value | None) else list(mask)
    return [*found, *[None] * (count - len(found))]


def expand_mask(op: Builder, mask: Value, rank: int, heads: int) -> Value:
    """Return a mask with axes of one element where the scores have their heads.

    Args:
        op: Builder.
        mask: [batch, query axes, key axes], of as many or fewer axes than the scores.
        rank: Rank of the scores.
        heads: Axis of their heads, negative.
    """
    missing = rank - mask.rank
    if missing <= 0:
        return mask
    place = mask.rank + heads + 1
    if place < 0:
        raise Unsupported(f"a mask of {mask.rank} axes for scores of {rank}")
    return op.unsqueeze(mask, list(range(place, place + missing)))


# -- one head --------------------------------------------------------------------------------------


def apply_scores(
    op: Builder, scores: Value, value: Value, masks: Sequence[Value | None], *,
    query: Value, causal: bool, return_scores: bool,
) -> Masked:  # fmt: skip
    """Return softmax(scores) @ value, with masks applied.

    Args:
        op: Builder.
        scores: [..., T, S].
        value: [..., S, V].
        masks: Masks of query and value: [..., T] and [..., S].
        query: [..., T, D]; its axis of steps gives T.
        causal: Whether a step attends only to the steps up to it.
        return_scores: Whether the weights of attention are a second output.
    """
    query_mask, value_mask = masks[0], masks[1]
    seen = None if value_mask is None else op.unsqueeze(value_mask, [-2])
    if causal:
        seen = both(op, seen, causal_mask(op, query, value))
    if seen is not None:
        # So far from zero, all scores of float16 and bfloat16 are rounded to one value.
        half = scores.dtype in HALVES
        scores = op.where(seen, scores, -65504.0 if half else op.sub(scores, 1e9))
    shares = op.softmax(scores, -1)
    result = op.matmul(shares, value)
    if query_mask is not None:
        result = op.where(op.unsqueeze(query_mask, [-1]), result, 0.0)
    return Masked([result, shares] if return_scores else result, query_mask)


@keras_layer("Attention")
def attention(
    op: Builder, w: Roles, query: Value, value: Value, key: Value | None = None, /, *,
    use_scale: bool = False, score_mode: str = "dot", dropout: float = 0.0, seed: Any = None,
    causal: bool = False, mask: Masks = None, return_attention_scores: bool = False,
    use_causal_mask: bool = False,
) -> Masked:  # fmt: skip
    """softmax(query @ key.T) @ value, or with scores sum(tanh(query + key)); scaled, masked."""
    del dropout, seed  # for training
    key = value if key is None else key
    scale = w["scale"] if use_scale else None
    if score_mode == "dot":
        order = [*range(key.rank - 2), key.rank - 1, key.rank - 2]
        scores = op.matmul(query, op.transpose(key, order))
        scores = scores if scale is None else op.mul(scores, scale)
    else:
        pairs = op.add(op.unsqueeze(query, [-2]), op.unsqueeze(key, [-3]))
        pairs = pairs if scale is None else op.mul(pairs, scale)
        sums = op.reduce("ReduceSum", op.unary("Tanh", pairs), [-1])
        scores = op.mul(sums, w["concat_score_weight"])
    return apply_scores(
        op, scores, value, mask_list(mask, 2), query=query, causal=causal or use_causal_mask,
        return_scores=return_attention_scores,
    )  # fmt: skip


@keras_layer("AdditiveAttention")
def additive_attention(
    op: Builder, w: Roles, query: Value, value: Value, key: Value | None = None, /, *,
    use_scale: bool = True, dropout: float = 0.0, seed: Any = None, causal: bool = False,
    mask: Masks = None, return_attention_scores: bool = False, use_causal_mask: bool = False,
) -> Masked:  # fmt: skip
    """softmax(sum(scale * tanh(query + key))) @ value; masked, causal."""
    del dropout, seed  # for training
    key = value if key is None else key
    pairs = op.unary("Tanh", op.add(op.unsqueeze(query, [-2]), op.unsqueeze(key, [-3])))
    pairs = op.mul(pairs, w["scale"]) if use_scale else pairs
    scores = op.reduce("ReduceSum", pairs, [-1])
    return apply_scores(
        op, scores, value, mask_list(mask, 2), query=query, causal=causal or use_causal_mask,
        return_scores=return_attention_scores,
    )  # fmt: skip


# -- several heads ---------------------------------------------------------------------------------


def dot_product(
    op: Builder, query: Value, key: Value, value: Value, *,
    scale: float, bias: Value | None = None, mask: Value | None = None, causal: bool = False,
) -> Value:  # fmt: skip
    """Return attention as `keras.ops.dot_product_attention` does, with heads in axis 2.

    Args:
        op: Builder.
        query: [B, T, N, H].
        key: [B, S, N, H], or of fewer heads, each for several of the query's.
        value: [B, S, N, V].
        scale: Factor of the products.
        bias: Added to the scores, [B, N, T, S].
        mask: True where a query attends to a key; of the same shape.
        causal: Whether a query attends only to the keys up to its own index.
    """
    order = [0, 2, 1, 3]
    q, k, v = (op.transpose(x, order) for x in (query, key, value))
    k, v = (repeat_heads(op, x, q.shape[1]) for x in (k, v))
    made = attend(
        op, q, k, v, scale=scale, bias=bias, mask=mask, is_causal=causal, hidden=LOWEST
    )  # fmt: skip
    return op.transpose(made, order)


def shares_of(
    op: Builder, scores: Value, mask: Value | None, axes: int, robust: bool | None
) -> Value:
    """Return the softmax of scores over their last axes, masked as Keras does.

    Args:
        op: Builder.
        scores: [..., query axes, key axes].
        mask: True where a query attends to a key.
        axes: How many key axes there are.
        robust: Argument of Keras 2; None for Keras 3, where rows fully masked are zeros.
    """
    if mask is not None:
        # So far from zero, all scores of float16 and bfloat16 are rounded to one value.
        half = scores.dtype in HALVES
        lowest = -1e9 if not half else -3e4 if robust is None else -65504.0 / 2
        least = op.constant(lowest, scores.dtype)
        replaced = robust is None or robust or half
        scores = op.where(mask, scores, least if replaced else op.add(scores, least))
    flat = (*scores.shape[: scores.rank - axes], total(scores.shape[scores.rank - axes :]))
    shares = op.softmax(scores if axes == 1 else op.reshape(scores, flat), -1)
    shares = shares if axes == 1 else op.reshape(shares, scores.shape)
    return shares if mask is None or robust is not None else op.where(mask, shares, 0.0)


def project(op: Builder, w: Roles, x: Value, *, use_bias: bool) -> Value:
    """Return the product of x [..., D] and a kernel [D, N, H]: [..., N, H]."""
    kernel = w["kernel"]
    *_, heads, size = kernel.shape
    width = total((heads, size))
    bias = op.reshape(w["bias"], (width,)) if use_bias else None
    wide = product(op, x, op.reshape(kernel, (kernel.shape[0], width)), bias)
    return op.reshape(wide, (*x.shape[:-1], heads, size))


def merge_heads(op: Builder, w: Roles, x: Value, *, use_bias: bool) -> Value:
    """Return the product of x [..., N, V] and a kernel [N, V, *out]: [..., *out]."""
    kernel = w["kernel"]
    out = kernel.shape[2:]
    depth, width = total(kernel.shape[:2]), total(out)
    flat = op.reshape(x, (*x.shape[:-2], depth))
    bias = op.reshape(w["bias"], (width,)) if use_bias else None
    result = product(op, flat, op.reshape(kernel, (depth, width)), bias)
    return result if len(out) == 1 else op.reshape(result, (*x.shape[:-2], *out))


@dataclass(frozen=True, slots=True)
class _Call:
    """The arguments of a call of a multi-head layer."""

    query: Value
    value: Value
    key: Value
    masks: tuple[Value | None, Value | None, Value | None]
    seen: Value | None
    has_scores: bool
    is_causal: bool


NAMES = (
    "query", "value", "key", "query_mask", "value_mask", "key_mask", "attention_mask",
    "return_attention_scores",
)  # fmt: skip


def _call(tensors: Sequence[Any], mask: Masks, given: dict[str, Any]) -> _Call:
    """Return the arguments of a call; the first ones may be positional."""
    count = sum(isinstance(t, Value) for t in tensors[:3])
    own = dict(zip(("query_mask", "value_mask", "key_mask"), mask_list(mask, count), strict=False))
    found = {k: v for k, v in own.items() if v is not None}
    found |= {k: v for k, v in given.items() if v is not None}
    found |= {k: v for k, v in zip(NAMES, tensors, strict=False) if v is not None}
    if "value" not in found:
        raise Unsupported("a call without value")
    masks = (found.get("query_mask"), found.get("value_mask"), found.get("key_mask"))
    return _Call(
        found["query"], found["value"], found.get("key", found["value"]), masks,
        found.get("attention_mask"), bool(found.get("return_attention_scores")),
        bool(found.get("use_causal_mask")),
    )  # fmt: skip


def _seen(op: Builder, call: _Call, window: int | None) -> Value | None:
    """Return [B, T, S] or [T, S]: where all masks of a call are true."""
    query_mask, value_mask, key_mask = call.masks
    masks = [None if call.seen is None else op.cast(call.seen, "bool")]
    masks.append(None if query_mask is None else op.unsqueeze(query_mask, [-1]))
    masks += [None if m is None else op.unsqueeze(m, [-2]) for m in (value_mask, key_mask)]
    masks.append(causal_mask(op, call.query, call.value, 1) if call.is_causal else None)
    masks.append(None if window is None else window_mask(op, call.query, call.value, window, 1))
    return both(op, *masks)


@keras_layer("MultiHeadAttention")
def multi_head_attention(
    op: Builder, w: Roles, *tensors: Any,
    num_heads: int, key_dim: int, value_dim: int | None = None, dropout: float = 0.0,
    use_bias: bool = True, output_shape: Any = None, attention_axes: Any = None,
    sliding_window: int | None = None, flash_attention: bool | None = None,
    use_gate: bool = False, seed: Any = None, softmax_robust_masking: bool | None = None,
    query_shape: Any = None, value_shape: Any = None, key_shape: Any = None,
    mask: Masks = None, value: Value | None = None, key: Value | None = None,
    query_mask: Value | None = None, value_mask: Value | None = None,
    key_mask: Value | None = None, attention_mask: Value | None = None,
    return_attention_scores: bool = False, use_causal_mask: bool = False,
) -> Masked:  # fmt: skip
    """Multi-head attention over one axis or several; masked, causal, windowed, gated."""
    del value_dim, output_shape, flash_attention, seed  # weights have these shapes
    del num_heads, query_shape, value_shape, key_shape
    del query_mask  # Keras always uses the mask of the query itself
    call = _call(tensors, mask, {
        "value": value, "key": key, "value_mask": value_mask, "key_mask": key_mask,
        "attention_mask": attention_mask, "return_attention_scores": return_attention_scores,
        "use_causal_mask": use_causal_mask,
    })  # fmt: skip
    return _attend_heads(
        op, w, call, key_dim, attention_axes, window=sliding_window, dropout=dropout,
        robust=softmax_robust_masking, use_bias=use_bias, use_gate=use_gate,
    )  # fmt: skip


def _attend_heads(
    op: Builder, w: Roles, call: _Call, width: int, attention_axes: Any, *, window: int | None,
    dropout: float, robust: bool | None, use_bias: bool, use_gate: bool,
) -> Masked:  # fmt: skip
    """Return multi-head attention with its input and output projections."""
    seen = _seen(op, call, window)
    q, k, v = (
        project(op, w.below(role), x, use_bias=use_bias)
        for role, x in (("query", call.query), ("key", call.key), ("value", call.value))
    )
    scale = 1 / sqrt(width)
    shares: Value | None = None
    if robust is None and q.rank == 4 and not dropout and not call.has_scores:
        seen = None if seen is None else expand_mask(op, seen, 4, -3)
        result = dot_product(op, q, k, v, scale=scale, mask=seen)
    else:
        axes = _axes(attention_axes, q.rank)
        result, shares = _over_axes(op, op.mul(q, scale), k, v, seen, axes, robust)
    if use_gate:
        gate = project(op, w.below("gate"), call.query, use_bias=use_bias)
        result = op.mul(result, op.unary("Sigmoid", gate))
    output = merge_heads(op, w.below("attention_output"), result, use_bias=use_bias)
    return Masked([output, shares] if call.has_scores else output, call.masks[0])


def _axes(attention_axes: Any, rank: int) -> list[int]:
    """Return the axes over which attention is computed, of a query with an axis of heads."""
    if attention_axes is None:
        return list(range(1, rank - 2))
    given = [attention_axes] if isinstance(attention_axes, int) else attention_axes
    return [axis + rank - 1 if axis < 0 else axis for axis in given]


def _over_axes(
    op: Builder, query: Value, key: Value, value: Value, mask: Value | None, axes: list[int],
    robust: bool | None,
) -> tuple[Value, Value]:  # fmt: skip
    """Return the result and the weights of attention over some of the axes.

    Args:
        op: Builder.
        query: [B, *axes, N, H], scaled.
        key: Like the query, with other sizes of these axes.
        value: Of the shape of the key.
        mask: [B, other axes, query axes, key axes].
        axes: Axes over which attention is computed.
        robust: See `shares_of`.
    """
    rank, count = query.rank, len(axes)
    batch = [i for i in range(rank - 1) if i not in axes]  # heads are the last of them
    order = [*batch, *axes, rank - 1]
    lines = []
    for x in (query, key, value):
        moved = op.transpose(x, order)
        head, middle = moved.shape[: len(batch)], moved.shape[len(batch) : -1]
        lines.append(op.reshape(moved, (*head, _size(middle), moved.shape[-1])))
    q, k, v = lines
    k, v = (repeat_heads(op, x, q.shape[-3]) for x in (k, v))
    swapped = [*range(k.rank - 2), k.rank - 1, k.rank - 2]
    scores = op.matmul(q, op.transpose(k, swapped))
    sizes = [[x.shape[i] for i in axes] for x in (query, key)]
    if count > 1:
        scores = op.reshape(scores, (*q.shape[:-2], *sizes[0], *sizes[1]))
    seen = None if mask is None else expand_mask(op, mask, scores.rank, -2 * count - 1)
    shares = shares_of(op, scores, seen, count, robust)
    flat = shares
    if count > 1:
        flat = op.reshape(shares, (*q.shape[:-2], _size(sizes[0]), _size(sizes[1])))
    result = op.matmul(flat, v)
    if count > 1:
        result = op.reshape(result, (*q.shape[:-2], *sizes[0], v.shape[-1]))
    back = [0] * rank
    for i, axis in enumerate(order):
        back[axis] = i
    return op.transpose(result, back), shares


def _size(sizes: Sequence[Dim]) -> Dim:
    return sizes[0] if len(sizes) == 1 else total(sizes)


@keras_layer("GroupedQueryAttention", "GroupQueryAttention")
def grouped_query_attention(
    op: Builder, w: Roles, *tensors: Any,
    head_dim: int, num_query_heads: int, num_key_value_heads: int, dropout: float = 0.0,
    use_bias: bool = True, sliding_window: int | None = None, flash_attention: bool | None = None,
    use_gate: bool = False, seed: Any = None, mask: Masks = None, value: Value | None = None,
    key: Value | None = None, query_mask: Value | None = None, value_mask: Value | None = None,
    key_mask: Value | None = None, attention_mask: Value | None = None,
    return_attention_scores: bool = False, use_causal_mask: bool = False,
) -> Masked:  # fmt: skip
    """Grouped-query attention: several heads of the query share one of key and value."""
    del flash_attention, seed, num_query_heads, num_key_value_heads  # weights have these shapes
    call = _call(tensors, mask, {
        "value": value, "key": key, "query_mask": query_mask, "value_mask": value_mask,
        "key_mask": key_mask, "attention_mask": attention_mask,
        "return_attention_scores": return_attention_scores, "use_causal_mask": use_causal_mask,
    })  # fmt: skip
    return _attend_heads(
        op, w, call, head_dim, None, window=sliding_window, dropout=dropout, robust=None,
        use_bias=use_bias, use_gate=use_gate,
    )  # fmt: skip
