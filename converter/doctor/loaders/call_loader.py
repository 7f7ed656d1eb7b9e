"""Call one official loader on an artifact; run in a child process with limits.

``question.json`` is ``{"loader", "path", "environment"}``; ``answer.json`` is ``{"outcome",
"error", "message", "version"}``. Every loader is called in its safe mode: ``weights_only=True``,
``safe_mode=True``. It imports nothing of the project, so that any Python runs it.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def load_torch(path: str, **options: str) -> Any:
    """Call torch.load."""
    torch = importlib.import_module("torch")
    torch.load(path, weights_only=True, **options)
    return torch


def load_torchscript(path: str, **options: str) -> Any:
    """Call torch.jit.load."""
    torch = importlib.import_module("torch")
    torch.jit.load(path, **options)
    return torch


def load_keras(path: str, module: str) -> Any:
    """Call load_model of Keras 3 or of Keras 2."""
    keras = importlib.import_module(module)
    options = {} if int(keras.__version__.split(".")[0]) < 3 else {"safe_mode": True}
    keras.models.load_model(path, **options)
    return keras


def load_saved_model(path: str) -> Any:
    """Call tf.saved_model.load."""
    tensorflow = importlib.import_module("tensorflow")
    tensorflow.saved_model.load(path)
    return tensorflow


def import_graph(path: str) -> Any:
    """Import a GraphDef, binary or text."""
    tensorflow = importlib.import_module("tensorflow")
    text_format = importlib.import_module("google.protobuf.text_format")
    proto = tensorflow.compat.v1.GraphDef()
    data = Path(path).read_bytes()
    if path.endswith(".pbtxt"):
        text_format.Parse(data.decode(), proto)
    else:
        proto.ParseFromString(data)
    with tensorflow.Graph().as_default():
        tensorflow.graph_util.import_graph_def(proto, name="")
    return tensorflow


def open_checkpoint(path: str) -> Any:
    """Call tf.train.load_checkpoint."""
    tensorflow = importlib.import_module("tensorflow")
    tensorflow.train.load_checkpoint(path.removesuffix(".index"))
    return tensorflow


def create_session(path: str) -> Any:
    """Create an onnxruntime session."""
    onnxruntime = importlib.import_module("onnxruntime")
    onnxruntime.set_default_logger_severity(4)
    onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return onnxruntime


def open_safetensors(path: str) -> Any:
    """Open a safetensors file."""
    safetensors = importlib.import_module("safetensors")
    with safetensors.safe_open(path, framework="np") as f:
        list(f.keys())
    return safetensors


CPU = {"map_location": "cpu"}
LOADERS: dict[str, Callable[[str], Any]] = {
    "torch.load(path)": load_torch,
    'torch.load(path, map_location="cpu")': lambda path: load_torch(path, **CPU),
    "torch.jit.load(path)": load_torchscript,
    'torch.jit.load(path, map_location="cpu")': lambda path: load_torchscript(path, **CPU),
    "keras.models.load_model(path)": lambda path: load_keras(path, "keras"),
    "tf_keras.models.load_model(path)": lambda path: load_keras(path, "tf_keras"),
    "tf.saved_model.load(path)": load_saved_model,
    "tf.graph_util.import_graph_def(graph_def)": import_graph,
    "tf.train.load_checkpoint(path)": open_checkpoint,
    "onnxruntime.InferenceSession(path)": create_session,
    "safetensors.safe_open(path)": open_safetensors,
}


def main() -> None:
    """Answer the question."""
    folder = Path(sys.argv[1])
    question = json.loads((folder / "question.json").read_text())
    for name, value in question["environment"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    answer = {"outcome": "loads", "error": "", "message": "", "version": ""}
    try:
        module = LOADERS[question["loader"]](question["path"])
        answer["version"] = str(getattr(module, "__version__", ""))
    except BaseException as e:  # noqa: BLE001 - the exception is the answer
        answer |= {"outcome": "fails", "error": type(e).__name__, "message": str(e)[:4000]}
    (folder / "answer.json").write_text(json.dumps(answer))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
