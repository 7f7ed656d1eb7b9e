"""A second run does not open files again that were no artifacts, unless they have changed."""

import shutil
import sqlite3
from contextlib import closing

import pytest
from repository import ROOT

from converter.batch import ledger as ledgers
from converter.batch.ledger import Ledger
from converter.cli.app import run
from converter.registries import probe


@pytest.fixture
def sniffed(tmp_path, monkeypatch):
    """Return the names of files that are opened; each run of a batch adds to them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    shutil.copy(ROOT / "fixtures/verify/pairs.h5", tmp_path / "models" / "good.h5")
    (tmp_path / "models" / "notes.txt").write_text("no model")
    (tmp_path / "models" / "more.txt").write_text("no model either")
    opened = []
    detect = probe.catalog.detect

    def record(artifact, *rest):
        opened.append(artifact.path.name)
        return detect(artifact, *rest)

    monkeypatch.setattr(probe.catalog, "detect", record)
    return opened


def batch(*more):
    return run(["batch", "models", "-o", "out", "--engine", "inline", "--verify", "weights", *more])


def opened_again(sniffed, *more):
    sniffed.clear()
    assert batch(*more) == 0
    return {name for name in sniffed if name.endswith(".txt")}


def test_a_file_is_opened_once(sniffed, tmp_path, capsys):
    assert opened_again(sniffed) == {"notes.txt", "more.txt"}
    assert opened_again(sniffed) == set()
    (tmp_path / "models" / "notes.txt").write_text("changed, and no model")
    assert opened_again(sniffed) == {"notes.txt"}
    (tmp_path / "models" / "more.txt").unlink()
    assert opened_again(sniffed) == set()
    with Ledger(tmp_path / "out.ledger.sqlite") as ledger:
        assert {path.rpartition("/")[2] for path in ledger.no_artifacts()} == {"notes.txt"}


def test_what_becomes_a_model_is_found(sniffed, tmp_path, capsys):
    assert batch() == 0
    shutil.copy(ROOT / "fixtures/verify/pairs.h5", tmp_path / "models" / "notes.txt")
    assert batch() == 0
    assert (tmp_path / "out" / "notes.txt.portable").is_dir()


def test_another_version_looks_for_itself(sniffed, monkeypatch):
    assert batch() == 0
    monkeypatch.setattr(ledgers, "VERSION", "another")
    assert opened_again(sniffed) == {"notes.txt", "more.txt"}


def test_a_dry_run_remembers_nothing(sniffed, tmp_path):
    assert batch("--dry-run") == 0
    assert opened_again(sniffed) == {"notes.txt", "more.txt"}


def test_a_ledger_of_an_earlier_convert_gets_the_table(sniffed, tmp_path):
    assert batch() == 0
    with closing(sqlite3.connect(tmp_path / "out.ledger.sqlite")) as connection:
        connection.execute("DROP TABLE no_artifacts")
    assert opened_again(sniffed, "--dry-run") == {"notes.txt", "more.txt"}
    assert opened_again(sniffed) == {"notes.txt", "more.txt"}
    assert opened_again(sniffed) == set()
