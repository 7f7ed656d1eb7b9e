"""Predictions for Keras, compared with keras 3.15 and tf_keras 2.21 (fixtures/doctor)."""

import json
import shutil
from pathlib import Path

import pytest
from hosts import KERAS, TENSORFLOW, TF_KERAS, host, package
from repository import FIXTURES

from converter.doctor.loaders import keras as keras_rules
from converter.doctor.loaders.keras_loader import KerasFacts
from converter.doctor.source import read_source

CONFIGS = json.loads((FIXTURES / "doctor" / "keras_configs.json").read_text())
TRAININGS = json.loads((FIXTURES / "doctor" / "keras_trainings.json").read_text())
FILES = json.loads((FIXTURES / "doctor" / "keras_files.json").read_text())
BOTH = host(KERAS, TF_KERAS, TENSORFLOW)
LOADERS = {"keras": keras_rules.predict_keras_3, "tf_keras": keras_rules.predict_tf_keras}


def check(facts, said_by):
    """Compare what is predicted of facts with what each loader said."""
    for module, predict in LOADERS.items():
        failure, said = predict(facts), said_by[module]
        outcome = "loads" if failure is None else "fails"
        assert outcome == said["outcome"], (module, failure, said)
        if failure is None:
            continue
        if failure.cause == "lambda-bytecode" and module == "tf_keras":
            continue  # how reading another Python's byte-code ends depends on its bytes
        assert failure.error == said["error"], (module, failure, said)
        size = min(len(failure.message), len(said["message"]))
        assert failure.message[:size] == said["message"][:size], (module, failure, said)
        assert failure.message or failure.cause == "trainable-none"
        assert failure.why
        assert failure.cause


@pytest.mark.parametrize("row", CONFIGS, ids=lambda r: r["name"])
def test_configurations_end_as_predicted(row):
    check(KerasFacts("hdf5", ".h5", row["config"], "2.4.0"), row)


@pytest.mark.parametrize("row", TRAININGS, ids=lambda r: r["name"])
def test_trainings_end_as_predicted(row):
    suffix = Path(row["name"].partition(":")[0]).suffix
    container = {".h5": "hdf5", ".keras": "zip", "": "savedmodel"}[suffix]
    facts = KerasFacts(container, suffix, row["config"], training=row["training"])
    check(facts, row)


@pytest.mark.parametrize("name", FILES)
def test_files_end_as_predicted(name, tmp_path):
    called, _, source = name.partition(" of ")
    path = FIXTURES / "keras" / called
    if source:
        path = Path(shutil.copy(FIXTURES / "keras" / source, tmp_path / called))
    check(read_source(str(path)).keras, FILES[name])


def test_the_stored_outcomes_have_every_end():
    said = [row[m] for row in (*CONFIGS, *FILES.values()) for m in LOADERS]
    assert sum(s["outcome"] == "loads" for s in said) > 40
    assert len({(s["error"], s["message"][:30]) for s in said if s["outcome"] == "fails"}) > 20


def test_the_loader_that_works_is_named():
    row = next(r for r in CONFIGS if r["name"] == "CuDNNLSTM")
    three, two = keras_rules.predict(KerasFacts("hdf5", ".h5", row["config"]), BOTH)
    assert (three.outcome, two.outcome) == ("fails", "loads")
    assert three.mends == "tf_keras.models.load_model(path)"
    assert "it was one of Keras 2" in three.why


def test_a_loader_that_is_not_installed_is_marked():
    row = CONFIGS[0]
    three, two = keras_rules.predict(KerasFacts("hdf5", ".h5", row["config"]), host(KERAS))
    assert (three.installed, two.installed) == (True, False)
    without_tensorflow = host(KERAS, TF_KERAS)
    _, two = keras_rules.predict(KerasFacts("hdf5", ".h5", row["config"]), without_tensorflow)
    assert not two.installed


def test_an_installed_keras_2_is_the_loader_of_keras_2():
    made = host(package("keras", "2.15.0"), package("tensorflow", "2.15.1"))
    row = next(r for r in CONFIGS if r["name"] == "CuDNNLSTM")
    found = keras_rules.predict(KerasFacts("hdf5", ".h5", row["config"]), made)
    by_loader = {p.loader: p for p in found if p.installed}
    assert by_loader["keras.models.load_model(path)"].outcome == "loads"
    assert by_loader["keras.models.load_model(path)"].version == "2.15.0"


ODD = [
    None, [], {}, "x", {"class_name": "Sequential"}, {"config": 3},
    {"class_name": "Sequential", "config": {"layers": [None, 3]}},
    {"class_name": "Model", "config": {"layers": "x"}},
    {"class_name": "Model", "config": {"layers": [{"class_name": "Sequential", "config": []}]}},
    {"class_name": "RNN", "config": {"cells": [3], "units": 1}},
]  # fmt: skip


@pytest.mark.parametrize("config", ODD)
def test_odd_configurations_raise_nothing(config):
    for predict in LOADERS.values():
        for container in ("hdf5", "zip"):
            predict(KerasFacts(container, ".keras", config))
