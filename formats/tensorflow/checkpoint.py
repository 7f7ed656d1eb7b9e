"""TensorFlow checkpoints: object-based and name-based V2 bundles, V1 tables, and their folders.

A checkpoint is several files with one prefix, and may be given as the prefix, as any of its files,
or as a folder: the ``checkpoint`` file in it says which prefix is the latest, without one the
folder must hold a single prefix. A ``.meta`` file beside it adds its graph. How variables are
named and grouped is said in `formats.tensorflow.variables`.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from formats.artifact import Artifact
from formats.containers.protobuf import text_format
from formats.containers.protobuf.messages import Message, decode, decode_bytes
from formats.core.bundle import JSON, Bundle, LeftOut, Metadata, SafetyFinding, Signature, Topology
from formats.core.collector import Collector
from formats.core.storage import Span
from formats.core.strings import Strings
from formats.errors import ConvertError, CorruptError, SourceError, UnknownFormatError
from formats.limits import Limits
from formats.tensorflow import sstable
from formats.tensorflow.checkpoint_v1 import SavedSlices
from formats.tensorflow.graph_summary import Axes, read_recorded_versions, signatures, survey
from formats.tensorflow.object_graph import KEY, ObjectGraph
from formats.tensorflow.schemas import SCHEMA
from formats.tensorflow.tensor_bundle import TensorBundle, orphans
from formats.tensorflow.variables import Checkpoint, gather

INDEX, META, STATE = ".index", ".meta", "checkpoint"
_SHARD = re.compile(r"(?P<stem>.+)\.data-\d{5}-of-\d{5}")
_SHARD_OF_V1 = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})")
_PART = re.compile(r"-\d{5}-of-\d{5}")
_LARGEST_STATE = 1 << 20  # bytes of a "checkpoint" file


@dataclass(frozen=True, slots=True)
class Place:
    """Where a checkpoint's files are.

    Attributes:
        stem: What all names begin with, relative to the artifact's folder.
        tables: Names of the V1 tables; empty for a V2 bundle.
    """

    stem: str
    tables: tuple[str, ...] = ()


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that the artifact is a TensorFlow checkpoint."""
    try:
        place = locate(artifact)
        if place is None:
            return None
        name = place.tables[0] if place.tables else place.stem + INDEX
        span = Span.whole(artifact.member(name))
        if not sstable.has_magic(span):
            # A cut index is still one when its prefix was given.
            return None if place.tables or artifact.is_file else f"{name} beside its shards"
    except ConvertError:
        return None
    with suppress(ConvertError):  # a damaged table is still one; `read` says what is wrong
        first = next(sstable.Table(span, artifact.limits).items(), (b"?", span))
        if first[0] != b"":
            return None
    if place.tables:
        return f"SSTable of a V1 checkpoint ({len(place.tables)} file(s))"
    return f"SSTable index of tensor bundle {place.stem!r}"


def read(artifact: Artifact) -> Bundle:
    """Read a checkpoint; no tensor's bytes are touched.

    Raises:
        CorruptError: A file is damaged.
        SourceError: A file is missing.
        UnsupportedError: A tensor is of a kind we do not know.
    """
    place = locate(artifact)
    if place is None:
        raise UnknownFormatError("is no TensorFlow checkpoint", where=artifact.path)
    limits = artifact.limits
    source = open_checkpoint(place, artifact)
    graph, content = object_graph(source, None, limits, place.stem)
    collector = Collector(limits)
    gathered = gather(source, graph, collector, is_savedmodel=False)
    left_out = list(list_missing_slices(source))
    recorded = {"shards": str(source.shards), "byteorder": byteorder(source)}
    if source.producer:
        recorded["bundle_version"] = str(source.producer)
    devices = gathered.devices
    findings: tuple[SafetyFinding, ...] = ()
    declared: tuple[Signature, ...] = ()
    summary: dict[str, JSON] = {}
    contents: dict[str, Span] = {}
    kind = "tf_object_graph"
    if graph is not None and content is not None:
        summary["objects"] = len(graph.nodes)
        contents["object_graph"] = content
    meta = _meta_graph(place, artifact)
    if meta is not None:
        message, span = meta
        found = survey(message.graph_def, limits, span.name)
        devices.update(found.devices)
        findings = tuple(found.findings)
        kind = "graphdef"
        summary |= found.summary()
        contents["meta_graph"] = span
        recorded |= read_recorded_versions(message)
        declared = tuple(signatures(message, Axes()))
        if found.constants:
            count = len(found.constants)
            reason = "part of the training graph in the .meta file, not weights"
            left_out.append(LeftOut(f"{count} constant{'s' * (count > 1)}", reason))
    collected = collector.finish()
    metadata = Metadata(
        format="tf-checkpoint",
        variant=_variant(source, graph),
        framework="tensorflow",
        recorded=recorded,
        devices=devices,
        distribution=gathered.distribution,
        user=gathered.user,
        findings=findings,
        left_out=tuple(left_out),
        normalisations=tuple(gathered.normalisations),
    )
    return Bundle(
        metadata=collected.complete(metadata),
        weights=collected.weights,
        leftovers=collected.leftovers,
        encodings=collected.encodings,
        topology=Topology(kind, summary, contents) if contents else None,
        signatures=declared,
    )


def locate(artifact: Artifact) -> Place | None:
    """Return where the checkpoint is that the artifact names; None if it names none.

    Raises:
        SourceError: It names several, or one that is not there.
    """
    name = artifact.name
    if artifact.is_prefix:
        return Place(name)
    if artifact.is_folder:
        return _in_folder(artifact)
    if name == STATE:
        return _from_state(artifact)
    shard = _SHARD.fullmatch(name)
    if name.endswith((INDEX, META)) or shard is not None:
        stem = shard["stem"] if shard else name.removesuffix(INDEX).removesuffix(META)
        if _is_file(artifact, stem + INDEX):
            return Place(stem)
        if name.endswith(META):
            return _tables(artifact, stem)
    if artifact.span.length < sstable.FOOTER or not sstable.has_magic(artifact.span):
        return None
    part = _SHARD_OF_V1.fullmatch(name)
    if part is not None:
        return _tables(artifact, part["stem"])
    return Place(name, (name,))


def open_checkpoint(place: Place, artifact: Artifact) -> Checkpoint:
    """Open a checkpoint's index.

    Raises:
        CorruptError: It is damaged.
        SourceError: It is missing.
    """
    if place.tables:
        return SavedSlices([Span.whole(artifact.member(n)) for n in place.tables], artifact.limits)
    return TensorBundle(
        Span.whole(artifact.member(place.stem + INDEX)),
        lambda part: artifact.member(f"{place.stem}.{part}"),
        artifact.limits,
    )


def find_prefix(artifact: Artifact, stem: str) -> Place | None:
    """Return the checkpoint of this very prefix, of whichever version."""
    return Place(stem) if _is_file(artifact, stem + INDEX) else _tables(artifact, stem)


def object_graph(
    source: Checkpoint, saved: Message | None, limits: Limits, where: str
) -> tuple[ObjectGraph | None, Span | None]:
    """Return a checkpoint's object graph, and its bytes; name-based ones have none.

    Raises:
        CorruptError: It is damaged.
    """
    if KEY not in source.entries:
        return None, None
    value = source.tensor(KEY)
    if not isinstance(value, Strings) or value.shape:
        raise CorruptError(f"{KEY} is no string", where=where)
    data = value.data.tobytes()
    message = decode_bytes(data, SCHEMA["TrackableObjectGraph"], limits, f"{where}#{KEY}")
    graph = ObjectGraph(message, saved, limits, where)
    (run,) = value.data.pieces() if data else (None,)
    return graph, run if isinstance(run, Span) else None


def byteorder(source: Checkpoint) -> str:
    """Return the byte order that the data is in."""
    return source.byteorder if isinstance(source, TensorBundle) else "little"


def list_missing_slices(source: Checkpoint) -> list[LeftOut]:
    """Name slices that belong to no tensor of the index."""
    if not isinstance(source, TensorBundle):
        return []
    reason = "a slice without an entry for its tensor"
    return [LeftOut(name, reason) for name in sorted(set(orphans(source)))]


def _variant(source: Checkpoint, graph: ObjectGraph | None) -> str:
    if isinstance(source, SavedSlices):
        return "V1, name-based"
    return "V2, object-based" if graph is not None else "V2, name-based"


def _folder(artifact: Artifact) -> Path:
    return artifact.path if artifact.is_folder else artifact.path.parent


def _is_file(artifact: Artifact, name: str) -> bool:
    try:
        return (_folder(artifact) / name).is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _in_folder(artifact: Artifact) -> Place | None:
    names = artifact.names
    if {"saved_model.pb", "saved_model.pbtxt"} & set(names):
        return None
    if STATE in names:
        place = _from_state(artifact)
        if place is not None:
            return place
    stems = [n.removesuffix(INDEX) for n in names if n.endswith(INDEX)]
    stems = [s for s in stems if any(n.startswith(s + ".data-") for n in names)]
    if len(stems) == 1:
        return Place(stems[0])
    if len(stems) > 1:
        raise SourceError(
            f"holds {len(stems)} checkpoints: {', '.join(stems[:5])}",
            expected=f"a file {STATE!r} that says which one is the latest",
            where=artifact.path,
            hint="Name one of them",
        )
    # V1 tables have no suffix of their own: their meta graph names them, or habit does.
    stems = [n.removesuffix(META) for n in names if n.endswith(META)]
    stems = stems or [n for n in names if n.endswith(".ckpt")]
    return _tables(artifact, stems[0]) if len(stems) == 1 else None


def _from_state(artifact: Artifact) -> Place | None:
    """Return the checkpoint that a ``checkpoint`` file calls the latest one."""
    if not _is_file(artifact, STATE):
        return None
    span = Span.whole(artifact.member(STATE))
    if span.length > _LARGEST_STATE:
        return None
    try:
        state = text_format.parse(span, SCHEMA["CheckpointState"], SCHEMA, artifact.limits)
    except CorruptError:
        return None
    # Absolute paths are of the machine that wrote it; the files themselves lie in this folder.
    wanted = [state.model_checkpoint_path, *reversed(state.all_model_checkpoint_paths)]
    for path in wanted:
        stem = re.split(r"[/\\]", path)[-1].split("-?????-of-")[0]
        found = find_prefix(artifact, stem) if stem else None
        if found is not None:
            return found
    return None


def _tables(artifact: Artifact, stem: str) -> Place | None:
    """Return the V1 checkpoint of this prefix: one file, or all parts of a sharded one."""
    if _is_file(artifact, stem):
        return Place(stem, (stem,))
    front, _, name = stem.rpartition("/")
    front += "/" if front else ""
    try:
        siblings = sorted(p.name for p in (_folder(artifact) / front).iterdir())
    except OSError as e:
        raise SourceError(f"cannot be listed: {e.strerror}", where=_folder(artifact)) from e
    parts = [n for n in siblings if n.startswith(name) and _PART.fullmatch(n[len(name) :])]
    if not parts:
        return None
    count = int(parts[0].rsplit("-", 1)[1])
    if len(parts) != count:
        raise SourceError(
            f"{len(parts)} of the {count} parts of {stem!r} are here", where=artifact.path
        )
    return Place(stem, tuple(front + n for n in parts))


def _meta_graph(place: Place, artifact: Artifact) -> tuple[Message, Span] | None:
    """Return the meta graph beside a checkpoint, where one lies."""
    if not _is_file(artifact, place.stem + META):
        return None
    span = Span.whole(artifact.member(place.stem + META))
    return (decode(span, SCHEMA["MetaGraphDef"], artifact.limits), span) if span.length else None
