"""`diagnose`: the library's face of the doctor."""

import json
import zipfile
from dataclasses import FrozenInstanceError

import pytest
from hosts import H100, TORCH, TORCH_CUDA, host, nvidia
from repository import FIXTURES

from converter.doctor import diagnosis
from converter.doctor.diagnosis import diagnose, examine
from converter.doctor.source import read_source
from formats.errors import SourceError

CHECKPOINT = FIXTURES / "torch" / "torch2.13-zip.pth"
TAGGED = FIXTURES / "torch" / "torch2.13-ancient.pth"  # on cuda:0
KERAS = FIXTURES / "keras" / "keras315_functional.keras"


@pytest.fixture
def probed(monkeypatch):
    """Return a function that sets the host, and the list of frameworks that are imported."""
    imported = []

    def use(made):
        def probe_host(python="", *, frameworks):
            imported.append((python, list(frameworks)))
            return made

        monkeypatch.setattr(diagnosis, "probe_host", probe_host)
        monkeypatch.setattr(diagnosis, "confirm", lambda predictions, *_: predictions)
        return imported

    return use


def test_a_diagnosis_of_the_host_and_one_of_a_source(probed):
    imported = probed(host(TORCH, gpus=nvidia(H100)))
    whole, source = diagnose(), diagnose(TAGGED)
    assert (whole.source, whole.predictions, whole.advice) == (None, (), None)
    assert [f.code for f in whole.findings] == ["cpu-build"]
    assert source.predictions[0].outcome == "fails"
    assert source.exit_code == 7
    with pytest.raises(FrozenInstanceError):
        source.host = None
    assert imported[0][1][:2] == ["torch", "tensorflow"]
    assert imported[1] == ("", ["torch"])  # only what loads the source
    diagnose(KERAS, fast=True, python="/other/python")
    assert imported[2] == ("/other/python", [])


def test_it_takes_a_path_of_either_kind_and_a_name_for_it(probed):
    probed(host(TORCH))
    assert diagnose(str(CHECKPOINT)) == diagnose(CHECKPOINT)
    named = diagnose(CHECKPOINT, name="s3://bucket/m.pth", format="torch")
    assert named.source.path == "s3://bucket/m.pth"
    assert all("s3://bucket/m.pth" in c.command for c in named.advice.commands)
    assert str(CHECKPOINT) not in json.dumps(named.plain())


def test_the_repr_is_short():
    bare = examine(host())
    assert repr(bare) == "<Diagnosis of this host: no findings>"
    gpu = nvidia(H100, driver="525.60.13", cuda=(12, 0))
    made = examine(host(TORCH_CUDA, gpus=gpu), read_source(str(TAGGED)))
    assert repr(made) == f"<Diagnosis of {TAGGED}: torch.load(path) loads, 1 error>"
    bare = examine(host(), read_source(str(TAGGED)))
    assert repr(bare) == f"<Diagnosis of {TAGGED}: torch is not installed>"
    assert len(repr(diagnose(fast=True))) < 200
    for part in (diagnose(fast=True).host, read_source(str(KERAS))):
        assert len(repr(part)) < 1200


def test_a_notebook_shows_what_fails_and_the_command(probed):
    probed(host(TORCH))
    html = diagnose(TAGGED)._repr_html_()
    for word in ("official loaders", "Attempting to deserialize", "what convert does", "--device"):
        assert word in html
    assert "no findings" in examine(host())._repr_html_()


def test_installed_loaders_are_called_unless_it_is_to_be_fast(probed, monkeypatch):
    probed(host(TORCH))
    called = []
    monkeypatch.setattr(diagnosis, "confirm", lambda found, *_: called.append(found) or found)
    assert diagnose(CHECKPOINT, fast=True).predictions == diagnose(CHECKPOINT).predictions
    assert len(called) == 1


def test_what_is_not_supported_is_not_advised(probed, tmp_path):
    probed(host())
    name = "lambda-model-driving.tf_keras.h5"
    zipfile.ZipFile(FIXTURES / "keras_layers" / "models_lambdas.zip").extract(name, tmp_path)
    found = diagnose(tmp_path / name, fast=True).advice
    assert [c.options.to for c in found.commands] == ["onnx", "portable"]
    assert [c.options.to for c in diagnose(KERAS, fast=True).advice.commands] == [
        "keras", "onnx", "portable",
    ]  # fmt: skip


def test_a_source_that_is_no_model_is_an_error(tmp_path):
    path = tmp_path / "m.bin"
    path.write_bytes(b"# a text\n")
    with pytest.raises(SourceError):
        diagnose(path, fast=True)
