"""Nothing vanishes: entries of registries that are not read are rows of every report."""

import json
import shutil
import xml.etree.ElementTree as ElementTree

import pytest
from repository import ROOT

from converter.batch import plan as planning
from converter.batch.plan import BatchPlan
from converter.batch.records import records
from converter.cli.app import run
from converter.jobs.record import Record, RecordedVerification
from converter.registries.entry import Skipped
from converter.reports.outcomes import has_equal_weights


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A model, and a file that is none."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "fixtures/verify/pairs.h5", tmp_path / "good.h5")
    (tmp_path / "notes.txt").write_text("no model")
    return tmp_path


def batch(*arguments):
    return run(["batch", *arguments, "-o", "out", "--engine", "inline", "--verify", "weights"])


class Registry:
    """A registry of one model of another library."""

    label = "forest"

    def find(self):
        yield Skipped("models:/forest/1", "an MLflow model of flavor sklearn", "forest/1")


@pytest.fixture
def with_forest(models, monkeypatch):
    """Make models:/forest/1 name a model that is not read."""
    known = planning.open_registry

    def find_registry(reference, filters):
        return Registry() if reference.startswith("models:") else known(reference, filters)

    monkeypatch.setattr(planning, "open_registry", find_registry)
    return models


def test_an_entry_that_is_named_and_not_read_is_no_success(with_forest, capsys):
    reports = ["--report", "r.xml", "--report", "r.jsonl", "--report", "r.html"]
    assert batch("good.h5", "models:/forest/1", *reports) == 4
    said = capsys.readouterr().err
    assert "not read    forest/1: an MLflow model of flavor sklearn" in said
    assert "1 of 2 not read" in said
    tree = ElementTree.parse(with_forest / "r.xml").getroot()
    assert len(tree.findall(".//testcase")) == 2
    (skipped,) = tree.findall(".//testcase/skipped")
    assert skipped.get("message") == "an MLflow model of flavor sklearn"
    lines = [json.loads(line) for line in (with_forest / "r.jsonl").read_text().splitlines()]
    assert sorted(line["status"] for line in lines) == ["done", "skipped"]


def test_a_file_that_is_named_and_no_model_fails(models):
    assert batch("good.h5", "notes.txt") == 3


def test_other_files_of_a_folder_are_no_entries(models):
    folder = models / "registry"
    folder.mkdir()
    shutil.move(models / "good.h5", folder)
    shutil.move(models / "notes.txt", folder)
    assert batch("registry", "--report", "r.jsonl", "--fail-on-skipped") == 0
    assert len((models / "r.jsonl").read_text().splitlines()) == 1


def test_entries_of_a_registry_are_records(tmp_path):
    one = Skipped("models:/forest/1", "an MLflow model of flavor sklearn", "forest/1")
    (record,) = records(BatchPlan(unread={"forest/1": one}), tmp_path / "ledger.sqlite")
    assert (record.source, record.name, record.status) == (one.source, "forest/1", "skipped")
    assert record.error.message == one.reason
    assert record.exit_code is None


@pytest.mark.parametrize(
    ("status", "weights", "counted"),
    [
        ("done", {"tensors": 3, "bytes": 12}, True),
        ("done", {"tensors": 0, "bytes": 0}, False),
        ("done", None, False),
        ("failed", {"tensors": 3, "bytes": 12}, False),
    ],
)
def test_only_compared_weights_count_as_equal(status, weights, counted):
    verification = RecordedVerification("cpu", weights)
    record = Record("a", "a", status=status, exit_code=0, verification=verification)
    assert has_equal_weights(record) is counted
