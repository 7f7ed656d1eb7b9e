"""One form for the models of every Keras version: layers, their calls, inputs and outputs.

Keras 1 to 3 and tf.keras write the same facts in four spellings of ``inbound_nodes``, and
Sequential models write none. Nothing is interpreted here but that; what a layer's own arguments
mean is its handler's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from converter.lower.element_types import numpy_type
from formats.errors import CorruptError, UnsupportedError
from formats.keras.layer_classes import REGISTERED

MODELS = frozenset(("Sequential", "Functional", "Model", "Graph", "Container"))
CONSTANT = "_CONSTANT_VALUE"  # tf.keras's name for a first argument that is no tensor


@dataclass(frozen=True, slots=True)
class Reference:
    """One tensor: which layer made it, in which of its calls, and which of its outputs it is."""

    layer: str
    call: int
    tensor: int


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a layer; tensors are `Reference`s, at any depth of lists and dicts."""

    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer, or a model used as one.

    Attributes:
        name: Unique in its model.
        class_name: Name of its class, without the package of a registered one.
        module: Where Keras or the author keeps the class, where that is recorded.
        config: Its arguments.
        calls: Its calls, in the order that references count.
        model: The inner model, where the layer is one.
    """

    name: str
    class_name: str
    module: str | None
    config: Mapping[str, Any]
    calls: tuple[Call, ...]
    model: "Model | None" = None


@dataclass(frozen=True, slots=True)
class Model:
    """A model: what is called on what.

    Attributes:
        name: Its own.
        layers: Layers by name, in the order of the configuration.
        inputs: A reference, or references in lists and dicts, as the model takes them.
        outputs: Likewise, as it returns them.
    """

    name: str
    layers: Mapping[str, Layer]
    inputs: Any
    outputs: Any


def references(structure: Any) -> Iterator[Reference]:
    """Yield the references in lists and dicts, in order; dicts by their sorted keys, as Keras."""
    if isinstance(structure, Reference):
        yield structure
    elif isinstance(structure, Mapping):
        for key in sorted(structure):
            yield from references(structure[key])
    elif isinstance(structure, list | tuple):
        for part in structure:
            yield from references(part)


def parse(config: Any, where: str = "model") -> Model:
    """Return a model from its configuration: ``class_name`` and ``config``.

    Raises:
        CorruptError: It is not what any Keras version writes.
    """
    try:
        return _model(config, where)
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as e:
        raise CorruptError(f"the configuration is not Keras's ({e!r})", where=where) from e


def is_model(entry: Mapping[str, Any]) -> bool:
    """Return whether a layer's entry describes a model made of layers."""
    config = entry.get("config")
    if entry.get("class_name") not in MODELS:
        return False
    return isinstance(config, list) or (isinstance(config, Mapping) and "layers" in config)


def _model(entry: Mapping[str, Any], where: str) -> Model:
    if not is_model(entry):
        raise UnsupportedError(
            f"model class {entry.get('class_name')} of {entry.get('module') or 'the author'}",
            where=where,
            hint="trust=['MODULE=PATH'] supplies the class",
        )
    config = entry["config"]
    if isinstance(config, list):  # Sequential of Keras before 2.2.3
        config = {"name": entry.get("name", where), "layers": config}
    name = str(config.get("name") or where)
    if "input_layers" in config:
        return _functional(config, name)
    return _sequential(config, name)


def _layer(entry: Mapping[str, Any], calls: Sequence[Call]) -> Layer:
    config = entry.get("config")
    # Keras 1 kept the arguments of merged Sequential models beside the others.
    arguments: dict[str, Any] = dict(config) if isinstance(config, Mapping) else {}
    name = str(entry.get("name") or arguments.get("name") or entry["class_name"].lower())
    package, _, class_name = str(entry["class_name"]).rpartition(">")
    module = entry.get("module")
    if module is None and package and entry["class_name"] not in REGISTERED:
        module = package  # Keras 2 writes "package>name" alone
    model = _model(entry, name) if is_model(entry) else _wrap_model(class_name, arguments, name)
    return Layer(name, class_name, module, arguments, tuple(calls), model)


def _wrap_model(class_name: str, arguments: Mapping[str, Any], name: str) -> Model | None:
    """Return a model that a wrapper calls on each step, as the only layer of one."""
    entry = arguments.get("layer")
    if class_name != "TimeDistributed" or not isinstance(entry, Mapping):
        return None
    inner = _layer(entry, ())
    wrapped = inner.model
    if wrapped is None:
        return None
    count = len(list(references(wrapped.inputs)))
    inputs = [Reference(f"{name}_step", 0, i) for i in range(count)]
    inner = replace(inner, calls=(Call((inputs,)),))
    outputs = [Reference(inner.name, 0, i) for i, _ in enumerate(references(wrapped.outputs))]
    return Model(name, {inner.name: inner}, inputs, outputs)


def author_layer(entry: Mapping[str, Any]) -> Layer:
    """Return a model of its author's class as a layer that nothing calls."""
    config = entry.get("config")
    arguments = config if isinstance(config, Mapping) else {}
    package, _, kind = str(entry.get("class_name")).rpartition(">")
    module = entry.get("module") or package or "its author"
    return Layer(str(arguments.get("name") or kind.lower()), kind, module, arguments, ())


def of_author(entry: Mapping[str, Any], describe: Callable[[Layer], Any]) -> Model:
    """Return a model of its author's class as the only layer of one, with its inputs.

    Of the inputs that a file records the first axis is the batch; Keras records no dtypes, and
    builds such a model with float32.

    Args:
        entry: The configuration.
        describe: Returns the inputs that the class itself gives a model, in their structure, each
            with its name, batch_shape and dtype; None if it gives none.

    Raises:
        UnsupportedError: No shapes are recorded, and the class gives none.
    """
    layer = author_layer(entry)
    build = entry.get("build_config") or {}
    shapes = build.get("input_shape")
    several = build.get("shapes_dict")
    layers: dict[str, Layer] = {}

    def add(called: str, sizes: Sequence[int | None], dtype: str) -> Reference:
        spec = {"name": called, "batch_shape": [*sizes], "dtype": dtype}
        layers[called] = Layer(called, "InputLayer", "keras.layers", spec, ())
        return Reference(called, 0, 0)

    def add_recorded(shape: Any, called: str) -> Any:
        if isinstance(shape, Mapping):
            return {key: add_recorded(part, str(key)) for key, part in shape.items()}
        if isinstance(shape, list | tuple) and any(isinstance(n, list | tuple) for n in shape):
            return [add_recorded(part, f"{called}_{i}") for i, part in enumerate(shape)]
        if not isinstance(shape, list | tuple) or not shape:
            raise UnsupportedError(
                f"model class {layer.class_name} without the shapes of its inputs",
                where=layer.name,
                hint="A .keras file records them, of a model that was called before it was saved",
            )
        return add(called, [None, *shape[1:]], "float32")

    def add_described(part: Any) -> Any:
        if isinstance(part, list):
            return [add_described(inner) for inner in part]
        if isinstance(part.get("name"), str):
            return add(part["name"], part["batch_shape"], part["dtype"])
        return {key: add_described(inner) for key, inner in part.items()}

    inputs: Any
    if shapes is None and isinstance(several, Mapping):
        inputs = {k: add_recorded(v, k.removesuffix("_shape")) for k, v in several.items()}
        call = Call((), {k.removesuffix("_shape"): v for k, v in inputs.items()})
    else:
        described = describe(layer) if shapes is None else None
        if described is not None:
            inputs = add_described(described)
        else:
            inputs = add_recorded(shapes, f"{layer.name}_input")
        call = Call((inputs,))
    layers[layer.name] = replace(layer, calls=(call,))
    return Model(layer.name, layers, inputs, Reference(layer.name, 0, 0))


# -- Sequential ----------------------------------------------------------------------------------


def _sequential(config: Mapping[str, Any], name: str) -> Model:
    layers: dict[str, Layer] = {}
    last: Reference | None = None
    first: Any = None
    for entry in config["layers"]:
        layer = _layer(entry, ())
        if last is None and isinstance(layer.config.get("layers"), list) and layer.model is None:
            first, last = _merge_sequential(layer, layers)
            continue
        if last is None and layer.class_name != "InputLayer":
            source = _input_for(layer, config)
            layers[source.name] = source
            first = last = Reference(source.name, 0, 0)
        if layer.class_name == "InputLayer":
            if last is not None:
                continue  # Keras 2 kept those of models that were added
            first = last = Reference(layer.name, 0, 0)
            layers[layer.name] = layer
            continue
        unique = _unused(layer.name, layers)
        layers[unique] = Layer(
            unique,
            layer.class_name,
            layer.module,
            layer.config,
            (Call((last,)),),
            layer.model,
        )
        last = Reference(unique, 0, 0)
    if last is None:
        raise CorruptError("a Sequential model without layers", where=name)
    return Model(name, layers, first, last)


def _merge_sequential(merge: Layer, layers: dict[str, Layer]) -> tuple[Any, Reference]:
    """Add the models that a Sequential model of Keras 1 begins by merging; return both its ends."""
    inputs, outputs = [], []
    for entry in merge.config["layers"]:
        branch = _layer(entry, ())
        name = _unused(branch.name, layers)
        if branch.model is None:
            sources = [_input_for(branch, {})]
        else:
            sources = [branch.model.layers[r.layer] for r in references(branch.model.inputs)]
        own = []
        for source in sources:
            unique = _unused(source.name, layers)
            layers[unique] = replace(source, name=unique)
            own.append(Reference(unique, 0, 0))
        call = Call((own if len(own) > 1 else own[0],))
        layers[name] = replace(branch, name=name, calls=(call,))
        inputs += own
        outputs.append(Reference(name, 0, 0))
    layers[merge.name] = replace(merge, calls=(Call((outputs,)),))
    return inputs, Reference(merge.name, 0, 0)


def _unused(name: str, taken: Mapping[str, object]) -> str:
    number, unique = 0, name
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    return unique


def _input_for(first: Layer, config: Mapping[str, Any]) -> Layer:
    """Return the input layer that a Sequential model leaves to its first layer's arguments."""
    inner: Layer | None = first
    shape: Any = None
    dtype: Any = None
    while inner is not None and shape is None:
        arguments = inner.config
        shape = arguments.get("batch_input_shape") or arguments.get("batch_shape")
        dtype = arguments.get("input_dtype") or arguments.get("dtype")
        if shape is None and arguments.get("input_shape") is not None:
            shape = [None, *arguments["input_shape"]]
        if shape is None and arguments.get("input_dim") is not None:
            shape = [None, arguments["input_dim"]]
            if arguments.get("input_length") is not None and inner.class_name != "Embedding":
                shape = [None, arguments["input_length"], arguments["input_dim"]]
            if inner.class_name == "Embedding":
                shape = [None, arguments.get("input_length")]
        if inner.model is not None and shape is None:
            (source,) = references(inner.model.inputs)
            inner = inner.model.layers[source.layer]
        else:
            wrapped = arguments.get("layer")
            inner = _layer(wrapped, ()) if shape is None and isinstance(wrapped, Mapping) else None
    if shape is None:
        shape = config.get("build_input_shape")
    if first.class_name == "Embedding" and not str(dtype).startswith("int"):
        dtype = "float32" if dtype is None else dtype
    if isinstance(dtype, Mapping) or dtype is None:
        dtype = "float32"
    arguments = {"name": f"{first.name}_input", "batch_shape": shape, "dtype": dtype}
    return Layer(f"{first.name}_input", "InputLayer", "keras.layers", arguments, ())


# -- Functional ----------------------------------------------------------------------------------


def _functional(config: Mapping[str, Any], name: str) -> Model:
    layers: dict[str, Layer] = {}
    for entry in config["layers"]:
        nodes = entry.get("inbound_nodes") or []
        layer = _layer(entry, [_call(node) for node in nodes])
        layers[layer.name] = layer
    outputs = _endpoints(config["output_layers"])
    nodes = [node for entry in config["layers"] for node in entry.get("inbound_nodes") or ()]
    by_keras_3 = any(isinstance(node, Mapping) and "args" in node for node in nodes)
    layers, outputs = _count_calls(layers, outputs, by_keras_3=by_keras_3)
    inputs = _begun(_endpoints(config["input_layers"]), layers)
    taken = set(references(inputs))
    calls = [(call.arguments, call.keywords) for layer in layers.values() for call in layer.calls]
    for reference in references([outputs, *calls]):
        if reference not in taken and reference.call >= len(layers[reference.layer].calls):
            raise CorruptError(f"no call {reference.call} of layer {reference.layer}", where=name)
    return Model(name, layers, inputs, outputs)


def _count_calls(
    layers: Mapping[str, Layer], outputs: Any, *, by_keras_3: bool
) -> tuple[dict[str, Layer], Any]:
    """Return layers and outputs whose references count a nested model's calls as they are written.

    A Functional model was called once when it was made. That call is number 0, which none but
    Keras 3 leaves out again: not where it names outputs, and of its first versions nowhere. The
    calls of a model are all referred to, so their number tells how they are counted. Keras 3 counts
    the calls of Sequential models as those of any layer.
    https://github.com/keras-team/keras/blob/v3.15.0/keras/src/models/functional.py#L448
    """
    calls = [(call.arguments, call.keywords) for layer in layers.values() for call in layer.calls]
    found = dict(layers)
    for name, layer in layers.items():
        if layer.model is None:
            continue
        inside = {r.call for r in references(calls) if r.layer == name}
        outside = {r.call for r in references(outputs) if r.layer == name}
        every = set(range(1, len(layer.calls) + 1))
        if 0 not in inside | outside and every <= inside | outside:
            found[name] = replace(layer, calls=(Call(()), *layer.calls))
        elif not by_keras_3 or layer.class_name not in MODELS - {"Sequential"}:
            continue
        elif 0 not in outside and every <= {n + 1 for n in inside} | outside:
            outputs = _one_less(outputs, name)
    return found, outputs


def _one_less(structure: Any, layer: str) -> Any:
    if isinstance(structure, Reference):
        return replace(structure, call=structure.call - (structure.layer == layer))
    if isinstance(structure, Mapping):
        return {key: _one_less(part, layer) for key, part in structure.items()}
    return [_one_less(part, layer) for part in structure]


def _begun(inputs: Any, layers: Mapping[str, Layer]) -> Any:
    """Return inputs as the layers that they begin with.

    A layer of Keras 1 that gives what it was given is the last that a tensor remembers.
    """
    if isinstance(inputs, Reference):
        seen = [inputs]
        while (layer := layers[seen[-1].layer]).calls and layer.model is None:
            given = list(references(layer.calls[seen[-1].call].arguments))
            if len(given) != 1 or given[0] in seen:
                return inputs
            seen.append(given[0])
        return seen[-1] if layer.class_name == "InputLayer" else inputs
    if isinstance(inputs, Mapping):
        return {key: _begun(part, layers) for key, part in inputs.items()}
    return [_begun(part, layers) for part in inputs]


def _endpoints(entry: Any) -> Any:
    """Return ``input_layers`` or ``output_layers``; of Keras 1 and 2 always a list."""
    if _is_reference(entry):
        return Reference(entry[0], int(entry[1]), int(entry[2]))
    if isinstance(entry, Mapping):
        return {key: _endpoints(part) for key, part in entry.items()}
    parts = [_endpoints(part) for part in entry]
    return parts[0] if len(parts) == 1 else parts


def _is_reference(entry: Any) -> bool:
    return (
        isinstance(entry, list | tuple)
        and len(entry) in (3, 4)
        and isinstance(entry[0], str)
        and all(isinstance(n, int) and not isinstance(n, bool) for n in entry[1:3])
        and (len(entry) == 3 or isinstance(entry[3], Mapping))
    )


def _call(node: Any) -> Call:
    if isinstance(node, Mapping) and "args" in node:  # Keras 3
        arguments = tuple(_keras_3(part) for part in node["args"])
        return Call(arguments, {k: _keras_3(v) for k, v in node.get("kwargs", {}).items()})
    keywords: dict[str, Any] = {}
    structure = _keras_2(node, keywords)
    if isinstance(structure, list) and len(structure) == 1 and not isinstance(structure[0], list):
        structure = structure[0]
    return Call((structure,), keywords)


def _keras_3(value: Any) -> Any:
    if isinstance(value, Mapping):
        kind = value.get("class_name")
        if kind == "__keras_tensor__":
            layer, call, tensor = value["config"]["keras_history"]
            return Reference(layer, call, tensor)
        if kind == "__tuple__":
            return tuple(_keras_3(part) for part in value["items"])
        if kind == "__slice__":
            return slice(*(_keras_3(value["config"][k]) for k in ("start", "stop", "step")))
        if kind == "__ellipsis__":
            return ...
        if kind in ("__numpy__", "__tensor__"):
            return np.array(value["config"]["value"], numpy_type(value["config"]["dtype"]))
        if kind == "__bytes__":
            return value["config"]["value"].encode()
        return {key: _keras_3(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_keras_3(part) for part in value]
    return value


def _keras_2(node: Any, keywords: dict[str, Any]) -> Any:
    """Return a node's tensors; the keyword arguments go with the first of them."""
    if isinstance(node, Mapping):
        return {key: _keras_2(part, keywords) for key, part in node.items()}
    if isinstance(node, list) and len(node) in (3, 4) and node[0] == CONSTANT and node[1] == -1:
        keywords.update(_keywords(node[3] if len(node) == 4 else {}))
        return node[2]
    if _is_reference(node):
        keywords.update(_keywords(node[3] if len(node) == 4 else {}))
        return Reference(node[0], node[1], node[2])
    return [_keras_2(part, keywords) for part in node]


def _keywords(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _nested(value) for key, value in arguments.items()}


def _nested(value: Any) -> Any:
    if _is_reference(value):
        return Reference(value[0], value[1], value[2])
    if isinstance(value, list):
        if len(value) >= 3 and value[0] == CONSTANT:
            return value[2]
        return [_nested(part) for part in value]
    if isinstance(value, Mapping):
        return {key: _nested(part) for key, part in value.items()}
    return value
