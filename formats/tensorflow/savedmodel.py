"""TensorFlow SavedModels of TF 1 and TF 2, binary or text, given as a folder or by their ``.pb``.

The weights are the variables of the bundle under ``variables/`` (named as
`formats.tensorflow.variables` says) and, because some models keep weights in their graph,
constants:
- without variables (a frozen model in a SavedModel), every constant, under its node's name, but
  for those of the functions that would save and restore variables;
- with variables, the constants of more than 16 elements, as ``const/<node>``. Smaller ones (axes,
  shapes, paths) are the graph's business and stay in it, as do initial values of variables and
  the lists of names that Save and Restore take; `Metadata.left_out` counts them. All are in the
  topology, which is the ``.pb``.

A SavedModel of several MetaGraphs shares its variables; a constant that is the same in all of them
comes out once, others get the tags of theirs in front.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from formats.artifact import Artifact
from formats.containers import jsontext
from formats.containers.protobuf.messages import Message, decode
from formats.core.bundle import JSON, Bundle, LeftOut, Metadata, Signature, Topology
from formats.core.collector import Collector
from formats.core.storage import File, Span
from formats.errors import ConvertError, CorruptError, LimitError, UnknownFormatError
from formats.limits import Limits
from formats.tensorflow.checkpoint import (
    byteorder,
    find_prefix,
    list_missing_slices,
    object_graph,
    open_checkpoint,
)
from formats.tensorflow.constants import gather_constants
from formats.tensorflow.graph_summary import (
    Axes,
    Survey,
    read_recorded_versions,
    signatures,
    survey,
)
from formats.tensorflow.graphdef import SAVED_MODEL, kind_of, parse
from formats.tensorflow.schemas import SCHEMA
from formats.tensorflow.variables import Gathered, gather

BINARY, TEXT = "saved_model.pb", "saved_model.pbtxt"
VARIABLES, ASSETS, EXTRA = "variables", "assets", "assets.extra"
KERAS, FINGERPRINT = "keras_metadata.pb", "fingerprint.pb"


@dataclass(slots=True)
class _Found:
    """What the MetaGraphs of one SavedModel add up to."""

    recorded: dict[str, str] = field(default_factory=dict)
    signatures: list[Signature] = field(default_factory=list)
    surveys: list[tuple[str, Survey]] = field(default_factory=list)  # by tags
    saved_objects: Message | None = None


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that the artifact is a SavedModel."""
    if artifact.is_folder:
        name = next((n for n in (BINARY, TEXT) if n in artifact.names), None)
        if name is None:
            return None
        try:
            found = kind_of(Span.whole(artifact.member(name)))
        except ConvertError:
            found = None
        # A damaged one, or one that leads elsewhere, is still meant as a SavedModel.
        return f"folder with {name}" if found is None or found[0] == SAVED_MODEL else None
    if not artifact.is_file:
        return None
    found = kind_of(artifact.span)
    if found is None or found[0] != SAVED_MODEL:
        return None
    return f"{'text' if found[1] else 'binary'} SavedModel"


def read(artifact: Artifact) -> Bundle:
    """Read a SavedModel; no weight's bytes are touched.

    Raises:
        CorruptError: A file is damaged.
        SourceError: The variables are missing.
        UnsupportedError: A tensor is of a kind we do not know.
    """
    file = _graph_file(artifact)
    span, limits = Span.whole(file), artifact.limits
    kind = kind_of(span)
    is_text = kind[1] if kind else file.path.suffix == ".pbtxt"
    message = parse(span, SAVED_MODEL, limits, is_text=is_text)
    if not message.meta_graphs:
        raise CorruptError("the SavedModel holds no MetaGraph", where=span.name)
    if len(message.meta_graphs) > limits.max_objects:
        raise LimitError(f"{len(message.meta_graphs)} MetaGraphs", where=span.name)
    found = _meta_graphs(message, limits, span.name)
    found.recorded["saved_model_schema_version"] = str(message.saved_model_schema_version)

    collector = Collector(limits)
    gathered, left_out, objects = _variables(artifact, found, collector)
    left_out += gather_constants(
        found.surveys, collector, in_front="const/" if len(collector) else ""
    )
    collected = collector.finish()

    devices: Counter[str] = Counter(gathered.devices)
    for _, facts in found.surveys:
        devices.update(facts.devices)
    contents = {file.path.name: span}
    if objects is not None:
        contents["object_graph"] = objects
    summary = _summary(found)
    keras = _keras(artifact)
    if keras is not None:
        contents[KERAS], summary["keras"] = keras
    found.recorded |= _fingerprint(artifact)
    metadata = Metadata(
        format="savedmodel",
        variant=_variant(found, is_text=is_text),
        framework="tensorflow",
        recorded=found.recorded,
        devices=devices,
        distribution=gathered.distribution,
        user=gathered.user,
        findings=tuple(dict.fromkeys(f for _, s in found.surveys for f in s.findings)),
        left_out=tuple(left_out),
        normalisations=tuple(gathered.normalisations),
    )
    return Bundle(
        metadata=collected.complete(metadata),
        weights=collected.weights,
        leftovers=collected.leftovers,
        encodings=collected.encodings,
        topology=Topology("graphdef", summary, contents),
        signatures=tuple(found.signatures),
        assets=dict(_assets(artifact)),
    )


def _graph_file(artifact: Artifact) -> File:
    if artifact.is_file:
        return artifact.file
    for name in (BINARY, TEXT):
        if name in artifact.names:
            return artifact.member(name)
    raise UnknownFormatError(f"has no {BINARY} and no {TEXT}", where=artifact.path)


def _folder(artifact: Artifact) -> Path:
    return artifact.path if artifact.is_folder else artifact.path.parent


def _meta_graphs(message: Message, limits: Limits, where: str) -> _Found:
    found, axes = _Found(), Axes()
    seen: set[str] = set()
    for meta_graph in message.meta_graphs:
        tags = ", ".join(meta_graph.meta_info_def.tags) or "no tags"
        suffix = ""
        if found.surveys:
            suffix = f"@{tags}"
        for signature in signatures(meta_graph, axes, suffix):
            if signature.name not in seen:
                found.signatures.append(signature)
                seen.add(signature.name)
        found.recorded = read_recorded_versions(meta_graph) | found.recorded
        found.surveys.append((tags, survey(meta_graph.graph_def, limits, where)))
        if found.saved_objects is None and meta_graph.has("object_graph_def"):
            found.saved_objects = meta_graph.object_graph_def
    tagged = [", ".join(m.meta_info_def.tags) for m in message.meta_graphs]
    if any(tagged):
        found.recorded["tags"] = "; ".join(tagged)
    return found


def _variables(
    artifact: Artifact, found: _Found, collector: Collector
) -> tuple[Gathered, list[LeftOut], Span | None]:
    """Gather the variables, if there are any; also return the bytes of their object graph."""
    place = None
    if (_folder(artifact) / VARIABLES).is_dir():
        place = find_prefix(artifact, f"{VARIABLES}/{VARIABLES}")
    if place is None:
        # Initialisers of hash tables and the like are no variables.
        names = list(dict.fromkeys(n for _, s in found.surveys for n in s.variables))
        reason = f"a variable, but the SavedModel has no {VARIABLES}/{VARIABLES}.index"
        return Gathered(), [LeftOut(name, reason) for name in names], None
    source = open_checkpoint(place, artifact)
    graph, objects = object_graph(source, found.saved_objects, artifact.limits, place.stem)
    gathered = gather(source, graph, collector, is_savedmodel=True)
    found.recorded["shards"] = str(source.shards)
    found.recorded["byteorder"] = byteorder(source)
    return gathered, list_missing_slices(source), objects


def _summary(found: _Found) -> dict[str, JSON]:
    if len(found.surveys) == 1:
        return found.surveys[0][1].summary()
    graphs: dict[str, JSON] = {tags: facts.summary() for tags, facts in found.surveys}
    return {
        "nodes": sum(s.nodes for _, s in found.surveys),
        "functions": sum(s.functions for _, s in found.surveys),
        "meta_graphs": graphs,
    }


def _variant(found: _Found, *, is_text: bool) -> str:
    age = "TF 2" if found.saved_objects is not None else "TF 1"
    count = len(found.surveys)
    graphs = f"{count} MetaGraphs" if count > 1 else "one MetaGraph"
    return f"{age}, {'text' if is_text else 'binary'}, {graphs}"


def _member(artifact: Artifact, name: str) -> Span | None:
    if not (_folder(artifact) / name).is_file():
        return None
    return Span.whole(artifact.member(name))


def _keras(artifact: Artifact) -> tuple[Span, JSON] | None:
    """Return keras_metadata.pb, and which layers it describes."""
    span = _member(artifact, KERAS)
    if span is None:
        return None
    kinds: Counter[str] = Counter()
    root: dict[str, JSON] = {}
    try:
        for path, identifier, described in read_keras_objects(span, artifact.limits):
            kind = described.get("class_name") if isinstance(described, dict) else None
            kinds[kind if isinstance(kind, str) else identifier] += 1
            if path == "root" and isinstance(described, dict):
                root = {k: described[k] for k in ("class_name", "name") if k in described}
    except ConvertError:
        return span, None
    classes: dict[str, JSON] = dict(sorted(kinds.items()))
    return span, {"root": root, "objects": classes}


def read_keras_objects(span: Span, limits: Limits) -> Iterator[tuple[str, str, JSON]]:
    """Yield path, identifier and metadata of each object that keras_metadata.pb describes.

    Raises:
        SourceError: The file is damaged or over a limit.
    """
    for node in decode(span, SCHEMA["keras.SavedMetadata"], limits).nodes:
        described = jsontext.parse(
            node.metadata or "{}", where=span.name, limit=limits.max_header_bytes
        )
        yield node.node_path, node.identifier, described


def _fingerprint(artifact: Artifact) -> dict[str, str]:
    span = _member(artifact, FINGERPRINT)
    if span is None:
        return {}
    try:
        message = decode(span, SCHEMA["FingerprintDef"], artifact.limits)
        found = {"fingerprint_uuid": message.uuid} if message.uuid else {}
        if message.saved_model_checksum:
            found["fingerprint"] = str(message.saved_model_checksum)
    except ConvertError:
        return {}
    return found


def _assets(artifact: Artifact) -> Iterator[tuple[str, Span]]:
    """Yield the files under ``assets`` (by their path in it) and ``assets.extra``."""
    folder = _folder(artifact)
    for name, front in ((ASSETS, ""), (EXTRA, f"{EXTRA}/")):
        root = folder / name
        for path in sorted(root.rglob("*")) if root.is_dir() else ():
            if not path.is_dir():
                file = artifact.member(path.relative_to(folder).as_posix())
                yield front + path.relative_to(root).as_posix(), Span.whole(file)
