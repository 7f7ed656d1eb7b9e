"""What TensorFlow or onnx itself reads in an artifact, as JSON: name, shape, dtype, sha256.

Run in a child process, with the Python of an environment that has the framework:

    <tf python>   oracle_tf.py KIND PATH    KIND: savedmodel, tf_checkpoint, tf1_frozen
    <onnx python> oracle_tf.py onnx PATH

Prints one object on stdout: ``tensors`` maps the framework's own key (checkpoint key, node name,
initialiser) to the facts; ``error`` says why there is none. Bytes are little-endian, row-major,
elements below a byte packed from the low bits up; strings are hashed as their lengths (int64) and
their bytes. Values that only TensorFlow can hold (variants, resources) are left out.
"""

import hashlib
import json
import os
import sys
from collections import Counter
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

FLAGS = {"_CHECKPOINTABLE_OBJECT_GRAPH"}
PACKED = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}  # bits


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
        digest.update(packed(value, PACKED[dtype]) if dtype in PACKED else value.tobytes())
    return {"shape": list(value.shape), "dtype": dtype, "sha256": digest.hexdigest()}


def packed(value, bits):
    """Return elements that take a byte each in numpy, packed from the low bits up."""
    import numpy as np

    data = value.reshape(-1).view(np.uint8) & ((1 << bits) - 1)
    data = np.concatenate([data, np.zeros(-len(data) % (8 // bits), np.uint8)])
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(data.reshape(-1, 8 // bits) << shifts, axis=1).tobytes()


def checkpoint(prefix):
    """Read all variables of a checkpoint."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(prefix)
    found = {}
    for key, dtype in reader.get_variable_to_dtype_map().items():
        if key in FLAGS or dtype in (tf.variant, tf.resource):
            continue
        found[key] = facts(reader.get_tensor(key))
        if dtype.is_quantized:  # numpy has plain integers
            found[key]["dtype"] = dtype.name
    return found


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
    """Read all tensors of an ONNX file: initialisers, also of subgraphs, and constants.

    A name that several graphs of the model use names none of them, and is left out.
    """
    import onnx
    from onnx import numpy_helper

    model = onnx.load(path)
    found, used = {}, Counter()

    def add(name, tensor):
        used[name] += 1
        found[name] = facts(numpy_helper.to_array(tensor))

    def walk(graph):
        for tensor in graph.initializer:
            add(tensor.name, tensor)
        for node in graph.node:
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.name == "value":
                    add(node.output[0], attribute.t)
                if attribute.type == onnx.AttributeProto.GRAPH:
                    walk(attribute.g)
                for inner in attribute.graphs:
                    walk(inner)

    walk(model.graph)
    return {name: fact for name, fact in found.items() if used[name] == 1}


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
