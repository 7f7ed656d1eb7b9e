"""Trace trusted code as a graph of Keras's own layers and operations, or TensorFlow's.

Classes of Keras 3, and functions, are called on Keras's symbolic tensors
(`converter.lower.keras.trusted_symbolic`); what those do not serve, and classes of tf_keras, on
TensorFlow's (`converter.lower.keras.trusted_tensorflow`). Either answer is a Functional model in
the words of Keras.

What is not recorded would be wrong: numbers that were computed beside the graph. All is therefore
made and called twice, with other values in its variables and another random state, and both graphs
must be the same.
"""

import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from converter.child.describe_error import describe_error
from converter.lower.keras.trusted_symbolic import Traced, fill_structure, names, storage_paths
from converter.lower.keras.trusted_tensorflow import Graph, Untraceable, dtype_of, raw, role

STATE = "seed_generator_state"  # of random numbers, which no inference needs
SYMBOLIC, LEGACY = "3.15", "2.15"  # framework whose layers a trace consists of


@dataclass(frozen=True, slots=True)
class Supplied:
    """The layers, models and functions of the trusted modules.

    Attributes:
        classes: Layers and models, by the name of the class.
        functions: Functions, by each of their names.
    """

    classes: Mapping[str, Any]
    functions: Mapping[str, Any]


def trace(question: Mapping[str, Any], supplied: Supplied) -> dict[str, Any]:
    """Return the graph of a call: of a layer, a cell, a model or a function.

    Args:
        question: subject (class or function), its name, a class's config; dtype and shape of each
            tensor and whether it has a mask; the structure of the call's arguments, tensors by
            number.
        supplied: The modules' layers, models and functions.

    Raises:
        Exception: Whatever the code, or Keras on its behalf, raises.
    """
    subject = _Subject(question, supplied)
    if subject.is_legacy:
        return _twice(subject, _of_tensorflow, question, LEGACY)
    if subject.keras is None:
        return _twice(subject, _of_tensorflow, question, SYMBOLIC)
    try:
        found = _twice(subject, _symbolic, question, SYMBOLIC)
    except Exception as e:
        if not subject.may_use_tensorflow:
            raise
        first: dict[str, Any] = {"status": "gap", "gap": describe_error(e)}
    else:
        if found["status"] == "done" or not subject.may_use_tensorflow:
            return found
        first = found
    try:
        second = _twice(subject, _of_tensorflow, question, SYMBOLIC)
    except Exception as e:  # noqa: BLE001 - the answer
        second = {"status": "gap", "gap": describe_error(e)}
    if second["status"] == "done":
        return second
    return {"status": "gap", "gap": f"{first['gap']}; with TensorFlow's tensors: {second['gap']}"}


def describe_inputs(question: Mapping[str, Any], supplied: Supplied) -> dict[str, Any]:
    """Return the inputs of a model that its class builds functionally, in their structure.

    Of any other, which has none until it is called, null.

    Raises:
        Exception: Whatever the code, or Keras on its behalf, raises.
    """

    def describe(part: Any) -> Any:
        if isinstance(part, Mapping):
            return {str(name): describe(inner) for name, inner in part.items()}
        if isinstance(part, list | tuple):
            return [describe(inner) for inner in part]
        sizes = [None if n is None else int(n) for n in part.shape]
        dtype = str(getattr(part.dtype, "name", part.dtype))
        return {"name": part.name, "batch_shape": sizes, "dtype": dtype}

    with _Subject(question, supplied).made() as model:
        given = getattr(model, "_inputs_struct", getattr(model, "_nested_inputs", None))
        return {"status": "done", "inputs": None if given is None else describe(given)}


def state_sizes(question: Mapping[str, Any], supplied: Supplied) -> dict[str, Any]:
    """Return the shapes of the states that a cell starts with, without the batch.

    Raises:
        Exception: Whatever the code, or Keras on its behalf, raises.
    """
    with _Subject(question, supplied).made() as cell:
        sizes = cell.state_size
        listed = list(sizes) if isinstance(sizes, list | tuple) else [sizes]
        shapes = [[int(n) for n in (s if hasattr(s, "__iter__") else [s])] for s in listed]
        first = getattr(cell, "get_initial_state", None)
        if first is not None:
            made = _first_states(first)
            flat = made if isinstance(made, list | tuple) else [made]
            if any(np.asarray(state).any() for state in flat):
                return {"status": "gap", "gap": "starts with states that are not zero"}
    return {"status": "done", "shapes": shapes}


def _first_states(function: Any) -> Any:
    """Call ``get_initial_state`` as each Keras does."""
    if "inputs" in inspect.signature(function).parameters:
        return function(inputs=None, batch_size=2, dtype="float32")
    return function(batch_size=2)


class _Subject:
    """A layer or function that is to be traced, made anew for each trace.

    Attributes:
        keras: The Keras of its class; for a function Keras 3, if its module uses one.
        is_legacy: Whether that is tf_keras.
    """

    def __init__(self, question: Mapping[str, Any], supplied: Supplied) -> None:
        self.question, self.supplied = question, supplied
        name = question["name"]
        is_class = question["subject"] == "class"
        self.target = (supplied.classes if is_class else supplied.functions)[name]
        legacy = sys.modules.get("tf_keras")
        kind = self.target if isinstance(self.target, type) else type(self.target)
        layer = getattr(getattr(legacy, "layers", None), "Layer", ())
        self.is_legacy = issubclass(kind, layer) if isinstance(layer, type) else False
        self.keras = legacy if self.is_legacy else sys.modules.get("keras")
        if getattr(self.keras, "layers", None) is None:
            self.keras = None  # nobody has asked for more than its name

    @property
    def may_use_tensorflow(self) -> bool:
        """Whether to trace with TensorFlow's tensors where symbolic ones fail."""
        if "tensorflow" not in sys.modules:
            return False
        return self.keras is None or self.keras.backend.backend() == "tensorflow"

    @contextmanager
    def made(self) -> Iterator[Any]:
        """Return the layer, or callable, with trusted names registered in Keras."""
        if self.keras is None:
            yield self._made()
            return
        self.keras.backend.clear_session()  # names are counted from the start again
        objects = {**self.supplied.functions, **self.supplied.classes}
        with self._safely(), self.keras.utils.custom_object_scope(objects):
            yield self._made()

    def _safely(self) -> Any:
        place = "tf_keras.src" if self.is_legacy else "keras.src"
        library = import_module(f"{place}.saving.serialization_lib")
        return library.SafeModeScope(safe_mode=True)

    def _made(self) -> Any:
        config = self.question.get("config")
        if isinstance(self.target, type):
            if hasattr(self.target, "from_config"):
                return self.target.from_config(dict(config or {}))
            return self._layered(self.target(**(config or {})))
        return self._layered(self.target)

    def _layered(self, function: Any) -> Any:
        """Return a function as a layer, where Keras is to call it."""
        if self.keras is None or isinstance(function, self.keras.layers.Layer):
            return function

        class Function(self.keras.layers.Layer):  # type: ignore[name-defined, misc]
            def call(self, *arguments: Any, mask: Any = None, **keywords: Any) -> Any:
                if mask is not None and "mask" in inspect.signature(function).parameters:
                    keywords["mask"] = mask
                return function(*arguments, **keywords)

        return Function(name="traced", autocast=False)


def _twice(
    subject: _Subject, way: Any, question: Mapping[str, Any], version: str
) -> dict[str, Any]:
    """Return a trace, unless another one, of other values and another random state, differs."""
    try:
        with subject.made() as made:
            first = way(subject, made, _at_inference(made, question), disturbed=False)
        with subject.made() as made:
            second = way(subject, made, _at_inference(made, question), disturbed=True)
    except Untraceable as e:
        return {"status": "gap", "gap": str(e)}
    texts = [json.dumps(found["model"], sort_keys=True) for found in (first, second)]
    if texts[0] != texts[1]:
        return {
            "status": "gap",
            "gap": "computes with weights or random numbers what Keras does not record",
        }
    # Where a weight is stored may be known by its value, which only the second has of its own.
    return {"status": "done", "version": version, **first, "weights": second["weights"]}


def _at_inference(layer: Any, question: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a call that says it is no training, which else may be a layer's default."""
    asks = ("_call_has_training_arg", "_expects_training_arg")  # of Keras 3, and of tf_keras
    takes = any(getattr(layer, name, False) is True for name in asks)
    if not takes or "training" in question["keywords"]:
        return question
    return {**question, "keywords": {**question["keywords"], "training": False}}


def _symbolic(
    subject: _Subject, layer: Any, question: Mapping[str, Any], *, disturbed: bool
) -> dict[str, Any]:
    if disturbed:
        Traced(subject.keras, layer, question).build()
        _disturb(layer)
    return Traced(subject.keras, layer, question).answer()


def _of_tensorflow(
    subject: _Subject, layer: Any, question: Mapping[str, Any], *, disturbed: bool
) -> dict[str, Any]:
    """Return the graph of a call as TensorFlow traces it."""
    values = question["values"]
    masked = [shape for _, _, shape in values if shape is not None]
    specs = [(d, s) for d, s, _ in values] + [("bool", s) for s in masked]
    masks: list[Any] = []
    called: list[str] = []

    def call(*tensors: Any) -> Any:
        rest = iter(tensors[len(values) :])
        for (_, _, mask), tensor in zip(values, tensors, strict=False):
            if mask is not None:
                tensor._keras_mask = next(rest)
        arguments = fill_structure(question["arguments"], tensors)
        keywords = fill_structure(question["keywords"], tensors)
        listed = arguments if isinstance(arguments, list) else [arguments]
        results = layer(*listed, **keywords)
        flat = import_module("tensorflow").nest.flatten(results)
        called[:] = names(results)
        masks[:] = [getattr(r, "_keras_mask", None) for r in flat]
        return flat

    Graph(subject.keras, call, specs)  # makes every variable there is
    if disturbed and hasattr(layer, "variables"):
        _disturb(layer)
    graph = Graph(subject.keras, call, specs)
    outputs = [*graph.outputs, *(m for m in masks if m is not None)]
    model = graph.model("traced", outputs)
    return {
        "model": model,
        "outputs": len(graph.outputs),
        "masks": [m is not None for m in masks],
        "names": called,
        "weights": list(_describe_variables(subject, layer, graph)),
    }


def _disturb(layer: Any) -> None:
    """Give every variable other values."""
    random = np.random.default_rng(0)
    for variable in layer.variables:
        old = np.asarray(variable.numpy())
        if old.dtype.name == "bool":
            variable.assign(old == 0)
        else:
            noise = random.uniform(1.0, 2.0, old.shape) if "float" in old.dtype.name else 1
            variable.assign((old + noise).astype(old.dtype))


def _describe_variables(subject: _Subject, layer: Any, graph: Graph) -> Iterator[dict[str, Any]]:
    """Yield every variable: how each of Keras's formats finds it, and what it is in the graph."""
    if not hasattr(layer, "variables"):
        if graph.weights:
            raise Untraceable("has weights, and is no layer")
        return
    places = _find_by_value(layer) if subject.is_legacy else storage_paths(layer)
    for variable in [*layer.trainable_variables, *layer.non_trainable_variables]:
        path = role(variable, layer.name)
        if path.endswith(STATE):
            continue
        key = id(raw(variable))
        name, read = graph.weights.get(key, (None, None))
        owner, inner = graph.owners.get(key, (None, None))
        yield {
            "path": path,
            "stored": places.get(id(variable)),
            "shape": [int(n) for n in variable.shape],
            "input": name,
            "dtype": None if read is None else dtype_of(read),
            "layer": owner,
            "role": inner,
        }


def _find_by_value(layer: Any) -> dict[int, str]:
    """Return where tf_keras stores each variable in .keras, found by its value."""
    library = import_module("tf_keras.src.saving.saving_lib")
    found: dict[int, str] = {}
    variables = {id(v): v.numpy() for v in layer.variables}

    class Entry(dict[str, Any]):
        def __init__(self, path: str) -> None:
            self.path = path

        def __setitem__(self, key: str, value: Any) -> None:
            same = [i for i, v in variables.items() if np.array_equal(v, value)]
            if len(same) == 1:
                found[same[0]] = f"{self.path}/vars/{key}".strip("/")

    class Store:
        def make(self, path: str) -> Entry:
            return Entry(path)

    library._save_state(layer, Store(), None, "", set())
    return found
