"""Artifacts behind URLs are those of a folder with the same files, and are fetched whole."""

import errno
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from repository import FIXTURES
from safetensors.numpy import save, save_file
from stored_files import opened

from converter.registries import folders, sparse_copies, urls
from converter.registries.catalog import open_registry, stage
from converter.registries.entry import Entry, Skipped
from converter.registries.filters import Filters
from formats import catalog
from formats.artifact import Artifact
from formats.errors import SourceError, StorageError, UnsupportedError, UsageError

H5 = FIXTURES / "keras/keras315_functional.h5"


@pytest.fixture
def files(monkeypatch):
    with opened(monkeypatch) as files:
        yield files


def found(url, **filters):
    return list(open_registry(url, Filters(**filters)).find())


def facts(one, top):
    """Return what must be the same, wherever the files are."""
    at = one.source.removeprefix(f"{top}/")
    if isinstance(one, Skipped):
        return at, one.reason
    return at, one.name, one.nbytes, one.format, one.evidence.replace(f"{top}/", "")


@pytest.mark.parametrize("folder", ["keras", "torch", "tensorflow", "onnx"])
def test_the_same_is_found_as_in_a_local_folder(files, folder, monkeypatch):
    top = FIXTURES / folder
    monkeypatch.setattr(sparse_copies, "WHOLE_BYTES", 2 * sparse_copies.EDGE_BYTES)
    files.load(top, f"b/{folder}")
    local = folders.open_registry(str(top), Filters()).find()
    there = [facts(one, f"s3://b/{folder}") for one in found(f"s3://b/{folder}")]
    assert there == [facts(one, str(top)) for one in local]
    assert any(len(one) > 2 for one in there)


def test_large_files_are_looked_at_by_their_ends(files, tmp_path):
    big = np.arange(3_000_000, dtype="float32")
    save_file({"w": big}, tmp_path / "m.safetensors")
    np.savez(tmp_path / "no.npz", big)
    tensors = {f"layer{i}.weight": big[:3000] for i in range(2500)}
    save_file(tensors, tmp_path / "many.safetensors")
    import zipfile

    with zipfile.ZipFile(tmp_path / "big.pt", "w") as archive:  # its directory is no tail's
        archive.writestr("a/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("a/version", "3")
        for i in range(4000):
            archive.writestr(f"a/data/{i}", bytes(64))
    files.load(tmp_path, "b/m")
    local = folders.open_registry(str(tmp_path), Filters()).find()
    there = found("s3://b/m")
    assert [facts(x, "s3://b/m") for x in there] == [facts(x, str(tmp_path)) for x in local]
    assert {x.format for x in there if isinstance(x, Entry)} == {"safetensors", "torch"}
    assert files.read_bytes < 3_000_000 < big.nbytes


def test_a_file_a_folder_and_a_glob(files):
    files.load(FIXTURES / "keras", "b/keras")
    (one,) = found("s3://b/keras/keras315_functional.h5")
    assert (one.source, one.name) == (
        "s3://b/keras/keras315_functional.h5",
        "keras315_functional.h5",
    )
    for glob in ("*.h5", "keras315_f*", "*sharded*0001*", "**/keras3*.keras", "*.none"):
        local = folders.open_registry(f"{FIXTURES}/keras/{glob}", Filters())
        try:
            expected = [facts(x, f"{FIXTURES}/keras") for x in local.find()]
        except SourceError:
            with pytest.raises(SourceError, match="matches nothing") as e:
                found(f"s3://b/keras/{glob}")
            assert e.value.where == f"s3://b/keras/{glob}"
        else:
            assert [facts(x, "s3://b/keras") for x in found(f"s3://b/keras/{glob}")] == expected
    (same,) = found("s3://b/*/keras315_functional.h5")
    assert same.source == one.source
    assert same.token == one.token
    with pytest.raises(SourceError, match=r"^s3://b/none: nothing is there$"):
        found("s3://b/none")


def test_a_name_with_the_marks_of_a_glob_is_a_name(files):
    files["b/m[1]*.h5"] = H5.read_bytes()
    files["b/m1x.h5"] = H5.read_bytes()
    (one,) = found("s3://b/m[1]*.h5")
    assert one.source == "s3://b/m[1]*.h5"


def test_names_that_no_file_can_have_are_named(files):
    data = H5.read_bytes()
    for name in ("a.h5", "x//y.h5", "x/../y.h5", f"{'l' * 300}.h5", "a.h5/inside.h5", "ü ö\n.h5"):
        files[f"b/m/{name}"] = data
    entries = {x.name for x in found("s3://b/m") if isinstance(x, Entry)}
    skipped = {x.source: x.reason for x in found("s3://b/m") if isinstance(x, Skipped)}
    assert entries == {"a.h5", "ü ö\n.h5"}
    assert len(skipped) == 4
    assert set(skipped.values()) == {"a name that no file can have"}
    with pytest.raises(UnsupportedError):
        stage(f"s3://b/m/{'l' * 300}.h5", Path("/nonexistent"))


def test_a_token_changes_with_the_state_and_only_so(files, monkeypatch):
    files["b/m/a.h5"] = H5.read_bytes()
    ((before,), (again,)) = found("s3://b/m"), found("s3://b/m")
    assert before == again
    assert before.token
    files["b/m/a.h5"] = H5.read_bytes()
    (after,) = found("s3://b/m")
    assert after.token != before.token
    monkeypatch.setattr(files, "_info", lambda p: {"size": len(files[p]), "type": "file"})
    (unknown,) = found("s3://b/m")
    assert unknown.token == ""


def test_a_token_is_of_all_files_of_an_artifact_and_of_no_other(files):
    top = next(p.parent for p in sorted((FIXTURES / "tensorflow").rglob("saved_model.pb")))
    files.load(top, "b/m/saved")
    files["b/m/a.safetensors"] = save({"w": np.ones(3, "float32")})
    files["b/m/model.safetensors.index.json"] = b'{"weight_map": {"w": "a.safetensors"}}'
    files["b/m/other.h5"] = H5.read_bytes()

    def tokens():
        return {x.name: x.token for x in found("s3://b/m") if isinstance(x, Entry)}

    before = tokens()
    assert len(before) == 3
    for name in ("a.safetensors", "saved/saved_model.pb"):
        files[f"b/m/{name}"] = files[f"b/m/{name}"]
        after = tokens()
        (changed,) = (n for n in before if before[n] != after[n])
        assert changed == ("m/saved" if name.startswith("saved") else "m")
        before = after


def test_passwords_are_no_part_of_a_batch(files):
    with pytest.raises(UsageError) as e:
        found("sftp://me:SECRET@host/m")
    assert "SECRET" not in str(e.value)


def fetched(url, tmp_path):
    staged = stage(url, tmp_path)
    return staged.path, {
        p.relative_to(tmp_path / "source").as_posix()
        for p in (tmp_path / "source").rglob("*")
        if p.is_file()
    }


def test_a_file_is_fetched_alone(files, tmp_path):
    files.load(FIXTURES / "keras", "b/keras")
    path, names = fetched("s3://b/keras/keras315_functional.h5", tmp_path)
    assert path.read_bytes() == H5.read_bytes()
    assert names == {"keras315_functional.h5"}


def test_a_folder_is_fetched_whole(files, tmp_path):
    top = next(p.parent for p in sorted((FIXTURES / "tensorflow").rglob("saved_model.pb")))
    files.load(top, "b/saved")
    files["b/other"] = b"1"
    path, names = fetched("s3://b/saved", tmp_path)
    assert path.name == "saved"
    assert {n.removeprefix("saved/") for n in names} == {
        p.relative_to(top).as_posix() for p in top.rglob("*") if p.is_file()
    }
    assert catalog.detect(Artifact(path)).format.id == "savedmodel"


def test_a_model_of_a_triton_repository_is_one_artifact(files, tmp_path, monkeypatch):
    monkeypatch.setattr(urls, "SMALL_BYTES", 0)
    graph = (FIXTURES / "onnx/dtypes.onnx").read_bytes()
    for version in (2, 10):
        files[f"b/repository/classifier/{version}/model.onnx"] = graph
    files["b/repository/classifier/config.pbtxt"] = b'backend: "onnxruntime"'
    one, other = found("s3://b/repository")
    assert (one.source, one.format) == ("s3://b/repository/classifier", "onnx")
    assert other.reason == "another version of a model, of which Triton serves 10"
    path, names = fetched(one.source, tmp_path)
    assert names == {"classifier/config.pbtxt", "classifier/10/model.onnx"}
    assert (path / "10/model.onnx").read_bytes() == graph


def test_of_a_folder_with_the_same_model_twice_one_is_fetched(files, tmp_path, monkeypatch):
    monkeypatch.setattr(urls, "SMALL_BYTES", 0)
    for i in (1, 2):
        part = {f"w{i}": np.full(100_000, i, "float32")}
        save_file(part, tmp_path / f"model-0000{i}-of-00002.safetensors")
    index = {"weight_map": {f"w{i}": f"model-0000{i}-of-00002.safetensors" for i in (1, 2)}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "config.json").write_text("{}")
    files.load(tmp_path, "b/hub")
    files["b/hub/pytorch_model.bin"] = bytes(400_000)
    files["b/hub/tf_model.h5"] = bytes(400_000)
    files["b/hub/onnx/model.onnx"] = bytes(400_000)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    path, names = fetched("s3://b/hub", scratch)
    assert names == {
        "hub/config.json",
        "hub/model.safetensors.index.json",
        "hub/model-00001-of-00002.safetensors",
        "hub/model-00002-of-00002.safetensors",
    }
    assert len(catalog.read(Artifact(path)).weights) == 2


def test_a_file_that_names_others_brings_them(files, tmp_path):
    save_file({"w": np.ones(3, "float32")}, tmp_path / "a.safetensors")
    index = {"weight_map": {"w": "a.safetensors"}}
    (tmp_path / "m.safetensors.index.json").write_text(json.dumps(index))
    files.load(tmp_path, "b/m")
    files["b/m/other.safetensors"] = b"1"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    path, names = fetched("s3://b/m/m.safetensors.index.json", scratch)
    assert names == {"m.safetensors.index.json", "a.safetensors"}
    assert [*catalog.read(Artifact(path)).weights] == ["w"]


def test_external_data_of_onnx_comes_too(files, tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx import helper, numpy_helper

    weights = [numpy_helper.from_array(np.ones((8, 8), "float32"), f"w{i}") for i in range(3)]
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 8])
    steps = [("x", "a"), ("a", "b"), ("b", "y")]
    nodes = [helper.make_node("MatMul", [i, f"w{n}"], [o]) for n, (i, o) in enumerate(steps)]
    out = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 8])
    model = helper.make_model(helper.make_graph(nodes, "g", [value], [out], weights))
    onnx.save(
        model,
        str(tmp_path / "m.onnx"),
        save_as_external_data=True,
        all_tensors_to_one_file=False,
        size_threshold=0,
    )
    files.load(tmp_path, "b/m")
    files["b/m/w9"] = b"1"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    _, names = fetched("s3://b/m/m.onnx", scratch)
    assert names == {"m.onnx", "w0", "w1", "w2"}


def test_a_name_that_leads_out_of_the_folder_is_not_followed(files, tmp_path):
    index = {"weight_map": {"w": "../secret"}}
    files["b/m/m.safetensors.index.json"] = json.dumps(index).encode()
    files["b/secret"] = b"1"
    _, names = fetched("s3://b/m/m.safetensors.index.json", tmp_path)
    assert names == {"m.safetensors.index.json"}
    assert ("get", "b/secret") not in files.calls


@pytest.mark.parametrize("suffix", ["", ".index"])
def test_a_checkpoint_by_its_prefix_or_its_index(files, tmp_path, suffix):
    index = next(
        p
        for p in sorted((FIXTURES / "tensorflow").rglob("*.index"))
        if list(p.parent.glob(f"{p.stem}.data-*"))
    )
    files.load(index.parent, "b/c")
    stem = index.stem
    path, names = fetched(f"s3://b/c/{stem}{suffix}", tmp_path)
    beside = {p.name for p in index.parent.glob(f"{stem}.data-*")} | {f"{stem}.index"}
    assert beside <= names
    assert all(n.startswith(f"{stem}.") for n in names)
    assert catalog.read(Artifact(path)).weights
    (one,) = [x for x in found(f"s3://b/c/{stem}{suffix}") if isinstance(x, Entry)]
    assert one.format == "tf-checkpoint"


def test_a_source_that_changes_while_it_is_fetched_is_no_mixture(files, tmp_path, monkeypatch):
    files["b/m.h5"] = H5.read_bytes()
    get = files.get_file

    def changing(path, local, **more):
        get(path, local)
        files[path] = files[path]

    monkeypatch.setattr(files, "get_file", changing)
    with pytest.raises(SourceError, match=r"^s3://b/m.h5: changed while it was fetched"):
        stage("s3://b/m.h5", tmp_path)


def test_a_source_that_is_gone(files, tmp_path):
    with pytest.raises(SourceError, match=r"^s3://b/m.h5: is not there$"):
        stage("s3://b/m.h5", tmp_path)


def test_no_message_names_a_temporary_file(files):
    files["b/m/cut.h5"] = b"<html>"
    files["b/m/cut.keras"] = b"PK\x03\x04"
    said = [getattr(x, "evidence", getattr(x, "reason", "")) for x in found("s3://b/m")]
    assert len(said) == 2
    assert all(text.startswith("s3://b/m/cut.") for text in said)


def test_a_full_disk_is_said(files, tmp_path, monkeypatch):
    files["b/m/a.h5"] = H5.read_bytes()
    full = OSError(errno.ENOSPC, "No space left on device")

    def fails(*_, **__):
        raise full

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", fails)
        with pytest.raises(StorageError, match="Free some space"):
            list(sparse_copies.create_stand_ins(files.store("s3://b/m").find(), tmp_path / "x"))
        with pytest.raises(StorageError, match="Free some space"):
            stage("s3://b/m/a.h5", tmp_path)


def test_a_store_that_fails_is_no_damaged_source(files, tmp_path):
    shutil.copytree(FIXTURES / "keras", tmp_path / "keras")
    index = {"weight_map": {"w": "a.safetensors"}}
    files["b/m.safetensors.index.json"] = json.dumps(index).encode()
    files["b/a.safetensors"] = b"1"
    files.faults = [("get", "a.safetensors", PermissionError("Forbidden"))]
    with pytest.raises(StorageError, match="access denied"):
        stage("s3://b/m.safetensors.index.json", tmp_path)


def test_nothing_temporary_is_left(files, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files["b/m/a.h5"] = H5.read_bytes()
    for _ in open_registry("s3://b/m", Filters()).find():
        break  # not to its end
    found("s3://b/m")
    import gc

    gc.collect()
    assert not list(tmp_path.iterdir())
