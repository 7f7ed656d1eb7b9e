"""`.keras` archives: a zip, or a folder, of ``config.json``, ``metadata.json`` and a weight store.

Written by tf.keras 2.12 and later, and by Keras 3. Members may be deflated, and may lie in a folder
of the archive where another program packed it again. The configuration is never executed: bytecode
in Lambda layers and classes that are not Keras's own are findings, and the weights are read anyway.
Files under ``assets/`` (vocabularies) become assets. A `.keras` file that is HDF5 inside is read by
`keras_h5`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from formats.artifact import Artifact
from formats.containers.hdf5.file import Hdf5
from formats.containers.zip.archive import ZipArchive
from formats.core.bundle import JSON, Bundle, Metadata
from formats.core.storage import Span
from formats.errors import (
    ConvertError,
    CorruptError,
    LimitError,
    SourceError,
    UnsupportedError,
)
from formats.keras.config import parse, read_config
from formats.keras.weight_store import Named, Store, name_store, read_store
from formats.limits import Limits

CONFIG, METADATA, ASSETS = "config.json", "metadata.json", "assets/"
WEIGHTS = "model.weights.h5"
OLD_WEIGHTS = "model.weights.npz"
INDEX = "model.weights.json"


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of an archive or a folder by their names in it, opened when asked for."""

    name: str
    limits: Limits
    spans: Mapping[str, Span]

    def json(self, name: str) -> JSON:
        span = self.spans[name]
        if span.length > self.limits.max_header_bytes:
            raise LimitError(f"{name} has {span.length} bytes", where=self.name)
        return parse(span.read(), f"{self.name}!{name}", self.limits)


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that this is a Keras archive or folder, or None."""
    names = artifact.names
    if artifact.is_folder:
        if CONFIG in names and any(n in names for n in (WEIGHTS, OLD_WEIGHTS, INDEX)):
            return f"a folder with {CONFIG} and model weights"
        return None
    archive = artifact.zip
    if archive is None:
        return None
    base = _base(archive)
    if base is None:
        return None
    return f"a zip with {base}{CONFIG} and model weights"


def _base(archive: ZipArchive) -> str | None:
    """Return the folder of the archive that holds the model ("" for its top), or None."""
    for name in archive.members:
        folder, _, last = name.rpartition("/")
        if last != CONFIG or folder.startswith("__MACOSX") or folder.count("/") > 1:
            continue
        base = f"{folder}/" if folder else ""
        weights = (f"{base}{n}" for n in (WEIGHTS, OLD_WEIGHTS, INDEX))
        if any(n in archive for n in weights) or _names_keras(archive, f"{base}{METADATA}"):
            return base
    return None


def _names_keras(archive: ZipArchive, name: str) -> bool:
    """Return whether a member is the metadata of a Keras archive."""
    try:
        return name in archive and b"keras_version" in archive.read(name, 1 << 16)
    except ConvertError:
        return False


def read(artifact: Artifact) -> Bundle:
    """Read a Keras archive.

    Raises:
        CorruptError: It is damaged, or lacks its weights or its configuration.
        LimitError: It is over a limit.
        UnsupportedError: Its weights are an .npz of pickled dictionaries.
    """
    files = _open_folder(artifact) if artifact.is_folder else _open_archive(artifact)
    if CONFIG not in files.spans:
        raise CorruptError(f"has no {CONFIG}", where=files.name)
    config = files.json(CONFIG)
    recorded = files.json(METADATA) if METADATA in files.spans else {}
    facts = read_config(config, CONFIG)
    version = recorded.get("keras_version") if isinstance(recorded, dict) else None
    store, named = _weights(files, config, version if isinstance(version, str) else None)
    user: dict[str, JSON] = {}
    if isinstance(config, dict) and config.get("compile_config"):
        user["training_config"] = config["compile_config"]
    metadata = Metadata(
        "keras",
        f"{'folder' if artifact.is_folder else 'archive'} of Keras {version or '(not recorded)'}",
        framework="keras",
        recorded=_texts(recorded),
        distribution=facts.distribution,
        user=user,
        findings=(*facts.findings, *store.findings),
        left_out=tuple(store.left_out),
    )
    return Bundle(
        metadata,
        named.weights,
        named.leftovers,
        topology=facts.topology,
        signatures=facts.signatures,
        assets={
            name.removeprefix(ASSETS): span
            for name, span in files.spans.items()
            if name.startswith(ASSETS)
        },
    )


def _texts(recorded: JSON) -> dict[str, str]:
    if not isinstance(recorded, dict):
        return {}
    return {key: value for key, value in recorded.items() if isinstance(value, str)}


def _open_archive(artifact: Artifact) -> _Files:
    archive = artifact.zip
    if archive is None:
        raise artifact.damage or CorruptError("is no zip archive", where=artifact.path)
    base = _base(archive) or ""
    spans = {
        name.removeprefix(base): member.span()
        for name, member in archive.members.items()
        if name.startswith(base)
    }
    return _Files(archive.name, artifact.limits, spans)


def _open_folder(artifact: Artifact) -> _Files:
    names = [n for n in artifact.names if n.endswith((".json", ".h5", ".npz"))]
    folder = artifact.path / ASSETS
    try:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                names.append(path.relative_to(artifact.path).as_posix())
            if len(names) > artifact.limits.max_files:
                raise LimitError(f"more than {artifact.limits.max_files} files", where=folder)
    except OSError as e:
        raise SourceError(f"cannot be listed: {e.strerror}", where=folder) from e
    spans = {name: Span.whole(artifact.member(name)) for name in names}
    return _Files(str(artifact.path), artifact.limits, spans)


def _weights(files: _Files, config: JSON, version: str | None) -> tuple[Store, Named]:
    store = Store()
    if WEIGHTS in files.spans:
        read_store(Hdf5(files.spans[WEIGHTS], files.limits), store, "")
    elif INDEX in files.spans:
        for shard in _shards(files):
            if shard not in files.spans:
                raise SourceError(f"the shard {shard!r} is not there", where=files.name)
            read_store(Hdf5(files.spans[shard], files.limits), store, shard)
    elif OLD_WEIGHTS in files.spans:
        raise UnsupportedError(
            "keeps its weights as pickled dictionaries in an .npz file",
            where=files.name,
            hint="Load and save it again with the Keras that wrote it",
        )
    else:
        raise CorruptError(f"has no {WEIGHTS}", where=files.name)
    return store, name_store(store, config, version)


def _shards(files: _Files) -> list[str]:
    index = files.json(INDEX)
    mapping = index.get("weight_map") if isinstance(index, dict) else None
    found: set[str] = set()
    for entry in mapping.values() if isinstance(mapping, dict) else ():
        found.update(
            e for e in (entry if isinstance(entry, list) else [entry]) if isinstance(e, str)
        )
    return sorted(found)
