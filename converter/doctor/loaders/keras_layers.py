"""What one layer's configuration makes a loader of Keras stop at: its arguments, one by one."""

from collections.abc import Iterator, Mapping
from typing import Any

from converter.doctor.host import numbers
from converter.doctor.loaders.keras_loaders import UNLOCATED, Failure, Keras3, Loader, TfKeras

WRAPPERS = ("TimeDistributed", "Bidirectional", "Wrapper", "SpectralNormalization")
OBJECT_ENDINGS = ("_initializer", "_regularizer", "_constraint")
# Arguments that Keras 3's legacy loader takes away or renames before it builds a layer.
TAKEN = frozenset(("batch_input_shape", "axis"))
LAMBDA_TAKEN = ("module", "function_type", "output_shape_type", "output_shape_module")
# Functions beside the layers of Keras 3: its legacy loader puts them in the place of equal texts.
FUNCTIONS = ("add", "average", "concatenate", "dot", "maximum", "minimum", "multiply", "subtract")
OLD_PYTHON = (2, 11)  # Keras before it ran on Pythons whose byte-code today's cannot read


def layer_failures(
    name: str, config: Mapping[str, Any], loader: Loader, *, model: str, modern: bool
) -> Iterator[Failure]:
    """Yield what stops at one layer's arguments."""
    if name == "Lambda":
        yield from _lambda(config, loader)
    if name in WRAPPERS and isinstance(loader, Keras3) and not modern:
        inner = config.get("layer")
        if isinstance(inner, Mapping) and not inner.get("module"):
            yield Failure(
                "TypeError", UNLOCATED.format(inner.get("class_name")), "nested-layer",
                f"{name} holds {inner.get('class_name')} without its module, which Keras 3 wants",
            )  # fmt: skip
            return
    if isinstance(loader, Keras3):
        yield from _inner_layers(name, config)
    failure = _arguments(name, config, loader, modern=modern)
    if failure is not None:
        yield loader.wrapped(name, failure, model=model, modern=modern)


def _inner_layers(name: str, config: Mapping[str, Any]) -> Iterator[Failure]:
    """Yield cells of recurrent layers that are named without their module."""
    cells = config.get("cell"), *(config.get("cells") or ())
    for cell in cells:
        if isinstance(cell, Mapping) and not cell.get("module"):
            yield Failure(
                "TypeError", UNLOCATED.format(cell.get("class_name")), "nested-layer",
                f"{name} holds {cell.get('class_name')} without its module, which Keras 3 wants",
            )  # fmt: skip


def _lambda(config: Mapping[str, Any], loader: Loader) -> Iterator[Failure]:
    """Yield what stops at a Lambda: byte-code, or a function of the author's."""
    function = config.get("function")
    coded = isinstance(function, list) or (
        isinstance(function, Mapping) and function.get("class_name") == "__lambda__"
    )
    if coded and isinstance(loader, Keras3):
        yield Failure(
            "ValueError",
            "Requested the deserialization of a `Lambda` layer whose `function` is a Python "
            "lambda. This carries a potential risk of arbitrary code execution",
            "lambda-bytecode", "a Lambda layer holds Python byte-code, which safe_mode refuses",
        )  # fmt: skip
    elif coded:
        old = numbers(loader.facts.keras_version) < OLD_PYTHON
        yield Failure(
            "ValueError", "bad marshal data (unknown type code)" if old else "",
            "lambda-bytecode",
            "a Lambda layer holds byte-code of another Python" if old
            else "a Lambda layer holds byte-code, which loads in the Python that wrote it alone",
            unknown=not old,
        )  # fmt: skip
    elif isinstance(function, str):
        three = isinstance(loader, Keras3)
        yield Failure(
            "TypeError" if three else "AttributeError",
            "unsupported callable" if three else "'NoneType' object has no attribute 'get'",
            "custom-function", f"a Lambda layer calls {function}, which the file does not hold",
        )  # fmt: skip


def _arguments(
    name: str, config: Mapping[str, Any], loader: Loader, *, modern: bool
) -> Failure | None:
    """Return the failure of a layer's constructor."""
    accepted = loader.layers.get(name)
    three = isinstance(loader, Keras3)
    if accepted is None or (three and name == "InputLayer"):  # which takes what it does not know
        return None
    given = set(config)
    if three and not modern:
        given = (given - TAKEN) | {"axis"} & given & accepted.names
        given -= set(LAMBDA_TAKEN) if name == "Lambda" else set()
    missing = sorted(accepted.required - given)
    if missing:
        listed = " and ".join(f"'{m}'" for m in missing)
        many = "s" if len(missing) > 1 else ""
        return Failure(
            "TypeError",
            f"{name}.__init__() missing {len(missing)} required positional argument{many}: "
            f"{listed}",
            "keras-1-arguments" if numbers(loader.facts.keras_version)[:1] == (1,)
            else "missing-argument",
            f"{name} is configured without {listed}: other ages of Keras call it otherwise",
        )  # fmt: skip
    for key, value in config.items():
        if isinstance(value, Mapping) and key.endswith(OBJECT_ENDINGS):
            failure = _object(key, value, loader)
            if failure is not None:
                return failure
    unknown = sorted(given - accepted.names)
    if unknown:
        return Failure(
            "ValueError",
            f"Unrecognized keyword arguments passed to {name}: {{'{unknown[0]}'"
            if three else f"('Keyword argument not understood:', '{unknown[0]}')",
            "unknown-argument", f"{name} takes no {', '.join(unknown)} in this Keras",
        )  # fmt: skip
    if "trainable" in config and config["trainable"] is None:
        return Failure("TypeError", "", "trainable-none", f"{name} says that trainable is null")
    if three and "/" in str(config.get("name", "")):
        return Failure(
            "ValueError", "Argument `name` must be a string and cannot contain character `/`",
            "name-with-slash", f"a layer is called {config['name']!r:.60}",
        )  # fmt: skip
    score = config.get("score_mode")
    if three and not modern and score in FUNCTIONS:
        return Failure(
            "ValueError", "Invalid value for argument score_mode.", "name-taken-for-function",
            f"Keras 3 takes the text {score!r} for its own function of that name",
        )  # fmt: skip
    return _dtype(config.get("dtype"), loader) or _activation(config.get("activation"), loader)


def _object(key: str, value: Mapping[str, Any], loader: Loader) -> Failure | None:
    """Return the failure to build an initializer, regularizer or constraint."""
    name, config = value.get("class_name"), value.get("config")
    if not isinstance(name, str):
        return Failure(
            "ValueError", "Unknown `config` as a `dict`", "keras-1-object",
            f"{key} is written as Keras 1 did",
        )  # fmt: skip
    accepted = loader.objects.get(name)
    if accepted is None:
        if value.get("module") and str(value["module"]).startswith("keras"):
            return None
        return Failure(
            "ValueError", "Could not interpret", "custom-object", f"{key} is {name}, unknown here"
        )
    given = set(config) if isinstance(config, Mapping) else set()
    if isinstance(loader, TfKeras) and key.endswith("_initializer"):
        given.discard("dtype")  # which Initializer.from_config of Keras 2 takes away
    unknown = sorted(given - accepted.names)
    if unknown:
        kind = key.rpartition("_")[2]
        return Failure(
            "TypeError",
            f"<class 'keras.src.{kind}s." if isinstance(loader, Keras3)
            else f"{name}.__init__() got an unexpected keyword argument '{unknown[0]}'",
            "initializer-argument", f"{key} {name} is saved with {', '.join(unknown)}",
        )  # fmt: skip
    return None


def _dtype(value: Any, loader: Loader) -> Failure | None:
    """Return the failure to understand a dtype policy of the other Keras."""
    if not isinstance(value, Mapping):
        return None
    kind = value.get("class_name")
    if isinstance(loader, TfKeras) and kind == "DTypePolicy":
        return Failure(
            "ValueError", "Unknown dtype policy: 'DTypePolicy'", "dtype-policy",
            "a dtype policy of Keras 3",
        )  # fmt: skip
    if isinstance(loader, Keras3) and kind in ("Policy", "PolicyV1") and not value.get("module"):
        return Failure(
            "AttributeError", "'str' object has no attribute 'quantization_mode'", "dtype-policy",
            "a mixed-precision policy of tf.keras 2",
        )  # fmt: skip
    return None


def _activation(value: Any, loader: Loader) -> Failure | None:
    if isinstance(value, Mapping):
        if isinstance(loader, TfKeras) or value.get("module"):
            return None
        return Failure(
            "TypeError", UNLOCATED.format(value.get("class_name")), "nested-layer",
            "an activation is a layer without its module",
        )  # fmt: skip
    if isinstance(value, str) and value not in loader.activations:
        return Failure(
            "ValueError", f"Could not interpret activation function identifier: {value}",
            "custom-function", f"the activation {value} is none of this Keras",
        )  # fmt: skip
    return None
