"""The table of targets: a new one is one module and one row, and nothing else."""

import sys
import types

import pytest
from repository import ROOT

import converter
from converter.cli.app import run
from converter.options import Options
from converter.write import catalog
from converter.write.catalog import TARGETS, Target, check_options, find_target
from converter.write.plan import Plan
from formats.core.output import Output
from formats.errors import UsageError

SOURCE = ROOT / "fixtures/demo/checkpoint.pt"


class NamesFile(Plan):
    """The toy target: a text file of tensors' names."""

    def __init__(self, bundle):
        self.bundle, self.warnings = bundle, ()

    def summary(self):
        return f"{len(self.bundle.weights)} names"

    def write(self, payload, *, verify, sync):
        del verify, sync
        with Output(payload / "names.txt") as out:
            out.write("\n".join(self.bundle.weights).encode())
        return payload / "names.txt", None
        yield


@pytest.fixture
def toy(monkeypatch):
    """The whole diff of a new target: its module, and its row."""
    module = types.ModuleType("converter.write.names")
    module.plan = lambda bundle, graphs, artifact, options: NamesFile(bundle)
    monkeypatch.setitem(sys.modules, "converter.write.names", module)
    row = Target("names", "names", ".txt", (".txt",), "the names of all tensors", "", "none")
    monkeypatch.setattr(catalog, "TARGETS", (*TARGETS, row))
    monkeypatch.setitem(catalog._BY_ID, "names", row)


def test_a_new_target_is_a_module_and_a_row(tmp_path, toy, monkeypatch, capsys):
    names = [*converter.read(SOURCE).weights]
    assert converter.convert(SOURCE, to="names", out=tmp_path / "a.txt").path.exists()
    monkeypatch.chdir(tmp_path)
    assert run(["SOURCE", str(SOURCE), "--to", "names", "-q"]) == 0
    out, _ = capsys.readouterr()
    assert out.strip() == "checkpoint.txt"  # called after the source, with the row's suffix
    written = (tmp_path / "checkpoint.txt").read_text().split("\n")
    assert len(written) == len(names) > 0
    assert run(["SOURCE", str(SOURCE), "--to", "names", "--device", "cpu"]) == 2
    arguments = ["-o", str(tmp_path / "all"), "--engine", "inline", "-q"]
    assert run(["batch", str(SOURCE), "--to", "names", *arguments]) == 0
    assert [*(tmp_path / "all").glob("*.txt")]


def test_a_wrong_target_names_the_others_and_a_near_match():
    with pytest.raises(UsageError) as caught:
        find_target("onx")
    text = str(caught.value)
    assert "Did you mean 'onnx'?" in text
    assert find_target("ONNX").id == "onnx"
    assert all(row.id in text for row in TARGETS)


@pytest.mark.parametrize("row", TARGETS, ids=lambda row: row.id)
def test_every_row_has_a_module_with_a_plan(row):
    from importlib import import_module

    assert callable(import_module(f"converter.write.{row.module}").plan)
    assert row.suffix.startswith(".")
    assert row.takes == tuple(dict.fromkeys(row.takes))
    assert set(row.takes) <= set(catalog.SPECIFIC)


@pytest.mark.parametrize("row", TARGETS, ids=lambda row: row.id)
def test_an_option_that_a_target_does_not_take_is_refused(row):
    values = {
        "device": "cpu", "precision": "fp16", "keep_structure": True, "exporter": "native",
        "include": ("optimizer",), "strip_prefix": "model.",
    }  # fmt: skip
    needs = {"device": "cpu"} if row.needs_device else {}
    check_options(Options(to=row.id, **needs))
    for name, value in values.items():
        if name not in row.takes:
            with pytest.raises(UsageError, match=row.id):
                check_options(Options(to=row.id, **needs | {name: value}))
