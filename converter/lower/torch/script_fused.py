"""Ops that torch makes of whole layers where nothing is trained: traces of attention have them.

They are put together again from the parts that the layers' own text would have.
Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/transformers/transformer.cpp
"""

from typing import TYPE_CHECKING

from converter.lower.gap import Gap
from converter.lower.torch.references import Reference
from converter.lower.torch.script_ops import special
from converter.lower.torch.script_things import Items, Thing

if TYPE_CHECKING:
    from converter.lower.torch.script_walk import Walker

# What a mask of attention says (`mask_type`).
BETWEEN_STEPS, OF_STEPS, OF_BOTH = 0, 1, 2


class _Calls:
    """Ops of tensors, by name."""

    def __init__(self, walker: "Walker") -> None:
        self.walker = walker

    def __call__(self, name: str, *args: Thing) -> Thing:
        return self.walker.tensor_op(name, list(args), {})


@special("_native_multi_head_attention")
def multi_head_attention(
    walker: "Walker", query: Reference, key: Reference, value: Reference, embed_dim: int,
    num_head: int, qkv_weight: Reference, qkv_bias: Reference, proj_weight: Reference,
    proj_bias: Reference, mask: Reference | None = None, need_weights: bool = True,
    average_attn_weights: bool = True, mask_type: int | None = None,
) -> Thing:  # fmt: skip
    """Attention of several heads, and what it attended to."""
    call = _Calls(walker)
    given = [query, key, value]
    if query is key and key is value:
        both = call("linear", query, qkv_weight, qkv_bias)
        parts = call("chunk", both, 3, -1)
    else:
        weights, biases = call("chunk", qkv_weight, 3, 0), call("chunk", qkv_bias, 3, 0)
        parts = [
            call("linear", x, w, b) for x, w, b in zip(given, weights, biases, strict=True)
        ]  # fmt: skip
    size = embed_dim // num_head
    heads = [
        call("transpose", call("unflatten", part, -1, Items([num_head, size])), 1, 2)
        for part in parts
    ]
    scaled = call("mul", heads[0], float(size) ** -0.5)
    scores = call("matmul", scaled, call("transpose", heads[1], -2, -1))
    if mask is not None:
        scores = call("masked_fill", scores, _mask(call, mask, mask_type), float("-inf"))
    attended = call("softmax", scores, -1)
    mixed = call("flatten", call("transpose", call("matmul", attended, heads[2]), 1, 2), 2, 3)
    out = call("linear", mixed, proj_weight, proj_bias)
    if not need_weights:
        return (out, None)
    return (out, call("mean", attended, Items([1])) if average_attn_weights else attended)


def _mask(call: _Calls, mask: Reference, kind: int | None) -> Thing:
    """Return a mask for [batch, heads, steps, steps]: true where nothing is attended to."""
    value = mask.read()
    if value.dtype != "bool":  # as torch has it, with a warning
        mask = call("ne", mask, 0)
    rank = value.rank
    if kind == OF_STEPS and rank == 2:
        return call("unsqueeze", call("unsqueeze", mask, 1), 1)
    if (kind in (BETWEEN_STEPS, None) and rank == 2) or rank == 4:
        return mask
    raise Gap(f"a mask of {rank} axes")


@special("_transformer_encoder_layer_fwd")
def encoder_layer(
    walker: "Walker", src: Reference, embed_dim: int, num_heads: int, qkv_weight: Reference,
    qkv_bias: Reference, proj_weight: Reference, proj_bias: Reference, use_gelu: bool,
    norm_first: bool, eps: float, norm_weight_1: Reference, norm_bias_1: Reference,
    norm_weight_2: Reference, norm_bias_2: Reference, ffn_weight_1: Reference,
    ffn_bias_1: Reference, ffn_weight_2: Reference, ffn_bias_2: Reference,
    mask: Reference | None = None, mask_type: int | None = None,
) -> Thing:  # fmt: skip
    """A layer of a transformer's encoder."""
    call = _Calls(walker)

    def norm(x: Thing, weight: Reference, bias: Reference) -> Thing:
        return call("layer_norm", x, Items([embed_dim]), weight, bias, eps)

    def attention(x: Thing) -> Thing:
        return multi_head_attention(
            walker, x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias,
            mask, need_weights=False, mask_type=mask_type,
        )[0]  # fmt: skip

    def forward(x: Thing) -> Thing:
        inner = call("linear", x, ffn_weight_1, ffn_bias_1)
        return call("linear", call("gelu" if use_gelu else "relu", inner), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = call("add", src, attention(norm(src, norm_weight_1, norm_bias_1)))
        return call("add", x, forward(norm(x, norm_weight_2, norm_bias_2)))
    x = norm(call("add", src, attention(src)), norm_weight_1, norm_bias_1)
    return norm(call("add", x, forward(x)), norm_weight_2, norm_bias_2)
