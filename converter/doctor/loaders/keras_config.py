"""Walk a configuration as a loader of Keras builds the model: layer by layer, in order."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from converter.doctor.findings import Failure
from converter.doctor.loaders.keras_layers import check_layer
from converter.doctor.loaders.keras_loader import UNLOCATED, Loader, read_classes
from converter.doctor.loaders.keras_shapes import check_shapes

MODELS = ("Sequential", "Functional", "Model")
UNKNOWN_LAYER = (
    "Unknown layer: '{}'. Please ensure you are using a `keras.utils.custom_object_scope`"
)
LIST_STYLE = "pop expected at most 1 argument, got 2"


def find_first_failure(config: Any, loader: Loader) -> Failure | None:
    """Return how a loader fails on the configuration of a model; None if it accepts it.

    Args:
        config: ``{"class_name", "config", …}``, parsed.
        loader: Which loader, for which file.
    """
    return next(_check_node(config, loader, "", top=True), None)


def _check_node(node: Any, loader: Loader, model: str, *, top: bool = False) -> Iterator[Failure]:
    """Yield how a loader fails on a model or layer, in the loader's order.

    Args:
        node: ``{"class_name", "config", …}``.
        loader: Which loader, for which file.
        model: Class of the model that it is part of; "" for none.
        top: Whether it is the outermost model.
    """
    if not isinstance(node, Mapping) or "config" not in node:
        return
    name, config = str(node.get("class_name")), node["config"]
    modern = bool(node.get("module"))
    if isinstance(config, list):
        yield from _check_list(config, loader, name)
        # A list has no name, and the name that tf_keras generates must be the recorded one.
        if not loader.is_keras_3 and model and node.get("name") != "sequential":
            yield Failure(
                "TypeError", "list indices must be integers or slices, not NoneType",
                "list-sequential", f"the inner {name} is configured by a list, without its name",
            )  # fmt: skip
        return
    if not isinstance(config, Mapping):
        return
    if modern or (top and loader.facts.container in ("zip", "folder")):
        failure = _check_class(node, name, loader, model)
        if failure is not None:
            yield failure
            return
    elif name not in loader.known.layers and name not in MODELS:
        yield Failure(
            "ValueError", UNKNOWN_LAYER.format(name), "unknown-layer",
            f"{name} is no layer of this Keras" + _name_other_keras(name, loader),
        )  # fmt: skip
        return
    if name in MODELS and "layers" in config:
        layers = config["layers"] if isinstance(config["layers"], list) else []
        legacy = loader.is_keras_3 and not modern
        # Keras 3 builds each layer of a Sequential on the shape that the layer before it returns.
        for layer, failure in zip(layers, check_shapes(layers), strict=True):
            yield from _check_node(layer, loader, name)
            if name == "Sequential" and legacy and failure is not None:
                yield failure
        if name != "Sequential" and legacy:
            yield from _check_calls(layers, config)
        return
    yield from check_layer(name, config, loader, model=model, modern=modern)


def _check_calls(layers: Sequence[Any], config: Mapping[str, Any]) -> Iterator[Failure]:
    """Yield how Keras 3 fails to find a call of an inner Sequential.

    Keras 2 counts the construction of every inner model as its first call, Keras 3 only that of
    functional models.
    """
    calls = {
        str(layer.get("name")): len(layer.get("inbound_nodes") or ())
        for layer in layers
        if isinstance(layer, Mapping) and layer.get("class_name") == "Sequential"
    }
    for layer in layers:
        nodes = layer.get("inbound_nodes") if isinstance(layer, Mapping) else None
        for inner, call in _list_references(nodes):
            if call >= calls.get(inner, call + 1):
                yield Failure(
                    "ValueError",
                    "Invalid Functional model configuration. The graph of the Functional model "
                    "either has loops or disconnected nodes.", "inner-sequential",
                    f"a layer reads call {call} of the inner Sequential {inner}, counted as "
                    "Keras 2 did",
                )  # fmt: skip
                return
    for inner, call in _list_references(config.get("output_layers")):
        if call >= calls.get(inner, call + 1):
            yield Failure(
                "IndexError", "list index out of range", "inner-sequential",
                f"the output is call {call} of the inner Sequential {inner}, counted as Keras 2 "
                "did",
            )  # fmt: skip


def _list_references(nodes: Any) -> Iterator[tuple[str, int]]:
    """Yield layer and call of every ``[layer, call, output, …]`` in nested lists."""
    if not isinstance(nodes, list):
        return
    if len(nodes) >= 3 and isinstance(nodes[0], str) and type(nodes[1]) is int:
        yield nodes[0], nodes[1]
        return
    for node in nodes:
        yield from _list_references(node)


def _check_list(layers: Sequence[Any], loader: Loader, name: str) -> Iterator[Failure]:
    """Yield how a loader fails on a Sequential whose configuration is a list of layers."""
    if loader.is_keras_3:
        yield Failure(
            "TypeError", LIST_STYLE, "list-sequential",
            f"{name} is configured by a list, as Keras before 2.2.3 did",
        )  # fmt: skip
    for layer in layers:
        yield from _check_node(layer, loader, name)


def _check_class(node: Mapping[str, Any], name: str, loader: Loader, model: str) -> Failure | None:
    """Return how the loader fails to find a class by its module."""
    module = str(node.get("module") or "")
    failure = _check_module(module, name, loader)
    if failure is not None:
        return failure
    own = module.startswith(("keras", "tf_keras", "builtins"))
    registered = node.get("registered_name")
    if own and (not registered or registered == name or name in loader.known.layers):
        return None
    if not module and name in MODELS:
        return None
    failure = Failure(
        "TypeError", UNLOCATED.format(name), "custom-class",
        f"{name} is a class of {module or 'its author'}, which the file does not hold",
    )  # fmt: skip
    if model and loader.is_keras_3:
        return loader.wrap(name, failure, model=model, modern=True)
    return failure


def _check_module(module: str, name: str, loader: Loader) -> Failure | None:
    """Return how the loader fails to import an internal module of Keras.

    Keras 2.13 moved its internal modules to keras.src, Keras 3 moved those in ``engine``.
    """
    parts = module.split(".")
    if parts[0] != "keras" or len(parts) < 3:
        return None  # a public module: keras.layers
    moved = "engine" in parts if loader.is_keras_3 else parts[1:3] == ["src", "models"]
    if parts[1] == "src" and not moved:
        return None
    imported = module if loader.is_keras_3 else f"tf_{module}"
    return Failure(
        "TypeError",
        f"Could not deserialize class '{name}' because its parent module {imported} cannot be "
        "imported.", "module-gone", f"{name} is named by {module}, which this Keras does not have",
    )  # fmt: skip


def _name_other_keras(name: str, loader: Loader) -> str:
    """Return in words that the other Keras has a class; "" if it has not."""
    if name not in read_classes("tf_keras" if loader.is_keras_3 else "keras").layers:
        return ""
    return " (it was one of Keras 2)" if loader.is_keras_3 else " (it is one of Keras 3)"
