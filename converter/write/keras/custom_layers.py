"""Layers of trusted modules: written as Keras 3 recorded them, for those modules' own classes.

Such a file loads where the module is: Keras finds the class by its registered name, or imports it.
Where a class keeps its weights is its own business: they stand below the layer as they stood in a
`.keras` file; of an .h5 file, which does not say, only what is the layer's own and no part's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from converter.child.trust import Trusted
from converter.lower.keras.model import Model
from converter.lower.keras.owners import Path, layers_of
from converter.lower.keras.table import LAYERS, Gap, is_authors
from converter.lower.keras.trusted import Modules
from formats.core.bundle import Bundle
from formats.core.weights import Tensor

Entry = Mapping[str, Any]


def own_layers(model: Model, bundle: Bundle, trust: Sequence[Trusted]) -> dict[Path, Entry]:
    """Return the layers that are classes of trusted modules, by path, as they shall be written.

    Of models older than Keras 3 there are none: their classes are not today's.
    """
    version = str(bundle.metadata.recorded.get("keras_version", ""))
    if not trust or version.split(".")[0] != "3":
        return {}
    content = bundle.topology.content if bundle.topology is not None else None
    recorded = dict(_entries(content, ()))
    modules = Modules(trust)
    found: dict[Path, Entry] = {}
    for path, layer in layers_of(model):
        if not is_authors(layer.module) and layer.class_name in LAYERS:
            continue
        entry, subject = recorded.get(path), modules.class_of(layer)
        if entry is None or subject is None or subject.kind != "class" or subject.supply.alias:
            continue
        found[path] = {
            # Files of Keras 3 in HDF5 say at most the package of a class, which is no module.
            "module": entry.get("module") or subject.supply.trusted.module,
            "class_name": layer.class_name,
            "config": dict(entry["config"]),
            "registered_name": entry.get("registered_name") or str(entry["class_name"]),
            **({"build_config": entry["build_config"]} if entry.get("build_config") else {}),
        }
    return found


def _entries(entry: Any, path: Path) -> "list[tuple[Path, Entry]]":
    """Return the entries of a model's layers, and of those of models in it."""
    config = entry.get("config") if isinstance(entry, Mapping) else None
    layers = config.get("layers") if isinstance(config, Mapping) else None
    found: list[tuple[Path, Entry]] = []
    for layer in layers if isinstance(layers, list) else ():
        inner = layer.get("config") if isinstance(layer, Mapping) else None
        if isinstance(inner, Mapping):
            own = (*path, str(layer.get("name") or inner.get("name")))
            found += [(own, layer), *_entries(layer, own)]
    return found


def places(path: Path, weights: Mapping[str, str], tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return where below the layer each of its weights stands, by name.

    Args:
        path: Of the layer.
        weights: Role → name of the tensor.
        tensors: Of the bundle.

    Raises:
        Gap: The source does not say.
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
            raise Gap(f"weight {role}, of which an .h5 file does not say which part has it,")
    return found
