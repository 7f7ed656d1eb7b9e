"""``--from-checkpoint``: the joined graph computes what TensorFlow did with these variables."""

import json
import shutil

import numpy as np
import onnx_run
import pytest
from repository import ROOT

from converter.cli.app import run

HERE = ROOT / "fixtures" / "tensorflow" / "joined"


def convert(graph, checkpoint, out, *options):
    source = ["SOURCE", str(HERE / graph), "--from-checkpoint", str(HERE / checkpoint)]
    return run([*source, "-o", str(out), "-q", "--verify", "weights", *options])


@pytest.mark.parametrize(
    ("graph", "checkpoint"),
    [
        ("graph.pb", "named"),
        ("graph.pb", "objects"),
        ("graph.pbtxt", "named"),
        ("parts.meta", "parts"),
    ],
)
def test_the_graph_has_the_checkpoints_values(tmp_path, graph, checkpoint):
    out = tmp_path / "out.onnx"
    assert convert(graph, checkpoint, out, "--to", "onnx") == 0
    kind = "parts" if checkpoint == "parts" else "graph"
    with np.load(HERE / "outputs.npz") as stored:
        found = onnx_run.run_named(out, {"x": stored[f"x|{kind}"]})["y"]
        np.testing.assert_allclose(found, stored[f"y|{kind}"], rtol=1e-5, atol=1e-6)


def test_a_bundle_names_both_sources(tmp_path):
    out = tmp_path / "out"
    assert convert("graph.pb", "objects", out) == 0
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["source"]["files"] == 3  # the graph, the index, the data
    assert manifest["source"]["recorded"]["checkpoint"] == "objects"


def test_what_cannot_be_joined(tmp_path):
    out = tmp_path / "out"
    assert convert("graph.pb", "other", out) == 3
    assert convert("graph.pb", "twins", out) == 4
    assert convert("outputs.npz", "named", out) in (2, 3)
    assert convert("graph.pb", "named", out, "--from", "savedmodel") == 2
    assert convert("graph.pb", "named", out, "--to", "savedmodel") == 4
    assert not out.exists()
    prefix = tmp_path / "ckpt"
    for end in (".index", ".data-00000-of-00001"):
        shutil.copy(HERE / f"named{end}", f"{prefix}{end}")
    assert convert("graph.pb", prefix, prefix, "--force") == 2
