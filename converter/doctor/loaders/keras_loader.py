"""The two loaders of Keras files: the classes they know, and how they word an exception."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from converter.doctor.findings import Failure

ARGUMENTS = Path(__file__).parents[1] / "data" / "keras_arguments.json"
# Classes whose from_config calls the constructor directly: its exception is not wrapped.
UNWRAPPED = ("LSTM", "GRU", "SimpleRNN", "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D",
             "LSTMCell", "GRUCell", "SimpleRNNCell")  # fmt: skip
UNLOCATED = "Could not locate class '{}'. Make sure custom classes"
NOT_REBUILT = "<class 'keras.src.models.{}'> could not be deserialized properly. Please ensure"


class Accepted(NamedTuple):
    """The arguments that a class takes by name, and those of them that are required."""

    names: frozenset[str]
    required: frozenset[str]


Arguments: TypeAlias = Mapping[str, Accepted]


class Classes(NamedTuple):
    """What one Keras knows.

    Attributes:
        layers: Arguments of each layer.
        objects: Arguments of each initializer, regularizer and constraint.
        activations: Names of activation functions.
        aliases: Other name of a layer → its name.
        optimizers: Arguments of each optimizer.
        former_optimizers: The same of those before tf.keras 2.11, which Keras 2 still has.
        schedules: Names of schedules of the learning rate.
        losses: Arguments of each class of losses.
        metrics: Arguments of each class of metrics.
        loss_functions: Names of functions among the losses, and other names of its classes.
        metric_functions: The same among the metrics.
    """

    layers: Arguments
    objects: Arguments
    activations: frozenset[str]
    aliases: Mapping[str, str]
    optimizers: Arguments
    former_optimizers: Arguments
    schedules: frozenset[str]
    losses: Arguments
    metrics: Arguments
    loss_functions: frozenset[str]
    metric_functions: frozenset[str]


@cache
def read_classes(package: Literal["keras", "tf_keras"]) -> Classes:
    """Read ARGUMENTS, which fixtures/doctor/make_tables.py writes."""
    table = json.loads(ARGUMENTS.read_text())[package]

    def names(key: str) -> frozenset[str]:
        return frozenset(table[key].split())

    return Classes(
        layers=_parse_arguments(table["layers"]),
        objects=_parse_arguments(table["objects"]),
        activations=names("activations"),
        aliases=table["aliases"],
        optimizers=_parse_arguments(table["optimizers"]),
        former_optimizers=_parse_arguments(table["former_optimizers"]),
        schedules=names("schedules"),
        losses=_parse_arguments(table["losses"]),
        metrics=_parse_arguments(table["metrics"]),
        loss_functions=names("loss_functions"),
        metric_functions=names("metric_functions"),
    )


def _parse_arguments(rows: dict[str, str]) -> Arguments:
    """Parse ``"argument required!"`` of each class; ``*`` stands for the arguments of row ``*``."""
    shared = rows.pop("*").split()
    arguments = {}
    for name, row in rows.items():
        words = [*(shared if row.startswith("*") else ()), *row.removeprefix("*").split()]
        required = frozenset(word.removesuffix("!") for word in words if word.endswith("!"))
        arguments[name] = Accepted(frozenset(word.removesuffix("!") for word in words), required)
    return arguments


@dataclass(frozen=True, slots=True)
class KerasFacts:
    """What decides how Keras' loaders end.

    Attributes:
        container: ``hdf5``, ``zip``, ``folder`` or ``savedmodel``.
        suffix: Of the file name, in lower case: the loaders look at it first.
        config: The model's configuration, parsed; None if there is none.
        keras_version: As recorded; "" if it is not.
        object_graph: Of a SavedModel: whether it has one, which only TensorFlow 2 writes.
        in_folder: Of a zip: whether all files are in one folder, as other programs pack it.
        training: How the model was trained, as the file says, parsed; None if it does not.
    """

    container: str
    suffix: str
    config: Any = field(default=None, repr=False)
    keras_version: str = ""
    object_graph: bool = True
    in_folder: bool = False
    training: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Loader:
    """The ``load_model`` of Keras 3, or that of tf_keras, for one file."""

    facts: KerasFacts
    is_keras_3: bool

    @property
    def known(self) -> Classes:
        """The classes of this Keras."""
        return read_classes("keras" if self.is_keras_3 else "tf_keras")

    def wrap(self, name: str, failure: Failure, *, model: str, modern: bool) -> Failure:
        """Return a layer's failure as the loader raises it.

        Args:
            name: Class of the layer.
            failure: How the layer fails.
            model: Class of the model that it is part of; "" for none.
            modern: Whether it is configured as in .keras files: Keras 3 then names the model.
        """
        if self.is_keras_3 and modern and model:
            path = "sequential.Sequential" if model == "Sequential" else "functional.Functional"
            return replace(failure, error="TypeError", message=NOT_REBUILT.format(path))
        if self.is_keras_3 and failure.error == "AttributeError":
            return failure  # raised before the constructor is called
        name = self.known.aliases.get(name, name)
        if name in UNWRAPPED:
            return failure
        message = f"Error when deserializing class '{name}' using config="
        return replace(failure, error="TypeError", message=message)
