"""Attention: softmax(q @ k.T * scale + mask) @ v.

Spec: https://docs.pytorch.org/docs/2.13/generated/torch.nn.functional.scaled_dot_product_attention.html
"""

import math

from converter.lower import dims
from converter.lower.ops.activation import safe_softmax
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import integer
from converter.lower.torch.shaping import repeat_interleave, swapped
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


def attend(
    op: Context, query: Value, key: Value, value: Value, mask: Value | None, *,
    causal: bool, scale: float | None, grouped: bool,
) -> Value:  # fmt: skip
    """Return what queries [..., L, E] get of values [..., S, Ev], by keys [..., S, E].

    Raises:
        Unsupported: The scale depends on a size that is not known.
    """
    query, key, value = (op.named(x) for x in (query, key, value))
    if grouped:
        key, value = (_repeated(op, x, query) for x in (key, value))
    if scale is None:
        width = query.shape[-1]
        if not isinstance(width, int):
            raise Unsupported("attention over an axis of a dynamic size, without a scale")
        scale = 1 / math.sqrt(width)
    scores = op.matmul(op.mul(query, scale), swapped(key, -2, -1))
    held = _causal(op, query, key) if causal else None
    if mask is not None and mask.dtype == "bool":
        held = mask if held is None else op.elementwise("And", held, mask)
        mask = None
    if mask is not None:
        scores = op.add(scores, op.cast(mask, scores.dtype))
    if held is None:
        found = op.softmax(scores) if mask is None else safe_softmax(op, scores, -1)
        return op.matmul(found, value)
    lowest = op.constant(-math.inf, scores.dtype)
    found = op.softmax(op.where(held, scores, lowest))
    if not causal or mask is not None:  # rows that see nothing give zeros
        found = op.where(held, found, op.constant(0.0, scores.dtype))
    return op.matmul(found, value)


def _repeated(op: Context, x: Value, query: Value) -> Value:
    """Return keys or values with each head as often as queries share it."""
    times = dims.divided(query.shape[-3], x.shape[-3])
    if times is None:
        raise Unsupported(f"{query.shape[-3]} heads of queries for {x.shape[-3]} of keys")
    return x if times == 1 else repeat_interleave(op, x, integer(times), -3)


def _causal(op: Context, query: Value, key: Value) -> Value:
    """Return which keys each query sees: those that are not behind it."""
    rows = op.unsqueeze(op.range(query.shape[-2]), [1])
    columns = op.unsqueeze(op.range(key.shape[-2]), [0])
    return op.elementwise("GreaterOrEqual", rows, columns)


@aten("scaled_dot_product_attention")
def scaled_dot_product_attention(
    op: Context, query: Value, key: Value, value: Value, attn_mask: Value | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:  # fmt: skip
    """softmax(q @ k.T * scale + mask) @ v."""
    if dropout_p:
        raise Unsupported("dropout in attention")
    return attend(
        op, query, key, value, attn_mask, causal=is_causal, scale=scale, grouped=enable_gqa
    )


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention_for_cpu(
    op: Context, query: Value, key: Value, value: Value, dropout_p: float = 0.0,
    is_causal: bool = False, attn_mask: Value | None = None, scale: float | None = None,
) -> list[Value]:  # fmt: skip
    """softmax(q @ k.T * scale + mask) @ v; what only training reads is left out."""
    return [
        scaled_dot_product_attention(op, query, key, value, attn_mask, dropout_p, is_causal, scale)
    ]


@aten("_scaled_dot_product_flash_attention")
def flash_attention(
    op: Context, query: Value, key: Value, value: Value, dropout_p: float = 0.0,
    is_causal: bool = False, return_debug_mask: bool = False, scale: float | None = None,
) -> list[Value]:  # fmt: skip
    """softmax(q @ k.T * scale) @ v; what only training reads is left out."""
    del return_debug_mask
    return [scaled_dot_product_attention(op, query, key, value, None, dropout_p, is_causal, scale)]


@aten("_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention")
def efficient_attention(
    op: Context, query: Value, key: Value, value: Value, attn_bias: Value | None,
    compute_log_sumexp: bool, dropout_p: float = 0.0, is_causal: bool = False,
    return_debug_mask: bool = False, scale: float | None = None,
) -> list[Value]:  # fmt: skip
    """softmax(q @ k.T * scale + mask) @ v; what only training reads is left out."""
    del compute_log_sumexp, return_debug_mask
    return [
        scaled_dot_product_attention(op, query, key, value, attn_bias, dropout_p, is_causal, scale)
    ]


@aten("_scaled_dot_product_attention_math")
def attention_math(
    op: Context, query: Value, key: Value, value: Value, attn_mask: Value | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, dropout_mask: Value | None = None,
    scale: float | None = None, enable_gqa: bool = False,
) -> list[Value]:  # fmt: skip
    """softmax(q @ k.T * scale + mask) @ v; what only training reads is left out."""
    if dropout_mask is not None:
        raise Unsupported("dropout in attention")
    if attn_mask is not None:  # truth values are ones and zeros to this op, and are added
        attn_mask = op.cast(attn_mask, query.dtype)
    return [
        scaled_dot_product_attention(
            op, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
        )
    ]
