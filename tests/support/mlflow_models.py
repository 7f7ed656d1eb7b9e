"""Models that MLflow itself logs and loads, of every flavor: one process, for importing is slow.

    python mlflow_models.py log FOLDER NAME...      logs and registers models of these names;
                                                    NAME=ARTIFACT calls it otherwise in its run
    python mlflow_models.py predict FOLDER URI...   what MLflow makes of registered ones

`FOLDER/x.npy` are the inputs, `FOLDER/NAME.npy` what the source's own loader predicts of them.
The server is the one that MLFLOW_TRACKING_URI names. Works with MLflow 2 and 3.
"""

import json
import logging
import sys
import warnings
from pathlib import Path

import mlflow
import numpy as np

warnings.simplefilter("ignore")
logging.getLogger("mlflow").setLevel("ERROR")
MAJOR = int(mlflow.__version__.split(".")[0])
X = np.random.default_rng(0).standard_normal((4, 6)).astype("float32")


def keras_model():
    import keras

    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(5, "relu", name="hidden"), keras.layers.Dense(3, "softmax")]
    return keras.Sequential([keras.Input((6,), name="features"), *layers])


def torch_model():
    import torch

    torch.manual_seed(2)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(5, 3)
    ).eval()


def script():
    import torch

    return torch.jit.trace(torch_model(), torch.from_numpy(X))


def tf_module():
    import tensorflow as tf

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            values = np.random.default_rng(3).standard_normal((6, 3)).astype("float32")
            self.kernel = tf.Variable(values)

        @tf.function(input_signature=[tf.TensorSpec([None, 6], tf.float32, name="x")])
        def __call__(self, x):
            return tf.nn.sigmoid(tf.matmul(x, self.kernel))

    return Module()


def onnx_model():
    from onnx import TensorProto, helper, numpy_helper

    values = np.random.default_rng(4).standard_normal((6, 3)).astype("float32")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "kernel"], ["y"])],
        "main",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(values, "kernel")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def double(model_input):
    return model_input


PICKLE = {"serialization_format": "pickle"} if MAJOR >= 3 else {}
# Name → (flavor, what makes the model, arguments of its flavor).
MODELS = {
    "keras": ("keras", keras_model, {}),
    "tf-keras": ("tensorflow", keras_model, {}),
    "tf-module": ("tensorflow", tf_module, {}),
    "torch-pickle": ("pytorch", torch_model, PICKLE),
    "torch-script": ("pytorch", script, PICKLE),
    "torch-export": ("pytorch", torch_model, {}),
    "onnx": ("onnx", onnx_model, {}),
    "damaged": ("onnx", onnx_model, {}),
}


def log(folder: Path, names: list[str]) -> None:
    """Log models, each with its signature and an input example."""
    np.save(folder / "x.npy", X)
    mlflow.set_experiment("models")
    with mlflow.start_run():
        for given in names:
            name, _, artifact = given.partition("=")
            if name == "function":
                options = {"python_model": double, "input_example": ["a"]}
                flavor, options = mlflow.pyfunc, options
            else:
                kind, make, more = MODELS[name]
                flavor = getattr(mlflow, kind)
                signature = mlflow.models.infer_signature(X, np.zeros((4, 3), "float32"))
                options = {"signature": signature, **more}
                if kind != "keras":  # which fails to write one
                    options["input_example"] = X
                model = {"pytorch": "pytorch_model", "onnx": "onnx_model"}.get(kind, "model")
                options[model] = make()
            options["name" if MAJOR >= 3 else "artifact_path"] = artifact or name
            flavor.log_model(registered_model_name=name, pip_requirements=["numpy"], **options)
            if name != "function":
                np.save(folder / f"{name}.npy", predicted(f"models:/{name}/1"))


def predicted(uri: str) -> np.ndarray:
    """Return what MLflow's own loader predicts, as an array: some flavors name it."""
    found = mlflow.pyfunc.load_model(uri).predict(X)
    return np.asarray(next(iter(found.values())) if isinstance(found, dict) else found)


def predict(folder: Path, uris: list[str]) -> None:
    """Compare what registered models predict with what their sources did."""
    errors = {}
    for uri in uris:
        source, _, _ = uri.removeprefix("models:/").partition("_")
        errors[uri] = float(np.abs(predicted(uri) - np.load(folder / f"{source}.npy")).max())
    print(json.dumps(errors))


if __name__ == "__main__":
    {"log": log, "predict": predict}[sys.argv[1]](Path(sys.argv[2]), sys.argv[3:])
