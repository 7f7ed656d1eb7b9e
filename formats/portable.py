"""The portable bundle: a folder with ``manifest.json`` and ``model.safetensors``.

The manifest says where the model came from, what the source recorded, what was changed on the way,
every tensor, what was left out and why, and how it was verified. Its schema ships beside this file
(``manifest.schema.json``). ``resources`` and ``digest`` follow OpenSSF Model Signing, so that its
tools can sign and check a bundle; they cover all files but the manifest itself, which is written
last: where there is a manifest, the bundle is complete.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, cast

from formats import safetensors
from formats.artifact import Artifact
from formats.containers.jsontext import laid_out, parse
from formats.core import digests
from formats.core.bundle import (
    JSON,
    Bundle,
    LeftOut,
    Metadata,
    Normalisation,
    SafetyFinding,
    Signature,
    TensorSpec,
    Topology,
)
from formats.core.output import Output
from formats.core.storage import Span
from formats.core.weights import Tensor
from formats.errors import CorruptError, UnsupportedError
from formats.safetensors_writer import ShardLayout, find_stored_form

MANIFEST = "manifest.json"
ASSETS = "assets"
SCHEMA = "model-convert/portable"
SCHEMA_VERSION = 1


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the manifest."""
    text = Path(__file__).with_name("manifest.schema.json").read_text()
    document: dict[str, Any] = json.loads(text)
    return document


def sniff(artifact: Artifact) -> str | None:
    """Recognise a folder by a manifest with our schema's name."""
    if MANIFEST not in artifact.names:
        return None
    head = artifact.member(MANIFEST)
    start = head.read(0, min(200, head.size))
    return f"{MANIFEST} of {SCHEMA}" if f'"{SCHEMA}"'.encode() in start else None


def read(artifact: Artifact) -> Bundle:
    """Read a bundle back; the weights stay in its safetensors files.

    Raises:
        CorruptError: Files are missing, or differ in size from what the manifest says.
        UnsupportedError: A later version of this tool wrote it.
    """
    return bundle_of(artifact, read_manifest(artifact))


def read_manifest(artifact: Artifact) -> dict[str, Any]:
    """Return what the manifest of a bundle says; nothing else is looked at.

    Raises:
        CorruptError: It is no JSON object.
        SourceError: It is missing, or cannot be read.
        UnsupportedError: A later version of this tool wrote it.
    """
    file = artifact.member(MANIFEST)
    limit = artifact.limits.max_header_bytes
    manifest = parse(file.read(0, file.size), where=file.name, limit=limit)
    file.close()
    version = manifest.get("schema_version") if isinstance(manifest, dict) else None
    if not isinstance(manifest, dict) or not isinstance(version, int):
        raise CorruptError("does not follow its schema: no schema_version", where=file.name)
    if version > SCHEMA_VERSION:
        raise UnsupportedError(
            f"schema version {version}", expected=f"at most {SCHEMA_VERSION}", where=file.name
        )
    return manifest


def bundle_of(artifact: Artifact, manifest: Mapping[str, Any]) -> Bundle:
    """Return the bundle whose manifest was read.

    Raises:
        CorruptError: As `read`.
    """
    where = str(artifact.path / MANIFEST)
    try:
        return _bundle(artifact, manifest, where)
    except (KeyError, TypeError, AttributeError, ValueError) as e:
        raise CorruptError(f"does not follow its schema ({e!r})", where=where) from e


def _bundle(artifact: Artifact, manifest: Any, where: str) -> Bundle:
    for resource in manifest["resources"]:
        stored = artifact.member(resource["name"])
        stored.close()
        if stored.size != resource["size"]:
            raise CorruptError(
                f"{resource['name']} has {stored.size} bytes",
                expected=f"{resource['size']}, as the manifest says",
                where=artifact.path,
            )
    names = [r["name"] for r in manifest["resources"]]
    shards = [n for n in names if n.endswith(safetensors.SUFFIX)]
    stored_weights = safetensors.read_files(artifact, shards, variant="portable")
    weights = {}
    for entry in manifest["tensors"]:
        held = stored_weights.weights.get(entry.get("tied_to", entry["name"]))
        if held is None or (held.dtype.name, list(held.shape)) != (entry["dtype"], entry["shape"]):
            raise CorruptError(f"tensor {entry['name']!r} is not as the manifest says", where=where)
        weights[entry["name"]] = held.with_origin(entry["origin"])
    source = manifest["source"]
    metadata = Metadata(
        format="portable",
        variant=f"converted from {source['format']}: {source['variant']}",
        framework=source["framework"],
        recorded=source["recorded"],
        devices=source["devices"],
        distribution=source["distribution"],
        user=source["user"],
        opaque=source["opaque"],
        tensor_notes={e["name"]: e["notes"] for e in manifest["tensors"] if "notes" in e},
        findings=tuple(SafetyFinding(**f) for f in source["findings"]),
        left_out=tuple(LeftOut(**x) for x in manifest["left_out"]),
        normalisations=tuple(Normalisation(**n) for n in manifest["normalisations"]),
    )
    topology = manifest["topology"]
    return Bundle(
        metadata=metadata,
        weights=weights,
        encodings=stored_weights.encodings,
        topology=Topology(**topology) if topology else None,
        signatures=tuple(_signature(s) for s in manifest["signatures"]),
        assets={
            n.removeprefix(f"{ASSETS}/"): Span.whole(artifact.member(n))
            for n in names
            if n.startswith(f"{ASSETS}/")
        },
    )


def _signature(entry: Mapping[str, Any]) -> Signature:
    def specs(side: str) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(s["name"], s["dtype"], None if s["shape"] is None else tuple(s["shape"]))
            for s in entry[side]
        )

    return Signature(entry["name"], specs("inputs"), specs("outputs"))


class Resource(NamedTuple):
    """One file: of the bundle, or of its source."""

    name: str
    size: int
    digest: str


def manifest(
    bundle: Bundle,
    layout: ShardLayout,
    *,
    source_name: str,
    source_files: Sequence[Resource],
    tensor_digests: Mapping[str, str],
    resources: Sequence[Resource],
    verification: Mapping[str, JSON],
    environment: Mapping[str, JSON],
    graph: Mapping[str, JSON] | None = None,
    others: Sequence[Mapping[str, JSON]] = (),
) -> dict[str, Any]:
    """Return the manifest of a bundle whose other files are written and verified."""
    about = bundle.metadata
    tensors = {n: (t.dtype.name, t.shape, tensor_digests[n]) for n, t in bundle.weights.items()}
    topology = bundle.topology
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "source": {
            "name": source_name,
            "format": about.format,
            "variant": about.variant,
            "framework": about.framework,
            "size": sum(f.size for f in source_files),
            "files": len(source_files),
            "digest": files_digest(source_files),
            "recorded": dict(about.recorded),
            "devices": dict(about.devices),
            "distribution": dict(about.distribution),
            "user": dict(about.user),
            "opaque": dict(about.opaque),
            "findings": [asdict(f) for f in about.findings],
        },
        "normalisations": [asdict(n) for n in about.normalisations],
        "left_out": [x.plain() for x in about.left_out],
        "weights_digest": _digest(digests.ALGORITHM, digests.of_weights(tensors)),
        "tensors": [
            _tensor_entry(name, tensor, layout, tensor_digests[name], about.tensor_notes.get(name))
            for name, tensor in bundle.weights.items()
        ],
        "encodings": {n: asdict(e) for n, e in bundle.encodings.items()},
        "topology": topology
        and {
            "kind": topology.kind,
            "summary": dict(topology.summary),
            "content": _words(topology.content),
        },
        "graph": graph and dict(graph),
        **({"graphs": [dict(g) for g in others]} if others else {}),
        "signatures": [asdict(s) for s in bundle.signatures],
        "resources": [
            {"name": r.name, "algorithm": digests.ALGORITHM, "digest": r.digest, "size": r.size}
            for r in sorted(resources, key=lambda r: r.name)
        ],
        "digest": _digest("sha256", digests.of_files({r.name: r.digest for r in resources})),
        "verification": dict(verification),
        "environment": dict(environment),
    }


def write_manifest(document: Mapping[str, Any], folder: Path, *, sync: bool = False) -> None:
    """Write ``manifest.json``; the same document always gives the same bytes.

    Raises:
        StorageError: It cannot be written.
    """
    try:
        text = laid_out(document, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError):  # few have what JSON cannot hold, and looking takes long
        text = laid_out(_strict(document), ensure_ascii=False, allow_nan=False).encode()
    with Output(folder / MANIFEST) as out:
        out.write(text + b"\n")
        if sync:
            out.sync()


def _strict(value: Any) -> Any:
    """Return ``value`` as JSON can hold it: NaN and infinities by name, text as valid Unicode."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {
            k if type(k) is str and k.isascii() else _strict(str(k)): v
            if type(v) in _PLAIN
            else _strict(v)
            for k, v in value.items()
        }
    if isinstance(value, list | tuple):
        return [v if type(v) in _PLAIN else _strict(v) for v in value]
    return value


_PLAIN = frozenset({int, bool, type(None)})  # of which nothing has to be changed


def files_digest(files: Sequence[Resource]) -> dict[str, str]:
    """Return the digest of one file, or the root over several."""
    if len(files) == 1:
        return _digest(digests.ALGORITHM, files[0].digest)
    return _digest("sha256", digests.of_files({f.name: f.digest for f in files}))


def _digest(algorithm: str, value: str) -> dict[str, str]:
    return {"algorithm": algorithm, "value": value}


def _tensor_entry(
    name: str,
    tensor: Tensor,
    layout: ShardLayout,
    digest: str,
    notes: Mapping[str, JSON] | None,
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": name,
        "dtype": tensor.dtype.name,
        "shape": list(tensor.shape),
        "digest": digest,
        "file": layout.files[name],
        "origin": tensor.origin,
    }
    if name in layout.tied:
        entry["tied_to"] = layout.tied[name]
    if tensor.dtype.code is None:
        code, shape = find_stored_form(tensor)
        entry["stored_as"] = {"dtype": code, "shape": shape}
    if notes:
        entry["notes"] = dict(notes)
    return entry


def _words(content: object) -> JSON:
    """Return the topology's words where they are JSON; files of words travel as assets."""
    if isinstance(content, Mapping) and any(isinstance(v, Span) for v in content.values()):
        return None
    return cast(JSON, content)
