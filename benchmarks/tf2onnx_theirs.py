"""Convert every kept case with tf2onnx, as its tests do: python tf2onnx_theirs.py CASES."""

import json
import os
import sys
from pathlib import Path

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
import numpy as np
import tensorflow as tf
from tf2onnx import optimizer
from tf2onnx.tf_loader import tf_reset_default_graph, tf_session
from tf2onnx.tfonnx import process_tf_graph
from tf2onnx_comparison import drive

OPSET = int(os.environ["TF2ONNX_TEST_OPSET"])


def theirs(folder, case, data):
    graph = tf.compat.v1.GraphDef.FromString((folder / "graph.pb").read_bytes())
    tables = {k.encode(): tuple(map(keys, pair)) for k, pair in case["tables"].items()} or None
    tf_reset_default_graph()
    with tf_session() as session:
        tf.import_graph_def(graph, name="")
        made = process_tf_graph(
            session.graph, opset=OPSET, input_names=case["inputs"], output_names=case["outputs"],
            initialized_tables=tables, **case["arguments"],
        )  # fmt: skip
        if case["optimize"]:
            made = optimizer.optimize_graph(made, catch_errors=False)
        model = made.make_model("test").SerializeToString()
    return model, case["outputs"], {k: data[f"fed{i}"] for i, k in enumerate(case["fed"])}


def keys(values):
    if values and isinstance(values[0], str):
        return np.array([v.encode() for v in values], object)
    return np.asarray(values)


if __name__ == "__main__":
    root = Path(sys.argv[1])
    (root / "theirs.json").write_text(json.dumps(drive(root, theirs)))
