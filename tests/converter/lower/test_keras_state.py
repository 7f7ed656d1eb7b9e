"""Models of fixtures/keras_state: three runs of our graph in a row are three calls of Keras."""

from pathlib import Path

import numpy as np
import onnx_run
import pytest
from repository import FIXTURES

import converter
from converter.graphs import lower_signature
from converter.lower.states import describe_states

FOLDER = FIXTURES / "keras_state"
MODELS = sorted(p.name for p in FOLDER.iterdir() if p.suffix in (".keras", ".h5"))
RUNS = 3


@pytest.mark.parametrize("name", MODELS)
def test_runs_in_a_row_are_those_of_keras(name: str) -> None:
    bundle = converter.read(FOLDER / name)
    graph = lower_signature(bundle, state="io")
    arrays = np.load(FOLDER / f"{Path(name).stem}.npz")
    expected = [n.partition(":")[2] for n in arrays.files if n.startswith("0:present.")]
    assert [s.output for s in graph.states] == expected
    assert graph.inputs == ["x", *(s.input for s in graph.states)]
    assert graph.outputs[-len(expected) :] == expected
    model = onnx_run.session(graph, bundle.weights)
    rows = describe_states(graph, bundle.weights)
    assert {row["initial"] for row in rows} == {0}
    feeds = {r["input"]: np.zeros(r["shape"], graph.specs[r["input"]].dtype) for r in rows}
    for run in range(RUNS):
        got = onnx_run.run_named(model, {"x": arrays[f"{run}.x"], **feeds})
        for number, output in enumerate(graph.outputs):
            place = output if output in expected else number
            theirs = arrays[f"{run}:{place}"]
            assert (got[output].dtype, got[output].shape) == (theirs.dtype, theirs.shape)
            np.testing.assert_allclose(got[output], theirs, atol=2e-6, rtol=2e-5, err_msg=output)
        feeds = {s.input: got[s.output] for s in graph.states}


@pytest.mark.parametrize("name", MODELS)
def test_without_state_every_run_is_the_first(name: str) -> None:
    bundle = converter.read(FOLDER / name)
    graph = lower_signature(bundle)
    arrays = np.load(FOLDER / f"{Path(name).stem}.npz")
    assert (graph.inputs, graph.states) == (["x"], [])
    got = onnx_run.run(onnx_run.session(graph, bundle.weights), arrays["0.x"])
    for number, value in enumerate(got):
        np.testing.assert_allclose(value, arrays[f"0:{number}"], atol=2e-6, rtol=2e-5)


def test_all_kinds_of_layers_are_there() -> None:
    kept = {"cells", "directions", "double", "images", "layers", "nested"}
    assert kept < {Path(name).stem for name in MODELS}
