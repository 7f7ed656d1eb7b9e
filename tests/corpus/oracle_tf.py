"""What TensorFlow or onnx itself reads in an artifact, as JSON: name, shape, dtype, sha256.

Run in a child process, with the Python of an environment that has the framework:

    <tf python>   oracle_tf.py KIND PATH    KIND: savedmodel, tf_checkpoint, tf1_frozen
    <onnx python> oracle_tf.py onnx PATH

Prints one object on stdout: ``tensors`` maps the framework's own key (checkpoint key, node name,
initialiser) to the facts; ``error`` says why there is none. Bytes are little-endian, row-major, as
the framework's numpy array has them; strings are hashed as their lengths (int64) and their bytes.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

FLAGS = {"_CHECKPOINTABLE_OBJECT_GRAPH"}


def facts(value):
    """Describe one numpy array."""
    import numpy as np

    value = np.asarray(value)
    digest = hashlib.sha256()
    if value.dtype.kind in "OSU":
        flat = [v if isinstance(v, bytes) else str(v).encode() for v in value.reshape(-1).tolist()]
        digest.update(np.array([len(v) for v in flat], np.int64).tobytes())
        digest.update(b"".join(flat))
        dtype = "string"
    else:
        if value.dtype.byteorder == ">":
            value = value.astype(value.dtype.newbyteorder("<"))
        dtype = value.dtype.names[0] if value.dtype.names else value.dtype.name
        if dtype in ("int4", "uint4", "int2", "uint2"):
            value = value.astype(np.int8)  # a byte each; the high bits mean nothing otherwise
        digest.update(np.ascontiguousarray(value).tobytes())
    return {"shape": list(value.shape), "dtype": dtype, "sha256": digest.hexdigest()}


def checkpoint(prefix):
    """Read all variables of a checkpoint."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(prefix)
    return {
        key: facts(reader.get_tensor(key))
        for key in reader.get_variable_to_shape_map()
        if key not in FLAGS
    }


def graph_constants(graph):
    """Read all Const nodes of a GraphDef and its functions."""
    import tensorflow as tf

    nodes = [(n.name, n) for n in graph.node]
    for function in graph.library.function:
        nodes += [(f"{function.signature.name}/{n.name}", n) for n in function.node_def]
    return {
        name: facts(tf.make_ndarray(n.attr["value"].tensor)) for name, n in nodes if n.op == "Const"
    }


def frozen(path):
    """Read a GraphDef file."""
    import tensorflow as tf

    data = Path(path).read_bytes()
    graph = tf.compat.v1.GraphDef()
    if path.endswith("txt"):
        from google.protobuf import text_format

        text_format.Parse(data.decode(), graph)
    else:
        graph.ParseFromString(data)
    return graph_constants(graph)


def saved_model(path):
    """Read the variables of a SavedModel, or its constants if it has none."""
    from tensorflow.python.saved_model import loader_impl

    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    prefix = folder / "variables" / "variables"
    if prefix.with_suffix(".index").exists():
        found = checkpoint(str(prefix))
        if found:
            return found
    message = loader_impl.parse_saved_model(str(folder))
    found = {}
    for meta_graph in message.meta_graphs:
        found.update(graph_constants(meta_graph.graph_def))
    return {k: v for k, v in found.items() if not k.startswith("__inference__traced_")}


def onnx_model(path):
    """Read all tensors of an ONNX file: initialisers, also of subgraphs, and constants."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(path)
    found = {}

    def walk(graph):
        for tensor in graph.initializer:
            found.setdefault(tensor.name, facts(numpy_helper.to_array(tensor)))
        for node in graph.node:
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.name == "value":
                    found.setdefault(node.output[0], facts(numpy_helper.to_array(attribute.t)))
                if attribute.type == onnx.AttributeProto.GRAPH:
                    walk(attribute.g)
                for inner in attribute.graphs:
                    walk(inner)

    walk(model.graph)
    return found


KINDS = {
    "savedmodel": saved_model,
    "tf_checkpoint": checkpoint,
    "tf1_frozen": frozen,
    "onnx": onnx_model,
}


def main():
    """Print what the framework reads."""
    kind, path = sys.argv[1:3]
    try:
        if kind == "tf_checkpoint" and Path(path).is_dir():
            import tensorflow as tf

            state = tf.train.get_checkpoint_state(path)
            # Paths in it may be of the machine that wrote it.
            path = str(Path(path) / Path(state.model_checkpoint_path).name)
        answer = {"tensors": KINDS[kind](path)}
    except Exception as e:  # noqa: BLE001 - the framework's own failure is the answer
        answer = {"error": f"{type(e).__name__}: {e}"[:500]}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
