"""Graphs and ONNX files as onnxruntime runs them on the CPU, and what they are compared with."""

import os

import numpy as np
import pytest

from converter.lower import emit
from converter.lower.graph import Node, Spec
from converter.verification.compare import coarsest_dtype

onnxruntime = pytest.importorskip("onnxruntime")

BFLOAT16, FLOAT = 16, 1  # as ONNX numbers them


def onnx_bytes(graph, weights):
    """Return the ONNX file of a graph."""
    pieces = emit.model(graph, weights).pieces()
    return b"".join(p if isinstance(p, bytes) else p.read() for p in pieces)


def write_onnx(path, graph, weights):
    """Write the ONNX file of a graph; return its path."""
    path.write_bytes(onnx_bytes(graph, weights))
    return path


def session(model, weights=None):
    """Return a session of a graph and its weights, of a file, or of a file's bytes."""
    if not isinstance(model, (bytes, str, os.PathLike)):
        model = onnx_bytes(model, weights or {})
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(model, *arrays, weights=None):
    """Return the outputs of a session, or of what `session` takes, for inputs in their order."""
    running = model if isinstance(model, onnxruntime.InferenceSession) else session(model, weights)
    names = [spec.name for spec in running.get_inputs()]
    return running.run(None, dict(zip(names, map(feedable, arrays), strict=True)))


def run_named(model, arrays, weights=None):
    """Return the outputs by their names; arrays that are no input are left out."""
    running = model if isinstance(model, onnxruntime.InferenceSession) else session(model, weights)
    fed = {spec.name: feedable(arrays[spec.name]) for spec in running.get_inputs()}
    names = [spec.name for spec in running.get_outputs()]
    return dict(zip(names, running.run(None, fed), strict=True))


def feedable(array):
    """Return an array as onnxruntime takes it: strings as objects."""
    return array.astype(object) if array.dtype.kind == "U" else array


def cast_bfloat16(graph):
    """Cast inputs and outputs that numpy, and so onnxruntime's Python, has no dtype for."""
    for i, name in enumerate(graph.inputs):
        if graph.specs[name].dtype == "bfloat16":
            graph.nodes.insert(0, Node("Cast", [f"{name}:wide"], [name], {"to": BFLOAT16}))
            graph.specs[f"{name}:wide"] = Spec("float32", graph.specs[name].shape)
            graph.inputs[i] = f"{name}:wide"
    for i, name in enumerate(graph.outputs):
        if graph.specs[name].dtype == "bfloat16":
            graph.nodes.append(Node("Cast", [name], [f"{name}:wide"], {"to": FLOAT}))
            graph.specs[f"{name}:wide"] = Spec("float32", graph.specs[name].shape)
            graph.outputs[i] = f"{name}:wide"


def narrowest(graph):
    """Return the narrowest dtype that a graph computes in: it is what its tolerance goes by."""
    kinds = {spec.dtype for spec in graph.specs.values()}
    return coarsest_dtype(kinds | ({"float32"} if graph.narrowed else set()))


def agree(found, expected, relative, name=""):
    """Compare dtype, shape and values; floats within a share of the largest one."""
    assert found.shape == expected.shape, name
    if expected.dtype.kind in "UO":
        assert found.tolist() == expected.tolist(), name
        return
    assert found.dtype == expected.dtype, name
    a, b = found.astype(np.float64), expected.astype(np.float64)
    assert np.array_equal(np.isnan(a), np.isnan(b)), name
    infinite = np.isinf(b)
    assert np.array_equal(a[infinite], b[infinite]), name
    finite = np.isfinite(b)
    scale = max(float(np.abs(b[finite]).max(initial=0)), 1e-3)
    bound = relative * scale if expected.dtype.kind == "f" else 0
    assert np.abs(a[finite] - b[finite]).max(initial=0) <= bound, name


def as_declared(spec, found):
    """See that an output has the sizes that the graph declares of it."""
    for declared, size in zip(spec.shape, found.shape, strict=True):
        assert not isinstance(declared, int) or declared == size, spec.name


def check_stored(model, stored, relative):
    """Run a model on x0, x1, … and compare with y0, y1, … as they are stored."""
    running = session(model)
    found = run(running, *(stored[f"x{i}"] for i in range(len(running.get_inputs()))))
    assert len(found) == sum(key.startswith("y") for key in stored)
    for i, ours in enumerate(found):
        agree(ours, stored[f"y{i}"], relative, f"y{i}")
