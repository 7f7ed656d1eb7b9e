"""Predict how every official loader of an artifact's format ends on a host."""

from converter.doctor.findings import Finding, Prediction
from converter.doctor.host import ONNXRUNTIME, Host
from converter.doctor.loaders import keras, tensorflow, torch
from converter.doctor.source import Source

# Formats that one loader opens on every device → the call, its packages, the version tried.
_PORTABLE = {
    "onnx": ("onnxruntime.InferenceSession(path)", ONNXRUNTIME, "1.31"),
    "safetensors": ("safetensors.safe_open(path)", ("safetensors",), "0.8"),
}


def predict(source: Source, host: Host) -> list[Prediction]:
    """Return the outcome of each official loader, the usual loader first."""
    predictions: list[Prediction] = []
    if source.torch:
        predictions += torch.predict(source.torch, host)
    if source.tensorflow:
        predictions += tensorflow.predict(source.tensorflow, host)
    if source.keras:
        predictions += keras.predict(source.keras, host)
    if source.format in _PORTABLE:
        loader, names, version = _PORTABLE[source.format]
        package = host.package(*names)
        predictions.append(
            Prediction.of(
                loader, names[0], package.version if package else version,
                installed=package is not None,
            )
        )  # fmt: skip
    return predictions


def check_source(source: Source, host: Host) -> list[Finding]:
    """Return what is wrong with an artifact on this host even where it loads."""
    findings: list[Finding] = []
    if source.tensorflow:
        findings += tensorflow.check_placement(source.tensorflow, host)
    if source.torch:
        findings += torch.check_placement(source.torch, source.devices, host)
    return findings
