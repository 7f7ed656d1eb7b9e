"""The child that runs written files in Keras: ``python run_keras_files.py QUESTION.json``.

Prints, for each row, what is wrong with it; nothing where its outputs are those that are stored.
"""

import json
import os
import sys
from pathlib import Path

from repository import ROOT

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np
import tensorflow as tf

sys.path.append(str(ROOT / "converter" / "verification" / "children"))
from run_keras import Framework


def difference(path: str, data: str) -> str:
    """Load a file, run it on the stored inputs, and compare with the stored outputs."""
    stored = np.load(data)
    keras.backend.clear_session()
    model = keras.models.load_model(path, compile=False, safe_mode=True)
    tensors = [tf.cast(stored[f"in{i}"], t.dtype) if str(t.dtype) != "string"
               else tf.constant(stored[f"in{i}"]) for i, t in enumerate(model.inputs)]  # fmt: skip
    structure = getattr(model, "_inputs_struct", model.inputs)
    given = keras.tree.pack_sequence_as(structure, tensors)
    outputs = keras.tree.flatten(model(given, training=False))  # noise is for training
    expected = [stored[key] for key in stored.files if key.startswith("out")]
    if len(outputs) != len(expected):
        return f"{len(outputs)} outputs, not {len(expected)}"
    for output, wanted in zip(outputs, expected, strict=True):
        found = np.asarray(output)
        if wanted.dtype.kind == "U":
            if [s.decode() for s in found.flat] != wanted.ravel().tolist():
                return "text differs"
            continue
        dtype = str(output.dtype.name).replace("bfloat16", "float32")  # as the row has it
        if found.shape != wanted.shape or dtype != str(wanted.dtype):
            return f"{output.dtype}{found.shape}, not {wanted.dtype}{wanted.shape}"
        scale = max(float(np.abs(wanted.astype("f8")).max(initial=0)), 1e-3)
        worst = np.abs(found.astype("f8") - wanted.astype("f8")).max(initial=0)
        tolerance = 5e-3 if wanted.dtype == np.float16 else 2e-5
        if not worst <= tolerance * scale:
            return f"differs by {worst / scale:.2g}"
    return ""


def loads(source: str) -> bool:
    """Whether Keras loads the source itself, of which it does not load a few of its own."""
    if not source.endswith(".keras"):
        return True
    try:
        keras.models.load_model(source, compile=False, safe_mode=True)
    except Exception:  # noqa: BLE001 - whatever it is, it is Keras's own
        return False
    return True


if __name__ == "__main__":
    rows = json.loads(Path(sys.argv[1]).read_text())
    answers = {}
    Framework({"framework": "keras", "prefix": "in"}).broadcast_additions()
    for name, (path, data, source) in rows.items():
        try:
            answers[name] = difference(path, data)
        except Exception as e:  # noqa: BLE001 - all rows that do not work are wanted, at once
            answers[name] = " ".join(repr(e).split())[:400] if loads(source) else ""
    sys.stdout.write(f"{json.dumps(answers)}\n")
