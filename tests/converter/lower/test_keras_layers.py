"""Every row of fixtures/keras_layers: our graph, run by onnxruntime, gives what Keras gave."""

import io
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from repository import ROOT

import converter
from converter.lower import emit
from converter.lower.graph import Node, Spec
from converter.lower.keras.lowering import lower
from converter.verification.compare import coarsest

onnxruntime = pytest.importorskip("onnxruntime")

DTYPES = {"tensor(int32)": np.int32, "tensor(string)": object}
FIXTURES = ROOT / "fixtures" / "keras_layers"


@cache
def archive(family):
    return zipfile.ZipFile(FIXTURES / f"{family}.zip")


def rows():
    for path in sorted(FIXTURES.glob("*.zip")):
        for name in archive(path.stem).namelist():
            if not name.endswith(".npz"):
                yield pytest.param(path.stem, name, id=f"{path.stem}:{name}")


def onnx_file(path, graph, bundle):
    with path.open("wb") as f:
        for piece in emit.model(graph, bundle.weights).pieces():
            f.write(piece if isinstance(piece, bytes) else piece.read())
    return path


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


# Of the largest output, by the narrowest dtype that a model computes in; where onnxruntime has
# something of float64 in float32 alone, that is float32. TensorFlow rounds constants of float64
# to float32, as gelu's root of two.
TOLERANCES = {"bfloat16": 3e-2, "float16": 5e-3, "float32": 2e-5, "float64": 1e-8}


def widen(graph):
    """Cast outputs that numpy, and so onnxruntime's Python, has no dtype for."""
    for i, name in enumerate(graph.outputs):
        if graph.specs[name].dtype == "bfloat16":
            graph.nodes.append(Node("Cast", [name], [f"{name}:wide"], {"to": 1}))
            graph.specs[f"{name}:wide"] = Spec("float32", graph.specs[name].shape)
            graph.outputs[i] = f"{name}:wide"


@pytest.mark.parametrize(("family", "name"), list(rows()))
def test_the_graph_computes_what_keras_computes(tmp_path, family, name):
    data = archive(family)
    source = tmp_path / f"model{Path(name).suffix}"
    source.write_bytes(data.read(name))
    stored = np.load(io.BytesIO(data.read(f"{Path(name).stem}.npz")))
    bundle = converter.read(source)
    graph = lower(bundle)
    kinds = [graph.specs[name].dtype for name in graph.outputs]
    widen(graph)
    model = session(onnx_file(tmp_path / "model.onnx", graph, bundle))
    inputs = [stored[f"in{i}"] for i in range(len(model.get_inputs()))]
    fed = {
        spec.name: array.astype(DTYPES.get(spec.type, array.dtype))
        for spec, array in zip(model.get_inputs(), inputs, strict=True)
    }
    found = model.run(None, fed)
    keys = [k for k in stored.files if k.startswith("out")]
    assert [k.endswith(".bfloat16") for k in keys] == [kind == "bfloat16" for kind in kinds]
    expected = [stored[k] for k in keys]
    kinds = {s.dtype for s in graph.specs.values()} | ({"float32"} if graph.narrowed else set())
    relative = TOLERANCES[coarsest(kinds)]
    for ours, theirs, spec in zip(found, expected, model.get_outputs(), strict=True):
        assert ours.shape == theirs.shape
        if theirs.dtype.kind == "U":
            assert ours.tolist() == theirs.tolist()
            continue
        assert ours.dtype == theirs.dtype
        scale = max(float(np.abs(theirs.astype(np.float64)).max()), 1e-3)
        wide = [a.astype(np.float64) for a in (ours, theirs)]
        assert np.abs(wide[0] - wide[1]).max() <= relative * scale, spec.name
        # What the graph declares of its outputs must be what it computes.
        for declared, size in zip(spec.shape, ours.shape, strict=True):
            assert not isinstance(declared, int) or declared == size
