"""A manifest of an output whose format cannot hold one: an ONNX file, a checkpoint.

It says what that of a portable bundle says, but for digests of single tensors: where the model
came from, what was changed and left out, its signatures, how far it was verified and by what.
"""

from dataclasses import asdict

from converter.attestation.conversion import AttestedConversion
from converter.environment import describe_environment
from formats.core.bundle import JSON

SCHEMA = "model-convert/output"
SCHEMA_VERSION = 1


def make_manifest(made: AttestedConversion) -> dict[str, JSON]:
    """Return the manifest of an output."""
    bundle, about = made.bundle, made.bundle.metadata
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "source": {
            "name": made.source,
            "format": about.format,
            "variant": about.variant,
            "framework": about.framework,
            "files": [file._asdict() for file in made.inputs],
            "recorded": dict(about.recorded),
            "devices": dict(about.devices),
            "distribution": dict(about.distribution),
            "findings": [asdict(finding) for finding in about.findings],
        },
        "options": made.parameters,
        "normalisations": [asdict(change) for change in about.normalisations],
        "left_out": [entry.plain() for entry in about.left_out],
        "tensors": [
            {"name": name, "dtype": tensor.dtype.name, "shape": list(tensor.shape)}
            for name, tensor in bundle.weights.items()
        ],
        "signatures": [asdict(signature) for signature in bundle.signatures],
        "files": [file._asdict() for file in made.outputs],
        "verification": dict(made.evidence),
        "environment": describe_environment(),
    }
