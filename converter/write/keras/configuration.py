"""Serialize a model as the ``config.json`` of a `.keras` file: layers, calls, inputs and outputs.

Layers are in the order in which Keras lists them after loading, because the weight store numbers
them in that order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from converter.lower.keras.lowering import input_spec
from converter.lower.keras.model import Call, Layer, Model, Reference, is_model, parse, references
from converter.lower.keras.table import LAYERS, Unsupported, table_of
from converter.lower.keras.weight_mapping import Path
from converter.lower.unsupported import Finding
from converter.write.keras.layers import Context, translate_layer
from converter.write.keras.masks import find_masked_layers
from formats.keras.variable_names import safe

RECURRENT = ("SimpleRNN", "LSTM", "GRU", "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D",
             "Bidirectional", "CuDNNLSTM", "CuDNNGRU")  # fmt: skip
# Layers that are operations in Keras 3: module, class, and its arguments.
OPERATIONS: dict[str, tuple[str, str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "ThresholdedReLU": (
        "keras.src.ops.nn",
        "Threshold",
        lambda config: {"threshold": config.get("theta", 1.0), "default_value": 0.0},
    ),
}
FUNCTIONAL = "keras.src.models.functional"


class Configuration:
    """The configuration of a model in the current Keras.

    Attributes:
        findings: What the current Keras cannot express, each with its layer.
        notes: Small differences of the current Keras.
    """

    def __init__(
        self,
        model: Model,
        class_name: str,
        lacking: Mapping[Path, str] | None = None,
        own: Mapping[Path, Mapping[str, Any]] | None = None,
    ) -> None:
        self.findings: list[Finding] = []
        self._lacking = lacking or {}
        self._own = own or {}
        self.notes: list[str] = []
        self._outer = False, False  # of the enclosing layer: gets masks, gets initial states
        self.context = Context(_input_dtypes(model), self._serialize_inner, self.notes)
        self.masked = find_masked_layers(model)
        self.has_free_sizes = _has_free_sizes(model)
        self.document = self._serialize_model(model, class_name, ())

    def _serialize_model(
        self, model: Model, class_name: str, path: tuple[str, ...]
    ) -> dict[str, Any]:
        self._check_names(model, path)
        if class_name == "Sequential" and (chain := _find_chain(model)) is not None:
            layers = [self._serialize_layer(layer, path) for layer in chain]
            parts: dict[str, Any] = {"name": safe(model.name), "layers": layers}
            return _serialize("keras", "Sequential", parts, None)
        entries = []
        for layer in sort_layers(model):
            entry = self._serialize_layer(layer, path)
            entry["name"] = safe(layer.name)
            calls = layer.calls[1:] if _is_counted(layer) else layer.calls
            entry["inbound_nodes"] = [
                self._serialize_call(model, layer, call.arguments, call.keywords) for call in calls
            ]
            entries.append(entry)
        config = {
            "name": safe(model.name),
            "trainable": True,
            "layers": entries,
            "input_layers": _reference_tensors(model, model.inputs),
            "output_layers": _reference_tensors(model, model.outputs),
        }
        return _serialize(FUNCTIONAL, "Functional", config, "Functional")

    def _check_names(self, model: Model, path: tuple[str, ...]) -> None:
        used: dict[str, str] = {}
        for name in model.layers:
            other = used.setdefault(safe(name), name)
            if other != name:
                where = "/".join((*path, safe(name)))
                detail = f"layers {other} and {name}"
                self.findings.append(Finding("names that are one in Keras 3", where, "", detail))

    def _serialize_layer(self, layer: Layer, path: tuple[str, ...]) -> dict[str, Any]:
        path = (*path, layer.name)
        try:
            return self._serialize_entry(layer, path)
        except Unsupported as gap:
            self.findings.append(
                Finding(f"to='keras' {layer.class_name}", "/".join(path), str(gap))
            )
            return _serialize("keras.layers", layer.class_name, {}, None)

    def _serialize_entry(self, layer: Layer, path: tuple[str, ...]) -> dict[str, Any]:
        if layer.model is not None:
            if layer.class_name in ("TimeDistributed", "Keras2TimeDistributed"):
                return self._serialize_time_distributed(layer, layer.model, path)
            entry = self._serialize_model(layer.model, layer.class_name, path)
            entry["config"]["name"] = safe(layer.name)
            return entry
        if path in self._own:
            entry = dict(self._own[path])
            return entry | {"config": entry["config"] | {"name": safe(layer.name)}}
        if path in self._lacking:
            raise Unsupported(
                f"{layer.module} {layer.class_name}, {self._lacking[path].strip(',')},"
            )
        if is_operation(layer):
            return _serialize_operation(layer)
        if not _is_keras(layer):
            raise Unsupported(f"layer class {layer.class_name} of {layer.module}")
        name, config = self._translate(layer, layer.config, path)
        config["name"] = safe(layer.name)
        return _serialize("keras.layers", name, config, None)

    def _serialize_time_distributed(
        self, layer: Layer, model: Model, path: tuple[str, ...]
    ) -> dict[str, Any]:
        (inner,) = model.layers.values()
        rest = {k: v for k, v in layer.config.items() if k != "layer"}
        name, config = self._translate(layer, rest, path)
        config |= {"name": safe(layer.name), "layer": self._serialize_layer(inner, path)}
        return _serialize("keras.layers", name, config, None)

    def _translate(
        self, layer: Layer, config: Mapping[str, Any], path: tuple[str, ...]
    ) -> tuple[str, dict[str, Any]]:
        if layer.class_name.startswith("ConvLSTM") and self.has_free_sizes:
            raise Unsupported(f"{layer.class_name} of images of any size")
        keywords = [call.keywords for call in layer.calls]
        several = any(len(list(references(call.arguments))) > 1 for call in layer.calls)
        states = several or any(k.get("initial_state") is not None for k in keywords)
        self._outer = path in self.masked, states
        return translate_layer(
            layer.class_name, config, self.context, masked=path in self.masked, states=states
        )

    def _serialize_inner(self, entry: Any) -> Any:
        """Serialize a layer that is an argument of another."""
        if not isinstance(entry, Mapping):
            return entry
        if is_model(entry):
            model = parse(entry)
            return self._serialize_model(model, str(entry["class_name"]), ())
        class_name = str(entry["class_name"]).rpartition(">")[2]
        name, config = translate_layer(
            class_name, entry["config"], self.context, masked=self._outer[0], states=self._outer[1]
        )
        if "name" in config:
            config["name"] = safe(str(config["name"]))
        return _serialize("keras.layers", name, config, None)

    def _serialize_call(
        self, model: Model, layer: Layer, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> dict[str, Any]:
        if layer.class_name in RECURRENT and len(arguments) == 1 and isinstance(arguments[0], list):
            # Before Keras 3, states were in one list with the sequence.
            (x, *states), keywords = arguments[0], dict(keywords)
            arguments = (x,)
            if states:
                keywords["initial_state"] = states
        if layer.class_name in RECURRENT:
            # Before Keras 3, calls also recorded arguments that were None.
            keywords = {key: part for key, part in keywords.items() if part is not None}
            if "constants" in keywords:
                subject = f"to='keras' {layer.class_name}"
                self.findings.append(Finding(subject, layer.name, "constants of a call"))
        return {
            "args": [_serialize_argument(model, part) for part in arguments],
            "kwargs": {key: _serialize_argument(model, part) for key, part in keywords.items()},
        }


def _is_keras(layer: Layer) -> bool:
    module = (layer.module or "keras").split(".")[0]
    return module in ("keras", "tf_keras", "tensorflow")


def _input_dtypes(model: Model) -> frozenset[str]:
    layers = (model.layers[r.layer] for r in references(model.inputs))
    return frozenset(str(layer.config.get("dtype") or "float32") for layer in layers)


def _has_free_sizes(model: Model) -> bool:
    shapes = (
        input_spec(model.layers[r.layer])[0]
        for r in references(model.inputs)
        if model.layers[r.layer].class_name == "InputLayer"
    )
    return any(not isinstance(n, int) for shape in shapes for n in shape[2:])


def _serialize(
    module: str, name: str, config: Mapping[str, Any], registered: Any
) -> dict[str, Any]:
    return {"module": module, "class_name": name, "config": config, "registered_name": registered}


def is_operation(layer: Layer) -> bool:
    """Return whether a layer is an operation in Keras 3, which is not listed as a layer."""
    if layer.model is not None:
        return False
    return table_of(layer.module) is not LAYERS or layer.class_name in OPERATIONS


def _serialize_operation(layer: Layer) -> dict[str, Any]:
    """Return a serialized operation of keras.ops."""
    if layer.class_name in OPERATIONS and table_of(layer.module) is LAYERS:
        module, name, make = OPERATIONS[layer.class_name]
        return _serialize(module, name, {**make(layer.config), "name": safe(layer.name)}, name)
    if layer.module is None or not layer.module.startswith("keras."):
        raise Unsupported(f"{layer.module} {layer.class_name}")
    return _serialize(layer.module, layer.class_name, layer.config, layer.class_name)


# -- calls ---------------------------------------------------------------------------------------


def _is_counted(layer: Layer) -> bool:
    """Return whether a nested model's first call is the one that created it."""
    return layer.model is not None and bool(layer.calls) and layer.calls[0].arguments == ()


def _is_functional(layer: Layer) -> bool:
    if layer.model is None or layer.class_name in ("TimeDistributed", "Keras2TimeDistributed"):
        return False
    return layer.class_name != "Sequential" or _find_chain(layer.model) is None


def _call_number(layer: Layer, number: int) -> int:
    return number - 1 if _is_counted(layer) else number


def _reference_tensors(model: Model, structure: Any) -> Any:
    """Return ``input_layers`` or ``output_layers``, where calls of models count from one."""
    if isinstance(structure, Reference):
        layer = model.layers[structure.layer]
        number = _call_number(layer, structure.call) + _is_functional(layer)
        return [safe(structure.layer), number, structure.tensor]
    if isinstance(structure, Mapping):
        return {key: _reference_tensors(model, part) for key, part in structure.items()}
    return [_reference_tensors(model, part) for part in structure]


def _serialize_argument(model: Model, value: Any) -> Any:
    """Return a serialized argument of a call."""
    if isinstance(value, Reference):
        layer = model.layers[value.layer]
        history = [safe(value.layer), _call_number(layer, value.call), value.tensor]
        # Keras uses the history, and computes shape and dtype by calling the layers.
        config: dict[str, Any] = {"shape": [], "dtype": "float32", "keras_history": history}
        return {"class_name": "__keras_tensor__", "config": config}
    if isinstance(value, np.ndarray):
        config = {"value": value.tolist(), "dtype": str(value.dtype)}
        return {"class_name": "__numpy__", "config": config}
    if isinstance(value, slice):
        parts = {"start": value.start, "stop": value.stop, "step": value.step}
        config = {key: _serialize_argument(model, part) for key, part in parts.items()}
        return {"class_name": "__slice__", "config": config}
    if value is ...:
        return {"class_name": "__ellipsis__", "config": {}}
    if isinstance(value, tuple):
        return {
            "class_name": "__tuple__",
            "items": [_serialize_argument(model, part) for part in value],
        }
    if isinstance(value, bytes):
        return {"class_name": "__bytes__", "config": {"value": value.decode()}}
    if isinstance(value, Mapping):
        return {key: _serialize_argument(model, part) for key, part in value.items()}
    if isinstance(value, list):
        return [_serialize_argument(model, part) for part in value]
    return value


# -- order ---------------------------------------------------------------------------------------


def _find_chain(model: Model) -> list[Layer] | None:
    """Return the layers of a model that is a chain, or None."""
    layers = list(model.layers.values())
    last: Reference | None = None
    for layer in layers:
        if layer.class_name == "InputLayer":
            if last is not None:
                return None
        elif is_operation(layer) or layer.calls != (Call((last,)),):
            return None
        last = Reference(layer.name, 0, 0)
    if model.inputs != Reference(layers[0].name, 0, 0) or model.outputs != last:
        return None
    return layers


def sort_layers(model: Model) -> list[Layer]:
    """Return a model's layers as Keras lists them: by their distance from the outputs.

    Source: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/ops/function.py#L260
    """
    calls, first = _sort_calls(model)
    depths: dict[tuple[str, int], int] = {}
    of_layers: dict[str, int] = {}
    for name, number in reversed(calls):
        depth = max(depths.setdefault((name, number), 0), of_layers.get(name, 0))
        of_layers[name] = depths[name, number] = depth
        for source in _sources(model, name, number):
            key = source.layer, source.call
            depths[key] = max(depth + 1, depths.get(key, 0))
    for reference in references(model.inputs):
        if reference.layer not in of_layers:
            of_layers[reference.layer] = 0
            first[reference.layer] = -1
    names = sorted(of_layers, key=lambda name: (-of_layers[name], first[name]))
    return [model.layers[name] for name in names]


def _sort_calls(model: Model) -> tuple[list[tuple[str, int]], dict[str, int]]:
    """Return calls in topological order, and the index of each layer in order of first visit."""
    done: set[tuple[str, int]] = set()
    order: list[tuple[str, int]] = []
    first: dict[str, int] = {}
    todo = [(r.layer, r.call, False) for r in reversed(list(references(model.outputs)))]
    while todo:
        name, number, is_ready = todo.pop()
        key = name, number
        if is_ready:
            order.append(key)
            continue
        if key in done:
            continue
        done.add(key)
        first.setdefault(name, len(first))
        todo.append((name, number, True))
        todo += [(r.layer, r.call, False) for r in reversed(list(_sources(model, name, number)))]
    return order, first


def _sources(model: Model, name: str, number: int) -> Iterator[Reference]:
    layer = model.layers[name]
    if number < len(layer.calls):
        call = layer.calls[number]
        yield from references(call.arguments)
        yield from references(call.keywords)
