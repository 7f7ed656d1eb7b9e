"""Translate a training configuration to ``compile_config``: optimizer, loss and metrics.

It does not change what a model computes. What the current Keras does not have is left out and
listed, so that a file always loads. The optimizer's state is not part of it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from converter.lower.keras.table import Unsupported
from converter.write.keras import config_values

RENAMED = {"lr": "learning_rate"}
# Arguments dropped with any value, and those dropped with one of these values.
DROPPED = frozenset(("name", "is_legacy_optimizer", "jit_compile"))
NOTHING: dict[str, tuple[Any, ...]] = {"decay": (0.0,), "schedule_decay": (0.004,)}
REDUCTIONS = {"auto": "sum_over_batch_size"}
AS_THEY_ARE = ("run_eagerly", "steps_per_execution", "jit_compile")


def compile_config(training: Any) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the ``compile_config`` of a training configuration, and what is left out of it.

    Args:
        training: As recorded by any version; None if nothing is recorded.
    """
    if not isinstance(training, Mapping):
        return None, [] if training is None else ["the training configuration, which is no object,"]
    found: dict[str, Any] = {}
    left: list[str] = []
    try:
        found["optimizer"] = _translate_optimizer(
            training.get("optimizer_config", training.get("optimizer"))
        )
        found["loss"] = _map_nested(training.get("loss"), _translate_loss)
    except Unsupported as gap:
        return None, [f"how it was trained ({gap})"]
    found["loss_weights"] = training.get("loss_weights")
    for name in ("metrics", "weighted_metrics"):
        try:
            found[name] = _flatten_single(_map_nested(training.get(name), _translate_metric))
        except Unsupported as gap:
            left.append(f"{name} of training ({gap})")
    found |= {k: training[k] for k in AS_THEY_ARE if training.get(k) is not None}
    known = {*found, *AS_THEY_ARE, "metrics", "weighted_metrics", "optimizer_config"}
    left += [f"{name} of training" for name, value in training.items()
             if name not in known and value is not None]  # fmt: skip
    return found, left


def _map_nested(value: Any, translate: Any) -> Any:
    """Translate the values in lists and dicts by output."""
    if isinstance(value, Mapping) and "class_name" not in value:
        return {key: _map_nested(part, translate) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_map_nested(part, translate) for part in value]
    return None if value is None else translate(value)


def _flatten_single(metrics: Any) -> Any:
    """Return the metrics of a single output as one list: tf.keras has a list for each output."""
    if isinstance(metrics, list) and len(metrics) == 1 and isinstance(metrics[0], list):
        return metrics[0]
    return metrics


def _find_object(kind: str, value: Any) -> tuple[str, Mapping[str, Any]]:
    """Return the class and arguments of a Keras object.

    Raises:
        Unsupported: It is not one of Keras's own.
    """
    if isinstance(value, str):
        value = {"class_name": value, "config": {}}
    if not isinstance(value, Mapping):
        raise Unsupported(f"{kind} {value!r:.60}")
    module = str(value.get("module") or "keras").split(".")[0]
    config = value.get("config")
    name = config_values.find_class(kind, str(value.get("class_name")))
    if name is None or module not in ("keras", "tf_keras", "tensorflow"):
        raise Unsupported(f"{kind} {value.get('class_name')}")
    return name, config if isinstance(config, Mapping) else {}


def _serialize(kind: str, module: str, value: Any) -> dict[str, Any]:
    name, config = _find_object(kind, value)
    accepted = config_values.load_signatures()[kind][name]
    found: dict[str, Any] = {}
    for key, part in config.items():
        now = RENAMED.get(key, key)
        if now in accepted:
            found[now] = _translate_argument(now, part)
        elif key not in DROPPED and part is not None and part not in NOTHING.get(key, ()):
            raise Unsupported(f"argument {key} of {name}")
    return config_values.keras_object(module, name, found)


def _translate_argument(name: str, value: Any) -> Any:
    if name == "learning_rate" and isinstance(value, Mapping):
        return _serialize("schedules", "keras.optimizers.schedules", value)
    if name == "reduction":
        return REDUCTIONS.get(value, value)
    if name == "dtype" and isinstance(value, Mapping):
        return config_values.dtype_policy(value)
    if isinstance(value, Mapping):
        raise Unsupported(f"argument {name}")
    return value


def _translate_optimizer(value: Any) -> Any:
    if value is None:
        raise Unsupported("no optimizer is recorded")
    return _serialize("optimizers", "keras.optimizers", value)


def _translate_loss(value: Any) -> Any:
    if isinstance(value, str) and value in config_values.load_signatures()["loss_names"]:
        return value
    return _serialize("losses", "keras.losses", value)


def _translate_metric(value: Any) -> Any:
    """Return a metric: a name or an object; a function that tf.keras wrapped becomes its name."""
    names = config_values.load_signatures()["metric_names"]
    if isinstance(value, str) and value in names:
        return value
    if isinstance(value, Mapping) and value.get("class_name") == "MeanMetricWrapper":
        config = value.get("config")
        config = config if isinstance(config, Mapping) else {}
        function = config.get("fn")
        known = config_values.find_class("metrics", function) if isinstance(function, str) else None
        if known is not None:
            return config_values.keras_object("keras.metrics", known, {"name": config.get("name")})
        raise Unsupported(f"metric {function!r:.60}")
    return _serialize("metrics", "keras.metrics", value)
