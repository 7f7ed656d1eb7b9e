"""Predictions for TensorFlow, compared with tensorflow 2.21 (fixtures/doctor)."""

import json
import zipfile

import pytest
from hosts import CUDA_12, H100, TENSORFLOW, host, nvidia
from repository import FIXTURES

from converter.doctor.host import ImportResult
from converter.doctor.loaders import tensorflow as tensorflow_rules
from converter.doctor.loaders.tensorflow import (
    TensorFlowFacts,
    check_placement,
    parse_gpu_index,
    read_registered_ops,
)
from converter.doctor.predictions import check_source, predict
from converter.doctor.source import read_source

OUTCOMES = json.loads((FIXTURES / "doctor" / "tensorflow_outcomes.json").read_text())
CPU = host(TENSORFLOW)
GPU = host(TENSORFLOW, gpus=nvidia(H100), libraries=CUDA_12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("savedmodels")
    for archive in (
        FIXTURES / "doctor" / "unknown_op.zip",
        FIXTURES / "tensorflow" / "multi_gpu.zip",
    ):
        with zipfile.ZipFile(archive) as z:
            z.extractall(place)
    return place


@pytest.mark.parametrize("name", OUTCOMES["savedmodels"])
def test_savedmodels_of_gpus_load_on_a_cpu(name, folder):
    prediction = predict(read_source(str(folder / name)), CPU)[0]
    assert prediction.loader == "tf.saved_model.load(path)"
    assert prediction.outcome == OUTCOMES["savedmodels"][name]["outcome"]


@pytest.mark.parametrize(("name", "kind"), [("model", "savedmodel"), ("graph.pb", "graphdef")])
def test_an_op_that_nobody_registered(name, kind, folder):
    prediction = predict(read_source(str(folder / name)), CPU)[0]
    said = OUTCOMES["unknown op"][kind]
    assert (prediction.outcome, prediction.error) == (said["outcome"], said["error"])
    assert said["message"].startswith(prediction.message)
    assert "NoSuch" in prediction.why


def test_a_graphs_own_functions_are_no_unknown_ops():
    facts = TensorFlowFacts(
        "graphdef", {"MatMul": 1, "my_function": 2}, {}, frozenset({"my_function"})
    )
    assert facts.unknown_ops == ()
    assert TensorFlowFacts("graphdef", {"my_function": 1}).unknown_ops == ("my_function",)
    assert {"MatMul", "CudnnRNNV3", "PartitionedCall", "EagerPyFunc"} <= read_registered_ops()


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("keras3_devices", {"placement-absent"}),
        ("loop_expanded", {"placement-absent"}),
        ("collective", {"collectives"}),
        ("tf_keras_default", set()),
    ],
)
def test_what_loads_and_runs_elsewhere(name, codes, folder):
    found = {f.code for f in check_source(read_source(str(folder / name)), CPU)}
    assert codes <= found
    if not codes:
        assert "placement-absent" not in found


def test_where_the_gpu_is_its_placements_are_no_finding():
    named = TensorFlowFacts("savedmodel", {"MatMul": 1}, {"/device:GPU:0": 3})
    assert [f.code for f in check_placement(named, CPU)] == ["placement-absent"]
    assert check_placement(named, GPU) == []
    second = TensorFlowFacts("savedmodel", {"MatMul": 1}, {"/device:GPU:1": 3})
    (found,) = check_placement(second, GPU)
    assert "sees 1 GPU(s)" in found.what


def test_free_placement_is_noted_where_there_is_a_gpu():
    free = TensorFlowFacts("savedmodel", {"MatMul": 1}, {"/device:CPU:0": 1})
    (note,) = check_placement(free, GPU)
    assert (note.code, note.severity) == ("placement-free", "note")
    assert "verify" in note.fix
    assert check_placement(free, CPU) == []


def test_ops_without_a_kernel_here():
    facts = TensorFlowFacts(
        "savedmodel", {"CudnnRNNV3": 2, "EagerPyFunc": 1, "CollectiveReduceV2": 1}
    )
    assert [f.code for f in check_placement(facts, CPU)] == ["collectives", "cudnn-ops", "py-func"]
    assert [f.code for f in check_placement(facts, GPU)] == [
        "placement-free",
        "collectives",
        "py-func",
    ]


@pytest.mark.parametrize(
    ("device", "index"),
    [
        ("/job:localhost/replica:0/task:0/device:GPU:1", 1),
        ("GPU:0", 0),
        ("/gpu:2", 2),
        ("/device:CPU:0", None),
        ("/device:GPU:*", 0),
        ("", None),
        ("/device:XLA_GPU:0", None),
    ],
)
def test_which_gpu_a_device_names(device, index):
    assert parse_gpu_index(device) == index


def test_what_tensorflow_reports_outweighs_its_build():
    assert tensorflow_rules.count_gpus(GPU) == 1
    blind = host(
        TENSORFLOW, gpus=nvidia(H100), seen={"tensorflow": ImportResult("2.21", facts={"gpus": 0})}
    )
    assert tensorflow_rules.count_gpus(blind) == 0
    crashed = host(TENSORFLOW, gpus=nvidia(H100), seen={"tensorflow": ImportResult(problem="died")})
    assert tensorflow_rules.count_gpus(crashed) == 1
