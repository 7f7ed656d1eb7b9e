"""The weights of each layer, by role, among the tensors of a bundle.

A reader names a tensor ``<layer>/<role>``, with the models around the layer in front where two
would be equal. In an HDF5 file a tensor's origin also says which layer of the outermost model it
belongs to, whatever an old Keras called the variable.
"""

from collections.abc import Iterator, Mapping, Sequence

from converter.lower.keras.model import Layer, Model
from formats.core.weights import Tensor
from formats.keras.variable_names import Object, snake_case, variables

Path = tuple[str, ...]  # names of the models around a layer, and its own


def infer_backend(weights: Mapping[str, Tensor]) -> str | None:
    """Return the backend of a whole model in HDF5 by how its weights are called there.

    Keras 1 recorded no backend. TensorFlow ends the names of its variables with the number of an
    output (``dense_1_W:0``), Theano does not (``dense_1_W``).
    """
    named = [t.origin for t in weights.values() if t.origin.lstrip("/").startswith("model_weights")]
    if not named:
        return None
    return "tensorflow" if any(":" in name.rpartition("/")[2] for name in named) else "theano"


def layers_of(model: Model, above: Path = ()) -> Iterator[tuple[Path, Layer]]:
    """Yield every layer that is no model, with its path."""
    for name, layer in model.layers.items():
        if layer.model is not None:
            yield from layers_of(layer.model, (*above, name))
        else:
            yield (*above, name), layer


def map_weights(model: Model, weights: Mapping[str, Tensor]) -> dict[Path, dict[str, str]]:
    """Return for each layer its tensors: role, below the layer → name in the bundle."""
    layers = dict(layers_of(model))
    by_label: dict[str, list[Path]] = {}
    for path in layers:
        for label in _labels(path):
            by_label.setdefault(label, []).append(path)
    found: dict[Path, dict[str, str]] = {path: {} for path in layers}
    leftover: dict[str, list[str]] = {}
    unowned: dict[str, str] = {}  # origin in a weight store -> name
    for name, tensor in weights.items():
        top = _top_group(tensor.origin)
        owner = _owner(name, top, by_label)
        if owner is None:
            if top is not None:
                leftover.setdefault(top, []).append(name)
            else:
                unowned[tensor.origin] = name
            continue
        label = next(label for label in _labels(owner) if name.startswith(f"{label}/"))
        found[owner][name.removeprefix(f"{label}/")] = name
    for top, names in leftover.items():
        for path, own in _unnamed(top, names, layers).items():
            if not found[path]:
                found[path] = _by_order(layers[path], own)
    for path, group in _store_groups(model) if unowned else ():
        if not found[path]:  # a model inside it is named as if it were on its own
            origins = [origin for origin in unowned if origin.startswith(group)]
            found[path] = {origin.removeprefix(group): unowned[origin] for origin in origins}
    return found


def _store_groups(
    model: Model, above: Path = (), below: str = "/layers/"
) -> Iterator[tuple[Path, str]]:
    """Yield every layer that is no model, with the group of a weight store that it lies in.

    Keras names groups by class and number: keras/src/saving/saving_lib.py, _save_container_state.
    """
    used: dict[str, int] = {}
    for name, layer in model.layers.items():
        if ".ops." in (layer.module or ""):
            continue  # an operation in the graph; model.layers does not list it
        base = snake_case("Functional" if layer.class_name == "Model" else layer.class_name)
        number = used[base] = used.get(base, -1) + 1
        group = f"{below}{base}_{number}/" if number else f"{below}{base}/"
        if layer.model is not None:
            yield from _store_groups(layer.model, (*above, name), f"{group}layers/")
        else:
            yield (*above, name), group


def _unnamed(top: str, names: Sequence[str], layers: Mapping[Path, Layer]) -> dict[Path, list[str]]:
    """Return the tensors of a group that no layer's name leads to, by layer.

    Args:
        top: The group.
        names: Names of its tensors, in order.
        layers: All there are.
    """
    alone = [path for path in layers if path[-1] == top]
    if (top,) in layers or len(alone) == 1:
        return {(top,) if (top,) in layers else alone[0]: list(names)}
    # A model's group: Keras 1 calls weights "dense_1_W". It did not write what a model in a
    # Sequential one is called: then all of them are looked through.
    inside = [path for path in layers if top in path]
    nested = [path for path in layers if len(path) > 1]
    return (
        _by_heads(names, inside, layers)
        or _by_heads(names, nested, layers)
        or _by_roles(names, inside, layers)
        or _by_unique_roles(names, inside, layers)
    )


def _by_heads(
    names: Sequence[str], paths: Sequence[Path], layers: Mapping[Path, Layer]
) -> dict[Path, list[str]]:
    """Return tensors by the layers that they are named after; none, if there are others."""
    heads = [(f"{head}_", path) for path in paths for head in _heads(layers[path])]
    heads.sort(key=lambda found: len(found[0]), reverse=True)
    found: dict[Path, list[str]] = {}
    for name in names:
        own = name.rpartition("/")[2]
        path = next((path for head, path in heads if own.startswith(head)), None)
        if path is None:
            return {}
        found.setdefault(path, []).append(name)
    return found


def _by_roles(
    names: Sequence[str], paths: Sequence[Path], layers: Mapping[Path, Layer]
) -> dict[Path, list[str]]:
    """Return tensors that are called as what they are alone: of the one layer that has such.

    tf.keras names what a layer learned of data before it was called after no layer.
    """
    own = [name.rpartition("/")[2] for name in names]
    lacking = [p for p in paths if all(layers[p].config.get(role) is None for role in own)]
    described = {p: Object(layers[p].name, layers[p].class_name, layers[p].config) for p in lacking}
    found = [p for p in lacking if sorted(variables(described[p], len(own))) == sorted(own)]
    return {found[0]: list(names)} if len(found) == 1 else {}


def _by_unique_roles(
    names: Sequence[str], paths: Sequence[Path], layers: Mapping[Path, Layer]
) -> dict[Path, list[str]]:
    """Return tensors that are called by their roles alone, by the one layer that has such a role.

    The first versions of Keras 3 write no layer's name in a model's group, and so only models in
    which no two layers have a role in common; none where two have, or a tensor has no layer.
    """
    left = {name.rpartition("/")[2]: name for name in names}
    found: dict[Path, list[str]] = {}
    for path in paths:
        described = Object(layers[path].name, layers[path].class_name, layers[path].config)
        for count in range(len(names), 0, -1):
            roles = variables(described, count)
            if roles and all(role in left for role in roles):
                found[path] = [left.pop(role) for role in roles]
                break
    return {} if left or len(found) < 2 else found


def _heads(layer: Layer) -> Iterator[str]:
    """Yield what Keras 1's names of a layer's weights begin with: its own name, or its layer's."""
    yield layer.name
    inner = layer.config.get("layer")
    config = inner.get("config") if isinstance(inner, Mapping) else None
    if isinstance(config, Mapping) and isinstance(config.get("name"), str):
        yield config["name"]
        if layer.class_name == "Bidirectional":
            yield f"forward_{config['name']}"
            yield f"backward_{config['name']}"


def _labels(path: Path) -> list[str]:
    """Return what the names of a layer's tensors may begin with, the longest first."""
    labels = ["/".join(path[-n:]) for n in range(len(path), 0, -1)]
    # A model inside a wrapper may go without its name.
    return labels if len(path) < 3 else [*labels[:1], "/".join((path[0], *path[2:])), *labels[1:]]


def _top_group(origin: str) -> str | None:
    """Return the group of an HDF5 file that a tensor lies in; groups are layers there."""
    parts = [part for part in origin.split("/") if part]
    if parts[:1] == ["model_weights"]:
        parts = parts[1:]
    return (
        parts[0]
        if len(parts) > 1 and parts[0] not in ("layers", "_layer_checkpoint_dependencies")
        else None
    )


def _owner(name: str, top: str | None, by_label: Mapping[str, Sequence[Path]]) -> Path | None:
    cuts = [i for i, c in enumerate(name) if c == "/"]
    for cut in reversed(cuts):  # the longest name of a layer that this one begins with
        paths = by_label.get(name[:cut], ())
        if len(paths) > 1:
            paths = [p for p in paths if p[0] == top] or [min(paths, key=len)]
        if paths:
            return paths[0]
    return None


def _by_order(layer: Layer, names: Sequence[str]) -> dict[str, str]:
    """Return roles by position, as Keras itself assigns weights."""
    described = Object(layer.name, layer.class_name, layer.config)
    roles = variables(described, len(names))
    if not roles:
        roles = tuple(str(i) for i in range(len(names)))
    return dict(zip(roles, names, strict=True))
