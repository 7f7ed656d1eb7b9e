"""TensorArrays of TensorFlow before 1.0, whose ops today's TensorFlow no longer makes."""

import numpy as np
import onnx_run

import converter
from converter.graphs import lower_signature as lower

NODE = 'node {{ name: "{}" op: "{}" {} {} }}\n'
FLOAT, INT = "{ type: DT_FLOAT }", "{ type: DT_INT32 }"


def node(name, op, *inputs, **attributes):
    inputs = " ".join(f'input: "{i}"' for i in inputs)
    attributes = " ".join(f'attr {{ key: "{k}" value {v} }}' for k, v in attributes.items())
    return NODE.format(name, op, inputs, attributes)


def number(name, kind, field, value):
    tensor = f"{{ tensor {{ dtype: {kind} tensor_shape {{}} {field}: {value} }} }}"
    return node(name, "Const", dtype=f"{{ type: {kind} }}", value=tensor)


GRAPH = (
    node("x", "Placeholder", dtype=FLOAT, shape="{ shape { dim { size: 3 } dim { size: 4 } } }")
    + number("three", "DT_INT32", "int_val", 3)
    + number("two", "DT_INT32", "int_val", 2)
    + number("flow", "DT_FLOAT", "float_val", 0.0)
    + node("array", "TensorArray", "three", dtype=FLOAT, tensor_array_name='{ s: "a" }')
    + node("filled", "TensorArrayUnpack", "array", "x", "flow", T=FLOAT)
    + node("one", "TensorArrayRead", "array", "two", "filled", dtype=FLOAT)
    + node("other", "TensorArray", "three", dtype=FLOAT)
    + node("written", "TensorArrayWrite", "other", "two", "one", "flow_2", T=FLOAT)
    + number("flow_2", "DT_FLOAT", "float_val", 0.0)
    + node("end", "TensorArrayClose", "array")
    + node("packed", "TensorArrayPack", "array", "filled", dtype=FLOAT)
    + node("y", "Mul", "packed", "one", T=FLOAT)
)


def test_arrays_are_packed_and_unpacked(tmp_path):
    path = tmp_path / "model.pbtxt"
    path.write_text(GRAPH)
    bundle = converter.read(path)
    graph = lower(bundle)
    x = np.random.default_rng(5).standard_normal((3, 4)).astype("f4")
    y = onnx_run.run_named(graph, {"x": x}, bundle.weights)["y"]
    assert np.array_equal(y, x * x[2])
