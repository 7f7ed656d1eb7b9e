"""Scaled dot-product attention: softmax(q @ k.T * scale + mask) @ v.

Spec: https://docs.pytorch.org/docs/2.13/generated/torch.nn.functional.scaled_dot_product_attention.html
"""

import math

from converter.lower.ops.attention import HALVES, attend, repeat_heads
from converter.lower.torch.context import Context
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


@aten("scaled_dot_product_attention")
def scaled_dot_product_attention(
    op: Context, query: Value, key: Value, value: Value, attn_mask: Value | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:  # fmt: skip
    """softmax(q @ k.T * scale + mask) @ v."""
    if dropout_p:
        raise Unsupported("dropout in attention")
    query, key, value = (op.named(x) for x in (query, key, value))
    if scale is None:
        width = query.shape[-1]
        if isinstance(width, int):
            scale = 1 / math.sqrt(width)
        else:
            wide = op.cast(query, "float32") if query.dtype in HALVES else query
            root = op.unary("Sqrt", op.scalar_of(width, wide.dtype))
            query, scale = op.div(wide, root), 1.0
    is_mask = attn_mask is not None and attn_mask.dtype == "bool"
    if enable_gqa:
        key, value = (repeat_heads(op, x, query.shape[-3]) for x in (key, value))
    return attend(
        op, query, key, value, scale=scale,
        bias=None if is_mask else attn_mask, mask=attn_mask if is_mask else None,
        is_causal=is_causal,
    )  # fmt: skip


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention_for_cpu(
    op: Context, query: Value, key: Value, value: Value, dropout_p: float = 0.0,
    is_causal: bool = False, attn_mask: Value | None = None, scale: float | None = None,
) -> list[Value]:  # fmt: skip
    """softmax(q @ k.T * scale + mask) @ v; outputs for training are left out."""
    return [
        scaled_dot_product_attention(op, query, key, value, attn_mask, dropout_p, is_causal, scale)
    ]


@aten("_scaled_dot_product_flash_attention")
def flash_attention(
    op: Context, query: Value, key: Value, value: Value, dropout_p: float = 0.0,
    is_causal: bool = False, return_debug_mask: bool = False, scale: float | None = None,
) -> list[Value]:  # fmt: skip
    """softmax(q @ k.T * scale) @ v; outputs for training are left out."""
    del return_debug_mask
    return [scaled_dot_product_attention(op, query, key, value, None, dropout_p, is_causal, scale)]


@aten("_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention")
def efficient_attention(
    op: Context, query: Value, key: Value, value: Value, attn_bias: Value | None = None,
    compute_log_sumexp: bool = False, dropout_p: float = 0.0, is_causal: bool = False,
    return_debug_mask: bool = False, scale: float | None = None,
) -> list[Value]:  # fmt: skip
    """softmax(q @ k.T * scale + mask) @ v; outputs for training are left out."""
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
    """softmax(q @ k.T * scale + mask) @ v; outputs for training are left out."""
    if dropout_mask is not None:
        raise Unsupported("dropout in attention")
    if attn_mask is not None:  # this op adds booleans, as ones and zeros
        attn_mask = op.cast(attn_mask, query.dtype)
    return [
        scaled_dot_product_attention(
            op, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
        )
    ]
