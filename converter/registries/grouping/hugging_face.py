"""Folders as Hugging Face lays them out: copies of the same weights, and their configurations."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from converter.registries.grouping.division import (
    LARGEST_INDEX,
    TRAINING,
    Division,
    Group,
    present,
)
from converter.registries.grouping.file_sets import list_external_data, list_shards
from formats import components
from formats.containers import jsontext
from formats.errors import ConvertError

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


def find_components(found: Division) -> None:
    """Group a pipeline, or the modules of a model of sentences, with the folders of its index."""
    for index in present(tuple(components.KINDS), found.files):
        try:
            text = found.listing.read(index, LARGEST_INDEX)
            content = jsontext.parse(text, where=index, limit=LARGEST_INDEX)
        except ConvertError:
            continue
        named = components.list_components(content)
        folders = {path.partition("/")[0] for path in named} - {""}
        inside = present(sorted(folders), found.folders)
        if not inside:
            continue
        own = [n for n in found.files if n.endswith((*_LIKE_CONFIG, ".md"))]
        if "" in named:  # the root folder is a component, too
            own += [n for n in found.files if _FAMILIES[0].copies.fullmatch(n) and n not in own]
            found.skip(present(_EXPORTS, found.folders), "another copy of the model")
        found.add(Group(("",), components.FORMAT, tuple(own), inside))


def find_hugging_face(found: Division) -> None:
    """Take the best form of each family of weights, and skip training state beside them."""
    before = len(found.groups)
    for family in _FAMILIES:
        _best(found, family)
    trainers = ("trainer_state.json", "random_states_0.pkl")  # of transformers, of accelerate
    if len(found.groups) > before or present(trainers, found.files):
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
        files += list_shards(found, chosen)
    elif chosen.endswith(".onnx"):
        files += tuple(list_external_data(found, chosen, found.files))
    copies = [n for n in found.files if n not in files and family.copies.fullmatch(n)]
    found.skip(copies, f"another copy of {chosen}")
    if "model" in family.stems:
        found.skip(present(_EXPORTS, found.folders), f"another copy of {chosen}")
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
    data = [f"onnx/{n}" for n in list_external_data(found, path, inside)]
    copies = [f"onnx/{n}" for n in inside if family.copies.fullmatch(n)]
    found.skip([n for n in copies if n != path and n not in data], f"another copy of {path}")
    beside = [n for n in found.files if n.endswith(_LIKE_CONFIG)]
    found.add(Group((path,), "onnx", (path, *data, *beside), (), ""))
    found.take((), ("onnx",))
