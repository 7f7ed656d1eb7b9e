"""What a job's record says, whatever became of the job: reports have nothing else."""

import json
import pickle
import shutil

import pytest
from repository import FIXTURES
from safetensors.numpy import load_file

from converter.executors.worker import work
from converter.jobs.job import Job, new_record
from converter.jobs.record import Record
from converter.options import Options


def recorded(source, tmp_path, **options):
    job = Job(
        str(source), "one", str(tmp_path / "out"), Options(**({"verify": "weights"} | options))
    )
    (tmp_path / "out").mkdir(exist_ok=True)
    outcome = work(job, tmp_path)
    record = outcome.record.to_json()
    assert [*record] == [*new_record(job).to_json()]  # every key, in the order of all records
    assert Record.from_json(json.loads(json.dumps(record, allow_nan=False))) == outcome.record
    assert pickle.loads(pickle.dumps(outcome)) == outcome
    assert (outcome.record.status, outcome.record.exit_code) == (
        outcome.status,
        outcome.exit_code,
    )
    return record


def test_of_a_good_model_its_graph_and_its_digests(tmp_path):
    record = recorded(FIXTURES / "keras/keras315_functional.keras", tmp_path)
    assert record["status"] == "done"
    (graph,) = record["graphs"]
    assert graph["signature"] == ""
    assert graph["opset"] == 18
    assert graph["nodes"] > 3
    assert record["gaps"] == []
    assert record["verification"]["reached"] == "weights"
    assert (
        record["weights_digest"]
        == json.loads((tmp_path / "out/one/manifest.json").read_text())["weights_digest"]["value"]
    )


def test_of_a_model_without_its_graph_the_gaps(tmp_path):
    source = tmp_path / "model.keras"
    unknown_layer(source)
    record = recorded(source, tmp_path)
    assert record["status"] == "done"
    assert record["graphs"] == []
    assert record["gaps"] == [{"what": "Keras layer class Denser", "count": 1}]
    assert "Denser" in record["left_out"][-1]["reason"]
    assert load_file(tmp_path / "out/one/model.safetensors")


def test_of_a_model_that_is_not_converted_for_its_gaps_the_same(tmp_path):
    source = tmp_path / "model.keras"
    unknown_layer(source)
    record = recorded(source, tmp_path, to="onnx")
    assert (record["status"], record["exit_code"]) == ("failed", 4)
    assert record["gaps"] == [{"what": "Keras layer class Denser", "count": 1}]
    assert record["format"] == "keras"
    assert record["weight_bytes"] > 0


def test_what_is_not_supported_at_all_is_a_gap_as_well(tmp_path):
    record = recorded(FIXTURES / "torch/torch2.4-state.pth", tmp_path, to="keras")
    assert record["exit_code"] == 4
    assert [gap["count"] for gap in record["gaps"]] == [1]
    assert record["gaps"][0]["what"] in record["error"]["message"]


def test_of_a_damaged_file_how_far_it_came(tmp_path):
    source = tmp_path / "model.h5"
    shutil.copy(FIXTURES / "keras/keras2_nested.h5", source)
    with source.open("r+b") as file:
        file.truncate(3000)
    record = recorded(source, tmp_path)
    assert (record["status"], record["exit_code"]) == ("failed", 3)
    assert record["gaps"] == []
    assert record["error"]["message"].startswith(str(source))


def unknown_layer(path):
    """Write a model with a layer that nobody has."""
    import zipfile

    with zipfile.ZipFile(FIXTURES / "keras/keras315_functional.keras") as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    config = members["config.json"]
    assert config.count(b'"class_name": "Dense"') == 1 or b'"class_name": "Dense"' in config
    members["config.json"] = config.replace(b'"class_name": "Dense"', b'"class_name": "Denser"', 1)
    with zipfile.ZipFile(path, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)


@pytest.mark.parametrize("verify", ["none", "weights"])
def test_what_was_verified(tmp_path, verify):
    record = recorded(FIXTURES / "torch/torch2.4-state.pth", tmp_path, verify=verify)
    assert record["verification"]["reached"] == verify
    assert (record["verification"]["weights"] is None) == (verify == "none")


def test_gaps_of_writing_keras_are_counted_as_well(tmp_path):
    source = tmp_path / "model.keras"
    unknown_layer(source)
    record = recorded(source, tmp_path, to="keras")
    assert record["exit_code"] == 4
    assert record["gaps"][0]["what"].startswith("to='keras' Denser: ")


def test_what_a_reduced_precision_costs(tmp_path):
    pytest.importorskip("onnxruntime")
    record = recorded(
        FIXTURES / "verify/image.keras", tmp_path, to="onnx", precision="fp16", verify="auto"
    )
    assert record["status"] == "done"
    found = record["verification"]["graphs"]["in fp16"]
    assert found["status"] == "passed"
    (measure,) = found["outputs"]
    assert sum(measure["decades"]) == measure["elements"]
    assert 0 < measure["max_rel"] < 1e-2
