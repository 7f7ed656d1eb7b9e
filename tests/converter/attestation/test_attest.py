"""Attestations say which bytes were made of which, and how; the same conversion says the same."""

import hashlib
import json

import pytest
from repository import FIXTURES

import converter
from converter.attestation.attest import KINDS
from converter.attestation.conversion import AttestedConversion
from converter.cli.app import run
from converter.options import Arch, Comparison, Options
from converter.version import VERSION
from formats.core.bundle import TensorSpec

SOURCE = FIXTURES / "keras" / "keras315_functional.keras"


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def documents(tmp_path):
    """Return a function that converts, and returns the output and the documents by suffix."""

    def make(name="m.onnx", **options):
        out, folder = tmp_path / name, tmp_path / "said"
        converter.convert(SOURCE, out=out, verify="weights", attest=folder, **options)
        found = {s: folder / f"{name}{s}" for s in KINDS}
        assert {p.name for p in folder.iterdir()} == {p.name for p in found.values() if p.exists()}
        return out, {s: json.loads(p.read_text()) for s, p in found.items() if p.exists()}

    return make


def test_the_statement_names_the_bytes_of_both_sides(documents):
    out, found = documents(to="onnx", opset=19)
    statement = found[".intoto.json"]
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    (subject,) = statement["subject"]
    assert (subject["name"], subject["digest"]["sha256"]) == ("m.onnx", sha256(out))
    build = statement["predicate"]["buildDefinition"]
    assert build["externalParameters"] == {
        "source": SOURCE.name,
        "options": {"to": "onnx", "opset": 19, "verify": "weights"},
    }
    (dependency,) = build["resolvedDependencies"]
    assert dependency["digest"]["sha256"] == sha256(SOURCE)
    builder = statement["predicate"]["runDetails"]["builder"]
    assert builder["version"]["model-convert"] == VERSION


def test_its_options_repeat_the_conversion(documents, tmp_path):
    _, found = documents(to="onnx", opset=19)
    statement = found[".intoto.json"]
    options = statement["predicate"]["buildDefinition"]["externalParameters"]["options"]
    again = tmp_path / "again.onnx"
    converter.convert(SOURCE, out=again, **options)
    assert sha256(again) == statement["subject"][0]["digest"]["sha256"]


def test_the_same_conversion_is_attested_with_the_same_bytes(documents, tmp_path):
    documents(to="onnx")
    first = {p.name: p.read_bytes() for p in (tmp_path / "said").iterdir()}
    documents(to="onnx", overwrite=True)
    assert {p.name: p.read_bytes() for p in (tmp_path / "said").iterdir()} == first


def test_a_folder_is_attested_file_by_file(documents):
    out, found = documents("m.portable", to="portable")
    assert set(found) == {".intoto.json", ".cdx.json"}  # it has a manifest of its own
    subjects = {s["name"]: s["digest"]["sha256"] for s in found[".intoto.json"]["subject"]}
    assert subjects == {p.name: sha256(p) for p in out.iterdir()}
    parts = found[".cdx.json"]["metadata"]["component"]["components"]
    assert {p["name"]: p["hashes"][0]["content"] for p in parts} == subjects


def test_the_bill_of_materials_has_ancestor_inputs_and_level(documents):
    model = documents(to="onnx")[1][".cdx.json"]["metadata"]["component"]
    (ancestor,) = model["pedigree"]["ancestors"]
    assert ancestor["hashes"][0] == {"alg": "SHA-256", "content": sha256(SOURCE)}
    said = {p["name"]: p["value"] for p in (*model["properties"], *ancestor["properties"])}
    assert said["model-convert:verified"] == "weights"
    assert said["model-convert:recorded:keras_version"] == "3.15.1"
    assert model["modelCard"]["modelParameters"]["inputs"] == [
        {"format": "x: float32[batch, 6, 4]"}
    ]


def test_the_manifest_beside_an_output_without_one(documents):
    out, found = documents(to="onnx")
    manifest = found[".manifest.json"]
    assert manifest["source"]["files"][0]["sha256"] == sha256(SOURCE)
    assert manifest["files"][0] == {
        "name": "m.onnx",
        "size": out.stat().st_size,
        "sha256": sha256(out),
        "blake3": manifest["files"][0]["blake3"],
    }
    assert manifest["verification"]["reached"] == "weights"
    assert len(manifest["tensors"]) == 27
    assert manifest["left_out"]


def test_nothing_is_attested_of_what_was_not_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["SOURCE", str(SOURCE), "--dry-run", "--attest", "said", "-q"]) == 0
    assert [*tmp_path.iterdir()] == []
    (tmp_path / "said").write_text("a file")
    assert run(["SOURCE", str(SOURCE), "--attest", "said", "-q"]) == 6
    assert [p.name for p in tmp_path.iterdir()] == ["said"]


@pytest.mark.parametrize("folder", ["m.portable", "m.portable/said"])
def test_attestations_are_not_written_into_the_output(tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    for out in (["-o", "m.portable"], []):
        source = tmp_path / "m.keras"
        source.write_bytes(SOURCE.read_bytes())
        assert run(["SOURCE", str(source), *out, "--attest", folder, "-q"]) == 2
        assert [p.name for p in tmp_path.iterdir()] == ["m.keras"]


def test_what_a_registry_adds_is_no_option(tmp_path):
    """A registry's example is a temporary file: it would be another one each time."""
    folder = FIXTURES / "keras"
    converter.convert(f"file://{SOURCE}", out=tmp_path / "m.onnx", to="onnx", attest=tmp_path / "a")
    statement = json.loads((tmp_path / "a" / "m.onnx.intoto.json").read_text())
    parameters = statement["predicate"]["buildDefinition"]["externalParameters"]
    assert parameters["options"] == {"to": "onnx"}
    assert str(folder) in parameters["source"]


def test_every_option_is_json():
    options = Options(
        to="onnx",
        arch=Arch("m:f", {"n": 1}),
        inputs=(TensorSpec("x", "float32", ("n", 3)),),
        comparison=Comparison(atol={"": 1e-3}, inputs=FIXTURES),
        overwrite=True,
    )
    made = AttestedConversion("s", "o", (), (), None, {}, options)
    assert json.loads(json.dumps(made.parameters)) == made.parameters
    assert made.parameters["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["n", 3]}]
    assert "overwrite" not in made.parameters
