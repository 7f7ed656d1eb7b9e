"""Every kept case converted by someone, run by onnxruntime, and compared as its test compares."""

import json
import signal
from pathlib import Path

import numpy as np
import onnxruntime

SECONDS = 60  # for a case


def drive(root: Path, convert) -> dict[str, str]:
    """Return for each case "passed", or what came of it.

    Args:
        root: Of the cases.
        convert: Given a folder and its case: bytes of a model, names of outputs, inputs by name.
    """
    found = {}
    signal.signal(signal.SIGALRM, late)
    for path in sorted(root.glob("*/case.json")):
        case, data = json.loads(path.read_text()), np.load(path.with_name("data.npz"))
        signal.alarm(SECONDS)
        try:
            compare(case, data, run(*convert(path.parent, case, data)), convert)
            found[path.parent.name] = "passed"
        except Exception as e:  # noqa: BLE001 - whatever it is, it is the result
            found[path.parent.name] = f"{type(e).__name__}: {' '.join(str(e).split())[:300]}"
        finally:
            signal.alarm(0)
    return found


def late(number, frame):
    raise TimeoutError(f"more than {SECONDS} s")


def run(model, outputs, fed):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    fed = {k: v.astype(object) if v.dtype.kind == "U" else v for k, v in fed.items()}
    return session.run(outputs, fed)


def compare(case, data, found, convert):
    """As `assert_results_equal` of their suite does."""
    turned = case["arguments"].get("outputs_as_nchw", ()) if convert.__name__ == "theirs" else ()
    for i, name in enumerate(case["outputs"]):
        theirs, ours = data[f"out{i}"], np.asarray(found[i])
        if name in turned:
            ours = ours.transpose(0, 2, 3, 1)
        if theirs.dtype.kind == "U":
            assert [s.replace("\0", "") for s in theirs.flat] == list(ours.flat)
        elif case.get("check_value", True):
            if case["mtol"] is not None:
                theirs, ours = (np.clip(v, -case["mtol"], case["mtol"]) for v in (theirs, ours))
            np.testing.assert_allclose(theirs, ours, rtol=case["rtol"], atol=case["atol"])
        if case.get("check_dtype", True) and theirs.dtype.kind != "U":
            assert theirs.dtype == ours.dtype, f"{ours.dtype}, expected {theirs.dtype}"
        if case.get("check_shape", True):
            assert theirs.shape == ours.shape, f"{ours.shape}, expected {theirs.shape}"
