"""Artifacts of several files in a folder: shards, TensorFlow's checkpoints, ONNX with its data."""

import re
from collections.abc import Iterable

from converter.registries.grouping.division import (
    LARGEST_INDEX,
    TENSORFLOW,
    Division,
    Group,
    present,
)
from formats.containers import jsontext
from formats.errors import ConvertError

# -- shards ---------------------------------------------------------------------------------------

_NUMBERED = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})(?P<suffix>\.\w+)")
_TORCH_SUFFIXES = (".bin", ".pt", ".pth")


def find_indices(found: Division) -> None:
    """Take models whose index says in which files their tensors are."""
    for index in [n for n in found.files if n.endswith((".index.json", ".weights.json"))]:
        shards = list_shards(found, index)
        if shards or _index_suffix(index) in (".safetensors", ".bin", ".pt", ".pth", ".h5"):
            found.add(Group((index,), "", (index, *shards)))


def _index_suffix(index: str) -> str:
    stem = index.removesuffix(".index.json")
    return "." + stem.rpartition(".")[2] if stem != index else ""


def list_shards(found: Division, index: str) -> tuple[str, ...]:
    """Return the files of the folder that an index names, or, if it is damaged, might have."""
    named: set[str] = set()
    try:
        text = found.listing.read(index, LARGEST_INDEX)
        value = jsontext.parse(text, where=index, limit=LARGEST_INDEX)
        mapped = value.get("weight_map") if isinstance(value, dict) else None
        for entry in mapped.values() if isinstance(mapped, dict) else ():
            named.update(str(e) for e in (entry if isinstance(entry, list) else (entry,)))
    except ConvertError:
        pass
    suffix = _index_suffix(index)
    stem = re.escape(index.removesuffix(f"{suffix}.index.json").removesuffix(".weights.json"))
    like = rf"{stem}-\d{{5}}-of-\d{{5}}{suffix}" if suffix else rf"{stem}_\d{{5}}\.weights\.h5"
    named.update(name for name in found.files if re.fullmatch(like, name))
    return tuple(name for name in found.files if name in named)


def find_numbered(found: Division) -> None:
    """Take shards that lost their index, where they are all there and alone of their kind."""
    for suffixes, kind in (((".safetensors",), "safetensors"), (_TORCH_SUFFIXES, "torch-sharded")):
        alike = [n for n in found.files if n.endswith(suffixes)]
        parts = [m for n in alike if (m := _NUMBERED.fullmatch(n)) is not None]
        if not parts or len({(m["stem"], m["count"]) for m in parts}) > 1:
            continue
        if len(alike) == len(parts) == int(parts[0]["count"]):
            found.add(Group(("",), kind, tuple(alike), (), ""))


# -- TensorFlow checkpoints -----------------------------------------------------------------------

_DATA = re.compile(r"(?P<stem>.+)\.data-\d{5}-of-\d{5}")
_TABLE = re.compile(r"(?P<stem>.+)-\d{5}-of-\d{5}")
_STATE_FILE = "checkpoint"


def find_checkpoints(found: Division) -> None:
    """Take checkpoints, each step one.

    A ``checkpoint`` file that calls one of them the latest does not make the others worth less, and
    an output that were always the latest would change under those who use it.
    """
    data: dict[str, list[str]] = {}
    tables: dict[str, list[str]] = {}
    for name in found.files:
        if (match := _DATA.fullmatch(name)) is not None:
            data.setdefault(match["stem"], []).append(name)
        elif (match := _TABLE.fullmatch(name)) is not None:
            tables.setdefault(match["stem"], []).append(name)
    stems = [n.removesuffix(".index") for n in found.files if n.endswith(".index")]
    for stem in [s for s in stems if s in data]:
        is_taken = stem in found.listing.files or stem in found.listing.folders
        path = f"{stem}.index" if is_taken else stem  # else the prefix stands for all
        meta = present((f"{stem}.meta",), found.files)
        files = (f"{stem}.index", *data.pop(stem), *meta)
        found.add(Group((path,), TENSORFLOW, files, (), stem))
    for names in data.values():  # they lost their index
        found.add(Group((names[0],), TENSORFLOW, tuple(names)))
    # Tables of the first version have no suffix; their graph lies beside them.
    for meta_graph in [n for n in found.files if n.endswith(".meta")]:
        stem = meta_graph.removesuffix(".meta")
        if stem in found.files:
            tables.setdefault(stem, []).append(stem)
    for stem, names in tables.items():
        meta = present((f"{stem}.meta",), found.files)
        files = (*names, *meta)
        found.add(Group((names[0],), TENSORFLOW, files, (), stem, is_certain=False))
    head = found.listing.head(_STATE_FILE, 4096) if _STATE_FILE in found.files else b""
    if b"model_checkpoint_path" in head:
        found.take((_STATE_FILE,))


# -- ONNX -----------------------------------------------------------------------------------------

_LARGEST_GRAPH = 64 << 20  # bytes of an ONNX file that is looked through for names of other files
# StringStringEntryProto{key: "location", value: …} on the wire; a length of one or two bytes.
_LOCATION = re.compile(rb"\n\x08location\x12(?:([\x01-\x7f])|([\x80-\xff][\x01-\x0f]))")


# What tensors are never kept in: looking for their names in graphs would be in vain.
_NEVER_DATA = (
    ".onnx", ".json", ".txt", ".md", ".py", ".yaml", ".yml", ".h5", ".keras", ".pt", ".pth", ".pb",
)  # fmt: skip


def find_external_data(found: Division) -> None:
    """Take ONNX models with the files that hold their tensors."""
    models = [n for n in found.files if n.lower().endswith(".onnx")]
    if models and all(n.lower().endswith(_NEVER_DATA) for n in found.files):
        return
    for model in models:
        data = list_external_data(found, model, [n for n in found.files if n != model])
        if data:
            found.add(Group((model,), "", (model, *data)))


def list_external_data(found: Division, model: str, beside: Iterable[str]) -> list[str]:
    """Return which of these names a model's tensors are in."""
    content = found.listing.read(model, _LARGEST_GRAPH)
    named = set()
    for match in _LOCATION.finditer(content):
        short, long = match[1], match[2]
        length = short[0] if short else (long[0] & 0x7F) | long[1] << 7
        named.add(content[match.end() : match.end() + length])
    return [n for n in beside if n.encode("utf-8", "surrogateescape") in named]
