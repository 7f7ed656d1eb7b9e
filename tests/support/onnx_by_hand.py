"""Small ONNX files, written by hand with the onnx package."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
helper = pytest.importorskip("onnx.helper")
numpy_helper = pytest.importorskip("onnx.numpy_helper")

TYPES = {
    "float32": 1, "uint8": 2, "int32": 6, "int64": 7, "string": 8, "bool": 9, "float16": 10,
    "float64": 11, "bfloat16": 16,
}  # fmt: skip


def value(name, dtype, *shape):
    return helper.make_tensor_value_info(name, TYPES[dtype], shape)


def written(path, nodes, inputs, outputs, weights=()):
    """Write a graph by hand; nodes are (op, inputs, outputs, attributes)."""
    made = []
    for op, given, results, *attributes in nodes:
        kind = {"domain": "ai.onnx.ml"} if op == "LabelEncoder" else {}
        made.append(helper.make_node(
            op, given.split(), results.split(), **kind, **(attributes[0] if attributes else {})
        ))  # fmt: skip
    initializers = [numpy_helper.from_array(np.asarray(w), n) for n, w in dict(weights).items()]
    graph = helper.make_graph(made, "g", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path
