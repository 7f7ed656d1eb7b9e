"""Upgrades of older Keras's recurrent layers and wrappers.

Arguments that only these rules set:

- ``masked_beside``: whether a mask is used in a call that gives initial states too.
"""

from dataclasses import replace

from converter.lower.keras.model import Layer
from converter.lower.keras.version_upgrades import Age, rule

RECURRENT = (
    "SimpleRNN", "LSTM", "GRU", "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "Bidirectional",
)  # fmt: skip


@rule
def reset_before_the_product(layer: Layer, age: Age) -> Layer | None:
    """Reset a GRU before the product where ``reset_after`` is missing: before Keras 2.1.5."""
    if layer.class_name not in ("GRU", "GRUCell") or age.major > 2:
        return None
    if "reset_after" in layer.config:
        return None
    return replace(layer, config={**layer.config, "reset_after": False})


@rule
def masks_of_time_distributed(layer: Layer, age: Age) -> Layer | None:
    """Pass on the mask of the inner layer of TimeDistributed, as Keras 1 and 2 do."""
    if layer.class_name != "TimeDistributed" or age.major > 2:
        return None
    return replace(layer, class_name="Keras2TimeDistributed")


@rule
def masks_beside_states(layer: Layer, age: Age) -> Layer | None:
    """Use a sequence's mask also with initial states, as Keras 1 and 2 do."""
    if layer.class_name not in RECURRENT or age.major > 2:
        return None
    return replace(layer, config={**layer.config, "masked_beside": True})
