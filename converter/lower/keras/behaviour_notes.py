"""Changes of behaviour since a file was written, within Keras 2 and within Keras 3.

A file of Keras 2 is interpreted as by the last Keras 2, one of Keras 3 as by today's: these
are what loads them, and what a graph is compared with. Where the Keras that wrote one computed
otherwise, the graph's notes say so.
Spec: https://github.com/keras-team/keras/tree/v3.3.3/keras/src/layers/merging, and v3.4.1, v3.11.3
and v3.12.0; keras/src/layers/preprocessing of v3.7.0 and v3.8.0; keras/layers/attention of v2.9.0
and v2.10.0.
"""

from collections.abc import Iterator

from converter.lower.keras.model import Layer, Model
from converter.lower.keras.weight_mapping import layers_of

MERGES = frozenset(("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"))
AND = "joined the masks of what it was given by And, which today are joined by Or"
# Classes, the first Keras that does as today's does, whether only masks are concerned, and what
# those before it did.
CHANGES = (
    (MERGES, (3, 4), True, AND),
    (frozenset(("Concatenate",)), (3, 12), True, AND),
    (frozenset(("MultiHeadAttention",)), (2, 10), True, "heeded no mask that it was not given"),
    (frozenset(("RandomCrop",)), (3, 8), False, "cut or resized images outside training, too"),
)


def since(model: Model, version: str) -> Iterator[str]:
    """Yield what the Keras that wrote a model did otherwise than today's.

    Args:
        model: Model, with the models nested in it.
        version: Version of that Keras, as recorded.
    """
    parts = version.split(".")[:2]
    if len(parts) < 2 or not all(part.isdecimal() and len(part) < 4 for part in parts):
        return
    major, minor = map(int, parts)
    layers = [layer for _, layer in layers_of(model)]
    masked = any(map(_makes_mask, layers))
    for layer in layers:
        for classes, first, of_masks, otherwise in CHANGES:
            is_older = major == first[0] and minor < first[1]
            if is_older and layer.class_name in classes and (masked or not of_masks):
                yield f"{layer.class_name} {layer.name} of Keras {version} {otherwise}"


def _makes_mask(layer: Layer) -> bool:
    return layer.class_name == "Masking" or bool(layer.config.get("mask_zero"))
