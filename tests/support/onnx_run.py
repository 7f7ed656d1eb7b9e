"""Graphs and ONNX files as onnxruntime runs them."""

import io

import pytest

from converter.lower import emit

onnxruntime = pytest.importorskip("onnxruntime")


def session(graph, bundle):
    data = io.BytesIO()
    for piece in emit.model(graph, bundle.weights).pieces():
        data.write(piece if isinstance(piece, bytes) else piece.read())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(data.getvalue(), options, providers=providers)
