"""Checksums that sources record of their bytes: a damaged weight is named, for each target."""

import shutil
import zipfile
from pathlib import Path

import pytest
from repository import ROOT

import converter
from converter.cli.app import run
from formats.artifact import Artifact
from formats.core import checksums
from formats.core.storage import File, Span
from formats.errors import CorruptError

FIXTURES = ROOT / "fixtures"


def damage(path: Path, at: int) -> None:
    """Flip a bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def damage_member(path: Path, name: str) -> None:
    """Flip a bit near the end of a stored member of a zip archive, where its weights are."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(name)
        assert info.compress_type == zipfile.ZIP_STORED
    data = path.read_bytes()
    header = info.header_offset
    start = header + 30 + int.from_bytes(data[header + 26 : header + 28], "little")
    start += int.from_bytes(data[header + 28 : header + 30], "little")
    damage(path, start + info.file_size - 3)


def test_known_values(tmp_path):
    (tmp_path / "f").write_bytes(b"123456789")
    span = Span.whole(File(tmp_path / "f"))
    assert checksums.compute(span, "crc32") == 0xCBF43926
    assert checksums.crc32c(b"123456789") == 0xE3069283  # RFC 3720, B.4 has the polynomial
    assert checksums.compute(span, "crc32c") == checksums.mask(0xE3069283)


@pytest.fixture
def archives(tmp_path):
    """Copies of a torch archive and a Keras file, with a member that holds weights."""
    torch, keras = tmp_path / "m.pt", tmp_path / "m.keras"
    shutil.copy(FIXTURES / "verify_torch/heads.ckpt", torch)
    shutil.copy(FIXTURES / "verify/pairs.keras", keras)
    with zipfile.ZipFile(torch) as archive:
        data = max((i for i in archive.infolist() if "/data/" in i.filename), key=size)
    return {torch: data.filename, keras: "model.weights.h5"}


def size(info):
    return info.file_size


@pytest.mark.parametrize("target", ["portable", "safetensors", "torch", "keras", "onnx"])
def test_a_damaged_member_is_named_and_nothing_is_written(archives, tmp_path, target, capsys):
    for source, member in archives.items():
        if (source.suffix, target) in ((".pt", "keras"), (".pt", "onnx")):
            continue
        out = tmp_path / f"out-{source.suffix}-{target}"
        command = ["SOURCE", str(source), "--to", target, "-o", str(out), "--verify", "none"]
        command += ["--device", "cpu"] if target == "torch" else []
        assert run(command) == 0
        shutil.rmtree(out) if out.is_dir() else out.unlink()
        damage_member(source, member)
        assert run(command) == 3
        said = capsys.readouterr().err
        assert member in said
        assert "damaged" in said
        assert not out.exists()


def test_a_damaged_variable_of_a_savedmodel_is_named(tmp_path):
    source = tmp_path / "model"
    shutil.copytree(FIXTURES / "verify_tensorflow/heads", source)
    (shard,) = source.glob("variables/*.data-*")
    damage(shard, 3)
    with pytest.raises(CorruptError, match="is damaged: its crc32c is"):
        converter.convert(source, to="portable", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_archive_without_checksums_is_read(tmp_path):
    """torch.serialization.set_crc32_options(False) writes zeros."""
    path = tmp_path / "m.pt"
    shutil.copy(FIXTURES / "verify_torch/heads.ckpt", path)
    data = bytearray(path.read_bytes())
    at = 0
    while (at := data.find(b"PK\x01\x02", at)) >= 0:
        data[at + 16 : at + 20] = bytes(4)
        at += 4
    path.write_bytes(data)
    artifact = Artifact(path)
    assert converter.read(path).weights
    assert artifact.check_checksums() == 0
    converter.convert(path, to="safetensors", out=tmp_path / "out.safetensors")
