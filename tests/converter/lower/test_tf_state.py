"""SavedModels whose calls change variables, or whose checkpoints are of the first version."""

import numpy as np
import onnx_run
import pytest
from repository import ROOT

import converter
from converter.graphs import lower_signature as lower
from converter.lower.states import describe_states
from formats.errors import UnsupportedError

FIXTURES = ROOT / "fixtures" / "tf_state"
CASES = sorted(p.stem for p in FIXTURES.glob("*.npz"))
RUNS = sorted(p.stem for p in FIXTURES.glob("runs/*.npz"))


def run(folder, fed):
    bundle = converter.read(folder)
    model = onnx_run.session(lower(bundle), bundle.weights)
    # Twice: the second call must find the state that was saved, and not the first one's.
    onnx_run.run_named(model, {k: v + 1 for k, v in fed.items()})
    return onnx_run.run_named(model, fed)


@pytest.mark.parametrize("case", CASES)
def test_what_is_read_is_what_tensorflow_reads(case):
    stored = np.load(FIXTURES / f"{case}.npz")
    fed = {k.removeprefix("in."): stored[k] for k in stored.files if k.startswith("in.")}
    expected = {k.removeprefix("out."): stored[k] for k in stored.files if k.startswith("out.")}
    found = run(FIXTURES / case, fed)
    assert sorted(found) == sorted(expected)
    for name, theirs in expected.items():
        assert found[name].dtype == theirs.dtype
        assert found[name].shape == theirs.shape
        np.testing.assert_allclose(found[name], theirs, rtol=1e-6, atol=1e-6)


def test_all_kinds_of_models_are_there():
    assert set(CASES) == {"average", "counted", "named_twice", "sliced", "steps", "whole"}


@pytest.mark.parametrize(
    ("case", "changed"),
    [("average", 4), ("counted", 2), ("named_twice", 1), ("steps", 2), ("whole", 0)],
)
def test_variables_that_a_call_changes_are_named(case, changed):
    graph = lower(converter.read(FIXTURES / case))
    assert len(graph.unkept) == changed


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("gap_learned", "entries that are computed"),
        ("gap_grown", "a table that the model itself changes"),
        ("gap_chosen", "a variable that a loop or a branch assigns to"),
    ],
)
def test_what_a_graph_without_state_cannot_do_is_a_gap(case, reason):
    with pytest.raises(UnsupportedError, match=reason):
        lower(converter.read(FIXTURES / case))


def test_what_hands_a_reference_on_is_not_looked_at():
    """TensorFlow shows there what the variable holds in the end, and not what was read."""
    graph = lower(converter.read(FIXTURES / "counted"))
    looked_at = {trace.class_name for trace in graph.traces}
    assert "Mul" in looked_at
    assert "Identity" not in looked_at


@pytest.mark.parametrize("case", RUNS)
def test_runs_in_a_row_are_those_of_tensorflow(case):
    stored = np.load(FIXTURES / "runs" / f"{case}.npz")
    bundle = converter.read(FIXTURES / case)
    graph = lower(bundle, state="io")
    expected = {n.partition(":")[2] for n in stored.files if n.startswith("0:present.")}
    assert {s.output for s in graph.states} == expected
    assert graph.inputs == ["x", *(s.input for s in graph.states)]
    assert graph.outputs[-len(expected) :] == [s.output for s in graph.states]
    assert not graph.unkept
    model = onnx_run.session(graph, bundle.weights)
    feeds = {}
    for state in describe_states(graph, bundle.weights):
        value = np.asarray(state["initial"], graph.specs[state["input"]].dtype)
        feeds[state["input"]] = np.broadcast_to(value, state["shape"])
    for run in range(3):
        got = onnx_run.run_named(model, {"x": stored[f"{run}.x"], **feeds})
        theirs = {n.partition(":")[2]: stored[n] for n in stored.files if n.startswith(f"{run}:")}
        assert got.keys() == theirs.keys()
        for name, value in theirs.items():
            assert (got[name].dtype, got[name].shape) == (value.dtype, value.shape), name
            np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
        feeds = {s.input: got[s.output] for s in graph.states}


def test_a_graph_without_assignments_says_so():
    graph = lower(converter.read(FIXTURES / "whole"), state="io")
    assert not graph.states
    assert "state='io': the source assigns no state between its runs" in graph.notes


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("gap_grown", "a table that the model itself changes"),
        ("gap_chosen", "a variable that a loop or a branch assigns to: 'Variable'"),
    ],
)
def test_state_that_cannot_be_an_input_is_refused(case, reason):
    with pytest.raises(UnsupportedError, match=reason):
        lower(converter.read(FIXTURES / case), state="io")
