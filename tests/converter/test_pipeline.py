"""The spine end to end: what is written, what is refused, and that the same gives the same."""

import json
import os
import stat
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import converter
from converter.options import Options
from converter.pipeline import steps
from converter.write.catalog import find_target
from converter.write.output_path import default_output
from formats import portable
from formats.core import digests
from formats.core.storage import File, Span
from formats.errors import (
    CorruptError,
    SourceError,
    StorageError,
    UnsupportedError,
    UsageError,
    VerificationError,
)

RNG = np.random.default_rng(21)


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    arrays = {
        "a.w": RNG.standard_normal((40, 30)).astype("f4"),
        "a.b": RNG.integers(-9, 9, (3,)),
        "c": RNG.standard_normal((5,)).astype("f2"),
    }
    save_file(arrays, folder / "model.safetensors", metadata={"twin": "a.w", "note": "größe"})
    return folder / "model.safetensors"


def tree(folder):
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def test_a_portable_bundle_is_what_its_manifest_says(source, tmp_path):
    out = tmp_path / "m.portable"
    result = converter.convert(source, to="portable", out=out)
    manifest = json.loads((out / "manifest.json").read_text())
    jsonschema.validate(manifest, portable.schema())
    assert result.path == out
    weights = load_file(out / "model.safetensors")
    for entry in manifest["tensors"]:
        array = weights[entry.get("tied_to", entry["name"])]
        assert (array.dtype.name, list(array.shape)) == (entry["dtype"], entry["shape"])
        hasher = digests.new()
        hasher.update(array.tobytes())
        assert hasher.hexdigest() == entry["digest"]
    assert {e["name"]: e.get("tied_to") for e in manifest["tensors"]}["twin"] == "a.w"
    for resource in manifest["resources"]:
        file = File(out / resource["name"])
        assert (file.size, digests.of_span(Span.whole(file))) == (
            resource["size"],
            resource["digest"],
        )
    assert {r["name"] for r in manifest["resources"]} | {"manifest.json"} == set(tree(out))
    assert manifest["source"]["digest"]["value"] == digests.of_span(Span.whole(File(source)))
    assert manifest["verification"]["weights"]["status"] == "passed"
    assert manifest["verification"]["weights"]["tensors"] == 4


def test_the_bundle_reads_back_and_converts_on(source, tmp_path):
    converter.convert(source, out=tmp_path / "m.portable")
    bundle = converter.read(tmp_path / "m.portable")
    assert set(bundle.weights) == {"a.w", "a.b", "c", "twin"}
    converter.convert(tmp_path / "m.portable", to="safetensors", out=tmp_path / "n.safetensors")
    original, again = load_file(source), load_file(tmp_path / "n.safetensors")
    assert {n: a.tobytes() for n, a in original.items()} == {
        n: a.tobytes() for n, a in again.items()
    }


@pytest.mark.parametrize("target", ["portable", "safetensors"])
def test_same_input_same_bytes(source, tmp_path, target):
    outs = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        converter.convert(source, to=target, out=tmp_path / name / f"m.{target}")
        outs.append(tree(tmp_path / name))
    assert outs[0] == outs[1]


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_permissions_follow_the_umask(source, tmp_path, mask):
    old = os.umask(mask)
    try:
        converter.convert(source, out=tmp_path / "m.portable")
    finally:
        os.umask(old)
    modes = {p: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "m.portable").iterdir()}
    assert set(modes.values()) == {0o666 & ~mask}
    assert stat.S_IMODE((tmp_path / "m.portable").stat().st_mode) == 0o777 & ~mask


def test_an_existing_output_is_kept_without_force(source, tmp_path):
    out = tmp_path / "m.portable"
    converter.convert(source, out=out)
    before = tree(out)
    with pytest.raises(UsageError, match="overwrite=True"):
        converter.convert(source, out=out)
    assert tree(out) == before
    converter.convert(source, out=out, options=Options(overwrite=True))
    assert tree(out) == before


@pytest.mark.parametrize("place", ["itself", "inside", "around"])
def test_the_output_never_stands_in_its_source(source, tmp_path, place):
    folder = source.parent
    out = {"itself": folder, "inside": folder / "x.portable", "around": tmp_path}[place]
    with pytest.raises(UsageError):
        converter.convert(folder, out=out, options=Options(overwrite=True))
    assert source.exists()


def test_shards_become_a_folder(source, tmp_path):
    options = Options(max_shard_size=1000)
    out = tmp_path / "sharded"
    converter.convert(source, to="safetensors", out=out, options=options)
    assert (out / "model.safetensors.index.json").exists()
    assert set(converter.read(out).weights) == {"a.w", "a.b", "c", "twin"}
    with pytest.raises(UsageError, match="shards"):
        converter.convert(source, to="safetensors", out=tmp_path / "x.safetensors", options=options)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (Options(verify="cpu"), VerificationError),
        (Options(verify="device"), UsageError),
        (Options(require="device"), UsageError),
        (Options(verify="none", require="weights"), UsageError),
        (Options(verify="much"), UsageError),
        (Options(include=("everything",)), UsageError),
        (Options(strip_prefix="absent."), UsageError),
        (Options(format="pickles"), UsageError),
        (Options(max_shard_size=0), UsageError),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(source, tmp_path, options, error):
    with pytest.raises(error):
        converter.convert(source, out=tmp_path / "out", options=options)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in"]


def test_a_model_without_tensors_is_converted_but_never_called_verified(tmp_path):
    source = tmp_path / "empty.safetensors"
    save_file({}, source)
    converter.convert(source, out=tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    jsonschema.validate(manifest, portable.schema())
    assert manifest["verification"]["reached"] == "none"
    with pytest.raises(VerificationError):
        converter.convert(source, out=tmp_path / "o", options=Options(require="weights"))
    with pytest.raises(UnsupportedError):
        converter.convert(source, to="safetensors", out=tmp_path / "o")


def test_an_unknown_target(source, tmp_path):
    with pytest.raises(UsageError, match="portable"):
        converter.convert(source, to="gguf", out=tmp_path / "out")


def test_a_dry_run_writes_nothing(source, tmp_path):
    events = list(steps(source, tmp_path / "out", Options(), dry_run=True))
    assert events[-1].path is None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in"]


def test_a_source_that_changes_while_it_is_converted_is_an_error(source, tmp_path):
    road = steps(source, tmp_path / "out", Options())
    for event in road:
        if getattr(event, "name", "") == "written":
            break
    os.utime(source, ns=(1, 1))
    with pytest.raises(SourceError, match="changed"):
        list(road)
    assert not (tmp_path / "out").exists()


def test_a_writer_that_errs_is_caught(source, tmp_path, monkeypatch):
    """The comparison reads what was written; a wrong byte anywhere fails the conversion."""
    from formats.core import output

    honest = output.Output.flush

    def slip(self):
        count = honest(self)
        if self.position > count > 0:  # not the header
            last = os.pread(self._fd, 1, self.position - 1)
            os.pwrite(self._fd, bytes([last[0] ^ 1]), self.position - 1)
        return count

    monkeypatch.setattr(output.Output, "flush", slip)
    with pytest.raises(VerificationError, match="differs"):
        converter.convert(source, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_output_in_a_file_is_a_storage_error(source, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="is not a folder"):
        converter.convert(source, out=tmp_path / "file" / "deeper" / "out")


def test_missing_folders_of_an_output_are_made(source, tmp_path):
    out = tmp_path / "absent" / "too" / "out"
    assert converter.convert(source, out=out).path == out


def test_a_damaged_bundle_is_told(source, tmp_path):
    out = tmp_path / "m.portable"
    converter.convert(source, out=out)
    with (out / "model.safetensors").open("ab") as f:
        f.write(b"x")
    with pytest.raises(CorruptError, match="bytes"):
        converter.read(out)
    (out / "model.safetensors").unlink()
    with pytest.raises(SourceError):
        converter.read(out)


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        (lambda m: m.update(schema_version=2), UnsupportedError),
        (lambda m: m.pop("tensors"), CorruptError),
        (lambda m: m["tensors"][0].update(shape=[1]), CorruptError),
        (lambda m: m["tensors"][0].update(name="other"), CorruptError),
        (lambda m: m["resources"].append(3), CorruptError),
        (lambda m: m.update(source=None), CorruptError),
    ],
)
def test_a_manifest_that_lies(source, tmp_path, edit, error):
    out = tmp_path / "m.portable"
    converter.convert(source, out=out)
    manifest = json.loads((out / "manifest.json").read_text())
    edit(manifest)
    (out / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(error):
        converter.read(out, format="portable")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.h5", "model.portable"),
        ("model.weights.h5", "model.portable"),
        ("epoch=24-step=18750.ckpt", "epoch=24-step=18750.portable"),
        ("v1.2", "v1.2.portable"),
        ("checkpoint.pth.tar", "checkpoint.portable"),
        (".h5", ".h5.portable"),
        ("dir/saved_model", "saved_model.portable"),
    ],
)
def test_the_default_name(tmp_path, name, expected):
    assert str(default_output(tmp_path / name, find_target("portable"))) == expected


def test_files_of_torch_are_called_after_their_device() -> None:
    assert (
        str(default_output(Path("a/model.pt"), find_target("torch"), "cuda:1")) == "model.cuda-1.pt"
    )
    assert str(default_output(Path("a/model.pt2"), find_target("pt2"), "cpu")) == "model.cpu.pt2"
    assert (
        str(default_output(Path("a/saved"), find_target("savedmodel"), "GPU:0"))
        == "saved.savedmodel"
    )
