"""Folders that are one artifact: of MLflow, Triton, TensorFlow, Keras, and of torch's ranks."""

from converter.registries import mlmodel
from converter.registries.grouping.division import (
    LARGEST_INDEX,
    MLFLOW,
    TRAINING,
    Division,
    Group,
    present,
)
from converter.registries.grouping.file_sets import list_shards
from formats import portable
from formats.core.storage import Buffer, Span
from formats.errors import ConvertError
from formats.onnx import triton
from formats.tensorflow import savedmodel
from formats.torch.megatron import RANK_FOLDER
from formats.torch.megatron_dist import COMMON, CONFIG
from formats.torch.rank_files import RANK as RANK_FILE
from formats.torch.rank_files import group_files, has_parts
from formats.torch.training_groups import OPTIMIZER_KEY

_RANK_HEAD = 1 << 20  # bytes in which a file of a rank names the classes of its tensors


def find_mlflow(found: Division) -> None:
    """Take a model of MLflow, whatever else lies in its folder."""
    if mlmodel.FILE in found.files:
        found.add(_whole(found, MLFLOW))


def find_portable(found: Division) -> None:
    """Take a bundle of convert's own."""
    name = portable.MANIFEST
    head = found.listing.head(name, 200) if name in found.files else b""
    is_ours = f'"{portable.SCHEMA}"'.encode() in head
    if not is_ours and found.listing.label.endswith(".portable"):  # one that lost its manifest
        is_ours = "model.safetensors" in found.files or "model.onnx" in found.files
    if is_ours:
        found.add(_whole(found, "portable"))


def find_triton(found: Division) -> None:
    """Take the version of a model that Triton serves, with its configuration."""
    name = triton.CONFIGURATION
    if name not in found.files:
        return
    content = Span.whole(Buffer(found.listing.read(name, LARGEST_INDEX), name))
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


def find_saved_model(found: Division) -> None:
    """Take a SavedModel with its variables and assets."""
    graphs = present(_SAVED, found.files)
    if graphs:
        files = graphs + present(_BESIDE_SAVED, found.files)
        folders = present(_BELOW_SAVED, found.folders)
        found.add(Group(("", graphs[0]), "savedmodel", files, folders))


_KERAS_WEIGHTS = ("model.weights.h5", "model.weights.npz", "model.weights.json")


def find_keras(found: Division) -> None:
    """Take the unpacked folder of a ``.keras`` file."""
    weights = present(_KERAS_WEIGHTS, found.files)
    texts = present(("config.json", "metadata.json"), found.files)
    is_named = found.listing.label.endswith(".keras")
    if (weights and "config.json" in texts) or (is_named and (weights or texts)):
        if "model.weights.json" in weights:
            weights += list_shards(found, "model.weights.json")
        found.add(Group(("",), "keras", weights + texts, present(("assets",), found.folders)))


def find_distributed(found: Division) -> None:
    """Take a distributed checkpoint of torch, or skip one of an optimizer."""
    shards = tuple(name for name in found.files if name.endswith(".distcp"))
    if shards and found.listing.label.startswith("optimizer"):
        found.skip((*shards, ".metadata"), TRAINING)
        found.skipped.pop(".metadata", None)
    elif shards:
        beside = (".metadata", "meta.pt", *((COMMON, CONFIG) if COMMON in found.files else ()))
        found.add(Group(("",), "torch-dcp", (*present(beside, found.files), *shards)))
    found.take((".metadata",))


def find_deepspeed(found: Division) -> None:
    """Take a checkpoint of DeepSpeed, with the states of its ranks."""
    models = tuple(name for name in found.files if name.endswith("model_states.pt"))
    states = tuple(name for name in found.files if name.endswith("optim_states.pt"))
    if models:
        found.add(Group(("",), "torch-deepspeed", (*models, *states)))


def find_megatron(found: Division) -> None:
    """Take a checkpoint of Megatron: the folders of its ranks, or its arrays of Zarr."""
    ranks = tuple(name for name in found.folders if RANK_FOLDER.fullmatch(name))
    if ranks and any(name.endswith((".pt", ".ckpt")) for name in found.listing.inside(ranks[0])):
        found.add(Group(("",), "torch-megatron", (), ranks))
    if CONFIG in found.files and b'"zarr"' in found.listing.head(CONFIG, 1000):
        files = present((CONFIG, COMMON), found.files)
        found.add(Group(("",), "torch-zarr", files, tuple(found.folders)))


def find_ranks(found: Division) -> None:
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
