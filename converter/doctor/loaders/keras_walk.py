"""A configuration walked as a loader of Keras builds the model: layer after layer, in order."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from converter.doctor.data.keras_arguments import KERAS_3, TF_KERAS
from converter.doctor.loaders.keras_layers import layer_failures
from converter.doctor.loaders.keras_loaders import UNLOCATED, Failure, Keras3, Loader, TfKeras
from converter.doctor.loaders.keras_shapes import misread

MODELS = ("Sequential", "Functional", "Model")
UNKNOWN_LAYER = (
    "Unknown layer: '{}'. Please ensure you are using a `keras.utils.custom_object_scope`"
)
LIST_STYLE = "pop expected at most 1 argument, got 2"


def first_failure(config: Any, loader: Loader) -> Failure | None:
    """Return what a loader stops at in a whole model's configuration; None where it takes all.

    Args:
        config: ``{"class_name", "config", …}``, parsed.
        loader: Which one, for which file.
    """
    return next(_walk(config, loader, "", top=True), None)


def _walk(node: Any, loader: Loader, model: str, *, top: bool = False) -> Iterator[Failure]:
    """Yield what a loader stops at in a model or layer, in its order.

    Args:
        node: ``{"class_name", "config", …}``.
        loader: Which one.
        model: Class of the model that it is part of; "" for none.
        top: Whether it is the whole.
    """
    if not isinstance(node, Mapping) or "config" not in node:
        return
    name, config = str(node.get("class_name")), node["config"]
    modern = bool(node.get("module"))
    if isinstance(config, list):
        yield from _listed(config, loader, name)
        # Its list has no name, and the one that it is given must be the one it is called by.
        if isinstance(loader, TfKeras) and model and node.get("name") != "sequential":
            yield Failure(
                "TypeError", "list indices must be integers or slices, not NoneType",
                "list-sequential", f"the inner {name} is configured by a list, without its name",
            )  # fmt: skip
        return
    if not isinstance(config, Mapping):
        return
    if modern or (top and loader.facts.container in ("zip", "folder")):
        located = _located(node, name, loader, model)
        if located is not None:
            yield located
            return
    elif name not in loader.layers and name not in MODELS:
        yield Failure(
            "ValueError", UNKNOWN_LAYER.format(name), "unknown-layer",
            f"{name} is no layer of this Keras" + _former(name, loader),
        )  # fmt: skip
        return
    if name in MODELS and "layers" in config:
        layers = config["layers"] if isinstance(config["layers"], list) else []
        # Keras 3 adds layer after layer to a Sequential, each to the shape before it.
        shaped = name == "Sequential" and isinstance(loader, Keras3) and not modern
        for layer, refusal in zip(layers, misread(layers), strict=True):
            yield from _walk(layer, loader, name)
            if shaped and refusal is not None:
                yield Failure(
                    refusal.error, refusal.message, "input-misread",
                    "Keras 3 takes the recorded batch_input_shape for a shape without the batch: "
                    f"one axis too many for {refusal.layer}",
                )  # fmt: skip
        if name != "Sequential" and isinstance(loader, Keras3) and not modern:
            yield from _calls(layers, config)
        return
    yield from layer_failures(name, config, loader, model=model, modern=modern)


def _calls(layers: Sequence[Any], config: Mapping[str, Any]) -> Iterator[Failure]:
    """Yield calls of an inner Sequential that Keras 3 does not find.

    Keras 2 counts the inner model's own making as its first call, Keras 3 for functional ones only.
    """
    calls = {
        str(layer.get("name")): len(layer.get("inbound_nodes") or ())
        for layer in layers
        if isinstance(layer, Mapping) and layer.get("class_name") == "Sequential"
    }
    for layer in layers:
        nodes = layer.get("inbound_nodes") if isinstance(layer, Mapping) else None
        for inner, call in _references(nodes):
            if call >= calls.get(inner, call + 1):
                yield Failure(
                    "ValueError",
                    "Invalid Functional model configuration. The graph of the Functional model "
                    "either has loops or disconnected nodes.", "inner-sequential",
                    f"a layer reads call {call} of the inner Sequential {inner}, counted as "
                    "Keras 2 did",
                )  # fmt: skip
                return
    for inner, call in _references(config.get("output_layers")):
        if call >= calls.get(inner, call + 1):
            yield Failure(
                "IndexError", "list index out of range", "inner-sequential",
                f"the output is call {call} of the inner Sequential {inner}, counted as Keras 2 "
                "did",
            )  # fmt: skip


def _references(nodes: Any) -> Iterator[tuple[str, int]]:
    """Yield every ``[layer, call, output, …]`` in nested lists: the layer, and which call of it."""
    if not isinstance(nodes, list):
        return
    if len(nodes) >= 3 and isinstance(nodes[0], str) and type(nodes[1]) is int:
        yield nodes[0], nodes[1]
        return
    for node in nodes:
        yield from _references(node)


def _listed(layers: Sequence[Any], loader: Loader, name: str) -> Iterator[Failure]:
    """Yield what stops at a Sequential of old, whose configuration is a list of layers."""
    if isinstance(loader, Keras3):
        yield Failure(
            "TypeError", LIST_STYLE, "list-sequential",
            f"{name} is configured by a list, as Keras before 2.2.3 did",
        )  # fmt: skip
    for layer in layers:
        yield from _walk(layer, loader, name)


def _located(node: Mapping[str, Any], name: str, loader: Loader, model: str) -> Failure | None:
    """Return the failure to find a class by its module."""
    module = str(node.get("module") or "")
    unreachable = _unreachable(module, name, loader)
    if unreachable is not None:
        return unreachable
    own = module.startswith(("keras", "tf_keras", "builtins"))
    registered = node.get("registered_name")
    if own and (not registered or registered == name or name in loader.layers):
        return None
    if not module and name in MODELS:
        return None
    failure = Failure(
        "TypeError", UNLOCATED.format(name), "custom-class",
        f"{name} is a class of {module or 'its author'}, which the file does not hold",
    )  # fmt: skip
    if model and isinstance(loader, Keras3):
        return loader.wrapped(name, failure, model=model, modern=True)
    return failure


def _unreachable(module: str, name: str, loader: Loader) -> Failure | None:
    """Return the failure to import the module of Keras' insides that a class is named by.

    Keras 2.13 moved them to keras.src, Keras 3 out of its ``engine``.
    """
    parts = module.split(".")
    if parts[0] != "keras" or len(parts) < 3:
        return None  # a public name: keras.layers
    old, new = parts[1] != "src", parts[1:3] == ["src", "models"]
    gone = old or ("engine" in parts if isinstance(loader, Keras3) else new)
    if not gone:
        return None
    place = module if isinstance(loader, Keras3) else f"tf_{module}"
    return Failure(
        "TypeError",
        f"Could not deserialize class '{name}' because its parent module {place} cannot be "
        "imported.", "module-gone", f"{name} is named by {module}, which this Keras does not have",
    )  # fmt: skip


def _former(name: str, loader: Loader) -> str:
    """Say whose class it is, where it is the other Keras'."""
    if isinstance(loader, Keras3) and name in TF_KERAS:
        return " (it was one of Keras 2)"
    return " (it is one of Keras 3)" if isinstance(loader, TfKeras) and name in KERAS_3 else ""
