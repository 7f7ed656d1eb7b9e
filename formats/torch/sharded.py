"""Shards of one model: ``pytorch_model-*.bin`` with an index; Hugging Face folders."""

import re

from formats import hugging_face
from formats.artifact import Artifact
from formats.containers import jsontext
from formats.containers.zip.archive import LOCAL_MAGIC
from formats.core.bundle import JSON, Bundle
from formats.core.storage import HEAD, Span
from formats.errors import ConvertError, CorruptError
from formats.torch.bundle import finish
from formats.torch.containers import Session, is_legacy_tar, is_stream, read_any
from formats.torch.walk import Tree

INDEX_SUFFIXES = (".bin.index.json", ".pt.index.json", ".pth.index.json")
SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.(bin|pt|pth)")
SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".th", ".pth.tar")
SINGLE = ("pytorch_model.bin", "diffusion_pytorch_model.bin", "adapter_model.bin")


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that this is a model in several torch files."""
    if artifact.is_file:
        if artifact.path.name.endswith(INDEX_SUFFIXES) and b"weight_map" in artifact.head:
            return "an index of shards"
        if artifact.path.name.endswith(INDEX_SUFFIXES) and artifact.head.startswith(b"{"):
            return "an index of shards, by its name"
        return None
    index = _index(artifact)
    if index is not None:
        return f"a folder with {index}"
    if _number(artifact):
        return "a folder with numbered shards"
    single = _single(artifact)
    return None if single is None else f"a folder with {single}"


def _index(artifact: Artifact) -> str | None:
    found = [n for n in artifact.names if n.endswith(INDEX_SUFFIXES)]
    return min(found, key=len, default=None)


def _single(artifact: Artifact) -> str | None:
    """Return the one torch file of a folder: under a usual name, or the only one there is."""
    named = next((n for n in SINGLE if n in artifact.names), None)
    if named is not None:
        return named
    found = [n for n in artifact.names if n.endswith(SUFFIXES)]
    return found[0] if len(found) == 1 and _is_torch(artifact, found[0]) else None


def _is_torch(artifact: Artifact, name: str) -> bool:
    if not (artifact.path / name).is_file():
        return False
    try:
        span = Span.whole(artifact.member(name))
        head = span.read(0, min(HEAD, span.length))
    except ConvertError:
        return False
    zipped = head.startswith(LOCAL_MAGIC) and b"/data.pkl" in head
    return zipped or is_stream(head) or is_legacy_tar(head)


def _number(artifact: Artifact) -> list[str]:
    """Return the shards of a folder without an index, where all are there."""
    found = [m for n in artifact.names if (m := SHARD.fullmatch(n)) is not None]
    if not found:
        return []
    stem, total = found[0].group(1), int(found[0].group(3))
    names = [m.group(0) for m in found if m.group(1) == stem and int(m.group(3)) == total]
    return names if len(names) == total else []


def read(artifact: Artifact) -> Bundle:
    """Read all shards as one model.

    Raises:
        CorruptError: The index and the shards do not fit.
        LimitError: They ask for more than the limits grant.
        SafetyError: The index names a file outside its folder.
        SourceError: A shard is missing.
    """
    session = Session.begin(artifact.limits)
    tree = session.tree()
    wanted: dict[str, str] = {}
    index = artifact.path.name if artifact.is_file else _index(artifact)
    if index is not None:
        wanted = _weight_map(artifact, index, tree)
        shards = list(dict.fromkeys(wanted.values()))
    else:
        single = _single(artifact)
        shards = _number(artifact) or ([single] if single else [])
    if not shards:
        raise CorruptError("names no shard", where=artifact.path)
    recorded: dict[str, str] = {}
    for shard in shards:
        loaded = read_any(Span.whole(artifact.member(shard)), session, shard)
        tree.add(loaded.value, "", shard)
        recorded |= loaded.recorded
    there = {found.path for found in tree.tensors}
    for name in sorted(wanted.keys() - there):
        tree.leave_out(name, f"the index says it is in {wanted[name]}, and it is not")
    assets = hugging_face.read_assets(artifact, {*shards, index or ""})
    for name in () if artifact.is_file else artifact.names:
        if name not in assets and name not in shards and name != index and not name.startswith("."):
            tree.leave_out(name, "another file of the folder")
    variant = (
        "shards with an index" if index else "numbered shards" if len(shards) > 1 else "folder"
    )
    return finish(
        tree, session, format="torch-sharded", variant=variant, recorded=recorded,
        topology=hugging_face.read_topology(artifact), assets=assets,
    )  # fmt: skip


def _weight_map(artifact: Artifact, index: str, tree: Tree) -> dict[str, str]:
    """Return tensor → file, and keep what else the index says."""
    limit = artifact.limits.max_header_bytes
    span = artifact.span if artifact.is_file else Span.whole(artifact.member(index))
    if span.length > limit:
        raise CorruptError(f"index of {span.length} bytes", where=index)
    value = jsontext.parse(span.read(), where=index, limit=limit)
    mapped = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(mapped, dict):
        raise CorruptError("has no weight_map", where=index)
    metadata: JSON = value.get("metadata")
    if isinstance(metadata, dict) and metadata:
        tree.add(metadata, "index", index)
    result = {}
    for name, file in mapped.items():
        if not isinstance(file, str):
            raise CorruptError(f"{name!r:.80} is in no file", where=index)
        result[name] = file
    return result
