"""Predict how a loader of Keras fails to compile a model as its file says that it was trained.

``load_model`` compiles unless ``compile=False`` is passed: it finds the optimizer, the losses and
the metrics by name, first the optimizer, and stops at the first that it does not accept. HDF5 files
and SavedModels have a ``training_config``, .keras files a ``compile_config`` whose objects name
their modules. A SavedModel has its metrics among its objects as well, which come first.
Spec: https://github.com/keras-team/keras/blob/v3.15.1/keras/src/legacy/saving/saving_utils.py
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from typing import Any

from converter.doctor.findings import Failure
from converter.doctor.loaders.keras_loader import UNLOCATED, Arguments, Loader

# Strings that compiling replaces by a metric or loss that fits the output.
FITTED = ("accuracy", "acc", "crossentropy", "ce")
# Short names of losses: Keras 3 looks them up among its metrics when it reads HDF5, and fails.
SHORT = frozenset(("bce", "kld", "mae", "mape", "mse", "msle"))  # and in capitals
REDUCTIONS = ("sum", "none", "mean", "mean_with_sample_weight", None, "sum_over_batch_size")
SUFFIX = "Please ensure you are using a `keras.utils.custom_object_scope`"
NOT_REBUILT = "<class 'keras.src.{}s."  # the module and the class follow
OWN = ("keras", "tf_keras")


def find_training_failure(training: Any, loader: Loader) -> Failure | None:
    """Return how a loader fails to compile a model; None if it does, or has nothing to compile.

    Args:
        training: ``training_config`` or ``compile_config``, parsed; None if there is none.
        loader: Which loader, for which file.
    """
    if not isinstance(training, Mapping):
        return None
    return next(_check_training(training, loader), None)


def find_foreign_module(training: Any) -> str:
    """Return a module that is not Keras's own and that compiling may import; "" for none."""
    if isinstance(training, Mapping):
        module = training.get("module")
        if isinstance(module, str) and module.split(".")[0] not in (*OWN, "builtins"):
            return module
    if not isinstance(training, Mapping | list):
        return ""
    values = training.values() if isinstance(training, Mapping) else training
    return next(filter(None, map(find_foreign_module, values)), "")


def _check_training(training: Mapping[str, Any], loader: Loader) -> Iterator[Failure]:
    has_modules = _has_modules(loader)
    if loader.facts.container == "savedmodel":
        yield from _check_restored_metrics(training, loader)
    key = "optimizer" if has_modules else "optimizer_config"
    if not has_modules and key not in training:
        yield _lack(key)
    yield from _check_optimizer(training.get(key), loader)
    for part in ("loss", "metrics", "weighted_metrics"):
        kind, given = ("loss" if part == "loss" else "metric"), training.get(part)
        for leaf in _list_leaves(given):
            if isinstance(leaf, Mapping) and (leaf.get("module") or has_modules):
                yield from _check_modern(kind, leaf, loader)
            elif isinstance(leaf, Mapping):
                yield from _check_object(kind, leaf, loader, is_alone=leaf is given)
            elif not has_modules:
                yield from _check_name(kind, leaf, loader, is_alone=leaf is given)
    if not has_modules and "loss_weights" not in training:
        yield _lack("loss_weights")


def _check_restored_metrics(training: Mapping[str, Any], loader: Loader) -> Iterator[Failure]:
    """Yield how tf_keras fails to restore a metric of a SavedModel, before it compiles."""
    for part in ("metrics", "weighted_metrics"):
        for leaf in _list_leaves(training.get(part)):
            is_object = isinstance(leaf, Mapping)
            name = str(leaf.get("class_name")) if is_object else "MeanMetricWrapper"
            found = (
                _check_object("metric", leaf, loader, is_alone=False)
                if is_object
                else _check_name("metric", leaf, loader, is_alone=False)
            )
            for failure in found:
                said = f'Unable to restore custom object of class "{name}" (type _tf_keras_metric)'
                yield replace(failure, error="ValueError", message=said)


def _has_modules(loader: Loader) -> bool:
    """Return whether the objects of a file's training configuration name their modules."""
    return loader.facts.container not in ("hdf5", "savedmodel")


def _lack(key: str) -> Failure:
    why = f"its training configuration has no {key}"
    return Failure("KeyError", f"'{key}'", "training-incomplete", why)


def _list_leaves(config: Any) -> Iterator[Any]:
    """Yield the names and objects in nested lists and mappings from outputs."""
    if isinstance(config, str) or (isinstance(config, Mapping) and "class_name" in config):
        yield config
    elif isinstance(config, Mapping | list):
        for value in config.values() if isinstance(config, Mapping) else config:
            yield from _list_leaves(value)


# -- optimizers ------------------------------------------------------------------------------------


def _check_optimizer(node: Any, loader: Loader) -> Iterator[Failure]:
    if not isinstance(node, Mapping):
        return
    name, config = str(node.get("class_name")), _config_of(node)
    if _has_modules(loader):
        yield from _check_modern("optimizer", node, loader)
        return
    is_former = bool(config) and bool(config.get("is_legacy_optimizer", True))
    known = _list_optimizers(loader, is_former=is_former)
    if not loader.is_keras_3:
        registered = name.removeprefix("Custom>")  # tf.keras 2.11 and 2.12 registered their own so
        if registered.lower() in known:
            name = registered
        else:
            yield _unknown("optimizer", name, f"Unknown optimizer: '{name}'. {SUFFIX}")
            return
    elif name.lower() not in known:
        yield from _find_by_name("optimizer", name, config, known)
        return
    yield from _check_optimizer_arguments(name, config, loader, is_former=is_former)


def _check_optimizer_arguments(
    name: str, config: Mapping[str, Any], loader: Loader, *, is_former: bool
) -> Iterator[Failure]:
    """Yield how the loader fails on the arguments of an optimizer that it knows."""
    if loader.is_keras_3 and name == "LossScaleOptimizer" and "inner_optimizer" not in config:
        why = "a LossScaleOptimizer before TF 2.4 names its optimizer otherwise"
        yield Failure("KeyError", "'inner_optimizer'", "optimizer-argument", why)
    for value in config.values():
        if not (isinstance(value, Mapping) and "class_name" in value) or value.get("module"):
            continue
        inner = str(value["class_name"])
        if loader.is_keras_3:
            yield Failure(
                "TypeError", NOT_REBUILT.format("optimizer"), "optimizer-argument",
                f"{name} holds {inner} without its module, which Keras 3 needs",
            )  # fmt: skip
        elif inner.lower() not in _list_optimizers(loader, is_former=is_former) and (
            inner not in loader.known.schedules | {"DynamicLossScale", "FixedLossScale"}
        ):
            yield _unknown("optimizer", inner, f"Unknown decay: '{inner}'. {SUFFIX}")
    accepted = _list_optimizers(loader, is_former=is_former)[name.lower()].names
    unknown = sorted(set(config) - accepted)
    if not loader.is_keras_3 and "is_legacy_optimizer" in unknown:
        unknown.remove("is_legacy_optimizer")  # which only chooses the class
    if not accepted or not unknown:
        return
    if loader.is_keras_3:
        first = next(key for key in config if key in unknown)
        error, message = "ValueError", f"Argument(s) not recognized: {{'{first}'"
    elif is_former:
        error, message = "TypeError", "Unexpected keyword argument passed to optimizer: "
    else:
        error, message = "TypeError", f"{unknown[0]} is not a valid argument"
    why = f"the optimizer {name} takes no {', '.join(unknown)} in this Keras"
    yield Failure(error, message, "optimizer-argument", why)


def _list_optimizers(loader: Loader, *, is_former: bool) -> Arguments:
    """Return the arguments of each optimizer, by its name in lower case."""
    known = loader.known
    table = known.former_optimizers if is_former and not loader.is_keras_3 else known.optimizers
    return {name.lower(): accepted for name, accepted in table.items()}


def _find_by_name(
    kind: str, class_name: str, config: Mapping[str, Any], known: Container[str]
) -> Iterator[Failure]:
    """Yield how Keras 3 fails on an unknown class: it takes what is called as the object is."""
    if "name" not in config:
        yield _unknown(kind, class_name, "'name'", error="KeyError")
        return
    name = str(config["name"])
    if name not in known and name.lower() not in known:
        yield _unknown(kind, class_name, f"Could not interpret {kind} identifier: {name}")


# -- losses and metrics ----------------------------------------------------------------------------


def _check_name(kind: str, name: str, loader: Loader, *, is_alone: bool) -> Iterator[Failure]:
    """Yield how the loader fails on a loss or metric that an HDF5 file calls by name.

    Keras 3 leaves unknown names in lists to the first training step.
    """
    if kind == "metric" and name in FITTED and not (is_alone and loader.is_keras_3):
        return
    is_known = name in _list_names(kind, loader)
    if not loader.is_keras_3:
        if not is_known:
            yield _unknown(kind, name, f"Unknown {kind} function: '{name}'. {SUFFIX}")
        return
    if kind == "loss" and name.lower() in SHORT:
        yield Failure(
            "ValueError", f"Could not deserialize 'keras.metrics.{name}' because it is not a ",
            "loss-short-name", f"Keras 3 does not find the loss by its short name {name}",
        )  # fmt: skip
    elif is_alone and not is_known and name not in FITTED:
        yield _unknown(kind, name, "string indices must be integers", error="TypeError")
    elif is_alone and kind == "metric":
        said = "Expected `metrics` argument to be a list, tuple, or dict."
        yield Failure("ValueError", said, "metrics-no-list", "its metrics are in no list")


def _check_object(
    kind: str, node: Mapping[str, Any], loader: Loader, *, is_alone: bool
) -> Iterator[Failure]:
    """Yield how the loader fails on an object that an HDF5 file names without its module."""
    name, config = str(node.get("class_name")), _config_of(node)
    known = loader.known.losses if kind == "loss" else loader.known.metrics
    if name in known:
        yield from _check_object_arguments(kind, name, config, loader)
        function = config.get("fn") if name == "MeanMetricWrapper" else None
        if isinstance(function, str) and not loader.is_keras_3:
            yield from _check_name(kind, function, loader, is_alone=False)
    elif not loader.is_keras_3:
        yield _unknown(kind, name, f"Unknown {kind} function: '{name}'. {SUFFIX}")
    elif is_alone:
        yield from _find_by_name(kind, name, config, _list_names(kind, loader))


def _check_object_arguments(
    kind: str, name: str, config: Mapping[str, Any], loader: Loader
) -> Iterator[Failure]:
    known = loader.known.losses if kind == "loss" else loader.known.metrics
    ignored = set() if loader.is_keras_3 else {"fn"}
    unknown = sorted(set(config) - known[name].names - ignored)
    why = f"the {kind} {name} takes no {', '.join(unknown)} in this Keras"
    if unknown and name != "MeanMetricWrapper":
        message = f"Error when deserializing class '{name}' using config="
        if loader.is_keras_3:
            message = NOT_REBUILT.format("losse" if kind == "loss" else kind)
        elif kind == "loss":
            message = f"{name}.__init__() got an unexpected keyword argument '{unknown[0]}'"
        yield Failure("TypeError", message, f"{kind}-argument", why)
    elif loader.is_keras_3 and kind == "loss" and config.get("reduction") not in REDUCTIONS:
        yield Failure(
            "ValueError", "Invalid value for argument `reduction`.", "loss-argument",
            f"Keras 3 knows no reduction {config['reduction']!r}",
        )  # fmt: skip


def _list_names(kind: str, loader: Loader) -> frozenset[str]:
    """Return the losses or metrics that a loader finds by name: functions and classes."""
    known = loader.known
    if kind == "loss":
        return known.loss_functions.union(known.losses)
    return known.metric_functions.union(known.metrics)


# -- objects that name their modules ---------------------------------------------------------------


def _check_modern(kind: str, node: Mapping[str, Any], loader: Loader) -> Iterator[Failure]:
    """Yield how the loader fails on an optimizer, loss or metric with its module."""
    name, module = str(node.get("class_name")), str(node.get("module") or "")
    if module == "builtins" and name == "function":
        function = str(node.get("config"))
        if function not in _list_names(kind, loader):
            said = f"Could not locate function '{function}'. Make sure custom classes"
            yield _unknown(kind, function, said, error="TypeError")
        return
    known = {
        "optimizer": loader.known.optimizers,
        "loss": loader.known.losses,
        "metric": loader.known.metrics,
    }[kind]
    if module.split(".")[0] not in OWN:
        said = UNLOCATED.format(name).replace("Make sure custom classes", "Make sure custom ")
        if module and not loader.is_keras_3:
            said = f"Could not deserialize class '{name}' because its parent module {module} cannot"
        yield _unknown(kind, name, said, error="TypeError")
    elif name not in known:
        said = f"Could not deserialize '{module}.{name}' because it is not a KerasSaveable"
        if loader.is_keras_3:
            yield _unknown(kind, name, said)
        else:
            yield _unknown(kind, name, UNLOCATED.format(name), error="TypeError")
    elif kind == "optimizer":
        is_former = not _has_modules(loader)
        yield from _check_optimizer_arguments(name, _config_of(node), loader, is_former=is_former)
    else:
        yield from _check_object_arguments(kind, name, _config_of(node), loader)


def _config_of(node: Mapping[str, Any]) -> Mapping[str, Any]:
    config = node.get("config")
    return config if isinstance(config, Mapping) else {}


def _unknown(kind: str, name: str, message: str, *, error: str = "ValueError") -> Failure:
    why = f"the {kind} {name}, which it was trained with, is unknown here"
    return Failure(error, message, f"{kind}-unknown", why)
