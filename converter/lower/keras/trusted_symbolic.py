"""Trace what a trusted layer does to Keras's symbolic tensors.

Keras 3 records what is called on them. So the layer is built, its variables are replaced by
 symbolic tensors, and its ``call`` is called; trusted layers inside it are expanded, Keras's own
layers stay whole. The answer is the configuration of a Functional model, with weights as
further inputs, and says which variables those, and Keras's layers, have.
"""

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from converter.lower.keras.trusted_tensorflow import Untraceable

MAX_CONSTANT = 1 << 20  # elements
FLAT = ("Functional", "Sequential", "Model")  # Keras's own that others' layers may be in


def fill_structure(part: Any, tensors: Sequence[Any]) -> Any:
    """Return the structure of a call with its tensors in it."""
    if isinstance(part, dict) and set(part) == {"__value__"}:
        return tensors[part["__value__"]]
    if isinstance(part, dict):
        return {key: fill_structure(inner, tensors) for key, inner in part.items()}
    return [fill_structure(inner, tensors) for inner in part] if isinstance(part, list) else part


def _plain(dtype: str) -> str:
    return "float32" if dtype.startswith(("bfloat", "float8")) else dtype


def names(results: Any) -> list[str]:
    """Return what the outputs of a call are called: the keys of a dict, in their order."""
    if not isinstance(results, dict) or any(isinstance(r, dict | list) for r in results.values()):
        return []
    return sorted(str(key) for key in results)


class Traced:
    """One call of a layer on symbolic tensors."""

    def __init__(self, keras: Any, layer: Any, question: Mapping[str, Any]) -> None:
        self.keras = keras
        self.layer = layer
        self.tree: Any = keras.tree
        self.set_mask = import_module("keras.src.backend").set_keras_mask
        self.get_mask = import_module("keras.src.backend").get_keras_mask
        self.tensors = [
            keras.Input(batch_shape=shape, dtype=dtype, name=f"in_{i}")
            for i, (dtype, shape, _) in enumerate(question["values"])
        ]
        self.masks: list[Any] = []
        for (_, _, mask), tensor in zip(question["values"], self.tensors, strict=True):
            if mask is not None:
                name = f"mask_{len(self.masks)}"
                self.masks.append(keras.Input(batch_shape=mask, dtype="bool", name=name))
                self.set_mask(tensor, self.masks[-1])
        self.arguments = fill_structure(question["arguments"], self.tensors)
        self.keywords = fill_structure(question["keywords"], self.tensors)
        self.weights: dict[int, Any] = {}  # id of a variable -> its symbolic tensor
        self.names: dict[int, str] = {}  # id of a layer or operation -> its name here
        self.calls: dict[int, list[Any]] = {}  # id of one -> its nodes
        self.operations: list[Any] = []

    def build(self) -> list[Any]:
        """Have every variable made that there is; return what the layer is called with."""
        call = [*self.arguments] if isinstance(self.arguments, list) else [self.arguments]
        if not self.layer.built:
            self.layer(*call, **self.keywords)
        return call

    def answer(self) -> dict[str, Any]:
        """Call the layer and describe what was recorded."""
        call = self.build()
        owners = list(self._own(self.layer))
        inside = self._opened(owners)
        try:
            with _unrecorded(owners):
                made = self.layer(*call, **self.keywords)
            results = self.tree.flatten(made)
        finally:
            for owner, attributes in inside:
                owner.__dict__.pop("symbolic_call", None)
                owner.__dict__.update(attributes)
        for result in results:
            if not self.keras.backend.is_keras_tensor(result):
                raise Untraceable(f"returns {type(result).__name__}, no tensor of its inputs")
        masks = [self.get_mask(result) for result in results]
        outputs = [*results, *(m for m in masks if m is not None)]
        for output in outputs:
            self._visit(output)
        return {
            "model": self._model(outputs),
            "outputs": len(results),
            "masks": [m is not None for m in masks],
            "names": names(made),
            "weights": list(self._described()),
        }

    # -- opening what is the user's --------------------------------------------------------------

    def _own(self, layer: Any) -> Iterator[Any]:
        """Yield a trusted layer and those inside it, also inside of Keras models."""
        yield layer
        for inner in layer._layers:
            if self._is_open(inner):
                yield from self._own(inner)

    def _is_open(self, layer: Any) -> bool:
        kind = type(layer)
        own = kind.__module__.split(".")[0] != "keras"
        return own or kind.__name__ in FLAT

    def _opened(self, owners: Sequence[Any]) -> list[tuple[Any, dict[str, Any]]]:
        """Have calls of these layers recorded, not the layers; return how to undo it."""
        opened = []
        for owner in dict.fromkeys(owners):
            attributes: dict[str, Any] = {}
            for name, value in list(owner.__dict__.items()):
                if name.startswith("_") and name in BOOKS:
                    continue
                replaced = self._symbolic(owner, value)
                if replaced is not value:
                    attributes[name] = value
                    owner.__dict__[name] = replaced
            owner.__dict__["symbolic_call"] = owner.call
            opened.append((owner, attributes))
        return opened

    def _symbolic(self, owner: Any, value: Any) -> Any:
        """Return a value with variables replaced by symbolic tensors."""
        if isinstance(value, self.keras.Variable):
            return self._weight(owner, value)
        if isinstance(value, list | tuple):
            parts = [self._symbolic(owner, part) for part in value]
            same = all(a is b for a, b in zip(parts, value, strict=True))
            return value if same else parts
        if isinstance(value, dict):
            made = {key: self._symbolic(owner, part) for key, part in value.items()}
            return value if all(made[key] is value[key] for key in made) else made
        return value

    def _weight(self, owner: Any, variable: Any) -> Any:
        if id(variable) not in self.weights:
            dtype = self.keras.backend.standardize_dtype(variable.dtype)
            if "float" in dtype and owner.autocast and owner.compute_dtype is not None:
                dtype = owner.compute_dtype  # as a variable is read inside a call
            self.weights[id(variable)] = self.keras.Input(
                batch_shape=tuple(variable.shape), dtype=dtype, name=f"weight_{len(self.weights)}"
            )
        return self.weights[id(variable)]

    # -- what was recorded -----------------------------------------------------------------------

    def _visit(self, output: Any) -> None:
        """Number the calls that a tensor needs, each after those it needs itself."""
        todo = [(output._keras_history, False)]
        seen: set[int] = set()
        while todo:
            (operation, index, place), ready = todo.pop()
            node = operation._inbound_nodes[index]
            known = self.calls.get(id(operation), [])
            if any(node is other for other in known) or (not ready and id(node) in seen):
                continue
            if not ready:
                seen.add(id(node))
                todo.append(((operation, index, place), True))
                todo += [(t._keras_history, False) for t in node.input_tensors]
                continue
            if id(operation) not in self.calls:
                self.names[id(operation)] = self._name(operation)
                self.operations.append(operation)
                self.calls[id(operation)] = []
            self.calls[id(operation)].append(node)

    def _name(self, operation: Any) -> str:
        if type(operation).__name__ == "InputLayer":
            return str(operation.name)
        return f"{len(self.operations)}_{type(operation).__name__.lower()}"

    def _reference(self, tensor: Any) -> list[Any]:
        operation, index, place = tensor._keras_history
        node = operation._inbound_nodes[index]
        numbers = [i for i, n in enumerate(self.calls.get(id(operation), [])) if n is node]
        if not numbers:
            raise Untraceable("a tensor of another call")
        return [self.names[id(operation)], numbers[0], place]

    def _model(self, outputs: Sequence[Any]) -> dict[str, Any]:
        inputs = [*self.tensors, *self.masks, *self.weights.values()]
        for tensor in inputs:
            self._visit(tensor)
        layers = [self._layer(operation) for operation in self.operations]
        return {
            "class_name": "Functional",
            "config": {
                "name": self.layer.name,
                "layers": layers,
                "input_layers": [self._reference(t) for t in inputs],
                "output_layers": [self._reference(t) for t in outputs],
            },
        }

    def _layer(self, operation: Any) -> dict[str, Any]:
        name = self.names[id(operation)]
        entry = dict(self.keras.saving.serialize_keras_object(operation))
        entry["config"] = {**entry["config"], "name": name}
        entry.pop("build_config", None)
        nodes = [] if type(operation).__name__ == "InputLayer" else self.calls[id(operation)]
        entry["name"] = name
        entry["inbound_nodes"] = [
            {
                "args": [self._plain(a) for a in node.arguments.args],
                "kwargs": {k: self._plain(v) for k, v in node.arguments.kwargs.items()},
            }
            for node in nodes
        ]
        json.dumps(entry)  # or it is no plain data
        is_layer = isinstance(operation, self.keras.layers.Layer)
        if not is_layer and entry["class_name"] != "GetItem" and _lists_none(entry):
            raise Untraceable("computes with the size of an axis that only a run knows")
        return entry

    def _plain(self, value: Any) -> Any:
        """Return an argument of a call as a Functional model's configuration has it."""
        if self.keras.backend.is_keras_tensor(value):
            config = {"keras_history": self._reference(value)}
            return {"class_name": "__keras_tensor__", "config": config}
        if isinstance(value, self.keras.Variable):
            raise Untraceable(f"uses the variable {value.path} where Keras records none")
        if isinstance(value, tuple):
            return {"class_name": "__tuple__", "items": [self._plain(part) for part in value]}
        if isinstance(value, list):
            return [self._plain(part) for part in value]
        if isinstance(value, dict):
            return {key: self._plain(part) for key, part in value.items()}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, slice):
            parts = {k: self._plain(getattr(value, k)) for k in ("start", "stop", "step")}
            return {"class_name": "__slice__", "config": parts}
        if value is Ellipsis:
            return {"class_name": "__ellipsis__", "config": {}}
        if isinstance(value, np.ndarray | np.generic) or self.keras.ops.is_tensor(value):
            dtype = self.keras.backend.standardize_dtype(value.dtype)
            array = np.asarray(self.keras.ops.convert_to_numpy(value))
            if array.size > MAX_CONSTANT:
                raise Untraceable(f"holds a constant of {array.size} elements")
            config = {"value": array.astype(_plain(dtype)).tolist(), "dtype": dtype}
            return {"class_name": "__numpy__", "config": config}
        raise Untraceable(f"gives an operation a {type(value).__name__}")

    # -- whose variables are which ---------------------------------------------------------------

    def _described(self) -> Iterator[dict[str, Any]]:
        """Yield every variable: how each of Keras's formats finds it, and what it is here."""
        places = storage_paths(self.layer)
        inner = {}
        for operation in self.operations:
            for variable in getattr(operation, "variables", ()):
                role = variable.path.removeprefix(f"{operation.path}/")
                inner[id(variable)] = (self.names[id(operation)], role)
        head = f"{self.layer.path}/"
        for variable in [*self.layer.trainable_variables, *self.layer.non_trainable_variables]:
            if variable.name == "seed_generator_state":
                continue
            tensor = self.weights.get(id(variable))
            layer, role = inner.get(id(variable), (None, None))
            yield {
                "path": variable.path.removeprefix(head),
                "stored": places.get(id(variable)),
                "shape": list(variable.shape),
                "input": None if tensor is None else tensor._keras_history[0].name,
                "dtype": None if tensor is None else tensor.dtype,
                "layer": layer,
                "role": role,
            }


def _lists_none(part: Any) -> bool:
    """Return whether a list among arguments has None in it: in place of a dynamic size."""
    if isinstance(part, list | tuple):
        return any(one is None or _lists_none(one) for one in part)
    return isinstance(part, dict) and any(map(_lists_none, part.values()))


@contextmanager
def _unrecorded(owners: Sequence[Any]) -> Iterator[None]:
    """Have Keras record no calls of these layers, where it does so behind ``symbolic_call``."""
    module = import_module("keras.src.layers.layer")
    node = getattr(module, "Node", None)

    def recorded(operation: Any, **facts: Any) -> Any:
        if any(operation is owner for owner in owners) or node is None:
            return None
        return node(operation=operation, **facts)

    module.__dict__["Node"] = recorded
    try:
        yield
    finally:
        module.__dict__["Node"] = node


# What Keras keeps its own books in: lists of what other attributes hold too.
BOOKS = (
    "_trainable_variables", "_non_trainable_variables", "_layers", "_metrics", "_seed_generators",
    "_tracker", "_losses", "_loss_ids", "_losses_override", "_inbound_nodes", "_outbound_nodes",
    "_functional", "_nodes", "_operations",
)  # fmt: skip


def storage_paths(layer: Any) -> dict[int, str]:
    """Return where a weight store keeps each variable, below the layer: id → path and number."""
    library = import_module("keras.src.saving.saving_lib")
    found: dict[int, str] = {}

    class Entry(dict[str, Any]):
        def __init__(self, path: str) -> None:
            self.path = path

        def __setitem__(self, key: str, value: Any) -> None:
            found[id(value)] = f"{self.path}/vars/{key}".strip("/")

    class Store(library.NpzIOStore):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            pass

        def make(self, path: str, metadata: Any = None) -> Entry:
            del metadata
            return Entry(path)

    parameters = inspect.signature(library._save_state).parameters
    known: dict[str, Any] = {"weights_store": Store(), "assets_store": None, "inner_path": "",
             "visited_saveables": set()}  # fmt: skip
    library._save_state(layer, **{k: v for k, v in known.items() if k in parameters})
    return found
