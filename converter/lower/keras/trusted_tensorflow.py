"""Trace what a trusted function does to TensorFlow's tensors, as layers of a Keras model.

It serves what Keras's own symbolic tensors do not: classes of tf_keras, and code that calls
TensorFlow itself. The function is traced into a graph; layers of Keras's own that it calls stay
whole, each op around them becomes a TensorFlowOpLayer, each variable that is read a further input.
What is computed beside such a graph is found out as it is of symbolic tensors
(`converter.lower.keras.trusted_trace`).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

MAX_CONSTANT = 1 << 20  # elements
OPEN = ("Functional", "Sequential", "Model")  # Keras's own that others' layers may be in
CALLS = ("PartitionedCall", "StatefulPartitionedCall")  # of functions, which are gone into
# What only says that it must not be run twice, or that nothing is learned through it.
NOTHING = ("Identity", "StopGradient", "PreventGradient", "Snapshot", "ReadVariableOp")


Key = tuple[int, str, int]


def key(tensor: Any) -> Key:
    """Return what a tensor is known by: Python may have several objects for one."""
    return id(tensor.graph), tensor.op.name, tensor.value_index


class Untraceable(Exception):  # noqa: N818 - it is not supported
    """The function does something that no layer describes."""


class Graph:
    """A function of tensors, traced once.

    Attributes:
        inputs: Symbolic tensors, in the order of their specifications.
        outputs: Outputs of the function, flattened.
    """

    def __init__(
        self, keras: Any, function: Callable[..., Any], specs: Sequence[tuple[str, Any]]
    ) -> None:
        self.tf = import_module("tensorflow")
        self.keras = keras
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self._made: dict[Key, tuple[_Call, int]] = {}  # tensor -> who made it
        self._kept: list[Any] = []  # or another tensor may get the id
        self._entries: dict[str, dict[str, Any]] = {}
        self._names: dict[object, str] = {}  # op or layer -> its name here
        self._calls: dict[int, tuple[str, int]] = {}  # call of a layer -> its name, and number
        # id of a variable -> its input, itself
        self.weights: dict[int, tuple[str, Any]] = {}
        self.owners: dict[int, tuple[str, str]] = {}  # id of a variable -> layer here, role
        # Placeholders of functions that are called -> what they are called with.
        self._frames: list[dict[Key, Any]] = []

        def traced(*tensors: Any) -> Any:
            self.inputs = list(tensors)
            with self._recorded():
                result = function(*tensors)
            self.outputs = list(self.tf.nest.flatten(result))
            return [t for t in self.outputs if self._is_tensor(t)]

        signature = [
            self.tf.TensorSpec(shape, dtype, f"in_{i}") for i, (dtype, shape) in enumerate(specs)
        ]
        traces = import_module("tensorflow.python.framework.func_graph")
        self._graph = traces.func_graph_from_py_func("traced", traced, signature, {})
        self._check_reads(self._graph)
        self._captured = {key(inside): outside for outside, inside in self._graph.captures}

    @staticmethod
    def _check_reads(graph: Any) -> None:
        """Refuse what changes variables: how they were before is what we have."""
        for op in graph.get_operations():
            if op.type.startswith("Assign"):
                raise Untraceable("changes its variables")

    def _is_tensor(self, value: Any) -> bool:
        return isinstance(value, self.tf.Tensor)

    def _is_symbolic(self, value: Any) -> bool:
        """Return whether a value is a tensor of a graph, and not an array that one was given."""
        return self._is_tensor(value) and bool(self.tf.is_symbolic_tensor(value))

    # -- Keras's own layers stay whole -----------------------------------------------------------

    @contextmanager
    def _recorded(self) -> Iterator[None]:
        """Have every call of a layer of Keras's own written down."""
        if self.keras is None:
            yield
            return
        base = self.keras.layers.Layer
        classes = [c for c in [base, *_below(base)] if "__call__" in vars(c)]
        before = [(c, vars(c)["__call__"]) for c in dict.fromkeys(classes)]
        inside = [0]

        def around(call: Callable[..., Any]) -> Callable[..., Any]:
            def recorded(layer: Any, *arguments: Any, **keywords: Any) -> Any:
                if inside[0] or not self._stays_whole(layer):
                    return call(layer, *arguments, **keywords)
                given = [*filter(self._is_tensor, self.tf.nest.flatten([arguments, keywords]))]
                masks = [getattr(t, "_keras_mask", None) for t in given]
                said = keywords.get("mask") is not None
                if not said and len(given) > 1 and any(mask is not None for mask in masks):
                    raise Untraceable(f"masks of several tensors that {layer.name} is given")
                inside[0] += 1
                try:
                    result = call(layer, *arguments, **keywords)
                finally:
                    inside[0] -= 1
                known = {key(t) for t in (*given, *self.inputs) if self._is_symbolic(t)}
                made = _Call(layer, arguments, keywords, masks[:1])
                for place, tensor in enumerate(self.tf.nest.flatten(result)):
                    if self._is_symbolic(tensor) and key(tensor) not in known | self._made.keys():
                        self._made[key(tensor)] = made, place
                return result

            return recorded

        for kind, call in before:
            kind.__call__ = around(call)
        try:
            yield
        finally:
            for kind, call in before:
                kind.__call__ = call

    def _stays_whole(self, layer: Any) -> bool:
        kind = type(layer)
        own = kind.__module__.split(".")[0] in ("keras", "tf_keras")
        return own and kind.__name__ not in OPEN

    # -- the graph, from its end -----------------------------------------------------------------

    def model(self, name: str, outputs: Sequence[Any]) -> dict[str, Any]:
        """Return a Functional model whose inputs are the tensors, then the weights."""
        made = [self._reference(t) for t in outputs]
        weights = [
            self._input(name, dtype_of(v), [int(n) for n in v.shape])
            for name, v in self.weights.values()
        ]
        inputs = [
            self._input(
                f"in_{i}", t.dtype.name, None if t.shape.rank is None else t.shape.as_list()
            )
            for i, t in enumerate(self.inputs)
        ]
        return {
            "class_name": "Functional",
            "config": {
                "name": name,
                "layers": [*inputs, *weights, *self._entries.values()],
                "input_layers": [[entry["name"], 0, 0] for entry in (*inputs, *weights)],
                "output_layers": made,
            },
        }

    def _input(self, name: str, dtype: str, shape: Any) -> dict[str, Any]:
        config = {"name": name, "batch_shape": shape, "dtype": dtype}
        return {"class_name": "InputLayer", "name": name, "config": config, "inbound_nodes": []}

    def _reference(self, tensor: Any) -> list[Any]:
        found = self._found(tensor)
        if not isinstance(found, list):
            raise Untraceable("returns what no input has a part in")
        return found

    def _found(self, tensor: Any) -> Any:
        """Return where a tensor comes from: layer, call and number; or a constant."""
        if not self._is_symbolic(tensor):
            return _Constant(np.asarray(tensor))
        for i, given in enumerate(self.inputs):
            if key(tensor) == key(given):
                return [f"in_{i}", 0, 0]
        if key(tensor) in self._made:
            call, place = self._made[key(tensor)]
            return [*self._called(call), place]
        value = self.tf.get_static_value(tensor)
        if value is not None:
            return _Constant(np.asarray(value))
        for frame in reversed(self._frames):
            if key(tensor) in frame:
                return self._found(frame[key(tensor)])
        if key(tensor) in self._captured:
            return self._outside(self._captured[key(tensor)])
        op = tensor.op
        if op.type in CALLS:
            return self._gone_into(op, tensor.value_index)
        if op.type in NOTHING:
            return self._found(op.inputs[0])
        if op.type in ("Placeholder", "Const"):
            raise Untraceable(f"needs the op {op.type}")
        return [self._op(op), 0, tensor.value_index]

    def _outside(self, value: Any) -> Any:
        """Return what a graph has taken in from around it: a variable, or an array."""
        if value.dtype != self.tf.resource:
            return _Constant(np.asarray(value))
        for variable in self._graph.variables:
            if variable.handle is value:
                if id(variable) not in self.weights:
                    self.weights[id(variable)] = (f"weight_{len(self.weights)}", variable)
                return [self.weights[id(variable)][0], 0, 0]
        raise Untraceable("uses a resource that is no variable")

    def _gone_into(self, op: Any, place: int) -> Any:
        name = (id(op.graph), op.name)
        if name not in self._names:
            convert = import_module("tensorflow.python.framework.function_def_to_graph")
            function = op.graph._get_function(op.get_attr("f").name)
            definition = getattr(function, "cached_definition", None) or function.definition
            inner = convert.function_def_to_graph(definition)
            self._check_reads(inner)
            self._frames.append(dict(zip(map(key, inner.inputs), op.inputs, strict=True)))
            self._kept.append(inner)
            self._names[name] = f"{len(self._kept) - 1}"
        return self._found(self._kept[int(self._names[name])].outputs[place])

    def _op(self, op: Any) -> str:
        if (id(op.graph), op.name) in self._names:
            return self._names[id(op.graph), op.name]
        inputs = [self._found(t) for t in op.inputs]
        json_format = import_module("google.protobuf.json_format")
        node: dict[str, Any] = json_format.MessageToDict(op.node_def)
        if op.type == "ResourceGather":
            node = {"op": "GatherV2", "attr": {"batch_dims": node["attr"].get("batch_dims")}}
            node["attr"] = {k: v for k, v in node["attr"].items() if v is not None}
            inputs.append(_Constant(np.array(0, np.int32)))
        arguments, constants = [], {}
        for place, found in enumerate(inputs):
            if isinstance(found, _Constant) and found.is_plain:
                constants[str(place)] = found.array.tolist()
            else:
                arguments.append(_argument(found))
        # Those with an underscore are TensorFlow's own: how it differentiates, which counts traces.
        attributes = {k: v for k, v in node.get("attr", {}).items() if not k.startswith("_")}
        known = {"op": node["op"], "attr": attributes}
        config = {"trainable": True, "dtype": "float32", "node_def": known, "constants": constants}
        name = self._entered((id(op.graph), op.name), "TensorFlowOpLayer", config)
        self._node(name, arguments, {})
        return name

    def _called(self, call: "_Call") -> tuple[str, int]:
        """Return which layer a call is of, and which of its calls."""
        if id(call) in self._calls:
            return self._calls[id(call)]
        layer = call.layer
        arguments = [self._given(part) for part in call.arguments]
        keywords = {k: self._given(v) for k, v in call.keywords.items() if k != "training"}
        if call.masks and call.masks[0] is not None and "mask" not in keywords:
            keywords["mask"] = self._given(call.masks[0])
        if id(layer) not in self._names:
            config = _serialize(self.keras, layer)
            name = self._entered(id(layer), type(layer).__name__, config, layer)
            for variable in layer.variables:
                self.owners[id(raw(variable))] = name, role(variable, layer.name)
        name = self._names[id(layer)]
        number = self._node(name, arguments, keywords)
        self._calls[id(call)] = name, number
        return name, number

    def _given(self, value: Any) -> Any:
        if self._is_tensor(value):
            return _argument(self._found(value))
        if isinstance(value, tuple | list):
            return [self._given(part) for part in value]
        if isinstance(value, Mapping):
            return {key: self._given(part) for key, part in value.items()}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, np.ndarray | np.generic):
            return _argument(_Constant(np.asarray(value)))
        raise Untraceable(f"gives a layer a {type(value).__name__}")

    def _entered(self, key: object, kind: str, config: Mapping[str, Any], layer: Any = None) -> str:
        name = f"{len(self._entries)}_{kind.lower()}"
        self._names[key] = name
        entry: dict[str, Any] = {
            "class_name": kind,
            "name": name,
            "module": "keras.layers" if layer is not None else None,
            "config": {**config, "name": name},
            "inbound_nodes": [],
        }
        json.dumps(entry)  # or it is no plain data
        self._entries[name] = entry
        return name

    def _node(self, name: str, arguments: Any, keywords: Any) -> int:
        """Enter a call; return its number."""
        nodes = self._entries[name]["inbound_nodes"]
        nodes.append({"args": arguments, "kwargs": keywords})
        json.dumps(nodes[-1])
        return len(nodes) - 1


class _Call:
    """A call of a layer of Keras's own."""

    def __init__(
        self, layer: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], masks: list[Any]
    ) -> None:
        self.layer, self.arguments, self.keywords, self.masks = layer, arguments, keywords, masks


class _Constant:
    """An array that no input has a part in.

    Attributes:
        array: It.
        is_plain: Whether Python's numbers say it as well, dtype included.
    """

    def __init__(self, array: np.ndarray) -> None:
        if array.size > MAX_CONSTANT:
            raise Untraceable(f"holds a constant of {array.size} elements")
        self.array = array
        kind = array.dtype.name
        small = array.ndim < 2
        self.is_plain = kind in ("int32", "float32", "bool") or (kind == "int64" and small)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            self.is_plain = False


def _argument(found: Any) -> Any:
    """Return a tensor, or an array, as a Functional model's configuration has it."""
    if isinstance(found, list):
        return {"class_name": "__keras_tensor__", "config": {"keras_history": found}}
    dtype = found.array.dtype.name
    array = found.array.astype("float32") if dtype == "bfloat16" else found.array
    if array.dtype.kind not in "fiub":
        raise Untraceable(f"holds a constant of {dtype}")
    return {"class_name": "__numpy__", "config": {"value": array.tolist(), "dtype": dtype}}


def _below(kind: type) -> Iterator[type]:
    inner: type
    for inner in kind.__subclasses__():
        yield inner
        yield from _below(inner)


def _serialize(keras: Any, layer: Any) -> Any:
    """Return the configuration of a layer, layers and functions in it included."""
    return keras.saving.serialize_keras_object(layer)["config"]


def raw(variable: Any) -> Any:
    """Return TensorFlow's own variable of Keras's."""
    inner = getattr(variable, "_value", None)  # Keras 3
    inner = getattr(variable, "_variable", None) if inner is None else inner  # AutoCastVariable
    return variable if inner is None else inner


def dtype_of(variable: Any) -> str:
    """Return what a variable of TensorFlow's is read as."""
    return str(variable.dtype.base_dtype.name)


def role(variable: Any, layer: str) -> str:
    """Return a variable's name below its layer."""
    name = getattr(variable, "path", None) or variable.name
    whole = f"/{name.partition(':')[0]}"
    _, found, rest = whole.rpartition(f"/{layer}/")
    return rest if found else whole.rpartition("/")[2]
