"""Every row of fixtures/tf_ops: our graph, run by onnxruntime, gives what TensorFlow gave."""

import io
import zipfile
from functools import cache

import numpy as np
import pytest
from repository import ROOT

import converter
from converter.lower import OPSET, emit, lower
from converter.lower.graph import Node, Spec
from converter.verification.compare import coarsest
from formats.errors import UnsupportedError

onnxruntime = pytest.importorskip("onnxruntime")

FIXTURES = ROOT / "fixtures" / "tf_ops"
# Of the largest output, by the narrowest dtype that a row computes in; what onnxruntime computes
# of float64 in float32 alone is that.
TOLERANCES = {"bfloat16": 3e-2, "float16": 5e-3, "float32": 2e-5, "float64": 1e-8}


@cache
def archive(family):
    return zipfile.ZipFile(FIXTURES / f"{family}.zip")


def rows():
    for path in sorted(FIXTURES.glob("*.zip")):
        for name in archive(path.stem).namelist():
            if name.endswith(".pb"):
                yield pytest.param(path.stem, name.removesuffix(".pb"), id=f"{path.stem}:{name}")


def session(path, graph, bundle):
    with path.open("wb") as f:
        for piece in emit.model(graph, bundle.weights).pieces():
            f.write(piece if isinstance(piece, bytes) else piece.read())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def widen(graph):
    """Cast inputs and outputs that numpy, and so onnxruntime's Python, has no dtype for."""
    for i, name in enumerate(graph.inputs):
        if graph.specs[name].dtype == "bfloat16":
            graph.nodes.insert(0, Node("Cast", [f"{name}:wide"], [name], {"to": 16}))
            graph.specs[f"{name}:wide"] = Spec("float32", graph.specs[name].shape)
            graph.inputs[i] = f"{name}:wide"
    for i, name in enumerate(graph.outputs):
        if graph.specs[name].dtype == "bfloat16":
            graph.nodes.append(Node("Cast", [name], [f"{name}:wide"], {"to": 1}))
            graph.specs[f"{name}:wide"] = Spec("float32", graph.specs[name].shape)
            graph.outputs[i] = f"{name}:wide"


@pytest.mark.parametrize(("family", "name"), list(rows()))
def test_the_graph_computes_what_tensorflow_computes(tmp_path, family, name):
    data = archive(family)
    source = tmp_path / "model.pb"
    source.write_bytes(data.read(f"{name}.pb"))
    stored = np.load(io.BytesIO(data.read(f"{name}.npz")))
    bundle = converter.read(source)
    opset = int(stored["opset"]) if "opset" in stored.files else OPSET
    if "gap" in stored.files:
        with pytest.raises(UnsupportedError) as caught:
            lower(bundle, opset)
        assert str(stored["gap"]) in str(caught.value)
        return
    graph = lower(bundle, opset)
    kinds = {s.dtype for s in graph.specs.values()} | ({"float32"} if graph.narrowed else set())
    widen(graph)
    model = session(tmp_path / "model.onnx", graph, bundle)
    fed = {}
    for spec in model.get_inputs():
        array = stored[spec.name.removesuffix(":wide")]
        fed[spec.name] = array.astype(object) if array.dtype.kind == "U" else array
    # What loops leave unread counts as outputs, too: only those of the row have a reference.
    wanted = [o for o in model.get_outputs() if o.name.startswith("out")]
    found = model.run([o.name for o in wanted], fed)
    expected = [stored[k] for k in stored.files if k.startswith("out")]
    relative = TOLERANCES[coarsest(kinds)]
    assert len(found) == len(expected)
    for ours, theirs, spec in zip(found, expected, wanted, strict=True):
        assert ours.shape == theirs.shape, spec.name
        if theirs.dtype.kind == "U":
            assert ours.tolist() == theirs.tolist()
            continue
        assert ours.dtype == theirs.dtype, spec.name
        a, b = ours.astype(np.float64), theirs.astype(np.float64)
        assert np.array_equal(np.isnan(a), np.isnan(b)), spec.name
        infinite = np.isinf(b)
        assert np.array_equal(a[infinite], b[infinite]), spec.name
        finite = np.isfinite(b)
        scale = max(float(np.abs(b[finite]).max(initial=0)), 1e-3)
        bound = relative * scale if theirs.dtype.kind == "f" else 0
        assert np.abs(a[finite] - b[finite]).max(initial=0) <= bound, spec.name
        # What the graph declares of its outputs must be what it computes.
        if graph.specs[spec.name].unranked:
            continue
        for declared, size in zip(spec.shape, ours.shape, strict=True):
            assert not isinstance(declared, int) or declared == size
