"""Programs of fixtures/torch_state: three runs of our graph in a row are three runs of torch."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import onnx_run
import pytest
from repository import FIXTURES

from converter.graphs import lower_signature
from converter.lower.graph import Graph
from converter.lower.states import describe_states
from converter.options import parse_inputs
from formats import catalog
from formats.artifact import Artifact
from formats.core.bundle import Bundle
from formats.errors import UnsupportedError

FOLDER = FIXTURES / "torch_state"
PROGRAMS = json.loads((FOLDER / "programs.json").read_text())
KEPT = [name for name, entry in PROGRAMS.items() if entry["states"]]
RUNS = 3


def unpack(name: str, folder: Path) -> tuple[Path, "np.lib.npyio.NpzFile"]:
    """Return a program's file, and what torch was given and gave."""
    file = PROGRAMS[name]["file"]
    with zipfile.ZipFile(FOLDER / "programs.zip") as held:
        (folder / file).write_bytes(held.read(file))
        return folder / file, np.load(io.BytesIO(held.read(f"{name}.npz")))


def lower_program(name: str, folder: Path, state: str = "io") -> tuple[Bundle, Graph]:
    path, _ = unpack(name, folder)
    bundle = catalog.read(Artifact(path))
    inputs = parse_inputs(PROGRAMS[name]["inputs"])
    return bundle, lower_signature(bundle, inputs=inputs, state=state)


def first_values(graph: Graph, bundle: Bundle, rows: int) -> dict[str, np.ndarray]:
    """Return the first values of the states, as a user makes them of what a file records."""
    found = {}
    for state in describe_states(graph, bundle.weights):
        shape = [n if isinstance(n, int) else rows for n in state["shape"]]
        value = np.asarray(state["initial"], graph.specs[state["input"]].dtype)
        found[state["input"]] = np.broadcast_to(value, shape)
    return found


@pytest.mark.parametrize("name", KEPT)
def test_runs_in_a_row_are_those_of_torch(name: str, tmp_path: Path) -> None:
    bundle, graph = lower_program(name, tmp_path)
    _, arrays = unpack(name, tmp_path)
    assert sorted(s.tensor for s in graph.states) == sorted(PROGRAMS[name]["states"])
    assert graph.inputs == ["x", *(s.input for s in graph.states)]
    assert graph.outputs[1:] == [s.output for s in graph.states]
    assert not graph.unkept
    model = onnx_run.session(graph, bundle.weights)
    feeds = first_values(graph, bundle, len(arrays["0.x"]))
    for i in range(RUNS):
        got = onnx_run.run_named(model, {"x": arrays[f"{i}.x"], **feeds})
        wanted = {n.partition(":")[2]: arrays[n] for n in arrays.files if n.startswith(f"{i}:")}
        assert got.keys() == wanted.keys()
        for output, value in wanted.items():
            assert (got[output].dtype, got[output].shape) == (value.dtype, value.shape), output
            np.testing.assert_allclose(got[output], value, atol=2e-5, rtol=2e-5, err_msg=output)
        feeds = {s.input: got[s.output] for s in graph.states}


@pytest.mark.parametrize("name", KEPT)
def test_without_state_the_first_run_is_torchs(name: str, tmp_path: Path) -> None:
    bundle, graph = lower_program(name, tmp_path, "drop")
    _, arrays = unpack(name, tmp_path)
    assert graph.inputs == ["x"]
    assert set(PROGRAMS[name]["states"]) <= {*graph.unkept}
    assert not graph.states
    (output,) = graph.outputs
    got = onnx_run.run_named(onnx_run.session(graph, bundle.weights), {"x": arrays["0.x"]})
    np.testing.assert_allclose(got[output], arrays[f"0:{output}"], atol=2e-5, rtol=2e-5)


def test_assumptions_about_the_first_run_are_told(tmp_path: Path) -> None:
    _, graph = lower_program("voice16-script", tmp_path)
    assert any("_last_sr is 16000 after each run" in note for note in graph.notes)
    assert any("state _state is stored in another shape" in note for note in graph.notes)
    assert [(s.tensor, s.shape, s.initial) for s in graph.states] == [
        ("_context", ("batch", 64), 0),
        ("_state", (2, "batch", 16), 0),
    ]


def test_a_flag_that_can_be_an_input_is_one(tmp_path: Path) -> None:
    _, graph = lower_program("first-script", tmp_path)
    assert graph.specs["past.first"].dtype == "bool"
    assert not any("after each run" in note for note in graph.notes)


def test_a_program_without_state_says_so(tmp_path: Path) -> None:
    with zipfile.ZipFile(FIXTURES / "torch_programs" / "scripts.zip") as held:
        (tmp_path / "a.pt").write_bytes(held.read("convolutional-script.pt"))
    bundle = catalog.read(Artifact(tmp_path / "a.pt"))
    plain = lower_signature(bundle)
    graph = lower_signature(bundle, state="io")
    assert "state='io': the source assigns no state between its runs" in graph.notes
    assert onnx_run.onnx_bytes(plain, bundle.weights) == onnx_run.onnx_bytes(graph, bundle.weights)


def test_state_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="state hs, which is 2 values together"):
        lower_program("list-script", tmp_path)
    assert lower_program("list-script", tmp_path, "drop")[1].unkept == ["hs"]
