"""The child that runs a graph in onnxruntime: ``python runner_onnx.py FOLDER``.

It knows nothing of the project, and nothing of the project imports it. ``question.json`` says:

    model     path of the ONNX file
    extras    files of bytes to append to the model, one session each; a protobuf's fields may come
              in pieces, so that these add outputs; null for the model as it is
    outputs   for each of them, the names of the outputs to fetch
    inputs    names of the inputs
    cases     their numbers: inputs are ``in-CASE-INPUT.npy``
    prefix    of the outputs written: ``PREFIX-CASE-OUTPUT.npy``, numbered through all sessions

and ``answer.json``: versions, provider, and why it refused the model or failed on a case.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

# A session of a model in memory looks for external data here; a file's own folder is the default.
BFLOAT16, BFLOAT16_NUMBER = "tensor(bfloat16)", 16  # https://github.com/onnx/onnx onnx.in.proto
EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"


def main(folder: Path) -> None:
    """Answer the question in the folder."""
    onnxruntime = importlib.import_module("onnxruntime")
    onnxruntime.set_default_logger_severity(4)
    question = json.loads((folder / "question.json").read_text())
    answer: dict[str, Any] = {
        "version": onnxruntime.__version__,
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "errors": {},
    }
    first = 0
    for extra, names in zip(question["extras"], question["outputs"], strict=True):
        try:
            session = open_session(onnxruntime, question["model"], extra and folder / extra)
        except Exception as e:  # whatever it refuses a model with, its words are the answer
            answer["refused"] = one_line(e)
            break
        answer["device"] = session.get_providers()[0]
        types = {spec.name: spec.type for spec in session.get_inputs()}
        for case in question["cases"]:
            try:
                arrays = {
                    name: fed(np.load(folder / f"in-{case}-{i}.npy"), types[name])
                    for i, name in enumerate(question["inputs"])
                }
                results = run(onnxruntime, session, names, arrays, types)
            except Exception as e:
                answer["errors"][str(case)] = one_line(e)
                continue
            for i, result in enumerate(results, first):
                np.save(folder / f"{question['prefix']}-{case}-{i}.npy", plain(result))
        first += len(names)
    (folder / "answer.json").write_text(json.dumps(answer))


def open_session(onnxruntime: Any, model: str, extra: Path | None) -> Any:
    """Return a session on the CPU, and on nothing else."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    if extra is None:
        return onnxruntime.InferenceSession(model, options, providers=providers)
    options.add_session_config_entry(EXTERNAL_FOLDER, str(Path(model).parent))
    data = Path(model).read_bytes() + extra.read_bytes()
    return onnxruntime.InferenceSession(data, options, providers=providers)


def run(
    onnxruntime: Any, session: Any, names: list[str], arrays: dict[str, Any], types: dict[str, str]
) -> list[Any]:
    """Run a session; numpy has no bfloat16, so inputs of that are handed over as onnxruntime's."""
    given = dict(arrays)
    for name, array in arrays.items():
        if types[name] == BFLOAT16:
            bits = array.astype(importlib.import_module("ml_dtypes").bfloat16).view(np.uint16)
            make = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type
            given[name] = make(bits, BFLOAT16_NUMBER)
    return list(session.run(names, given))


def fed(array: "np.ndarray[Any, Any]", kind: str) -> "np.ndarray[Any, Any]":
    """Return an input as onnxruntime wants it."""
    return array.astype(object) if kind == "tensor(string)" else array


def plain(result: Any) -> "np.ndarray[Any, Any]":
    """Return an output as an .npy file can keep it."""
    array = np.asarray(result)
    return array.astype("U") if array.dtype.kind == "O" else array


def one_line(error: Exception) -> str:
    """Return an exception as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


if __name__ == "__main__":
    # This file's folder is no place to import from: its modules may be called like others'.
    if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
        del sys.path[0]
    main(Path(sys.argv[1]))
