"""Predictions confirmed by calling the loader: when it is called, and what its answer changes."""

import sys
from dataclasses import replace

import pytest
from hosts import KERAS, TENSORFLOW, TF_KERAS, TORCH, host, package
from repository import FIXTURES

from converter.doctor import confirm as confirming
from converter.doctor.confirm import apply_answer, confirm, explain_refusal
from converter.doctor.findings import Prediction
from converter.doctor.predictions import predict
from converter.doctor.source import read_source

LOADS = Prediction("torch.load(path)", "torch", "2.13", installed=True, outcome="loads")
FAILS = Prediction(
    "torch.load(path)", "torch", "2.13", installed=True, outcome="fails",
    error="RuntimeError", message="Attempting to deserialize object on a CUDA device but torch",
    cause="device-absent", why="a tag", mends="map_location",
)  # fmt: skip


def said(outcome, error="", message=""):
    return {"outcome": outcome, "error": error, "message": message}


@pytest.mark.parametrize(
    ("prediction", "answer", "outcome", "check"),
    [
        (LOADS, said("loads"), "loads", "confirmed"),
        (FAILS, said("fails", FAILS.error, FAILS.message + " …"), "fails", "confirmed"),
        (FAILS, said("fails", "OSError", "other"), "fails", "confirmed, with another message"),
        (FAILS, said("loads"), "loads", "contradicted: predicted fails"),
        (LOADS, said("fails", "OSError", "x"), "fails", "contradicted: predicted loads"),
    ],
)
def test_the_measurement_counts(prediction, answer, outcome, check):
    found = apply_answer(prediction, answer)
    assert (found.outcome, found.check) == (outcome, check)
    if outcome == "fails":
        assert found.measured.endswith(answer["message"])
    if check.startswith("contradicted"):
        assert (found.cause, found.why, found.mends) == (
            "",
            "",
            "",
        )  # of a prediction that is wrong


ALL = host(KERAS, TF_KERAS, TENSORFLOW, TORCH)


@pytest.mark.parametrize(
    ("training", "word"),
    [
        ({"loss": "mse"}, ""),
        ({"loss": {"module": "keras.losses", "class_name": "Huber", "config": {}}}, ""),
        ({"loss": {"a": [{"module": "this", "class_name": "x"}]}}, "may import this"),
        ({"optimizer_config": {"config": {"x": {"module": "os.path"}}}}, "may import os.path"),
    ],
)
def test_a_training_that_names_other_modules_is_not_compiled(training, word):
    source = read_source(str(FIXTURES / "keras" / "keras30_sequential.h5"))
    source = replace(source, keras=replace(source.keras, training=training))
    for prediction in predict(source, ALL):
        assert word in explain_refusal(prediction, source)
        assert bool(word) == bool(explain_refusal(prediction, source))


@pytest.mark.parametrize(
    ("name", "made", "loader", "word"),
    [
        ("torch/torch2.13-zip.pth", host(), "torch.load(path)", "not installed"),
        ("torch/torch2.13-zip.pth", host(package("torch", "2.5.0")), "torch.load(path)", "runs"),
        ("torch/torch2.13-export.pt2", ALL, "torch.export.load(path)", "evaluates"),
        ("torch/torch2.13-quantized.pt", ALL, "torch.jit.load(path)", "__setstate__"),
        ("keras/keras2_multi_gpu.h5", ALL, "keras.models.load_model(path)", "names code"),
        ("keras/keras2_multi_gpu.h5", ALL, "tf_keras.models.load_model(path)", "names code"),
    ],
)  # fmt: skip
def test_what_could_run_the_authors_code_is_not_run(name, made, loader, word, monkeypatch):
    monkeypatch.setattr(confirming, "_call", None)  # would raise, were it called
    source = read_source(str(FIXTURES / name))
    (prediction,) = [p for p in predict(source, made) if p.loader == loader]
    (found,) = confirm([prediction], source, made)
    assert found.check.startswith("not run: ")
    assert word in found.check
    assert (found.outcome, found.measured) == (prediction.outcome, "")


def test_what_is_safe_is_run():
    for name, loader in (
        ("torch/torch2.13-hostile.pth", "torch.load(path)"),  # weights_only refuses it
        ("torch/torch2.13-script.pt", "torch.jit.load(path)"),
        ("keras/keras315_functional.keras", "keras.models.load_model(path)"),
    ):
        source = read_source(str(FIXTURES / name))
        (prediction,) = [p for p in predict(source, ALL) if p.loader == loader]
        assert explain_refusal(prediction, source) == "", name


FAKE = """
__version__ = "2.13.0"
def load(path, weights_only=False, map_location=None):
    assert weights_only is True
    {body}
"""


@pytest.mark.parametrize(
    ("body", "outcome", "word"),
    [
        ("return {}", "loads", ""),
        ("raise RuntimeError('Attempting to …')", "fails", "RuntimeError: Attempting to …"),
        ("import os; os.abort()", "fails", "SIGABRT"),
        ("import time; time.sleep(60)", "fails", "longer than 2 s"),
        ("print('noise'); raise SystemExit(0)", "fails", "SystemExit"),
    ],
)
def test_a_loader_runs_in_a_child_and_its_end_is_its_answer(
    tmp_path, monkeypatch, body, outcome, word
):
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "torch.py").write_text(FAKE.format(body=body))
    monkeypatch.setenv("PYTHONPATH", str(modules))
    source = read_source(str(FIXTURES / "torch" / "torch2.13-zip.pth"))
    made = host(TORCH, executable=sys.executable)
    found = list(confirm(predict(source, made)[:1], source, made, seconds=2.0))
    assert found[0].outcome == outcome
    assert word in found[0].measured
