"""Group the files of a folder into artifacts, by names and a few headers.

A SavedModel is a folder, a checkpoint a prefix, a sharded model its index: their files are never
listed one by one. `divide` says what belongs together in one folder, what of it is left out and
why, and what remains to be looked at alone. It opens nothing itself, so that a folder anywhere can
be divided.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from converter.registries import mlmodel
from formats import components, portable
from formats.containers import jsontext
from formats.core.storage import Buffer, Span
from formats.errors import ConvertError
from formats.onnx import triton
from formats.tensorflow import savedmodel
from formats.torch.megatron import RANK_FOLDER
from formats.torch.megatron_dist import COMMON, CONFIG
from formats.torch.rank_files import RANK as RANK_FILE
from formats.torch.rank_files import group_files, has_parts
from formats.torch.training_groups import OPTIMIZER_KEY

MLFLOW = "mlflow"  # the kind of a group that is no format of the catalog
TENSORFLOW = "tf-checkpoint"
_LARGEST_INDEX = 100 << 20  # bytes of JSON
_RANK_HEAD = 1 << 20  # bytes in which a file of a rank names the classes of its tensors
_LARGEST_GRAPH = 64 << 20  # bytes of an ONNX file that is looked through for names of other files


@dataclass(frozen=True, slots=True)
class Listing:
    """A folder.

    Attributes:
        label: Its own name.
        files: Names of its files, sorted; hidden ones are not there, but for ``.metadata``.
        folders: Names of its folders, likewise.
        read: All bytes of a file that has at most so many; of a larger one, or one that cannot be
            read, none.
        head: The first so many bytes of a file, whatever its size.
        inside: Names of files and folders directly in one of its folders.
    """

    label: str
    files: Sequence[str]
    folders: Sequence[str]
    read: Callable[[str, int], bytes]
    head: Callable[[str, int], bytes]
    inside: Callable[[str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Group:
    """An artifact of several files.

    Attributes:
        paths: What opens it, relative to the folder, "" for the folder itself: the first that
            detection finds to be of this kind is taken.
        kind: Row id of `formats.catalog`, `MLFLOW`, or "" where any will do.
        files: Names of its files.
        folders: Names of the folders that belong to it wholly.
        name: What to call it relative to the folder; None for what opens it.
        is_certain: Whether it is an artifact even where no detection says so, and then a damaged
            one; else its files are looked at alone.
        checkpoint: What opens the checkpoint that has the values of this graph's variables.
    """

    paths: tuple[str, ...]
    kind: str = ""
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    name: str | None = None
    is_certain: bool = True
    checkpoint: str = ""

    @property
    def called(self) -> str:
        """Its name relative to the folder; "" for the folder itself."""
        return self.paths[0] if self.name is None else self.name


@dataclass(slots=True)
class Division:
    """A folder, divided.

    Attributes:
        listing: The folder.
        groups: Artifacts of several files.
        skipped: Name → why it is no artifact.
        notes: Name → what is to be known of a file that is an artifact by itself.
        files: Names that are in no group, and may each be an artifact.
        folders: Names of folders that are in no group.
    """

    listing: Listing
    groups: list[Group] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    files: dict[str, None] = field(init=False)
    folders: dict[str, None] = field(init=False)

    def __post_init__(self) -> None:
        self.files = dict.fromkeys(self.listing.files)
        self.folders = dict.fromkeys(self.listing.folders)

    def add(self, group: Group) -> None:
        """Add a group; its files and folders are no longer left."""
        self.groups.append(group)
        self.take(group.files, group.folders)

    def take(self, files: Iterable[str] = (), folders: Iterable[str] = ()) -> None:
        """Mark files and folders as part of something."""
        for name in files:
            self.files.pop(name, None)
        for name in folders:
            self.folders.pop(name, None)

    def skip(self, names: Iterable[str], reason: str) -> None:
        """Skip names, with a reason."""
        names = list(names)
        self.take(names, names)
        self.skipped.update(dict.fromkeys(names, reason))


def divide(listing: Listing) -> Division:
    """Divide a folder into artifacts, skipped files, and files to look into."""
    found = Division(listing)
    for rule in RULES:
        rule(found)
    return found


# -- folders that are one artifact ----------------------------------------------------------------


def _mlflow(found: Division) -> None:
    if mlmodel.FILE in found.files:
        found.add(_whole(found, MLFLOW))


def _portable(found: Division) -> None:
    name = portable.MANIFEST
    head = found.listing.head(name, 200) if name in found.files else b""
    is_ours = f'"{portable.SCHEMA}"'.encode() in head
    if not is_ours and found.listing.label.endswith(".portable"):  # one that lost its manifest
        is_ours = "model.safetensors" in found.files or "model.onnx" in found.files
    if is_ours:
        found.add(_whole(found, "portable"))


def _triton(found: Division) -> None:
    """Take the version of a model that Triton serves, with its configuration."""
    name = triton.CONFIGURATION
    if name not in found.files:
        return
    content = Span.whole(Buffer(found.listing.read(name, _LARGEST_INDEX), name))
    try:
        served = triton.name_served_file(content, found.folders)
    except ConvertError:
        return
    version, _, file = (served or "").partition("/")
    inside = found.listing.inside(version) if version else ()
    if served is None or file not in inside:
        return
    folders = (served,) if found.listing.inside(served) else ()
    beside = (f"{version}/{one}" for one in inside)
    found.add(Group(("",), "onnx", (name, *(n for n in beside if n not in folders)), folders))
    found.take((), (version,))
    others = [folder for folder in found.folders if triton.is_version(folder)]
    found.skip(others, f"another version of a model, of which Triton serves {version}")


def _whole(found: Division, kind: str) -> Group:
    return Group(("",), kind, tuple(found.files), tuple(found.folders))


_SAVED = (savedmodel.BINARY, savedmodel.TEXT)
_BESIDE_SAVED = ("keras_metadata.pb", "fingerprint.pb", "tfhub_module.pb")
_BELOW_SAVED = ("variables", "assets", "assets.extra")


def _saved_model(found: Division) -> None:
    graphs = _present(_SAVED, found.files)
    if graphs:
        files = graphs + _present(_BESIDE_SAVED, found.files)
        folders = _present(_BELOW_SAVED, found.folders)
        found.add(Group(("", graphs[0]), "savedmodel", files, folders))


_KERAS_WEIGHTS = ("model.weights.h5", "model.weights.npz", "model.weights.json")


def _keras(found: Division) -> None:
    weights = _present(_KERAS_WEIGHTS, found.files)
    texts = _present(("config.json", "metadata.json"), found.files)
    is_named = found.listing.label.endswith(".keras")
    if (weights and "config.json" in texts) or (is_named and (weights or texts)):
        if "model.weights.json" in weights:
            weights += _shards(found, "model.weights.json")
        found.add(Group(("",), "keras", weights + texts, _present(("assets",), found.folders)))


def _find_distributed(found: Division) -> None:
    shards = tuple(name for name in found.files if name.endswith(".distcp"))
    if shards and found.listing.label.startswith("optimizer"):
        found.skip((*shards, ".metadata"), TRAINING)
        found.skipped.pop(".metadata", None)
    elif shards:
        beside = (".metadata", "meta.pt", *((COMMON, CONFIG) if COMMON in found.files else ()))
        found.add(Group(("",), "torch-dcp", (*_present(beside, found.files), *shards)))
    found.take((".metadata",))


def _find_deepspeed(found: Division) -> None:
    models = tuple(name for name in found.files if name.endswith("model_states.pt"))
    states = tuple(name for name in found.files if name.endswith("optim_states.pt"))
    if models:
        found.add(Group(("",), "torch-deepspeed", (*models, *states)))


def _find_megatron(found: Division) -> None:
    ranks = tuple(name for name in found.folders if RANK_FOLDER.fullmatch(name))
    if ranks and any(name.endswith((".pt", ".ckpt")) for name in found.listing.inside(ranks[0])):
        found.add(Group(("",), "torch-megatron", (), ranks))
    if CONFIG in found.files and b'"zarr"' in found.listing.head(CONFIG, 1000):
        files = _present((CONFIG, COMMON), found.files)
        found.add(Group(("",), "torch-zarr", files, tuple(found.folders)))


def _find_ranks(found: Division) -> None:
    """Take the files of all ranks, where they hold parts of tensors."""
    groups = [
        files for files in group_files(found.files)
        if has_parts(found.listing.head(files.names[0], _RANK_HEAD))
    ]  # fmt: skip
    for files in groups:
        paths = ("", files.names[0]) if len(groups) == 1 else (files.names[0],)
        found.add(Group(paths, "torch-ranks", files.names))
    if groups:
        state = [n for n in found.files if RANK_FILE.fullmatch(n) and OPTIMIZER_KEY.search(n)]
        found.skip(state, TRAINING)


# -- folders as Hugging Face lays them out --------------------------------------------------------

TRAINING = "training state beside a model"
_STATE = re.compile(
    r"(?:optimizer|scheduler|scaler|training_args|rng_state.*|random_states_.*)"
    r"\.(?:pt|pth|bin|pkl|safetensors)|.*optim_states\.pt"
)
_SHARD = r"(?:-\d{5}-of-\d{5})?"
_SUFFIX = r"\.(?:safetensors|bin|h5|msgpack|ot|pth|pt)(?:\.index(?:\.\w+)?\.json)?"
_VARIANT = r"(?:\.(?:fp16|bf16|fp32|f16|int8|non_ema|ema))?"
_LIKE_CONFIG = (".json", ".txt", ".model", ".yaml", ".jinja")


@dataclass(frozen=True, slots=True)
class _Family:
    """Files that are the same weights under different names.

    Attributes:
        config: The file that says so.
        stems: What their names begin with, as transformers, diffusers and peft call them.
        copies: All their names.
    """

    config: str
    stems: tuple[str, ...]
    copies: "re.Pattern[str]"


def _family(config: str, *stems: str, also: str = "") -> _Family:
    front = f"(?:{'|'.join(stems)}){_VARIANT}{_SHARD}{_VARIANT}{_SUFFIX}"
    return _Family(config, stems, re.compile(front + also))


_FAMILIES = (
    _family(
        "config.json", "model", "pytorch_model", "tf_model", "flax_model", "rust_model",
        "consolidated", also=r"|model(?:_\w+)?\.onnx(?:[_.]data)?",
    ),
    _family("config.json", "diffusion_pytorch_model", "diffusion_flax_model"),
    _family("adapter_config.json", "adapter_model"),
)  # fmt: skip
# Weights of transformers' classes of other frameworks -> the format of a folder that has them.
_OF_FRAMEWORKS = {"tf_model.h5": "hf-tensorflow", "flax_model.msgpack": "flax"}
_EXPORTS = ("onnx", "openvino", "coreml", "tflite")  # folders of copies


def _components(found: Division) -> None:
    """Group a pipeline, or the modules of a model of sentences, with the folders of its index."""
    for index in _present(tuple(components.KINDS), found.files):
        try:
            text = found.listing.read(index, _LARGEST_INDEX)
            content = jsontext.parse(text, where=index, limit=_LARGEST_INDEX)
        except ConvertError:
            continue
        named = components.list_components(content)
        folders = {path.partition("/")[0] for path in named} - {""}
        inside = _present(sorted(folders), found.folders)
        if not inside:
            continue
        own = [n for n in found.files if n.endswith((*_LIKE_CONFIG, ".md"))]
        if "" in named:  # the root folder is a component, too
            own += [n for n in found.files if _FAMILIES[0].copies.fullmatch(n) and n not in own]
            found.skip(_present(_EXPORTS, found.folders), "another copy of the model")
        found.add(Group(("",), components.FORMAT, tuple(own), inside))


def _hugging_face(found: Division) -> None:
    before = len(found.groups)
    for family in _FAMILIES:
        _best(found, family)
    trainers = ("trainer_state.json", "random_states_0.pkl")  # of transformers, of accelerate
    if len(found.groups) > before or _present(trainers, found.files):
        found.skip([n for n in found.files if _STATE.fullmatch(n)], TRAINING)


def _best(found: Division, family: _Family) -> None:
    """Find the best form of a family's weights: the model's own, exact, and safe to read.

    A graph that was exported from it is another copy: its tensors have other names.
    """
    chosen = _form(found.files, family)
    is_said = family.config in found.listing.files
    if chosen is None and is_said and "model" in family.stems:
        _export(found, family)
        return
    if chosen is None or not (is_said or chosen.endswith(".index.json")):
        return
    kind, is_folder = _kind_of(chosen, found.listing.files)
    files: tuple[str, ...] = (chosen,)
    if chosen.endswith(".index.json"):
        files += _shards(found, chosen)
    elif chosen.endswith(".onnx"):
        files += tuple(_outside(found, chosen, found.files))
    copies = [n for n in found.files if n not in files and family.copies.fullmatch(n)]
    found.skip(copies, f"another copy of {chosen}")
    if "model" in family.stems:
        found.skip(_present(_EXPORTS, found.folders), f"another copy of {chosen}")
    beside = tuple(
        n for n in found.files
        if n.endswith(_LIKE_CONFIG) and not n.endswith((".index.json", ".weights.json"))
    )  # fmt: skip
    is_first = not any(group.called == "" for group in found.groups)
    paths = ("", chosen) if is_folder and is_first else (chosen,)
    found.add(Group(paths, kind, (*files, *beside), (), "" if is_first else None))


def _form(files: Mapping[str, None], family: _Family) -> str | None:
    for suffix in (".safetensors", ".bin", ".h5", ".msgpack", ".onnx"):
        for stem in family.stems:
            for name in (stem + suffix, f"{stem}{suffix}.index.json"):
                if name in files:
                    return name
    return None


def _kind_of(chosen: str, files: Sequence[str]) -> tuple[str, bool]:
    """Return which format a form is of, and whether the folder as a whole is read as just it."""
    of_safetensors = [n for n in files if n.endswith(".safetensors")]
    indices = [n for n in files if n.endswith(".safetensors.index.json")]
    if ".safetensors" in chosen:
        is_only = indices == [chosen] or (not indices and of_safetensors == [chosen])
        return "safetensors", is_only
    if ".bin" in chosen:
        others = [n for n in files if n.endswith((".bin.index.json", ".pt.index.json"))]
        has_others = of_safetensors or indices or [n for n in others if n != chosen]
        return "torch-sharded" if not has_others else "", not has_others
    kind = next((kind for stem, kind in _OF_FRAMEWORKS.items() if chosen.startswith(stem)), "")
    return kind, bool(kind) and not of_safetensors


def _export(found: Division, family: _Family) -> None:
    """Take ``onnx/model.onnx``, where a folder holds nothing better."""
    inside = found.listing.inside("onnx") if "onnx" in found.folders else ()
    if "model.onnx" not in inside:
        return
    path = "onnx/model.onnx"
    data = [f"onnx/{n}" for n in _outside(found, path, inside)]
    copies = [f"onnx/{n}" for n in inside if family.copies.fullmatch(n)]
    found.skip([n for n in copies if n != path and n not in data], f"another copy of {path}")
    beside = [n for n in found.files if n.endswith(_LIKE_CONFIG)]
    found.add(Group((path,), "onnx", (path, *data, *beside), (), ""))
    found.take((), ("onnx",))


# -- shards ---------------------------------------------------------------------------------------

_NUMBERED = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})(?P<suffix>\.\w+)")
_TORCH_SUFFIXES = (".bin", ".pt", ".pth")


def _indices(found: Division) -> None:
    """Take models whose index says in which files their tensors are."""
    for index in [n for n in found.files if n.endswith((".index.json", ".weights.json"))]:
        shards = _shards(found, index)
        if shards or _index_suffix(index) in (".safetensors", ".bin", ".pt", ".pth", ".h5"):
            found.add(Group((index,), "", (index, *shards)))


def _index_suffix(index: str) -> str:
    stem = index.removesuffix(".index.json")
    return "." + stem.rpartition(".")[2] if stem != index else ""


def _shards(found: Division, index: str) -> tuple[str, ...]:
    """Return the files of the folder that an index names, or, if it is damaged, might have."""
    named: set[str] = set()
    try:
        text = found.listing.read(index, _LARGEST_INDEX)
        value = jsontext.parse(text, where=index, limit=_LARGEST_INDEX)
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


def _number(found: Division) -> None:
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


def _checkpoints(found: Division) -> None:
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
        meta = _present((f"{stem}.meta",), found.files)
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
        meta = _present((f"{stem}.meta",), found.files)
        files = (*names, *meta)
        found.add(Group((names[0],), TENSORFLOW, files, (), stem, is_certain=False))
    head = found.listing.head(_STATE_FILE, 4096) if _STATE_FILE in found.files else b""
    if b"model_checkpoint_path" in head:
        found.take((_STATE_FILE,))


# -- ONNX -----------------------------------------------------------------------------------------

# StringStringEntryProto{key: "location", value: …} on the wire; a length of one or two bytes.
_LOCATION = re.compile(rb"\n\x08location\x12(?:([\x01-\x7f])|([\x80-\xff][\x01-\x0f]))")


# What tensors are never kept in: looking for their names in graphs would be in vain.
_NEVER_DATA = (
    ".onnx", ".json", ".txt", ".md", ".py", ".yaml", ".yml", ".h5", ".keras", ".pt", ".pth", ".pb",
)  # fmt: skip


def _external(found: Division) -> None:
    """Take ONNX models with the files that hold their tensors."""
    models = [n for n in found.files if n.lower().endswith(".onnx")]
    if models and all(n.lower().endswith(_NEVER_DATA) for n in found.files):
        return
    for model in models:
        data = _outside(found, model, [n for n in found.files if n != model])
        if data:
            found.add(Group((model,), "", (model, *data)))


def _outside(found: Division, model: str, beside: Iterable[str]) -> list[str]:
    """Return which of these names a model's tensors are in."""
    content = found.listing.read(model, _LARGEST_GRAPH)
    named = set()
    for match in _LOCATION.finditer(content):
        short, long = match[1], match[2]
        length = short[0] if short else (long[0] & 0x7F) | long[1] << 7
        named.add(content[match.end() : match.end() + length])
    return [n for n in beside if n.encode("utf-8", "surrogateescape") in named]


def _present(names: Iterable[str], there: Mapping[str, None]) -> tuple[str, ...]:
    return tuple(name for name in names if name in there)


# In this order: artifacts that are whole folders go before those recognised by parts of them.
RULES: tuple[Callable[[Division], None], ...] = (
    _mlflow,  # names what of it is the model, whatever else lies there
    _triton,  # its versions are models
    _portable,  # has files that look like those of Hugging Face
    _saved_model,  # its variables are a checkpoint
    _keras,  # its config.json would be Hugging Face's
    _find_distributed,
    _find_deepspeed,
    _find_megatron,
    _find_ranks,
    _components,  # its folders are models of Hugging Face's
    _hugging_face,  # before the indices, of which it has several for the same weights
    _indices,
    _number,  # what no index names
    _checkpoints,
    _external,
)
