"""What today's Keras calls dtypes, initialisers, activations: values of layers' arguments.

`SIGNATURES` is what it says of its own classes, kept by fixtures/keras_layers/make_signatures.py.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from converter.lower.keras.table import Gap

PATH = Path(__file__).with_name("signatures.json")

# Ending of an argument's name -> what kind of object it is. None of them matters to inference.
TRAINING = {
    "initializer": "initializers",
    "regularizer": "regularizers",
    "constraint": "constraints",
}
# Names that older Kerases had for them.
OLD_NAMES = {
    "zero": "Zeros", "one": "Ones", "uniform": "RandomUniform", "normal": "RandomNormal",
    "IdentityInitializer": "Identity", "OrthogonalInitializer": "Orthogonal",
    "WeightRegularizer": "L1L2", "L1L2Regularizer": "L1L2", "maxnorm": "MaxNorm",
    "max_norm": "MaxNorm", "nonneg": "NonNeg", "unitnorm": "UnitNorm",
}  # fmt: skip


@cache
def signatures() -> dict[str, Any]:
    """Return what Keras's classes are called, and their arguments."""
    found: dict[str, Any] = json.loads(PATH.read_text())
    return found


def named(kind: str, name: str) -> str | None:
    """Return a class of Keras by any of its names: ``GlorotUniform`` for ``glorot_uniform``."""
    classes = signatures()[kind]
    name = OLD_NAMES.get(name, name).rpartition(">")[2]
    flat = name.replace("_", "").lower()
    return next((n for n in classes if n == name or n.lower() == flat), None)


def keras_object(module: str, class_name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a serialised object of Keras's own."""
    return {
        "module": module, "class_name": class_name, "config": dict(config), "registered_name": None
    }  # fmt: skip


def training_object(kind: str, value: Any) -> Any:
    """Return an initialiser, regulariser or constraint; None where it is nobody's that we know.

    It changes nothing of what the model computes.
    """
    if isinstance(value, str):
        value = {"class_name": value, "config": {}}
    if not isinstance(value, Mapping):
        return None
    name = str(value.get("class_name") or value.get("name") or "")
    known = named(kind, name)
    if known is None:
        return None
    config = value.get("config")
    config = config if isinstance(config, Mapping) else value
    accepted = signatures()[kind][known]
    return keras_object(f"keras.{kind}", known, {k: v for k, v in config.items() if k in accepted})


def dtype_policy(value: Any) -> Any:
    """Return a dtype policy in today's words."""
    if isinstance(value, Mapping):
        config = value.get("config")
        if not isinstance(config, Mapping):
            raise Gap(f"dtype policy {value.get('class_name')}")
        if value.get("class_name") in ("Policy", "PolicyV1", "DTypePolicy", "FloatDTypePolicy"):
            return dtype_policy(config.get("name"))
        return dict(value)  # of a quantised layer, which only today's Keras writes
    if not isinstance(value, str):
        return None
    name = {"infer": "float32", "_infer": "float32"}.get(value, value)
    return keras_object("keras", "DTypePolicy", {"name": name})


def activation(value: Any, dtype: Any) -> Any:
    """Return an activation: a name, or a layer that stands for one.

    Args:
        value: As configured.
        dtype: Of the layer, serialised.

    Raises:
        Gap: It is nobody's that we know.
    """
    if isinstance(value, Mapping):
        inner = value.get("config")
        if isinstance(inner, str):  # a function: its name
            return activation(inner, dtype)
        name = str(value.get("class_name")).rpartition(">")[2]
        if name in signatures()["layers"] and isinstance(inner, Mapping):
            return keras_object("keras.layers", name, inner)
        raise Gap(f"activation {name}")
    if value is None:
        return None
    if value == "keras2_hard_sigmoid":  # clip(0.2 x + 0.5, 0, 1), which today has no name
        parts = [("Rescaling", {"scale": 0.2, "offset": 0.5}), ("ReLU", {"max_value": 1.0})]
        layers = [
            keras_object("keras.layers", n, {"dtype": dtype, **c} if dtype else c) for n, c in parts
        ]
        return keras_object("keras.layers", "Pipeline", {"layers": layers})
    name = str(value).removesuffix("_v2")  # TensorFlow's own functions, under their names inside
    if name not in signatures()["activations"]:
        raise Gap(f"activation {value!r:.60}")
    return name
