"""A pytest plugin: what the tests of tf2onnx build and expect is kept, and nothing is converted.

Each case is a folder: graph.pb (frozen), frozen/ and, of a session, whole/ (SavedModels of it),
data.npz and case.json. `tf2onnx_suite` runs it.
"""

import json
import os
import unittest
from pathlib import Path

import numpy as np

OUT = Path(os.environ["PEER_OUT"])
COUNTS: dict[str, int] = {}
# What tf2onnx is given for a case, as far as it is plain.
COMPARED = ("rtol", "atol", "mtol", "check_value", "check_shape", "check_dtype")
DEFAULTS = {"rtol": 1e-07, "atol": 1e-5, "mtol": None}


def pytest_collection_modifyitems():
    import backend_test_base

    backend_test_base.Tf2OnnxBackendTestBase.run_test_case = run_test_case


def run_test_case(
    self, func, feed_dict, input_names_with_port, output_names_with_port, *args,
    process_args=None, onnx_feed_dict=None, as_session=False, premade_placeholders=False,
    optimize=True, **case_arguments,
):  # fmt: skip
    """Stand in for their method of this name."""
    import backend_test_base as base
    import tensorflow as tf

    del input_names_with_port
    case_arguments.update(zip(COMPARED, args, strict=False))
    name = f"{type(self).__module__}.{self._testMethodName}"
    COUNTS[name] = COUNTS.get(name, 0) + 1
    folder = OUT / f"{name}.{COUNTS[name]}"
    folder.mkdir(parents=True, exist_ok=True)
    freeze = base.freeze_session

    def kept(session, *arguments, **keywords):
        save(tf, session, folder / "whole", feed_dict, output_names_with_port)
        return freeze(session, *arguments, **keywords)

    base.freeze_session = kept
    try:
        expected, graph, tables = self.freeze_and_run_tf(
            func, feed_dict, output_names_with_port, as_session, premade_placeholders, False
        )
    finally:
        base.freeze_session = freeze
    (folder / "graph.pb").write_bytes(graph.SerializeToString())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.import_graph_def(graph, name="")
        save(tf, session, folder / "frozen", feed_dict, output_names_with_port)
    fed = onnx_feed_dict or feed_dict
    np.savez(
        folder / "data.npz",
        **{f"in{i}": plain(v) for i, v in enumerate(feed_dict.values())},
        **{f"fed{i}": plain(v) for i, v in enumerate(fed.values())},
        **{f"out{i}": plain(v) for i, v in enumerate(expected)},
    )
    case = {**DEFAULTS, **{key: case_arguments[key] for key in COMPARED if key in case_arguments}}
    arguments = {k: v for k, v in (process_args or {}).items() if k != "extra_opset"}
    tables = {text(k): [plain(v).tolist() for v in pair] for k, pair in (tables or {}).items()}
    case |= {
        "inputs": list(feed_dict), "fed": list(fed), "outputs": list(output_names_with_port),
        "arguments": arguments, "optimize": optimize, "tables": tables,
    }  # fmt: skip
    (folder / "case.json").write_text(json.dumps(case, default=lambda v: v.item()))
    raise unittest.SkipTest("kept")


def save(tf, session, folder, inputs, outputs):
    """Write a SavedModel, which says what the inputs and the outputs are."""
    saved = tf.compat.v1.saved_model
    graph, info = session.graph, saved.utils.build_tensor_info
    with graph.as_default():
        found = {k.split(":")[0]: info(graph.get_tensor_by_name(k)) for k in inputs}
        made = {f"out{i}": info(graph.get_tensor_by_name(k)) for i, k in enumerate(outputs)}
        builder = saved.Builder(str(folder))
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": saved.build_signature_def(found, made, "")},
            main_op=tf.compat.v1.tables_initializer(),
            assets_collection=graph.get_collection(tf.compat.v1.GraphKeys.ASSET_FILEPATHS),
        )  # fmt: skip
        builder.save()


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def plain(value):
    array = np.asarray(value)
    if array.dtype.kind not in "OS":
        return array
    return np.vectorize(text, otypes=["U"])(array) if array.size else array.astype("U")
