"""What every official loader of an artifact's format makes of it here."""

from converter.doctor.findings import Finding, Prediction
from converter.doctor.host import ONNXRUNTIME, Host
from converter.doctor.loaders import keras as keras_rules
from converter.doctor.loaders import tensorflow as tensorflow_rules
from converter.doctor.loaders import torch as torch_rules
from converter.doctor.source import Source

# Formats that one loader of another package opens, whatever the device -> the call.
_PLAIN = {
    "onnx": ("onnxruntime.InferenceSession(path)", "onnxruntime", ONNXRUNTIME, "1.31"),
    "safetensors": ("safetensors.safe_open(path)", "safetensors", ("safetensors",), "0.8"),
}


def predict(source: Source, host: Host) -> list[Prediction]:
    """Return what official loaders make of an artifact here, the usual one first."""
    found: list[Prediction] = []
    if source.torch:
        found += torch_rules.predict(source.torch, host)
    if source.tensorflow:
        found += tensorflow_rules.predict(source.tensorflow, host)
    if source.keras:
        found += keras_rules.predict(source.keras, host)
    if source.format in _PLAIN:
        loader, framework, names, version = _PLAIN[source.format]
        package = host.package(*names)
        here = package is not None
        found.append(
            Prediction(loader, framework, package.version if package else version, here, "loads")
        )
    return found


def findings(source: Source, host: Host) -> list[Finding]:
    """Return what is wrong with an artifact on this host besides how loading it ends."""
    found = []
    if source.tensorflow:
        found += tensorflow_rules.placements(source.tensorflow, host)
    if source.torch:
        found += torch_rules.placements(source.torch, source.devices, host)
    return found
