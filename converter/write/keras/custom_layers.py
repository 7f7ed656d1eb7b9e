"""Layers of trusted modules, written as Keras 3 recorded them.

Such a file loads where the module is installed: Keras finds the class by its registered name, or
imports it. Weights keep the paths below the layer that they had in a `.keras` file. An .h5 file
does not record these paths; from it, only the layer's own weights are supported, not those of its
parts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from converter.child.trust import Trusted
from converter.lower.keras.model import Model
from converter.lower.keras.table import LAYERS, Unsupported, is_authors
from converter.lower.keras.trusted import Modules
from converter.lower.keras.weight_mapping import Path, layers_of
from formats.core.bundle import Bundle
from formats.core.weights import Tensor

Entry = Mapping[str, Any]


def find_custom_layers(model: Model, bundle: Bundle, trust: Sequence[Trusted]) -> dict[Path, Entry]:
    """Return the serialized layers whose classes are of trusted modules, by path.

    Models older than Keras 3 have none: their classes are not those of Keras 3.
    """
    version = str(bundle.metadata.recorded.get("keras_version", ""))
    if not trust or version.split(".")[0] != "3":
        return {}
    content = bundle.topology.content if bundle.topology is not None else None
    recorded = dict(_find_entries(content, ()))
    modules = Modules(trust)
    found: dict[Path, Entry] = {}
    for path, layer in layers_of(model):
        if not is_authors(layer.module) and layer.class_name in LAYERS:
            continue
        entry, subject = recorded.get(path), modules.class_of(layer)
        if entry is None or subject is None or subject.kind != "class" or subject.supply.alias:
            continue
        found[path] = {
            # Keras 3 files in HDF5 record at most the package of a class, not its module.
            "module": entry.get("module") or subject.supply.trusted.module,
            "class_name": layer.class_name,
            "config": dict(entry["config"]),
            "registered_name": entry.get("registered_name") or str(entry["class_name"]),
            **({"build_config": entry["build_config"]} if entry.get("build_config") else {}),
        }
    return found


def _find_entries(entry: Any, path: Path) -> "list[tuple[Path, Entry]]":
    """Return the entries of a model's layers, and of nested models' layers."""
    config = entry.get("config") if isinstance(entry, Mapping) else None
    layers = config.get("layers") if isinstance(config, Mapping) else None
    found: list[tuple[Path, Entry]] = []
    for layer in layers if isinstance(layers, list) else ():
        inner = layer.get("config") if isinstance(layer, Mapping) else None
        if isinstance(inner, Mapping):
            own = (*path, str(layer.get("name") or inner.get("name")))
            found += [(own, layer), *_find_entries(layer, own)]
    return found


def locate_weights(
    path: Path, weights: Mapping[str, str], tensors: Mapping[str, Tensor]
) -> dict[str, str]:
    """Return the path below the layer of each of its weights, by name.

    Args:
        path: Of the layer.
        weights: Role → name of the tensor.
        tensors: Of the bundle.

    Raises:
        Unsupported: The source does not record it.
    """
    found: dict[str, str] = {}
    for number, (role, name) in enumerate(weights.items()):
        parts = [part for part in tensors[name].origin.split("/") if part]
        above, below = parts[: 2 * len(path)], parts[2 * len(path) :]
        if set(above[::2]) == {"layers"} and "vars" in below:
            found[name] = "/".join(below)
        elif "/" not in role and parts[:1] != ["layers"]:
            found[name] = f"vars/{number}"
        else:
            raise Unsupported(
                f"weight {role}, of which an .h5 file does not say which part has it,"
            )
    return found
