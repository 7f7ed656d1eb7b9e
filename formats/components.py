"""Folders of several components: pipelines of diffusers, models of sentence-transformers.

An index names the components, each of which has a folder with its configuration and its weights.
The tensors of a component are called ``component/name``; those of a component that is in the root
folder keep their names. Specs:
https://huggingface.co/docs/diffusers/using-diffusers/loading (``model_index.json``) and
https://sbert.net/docs/sentence_transformer/usage/custom_models.html (``modules.json``)
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TypeVar

from formats import hugging_face, safetensors
from formats.artifact import Artifact
from formats.containers.jsontext import parse
from formats.core.bundle import (
    JSON,
    Bundle,
    Encoding,
    Group,
    LeftOut,
    Metadata,
    SafetyFinding,
    Topology,
)
from formats.core.plurals import count
from formats.core.storage import Span
from formats.core.weights import Tensor
from formats.errors import CorruptError, SafetyError
from formats.torch import sharded

FORMAT = "components"
PIPELINE, MODULES = "model_index.json", "modules.json"
DIFFUSERS, SENTENCES = "diffusers_pipeline", "sentence_transformers"  # kinds of topologies
KINDS = {PIPELINE: DIFFUSERS, MODULES: SENTENCES}
STEMS = ("diffusion_pytorch_model", "model", "pytorch_model")
FORMS = (".safetensors.index.json", ".safetensors", ".bin.index.json", ".bin")  # the best first
# A copy of the weights in another precision, or without averaging: model.fp16.safetensors.
VARIANT = re.compile(rf"(?:{'|'.join(STEMS)})\.(\w+)\.safetensors")
MAX_DEPTH = 3  # of folders in a component
ROOT = "."  # name of the root folder in summaries
BESIDE = "a file beside the weights, not part of them"
T = TypeVar("T")


def sniff(artifact: Artifact) -> str | None:
    """Recognise a folder by an index of components, at least one of which has weights."""
    for name in KINDS:
        if name in artifact.names and (artifact.path / name).is_file():
            components = list_components(_read_json(artifact, name))
            folders = (artifact.path / c for c in components)
            has_weights = any(
                _choose_weights(Artifact(path, artifact.limits))
                for path in folders
                if path.is_dir()
            )
            if has_weights and components != {"": components.get("")}:
                return f"a folder with {name}: {count('component', len(components))}"
    return None


def read(artifact: Artifact) -> Bundle:
    """Read the weights and configurations of all components.

    Raises:
        CorruptError: The index or a component is damaged.
        SafetyError: The index names a folder outside its own.
        SourceError: A file is missing.
        UnsupportedError: A component holds something that cannot be read yet.
    """
    index = next(name for name in KINDS if name in artifact.names)
    content = _read_json(artifact, index)
    components = list_components(content)
    folders = dict(_walk(artifact, components))
    parts = {name: _read_component(folder) for name, folder in folders.items()}
    if not any(part.weights for part in parts.values()):
        raise CorruptError("no component has weights", where=artifact.path)
    named = {name.partition("/")[0] for name in folders}
    apart = [
        LeftOut(n, f"a folder that {index} does not name")
        for n in artifact.names
        if n not in named and not n.startswith(".") and (artifact.path / n).is_dir()
    ]
    about = content if isinstance(content, dict) else {}
    summary: dict[str, JSON] = {k: about[k] for k in ("_class_name",) if k in about}
    summary["components"] = {name or ROOT: kind for name, kind in components.items()}
    configs: dict[str, JSON] = {
        name: part.topology.content
        for name, part in parts.items()
        if part.topology is not None and isinstance(part.topology.content, dict)
    }
    weights: list[JSON] = [name for name, part in parts.items() if part.weights]
    found: dict[str, JSON] = {"index": content, "configs": configs, "weights": weights}
    return _merge(parts, Topology(KINDS[index], summary, found), apart)


def configs_of(topology: Topology) -> Mapping[str, Mapping[str, JSON]]:
    """Return the configuration of each component that has one, by its folder."""
    content = topology.content if isinstance(topology.content, dict) else {}
    found = content.get("configs")
    entries = found.items() if isinstance(found, dict) else ()
    return {name: config for name, config in entries if isinstance(config, dict)}


def split(bundle: Bundle) -> dict[str, list[str]]:
    """Return the names of a bundle's tensors by the folder that they were read from."""
    content = bundle.topology.content if bundle.topology is not None else None
    folders = content.get("weights") if isinstance(content, dict) else None
    found: dict[str, list[str]] = {str(f): [] for f in folders} if isinstance(folders, list) else {}
    prefixes = sorted(found, key=len, reverse=True)  # the root's last
    for name in bundle.weights:
        folder = next((p for p in prefixes if not p or name.startswith(f"{p}/")), "")
        found.setdefault(folder, []).append(name)
    return found


# -- the index -----------------------------------------------------------------------------------


def _read_json(artifact: Artifact, name: str) -> JSON:
    text = Span.whole(artifact.member(name))
    return parse(text.read(), where=text.name, limit=artifact.limits.max_header_bytes)


def list_components(index: JSON) -> dict[str, str]:
    """Return folder → class of each component, the root folder as ``""``; none: it is no index."""
    if isinstance(index, dict) and "_class_name" in index:
        entries = [(k, v) for k, v in index.items() if isinstance(v, list) and len(v) == 2]
        return {k: f"{v[0]}.{v[1]}" for k, v in entries if v[0] is not None and v[1] is not None}
    found = {}
    for entry in index if isinstance(index, list) else ():
        match entry:
            case {"path": str(path), "type": str(kind)}:
                found[path] = kind
            case _:
                return {}
    return found


def _walk(artifact: Artifact, components: Mapping[str, str]) -> Iterator[tuple[str, Artifact]]:
    """Yield the root folder, and those of components with the folders inside them."""
    yield "", artifact
    for name in filter(None, components):
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise SafetyError(f"the index names the folder {name!r:.80}", where=artifact.path)
        if (artifact.path / path).is_dir():
            yield from _walk_component(artifact.subfolder(name), name)


def _walk_component(folder: Artifact, name: str, depth: int = 1) -> Iterator[tuple[str, Artifact]]:
    yield name, folder
    for inner in _list_folders(folder) if depth < MAX_DEPTH else ():
        yield from _walk_component(folder.subfolder(inner), f"{name}/{inner}", depth + 1)


def _list_folders(folder: Artifact) -> list[str]:
    return [n for n in folder.names if not n.startswith(".") and (folder.path / n).is_dir()]


# -- components ----------------------------------------------------------------------------------


def _read_component(folder: Artifact) -> Bundle:
    """Read one folder: its weights, where it has any, its configuration and vocabularies."""
    file = _choose_weights(folder)
    if file is None:
        assets = hugging_face.read_assets(folder, ())
        left_out = [LeftOut(n, BESIDE) for n in folder.names if n not in assets]
        about = Metadata(FORMAT, "", left_out=tuple(left_out))
        topology = hugging_face.read_topology(folder)
        bundle = Bundle(about, {}, topology=topology, assets=assets)
    elif file.endswith((".bin", ".bin.index.json")):
        bundle = sharded.read(folder)
    elif file.endswith(".index.json"):
        bundle = safetensors.read_index(folder, folder.member(file))
    else:
        bundle = safetensors.read_files(folder, [file], variant="one file")
    inner = _list_folders(folder)  # are read as well, or named by the caller
    left_out = [x for x in bundle.metadata.left_out if x.name not in inner]
    return replace(bundle, metadata=replace(bundle.metadata, left_out=tuple(left_out)))


def _choose_weights(folder: Artifact) -> str | None:
    """Return the file of a component's weights, or their index; of several copies the best."""
    names = [f"{stem}{form}" for form in FORMS for stem in STEMS]
    variants = [name for name in folder.names if VARIANT.fullmatch(name)]
    return next((name for name in (*names, *variants) if name in folder.names), None)


def _merge(parts: Mapping[str, Bundle], topology: Topology, apart: Sequence[LeftOut]) -> Bundle:
    """Return one bundle with the tensors of all components."""
    weights: dict[str, Tensor] = {}
    leftovers: dict[Group, dict[str, Tensor]] = {}
    encodings: dict[str, Encoding] = {}
    assets: dict[str, Span] = {}
    devices: Counter[str] = Counter()
    recorded: dict[str, str] = {}
    user: dict[str, JSON] = {}
    opaque: dict[str, str] = {}
    notes: dict[str, Mapping[str, JSON]] = {}
    places: dict[str, Sequence[str]] = {}
    findings: list[SafetyFinding] = []
    left_out = [*apart]
    for folder, part in parts.items():
        about = part.metadata
        front = f"{folder}/" if folder else ""

        def put(names: Mapping[str, T], front: str = front) -> dict[str, T]:
            return {f"{front}{name}": value for name, value in names.items()}

        weights |= put(part.weights)
        assets |= put(part.assets)
        opaque |= put(about.opaque)
        notes |= put(about.tensor_notes)
        places |= put(about.tensor_devices)
        user |= put(about.user)
        recorded |= about.recorded
        devices.update(about.devices)
        for group, tensors in part.leftovers.items():
            leftovers.setdefault(group, {}).update(put(tensors))
        for name, encoding in part.encodings.items():
            roles = {role: f"{front}{tensor}" for role, tensor in encoding.parts.items()}
            encodings[f"{front}{name}"] = replace(encoding, parts=roles)
        findings += [replace(f, where=f"{front}{f.where}") for f in about.findings]
        left_out += [replace(x, name=f"{front}{x.name}") for x in about.left_out]
    count = sum(bool(part.weights) for part in parts.values())
    metadata = Metadata(
        FORMAT, f"{count} components with weights", framework="torch", recorded=recorded,
        devices=devices, user=user, opaque=opaque, tensor_notes=notes, tensor_devices=places,
        findings=tuple(findings), left_out=tuple(left_out),
    )  # fmt: skip
    return Bundle(
        metadata, weights, leftovers=leftovers, encodings=encodings, topology=topology,
        assets=assets,
    )  # fmt: skip
