"""Every row of fixtures/torch_ops: our graph, run by onnxruntime, gives what torch gave.

Each is converted from its archive, without torch, and run at two sizes of its dynamic axes.
"""

import io
import tarfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import converter
from converter.lower import OPSET, emit
from converter.lower.graph import Node, Spec
from converter.lower.torch import matrix
from converter.lower.torch.lowering import lower
from converter.verify.comparison import coarsest
from formats.errors import UnsupportedError

onnxruntime = pytest.importorskip("onnxruntime")

FIXTURES = Path(__file__).parents[3] / "fixtures" / "torch_ops"
# Of the largest output, by the narrowest dtype that a row computes in.
TOLERANCES = {"bfloat16": 2e-2, "float16": 4e-3, "float32": 1e-5, "float64": 1e-9}


@cache
def archive(family):
    with tarfile.open(FIXTURES / f"{family}.tar.xz") as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def rows():
    for path in sorted(FIXTURES.glob("*.tar.xz")):
        family = path.name.removesuffix(".tar.xz")
        for name in archive(family):
            if name.endswith(".pt2"):
                yield pytest.param(family, name, id=f"{family}:{name.removesuffix('.pt2')}")


def session(graph, bundle):
    data = io.BytesIO()
    for piece in emit.model(graph, bundle.weights).pieces():
        data.write(piece if isinstance(piece, bytes) else piece.read())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(data.getvalue(), options, providers=providers)


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
def test_the_graph_computes_what_torch_computes(tmp_path, family, name):
    data = archive(family)
    source = tmp_path / "model.pt2"
    source.write_bytes(data[name])
    stored = np.load(io.BytesIO(data[name.rsplit(".", 2)[0] + ".npz"]))
    bundle = converter.read(source)
    opset = int(stored["opset"]) if "opset" in stored.files else OPSET
    if "gap" in stored.files:
        with pytest.raises(UnsupportedError) as caught:
            lower(bundle, opset=opset)
        assert str(stored["gap"]) in str(caught.value)
        return
    graph = lower(bundle, opset=opset)
    kinds = {s.dtype for s in graph.specs.values()} | ({"float32"} if graph.narrowed else set())
    widen(graph)
    model = session(graph, bundle)
    relative = float(stored["tolerance"]) if "tolerance" in stored else TOLERANCES[coarsest(kinds)]
    for k in range(2):
        # What a program does not read is no input of its graph, but stays one of ours.
        fed = {spec.name: stored[f"in{k}_{i}"] for i, spec in enumerate(model.get_inputs())}
        found = model.run(None, fed)
        expected = [stored[n] for n in stored.files if n.startswith(f"out{k}_")]
        assert len(found) == len(expected)
        for ours, theirs, spec in zip(found, expected, model.get_outputs(), strict=True):
            compare(ours, theirs, spec, relative)


def compare(ours, theirs, spec, relative):
    assert ours.shape == theirs.shape, spec.name
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
    for declared, size in zip(spec.shape, ours.shape, strict=True):
        assert not isinstance(declared, int) or declared == size


def test_the_matrix_says_what_each_op_computes():
    found = matrix.rows()
    assert len(found) > 500
    assert all(row["computes"].endswith(".") for row in found)
