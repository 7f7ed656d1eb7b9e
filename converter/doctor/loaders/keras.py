"""Predict how Keras' loaders end: rules with the messages of Keras 3.15 and tf_keras 2.21.

Keras 3 (``keras.models.load_model``) and Keras 2, which lives on as ``tf_keras``, build a model
layer by layer from its configuration, and stop at the first layer that they do not accept. The
rules walk the configuration in the same way, with tables of the arguments of each class.
Spec: https://github.com/keras-team/keras/tree/v3.15.1/keras/src/legacy/saving
"""

from dataclasses import replace

from converter.doctor.findings import Failure, Prediction
from converter.doctor.host import TENSORFLOW, Host
from converter.doctor.loaders.keras_config import find_first_failure
from converter.doctor.loaders.keras_loader import KerasFacts, Loader
from converter.doctor.loaders.keras_training import find_training_failure

REFERENCE = {"keras": "3.15", "tf_keras": "2.21"}
_UNSUPPORTED = "File format not supported: filepath="
_NOT_HDF5 = "Unable to synchronously open file (file signature not found)"


def predict(facts: KerasFacts, host: Host) -> list[Prediction]:
    """Return the outcome of Keras 3 and of tf_keras."""
    legacy = not host.package("tf-keras") and (2,) <= host.version("keras") < (3,)
    keras_3 = None if legacy else host.package("keras")
    keras_2 = host.package("keras" if legacy else "tf-keras")
    runs_keras_2 = keras_2 is not None and host.package(*TENSORFLOW) is not None
    first = Prediction.of(
        "keras.models.load_model(path)", "keras",
        keras_3.version if keras_3 else REFERENCE["keras"], predict_keras_3(facts),
        installed=keras_3 is not None,
    )  # fmt: skip
    second = Prediction.of(
        f"{'keras' if legacy else 'tf_keras'}.models.load_model(path)", "tf_keras",
        keras_2.version if keras_2 else REFERENCE["tf_keras"], predict_tf_keras(facts),
        installed=runs_keras_2,
    )  # fmt: skip
    if facts.config is None and facts.container == "hdf5":
        fix = "model.load_weights(path), of a model made by code"
        return [replace(first, mends=fix), replace(second, mends=fix)]
    untrained = replace(facts, training=None)
    if first.outcome == "fails" and predict_keras_3(untrained) is None:
        first = replace(first, mends=_without_training(first))
    elif first.outcome == "fails" and second.outcome == "loads":
        first = replace(first, mends="tf_keras.models.load_model(path)")
    if second.outcome == "fails" and predict_tf_keras(untrained) is None:
        second = replace(second, mends=_without_training(second))
    return [first, second]


def _without_training(prediction: Prediction) -> str:
    """Return the call that loads a model which cannot be compiled as it was trained."""
    return prediction.loader.replace("(path)", "(path, compile=False)")


def predict_keras_3(facts: KerasFacts) -> Failure | None:
    """Return how ``keras.models.load_model`` of Keras 3 fails; None if it loads."""
    container, suffix = facts.container, facts.suffix
    if container == "savedmodel":
        return Failure("ValueError", _UNSUPPORTED, "savedmodel", "Keras 3 opens no SavedModels")
    if container == "hdf5" and suffix == ".keras":
        why = "it is HDF5 inside, and .keras files must be zips"
        return Failure("ValueError", "File not found: filepath=", "suffix", why)
    if container == "zip" and suffix in (".h5", ".hdf5"):
        why = "it is a .keras zip with the name of an HDF5 file"
        return Failure("OSError", _NOT_HDF5, "suffix", why)
    if suffix not in {"hdf5": (".h5", ".hdf5"), "zip": (".keras",)}.get(container, (suffix,)):
        why = f"Keras 3 decides by the name: {suffix or 'none'} is neither .keras, .h5 nor .hdf5"
        return Failure("ValueError", _UNSUPPORTED, "suffix", why)
    return _predict_model(facts, is_keras_3=True)


def predict_tf_keras(facts: KerasFacts) -> Failure | None:
    """Return how ``tf_keras.models.load_model`` fails; None if it loads."""
    if facts.container == "savedmodel":
        if facts.object_graph:
            return find_training_failure(facts.training, Loader(facts, is_keras_3=False))
        why = "it has no object graph: TensorFlow 1 wrote it"
        return Failure("IndexError", "list index out of range", "no-object-graph", why)
    if facts.container == "zip" and facts.suffix != ".keras":
        why = "tf_keras opens a zip only under the name .keras"
        return Failure("OSError", _NOT_HDF5, "suffix", why)
    return _predict_model(facts, is_keras_3=False)


def _predict_model(facts: KerasFacts, *, is_keras_3: bool) -> Failure | None:
    """Return how a loader fails once it has opened the file."""
    if facts.in_folder:
        return Failure(
            "KeyError", "\"There is no item named 'config.json' in the archive\"",
            "packed-again", "its files are in a folder of the zip, as another program packed them",
        )  # fmt: skip
    if facts.config is None:
        return Failure(
            "ValueError", "No model config found in the file at", "weights-only",
            "it holds weights and no model",
        )  # fmt: skip
    loader = Loader(facts, is_keras_3)
    failure = find_first_failure(facts.config, loader)
    return failure or find_training_failure(facts.training, loader)
