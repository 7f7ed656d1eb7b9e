"""Convolutions and poolings of lines are of lines, after TensorFlow has made images of one row."""

import io

import numpy as np
import pytest

import converter
from converter import passes
from converter.lower import lower
from tests.converter.lower.test_tf_ops import archive, session

pytest.importorskip("onnxruntime")

# Rows, and how many convolutions and poolings they have; and what stays, for good reasons.
ROWS = (
    ("convolution", "lines", 6), ("convolution", "lines-any", 6), ("convolution", "conv1d", 2),
    ("convolution", "conv1d-any", 1), ("convolution", "atrous-lines", 1),
    ("convolution", "atrous-lines-any", 1), ("pooling", "lines", 6), ("pooling", "lines-any", 4),
)  # fmt: skip


@pytest.mark.parametrize(("family", "name", "count"), ROWS)
def test_they_compute_the_same(tmp_path, family, name, count):
    data = archive(family)
    (tmp_path / "model.pb").write_bytes(data.read(f"{name}.pb"))
    stored = np.load(io.BytesIO(data.read(f"{name}.npz")))
    bundle = converter.read(tmp_path / "model.pb")
    graph = passes.run(lower(bundle), bundle.weights)
    of_windows = [n for n in graph.nodes if n.op_type in ("AveragePool", "Conv", "MaxPool")]
    assert len(of_windows) == count
    assert {len(graph.specs[n.outputs[0]].shape) for n in of_windows} == {3}
    model = session(tmp_path / "model.onnx", graph, bundle)
    found = model.run(None, {i.name: stored[i.name] for i in model.get_inputs()})
    expected = [stored[k] for k in stored.files if k.startswith("out")]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() <= 2e-5 * np.abs(theirs).max()


def test_images_of_one_row_that_are_read_twice_stay(tmp_path):
    data = archive("convolution")
    (tmp_path / "model.pb").write_bytes(data.read("lines.pb"))
    bundle = converter.read(tmp_path / "model.pb")
    graph = lower(bundle)
    before = sum(n.op_type == "Squeeze" for n in graph.nodes)
    assert before == 6
    # An output is read, too: what yields it must stay as it is.
    squeeze = next(n for n in graph.nodes if n.op_type == "Squeeze")
    graph.outputs.append(squeeze.inputs[0])
    graph = passes.run(graph, bundle.weights)
    assert sum(n.op_type == "Squeeze" for n in graph.nodes) == 1
