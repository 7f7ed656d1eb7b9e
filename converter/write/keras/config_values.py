"""Serialize dtypes, initializers and activations as the current Keras does.

signatures.json has the classes of Keras and their arguments. It is written by
fixtures/keras_layers/make_signatures.py.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from converter.lower.keras.table import Unsupported

PATH = Path(__file__).with_name("signatures.json")

# End of an argument's name -> kind of object. None of them matters to inference.
TRAINING = {
    "initializer": "initializers",
    "regularizer": "regularizers",
    "constraint": "constraints",
}
# Names in older Keras versions.
OLD_NAMES = {
    "zero": "Zeros", "one": "Ones", "uniform": "RandomUniform", "normal": "RandomNormal",
    "IdentityInitializer": "Identity", "OrthogonalInitializer": "Orthogonal",
    "WeightRegularizer": "L1L2", "L1L2Regularizer": "L1L2", "maxnorm": "MaxNorm",
    "max_norm": "MaxNorm", "nonneg": "NonNeg", "unitnorm": "UnitNorm",
}  # fmt: skip


@cache
def load_signatures() -> dict[str, Any]:
    """Return the classes of the current Keras and their arguments, by kind."""
    found: dict[str, Any] = json.loads(PATH.read_text())
    return found


def find_class(kind: str, name: str) -> str | None:
    """Return the name of a class: ``GlorotUniform`` for ``glorot_uniform``; None if unknown."""
    classes = load_signatures()[kind]
    name = OLD_NAMES.get(name, name).rpartition(">")[2]
    flat = name.replace("_", "").lower()
    return next((n for n in classes if n == name or n.lower() == flat), None)


def keras_object(module: str, class_name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a serialized Keras object."""
    return {
        "module": module, "class_name": class_name, "config": dict(config), "registered_name": None
    }  # fmt: skip


def serialize_training_object(kind: str, value: Any) -> Any:
    """Return a serialized initializer, regularizer or constraint; None if it is unknown.

    It does not change what the model computes.
    """
    if isinstance(value, str):
        value = {"class_name": value, "config": {}}
    if not isinstance(value, Mapping):
        return None
    name = str(value.get("class_name") or value.get("name") or "")
    known = find_class(kind, name)
    if known is None:
        return None
    config = value.get("config")
    config = config if isinstance(config, Mapping) else value
    accepted = load_signatures()[kind][known]
    return keras_object(f"keras.{kind}", known, {k: v for k, v in config.items() if k in accepted})


def dtype_policy(value: Any) -> Any:
    """Return a dtype policy as the current Keras serializes it."""
    if isinstance(value, Mapping):
        config = value.get("config")
        if not isinstance(config, Mapping):
            raise Unsupported(f"dtype policy {value.get('class_name')}")
        if value.get("class_name") in ("Policy", "PolicyV1", "DTypePolicy", "FloatDTypePolicy"):
            return dtype_policy(config.get("name"))
        return dict(value)  # of a quantized layer, which only the current Keras writes
    if not isinstance(value, str):
        return None
    name = {"infer": "float32", "_infer": "float32"}.get(value, value)
    return keras_object("keras", "DTypePolicy", {"name": name})


def activation(value: Any, dtype: Any) -> Any:
    """Return an activation: a name, or a layer that computes it.

    Args:
        value: As configured.
        dtype: Of the layer, serialized.

    Raises:
        Unsupported: It is unknown.
    """
    if isinstance(value, Mapping):
        inner = value.get("config")
        if isinstance(inner, str):  # a function: its name
            return activation(inner, dtype)
        name = str(value.get("class_name")).rpartition(">")[2]
        if name in load_signatures()["layers"] and isinstance(inner, Mapping):
            return keras_object("keras.layers", name, inner)
        raise Unsupported(f"activation {name}")
    if value is None:
        return None
    if value == "keras2_hard_sigmoid":  # clip(0.2 x + 0.5, 0, 1) has no name in Keras 3
        parts = [("Rescaling", {"scale": 0.2, "offset": 0.5}), ("ReLU", {"max_value": 1.0})]
        layers = [
            keras_object("keras.layers", n, {"dtype": dtype, **c} if dtype else c) for n, c in parts
        ]
        return keras_object("keras.layers", "Pipeline", {"layers": layers})
    name = str(value).removesuffix("_v2")  # TensorFlow's own functions, under their names inside
    if name not in load_signatures()["activations"]:
        raise Unsupported(f"activation {value!r:.60}")
    return name
