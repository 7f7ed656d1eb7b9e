"""Models are listed without their weights: what they are, and whether they load here."""

import shutil

import pytest
from repository import FIXTURES

import converter
from converter import listing
from converter.doctor.host import Host, Package
from formats.core.weights import Tensor
from formats.errors import SourceError

KERAS = FIXTURES / "keras" / "keras2_sequential.h5"


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch = Package("torch", "2.13.0")
    monkeypatch.setattr(listing, "_host", lambda: Host(packages={"torch": (torch,)}))
    (tmp_path / "m").mkdir()
    shutil.copy(KERAS, "m/k.h5")
    shutil.copy(FIXTURES / "demo" / "checkpoint.pt", "m/c.pt")
    (tmp_path / "m" / "damaged.pt").write_bytes(b"PK\x03\x04" + b"x" * 100)
    (tmp_path / "m" / "README.md").write_text("words")
    return tmp_path / "m"


def test_a_folder_is_listed_without_reading_a_weight(models, monkeypatch):
    monkeypatch.setattr(Tensor, "pieces", property(lambda _: pytest.fail("a weight is read")))
    damaged, keras, torch = sorted(listing.list_models(["m"]), key=lambda one: one.format)
    assert (keras.source, keras.format, keras.framework) == ("m/k.h5", "keras-h5", "keras")
    assert (keras.version, keras.tensors, keras.bytes) == ("2.2.4", 11, KERAS.stat().st_size)
    assert (keras.loads, keras.why) == ("no", "keras is not installed")
    assert keras.findings == ("lambda-bytecode: layer 'plus'",)
    assert (torch.format, torch.devices) == ("torch", {"cuda:1": 35})
    assert (torch.loads, torch.why) == ("no", "device absent")
    assert (damaged.format, damaged.exit_code) == ("", 3)
    assert damaged.error.startswith("m/damaged.pt: ")


def test_a_file_and_an_absent_one(models):
    (only,) = listing.list_models([models / "c.pt"])
    assert only.plain()["devices"] == {"cuda:1": 35}
    with pytest.raises(SourceError):
        list(listing.list_models(["absent"]))


def test_a_folder_with_one_model_is_that_model(models):
    (models / "c.pt").rename(models / "c.bin.old")  # else the folder is one of a torch file
    with pytest.raises(SourceError, match=r"several models: c\.bin\.old, damaged\.pt, k\.h5"):
        converter.inspect(models)
    (models / "k.h5").rename(models.parent / "k.h5")
    (models / "damaged.pt").unlink()
    (models / "deeper").mkdir()
    (models / "c.bin.old").rename(models / "deeper" / "c.pt")
    found = converter.inspect("m")
    assert (found.source, found.format) == ("m/deeper/c.pt", "torch")


def test_standard_input_is_refused(models):
    with pytest.raises(converter.UsageError, match="standard input"):
        converter.read("-")
