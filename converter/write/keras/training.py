"""How a model was trained, as ``compile_config``: optimizer, loss and metrics in today's words.

It changes nothing that a model computes. What today's Keras has no word for is left out and named,
so that a file always loads; the optimizer's state is no part of it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from converter.lower.keras.table import Gap
from converter.write.keras import config_values

RENAMED = {"lr": "learning_rate"}
# Says nothing, whatever it is; or unless it is something else than this.
DROPPED = frozenset(("name", "is_legacy_optimizer", "jit_compile"))
NOTHING: dict[str, tuple[Any, ...]] = {"decay": (0.0,), "schedule_decay": (0.004,)}
REDUCTIONS = {"auto": "sum_over_batch_size"}
AS_THEY_ARE = ("run_eagerly", "steps_per_execution", "jit_compile")


def compile_config(training: Any) -> tuple[dict[str, Any] | None, list[str]]:
    """Return what ``compile`` shall be told, and what is left out of it.

    Args:
        training: What the source recorded, of any age; None where it recorded nothing.
    """
    if not isinstance(training, Mapping):
        return None, [] if training is None else ["the training configuration, which is no object,"]
    found: dict[str, Any] = {}
    left: list[str] = []
    try:
        found["optimizer"] = _optimizer(training.get("optimizer_config", training.get("optimizer")))
        found["loss"] = _each(training.get("loss"), _loss)
    except Gap as gap:
        return None, [f"how it was trained ({gap})"]
    found["loss_weights"] = training.get("loss_weights")
    for name in ("metrics", "weighted_metrics"):
        try:
            found[name] = _one_list(_each(training.get(name), _metric))
        except Gap as gap:
            left.append(f"{name} of training ({gap})")
    found |= {k: training[k] for k in AS_THEY_ARE if training.get(k) is not None}
    known = {*found, *AS_THEY_ARE, "metrics", "weighted_metrics", "optimizer_config"}
    left += [f"{name} of training" for name, value in training.items()
             if name not in known and value is not None]  # fmt: skip
    return found, left


def _each(value: Any, translate: Any) -> Any:
    """Translate what stands in lists and dicts, by output."""
    if isinstance(value, Mapping) and "class_name" not in value:
        return {key: _each(part, translate) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_each(part, translate) for part in value]
    return None if value is None else translate(value)


def _one_list(metrics: Any) -> Any:
    """Return metrics of one output as one list: tf.keras kept a list for each output."""
    if isinstance(metrics, list) and len(metrics) == 1 and isinstance(metrics[0], list):
        return metrics[0]
    return metrics


def _named(kind: str, value: Any) -> tuple[str, Mapping[str, Any]]:
    """Return class and arguments of an object of training.

    Raises:
        Gap: It is none of Keras's.
    """
    if isinstance(value, str):
        value = {"class_name": value, "config": {}}
    if not isinstance(value, Mapping):
        raise Gap(f"{kind} {value!r:.60}")
    module = str(value.get("module") or "keras").split(".")[0]
    config = value.get("config")
    name = config_values.named(kind, str(value.get("class_name")))
    if name is None or module not in ("keras", "tf_keras", "tensorflow"):
        raise Gap(f"{kind} {value.get('class_name')}")
    return name, config if isinstance(config, Mapping) else {}


def _made(kind: str, module: str, value: Any) -> dict[str, Any]:
    name, config = _named(kind, value)
    accepted = config_values.signatures()[kind][name]
    found: dict[str, Any] = {}
    for key, part in config.items():
        now = RENAMED.get(key, key)
        if now in accepted:
            found[now] = _argument(now, part)
        elif key not in DROPPED and part is not None and part not in NOTHING.get(key, ()):
            raise Gap(f"argument {key} of {name}")
    return config_values.keras_object(module, name, found)


def _argument(name: str, value: Any) -> Any:
    if name == "learning_rate" and isinstance(value, Mapping):
        return _made("schedules", "keras.optimizers.schedules", value)
    if name == "reduction":
        return REDUCTIONS.get(value, value)
    if name == "dtype" and isinstance(value, Mapping):
        return config_values.dtype_policy(value)
    if isinstance(value, Mapping):
        raise Gap(f"argument {name}")
    return value


def _optimizer(value: Any) -> Any:
    if value is None:
        raise Gap("no optimizer is recorded")
    return _made("optimizers", "keras.optimizers", value)


def _loss(value: Any) -> Any:
    if isinstance(value, str) and value in config_values.signatures()["loss_names"]:
        return value
    return _made("losses", "keras.losses", value)


def _metric(value: Any) -> Any:
    """Return a metric: a name, or an object; a function that tf.keras wrapped, by its name."""
    names = config_values.signatures()["metric_names"]
    if isinstance(value, str) and value in names:
        return value
    if isinstance(value, Mapping) and value.get("class_name") == "MeanMetricWrapper":
        config = value.get("config")
        config = config if isinstance(config, Mapping) else {}
        function = config.get("fn")
        known = config_values.named("metrics", function) if isinstance(function, str) else None
        if known is not None:
            return config_values.keras_object("keras.metrics", known, {"name": config.get("name")})
        raise Gap(f"metric {function!r:.60}")
    return _made("metrics", "keras.metrics", value)
