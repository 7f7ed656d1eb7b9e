"""Find the layers of a model that may get masks, which Keras before 3 used differently."""

from collections.abc import Mapping
from typing import Any

from converter.lower.keras.model import Layer, Model, Reference, references
from converter.lower.keras.table import table_of
from converter.lower.keras.weight_mapping import Path

RECURRENT = frozenset(("SimpleRNN", "LSTM", "GRU", "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"))


def find_masked_layers(model: Model) -> set[Path]:
    """Return the paths of layers with an input that may have a mask."""
    found: set[Path] = set()
    _follow_masks(model, (), set(), found)
    return found


def _follow_masks(model: Model, path: Path, masked: set[Reference], found: set[Path]) -> bool:
    """Record the layers that masks reach; return whether a mask leaves the model."""
    made = set(masked)
    changed = True
    while changed:  # layers are not sorted by their calls
        changed = False
        for name, layer in model.layers.items():
            own = (*path, name)
            for number, call in enumerate(layer.calls):
                given = [*references(call.arguments), *references(call.keywords)]
                is_reached = call.keywords.get("mask") is not None or any(
                    (r.layer, r.call) in {(m.layer, m.call) for m in made} for r in given
                )
                if is_reached:
                    found.add(own)
                out = Reference(name, number, 0)
                if out not in made and _passes_mask(layer, own, is_reached, found):
                    made.add(out)
                    changed = True
    return any((r.layer, r.call) in {(m.layer, m.call) for m in made}
               for r in references(model.outputs))  # fmt: skip


def _passes_mask(layer: Layer, path: Path, is_reached: bool, found: set[Path]) -> bool:
    """Return whether the output of a layer has a mask."""
    if layer.class_name.endswith("TimeDistributed") and _makes_masks(layer.config.get("layer")):
        found.add(path)
        return True
    if layer.model is not None:
        inputs = set(references(layer.model.inputs)) if is_reached else set()
        return _follow_masks(layer.model, path, inputs, found) or (
            is_reached and layer.class_name.endswith("TimeDistributed")
        )
    if layer.class_name == "Masking" or layer.config.get("mask_zero"):
        return True
    row = table_of(layer.module).get(layer.class_name)
    if not is_reached or row is None:
        return is_reached
    if layer.class_name in RECURRENT and not layer.config.get("return_sequences"):
        return bool(layer.config.get("return_state"))
    return row.takes_mask or row.mask != "drop"


def _makes_masks(entry: Any) -> bool:
    """Return whether a serialised layer, or one inside it, makes masks."""
    if isinstance(entry, Mapping):
        if entry.get("class_name") == "Masking" or entry.get("mask_zero"):
            return True
        return any(_makes_masks(part) for part in entry.values())
    return isinstance(entry, list) and any(_makes_masks(part) for part in entry)
