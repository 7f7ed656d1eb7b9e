"""A Python that stands in for one with a GPU: sessions are real, and run on the CPU; what is
reported of where they were, and what is planted in what they computed, is the stand-in's.

It is what CONVERT_ONNXRUNTIME_PYTHON and CONVERT_TENSORFLOW_PYTHON name in the tests, started as
``stand_in runner.py FOLDER``. The source's framework is onnxruntime on the file that was converted,
before anything was planted.
"""

import json
import runpy
import sys
from pathlib import Path

import numpy as np

GPU, OTHER, CPU = "CUDAExecutionProvider:0", "CUDAExecutionProvider:1", "CPUExecutionProvider"
TEXT = """#!{python}
import sys
sys.path[:0] = [{tests!r}, {root!r}]
from stand_in_server import serve
serve()
from device_stand_in import main
main({converted!r}, {source!r}, {model!r})
"""


def install(folder, monkeypatch, *, model, converted="", source=""):
    """Make both variables name a stand-in for a GPU with these faults; return its path."""
    path = folder / "python"
    tests = Path(__file__).parent
    path.write_text(
        TEXT.format(
            python=sys.executable, tests=str(tests), root=str(tests.parents[1]),
            converted=converted, source=source, model=str(model),
        )
    )  # fmt: skip
    path.chmod(0o755)
    monkeypatch.setenv("CONVERT_ONNXRUNTIME_PYTHON", str(path))
    monkeypatch.setenv("CONVERT_TENSORFLOW_PYTHON", str(path))
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    return path


def main(converted: str, source: str, model: str) -> None:
    if sys.argv[-1] == "--probe":
        print('["keras", "tensorflow"]')
        return
    folder = Path(sys.argv[-1])
    question = json.loads((folder / "question.json").read_text())
    script = Path(sys.argv[-2])
    if script.name == "run_onnxruntime.py":
        graph(folder, question, converted)
    elif script.name == "run_keras.py":
        framework(folder, question, source, model)
    else:  # what is asked of the CPU
        sys.argv[:] = [str(script), str(folder)]
        runpy.run_path(str(script), run_name="__main__")


def ask(folder: Path, question: dict) -> dict:
    """Have onnxruntime answer, on the CPU."""
    from converter.verification.children import run_onnxruntime

    (folder / "question.json").write_text(json.dumps(question))
    run_onnxruntime.main(folder)
    return json.loads((folder / "answer.json").read_text())


def graph(folder: Path, question: dict, fault: str) -> None:
    """Answer for onnxruntime on a GPU."""
    device = question.pop("device", None)
    options = question.pop("options", {})
    allow_tf32 = question.pop("allow_tf32", False)
    if device is None:
        fault = ""
    if fault == "crash":
        sys.exit("CUDA error: an illegal memory access was encountered")
    if fault == "tf32":
        question["model"] = rounded(folder, question)
    answer = ask(folder, question)
    if device is None:
        return
    assert device == "CUDAExecutionProvider"
    assert options["use_tf32"] == str(int(allow_tf32))
    names = nodes(question["model"])
    places = dict.fromkeys(names, GPU)
    if fault == "whole fallback":
        places = dict.fromkeys(names, CPU)
    if fault == "partial fallback":
        places[names[0]] = CPU
    if fault == "other device":
        places[names[0]] = OTHER
    if fault == "fails there":
        answer["errors"] = {str(case): "CUDA out of memory" for case in question["cases"]}
    if fault != "no evidence":
        answer["placement"] = {
            "device": GPU,
            "how": "assignment of nodes",
            "places": [["node", *row] for row in places.items()],
            "facts": {"name": "Stand-in", "compute_capability": "9.0", "driver": "580.65"},
            "switches": {"tf32": allow_tf32, **options},
        }
    (folder / "answer.json").write_text(json.dumps(answer))
    for case in question["cases"]:
        files = sorted(folder.glob(f"{question['prefix']}-{case}-*.npy"))
        arrays = [np.load(file) for file in files]
        if fault == "swapped outputs":
            arrays.reverse()
        if fault == "swapped lanes":
            arrays[0] = arrays[0][..., ::-1]
        if fault == "nan":
            arrays[-1][..., 0] = np.nan
        for file, array in zip(files, arrays, strict=True):
            np.save(file, array)


def framework(folder: Path, question: dict, fault: str, model: str) -> None:
    """Answer for Keras: what it computes is what onnxruntime makes of the file."""
    device = question.get("device")
    about = {"python": "3", "versions": {"keras": "9.9", "backend": "tensorflow"}}
    if device and fault == "no device":
        said = about | {"status": "no device", "error": "TensorFlow sees no GPU:0, but CPU:0"}
        (folder / "answer.json").write_text(json.dumps(said))
        return
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=[CPU])
    inputs = [(i.name, "float32", [None, *i.shape[1:]]) for i in session.get_inputs()]
    outputs = [o.name for o in session.get_outputs()]
    chosen = [group[0] for group in question["cases"]]
    asked = {
        "model": model, "extras": [None], "outputs": [outputs], "inputs": question["inputs"],
        "cases": chosen, "prefix": "out",
    }  # fmt: skip
    assert not ask(folder, asked)["errors"]
    dtypes = ["float32"] * len(outputs)
    answer = about | {
        "status": "done",
        "cases": [{"chosen": number, "dtypes": dtypes, "refused": {}} for number in chosen],
        "device": device or "CPU:0",
        "inputs": inputs,
        "layers": [],
    }
    if device and fault != "no evidence":
        kernel = "CPU:0" if fault == "variable on the CPU" else device
        rows = [["variable", "near/kernel", kernel], ["node", "near/MatMul (MatMul)", device]]
        answer["placement"] = {"device": device, "how": "partition graphs", "places": rows}
    (folder / "answer.json").write_text(json.dumps(answer))


def nodes(model: str) -> list[str]:
    from formats.containers.protobuf.messages import decode
    from formats.core.storage import File, Span
    from formats.limits import DEFAULT
    from formats.onnx.schemas import SCHEMA

    found = decode(Span.whole(File(Path(model))), SCHEMA["ModelProto"], DEFAULT)
    return [f"{n.name} ({n.op_type})" for n in found.graph.each("node")]


def rounded(folder: Path, question: dict) -> str:
    """Round what products are made of as TF32 does: weights and inputs keep ten bits."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(question["model"])
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            array = ten_bits(numpy_helper.to_array(tensor))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for file in folder.glob("in-*.npy"):
        np.save(file, ten_bits(np.load(file)))
    path = folder / "rounded.onnx"
    onnx.save(model, path)
    return str(path)


def ten_bits(array: np.ndarray) -> np.ndarray:
    if array.dtype != np.float32:
        return array
    bits = np.ascontiguousarray(array).view("u4")
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view("f4").reshape(array.shape)
