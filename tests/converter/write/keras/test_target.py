"""``--to keras``: files from every age, gaps, dry runs, and what a comparison catches."""

import json
import zipfile

import pytest
from repository import ROOT

import converter
from converter.cli.app import run
from converter.lower.keras.model import parse
from converter.write.keras.configuration import Configuration
from formats.errors import UnsupportedError

FIXTURES = ROOT / "fixtures" / "keras"
AGES = [
    "keras1_theano_sequential.h5", "keras2_recurrent.h5", "keras2_multi_gpu.h5",
    "tfkeras24_functional.h5", "tfkeras212_archive.keras", "keras30_functional.keras",
    "keras315_functional.h5", "keras315_functional.keras", "keras315_dtypes.keras",
]  # fmt: skip


def convert(source, tmp_path, *options):
    out = tmp_path / "out.keras"
    return run(["SOURCE", str(source), "--to", "keras", "-o", str(out), "-q", *options]), out


@pytest.mark.parametrize("name", AGES)
def test_every_age_becomes_a_file_of_today(tmp_path, name):
    code, out = convert(FIXTURES / name, tmp_path, "--verify", "weights", "--require", "weights")
    assert code == 0
    with zipfile.ZipFile(out) as archive:
        assert archive.testzip() is None
        assert json.loads(archive.read("metadata.json"))["keras_version"] == "3.15.1"
    assert converter.read(out).metadata.variant == "archive of Keras 3.15.1"


def test_the_same_source_gives_the_same_bytes(tmp_path):
    found = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        _, out = convert(FIXTURES / "keras2_recurrent.h5", tmp_path / name, "--verify", "none")
        found.append(out.read_bytes())
    assert found[0] == found[1]


def test_a_lambda_is_a_gap_with_its_place_and_nothing_is_written(tmp_path):
    code, out = convert(FIXTURES / "keras315_lambda.keras", tmp_path)
    assert code == 4
    assert not out.exists()
    with pytest.raises(UnsupportedError, match=r"Lambda.*, at \w+"):
        converter.convert(FIXTURES / "keras315_lambda.keras", to="keras", out=out)


def test_weights_alone_are_no_model(tmp_path):
    code, _ = convert(FIXTURES / "keras2_sequential.only_weights.h5", tmp_path)
    assert code == 4


def test_a_dry_run_writes_nothing(tmp_path):
    code, out = convert(FIXTURES / "keras2_recurrent.h5", tmp_path, "--dry-run")
    assert code == 0
    assert not out.exists()


def test_layers_of_one_name_without_slashes_are_a_gap():
    def dense(name, source):
        config = {"name": name, "units": 2, "use_bias": False}
        nodes = [[[source, 0, 0, {}]]]
        return {"class_name": "Dense", "name": name, "config": config, "inbound_nodes": nodes}

    first = {"class_name": "InputLayer", "name": "x", "config": {"batch_input_shape": [None, 2]},
             "inbound_nodes": []}  # fmt: skip
    layers = [first, dense("a/b", "x"), dense("a_b", "a/b")]
    ends = {"input_layers": [["x", 0, 0]], "output_layers": [["a_b", 0, 0]]}
    model = parse({"class_name": "Functional", "config": {"name": "m", "layers": layers, **ends}})
    (finding,) = Configuration(model, "Functional").findings
    assert (finding.where, finding.detail) == ("a_b", "layers a/b and a_b")
