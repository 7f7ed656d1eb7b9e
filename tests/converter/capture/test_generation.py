"""Graphs of a model's parts: their files, the folder that Optimum loads, and which are wanted."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import converter
from converter.capture.generation import PARTS, split_model
from converter.graphs import _select_parts
from converter.lower.graph import Graph, Node, Spec, Weight
from converter.options import Options
from converter.verification.verify import _graph_files
from converter.write.graph_files import file_names
from converter.write.onnx import OnnxFiles
from formats.errors import UsageError

ENCODER, DECODER, WITH_PAST = PARTS


def graph(signature: str) -> Graph:
    spec = Spec("float32", (3,))
    return Graph(
        "main_graph", 18, [Node("Add", ["x", "w"], ["y"])], ["x"], ["y"],
        {"x": spec, "w": spec, "y": spec}, {"w": Weight("w")}, signature=signature,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    made.mkdir()
    save_file({"w": np.arange(3, dtype="f4")}, made / "model.safetensors")
    (made / "config.json").write_text(json.dumps({"model_type": "t5"}))
    (made / "generation_config.json").write_text("{}")
    return made


def write(folder: Path, signatures: list[str], out: Path) -> list[str]:
    """Return the names of what is written of graphs with these signatures."""
    plan = OnnxFiles(converter.read(folder), [graph(name) for name in signatures], Options())
    plan.settle(out)
    payload = out.with_name("payload")
    payload.mkdir()
    for _ in plan.write(payload, verify=False, sync=False):
        pass
    return sorted(path.name for path in payload.iterdir())


def test_parts_have_the_names_that_optimum_looks_for() -> None:
    graphs = [graph(name) for name in PARTS]
    assert file_names(graphs) == [f"{name}.onnx" for name in PARTS]
    assert file_names([graph("a"), graph("b")]) == ["model.onnx", "model.b.onnx"]


def test_a_folder_has_the_configuration_and_a_file_has_not(folder: Path, tmp_path: Path) -> None:
    configuration = ["config.json", "generation_config.json"]
    assert write(folder, [""], tmp_path / "x.onnx") == ["model.onnx"]
    (tmp_path / "payload" / "model.onnx").rename(tmp_path / "x.onnx")
    (tmp_path / "payload").rmdir()
    assert write(folder, [""], tmp_path / "x") == [*configuration, "model.onnx"]


def test_the_graphs_of_a_written_folder_are_found_again(folder: Path, tmp_path: Path) -> None:
    written = write(folder, [*PARTS], tmp_path / "x")
    assert written == sorted(["config.json", "generation_config.json", *file_names(
        [graph(name) for name in PARTS]
    )])  # fmt: skip
    assert [p.stem for p in _graph_files(tmp_path / "payload")] == [*PARTS]


def test_parts_are_chosen_by_their_names() -> None:
    graphs = [graph(name) for name in (ENCODER, DECODER)]
    assert _select_parts(graphs, Options(), only_one=False) == graphs
    assert _select_parts(graphs, Options(signatures=(DECODER,)), only_one=True) == graphs[1:]
    with pytest.raises(UsageError, match=r"2 graphs in one file.*out= a folder's name"):
        _select_parts(graphs, Options(to="onnx"), only_one=True)
    with pytest.raises(UsageError, match=r"2 graphs in one model.*layout=repository"):
        _select_parts(graphs, Options(to="triton"), only_one=True)
    with pytest.raises(UsageError, match="has no part 'decoder_with_past_model'"):
        _select_parts(graphs, Options(signatures=(WITH_PAST,)), only_one=False)
    with pytest.raises(UsageError, match="none: it has one graph"):
        _select_parts([graph("")], Options(signatures=("head",)), only_one=False)


def test_a_model_without_an_encoder_has_no_parts() -> None:
    model = type("Plain", (), {"forward": lambda self, input_ids: None})()
    with pytest.raises(ValueError, match="Plain has no encoder_model"):
        split_model(None, model, [], None, ENCODER)
