"""A CycloneDX bill of materials of a model: its files, its ancestor, its inputs and outputs.

Only what the bytes prove is in it: no data sets, no metrics, no licence, no author.
Spec: https://cyclonedx.org/docs/1.6/json/
"""

from collections.abc import Sequence

from converter.attestation.conversion import AttestedConversion
from converter.attestation.files import AttestedFile
from converter.version import VERSION
from formats.core.bundle import JSON, TensorSpec

SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"
PREFIX = "model-convert"


def make_bom(made: AttestedConversion) -> dict[str, JSON]:
    """Return the bill of materials of an output."""
    about = made.bundle.metadata
    signature = next(iter(made.bundle.signatures), None)
    model = _describe_model("model", made.output, made.outputs)
    model["modelCard"] = {
        "modelParameters": {
            "inputs": _list_formats(signature.inputs if signature else ()),
            "outputs": _list_formats(signature.outputs if signature else ()),
        }
    }
    model["properties"] = _list_properties({
        "target": made.options.to,
        "tensors": len(made.bundle.weights),
        "verified": made.evidence.get("reached"),
    })  # fmt: skip
    ancestor = _describe_model("source", made.source, made.inputs)
    ancestor["properties"] = _list_properties({
        "format": about.format,
        "variant": about.variant,
        "framework": about.framework,
        **{f"recorded:{name}": value for name, value in about.recorded.items()},
    })  # fmt: skip
    model["pedigree"] = {"ancestors": [ancestor]}
    tool: dict[str, JSON] = {"type": "application", "name": PREFIX, "version": VERSION}
    return {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"tools": {"components": [tool]}, "component": model},
    }


def _describe_model(reference: str, name: str, files: Sequence[AttestedFile]) -> dict[str, JSON]:
    """Return a model; the digests of several files are those of its parts."""
    model: dict[str, JSON] = {"type": "machine-learning-model", "bom-ref": reference, "name": name}
    if len(files) == 1:
        return {**model, "hashes": _list_hashes(files[0])}
    parts: list[JSON] = [
        {
            "type": "file",
            "bom-ref": f"{reference}/{file.name}",
            "name": file.name,
            "hashes": _list_hashes(file),
        }
        for file in files
    ]
    return {**model, "components": parts}


def _list_hashes(file: AttestedFile) -> list[JSON]:
    return [
        {"alg": "SHA-256", "content": file.sha256},
        {"alg": "BLAKE3", "content": file.blake3},
    ]


def _list_formats(specs: Sequence[TensorSpec]) -> list[JSON]:
    """Return inputs or outputs by name, dtype and shape; free axes have names."""
    return [{"format": f"{s.name}: {s.dtype}{_describe_shape(s)}"} for s in specs]


def _describe_shape(spec: TensorSpec) -> str:
    if spec.shape is None:
        return "[…]"
    return f"[{', '.join(map(str, spec.shape))}]"


def _list_properties(found: dict[str, object]) -> list[JSON]:
    return [
        {"name": f"{PREFIX}:{name}", "value": str(value)}
        for name, value in found.items()
        if value not in (None, "")
    ]
