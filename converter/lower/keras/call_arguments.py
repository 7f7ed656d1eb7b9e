"""Tensors that a layer is called with by keyword, moved to their positions in its signature.

``MultiHeadAttention()(query=x, value=y)`` is recorded with names, ``Dense()(inputs=x)`` as well:
handlers take their tensors by position.
Source: the signatures of ``call`` in https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from converter.lower.keras.model import MODELS, Call, Layer, references
from converter.lower.keras.table import row_of

# What layers call their first argument; only the layers below take further tensors by position.
FIRST = ("inputs", "sequences", "sequence", "data", "images", "x", "query", "input_tensor")
ATTENTION = ("query", "value", "key")
SIGNATURES = {
    "MultiHeadAttention": ATTENTION, "GroupedQueryAttention": ATTENTION,
    "GroupQueryAttention": ATTENTION,
}  # fmt: skip


def place_tensors(layer: Layer) -> Layer:
    """Return a layer whose calls pass the first tensors of its signature by position."""
    calls = tuple(_place_arguments(layer.class_name, call) for call in layer.calls)
    if calls == layer.calls or not _is_kerass(layer):
        return layer
    return replace(layer, calls=calls)


def _is_kerass(layer: Layer) -> bool:
    """Return whether a layer is of Keras, so that its signature is known."""
    return layer.class_name in MODELS or row_of(layer.module, layer.class_name) is not None


def _place_arguments(class_name: str, call: Call) -> Call:
    names: tuple[str, ...] = SIGNATURES.get(class_name, ())
    if not call.arguments and not names:
        names = tuple(name for name in FIRST if _is_tensors(call.keywords, name))[:1]
    given, keywords = list(call.arguments), dict(call.keywords)
    for name in names[len(given) :]:
        if not _is_tensors(keywords, name):
            break
        given.append(keywords.pop(name))
    return Call(tuple(given), keywords) if len(given) > len(call.arguments) else call


def _is_tensors(keywords: Mapping[str, Any], name: str) -> bool:
    return any(references(keywords.get(name)))
