"""Commands take references where they take paths; what they say names the reference."""

import json
from pathlib import Path

import pytest
from repository import ROOT
from stored_files import opened

from converter.cli.app import run

FIXTURES = ROOT / "fixtures/keras"
H5 = FIXTURES / "keras315_functional.h5"
URL = "s3://b/a model.h5"
WEIGHTS = ("--verify", "weights")


@pytest.fixture
def files(monkeypatch, tmp_path):
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    with opened(monkeypatch) as files:
        files["b/a model.h5"] = H5.read_bytes()
        yield files
    assert not list((tmp_path / "tmp").iterdir())


@pytest.fixture
def convert(capsys):
    def run_here(*arguments):
        code = run([str(a) for a in arguments])
        out, said = capsys.readouterr()
        return code, out, said

    return run_here


def test_a_source_is_fetched_and_its_output_called_after_it(files, convert):
    code, out, said = convert("SOURCE", URL, "--to", "safetensors")
    assert (code, out) == (0, "a model.safetensors\n"), said
    assert Path("a model.safetensors").is_file()
    assert convert("diff", URL, "a model.safetensors")[0] == 0


def test_an_output_is_put_where_a_url_says(files, convert):
    code, out, said = convert("SOURCE", URL, "-o", "s3://b/one.portable", *WEIGHTS)
    assert (code, out) == (0, "s3://b/one.portable\n"), said
    assert {"manifest.json", "model.safetensors"} <= {*files.below("b/one.portable")}
    code, out, said = convert("SOURCE", URL, "-o", "s3://b/one.portable", *WEIGHTS)
    assert code == 2
    assert said.startswith("convert: error: s3://b/one.portable: already exists")
    assert convert("SOURCE", URL, "-o", "s3://b/one.portable", "--force", *WEIGHTS)[0] == 0
    assert convert("verify", "s3://b/one.portable")[0] == 0
    code, out, _ = convert("verify", URL, "s3://b/one.portable", "--json")
    assert json.loads(out)["converted"] == "s3://b/one.portable"


def test_a_dry_run_and_a_failure_put_nothing(files, convert):
    before = {*files.files}
    assert convert("SOURCE", URL, "-o", "s3://b/one.portable", "--dry-run")[0] == 0
    files.faults = [("put", "manifest.json", PermissionError("no"))]
    code, _, said = convert("SOURCE", URL, "-o", "s3://b/one.portable", *WEIGHTS)
    assert code == 6
    assert "s3://b/one.portable/manifest.json: access denied" in said
    assert {*files.files} == before


def test_documents_name_the_reference(files, convert):
    assert json.loads(convert("inspect", URL, "--json")[1])["source"] == URL
    out = ("-o", "s3://b/o.safetensors", "--to", "safetensors")
    printed = json.loads(convert("SOURCE", URL, *out, "--json")[1])
    assert (printed["source"], printed["output"]) == (URL, "s3://b/o.safetensors")
    about = json.loads(convert("doctor", URL, "--json", "--fast")[1])["source"]
    assert about["path"] == URL


def test_errors_name_the_reference(files, convert):
    files["b/cut.h5"] = H5.read_bytes()[:3000]
    code, _, said = convert("inspect", "s3://b/cut.h5")
    assert code == 3
    assert said.startswith("convert: error: s3://b/cut.h5")
    assert str(Path.cwd()) not in said
    assert convert("inspect", "s3://b/none.h5") == (
        3,
        "",
        "convert: error: s3://b/none.h5: is not there\n",
    )
    code, _, said = convert("inspect", "sftp://me:SECRET@host/none.h5")
    assert "SECRET" not in said


def test_an_output_of_mlflow_is_for_batches(files, convert):
    code, _, said = convert("SOURCE", URL, "-o", "models:/x")
    assert (code, "convert batch" in said) == (2, True)


def test_urls_of_files_are_paths(files, convert, tmp_path):
    place = f"file://{tmp_path}/o.portable"
    code, out, _ = convert("SOURCE", f"file://{H5}", "-o", place, *WEIGHTS)
    assert code == 0
    assert out == f"{tmp_path}/o.portable\n"
    assert (tmp_path / "o.portable/manifest.json").is_file()


def test_a_path_stays_one(files, convert, tmp_path):
    odd = tmp_path / "a:b"
    odd.write_bytes(H5.read_bytes())
    assert json.loads(convert("inspect", odd, "--json")[1])["source"] == str(odd)
    assert json.loads(convert("inspect", "./a:b", "--json")[1])["source"] in ("a:b", "./a:b")
    assert files.calls == []
