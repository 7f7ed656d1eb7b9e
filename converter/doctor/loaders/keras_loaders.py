"""The two loaders of Keras' files, what they know and how they word what a layer raises."""

from dataclasses import dataclass
from typing import Any

from converter.doctor.data.keras_arguments import (
    KERAS_3,
    KERAS_3_ACTIVATIONS,
    KERAS_3_OBJECTS,
    TF_KERAS,
    TF_KERAS_ACTIVATIONS,
    TF_KERAS_ALIASES,
    TF_KERAS_OBJECTS,
    Arguments,
)

# Classes whose from_config calls the constructor itself: its exception comes as it is.
BARE = ("LSTM", "GRU", "SimpleRNN", "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "LSTMCell",
        "GRUCell", "SimpleRNNCell")  # fmt: skip
UNLOCATED = "Could not locate class '{}'. Make sure custom classes"
NOT_REBUILT = "<class 'keras.src.models.{}'> could not be deserialized properly. Please ensure"


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
