"""What torch computes in one op where a module is several: traces made for inference hold these.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/transformers/transformer.cpp
and attention.cpp beside it; WeightNorm.cpp in the folder above.
"""

import math

from converter.lower.ops.activation import gelu, relu
from converter.lower.torch.context import Context
from converter.lower.torch.linear import linear
from converter.lower.torch.normalization import layer_norm
from converter.lower.torch.reductions import norm_of
from converter.lower.torch.shaping import swap_axes
from converter.lower.torch.slicing import chunk
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

# What a mask says: of which keys each query sees; of which keys there are; or of both, by heads.
BY_QUERY, BY_KEY, BY_HEAD = 0, 1, 2


@aten("_weight_norm")
def weight_norm(op: Context, v: Value, g: Value, dim: int = 0) -> Value:
    """v, with each slice along an axis scaled to the norm in g."""
    return weight_norm_interface(op, v, g, dim)[0]


@aten("_weight_norm_interface")
def weight_norm_interface(op: Context, v: Value, g: Value, dim: int = 0) -> list[Value]:
    """v, with each slice along an axis scaled to the norm in g, and the former norms."""
    axes = None if dim == -1 else [i for i in range(v.rank) if i != v.axis(dim)]
    length = norm_of(op, v, 2.0, axes, keepdim=dim != -1)
    return [op.mul(v, op.div(g, length)), length]


@aten("_native_multi_head_attention")
def multi_head_attention(
    op: Context, query: Value, key: Value, value: Value, embed_dim: int, num_head: int,
    qkv_weight: Value, qkv_bias: Value, proj_weight: Value, proj_bias: Value,
    mask: Value | None = None, need_weights: bool = True, average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> list[Value]:  # fmt: skip
    """nn.MultiheadAttention of [batch, length, features], its projections included."""
    if query is key and key is value:
        parts = chunk(op, linear(op, query, qkv_weight, qkv_bias), 3, -1)
    else:
        weights, biases = chunk(op, qkv_weight, 3, 0), chunk(op, qkv_bias, 3, 0)
        given = zip((query, key, value), weights, biases, strict=True)
        parts = [linear(op, x, weight, bias) for x, weight, bias in given]
    width = embed_dim // num_head
    q, k, v = (_by_head(op, part, num_head, width) for part in parts)
    scores = op.matmul(op.mul(q, 1 / math.sqrt(width)), swap_axes(k, -2, -1))
    found = _masked_softmax(op, scores, mask, mask_type)
    heads = swap_axes(op.matmul(found, v), 1, 2)
    together = op.reshape(heads, (*query.shape[:2], embed_dim))
    made = linear(op, together, proj_weight, proj_bias)
    if not need_weights:
        return [made, op.constant([], "float32")]
    if average_attn_weights:
        found = op.reduce("ReduceMean", found, [1], keepdims=False)
    return [made, found]


def _by_head(op: Context, x: Value, heads: int, width: int) -> Value:
    """Return [batch, length, features] as [batch, heads, length, width]."""
    return swap_axes(op.reshape(x, (*x.shape[:2], heads, width)), 1, 2)


def _masked_softmax(op: Context, scores: Value, mask: Value | None, mask_type: int | None) -> Value:
    """Return the softmax of scores [batch, heads, queries, keys] where a mask is not true."""
    if mask is None:
        return op.softmax(scores)
    if mask.dtype != "bool":  # torch warns, and takes what is not zero for true
        mask = op.cast(mask, "bool")
    if mask_type == BY_KEY:
        mask = op.unsqueeze(mask, [1, 2])
    elif mask_type not in (None, BY_QUERY, BY_HEAD):
        raise Unsupported(f"a mask of type {mask_type}")
    hidden = op.where(mask, op.constant(-math.inf, scores.dtype), scores)
    return op.softmax(hidden)


@aten("_transformer_encoder_layer_fwd")
def transformer_encoder_layer(
    op: Context, src: Value, embed_dim: int, num_heads: int, qkv_weight: Value, qkv_bias: Value,
    proj_weight: Value, proj_bias: Value, use_gelu: bool, norm_first: bool, eps: float,
    norm_weight_1: Value, norm_bias_1: Value, norm_weight_2: Value, norm_bias_2: Value,
    ffn_weight_1: Value, ffn_bias_1: Value, ffn_weight_2: Value, ffn_bias_2: Value,
    mask: Value | None = None, mask_type: int | None = None,
) -> Value:  # fmt: skip
    """nn.TransformerEncoderLayer: attention, two linear layers and two normalizations."""

    def normed(x: Value, weight: Value, bias: Value) -> Value:
        return layer_norm(op, x, (embed_dim,), weight, bias, eps)

    x = normed(src, norm_weight_1, norm_bias_1) if norm_first else src
    seen, _ = multi_head_attention(
        op, x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask,
        need_weights=False, mask_type=mask_type,
    )  # fmt: skip
    x = op.add(seen, src)
    if not norm_first:
        x = normed(x, norm_weight_1, norm_bias_1)
    given = normed(x, norm_weight_2, norm_bias_2) if norm_first else x
    inside = linear(op, given, ffn_weight_1, ffn_bias_1)
    inside = gelu(op, inside) if use_gelu else relu(op, inside)
    x = op.add(linear(op, inside, ffn_weight_2, ffn_bias_2), x)
    return x if norm_first else normed(x, norm_weight_2, norm_bias_2)
