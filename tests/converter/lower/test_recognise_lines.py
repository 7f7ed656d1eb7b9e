"""Convolutions and poolings of lines are of lines, after TensorFlow has made images of one row."""

import numpy as np
import pytest
from onnx_run import run_named
from op_rows import opened

from converter import passes
from converter.lower import lower

# Rows, and how many convolutions and poolings they have; and what stays, for good reasons.
ROWS = (
    ("convolution", "lines", 6), ("convolution", "lines-any", 6), ("convolution", "conv1d", 2),
    ("convolution", "conv1d-any", 1), ("convolution", "atrous-lines", 1),
    ("convolution", "atrous-lines-any", 1), ("pooling", "lines", 6), ("pooling", "lines-any", 4),
)  # fmt: skip


@pytest.mark.parametrize(("family", "name", "count"), ROWS)
def test_they_compute_the_same(tmp_path, family, name, count):
    bundle, stored = opened("tf_ops", f"{family}.zip", f"{name}.pb", tmp_path)
    graph = passes.run(lower(bundle), bundle.weights)
    of_windows = [n for n in graph.nodes if n.op_type in ("AveragePool", "Conv", "MaxPool")]
    assert len(of_windows) == count
    assert {len(graph.specs[n.outputs[0]].shape) for n in of_windows} == {3}
    found = run_named(graph, stored, bundle.weights)
    expected = [stored[k] for k in stored.files if k.startswith("out")]
    for ours, theirs in zip(found.values(), expected, strict=True):
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() <= 2e-5 * np.abs(theirs).max()


def test_images_of_one_row_that_are_read_twice_stay(tmp_path):
    bundle, _ = opened("tf_ops", "convolution.zip", "lines.pb", tmp_path)
    graph = lower(bundle)
    before = sum(n.op_type == "Squeeze" for n in graph.nodes)
    assert before == 6
    # An output is read, too: what yields it must stay as it is.
    squeeze = next(n for n in graph.nodes if n.op_type == "Squeeze")
    graph.outputs.append(squeeze.inputs[0])
    graph = passes.run(graph, bundle.weights)
    assert sum(n.op_type == "Squeeze" for n in graph.nodes) == 1
