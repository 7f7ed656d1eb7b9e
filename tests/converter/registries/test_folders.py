"""Local folders: what is an artifact, what belongs to one, and what is not one."""

import json
import os
import pickle
import shutil
import socket
import struct
from pathlib import Path

import numpy as np
import pytest
from repository import FIXTURES

import converter
from converter.registries import folders
from converter.registries.catalog import open_registry, stage
from converter.registries.entry import Entry, Skipped
from converter.registries.filters import Filters
from formats import catalog
from formats.artifact import Artifact
from formats.errors import ConvertError, SourceError, StorageError


def listed(
    reference: Path | str, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()
) -> tuple[dict[str, str], dict[str, str]]:
    """Return name → format of all entries, and path → reason of all that is none."""
    found = list(open_registry(str(reference), Filters(include, exclude)).find())
    root = Path(reference).absolute() if Path(reference).is_dir() else Path("/")
    entries = {e.name: e.format for e in found if isinstance(e, Entry)}
    skipped = {
        Path(s.source).relative_to(root).as_posix(): s.reason
        for s in found
        if isinstance(s, Skipped)
    }
    assert len(entries) + len(skipped) == len(found)
    return entries, skipped


def entry(reference: Path | str) -> Entry:
    (found,) = open_registry(str(reference), Filters()).find()
    assert isinstance(found, Entry)
    return found


def safetensors(path: Path, name: str = "w") -> Path:
    header = json.dumps({name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(header)) + header + np.ones(2, np.float32).tobytes())
    return path


def torch_file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(FIXTURES / "torch" / "torch2.4-state.pth", path)
    return path


def text(path: Path, content: str = "{}") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


# -- everything there is ---------------------------------------------------------------------------


def test_every_artifact_of_the_fixtures_is_found_once_and_can_be_opened() -> None:
    found = list(open_registry(str(FIXTURES), Filters()).find())
    entries = [e for e in found if isinstance(e, Entry)]
    assert len(entries) > 190
    assert len({e.source for e in entries}) == len(entries) == len({e.name for e in entries})
    assert not [e for e in entries if not e.format]
    assert {e.format for e in entries} == {f.id for f in catalog.FORMATS} - {"portable"}
    for one in entries[::5]:
        assert catalog.detect(Artifact(one.source)).format.id == one.format
        assert one.nbytes
        assert one.token


def test_what_is_found_first_is_told_before_the_rest_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(20):
        safetensors(tmp_path / f"{i:02}.safetensors")
    looked = []
    true = folders.probe_file
    monkeypatch.setattr(
        folders,
        "probe_file",
        lambda *given, **more: (looked.append(given), true(*given, **more))[1],
    )
    found = open_registry(str(tmp_path), Filters()).find()
    assert [next(found).source, len(looked)] == [str(tmp_path / "00.safetensors"), 1]


def test_finding_again_says_the_same_and_leaks_no_descriptor() -> None:
    registry = open_registry(str(FIXTURES / "torch"), Filters())
    before = len(list(Path("/proc/self/fd").iterdir()))
    first = list(registry.find())
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert list(registry.find()) == first


# -- several files that are one artifact -----------------------------------------------------------

# Folder of the fixtures, and what is found in it.
TOGETHER = [
    ("tensorflow/module_tf2", {"module_tf2": "savedmodel"}),
    ("tensorflow/text_savedmodel", {"text_savedmodel": "savedmodel"}),
    ("tensorflow/keras2_legacy_optimizer", {"keras2_legacy_optimizer": "savedmodel"}),
    ("tensorflow/vocabulary", {"vocabulary": "savedmodel"}),
    ("tf_state/sliced", {"sliced": "savedmodel"}),
    ("tensorflow/keras3_checkpoint", {"ckpt": "tf-checkpoint"}),
    ("tensorflow/v2_sharded", {"model.ckpt-1": "tf-checkpoint"}),
    ("tensorflow/v1_sharded", {"model.ckpt-1": "tf-checkpoint"}),
    ("tensorflow/v1_single", {"model.ckpt-1": "tf-checkpoint"}),
    ("tensorflow/manager_checkpoint", {"ckpt-1": "tf-checkpoint", "ckpt-2": "tf-checkpoint"}),
    ("keras/keras315_sequential_folder", {"keras315_sequential_folder": "keras"}),
    ("torch/torch2.13-dcp", {"torch2.13-dcp": "torch-dcp"}),
    ("deepspeed/zero3/global_step2", {"global_step2": "torch-deepspeed"}),
    ("megatron/torch/iter_0000003", {"iter_0000003": "torch-megatron"}),
    ("megatron/torch_dist", {"torch_dist": "torch-dcp"}),
    ("megatron/zarr", {"zarr": "torch-zarr"}),
    ("fsdp/mesh", {"mesh": "torch-ranks"}),
    ("torch/torch2.13-sharded", {"torch2.13-sharded": "torch-sharded"}),
    ("onnx/external_one", {"model.onnx": "onnx"}),
    ("onnx/external_many", {"model.onnx": "onnx"}),
]


@pytest.mark.parametrize(("folder", "expected"), TOGETHER)
def test_files_of_one_artifact_are_not_listed_alone(folder: str, expected: dict[str, str]) -> None:
    entries, skipped = listed(FIXTURES / folder)
    assert entries == expected
    assert not skipped


def test_a_change_of_any_file_changes_the_token(tmp_path: Path) -> None:
    for folder, _ in TOGETHER:
        copy = tmp_path / Path(folder).name
        shutil.copytree(FIXTURES / folder, copy)
        before = {e.name: e for e in open_registry(str(copy), Filters()).find()}
        tokens: list[object] = []
        files = [p for p in sorted(copy.rglob("*")) if p.is_file() and p.name != "checkpoint"]
        for file in files:
            os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
            after = {e.name: e for e in open_registry(str(copy), Filters()).find()}
            assert before != after, file
            tokens.append(after)
            before = after
        whole = sum(e.nbytes for e in before.values() if isinstance(e, Entry))
        assert whole == sum(f.stat().st_size for f in files)


def test_a_file_that_was_replaced_by_an_equal_one_has_another_token(tmp_path: Path) -> None:
    path = torch_file(tmp_path / "m.pt")
    before = entry(path)
    status = path.stat()
    torch_file(tmp_path / "new.pt").replace(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert entry(path).nbytes == before.nbytes
    assert entry(path).token != before.token


def test_a_graph_beside_its_checkpoint_is_no_artifact_of_its_own() -> None:
    entries, skipped = listed(FIXTURES / "tensorflow" / "joined")
    assert set(entries) == {"named", "objects", "other", "parts", "twins"}
    assert "checkpoint=" in skipped["graph.pb"]
    assert "checkpoint=" in skipped["graph.pbtxt"]


def test_a_frozen_graph_beside_a_checkpoint_is_one(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "tensorflow" / "v2_named", tmp_path, dirs_exist_ok=True)
    shutil.copyfile(FIXTURES / "tensorflow" / "frozen.pb", tmp_path / "frozen.pb")
    entries, _ = listed(tmp_path)
    assert entries == {"frozen.pb": "graphdef", "model.ckpt-1": "tf-checkpoint"}


def test_a_checkpoint_whose_name_another_file_has_is_opened_by_its_index(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "tensorflow" / "keras3_checkpoint", tmp_path, dirs_exist_ok=True)
    (tmp_path / "ckpt").mkdir()
    (one,) = [e for e in open_registry(str(tmp_path), Filters()).find() if isinstance(e, Entry)]
    assert (one.name, one.format) == ("ckpt", "tf-checkpoint")
    assert one.source.endswith("ckpt.index")


def test_keras_shards_belong_to_their_index(tmp_path: Path) -> None:
    for path in (FIXTURES / "keras").glob("keras315_sharded*"):
        shutil.copyfile(path, tmp_path / path.name)
    entries, skipped = listed(tmp_path)
    assert entries == {"keras315_sharded.weights.json": "keras-h5"}
    (tmp_path / "keras315_sharded.weights.json").write_text('{"weight_map": {')
    entries, skipped = listed(tmp_path)  # a damaged index has its shards all the same
    assert list(entries) == ["keras315_sharded.weights.json"]
    assert not skipped


def test_shards_belong_to_their_index_whatever_they_are_called(tmp_path: Path) -> None:
    safetensors(tmp_path / "odd-name.safetensors", "a")
    safetensors(tmp_path / "other.safetensors", "b")
    safetensors(tmp_path / "alone.safetensors", "c")
    shards = {"a": "odd-name.safetensors", "b": "other.safetensors"}
    text(tmp_path / "big.safetensors.index.json", json.dumps({"weight_map": shards}))
    entries, skipped = listed(tmp_path)
    assert entries == {
        "alone.safetensors": "safetensors",
        "big.safetensors.index.json": "safetensors",
    }
    assert not skipped


def test_numbered_shards_without_an_index_are_one_where_all_are_there(tmp_path: Path) -> None:
    for i in (1, 2):
        safetensors(tmp_path / "llm" / f"model-0000{i}-of-00002.safetensors", f"w{i}")
        torch_file(tmp_path / "old" / f"pytorch_model-0000{i}-of-00002.bin")
    entries, _ = listed(tmp_path)
    assert entries == {"llm": "safetensors", "old": "torch-sharded"}
    (tmp_path / "llm" / "model-00002-of-00002.safetensors").unlink()
    entries, _ = listed(tmp_path / "llm")
    assert entries == {"model-00001-of-00002.safetensors": "safetensors"}


# -- folders as Hugging Face lays them out ---------------------------------------------------------


def hugging_face(at: Path) -> Path:
    text(at / "config.json")
    text(at / "tokenizer.json")
    text(at / "vocab.txt", "a")
    text(at / "README.md", "# A model")
    return at


def test_the_best_form_is_taken_and_the_others_are_copies(tmp_path: Path) -> None:
    at = hugging_face(tmp_path / "bert")
    torch_file(at / "pytorch_model.bin")
    (at / "tf_model.h5").write_bytes((FIXTURES / "keras" / "keras2_nested.h5").read_bytes())
    text(at / "flax_model.msgpack", "x")
    for name in ("model.onnx", "model_quantized.onnx"):
        (at / "onnx").mkdir(exist_ok=True)
        shutil.copyfile(FIXTURES / "onnx" / "structures.onnx", at / "onnx" / name)
    torch_file(at / "optimizer.pt")
    torch_file(at / "training_args.bin")
    safetensors(at / "model.safetensors")
    entries, skipped = listed(tmp_path)
    assert entries == {"bert": "safetensors"}
    copy = "another copy of model.safetensors"
    assert skipped == {
        "bert/README.md": "no model",
        "bert/flax_model.msgpack": copy,
        "bert/onnx": copy,
        "bert/optimizer.pt": "training state beside a model",
        "bert/pytorch_model.bin": copy,
        "bert/tf_model.h5": copy,
        "bert/training_args.bin": "training state beside a model",
    }
    (at / "model.safetensors").unlink()
    entries, skipped = listed(tmp_path)
    assert entries == {"bert": "torch-sharded"}
    assert skipped["bert/tf_model.h5"] == "another copy of pytorch_model.bin"
    (at / "pytorch_model.bin").unlink()
    assert listed(tmp_path)[0] == {"bert": "hf-tensorflow"}
    (at / "tf_model.h5").unlink()
    assert listed(tmp_path)[0] == {"bert": "flax"}
    (at / "flax_model.msgpack").unlink()
    entries, skipped = listed(tmp_path)
    assert entries == {"bert": "onnx"}
    assert skipped["bert/onnx/model_quantized.onnx"] == "another copy of onnx/model.onnx"


def test_the_copy_that_was_asked_for_is_taken(tmp_path: Path) -> None:
    at = hugging_face(tmp_path / "bert")
    torch_file(at / "pytorch_model.bin")
    safetensors(at / "model.safetensors")
    assert listed(f"{tmp_path}/**/*.bin") == ({"bert/pytorch_model.bin": "torch"}, {})
    assert listed(f"{tmp_path}/**/*.safetensors") == ({"bert": "safetensors"}, {})
    assert listed(at / "pytorch_model.bin") == ({"pytorch_model.bin": "torch"}, {})


def test_a_folder_that_is_read_as_more_than_the_model_is_opened_by_its_file(tmp_path: Path) -> None:
    at = hugging_face(tmp_path / "bert")
    safetensors(at / "model.safetensors")
    sources = [e.source for e in open_registry(str(at), Filters()).find() if isinstance(e, Entry)]
    assert sources == [str(at)]
    safetensors(at / "lora.safetensors")
    found = {
        e.name: e.source for e in open_registry(str(at), Filters()).find() if isinstance(e, Entry)
    }
    assert found == {
        "bert": str(at / "model.safetensors"),
        "bert/lora.safetensors": str(at / "lora.safetensors"),
    }


def test_the_components_of_an_index_are_one_model(tmp_path: Path) -> None:
    pipeline, sentences = tmp_path / "pipeline", hugging_face(tmp_path / "sentences")
    for name in ("unet", "vae", "checkpoint-500"):
        hugging_face(pipeline / name)
        safetensors(pipeline / name / "diffusion_pytorch_model.safetensors")
    safetensors(pipeline / "v1-5-pruned.safetensors")
    index = {"_class_name": "Pipeline", "unet": ["diffusers", "U"], "vae": ["diffusers", "A"]}
    text(pipeline / "model_index.json", json.dumps(index))
    safetensors(sentences / "model.safetensors")
    torch_file(sentences / "pytorch_model.bin")
    hugging_face(sentences / "2_Dense")
    safetensors(sentences / "2_Dense/model.safetensors")
    modules = [{"path": path, "type": "sentence_transformers.X"} for path in ("", "2_Dense")]
    text(sentences / "modules.json", json.dumps(modules))
    assert listed(tmp_path)[0] == {
        "pipeline": "components", "pipeline/checkpoint-500": "safetensors",
        "pipeline/v1-5-pruned.safetensors": "safetensors", "sentences": "components",
    }  # fmt: skip
    text(sentences / "modules.json", "{")
    damaged = {"sentences": "safetensors", "sentences/2_Dense": "safetensors"}
    assert listed(sentences)[0] == damaged


def test_other_models_in_the_folder_are_other_models(tmp_path: Path) -> None:
    at = hugging_face(tmp_path / "hub")
    safetensors(at / "model.safetensors")
    for name in ("checkpoint-500", "2_Dense"):
        hugging_face(at / name)
        safetensors(at / name / "model.safetensors")
    text(at / "adapter_config.json")
    safetensors(at / "adapter_model.safetensors")
    entries, _ = listed(tmp_path)
    adapter = "hub/adapter_model.safetensors"
    assert set(entries) == {"hub", "hub/checkpoint-500", "hub/2_Dense", adapter}


def test_a_cache_of_the_hub_is_listed_by_its_snapshots(tmp_path: Path) -> None:
    at = tmp_path / "models--org--bert"
    safetensors(at / "blobs" / "abc")
    text(at / "blobs" / "def", "{}")
    snapshot = at / "snapshots" / "rev1"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to("../../blobs/abc")
    (snapshot / "config.json").symlink_to("../../blobs/def")
    text(at / "refs" / "main", "rev1")
    entries, skipped = listed(tmp_path)
    assert entries == {"models--org--bert/snapshots/rev1": "safetensors"}
    assert not skipped


# -- MLflow ----------------------------------------------------------------------------------------


def mlflow(at: Path, flavors: str = "pytorch: {model_data: data}") -> Path:
    torch_file(at / "data" / "model.pth")
    text(at / "MLmodel", f"flavors: {{{flavors}}}\nrun_id: r1\n")
    text(at / "conda.yaml", "")
    return at


def test_an_mlflow_folder_is_its_model(tmp_path: Path) -> None:
    at = mlflow(tmp_path / "runs" / "model")
    entries, skipped = listed(tmp_path)
    assert entries == {"runs/model": "torch"}
    assert not skipped
    staged = stage(str(at), tmp_path)
    assert staged.path == at / "data" / "model.pth"
    assert staged.facts["run_id"] == "r1"


def test_an_mlflow_folder_that_is_damaged_stays_and_fails(tmp_path: Path) -> None:
    at = mlflow(tmp_path / "m")
    (at / "data" / "model.pth").unlink()
    assert listed(tmp_path)[0] == {"m": ""}
    with pytest.raises(SourceError, match=r"data/model\.pth"):
        stage(str(at), tmp_path)
    (at / "MLmodel").write_bytes(bytes(100))
    assert listed(tmp_path)[0] == {"m": ""}
    with pytest.raises(SourceError):
        stage(str(at), tmp_path)


def test_an_mlflow_model_of_another_kind_is_no_artifact(tmp_path: Path) -> None:
    mlflow(tmp_path / "m", "sklearn: {pickled_model: model.pkl}")
    (reason,) = listed(tmp_path)[1].values()
    assert reason.startswith("an MLflow model of flavor sklearn. skl2onnx converts")


# -- what is no artifact, and what is a damaged one ------------------------------------------------

# Name, content, and the reason why it is none; None where it is an artifact that will fail.
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
PICKLE = pickle.dumps({"a": list(range(9))})
NOT_TAKEN = [
    ("README.md", b"# Model", "no model"),
    ("train.py", b"import torch\n", "no model"),
    ("config.json", b'{"a": 1}', "no model"),
    ("image.png", b"\x89PNG\r\n\x1a\n", "no model"),
    ("data.npz", b"PK\x05\x06" + bytes(18), "no model"),
    ("noise", bytes(range(256)), "no model"),
    ("empty", b"", "no model"),
    ("events.out.tfevents.1", b"\x18\0\0\0\0\0\0\0", "no model"),
    ("model.pth.gz", b"\x1f\x8b\x08\0", "packed: gzip data"),
    ("vocab.pkl", PICKLE, "a pickle without tensors"),
    ("weights.bin", bytes(range(256)), "no model"),
    ("data.zip", b"PK\x05\x06" + bytes(18), "no model"),
    ("app.ts", b"export const x = 1", "no model"),
    ("faiss.index", b"IxF2" + bytes(range(60)), "no model"),
    ("labels.pbtxt", b"item { id: 1 }", "no model"),
    ("input_0.pb", b"\x08\x02\x10\x01\x4a\x04abcd", "no model"),
    ("input_0.pb", bytes(64), "no model"),
    ("notes.meta", b"fileFormatVersion: 2", "no model"),
    ("model.h5", bytes(4096), None),
    ("model.h5", b"", None),
    ("model.keras", b"PK\x03\x04" + bytes(200), None),
    ("model.pt", b"PK\x03\x04" + bytes(200), None),
    ("model.pt", b"hello", None),
    ("model.onnx", b"", None),
    ("model.onnx", bytes(range(256)), None),
    ("model.safetensors", LFS, None),
    ("model.pkl", bytes(range(255, 0, -1)), None),
    ("model.ckpt", b"\xff" * 100, None),
    ("old.pth.tar", b"\xff" * 100, None),
    ("frozen_graph.pb", b"\xff" * 100, None),
    ("pytorch_model.bin", b"\xff" * 100, None),
    ("some.bin", LFS, None),
    ("some.bin", b"PK\x03\x04" + bytes(200), None),
    ("some.pb", b"", None),
    ("some.zip", bytes(100), None),
    ("ckpt.index", bytes(100), None),
    ("ckpt.data-00000-of-00001", bytes(range(100)), None),
    ("MODEL.H5", b"<!DOCTYPE html><html>404</html>", None),
]


@pytest.mark.parametrize(
    ("name", "content", "reason"), NOT_TAKEN, ids=[f"{i}-{n[0]}" for i, n in enumerate(NOT_TAKEN)]
)
def test_a_damaged_artifact_does_not_vanish(
    name: str, content: bytes, reason: str | None, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    entries, skipped = listed(tmp_path)
    if reason is not None:
        assert (entries, skipped) == ({}, {name: reason})
        return
    assert (entries, skipped) == ({name: ""}, {})
    with pytest.raises(ConvertError) as info:
        catalog.read(Artifact(tmp_path / name))
    assert info.value.exit_code == 3


def test_what_is_named_itself_is_an_artifact_whatever_it_is(tmp_path: Path) -> None:
    assert entry(text(tmp_path / "README.md")).format == ""


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("tensorflow/module_tf2", "saved_model.pb"),
        ("tensorflow/keras3_checkpoint", "ckpt.index"),
        ("keras/keras315_sequential_folder", "model.weights.h5"),
        ("torch/torch2.13-dcp", ".metadata"),
        ("torch/torch2.13-sharded", "pytorch_model.bin.index.json"),
        ("onnx/external_one", "model.onnx"),
    ],
)
@pytest.mark.parametrize("damage", ["zeros", "cut", "empty"])
def test_an_artifact_with_a_damaged_part_is_still_one(
    folder: str, name: str, damage: str, tmp_path: Path
) -> None:
    copy = tmp_path / "registry" / Path(folder).name
    shutil.copytree(FIXTURES / folder, copy)
    content = (copy / name).read_bytes()
    changed = {"zeros": bytes(len(content)), "cut": content[: len(content) // 2], "empty": b""}
    (copy / name).write_bytes(changed[damage])
    entries = [e for e in open_registry(str(copy.parent), Filters()).find() if isinstance(e, Entry)]
    codes = []
    for one in entries:
        try:
            bundle = catalog.read(Artifact(one.source))
            for tensor in bundle.weights.values():
                tensor.numpy()
            codes.append(0)
        except ConvertError as e:
            codes.append(e.exit_code)
    assert 3 in codes, (entries, codes)


@pytest.mark.parametrize("name", ["x.portable", "y.keras"])
def test_a_folder_whose_name_says_what_it_was_is_still_that(name: str, tmp_path: Path) -> None:
    safetensors(tmp_path / name / "model.safetensors")
    text(tmp_path / name / "config.json")
    (tmp_path / name / "model.onnx").write_bytes(b"")
    entries, _ = listed(tmp_path)
    assert name in entries


def test_a_bundle_of_ours_is_a_source(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    converter.convert(FIXTURES / "torch" / "torch2.4-state.pth", out=tmp_path / "r" / "a.portable")
    assert listed(tmp_path / "r") == ({"a.portable": "portable"}, {})


# -- names, links, and what cannot be read ---------------------------------------------------------


def test_hidden_folders_and_our_own_files_are_not_looked_into(tmp_path: Path) -> None:
    for folder in (".git", ".cache", "__pycache__", ".a.portable.convert-1-2", "__MACOSX"):
        torch_file(tmp_path / folder / "m.pt")
    for name in ("out.ledger.sqlite", "out.ledger.sqlite-wal", ".hidden.pt"):
        torch_file(tmp_path / name)
    torch_file(tmp_path / "m.pt")
    assert listed(tmp_path) == ({"m.pt": "torch"}, {})


def test_odd_names(tmp_path: Path) -> None:
    names = ["-o.pt", "a\nb.pt", "ü ö.pt", "x" * 240 + ".pt", "a*[b]?.pt", os.fsdecode(b"\xff.pt")]
    for name in names:
        torch_file(tmp_path / name)
    assert set(listed(tmp_path)[0]) == set(names)
    assert listed(tmp_path / "a*[b]?.pt") == ({"a*[b]?.pt": "torch"}, {})


def test_links_are_followed_once_and_never_in_circles(tmp_path: Path) -> None:
    at, outside = tmp_path / "registry", tmp_path / "outside"
    torch_file(at / "v1" / "m.pt")
    torch_file(outside / "o.pt")
    (outside / "again").symlink_to(outside)
    (outside / "back").symlink_to(at)
    (at / "latest").symlink_to("v1")
    (at / "v1" / "up").symlink_to("..")
    (at / "v1" / "same.pt").symlink_to("m.pt")
    (at / "v1" / "around").symlink_to(tmp_path)
    (at / "o1").symlink_to(outside)
    (at / "o2").symlink_to(outside)
    (at / "gone.pt").symlink_to("nowhere")
    (at / "self").symlink_to("self")
    (at / "file.pt").symlink_to(outside / "o.pt")
    entries, skipped = listed(at)
    assert set(entries) == {"v1/m.pt", "o1/o.pt", "file.pt"}
    again = "another name of what is listed already"
    assert skipped == {
        "latest": again,
        "v1/same.pt": again,
        "v1/up": "a link to a folder around it",
        "v1/around": "a link to a folder around it",
        "o1/back": "a link to a folder around it",
        "o1/again": "a link to a folder that is listed already",
        "o2": "a link to a folder that is listed already",
        "gone.pt": "a link to nothing",
        "self": "a link to nothing",
    }
    assert set(listed(at, include=("latest/m*",))[0]) == {"latest/m.pt"}


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pt")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s.pt"))
        reason = "no regular file"
        assert listed(tmp_path) == ({}, {"pipe.pt": reason, "s.pt": reason})


def test_what_cannot_be_listed_is_an_entry_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_file(tmp_path / "shut" / "m.pt")
    torch_file(tmp_path / "open" / "m.pt")
    true = os.scandir

    def scandir(path: str) -> object:
        if Path(path).name == "shut":
            raise PermissionError(13, "Permission denied", path)
        return true(path)

    monkeypatch.setattr(folders.os, "scandir", scandir)
    assert listed(tmp_path)[0] == {"open/m.pt": "torch", "shut": ""}
    with pytest.raises(StorageError, match="Permission denied"):
        listed(tmp_path / "shut")


def test_what_cannot_be_read_fails_as_a_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = torch_file(tmp_path / "m.pt")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("converter.registries.folders.os.open", refuse)
    with pytest.raises(StorageError, match="Permission denied"):
        stage(str(path), tmp_path)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        open_registry(str(tmp_path / "nothing"), Filters())
    assert stage(str(tmp_path / "gone.pt"), tmp_path).path == tmp_path / "gone.pt"


# -- filters and globs -----------------------------------------------------------------------------


@pytest.fixture
def team(tmp_path: Path) -> Path:
    for name in ("a.pt", "team/b.pt", "team/old/c.pt", "other/d.pth", "other/team/e.pt"):
        torch_file(tmp_path / name)
    text(tmp_path / "team" / "README.md")
    return tmp_path


FILTERED = [
    (("*.pt",), (), {"a.pt", "team/b.pt", "team/old/c.pt", "other/team/e.pt"}),
    (("team",), (), {"team/b.pt", "team/old/c.pt"}),
    (("team/",), (), {"team/b.pt", "team/old/c.pt"}),
    (("**/*.pth",), (), {"other/d.pth"}),
    (("**/a.pt",), (), {"a.pt"}),
    ((), ("team",), {"a.pt", "other/d.pth", "other/team/e.pt"}),
    ((), ("**/team",), {"a.pt", "other/d.pth"}),
    ((), ("*/old/*",), {"a.pt", "team/b.pt", "other/d.pth", "other/team/e.pt"}),
    (("team",), ("*/c.*",), {"team/b.pt"}),
    (("nothing",), (), set()),
]


@pytest.mark.parametrize(("include", "exclude", "expected"), FILTERED)
def test_filters(
    include: tuple[str, ...], exclude: tuple[str, ...], expected: set[str], team: Path
) -> None:
    assert set(listed(team, include, exclude)[0]) == expected


def test_an_excluded_folder_is_not_listed(team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    true = os.scandir
    monkeypatch.setattr(folders.os, "scandir", lambda path: (seen.append(path), true(path))[1])
    listed(team, (), ("team",))
    assert not [p for p in seen if Path(p) == team / "team"]
    apart = Filters(apart=(os.path.realpath(team / "other"),))
    found = {e.name for e in open_registry(str(team), apart).find() if isinstance(e, Entry)}
    assert found == {"a.pt", "team/b.pt", "team/old/c.pt"}


GLOBBED = [
    ("*.pt", {"a.pt"}),
    ("*/*.pt", {"team/b.pt"}),
    ("**/*.pt", {"a.pt", "team/b.pt", "team/old/c.pt", "other/team/e.pt"}),
    ("t*", {"team/b.pt", "team/old/c.pt"}),
    ("t*/old", {"team/old/c.pt"}),
    ("**/team", {"team/b.pt", "team/old/c.pt", "other/team/e.pt"}),
    ("team/**", {"b.pt", "old/c.pt"}),
    ("team/**/c.p?", {"old/c.pt"}),
    ("[ao]*/*.pth", {"other/d.pth"}),
]


@pytest.mark.parametrize(("glob", "expected"), GLOBBED)
def test_globs(glob: str, expected: set[str], team: Path) -> None:
    assert set(listed(f"{team}/{glob}")[0]) == expected


@pytest.mark.parametrize("glob", ["*.nothing", "nowhere/*.pt", "team/*/*/*"])
def test_a_glob_that_matches_nothing_is_an_error(glob: str, team: Path) -> None:
    with pytest.raises(SourceError, match="matches nothing"):
        listed(f"{team}/{glob}")


def test_a_glob_means_the_artifact_that_its_files_belong_to() -> None:
    entries, _ = listed(f"{FIXTURES}/tensorflow/*/*.pb", exclude=("vocabulary",))
    assert entries["module_tf2"] == "savedmodel"
    assert "vocabulary" not in entries
    assert {name for name in entries if "/" in name} == {"joined/graph.pb"}
    assert listed(f"{FIXTURES}/tensorflow/v2_*/*.index")[0] == {
        "v2_named/model.ckpt-1": "tf-checkpoint",
        "v2_sharded/model.ckpt-1": "tf-checkpoint",
    }


def test_a_single_artifact_is_called_as_it_is_and_has_its_folder_for_a_label(
    team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(team)
    registry = open_registry("team/old/c.pt", Filters())
    assert registry.label == "team/old"
    assert listed("team/old/c.pt")[0] == {"c.pt": "torch"}
    assert open_registry(f"{team}/team/old/c.pt", Filters()).label == "old"
    assert open_registry("a.pt", Filters()).label == ""
    assert open_registry("team/..", Filters()).label == team.name
    assert open_registry("team", Filters()).label == "team"
    shutil.copytree(FIXTURES / "tensorflow" / "module_tf2", team / "team" / "saved")
    assert open_registry("team/saved", Filters()).label == "team"
    assert listed("team/saved")[0] == {"saved": "savedmodel"}


@pytest.mark.parametrize(
    ("reference", "format"),
    [
        ("tensorflow/module_tf2/saved_model.pb", "savedmodel"),
        ("keras/keras315_sequential_folder/model.weights.h5", "keras"),
        ("torch/torch2.13-dcp/__0_0.distcp", "torch-dcp"),
    ],
)
def test_a_file_that_is_a_part_of_a_folder_stands_for_it(reference: str, format: str) -> None:
    folder = (FIXTURES / reference).parent
    (whole,) = open_registry(str(folder), Filters()).find()
    assert entry(FIXTURES / reference).source == entry(folder).source == str(folder)
    assert entry(FIXTURES / reference) == whole
    assert listed(FIXTURES / reference)[0] == {folder.name: format}
    assert open_registry(str(FIXTURES / reference), Filters()).label == folder.parent.name


@pytest.mark.parametrize(
    "reference",
    ["module_tf2/saved_model.pb", "keras3_checkpoint/ckpt", "v2_sharded/model.ckpt-1.index"],
)
def test_a_single_artifact_has_all_of_its_files(reference: str, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "tensorflow", tmp_path, dirs_exist_ok=True)
    before = entry(tmp_path / reference)
    largest = max(
        (p for p in (tmp_path / reference).parent.rglob("*.data-*") if p.is_file()),
        key=lambda p: p.stat().st_size,
    )
    os.utime(largest, ns=(0, 1))
    after = entry(tmp_path / reference)
    assert after.token != before.token
    assert after.nbytes is not None
    assert after.nbytes > largest.stat().st_size


def test_a_pipe_by_its_name_is_no_artifact_and_keeps_nobody_waiting(tmp_path):
    os.mkfifo(tmp_path / "x.h5")
    os.mkfifo(tmp_path / "checkpoint")
    (entry,) = open_registry(str(tmp_path / "x.h5"), Filters()).find()
    staged = stage(entry.source, tmp_path)
    with pytest.raises(SourceError, match="not a regular file"):
        Artifact(staged.path).head  # noqa: B018


OTHERS = [
    ("model.tflite", b"\x1c\0\0\0TFL3", "a TensorFlow Lite model. tf2onnx converts it"),
    ("llama.gguf", b"GGUF\3\0\0\0", "a GGUF file. llama.cpp runs it"),
    ("model.bin", b"GGUF\3\0\0\0", "a GGUF file. llama.cpp runs it"),
    ("trees.txt", b"tree\nversion=v4\n", "a LightGBM model. onnxmltools converts"),
    ("m.cbm", b"CBM1\0\0\0\0", "a CatBoost model. CatBoost itself exports ONNX"),
    ("m.xml", b'<?xml version="1.0"?><net name="n" version="11">', "an OpenVINO model. OpenVINO"),
    ("m.xml", b'<PMML version="4.4">', "a PMML model. "),
    ("m.pte", b"\x1c\0\0\0ET12", "an ExecuTorch program. ExecuTorch runs it"),
    ("m.plan", b"ptrt\0\0\0\0", "a TensorRT engine. It runs on one kind of GPU"),
]


@pytest.mark.parametrize(("name", "content", "reason"), OTHERS)
def test_models_of_other_libraries_are_named_with_their_tool(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    (tmp_path / name).write_bytes(content + bytes(9))
    (one,) = open_registry(str(tmp_path), Filters()).find()
    assert isinstance(one, Skipped)
    assert one.reason.startswith(reason)
    assert one.name == name, "a row of the reports"
