"""What an artifact is and holds, as plain data: nothing is converted and no weight is read."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from formats import catalog
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.core.weights import Tensor
from formats.limits import DEFAULT, Limits


def inspect(
    source: str | Path, *, from_format: str | None = None, limits: Limits = DEFAULT
) -> dict[str, Any]:
    """Describe an artifact.

    Returns:
        A JSON-like dict: format, variant and evidence; versions and devices as recorded; counts,
        dtypes and bytes of the weights; each tensor; signatures; what a conversion would leave
        out; safety findings.

    Raises:
        ConvertError: As `converter.pipeline.read`.
    """
    artifact = Artifact(source, limits)
    match = catalog.detect(artifact, from_format)
    bundle = match.format.read(artifact)
    catalog.check_expansion(bundle, artifact)
    about = bundle.metadata
    files = artifact.opened
    return {
        "source": str(source),
        "format": match.format.id,
        "evidence": match.evidence,
        "variant": about.variant,
        "framework": about.framework,
        "recorded": dict(about.recorded),
        "devices": dict(about.devices),
        "distribution": dict(about.distribution),
        "files": {"count": len(files), "bytes": sum(f.size for f in files.values())},
        "weights": _totals(bundle.weights),
        "tensors": [
            {
                "name": name,
                "dtype": tensor.dtype.name,
                "shape": list(tensor.shape),
                "bytes": tensor.nbytes,
                "origin": tensor.origin,
            }
            for name, tensor in bundle.weights.items()
        ],
        "leftovers": {group: _totals(members) for group, members in bundle.leftovers.items()},
        "encodings": {name: asdict(e) for name, e in bundle.encodings.items()},
        "topology": _topology(bundle),
        "signatures": [asdict(s) for s in bundle.signatures],
        "assets": {name: span.length for name, span in bundle.assets.items()},
        "user": dict(about.user),
        "opaque": dict(about.opaque),
        "left_out": [asdict(x) for x in about.left_out],
        "normalisations": [asdict(n) for n in about.normalisations],
        "findings": [asdict(f) for f in about.findings],
    }


def _totals(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    distinct = {t.identity: t for t in tensors.values()}.values()
    return {
        "tensors": len(tensors),
        "tied": len(tensors) - len(distinct),
        "parameters": sum(t.size for t in distinct),
        "bytes": sum(t.nbytes for t in distinct),
        "dtypes": dict(Counter(t.dtype.name for t in tensors.values())),
    }


def _topology(bundle: Bundle) -> dict[str, Any] | None:
    topology = bundle.topology
    if topology is None:
        return None
    return {"kind": topology.kind, "summary": dict(topology.summary)}
