"""Predict how a loader of Keras fails on the arguments of one layer."""

from collections.abc import Iterator, Mapping
from typing import Any

from converter.doctor.findings import Failure
from converter.doctor.host import parse_release
from converter.doctor.loaders.keras_loader import UNLOCATED, Loader

WRAPPERS = ("TimeDistributed", "Bidirectional", "Wrapper", "SpectralNormalization")
OBJECT_ENDINGS = ("_initializer", "_regularizer", "_constraint")
# Arguments that Keras 3's legacy loader removes or renames before it builds a layer.
REMOVED = frozenset(("batch_input_shape", "axis"))
REMOVED_FROM_LAMBDA = frozenset(
    ("module", "function_type", "output_shape_type", "output_shape_module")
)
# Functions among the layers of Keras 3, which its legacy loader puts in place of equal strings.
FUNCTIONS = ("add", "average", "concatenate", "dot", "maximum", "minimum", "multiply", "subtract")
OLD_PYTHON = (2, 11)  # Keras before it ran on Pythons whose bytecode today's Python cannot read


def check_layer(
    name: str, config: Mapping[str, Any], loader: Loader, *, model: str, modern: bool
) -> Iterator[Failure]:
    """Yield how the loader fails on a layer's configuration.

    Args:
        name: Class of the layer.
        config: Its configuration.
        loader: Which loader, for which file.
        model: Class of the model that it is part of; "" for none.
        modern: Whether it is configured as in .keras files, by module and name.
    """
    if name == "Lambda":
        yield from _check_lambda(config, loader)
    if loader.is_keras_3:
        layer = config.get("layer") if name in WRAPPERS and not modern else None
        if isinstance(layer, Mapping) and not layer.get("module"):
            yield _fail_on_inner_layer(name, layer)
            return
        for cell in (config.get("cell"), *(config.get("cells") or ())):
            if isinstance(cell, Mapping) and not cell.get("module"):
                yield _fail_on_inner_layer(name, cell)
    failure = _check_arguments(name, config, loader, modern=modern)
    if failure is not None:
        yield loader.wrap(name, failure, model=model, modern=modern)


def _fail_on_inner_layer(name: str, inner: Mapping[str, Any]) -> Failure:
    return Failure(
        "TypeError", UNLOCATED.format(inner.get("class_name")), "nested-layer",
        f"{name} holds {inner.get('class_name')} without its module, which Keras 3 needs",
    )  # fmt: skip


def _check_lambda(config: Mapping[str, Any], loader: Loader) -> Iterator[Failure]:
    """Yield how the loader fails on bytecode or on a function of the author's."""
    function = config.get("function")
    bytecode = isinstance(function, list) or (
        isinstance(function, Mapping) and function.get("class_name") == "__lambda__"
    )
    if bytecode and loader.is_keras_3:
        yield Failure(
            "ValueError",
            "Requested the deserialization of a `Lambda` layer whose `function` is a Python "
            "lambda. This carries a potential risk of arbitrary code execution",
            "lambda-bytecode", "a Lambda layer holds Python bytecode, which safe_mode refuses",
        )  # fmt: skip
    elif bytecode:
        old = parse_release(loader.facts.keras_version) < OLD_PYTHON
        yield Failure(
            "ValueError", "bad marshal data (unknown type code)" if old else "",
            "lambda-bytecode",
            "a Lambda layer holds bytecode of another Python" if old
            else "a Lambda layer holds bytecode, which only the Python that wrote it loads",
            unknown=not old,
        )  # fmt: skip
    elif isinstance(function, str):
        yield Failure(
            "TypeError" if loader.is_keras_3 else "AttributeError",
            "unsupported callable" if loader.is_keras_3
            else "'NoneType' object has no attribute 'get'",
            "custom-function", f"a Lambda layer calls {function}, which the file does not hold",
        )  # fmt: skip


def _check_arguments(
    name: str, config: Mapping[str, Any], loader: Loader, *, modern: bool
) -> Failure | None:
    """Return how a layer's constructor fails."""
    accepted = loader.known.layers.get(name)
    if accepted is None or (loader.is_keras_3 and name == "InputLayer"):  # it takes anything
        return None
    legacy = loader.is_keras_3 and not modern
    given = set(config)
    if legacy:
        given -= REMOVED - ({"axis"} & accepted.names)
        given -= REMOVED_FROM_LAMBDA if name == "Lambda" else set()
    missing = sorted(accepted.required - given)
    if missing:
        listed = " and ".join(f"'{m}'" for m in missing)
        plural = "s" if len(missing) > 1 else ""
        return Failure(
            "TypeError",
            f"{name}.__init__() missing {len(missing)} required positional argument{plural}: "
            f"{listed}",
            "keras-1-arguments" if parse_release(loader.facts.keras_version)[:1] == (1,)
            else "missing-argument",
            f"{name} is configured without {listed}: other versions of Keras name it otherwise",
        )  # fmt: skip
    for key, value in config.items():
        if isinstance(value, Mapping) and key.endswith(OBJECT_ENDINGS):
            failure = _check_object(key, value, loader)
            if failure is not None:
                return failure
    unknown = sorted(given - accepted.names)
    if unknown:
        return Failure(
            "ValueError",
            f"Unrecognized keyword arguments passed to {name}: {{'{unknown[0]}'"
            if loader.is_keras_3
            else f"('Keyword argument not understood:', '{unknown[0]}')",
            "unknown-argument", f"{name} takes no {', '.join(unknown)} in this Keras",
        )  # fmt: skip
    if "trainable" in config and config["trainable"] is None:
        return Failure("TypeError", "", "trainable-none", f"{name} says that trainable is null")
    if loader.is_keras_3 and "/" in str(config.get("name", "")):
        return Failure(
            "ValueError", "Argument `name` must be a string and cannot contain character `/`",
            "name-with-slash", f"a layer is called {config['name']!r:.60}",
        )  # fmt: skip
    score = config.get("score_mode")
    if legacy and score in FUNCTIONS:
        return Failure(
            "ValueError", "Invalid value for argument score_mode.", "name-taken-for-function",
            f"Keras 3 replaces the string {score!r} by its own function of that name",
        )  # fmt: skip
    return _check_dtype(config.get("dtype"), loader) or _check_activation(
        config.get("activation"), loader
    )


def _check_object(key: str, value: Mapping[str, Any], loader: Loader) -> Failure | None:
    """Return how the loader fails to build an initializer, regularizer or constraint."""
    name, config = value.get("class_name"), value.get("config")
    if not isinstance(name, str):
        why = f"{key} is written as Keras 1 did"
        return Failure("ValueError", "Unknown `config` as a `dict`", "keras-1-object", why)
    accepted = loader.known.objects.get(name)
    if accepted is None:
        if str(value.get("module") or "").startswith("keras"):
            return None
        why = f"{key} is {name}, which is unknown here"
        return Failure("ValueError", "Could not interpret", "custom-object", why)
    given = set(config) if isinstance(config, Mapping) else set()
    if not loader.is_keras_3 and key.endswith("_initializer"):
        given.discard("dtype")  # Initializer.from_config of Keras 2 removes it
    unknown = sorted(given - accepted.names)
    if not unknown:
        return None
    return Failure(
        "TypeError",
        f"<class 'keras.src.{key.rpartition('_')[2]}s." if loader.is_keras_3
        else f"{name}.__init__() got an unexpected keyword argument '{unknown[0]}'",
        "initializer-argument", f"{key} {name} is saved with {', '.join(unknown)}",
    )  # fmt: skip


def _check_dtype(value: Any, loader: Loader) -> Failure | None:
    """Return how the loader fails on a dtype policy of the other Keras."""
    kind = value.get("class_name") if isinstance(value, Mapping) else None
    if not loader.is_keras_3 and kind == "DTypePolicy":
        why = "a dtype policy of Keras 3"
        return Failure("ValueError", "Unknown dtype policy: 'DTypePolicy'", "dtype-policy", why)
    if loader.is_keras_3 and kind in ("Policy", "PolicyV1") and not value.get("module"):
        return Failure(
            "AttributeError", "'str' object has no attribute 'quantization_mode'", "dtype-policy",
            "a mixed-precision policy of tf.keras 2",
        )  # fmt: skip
    return None


def _check_activation(value: Any, loader: Loader) -> Failure | None:
    """Return how the loader fails on an activation that is a layer, or a name it does not know."""
    if isinstance(value, Mapping) and loader.is_keras_3 and not value.get("module"):
        return Failure(
            "TypeError", UNLOCATED.format(value.get("class_name")), "nested-layer",
            "an activation is a layer without its module",
        )  # fmt: skip
    if isinstance(value, str) and value not in loader.known.activations:
        return Failure(
            "ValueError", f"Could not interpret activation function identifier: {value}",
            "custom-function", f"this Keras has no activation {value}",
        )  # fmt: skip
    return None
