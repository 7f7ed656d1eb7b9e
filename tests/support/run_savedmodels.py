"""The child that loads SavedModels in TensorFlow: ``python run_savedmodels.py QUESTION.json``.

The question is a list of rows: which folder, which stored values, ``session`` or ``eager``, soft
placement or not. The answers, a list as well, say what was raised, or for each signature what is
wrong with its outputs (nothing, if they are those stored), and where variables were and ops ran.
There are two CPUs and no GPU.
"""

import json
import os
import sys
from collections import defaultdict
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

v1 = tf.compat.v1


def stored(path):
    """Return signature → (inputs, outputs), in the order in which they were computed."""
    found = {}
    with np.load(path) as arrays:
        for key in arrays:
            signature, side, name = key.split("|")
            found.setdefault(signature, {"in": {}, "out": {}})[side][name] = arrays[key]
    return found


def difference(found, wanted):
    if set(found) != set(wanted):
        return f"outputs {sorted(found)}, not {sorted(wanted)}"
    for name, value in wanted.items():
        given = np.asarray(found[name])
        if value.dtype.kind == "S":
            if [bytes(v) for v in given.ravel()] != [bytes(v) for v in value.ravel()]:
                return f"{name}: text differs"
        elif given.shape != value.shape or not np.allclose(given, value, rtol=1e-5, atol=1e-6):
            return f"{name}: differs by {np.max(np.abs(given - value))}"
    return ""


def name_of(signature):
    return "serve" if signature == "after" else signature


def short(device):
    return device.rsplit("device:", 1)[-1]


def ran(metadata):
    """Return op → the devices that it ran on."""
    found = defaultdict(set)
    for graph in (
        *metadata.partition_graphs,
        *(g for f in metadata.function_graphs for g in f.partition_graphs),
    ):
        for node in graph.node:
            found[node.op].add(short(node.device))
        for function in graph.library.function:
            for node in function.node_def:
                if node.device:
                    found[node.op].add(short(node.device))
    return {op: sorted(devices) for op, devices in found.items()}


def in_session(row, data):
    config = v1.ConfigProto(allow_soft_placement=row["soft"], device_count={"CPU": 2})
    answers, placed = {}, {}
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        graph = v1.saved_model.load(session, row.get("tags", ["serve"]), row["path"])
        for signature, values in data.items():
            definition = graph.signature_def[name_of(signature)]
            feed = {definition.inputs[k].name: v for k, v in values["in"].items()}
            fetch = {k: t.name for k, t in definition.outputs.items()}
            options = v1.RunOptions(output_partition_graphs=True)
            metadata = v1.RunMetadata()
            found = session.run(fetch, feed, options=options, run_metadata=metadata)
            answers[signature] = difference(found, values["out"])
            placed[signature] = ran(metadata)
    return {"wrong": answers, "ran": placed, "variables": {}}


def eagerly(row, data):
    tf.config.set_soft_device_placement(row["soft"])
    options = None
    if row.get("with_devices"):
        policy = tf.saved_model.experimental.VariablePolicy.SAVE_VARIABLE_DEVICES
        options = tf.saved_model.LoadOptions(experimental_variable_policy=policy)
    model = tf.saved_model.load(row["path"], options=options)
    answers, placed, variables = {}, {}, {}
    for signature, values in data.items():
        function = model.signatures[name_of(signature)]
        context.context().enable_run_metadata()
        found = function(**{k: tf.constant(v) for k, v in values["in"].items()})
        placed[signature] = ran(context.context().export_run_metadata())
        context.context().disable_run_metadata()
        answers[signature] = difference(found, values["out"])
        for variable in function.variables:
            variables[variable.name] = short(variable.device)
    return {"wrong": answers, "ran": placed, "variables": variables}


def in_keras(row, data):
    """Load it as tf_keras itself does, with its layers."""
    import tf_keras

    tf.config.set_soft_device_placement(row["soft"])
    model = tf_keras.models.load_model(row["path"])
    answers = {}
    for signature, values in data.items():
        (given,), (name,) = values["in"].values(), values["out"]
        answers[signature] = difference({name: model(given, training=False)}, values["out"])
    variables = {v.name: short(v.device) for v in model.variables}
    return {"wrong": answers, "ran": {}, "variables": variables}


WAYS = {"session": in_session, "eager": eagerly, "keras": in_keras}


def main():
    rows = json.loads(Path(sys.argv[1]).read_text())
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    answers = []
    for row in rows:
        data = stored(row["data"])
        data = {k: v for k, v in data.items() if k in row.get("signatures", data)}
        try:
            answers.append(WAYS[row["how"]](row, data))
        except Exception as e:  # noqa: BLE001 - what TensorFlow raises is its answer
            answers.append({"error": f"{type(e).__name__}: {e}"})
        finally:
            tf.config.set_soft_device_placement(True)
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
