"""What Keras' loaders make of an artifact: rules with their own messages.

Keras 3 (``keras.models.load_model``) and Keras 2 as it lives on (``tf_keras``) build layer after
layer from the configuration, and stop at the first that they cannot. The walk here does the same
on the configuration alone, with tables of what each class takes (`keras_arguments`).
Spec: https://github.com/keras-team/keras/tree/v3.15.1/keras/src/legacy/saving
"""

from dataclasses import replace

from converter.doctor.findings import Prediction
from converter.doctor.host import TENSORFLOW, Host
from converter.doctor.loaders.keras_loaders import Failure, Keras3, KerasFacts, TfKeras
from converter.doctor.loaders.keras_walk import first_failure

REFERENCE = {"keras": "3.15", "tf_keras": "2.21"}


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
    return first_failure(facts.config, Keras3(facts))


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
    return first_failure(facts.config, TfKeras(facts))


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
