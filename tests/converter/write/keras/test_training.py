"""How a model was trained, in today's words: carried, or left out and named."""

import json
import zipfile

from repository import ROOT

import converter
from converter.cli.app import run
from converter.write.keras import archive
from converter.write.keras.training import compile_config

FIXTURES = ROOT / "fixtures" / "keras"
ADAM = {"class_name": "Adam", "config": {"lr": 0.001, "decay": 0.0, "epsilon": 1e-8}}


def training(**parts):
    return {"optimizer_config": ADAM, "loss": "mse", "metrics": None} | parts


def test_the_words_of_keras_1():
    found, left = compile_config(training(sample_weight_mode=None, loss_weights=None))
    assert not left
    assert found["optimizer"]["class_name"] == "Adam"
    assert found["optimizer"]["config"] == {"learning_rate": 0.001, "epsilon": 1e-8}
    assert found["loss"] == "mse"


def test_objects_of_tensorflows_keras():
    loss = {"class_name": "BinaryCrossentropy",
            "config": {"reduction": "auto", "name": "bce", "from_logits": True}}  # fmt: skip
    function = {"name": "mae", "dtype": "float32", "fn": "mean_absolute_error"}
    wrapped = {"class_name": "MeanMetricWrapper", "config": function}
    falling = {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.9}
    rate = {"class_name": "ExponentialDecay", "config": falling}
    optimizer = {"class_name": "Custom>SGD", "config": {"learning_rate": rate, "momentum": 0.9}}
    found, left = compile_config(
        {"optimizer_config": optimizer, "loss": {"a": loss, "b": None}, "metrics": [[wrapped]]}
    )
    assert not left
    assert found["loss"]["a"]["config"]["reduction"] == "sum_over_batch_size"
    assert found["loss"]["a"]["config"]["from_logits"] is True
    assert found["loss"]["b"] is None
    (metric,) = found["metrics"]
    assert (metric["class_name"], metric["config"]) == ("MeanAbsoluteError", {"name": "mae"})
    made = found["optimizer"]["config"]["learning_rate"]
    assert made["module"] == "keras.optimizers.schedules"


def test_what_has_no_word_today_is_named():
    own = {"class_name": "Mine", "config": {}}
    assert compile_config(training(loss="mine")) == (None, ["how it was trained (losses mine)"])
    decayed = {"class_name": "SGD", "config": {"lr": 0.1, "decay": 1e-4}}
    found, left = compile_config(training(optimizer_config=decayed))
    assert (found, left) == (None, ["how it was trained (argument decay of SGD)"])
    found, left = compile_config(training(metrics=[own, "mae"], sample_weight_mode="temporal"))
    assert found is not None
    assert "metrics" not in found
    assert left == ["metrics of training (metrics Mine)", "sample_weight_mode of training"]
    foreign = {"module": "mine", "class_name": "Adam", "config": {}}
    found, left = compile_config(training(optimizer_config=None, optimizer=foreign))
    assert found is None


def test_nothing_recorded_is_nothing_left_out():
    assert compile_config(None) == (None, [])


def test_a_file_carries_it(tmp_path):
    out = tmp_path / "out.keras"
    source = FIXTURES / "tfkeras24_functional.h5"
    converter.convert(source, to="keras", out=out)
    config = json.loads(zipfile.ZipFile(out).read("config.json"))
    assert config["compile_config"]["optimizer"]["class_name"] == "Adam"
    assert config["compile_config"]["metrics"] == ["mae"]
    # What was written is read, and written again alike.
    assert (
        archive.plan_file(converter.read(out)).config["compile_config"] == config["compile_config"]
    )


def test_what_is_left_out_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(archive, "compile_config", lambda _: (None, ["how it was trained (x)"]))
    source = FIXTURES / "tfkeras24_functional.h5"
    out = tmp_path / "out.keras"
    assert run(["SOURCE", str(source), "--to", "keras", "-o", str(out), "--verify", "none"]) == 0
    assert "warning     left out: how it was trained (x)" in capsys.readouterr().err
