"""Upgrades of older Keras's attention layers, of modes of layers, and of operations among layers.

A `TFOpLambda` becomes a call of the function that it names, a `TensorFlowOpLayer` a call of the op
of its node: their class name is then that function or op, and their module TensorFlow's.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from converter.lower.keras.model import Layer
from converter.lower.keras.table import OPERATIONS
from converter.lower.keras.version_upgrades import Age, rule
from formats.keras.variable_names import quantization

QUANTIZED = ("Dense", "EinsumDense", "Embedding", "ReversibleEmbedding")


@rule
def masks_of_heads(layer: Layer, age: Age) -> Layer | None:
    """Mask MultiHeadAttention as Keras 2 does: by adding to the scores."""
    if layer.class_name != "MultiHeadAttention" or age.major > 2:
        return None
    return replace(layer, config={"softmax_robust_masking": False, **layer.config})


@rule
def class_of_a_mode(layer: Layer, age: Age) -> Layer | None:
    """Use the class of quantized layers that the dtype policy names."""
    del age
    mode = quantization(layer.config.get("dtype"))
    if layer.class_name not in QUANTIZED or not mode:
        return None
    return replace(layer, class_name=f"{layer.class_name} {mode}")


@rule
def operation_without_module(layer: Layer, age: Age) -> Layer | None:
    """Keras 3 names no modules in .h5 files: what is not trainable, or else, is an operation."""
    if age.major < 3 or layer.module is not None or "trainable" in layer.config:
        return None
    if layer.class_name == "InputLayer" or layer.model is not None:
        return None
    if layer.class_name not in OPERATIONS:
        return None
    return replace(layer, module="keras.src.ops.numpy")


@rule
def setting_of_code(layer: Layer, age: Age) -> Layer | None:
    """Give a Lambda the setting that its code was written for; rename its own mask."""
    if layer.class_name != "Lambda":
        return None
    config = {**layer.config, "setting": (age.major, age.tensorflow, age.backend, age.data_format)}
    if "mask" in config:
        config["own_mask"] = config.pop("mask")
    return replace(layer, config=config)


# -- TensorFlow ------------------------------------------------------------------------------------

# In front of functions that mean the same without it.
NAMESPACES = ("compat.v1.", "compat.v2.", "math.", "nn.", "linalg.", "__operators__.", "dtypes.")
# Attributes of nodes that say dtypes of inputs, or nothing that inference depends on.
TYPES = frozenset(("Index", "SrcT", "DstT", "N", "_class", "_cloned", "_output_shapes"))
TYPE_ENDINGS = ("_type", "dtype")


def is_type(name: str) -> bool:
    """Return whether a node's attribute of this name says no more than a dtype."""
    of_input = name[0] == "T" and (len(name) == 1 or name[1:].islower() or name == "TI")
    return of_input or name in TYPES or name.endswith(TYPE_ENDINGS)


@rule
def function_of_tensorflow(layer: Layer, age: Age) -> Layer | None:
    """Convert a TFOpLambda into a call of the function that it names."""
    del age
    if layer.class_name not in ("TFOpLambda", "SlicingOpLambda", "ClassMethod", "InstanceMethod"):
        return None
    name = str(layer.config.get("function", layer.config.get("method", "")))
    for namespace in NAMESPACES:
        name = name.removeprefix(namespace)
    return replace(layer, class_name=name, module="function of tensorflow", config={})


@rule
def op_of_tensorflow(layer: Layer, age: Age) -> Layer | None:
    """Convert a TensorFlowOpLayer into a call of its node's op, with constants among its inputs."""
    del age
    node = layer.config.get("node_def")
    if layer.class_name != "TensorFlowOpLayer" or node is None:
        return None
    node = json.loads(node) if isinstance(node, str) else node
    config = {k: attribute(v) for k, v in node.get("attr", {}).items()}
    constants = layer.config.get("constants") or {}
    calls = []
    for call in layer.calls:
        inputs = list(flat(call.arguments))
        for place, constant in sorted((int(k), v) for k, v in constants.items()):
            inputs.insert(place, constant)
        calls.append(replace(call, arguments=tuple(inputs)))
    name, module = str(node["op"]), "op of tensorflow"
    return replace(layer, class_name=name, module=module, config=config, calls=tuple(calls))


def flat(structure: Any) -> Iterator[Any]:
    """Yield what nested lists hold, in order."""
    if isinstance(structure, list | tuple):
        for part in structure:
            yield from flat(part)
    else:
        yield structure


def attribute(value: Mapping[str, Any]) -> Any:
    """Return an attribute of a node from its JSON, in which integers and bytes are text."""
    for kind, read in ATTRIBUTES.items():
        if kind in value:
            return read(value[kind])
    if "list" in value:
        items = value["list"]
        kinds = [kind for kind in ATTRIBUTES if kind in items]
        return [ATTRIBUTES[kinds[0]](item) for item in items[kinds[0]]] if kinds else []
    return None


def _text(value: str) -> str:
    return base64.b64decode(value).decode("utf-8", "backslashreplace")


def _dtype(value: str) -> str:
    name = value.removeprefix("DT_").lower()
    return {"float": "float32", "double": "float64", "half": "float16"}.get(name, name)


ATTRIBUTES: dict[str, Callable[[Any], Any]] = {
    "b": bool, "i": int, "f": float, "s": _text, "type": _dtype,
}  # fmt: skip
