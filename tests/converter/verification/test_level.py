"""The level of verification: one rule, and all that report it give the same answer."""

import itertools
import json
from dataclasses import asdict

import pytest
from repository import ROOT

import converter
from converter.cli import comparison
from converter.executors.worker import work
from converter.jobs.job import Job
from converter.options import LEVELS, Options
from converter.verification.bundle_check import check_folder, find_verified_level
from converter.verification.report import DeviceReport, DeviceRun, GraphReport, graph_level
from converter.verification.result import Verification, Weights, find_level
from converter.verification.verify import exit_code
from formats.errors import ConvertError


def on_device(status):
    run = DeviceRun(status, "there")
    return DeviceReport(status, "there", "cuda:0", False, 0, run, run)


WEIGHTS = {
    "equal": Weights(3, 12),
    "no tensors": Weights(0),
    "not compared": None,
}
GRAPHS = {
    "not run": GraphReport("not run", "it has no inputs"),
    "failed": GraphReport("failed", "outputs differ"),
    "cpu": GraphReport("passed"),
    "no device": GraphReport("passed").with_device(on_device("not run")),
    "device": GraphReport("passed").with_device(on_device("passed")),
    "failed there": GraphReport("passed").with_device(on_device("failed")),
}
SIGNATURES = [
    *((), *((one,) for one in GRAPHS)),
    *itertools.product(GRAPHS, repeat=2),
]
PRECISION = (None, *GRAPHS)


def verification(weights, graphs=(), precision=None):
    reports = {f"signature-{i}": GRAPHS[name] for i, name in enumerate(graphs)}
    narrow = {} if precision is None else {"signature-0": GRAPHS[precision]}
    return Verification(WEIGHTS[weights], reports, narrow)


def manifest_of(found):
    """Return the parts of a manifest that a level is computed from, as they are read again."""
    files = [{"file": f"model.{name}.onnx"} for name in found.graphs]
    first, *others = files or (None,)
    recorded = found.manifest(3, [*found.graphs])
    document = {"graph": first, "graphs": others, "verification": recorded}
    return json.loads(json.dumps(document))


@pytest.mark.parametrize(
    ("weights", "graphs", "precision", "level"),
    [
        ("equal", (), None, "weights"),
        ("no tensors", (), None, "none"),
        ("not compared", (), None, "none"),
        ("equal", ("not run",), None, "weights"),
        ("not compared", ("not run",), None, "none"),
        ("no tensors", ("not run",), None, "none"),
        ("no tensors", ("cpu",), None, "cpu"),
        ("not compared", ("cpu",), None, "cpu"),
        ("equal", ("not run", "cpu"), None, "weights"),
        ("equal", ("cpu", "not run"), None, "weights"),
        ("not compared", ("cpu", "not run"), None, "none"),
        ("not compared", ("not run", "cpu"), None, "none"),
        ("equal", ("cpu", "cpu"), None, "cpu"),
        ("equal", ("device", "device"), None, "device"),
        ("equal", ("device", "cpu"), None, "cpu"),
        ("equal", ("no device", "device"), None, "cpu"),
        ("equal", ("failed", "device"), None, "none"),
        ("equal", ("device", "failed there"), None, "none"),
        ("equal", ("cpu",), "not run", "weights"),
        ("equal", ("device",), "cpu", "cpu"),
        ("equal", ("cpu",), "failed", "none"),
    ],
)
def test_the_level_is_the_least_of_all_comparisons(weights, graphs, precision, level):
    assert verification(weights, graphs, precision).level == level


def test_different_weights_reach_nothing():
    found = Verification(Weights(3, different=("a (changed)",)), {"": GRAPHS["device"]})
    assert (found.level, exit_code(found, None)) == ("none", 1)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("precision", PRECISION)
def test_manifest_gate_and_command_report_the_same_level(weights, precision, capsys):
    for graphs in SIGNATURES:
        if precision is not None and not graphs:
            continue  # a graph of reduced precision is one that was to be compared
        found = verification(weights, graphs, precision)
        manifest = manifest_of(found)
        assert manifest["verification"]["reached"] == found.level, graphs
        assert find_verified_level(manifest)[0] == found.level, graphs
        comparison.document("source", "converted", found)
        assert (json.loads(capsys.readouterr().out)["verified"] or "none") == found.level, graphs
        for require in LEVELS[1:]:
            is_reached = LEVELS.index(found.level) >= LEVELS.index(require)
            assert (exit_code(found, require) == 0) == is_reached, (graphs, require)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("claimed", LEVELS[1:])
def test_the_gate_believes_no_manifest_that_claims_more(weights, claimed):
    for graphs in SIGNATURES:
        found = verification(weights, graphs)
        manifest = manifest_of(found)
        manifest["verification"]["reached"] = claimed
        level = min(found.level, claimed, key=LEVELS.index)
        assert find_verified_level(manifest)[0] == level, graphs


def test_a_graph_without_a_record_was_not_run():
    manifest = manifest_of(verification("equal", ("cpu", "cpu")))
    manifest["verification"].pop("graphs")
    assert find_verified_level(manifest) == ("weights", "no comparison of graphs was asked for")


def test_the_reason_is_that_of_the_least_verified_graph():
    def reason(*graphs):
        return find_verified_level(manifest_of(verification("equal", graphs)))[1]

    assert reason("cpu", "not run") == reason("not run", "cpu") == "it has no inputs"
    assert reason("no device", "device") == reason("device", "no device") == "there"
    assert reason("cpu", "device") == "no device was asked for"


def test_a_level_in_plain_words():
    assert find_level(weights=True, graphs=()) == "weights"
    assert find_level(weights=False, graphs=()) == "none"
    assert find_level(weights=True, graphs=(None, "device")) == "weights"
    assert find_level(weights=False, graphs=("cpu", "none")) == "none"
    assert [graph_level(*found) for found in (("passed", None), ("passed", "passed"))] == [
        "cpu",
        "device",
    ]


@pytest.mark.parametrize("verify", ["none", "weights"])
def test_a_written_bundle_and_its_record_have_the_level_of_the_conversion(tmp_path, verify):
    source, options = ROOT / "fixtures/keras/keras315_functional.keras", Options(verify=verify)
    job = Job(str(source), "job", str(tmp_path), options)
    record = json.loads(json.dumps(work(job, tmp_path).record, default=asdict))
    assert record["verification"]["reached"] == verify
    done = converter.convert(source, out=tmp_path / "out", options=options)
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    (checked,) = check_folder(tmp_path / "out", None)
    assert done.verification.level == verify
    assert manifest["verification"]["reached"] == checked.reached == verify


@pytest.mark.parametrize(
    ("verify", "require", "weights", "graphs", "said"),
    [
        ("auto", None, "not compared", ("not run",), ""),
        ("weights", None, "not compared", (), ""),
        ("weights", "weights", "not compared", (), "nothing was compared"),
        ("auto", "weights", "no tensors", (), "nothing was compared"),
        ("auto", "weights", "not compared", ("cpu",), ""),
        ("auto", "cpu", "equal", (), "as far as 'weights', and 'cpu' is required"),
        ("cpu", None, "equal", ("cpu",), ""),
        ("cpu", None, "equal", ("cpu", "not run"), "the graph was not compared"),
        ("auto", "cpu", "equal", ("not run", "cpu"), "the graph was not compared"),
        ("auto", "device", "equal", ("device", "device"), ""),
        ("device", None, "equal", ("device", "no device"), "was not verified, which is required"),
    ],
)
def test_less_than_was_asked_for_is_an_error(verify, require, weights, graphs, said):
    options = Options(verify=verify, require=require, device="cuda:0")
    found = verification(weights, graphs)
    if not said:
        found.check(options)
        return
    with pytest.raises(ConvertError, match=said):
        found.check(options)
