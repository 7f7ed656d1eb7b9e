"""What Keras' loaders make of an artifact: rules with their own messages.

Keras 3 (``keras.models.load_model``) and Keras 2 as it lives on (``tf_keras``) build layer after
layer from the configuration, and stop at the first that they cannot. The walk here does the same
on the configuration alone, with tables of what each class takes (`keras_arguments`).
Spec: https://github.com/keras-team/keras/tree/v3.15.1/keras/src/legacy/saving
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from converter.doctor.findings import Prediction
from converter.doctor.host import TENSORFLOW, Host, numbers
from converter.doctor.keras_arguments import (
    KERAS_3,
    KERAS_3_ACTIVATIONS,
    KERAS_3_OBJECTS,
    TF_KERAS,
    TF_KERAS_ACTIVATIONS,
    TF_KERAS_ALIASES,
    TF_KERAS_OBJECTS,
    Arguments,
)
from converter.doctor.keras_shapes import misread

REFERENCE = {"keras": "3.15", "tf_keras": "2.21"}
MODELS = ("Sequential", "Functional", "Model")
# Classes whose from_config calls the constructor itself: its exception comes as it is.
BARE = ("LSTM", "GRU", "SimpleRNN", "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "LSTMCell",
        "GRUCell", "SimpleRNNCell")  # fmt: skip
WRAPPERS = ("TimeDistributed", "Bidirectional", "Wrapper", "SpectralNormalization")
OBJECT_ENDINGS = ("_initializer", "_regularizer", "_constraint")
# Arguments that Keras 3's legacy loader takes away or renames before it builds a layer.
TAKEN = frozenset(("batch_input_shape", "axis"))
LAMBDA_TAKEN = ("module", "function_type", "output_shape_type", "output_shape_module")
# Functions beside the layers of Keras 3: its legacy loader puts them in the place of equal texts.
FUNCTIONS = ("add", "average", "concatenate", "dot", "maximum", "minimum", "multiply", "subtract")
OLD_PYTHON = (2, 11)  # Keras before it ran on Pythons whose byte-code today's cannot read
UNKNOWN_LAYER = (
    "Unknown layer: '{}'. Please ensure you are using a `keras.utils.custom_object_scope`"
)
UNLOCATED = "Could not locate class '{}'. Make sure custom classes"
NOT_REBUILT = "<class 'keras.src.models.{}'> could not be deserialized properly. Please ensure"
LIST_STYLE = "pop expected at most 1 argument, got 2"


@dataclass(frozen=True, slots=True)
class KerasFacts:
    """What of an artifact decides how Keras' loaders end.

    Attributes:
        container: ``hdf5``, ``zip``, ``folder`` or ``savedmodel``.
        suffix: Of its name, in small letters: the loaders go by that first.
        config: The model's configuration, parsed; None where there is none.
        keras_version: As recorded; "" where it is not.
        object_graph: Of a SavedModel: whether it has one, which only TensorFlow 2 writes.
        in_folder: Of a zip: whether all is in one folder of it, as other programs pack it.
    """

    container: str
    suffix: str
    config: Any = None
    keras_version: str = ""
    object_graph: bool = True
    in_folder: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """The exception that a loader ends with."""

    error: str
    message: str
    cause: str
    why: str
    unknown: bool = False  # only running the artifact's own code would tell


def predict(facts: KerasFacts, host: Host) -> list[Prediction]:
    """Return what Keras 3 and tf_keras make of an artifact here."""
    legacy = not host.package("tf-keras") and (2,) <= host.version("keras") < (3,)
    three = None if legacy else host.package("keras")
    two = host.package("keras") if legacy else host.package("tf-keras")
    found = []
    for package, module, failure in (
        (three, "keras", keras_3(facts)),
        (two, "tf_keras", tf_keras(facts)),
    ):
        needs = module == "tf_keras" and two is not None and host.package(*TENSORFLOW) is None
        installed = package is not None and not needs
        version = package.version if package else REFERENCE[module]
        loader = f"{'keras' if legacy else module}.models.load_model(path)"
        found.append(_prediction(loader, module, version, failure, installed=installed))
    if facts.config is None and facts.container == "hdf5":
        found = [
            replace(p, mends="model.load_weights(path), of a model made by code") for p in found
        ]
    if found[0].outcome == "fails" and found[1].outcome == "loads":
        found[0] = replace(found[0], mends="tf_keras.models.load_model(path)")
    return found


def _prediction(
    loader: str, module: str, version: str, failure: Failure | None, *, installed: bool
) -> Prediction:
    if failure is None:
        return Prediction(loader, module, version, installed, "loads")
    return Prediction(
        loader, module, version, installed, "unknown" if failure.unknown else "fails",
        failure.error, failure.message, failure.cause, failure.why,
    )  # fmt: skip


def keras_3(facts: KerasFacts) -> Failure | None:
    """Return how ``keras.models.load_model`` of Keras 3 ends."""
    if facts.container == "savedmodel":
        return Failure(
            "ValueError", "File format not supported: filepath=", "savedmodel",
            "Keras 3 opens no SavedModels",
        )  # fmt: skip
    if facts.container == "hdf5" and facts.suffix not in (".h5", ".hdf5"):
        if facts.suffix == ".keras":
            return Failure(
                "ValueError", "File not found: filepath=", "suffix",
                "it is HDF5 inside, and .keras files must be zips",
            )  # fmt: skip
        return _suffix(facts.suffix)
    if facts.container == "zip" and facts.suffix != ".keras":
        if facts.suffix in (".h5", ".hdf5"):
            return Failure(
                "OSError", "Unable to synchronously open file (file signature not found)",
                "suffix", "it is a .keras zip with the name of an HDF5 file",
            )  # fmt: skip
        return _suffix(facts.suffix)
    if facts.in_folder:
        return _in_folder()
    if facts.config is None:
        return _no_config()
    return next(_walk(facts.config, Keras3(facts), "", top=True), None)


def tf_keras(facts: KerasFacts) -> Failure | None:
    """Return how ``tf_keras.models.load_model`` ends."""
    if facts.container == "savedmodel":
        if facts.object_graph:
            return None
        return Failure(
            "IndexError", "list index out of range", "no-object-graph",
            "it has no object graph: TensorFlow 1 wrote it",
        )  # fmt: skip
    if facts.container == "zip" and facts.suffix != ".keras":
        return Failure(
            "OSError", "Unable to synchronously open file (file signature not found)", "suffix",
            "tf_keras takes a zip only under the name .keras",
        )  # fmt: skip
    if facts.in_folder:
        return _in_folder()
    if facts.config is None:
        return _no_config()
    return next(_walk(facts.config, TfKeras(facts), "", top=True), None)


def _no_config() -> Failure:
    return Failure(
        "ValueError", "No model config found in the file at", "weights-only",
        "it holds weights and no model",
    )  # fmt: skip


def _in_folder() -> Failure:
    return Failure(
        "KeyError", "\"There is no item named 'config.json' in the archive\"", "packed-again",
        "all is in a folder of the zip, as another program packed it",
    )  # fmt: skip


def _suffix(suffix: str) -> Failure:
    return Failure(
        "ValueError", "File format not supported: filepath=", "suffix",
        f"Keras 3 goes by the name: {suffix or 'none'} is neither .keras, .h5 nor .hdf5",
    )  # fmt: skip


class Loader:
    """What the two loaders do differently. One of them per walk."""

    layers: Arguments
    objects: Arguments
    activations: frozenset[str]

    def __init__(self, facts: KerasFacts) -> None:
        """Remember what the file says of itself."""
        self.facts = facts

    def wrapped(self, name: str, failure: Failure, *, model: str, modern: bool) -> Failure:
        """Return a layer's failure as the loader hands it up."""
        raise NotImplementedError


class Keras3(Loader):
    """Keras 3."""

    layers, objects, activations = KERAS_3, KERAS_3_OBJECTS, KERAS_3_ACTIVATIONS

    def wrapped(self, name: str, failure: Failure, *, model: str, modern: bool) -> Failure:
        """Return a layer's failure: by name in files of old, by its model in .keras files."""
        if modern and model:
            place = {"Sequential": "sequential.Sequential"}.get(model, "functional.Functional")
            return _reworded(failure, NOT_REBUILT.format(place))
        if name in BARE or failure.error == "AttributeError":  # before the constructor is called
            return failure
        return _reworded(failure, f"Error when deserializing class '{name}' using config=")


class TfKeras(Loader):
    """tf_keras."""

    layers, objects, activations = TF_KERAS, TF_KERAS_OBJECTS, TF_KERAS_ACTIVATIONS

    def wrapped(self, name: str, failure: Failure, *, model: str, modern: bool) -> Failure:
        """Return a layer's failure, by its name."""
        del model, modern  # it says the same everywhere
        name = TF_KERAS_ALIASES.get(name, name)
        if name in BARE:
            return failure
        return _reworded(failure, f"Error when deserializing class '{name}' using config=")


def _reworded(failure: Failure, message: str) -> Failure:
    return Failure("TypeError", message, failure.cause, failure.why)


def _walk(node: Any, loader: Loader, model: str, *, top: bool = False) -> Iterator[Failure]:
    """Yield what a loader stops at in a model or layer, in its order.

    Args:
        node: ``{"class_name", "config", …}``.
        loader: Which one.
        model: Class of the model that it is part of; "" for none.
        top: Whether it is the whole.
    """
    if not isinstance(node, Mapping) or "config" not in node:
        return
    name, config = str(node.get("class_name")), node["config"]
    modern = bool(node.get("module"))
    if isinstance(config, list):
        yield from _listed(config, loader, name)
        # Its list has no name, and the one that it is given must be the one it is called by.
        if isinstance(loader, TfKeras) and model and node.get("name") != "sequential":
            yield Failure(
                "TypeError", "list indices must be integers or slices, not NoneType",
                "list-sequential", f"the inner {name} is configured by a list, without its name",
            )  # fmt: skip
        return
    if not isinstance(config, Mapping):
        return
    if modern or (top and loader.facts.container in ("zip", "folder")):
        located = _located(node, name, loader, model)
        if located is not None:
            yield located
            return
    elif name not in loader.layers and name not in MODELS:
        yield Failure(
            "ValueError", UNKNOWN_LAYER.format(name), "unknown-layer",
            f"{name} is no layer of this Keras" + _former(name, loader),
        )  # fmt: skip
        return
    if name in MODELS and "layers" in config:
        layers = config["layers"] if isinstance(config["layers"], list) else []
        # Keras 3 adds layer after layer to a Sequential, each to the shape before it.
        shaped = name == "Sequential" and isinstance(loader, Keras3) and not modern
        for layer, refusal in zip(layers, misread(layers), strict=True):
            yield from _walk(layer, loader, name)
            if shaped and refusal is not None:
                yield Failure(
                    refusal.error, refusal.message, "input-misread",
                    "Keras 3 takes the recorded batch_input_shape for a shape without the batch: "
                    f"one axis too many for {refusal.layer}",
                )  # fmt: skip
        if name != "Sequential" and isinstance(loader, Keras3) and not modern:
            yield from _calls(layers, config)
        return
    yield from _layer(name, config, loader, model=model, modern=modern)


def _calls(layers: Sequence[Any], config: Mapping[str, Any]) -> Iterator[Failure]:
    """Yield calls of an inner Sequential that Keras 3 does not find.

    Keras 2 counts the inner model's own making as its first call, Keras 3 for functional ones only.
    """
    calls = {
        str(layer.get("name")): len(layer.get("inbound_nodes") or ())
        for layer in layers
        if isinstance(layer, Mapping) and layer.get("class_name") == "Sequential"
    }
    for layer in layers:
        nodes = layer.get("inbound_nodes") if isinstance(layer, Mapping) else None
        for inner, call in _references(nodes):
            if call >= calls.get(inner, call + 1):
                yield Failure(
                    "ValueError",
                    "Invalid Functional model configuration. The graph of the Functional model "
                    "either has loops or disconnected nodes.", "inner-sequential",
                    f"a layer reads call {call} of the inner Sequential {inner}, counted as "
                    "Keras 2 did",
                )  # fmt: skip
                return
    for inner, call in _references(config.get("output_layers")):
        if call >= calls.get(inner, call + 1):
            yield Failure(
                "IndexError", "list index out of range", "inner-sequential",
                f"the output is call {call} of the inner Sequential {inner}, counted as Keras 2 "
                "did",
            )  # fmt: skip


def _references(nodes: Any) -> Iterator[tuple[str, int]]:
    """Yield every ``[layer, call, output, …]`` in nested lists: the layer, and which call of it."""
    if not isinstance(nodes, list):
        return
    if len(nodes) >= 3 and isinstance(nodes[0], str) and type(nodes[1]) is int:
        yield nodes[0], nodes[1]
        return
    for node in nodes:
        yield from _references(node)


def _listed(layers: Sequence[Any], loader: Loader, name: str) -> Iterator[Failure]:
    """Yield what stops at a Sequential of old, whose configuration is a list of layers."""
    if isinstance(loader, Keras3):
        yield Failure(
            "TypeError", LIST_STYLE, "list-sequential",
            f"{name} is configured by a list, as Keras before 2.2.3 did",
        )  # fmt: skip
    for layer in layers:
        yield from _walk(layer, loader, name)


def _located(node: Mapping[str, Any], name: str, loader: Loader, model: str) -> Failure | None:
    """Return the failure to find a class by its module."""
    module = str(node.get("module") or "")
    unreachable = _unreachable(module, name, loader)
    if unreachable is not None:
        return unreachable
    own = module.startswith(("keras", "tf_keras", "builtins"))
    registered = node.get("registered_name")
    if own and (not registered or registered == name or name in loader.layers):
        return None
    if not module and name in MODELS:
        return None
    failure = Failure(
        "TypeError", UNLOCATED.format(name), "custom-class",
        f"{name} is a class of {module or 'its author'}, which the file does not hold",
    )  # fmt: skip
    if model and isinstance(loader, Keras3):
        return loader.wrapped(name, failure, model=model, modern=True)
    return failure


def _unreachable(module: str, name: str, loader: Loader) -> Failure | None:
    """Return the failure to import the module of Keras' insides that a class is named by.

    Keras 2.13 moved them to keras.src, Keras 3 out of its ``engine``.
    """
    parts = module.split(".")
    if parts[0] != "keras" or len(parts) < 3:
        return None  # a public name: keras.layers
    old, new = parts[1] != "src", parts[1:3] == ["src", "models"]
    gone = old or ("engine" in parts if isinstance(loader, Keras3) else new)
    if not gone:
        return None
    place = module if isinstance(loader, Keras3) else f"tf_{module}"
    return Failure(
        "TypeError",
        f"Could not deserialize class '{name}' because its parent module {place} cannot be "
        "imported.", "module-gone", f"{name} is named by {module}, which this Keras does not have",
    )  # fmt: skip


def _layer(
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


def _former(name: str, loader: Loader) -> str:
    """Say whose class it is, where it is the other Keras'."""
    if isinstance(loader, Keras3) and name in TF_KERAS:
        return " (it was one of Keras 2)"
    return " (it is one of Keras 3)" if isinstance(loader, TfKeras) and name in KERAS_3 else ""
