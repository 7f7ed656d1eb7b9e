"""A second conversion gives the same bytes, or says which files differ."""

import json

import pytest
from repository import ROOT

import converter
from converter.cli.app import run

FIXTURES = ROOT / "fixtures"
SOURCES = {
    "portable": FIXTURES / "verify/image.keras",
    "onnx": FIXTURES / "verify/pairs.h5",
    "safetensors": FIXTURES / "demo/checkpoint.pt",
    "keras": FIXTURES / "verify/pairs.h5",
}
NAMES = {"portable": "m", "onnx": "m.onnx", "safetensors": "m.safetensors", "keras": "m.keras"}


@pytest.fixture
def converted(tmp_path, monkeypatch):
    """Convert a source to a target."""
    monkeypatch.setenv("CONVERT_TENSORFLOW_PYTHON", "")

    def convert(target, verify="weights"):
        out = tmp_path / NAMES[target]
        converter.convert(SOURCES[target], to=target, out=out, verify=verify)
        return str(SOURCES[target]), out

    return convert


@pytest.mark.parametrize("target", SOURCES)
def test_an_output_is_reproduced(converted, target, capsys):
    source, out = converted(target)
    assert run(["verify", "--reproduce", source, str(out)]) == 0
    assert "reproduced" in capsys.readouterr().out


def test_a_changed_file_is_named(converted, capsys):
    source, out = converted("portable")
    weights = out / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert run(["verify", "--reproduce", "--json", source, str(out)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["reproduced"] is False
    assert found["different"] == ["model.safetensors"]


def test_another_source_does_not_give_the_output(converted):
    _, out = converted("portable")
    assert run(["verify", "--reproduce", str(SOURCES["keras"]), str(out)]) == 1
