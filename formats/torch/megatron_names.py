"""How Megatron names parameters, and along which axis tensor parallelism splits each.

Spec: https://github.com/NVIDIA/Megatron-LM/blob/core_v0.10.0/tools/checkpoint/loader_megatron.py
and ``sharded_state_dict`` of the modules in ``megatron/core/transformer``
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

LAYER = re.compile(r"(.*?\blayers\.)(\d+)(\..+)")
EXPERT = re.compile(r"(.*\.local_experts\.|.*\.experts\.linear_fc[12]\.(?:weight|bias))(\d+)(.*)")
# The axis of layers comes first where one tensor has all of them: `layers.` without a number.
STACKED = re.compile(r"((?:.*\.)?layers\.)(?!\d)(.+)")
EXTRA_STATE = re.compile(r".*\._extra_state(?:/shard_[\d._]+)?")
EMBEDDING = re.compile(r".*\bword_embeddings\.weight")
# What the last stage calls its own copy of the embedding, which one rank does not have.
TIED = re.compile(r"(?:.*\.)?(?:output_layer|word_embeddings_for_head)\.weight")

_SUFFIX = r"\.(?:weight|bias)\d*"
_COLUMN = re.compile(
    r".*\b(?:word_embeddings(?:_for_head)?|output_layer|query_key_value|query|key_value|dense_h_to_4h"
    rf"|linear_qkv|linear_q|linear_kv|linear_(?:q|kv)_up_proj|linear_q_proj|linear_fc1){_SUFFIX}"
    r"|(?:.*\.)?lm_head\.bias"
)
_ROW = re.compile(r".*\b(?:\w*attention\.dense|linear_proj|dense_4h_to_h|linear_fc2)\.weight\d*")
_WHOLE = re.compile(
    r".*\b(?:\w*norm|position_embeddings|tokentype_embeddings|pooler\.dense|lm_head\.dense"
    rf"|binary_head|router|\w*attention\.dense|linear_proj|dense_4h_to_h|linear_fc2){_SUFFIX}"
    r"|.*\.layer_norm_(?:weight|bias)|.*\binv_freq"
)
_GATED = re.compile(r"(.*\b)(linear_fc1|dense_h_to_4h)\.(?:weight|bias)(\d*)")
_FUSED = re.compile(r".*\b(query_key_value|key_value)\.(?:weight|bias)")
_SECOND = {"linear_fc1": "linear_fc2", "dense_h_to_4h": "dense_4h_to_h"}
INTERLEAVED = 1.0  # version of checkpoints from which the parts of a fused projection are by head


class Split(NamedTuple):
    """How a tensor is split among ranks.

    Attributes:
        axis: Of the split; None where each rank has all of it.
        blocks: How many tensors of one shape are fused along the axis.
    """

    axis: int | None
    blocks: int = 1


def find_split(name: str, shapes: Mapping[str, tuple[int, ...]], version: float) -> Split | None:
    """Return how a parameter is split; None where its name is unknown.

    Args:
        name: Of the parameter.
        shapes: Of all parameters of one rank and stage, by name.
        version: Of the checkpoint, as it records it.
    """
    if _ROW.fullmatch(name):
        return Split(1)
    if not _COLUMN.fullmatch(name):
        return Split(None) if _WHOLE.fullmatch(name) else None
    if match := _FUSED.fullmatch(name):
        fused = 3 if match[1] == "query_key_value" else 2
        return Split(0, fused if version < INTERLEAVED else 1)
    if match := _GATED.fullmatch(name):
        # A gated unit has twice the rows that the next layer has columns.
        second = shapes.get(f"{match[1]}{_SECOND[match[2]]}.weight{match[3]}", ())
        rows, columns = shapes[name][:1], second[1:]
        if rows == columns:
            return Split(0)
        return Split(0, 2) if columns and rows == (2 * columns[0],) else None
    return Split(0)


def renumber(pattern: "re.Pattern[str]", name: str, start: int) -> str:
    """Return a name with the number that a pattern finds in it raised by ``start``."""
    match = pattern.fullmatch(name)
    return f"{match[1]}{int(match[2]) + start}{match[3]}" if match else name
